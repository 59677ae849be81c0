"""Models with terms: coefficients and intervals in raw units are those of ordinary least squares on raw terms."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import gaussmix as gm

COLUMNS = {
    "wage": [50, 5000],
    "experience": [-4, 63],
    "sex": ["f", "m", "x"],
    "smsa": "boolean",
    "age": {"lower": 10, "upper": 100, "weight": 0.5},
    "y": [-20, 40],
    "w": [0, 9],
}
TERMS = ["log(wage)", "poly(experience, 3)", "poly(experience, 2):sex", "age:smsa", "sex:smsa", "age:experience"]
FORMULA = "y ~ poly(experience, 3) + log(wage) + poly(experience, 2):sex + sex*smsa + age*smsa + age:experience"
RAW = (
    "y ~ experience + I(experience**2) + I(experience**3) + np.log(wage) + sex*(experience + I(experience**2))"
    " + sex*smsa + age*smsa + age:experience"
)
STATSMODELS = {"I(experience ** 2)": "experience^2", "I(experience ** 3)": "experience^3", "np.log(wage)": "log(wage)"}


def workers(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "wage": np.exp(np.clip(rng.normal(6, 0.6, n), 4, 8)),
            "experience": rng.uniform(-4, 63, n),
            "sex": rng.choice(["f", "m", "x"], n),
            "smsa": rng.random(n) < 0.6,
            "age": rng.uniform(18, 90, n),
            "w": rng.uniform(0, 9, n),
        }
    )
    x, male = table.experience, table.sex == "m"
    table["y"] = 0.3 * x - 0.004 * x**2 + 0.1 * male * x + np.log(table.wage) + 0.05 * table.smsa * table.age
    table["y"] += rng.normal(size=n)
    return table


def renamed(params):
    """Names of statsmodels in ours: 'sex[T.m]:I(experience ** 2)' is 'experience^2:sex=m'."""
    found = {}
    for name, value in params.items():
        parts = []
        for part in name.split(":"):
            part = STATSMODELS.get(part, part)
            column, bracket, level = part.partition("[T.")
            parts.append(column if level == "True]" else f"{column}={level[:-1]}" if bracket else part)
        found[frozenset(parts)] = value
    return found


@pytest.fixture(scope="module")
def table():
    return workers()


@pytest.fixture(scope="module")
def schema():
    columns = {name: column for name, column in COLUMNS.items() if name != "w"}
    return gm.Schema.of(columns, terms=TERMS, only_in_terms=["wage"])


@pytest.fixture(scope="module")
def exact(table, schema):
    return gm.release(table, schema=schema, epsilon=math.inf, delta=1e-6)


def same(found, wanted, rtol):
    wanted = renamed(wanted)
    assert len(found) == len(wanted)
    for name, value in found.items():
        own = wanted[frozenset(["Intercept"] if name == "(intercept)" else name.split(":"))]
        assert value == pytest.approx(own, rel=rtol, abs=rtol), name


def test_coefficients_in_raw_units_are_those_of_least_squares(exact, table):
    model, ols = exact.ols(FORMULA), smf.ols(RAW, data=table).fit()
    same(model.params, ols.params, 2e-4)
    np.testing.assert_allclose(model.predict(table), ols.predict(table), atol=1e-4)
    width = np.ptp(model.prediction_interval(table.head(2)), axis=1)
    np.testing.assert_allclose(width, 2 * 1.96 * np.sqrt(np.mean(ols.resid**2)), rtol=1e-3)


def test_levels_of_products_are_merged_and_left_out_as_those_of_columns(exact, table):
    model = exact.ols(FORMULA)
    for levels, name in ((["m", "x"], "rest"), (["f", "x"], "m")):  # with the first level, and without
        merged = model.summary(collapse={"sex": {"rest": levels}}).params
        two = smf.ols(
            RAW.replace("sex", "g"),
            data=table.assign(g=table.sex.isin(["m", *levels] if name == "rest" else ["m"]).astype(int)),
        ).fit()
        assert len(merged) == len(two.params)
        assert merged[f"experience^2:sex={name}"] == pytest.approx(two.params["g:I(experience ** 2)"], rel=1e-3)
        assert merged[f"sex={name}:smsa"] == pytest.approx(two.params["g:smsa[T.True]"], rel=1e-3, abs=1e-4)
    with pytest.raises(ValueError, match="the level must be 'f', the first level of"):
        model.summary(reference={"sex": "m"})
    assert "sex=f" in exact.ols("y ~ age + sex").summary(reference={"sex": "m"}).params


def test_intervals_go_through_the_same_map(table, schema):
    """A model in raw units is the one in encoded units: an interval about the square is 1/(2h²/3) of P₂'s."""
    private = gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, passes=1, random_state=1)
    model = private.ols("y ~ poly(experience, 2) + sex")
    problem = model.problem()
    at = problem.names.index("experience^2")
    half, span = 67 / 2, 60 / 2
    assert problem.to_user[at, at] == pytest.approx(span / (2 * half**2 / 3))
    assert np.count_nonzero(problem.to_user[at]) == 1
    own = problem.names.index("experience")
    assert problem.to_user[own, at] == pytest.approx(-2 * 29.5 * problem.to_user[at, at])
    low, high = model.conf_int()["experience^2"]
    ols = smf.ols("y ~ experience + I(experience**2) + sex", data=table).fit()
    assert low < ols.params["I(experience ** 2)"] < high
    assert high - low == pytest.approx(2 * 1.96 * model.bse["experience^2"], rel=0.5)
    low, high = model.conf_int()["experience"]
    assert low < ols.params["experience"] < high


def test_hardly_any_noise_gives_least_squares(table, schema):
    private = gm.release(table, schema=schema, epsilon=30.0, delta=1e-6, random_state=2)
    model, ols = private.ols("y ~ age*smsa"), smf.ols("y ~ age*smsa", data=table).fit()
    for name, (low, high) in model.conf_int(1e-6).items():
        assert (
            low <= renamed(ols.params)[frozenset(["Intercept"] if name == "(intercept)" else name.split(":"))] <= high
        )


def test_what_a_model_may_hold(exact):
    assert exact.ols("log(wage)").response == "log(wage)"
    assert "log(wage)" not in exact.ols("y", predictors=["sex"]).columns
    default = exact.ols("age").columns
    assert not [name for name in default if "age" in name.split(":")]  # terms of the target explain nothing
    assert set(exact.ols("y ~ smsa*sex").columns) == {"smsa", "sex=f", "sex=m", "sex=x", "sex=m:smsa", "sex=x:smsa"}
    with pytest.raises(ValueError, match="requires 'sex' in the model"):
        exact.ols("y", predictors=["experience", "experience:sex"])
    with pytest.raises(ValueError, match="'age:sex' must be declared in the schema's terms"):
        exact.ols("y ~ age*sex")
    with pytest.raises(ValueError, match="used only inside terms"):
        exact.ols("y ~ wage")
    with pytest.raises(ValueError, match=r"experience\^2' cannot be a response"):
        exact.ols("experience^2", predictors=["age"])
    with pytest.raises(ValueError, match="cannot be combined with a formula"):
        exact.ols("y ~ age", predictors=["age"])
    assert exact.pca(["poly(experience, 2)"])[2] == ("experience", "experience^2")


def test_a_release_with_terms_is_kept_in_its_file(exact, tmp_path):
    exact.save(tmp_path / "r.parquet")
    again = gm.load(tmp_path / "r.parquet")
    assert again.schema == exact.schema
    assert again.ols(FORMULA).params == exact.ols(FORMULA).params


# -- weights and missing values ---------------------------------------------------------------------------------------
def test_a_weighted_release_is_about_the_weighted_table(table):
    private = gm.release(table, schema=COLUMNS, weight="w", epsilon=math.inf, delta=1e-6)
    model = private.ols("y", predictors=["age", "experience", "sex"])
    same(model.params, smf.wls("y ~ age + experience + sex", data=table, weights=table.w).fit().params, 1e-4)
    assert model.nobs == pytest.approx(table.w.sum(), rel=1e-5)
    assert model.problem().counts["sex=m"][0] == pytest.approx(table.w[table.sex == "m"].sum(), rel=1e-5)
    assert "the weights sum to about" in str(model.summary())
    with pytest.raises(ValueError, match="sum of squared weights"):
        model.summary(estimand="population")
    width = np.ptp(model.prediction_interval(table.head(1)), axis=1)
    left = table.y - model.predict(table)
    np.testing.assert_allclose(width, 2 * 1.96 * np.sqrt(np.average(left**2, weights=table.w)), rtol=1e-3)


def test_passes_over_weighted_rows_do_not_take_their_number_for_the_weights(table):
    columns = {"age": [10, 100], "experience": [-4, 63], "w": [0, 9]}
    private = gm.release(table, schema=columns, weight="w", epsilon=20.0, delta=1e-6, random_state=0, passes=2)
    assert len(private.statistic.passes) == 2
    assert private.ols("age").nobs == pytest.approx(table.w.sum(), rel=0.03)


def test_missing_values_have_a_column_of_their_own(table):
    holes = table.assign(age=table.age.where(np.arange(len(table)) % 5 > 0))
    columns = COLUMNS | {"age": {"lower": 10, "upper": 100, "missing": "indicator"}}
    schema = gm.Schema.of(columns, terms=["poly(age, 2)", "age:smsa"])
    model = gm.release(holes, schema=schema, epsilon=math.inf, delta=1e-6).ols("y ~ poly(age, 2) + age*smsa")
    z = ((holes.age - 55) / 45).fillna(0)
    design = pd.DataFrame(
        {
            "y": holes.y,
            "z": z,
            "p": np.where(holes.age.isna(), 0, 1.5 * z**2 - 0.5),
            "s": 2.0 * holes.smsa - 1,
            "gone": holes.age.isna().astype(float),
        }
    )
    ols = smf.ols("y ~ z + p + s + s:z + gone", data=design).fit()
    assert model.params["age=(missing)"] == pytest.approx(ols.params["gone"], rel=1e-3)
    assert model.params["age^2"] == pytest.approx(1.5 * ols.params["p"] / 45**2, rel=1e-3)
    np.testing.assert_allclose(model.predict(holes), ols.predict(design), atol=1e-4)
    with pytest.raises(ValueError, match="has a missing-value indicator"):
        gm.release(holes, schema=schema, epsilon=math.inf, delta=1e-6).ols("age")
