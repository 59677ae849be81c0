"""Generalised linear models from a release: against maximum likelihood on the drawn rows, on the table, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import special

import gaussmix as gm
from gaussmix.models import glm, likelihood
from gaussmix.models.design import Response
from gaussmix.models.families import LOGIT, POISSON, PROBIT, family_of
from gaussmix.models.inference import Coefficients
from gaussmix.models.likelihood import ALLOWANCE, Model, Rows, fit_model, solve
from gaussmix.models.rendering import APPROXIMATE
from gaussmix.releases.certificate import NO_GUARANTEE

SCHEMA = {
    "age": [0, 100],
    "income": [0, 400],
    "smoker": "boolean",
    "region": {"levels": ["north", "south", "west"]},
    "sick": "boolean",
    "visits": [0, 30],
    "years": [0, 12],
    "claims": [0, 10],
}
ON = ["age", "income", "smoker", "region"]


def table(n=30_000, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    smoker = rng.random(n) < 0.3 - 0.1 * (region == "west")
    age = np.clip(rng.normal(50, 15, n) - 5 * smoker, 0, 100)
    income = np.clip(np.exp(3.5 + 0.01 * age + 0.6 * rng.normal(size=n)), 0, 400)
    eta = -3.5 + 0.05 * age + 1.2 * smoker - 0.7 * (region == "south") - 0.004 * income
    sick = rng.random(n) < special.expit(eta)
    visits = np.clip(rng.poisson(np.exp(0.2 + 0.01 * age + 0.4 * smoker - 0.002 * income)), 0, 30)
    years = np.clip(rng.exponential(2.0, n) * (1 + 0.5 * smoker), 0, 12)
    claims = np.clip(rng.poisson(years * np.exp(-2 + 0.8 * smoker - 0.5 * (region == "west"))), 0, 10)
    return pd.DataFrame(
        {"age": age, "income": income, "smoker": smoker, "region": region, "sick": sick, "visits": visits.astype(float),
         "years": years, "claims": claims.astype(float)}
    )  # fmt: skip


TABLE = table()


def released(epsilon, seed=0, rows=TABLE, **options):
    return gm.release(rows, schema=SCHEMA, epsilon=epsilon, delta=1e-6, random_state=seed, **options)


@pytest.fixture(scope="module")
def private():
    return released(3.0)


@pytest.fixture(scope="module")
def exact():
    return gm.release(TABLE, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def design(coded, names):
    columns = {"(intercept)": np.ones(len(coded))}
    for name in names:
        if name != "(intercept)":
            column, _, level = name.partition("=")
            columns[name] = (coded[column] == level if level else coded[column]).to_numpy(float)
    return np.column_stack([columns[name] for name in names])


def full_data(release, response, names, family, **options):
    coded = release.topcode(TABLE)
    scale = np.abs(design(coded, names)).max(axis=0)
    fit = sm.GLM(coded[response].to_numpy(float), design(coded, names) / scale, family=family, **options).fit()
    return dict(zip(names, fit.params / scale, strict=True)), dict(zip(names, fit.bse / scale, strict=True))


FAMILIES = {
    "logit": (sm.families.Binomial(), "sick"),
    "probit": (sm.families.Binomial(sm.families.links.Probit()), "sick"),
    "poisson": (sm.families.Poisson(), "visits"),
}


# ---------------------------------------------------------------------------------------------------------------
# The equation
@pytest.mark.parametrize("name", FAMILIES)
def test_the_solution_on_drawn_rows_is_that_of_statsmodels(private, name):
    """Responses xᵀb on drawn rows, outside of the range of responses: a quasi-likelihood with the same equation."""
    family, response = FAMILIES[name]
    own = private.fit(name, response, ON)._solution
    X = own.rows.X
    b = np.linalg.lstsq(X, X[:, 0], rcond=None)[0]
    y = np.clip(family_of(name).mean.inverse(own.eta[:, 0]) + 0.05 * np.sin(np.arange(len(X))), 0.001, None)
    y = np.minimum(y, 0.999) if name != "poisson" else y
    found = solve(
        Rows(X, np.full(len(X), 1 / len(X))), (y @ X / len(X))[np.newaxis], likelihood.mean_of(family_of(name)),
        penalty=np.zeros((1, X.shape[1])), start=np.zeros((1, X.shape[1])),
    )  # fmt: skip
    assert found.converged
    residual = family_of(name).mean.inverse(X @ found.theta[0]) - y
    assert np.abs(X.T @ residual).max() / len(X) < 1e-9
    if name != "probit":  # canonical: maximum likelihood
        assert found.theta[0] == pytest.approx(sm.GLM(y, X, family=family).fit().params, rel=1e-5, abs=1e-6)
    assert b[0] == pytest.approx(1.0)


@pytest.mark.parametrize("name", FAMILIES)
def test_sensitivities_are_those_of_finite_differences(private, name, monkeypatch):
    """θ moves with b by J: the equation is solved again with every b moved."""
    model = private.fit(name, FAMILIES[name][1], ["age", "smoker", "region"])._model
    wide, narrow = model.problem(exposure=True), model.problem()
    linear = likelihood._Linear.of(model, narrow, wide)
    distribution = model.distributions()[0]
    solved = likelihood._solved(model, linear, distribution)
    J = np.linalg.inv(solved[1].hessian) @ solved[3]
    for place in range(len(linear.b[0])):
        step = 1e-5
        ends = []
        for side in (-1, 1):
            b = linear.b.copy()
            b[0, place] += side * step
            ends.append(likelihood._solved(model, replace(linear, b=b), distribution)[1].theta[0])
        assert (ends[1] - ends[0]) / (2 * step) == pytest.approx(J[:, place], rel=2e-2, abs=2e-3 * np.abs(J).max())


def test_levels_alone_are_exact(exact):
    """With categories that are independent in the table's second moments one category gives the table's own ratios."""
    for name in ("logit", "poisson"):
        family, response = FAMILIES[name]
        found = exact.fit(name, response, ["region"]).params
        truth, error = full_data(exact, response, list(found), family)
        for key, value in truth.items():
            assert found[key] == pytest.approx(value, abs=0.15 * error[key])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_large_budget_gives_maximum_likelihood(name):
    release = released(30.0)
    family, response = FAMILIES[name]
    found = release.fit(name, response, ON).params
    truth, error = full_data(release, response, list(found), family)
    far = {key: (found[key] - truth[key]) / error[key] for key in truth}
    assert max(map(abs, far.values())) < (2.5 if name == "probit" else 1.5), far


def test_several_classes_are_those_of_statsmodels():
    release = released(30.0)
    model = release.mnlogit("region", ["age", "smoker", "income"])
    coded = release.topcode(TABLE)
    names = ["(intercept)", "age", "smoker", "income"]
    codes = coded["region"].map({"north": 0, "south": 1, "west": 2}).to_numpy()
    fit = sm.MNLogit(codes, design(coded, names)).fit(disp=False)
    for k, level in enumerate(("south", "west")):
        for j, key in enumerate(names):
            assert abs(model.params[level][key] - fit.params[j, k]) < 1.5 * fit.bse[j, k], (level, key)
    other = model.summary(reference={"region": "west"})
    for key in names:
        assert other["north"].params[key] == pytest.approx(-model.params["west"][key])
        assert other["north"].bse[key] == pytest.approx(model.bse["west"][key])
        expected = model.params["south"][key] - model.params["west"][key]
        assert other["south"].params[key] == pytest.approx(expected)
    probabilities = model.predict(TABLE)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert probabilities.mean(axis=0) == pytest.approx(np.bincount(codes) / len(codes), abs=0.01)
    two = release.mnlogit("region", ["age"]).odds_ratios()
    assert set(two) == {"south", "west"}


def test_the_deviance_of_several_classes_is_that_of_statsmodels(exact):
    model = exact.mnlogit("region", ["age", "smoker", "income"])
    codes = TABLE["region"].map({"north": 0, "south": 1, "west": 2}).to_numpy()
    fit = sm.MNLogit(codes, design(TABLE, ["(intercept)", "age", "smoker", "income"])).fit(disp=False)
    assert model.deviance == pytest.approx(-2 * fit.llf, rel=1e-3)
    assert model.null_deviance == pytest.approx(-2 * fit.llnull, rel=1e-3)
    assert model.prsquared == pytest.approx(fit.prsquared, rel=0.1)


def test_margins_of_several_classes_are_those_of_statsmodels():
    release = released(30.0)
    model = release.mnlogit("region", ["age", "smoker", "income"])
    coded = release.topcode(TABLE)
    codes = coded["region"].map({"north": 0, "south": 1, "west": 2}).to_numpy()
    names = ["(intercept)", "age", "smoker", "income"]
    X = design(coded, names)
    fit = sm.MNLogit(codes, X).fit(disp=False)
    expected, errors = fit.get_margeff().margeff, fit.get_margeff().margeff_se
    found = model.get_margeff()
    assert list(found) == ["north", "south", "west"]
    for k, table in enumerate(found.values()):
        for j, row in enumerate(table.rows()):
            assert row["term"] == names[j + 1]
            assert abs(row["dy/dx"] - expected[j, k]) < 1.5 * errors[j, k]
            assert row["conf.low"] < row["dy/dx"] < row["conf.high"]
    for rows in zip(*(table.rows() for table in found.values()), strict=True):
        assert sum(row["dy/dx"] for row in rows) == pytest.approx(0, abs=1e-12)
    ends = [X.copy(), X.copy()]
    ends[0][:, 2], ends[1][:, 2] = 1.0, 0.0
    change = (fit.predict(ends[0]) - fit.predict(ends[1])).mean(axis=0)
    for k, table in enumerate(model.get_margeff(dummy=True).values()):
        assert abs(table.rows()[1]["dy/dx"] - change[k]) < 1.5 * errors[1, k]
        assert table.rows()[0] == found[["north", "south", "west"][k]].rows()[0]  # of a number


def test_intervals_of_several_classes_are_those_of_drawn_coefficients(private):
    """The delta method: margins and probabilities of coefficients drawn from their distribution."""
    model = private.mnlogit("region", ["age", "smoker"])
    own, rng = model._solution, np.random.default_rng(0)
    draws = rng.multivariate_normal(own.theta.ravel(), own.noise + own.assumed, size=2000).reshape(2000, 2, -1)
    X = own.rows.X[:2000]
    age, smoker, rows = [], [], TABLE[["age", "smoker"]][:3]
    features = design(rows, ["(intercept)", "age", "smoker"])
    probabilities = []
    for theta in draws:
        beta = np.vstack([np.zeros(3), theta @ own.to_user.T])
        p = special.softmax(np.column_stack([np.zeros(len(X)), X @ theta.T]), axis=1)
        age.append(np.mean(p * (beta[:, 1] - (p @ beta[:, 1])[:, np.newaxis]), axis=0))
        smoker.append(np.mean(p * (beta[:, 2] - (p @ beta[:, 2])[:, np.newaxis]), axis=0))
        probabilities.append(special.softmax(features @ beta.T, axis=1))
    tables = list(model.get_margeff().values())
    for place, drawn in enumerate((age, smoker)):
        found = [table.rows()[place]["std.error"] for table in tables]
        assert found == pytest.approx(np.std(drawn, axis=0), rel=0.06)
    found = model.get_prediction(rows)
    np.testing.assert_allclose(np.column_stack([one.predicted_mean for one in found.values()]), model.predict(rows))
    errors = np.column_stack([one.se_mean for one in found.values()])
    np.testing.assert_allclose(errors, np.std(probabilities, axis=0), rtol=0.06)
    for one in found.values():
        low, high = one.conf_int().T
        assert np.all((low > 0) & (low < one.predicted_mean) & (one.predicted_mean < high) & (high < 1))


def test_margins_that_are_not_identified_say_why():
    """A coefficient that is unknown for one class is so for the margins of all; every table has the reason."""
    rng = np.random.default_rng(0)
    n = 2500
    rows = pd.DataFrame(
        {
            "x": rng.uniform(0, 1, n),
            "h": rng.choice(["u", "v", "w"], n, p=[0.6, 0.39, 0.01]),
            "g": rng.choice(["b", "c", "d"], n, p=[0.5, 0.45, 0.05]),
        }
    )
    schema = {"x": [0, 1], "h": {"levels": ["u", "v", "w"]}, "g": {"levels": ["a", "b", "c", "d"]}}
    model = gm.release(rows, schema=schema, epsilon=1.0, delta=1e-6, random_state=0).mnlogit("g", ["x", "h"])
    for table in model.get_margeff().values():
        blank = {row["term"] for row in table.rows() if math.isnan(row["dy/dx"])}
        assert "h=w" in blank
        assert all(any(name in note for note in table.notes) for name in blank)


def test_two_classes_of_a_category_are_those_of_several():
    """The softmax of two classes is the logistic: logit of a level against all others in a table with two levels."""
    rows = TABLE.assign(kind=np.where(TABLE["smoker"], "yes", "no"))
    schema = {**SCHEMA, "kind": {"levels": ["no", "yes"]}}
    release = gm.release(rows, schema=schema, epsilon=5.0, delta=1e-6, random_state=0)
    one, level = release.logit("kind", ["age", "region"]), release.logit("kind", ["age", "region"], level="yes")
    assert one.params == level.params
    assert (one.classes, level.classes) == (("no", "yes"), ("all others", "yes"))
    soft = fit_model(replace(one._model, family=replace(LOGIT, mean=None)))
    assert soft.theta[0] == pytest.approx(one._solution.theta[0], rel=1e-8, abs=1e-9)
    assert soft.noise == pytest.approx(one._solution.noise, rel=1e-6)
    ones = np.ones(1)
    assert soft.coefficients(ones).curvature == pytest.approx(one._solution.coefficients(ones).curvature, rel=1e-6)


def test_false_is_the_opposite_of_true(private):
    sick, well = private.logit("sick", ON), private.logit("sick", ON, level=False)
    assert well.classes == (True, False)
    for key in sick.params:
        assert well.params[key] == pytest.approx(-sick.params[key], rel=1e-4, abs=2e-3)


# ---------------------------------------------------------------------------------------------------------------
# Standard errors
def test_standard_errors_are_those_of_simulated_noise():
    """Noise of the stated distribution, added to the last pass's moment: the spread of θ is the delta method's."""
    release = released(3.0)
    model = release.logit("sick", ON)._model
    own = fit_model(model)
    coefficients = own.coefficients(np.ones(1))
    noisy, rng, found = release.statistic.noisy, np.random.default_rng(0), []
    root = np.linalg.cholesky(noisy.shape + 1e-12 * np.trace(noisy.shape) * np.eye(len(noisy.shape)))
    linear = likelihood._Linear.of(model, model.problem(), model.problem(exposure=True))
    distribution = model.distributions()[0]
    for _ in range(200):
        E = rng.normal(size=noisy.shape.shape)
        moment = noisy.moment + root @ (E + E.T) @ root.T / math.sqrt(2)
        rows = np.vstack([linear.rows, model.responses[0].vector])
        theta, _ = likelihood._several_responses(replace(noisy, moment=moment).mapped(rows), len(linear.rows))
        b = theta * model.responses[0].scale
        b[:, 0] += model.responses[0].centre * model.problem().coding.units.scales[0]
        found.append(own.to_user @ likelihood._solved(model, replace(linear, b=b), distribution)[1].theta[0])
    spread = np.std(found, axis=0)
    allowed = math.sqrt(1 + noisy.clipping_bias**2)
    # 200 draws: five standard errors of a standard deviation are 25 %
    assert np.sqrt(np.diagonal(coefficients.noise)) / allowed == pytest.approx(spread, rel=0.25)
    assert np.any(np.abs(1.6 * np.sqrt(np.diagonal(coefficients.noise)) / allowed - spread) > 0.25 * spread)


def test_intervals_hold_maximum_likelihood():
    held = []
    for seed in range(12):
        release = released(1.0, seed)
        for name, response in (("logit", "sick"), ("poisson", "visits")):
            model = release.fit(name, response, ON)
            truth, _ = full_data(release, response, list(model.params), FAMILIES[name][0])
            held += [low <= truth[key] <= high for key, (low, high) in model.conf_int().items() if key != "(intercept)"]
    assert np.mean(held) > 0.87  # 120 dependent intervals of 95 %


def test_population_standard_errors_are_those_of_maximum_likelihood():
    release = released(30.0)
    for name, response in (("logit", "sick"), ("poisson", "visits")):
        model = release.fit(name, response, ON)
        summary = model.summary(estimand="population")
        _, error = full_data(release, response, list(summary.params), FAMILIES[name][0])
        sampling = np.sqrt(np.diagonal(summary._coefficients.sampling))
        assert sampling == pytest.approx(list(error.values()), rel=0.08)


def test_curved_intervals_are_those_of_a_rate():
    """One level with a mean of m ± s: its log has the ends log(m ± zs), and -∞ where m - zs is below 0."""
    for m, s in ((1.0, 0.1), (1.0, 0.4), (1.0, 0.6)):
        own = Coefficients(np.array([math.log(m)]), np.array([[(s / m) ** 2]]), np.zeros((1, 1)), None, np.ones(1))
        low, high = own.intervals(0.05)[0]
        z = -special.ndtri(0.025)
        assert high == pytest.approx(math.log(m + z * s))
        assert low == pytest.approx(math.log(m - z * s) if m > z * s else -math.inf)
    for estimate in (-0.5, 0.3):  # p-values agree with intervals
        own = Coefficients(np.array([estimate]), np.array([[0.04]]), np.zeros((1, 1)), None, np.array([0.7]))
        p = float(2 * special.ndtr(-abs(own.distances[0]) / own.std_errors[0]))
        assert min(np.abs(own.intervals(p)[0])) == pytest.approx(0, abs=1e-9)


def test_curvature_is_the_second_derivative_along_the_coefficients_own_direction(private):
    """κ from θ at b moved by ± t standard errors along the direction of a coefficient."""
    model = private.logit("sick", ["smoker", "region"])._model
    own = fit_model(model)
    linear = likelihood._Linear.of(model, model.problem(), model.problem(exposure=True))
    distribution, T = model.distributions()[0], own.to_user
    z = len(linear.b[0])
    covariance = linear.covariance.reshape(z, z)
    _, solution, _, cross = likelihood._solved(model, linear, distribution)
    J = np.linalg.inv(solution.hessian) @ cross
    for j, kappa in enumerate(own._curvature(T)):
        direction = covariance @ (T @ J)[j]
        s = math.sqrt((T @ J)[j] @ direction)
        t = 0.05 / s
        ends = [
            T[j]
            @ likelihood._solved(model, replace(linear, b=linear.b + side * t * direction / s), distribution)[1].theta[
                0
            ]
            for side in (-1, 0, 1)
        ]
        second = (ends[0] - 2 * ends[1] + ends[2]) / t**2
        assert -second / s**2 == pytest.approx(kappa, rel=0.1, abs=0.02)


# ---------------------------------------------------------------------------------------------------------------
# Rare events, exposure
def test_rare_levels_have_open_intervals_and_not_identified_ones_are_named():
    rng = np.random.default_rng(3)
    n = 30_000
    group = rng.choice(list("abcd"), n, p=[0.6, 0.3, 0.09, 0.01])
    hit = rng.random(n) < np.select([group == "a", group == "b", group == "c"], [0.04, 0.08, 0.0005], 0.05)
    release = gm.release(
        {"group": group, "hit": hit}, schema={"group": {"levels": list("abcd")}, "hit": "boolean"},
        epsilon=1.0, delta=1e-6, random_state=0,
    )  # fmt: skip
    summary = release.logit("hit", ["group"]).summary()
    low, high = summary.conf_int()["group=c"]
    assert low == -math.inf
    assert high < 0
    assert summary.pvalues["group=c"] < 0.05
    rows = release.logit("hit", ["group"]).odds_ratios().rows()
    assert rows[1]["conf.low"] == 0
    assert "-∞" in str(summary)
    weak = gm.release(
        {"group": group, "hit": hit}, schema={"group": {"levels": list("abcd")}, "hit": "boolean"},
        epsilon=0.3, delta=1e-6, random_state=0,
    )  # fmt: skip
    lost = weak.logit("hit", ["group"]).summary()
    assert math.isnan(lost.params["group=d"])
    assert "group=d" in lost.left_out


def test_exposure_multiplies_the_mean():
    release = released(10.0)
    model = release.poisson("claims", ["smoker", "region", "age"], exposure="years")
    coded = release.topcode(TABLE)
    names = list(model.params)
    truth, error = full_data(
        release, "claims", names, sm.families.Poisson(), exposure=coded["years"].to_numpy(float) + 1e-9
    )
    for key, (low, high) in model.conf_int(0.001).items():
        assert low <= truth[key] <= high, key
        assert abs(model.params[key] - truth[key]) < 3 * error[key], key
    assert model.predict(TABLE).mean() == pytest.approx(coded["claims"].mean(), rel=0.03)
    plain = release.poisson("claims", ["smoker", "region", "age"]).params["smoker"]
    assert plain - model.params["smoker"] > 0.2  # smokers have longer exposures
    assert math.isnan(model.deviance)
    for bad, words in (("sick", "numeric column"), ("age", "must not also be"), ("claims", "must not also be")):
        with pytest.raises(gm.ArgumentError, match=words):
            release.poisson("claims", ["smoker", "age"], exposure=bad)


def test_weights_are_exposures():
    """Rows weighted by their exposure, with the rate as response: the same equation."""
    rows = TABLE.assign(
        rate=np.where(TABLE["years"] > 0.05, TABLE["claims"] / np.maximum(TABLE["years"], 0.05), 0).clip(0, 20)
    )
    schema = gm.Schema.of(
        {"smoker": "boolean", "region": SCHEMA["region"], "rate": [0, 20], "years": [0, 12]}, weight="years"
    )
    release = gm.release(rows, schema=schema, epsilon=math.inf, delta=1e-6)
    found = release.poisson("rate", ["smoker", "region"]).params
    fit = sm.GLM(
        rows["rate"].to_numpy(), design(rows, list(found)), family=sm.families.Poisson(), freq_weights=rows["years"]
    ).fit()
    assert list(found.values()) == pytest.approx(fit.params, abs=0.02)


# ---------------------------------------------------------------------------------------------------------------
# What models give
def test_margins_are_those_of_statsmodels():
    release = released(30.0)
    model = release.logit("sick", ON)
    coded = release.topcode(TABLE)
    names = list(model.params)
    fit = sm.Logit(coded["sick"].to_numpy(float), design(coded, names)).fit(disp=False)
    for dummy in (False, True):
        expected = fit.get_margeff(dummy=dummy).margeff if not dummy else _discrete(fit, coded, names)
        found = model.get_margeff(dummy=dummy)
        for row, value in zip(found.rows(), expected, strict=True):
            assert row["dy/dx"] == pytest.approx(value, rel=0.08, abs=2e-3), row["term"]
            assert row["conf.low"] < row["dy/dx"] < row["conf.high"]


def _discrete(fit, coded, names):
    """Changes of the mean probability, each level against the reference level."""
    X, found = design(coded, names), []
    for j, name in enumerate(names[1:], 1):
        if name in ("age", "income"):
            p = fit.predict(X)
            found.append(np.mean(p * (1 - p)) * fit.params[j])
            continue
        ends = []
        for value in (1.0, 0.0):
            moved = X.copy()
            for k, other in enumerate(names):
                if "=" in name and other.split("=")[0] == name.split("=")[0]:
                    moved[:, k] = 0.0
            moved[:, j] = value
            ends.append(fit.predict(moved).mean())
        found.append(ends[0] - ends[1])
    return found


def test_margins_move_with_the_coefficients(private):
    """The delta method: standard errors against effects of coefficients drawn from their distribution."""
    model = private.logit("sick", ON)
    own = model._solution
    covariance = own.noise + own.assumed
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(own.theta[0], covariance, size=400)
    X, effects = own.rows.X[:4000], []
    for theta in draws:
        p = special.expit(X @ theta)
        effects.append(np.mean(p * (1 - p)) * (own.to_user @ theta)[1:])
    found = [row["std.error"] for row in model.get_margeff().rows()]
    assert found == pytest.approx(np.std(effects, axis=0), rel=0.2)


def test_predictions_have_intervals_within_the_range_of_the_mean(private):
    rows = TABLE[:50]
    for model in (private.logit("sick", ON), private.poisson("visits", ON), private.probit("sick", ON)):
        own = model.get_prediction(rows)
        params = model.params
        eta = design(rows, list(params)) @ np.array(list(params.values()))
        clamped = (rows["income"] <= private.schema.columns["income"].upper).to_numpy()
        expected = model.family.mean.inverse(eta)
        assert own.predicted_mean[clamped] == pytest.approx(expected[clamped], rel=1e-6)
        low, high = own.conf_int().T
        assert np.all((low > 0) & (low < own.predicted_mean) & (own.predicted_mean < high))
        assert own.to_frame("arrow").num_rows == 50


def test_deviance_and_pseudo_r_squared_are_those_of_the_table():
    release = released(30.0)
    for name, response in (("logit", "sick"), ("poisson", "visits")):
        model = release.fit(name, response, ON)
        coded = release.topcode(TABLE)
        fit = sm.GLM(coded[response].to_numpy(float), design(coded, list(model.params)), family=FAMILIES[name][0]).fit()
        assert model.deviance == pytest.approx(fit.deviance, rel=0.03)
        assert model.null_deviance == pytest.approx(fit.null_deviance, rel=0.03)
        assert model.prsquared == pytest.approx(1 - fit.deviance / fit.null_deviance, abs=0.02)
    assert math.isnan(release.probit("sick", ON).deviance)


def test_terms_and_their_predictions():
    schema = gm.Schema.of({key: SCHEMA[key] for key in ("age", "smoker", "sick")}, terms=["poly(age, 2)", "age:smoker"])
    rng = np.random.default_rng(0)
    n = 40_000
    age, smoker = np.clip(rng.normal(50, 15, n), 0, 100), rng.random(n) < 0.3
    eta = -1.5 + 0.03 * (age - 50) - 0.0015 * (age - 50) ** 2 + smoker * (0.5 + 0.03 * (age - 50))
    rows = pd.DataFrame({"age": age, "smoker": smoker, "sick": rng.random(n) < special.expit(eta)})
    release = gm.release(rows, schema=schema, epsilon=20.0, delta=1e-6, random_state=0)
    model = release.logit("sick ~ poly(age, 2) + smoker + age:smoker")
    coded = release.topcode(rows)
    X = np.column_stack([np.ones(n), coded["age"], coded["smoker"], coded["age"] ** 2, coded["age"] * coded["smoker"]])
    fit = sm.Logit(rows["sick"].to_numpy(float), X.astype(float)).fit(disp=False)
    expected = dict(zip(["(intercept)", "age", "smoker", "age^2", "age:smoker"], fit.params, strict=True))
    errors = dict(zip(expected, fit.bse, strict=True))
    for key, value in model.params.items():
        assert abs(value - expected[key]) < 2.5 * errors[key], key
    assert model.predict(rows[:100]) == pytest.approx(fit.predict(X[:100].astype(float)), abs=0.02)
    with pytest.raises(gm.ArgumentError, match="not available for models with powers"):
        model.get_margeff()


def test_the_output_says_where_the_distribution_matters():
    rng = np.random.default_rng(1)
    n = 40_000
    x = np.clip(rng.exponential(1.0, n), 0, 10)
    y = rng.random(n) < special.expit(-4 + 1.5 * x)
    release = gm.release(
        {"x": x, "y": y}, schema={"x": [0, 10], "y": "boolean"}, epsilon=10.0, delta=1e-6, random_state=0
    )
    summary = release.logit("y", ["x"]).summary()
    assert "x depend strongly on the assumed distribution of the predictors" in str(summary)
    assert summary.distribution_se["x"] > 0
    assert summary.bse["x"] ** 2 == pytest.approx(summary._coefficients.noise[1, 1] + summary.distribution_se["x"] ** 2)


def test_the_levels_of_one_column_have_no_distribution_term(private):
    assert set(private.logit("sick", ["region"]).summary().distribution_se.values()) == {0.0}


@pytest.mark.parametrize(("family", "response"), [("logit", "sick"), ("poisson", "visits")])
@pytest.mark.parametrize("predictors", [ON, ["smoker", "region"]], ids=["numbers", "levels"])
def test_the_distribution_term_is_at_least_half_of_the_sampling_standard_error(private, family, response, predictors):
    model = private.fit(family, response, predictors)
    summary, fit = model.summary(), model._solution
    population = model.summary(estimand="population", n_rows=round(summary.nobs))
    sampling = np.diagonal(population._coefficients.sampling)
    assert np.all(np.array(list(summary.distribution_se.values())) >= (1 - 1e-6) * ALLOWANCE * np.sqrt(sampling))
    rest = np.diagonal(fit.to_user @ (fit.assumed - fit.distances) @ fit.to_user.T)
    assert rest == pytest.approx(ALLOWANCE**2 * sampling, rel=1e-4)


def test_a_note_says_where_intervals_rest_on_the_assumed_distribution():
    """At little noise the distribution exceeds half of it for every coefficient; declared models do not assume it."""
    release = released(30.0)
    text = str(release.logit("sick", ["smoker", "region"]).summary())
    assert "Coefficients of smoker, region=south, region=west depend strongly" in text
    assert "All coefficients depend strongly" in str(release.logit("sick", ["smoker", "region", "age"]).summary())


def test_the_first_line_says_that_the_method_is_approximate():
    """The distribution of the levels of one column is known; least squares and declared models assume none."""
    release = released(30.0)
    model = release.logit("sick", ["smoker", "age"])
    void, first, *_ = str(model.summary()).splitlines()
    assert NO_GUARANTEE in void
    assert first == APPROXIMATE
    for text in (model.summary().as_html(), model.summary().as_latex(), str(model.odds_ratios())):
        assert APPROXIMATE in text
    for other in (release.logit("sick", ["region"]), release.ols("age", predictors=["smoker", "sick"])):
        assert APPROXIMATE not in str(other.summary())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.poisson("sick"), "Use logit for boolean and categorical columns"),
        (lambda r: r.poisson("region"), "Use logit for boolean and categorical columns"),
        (lambda r: r.logit("visits"), "must be a boolean or categorical column for logit"),
        (lambda r: r.logit("region"), "choose one with level="),
        (lambda r: r.logit("region", level="east"), "'east' is not a level of 'region'"),
        (lambda r: r.mnlogit("sick"), "more than two levels"),
        (lambda r: r.logit("sick", ["sick"]), "cannot also be a predictor"),
    ],
)
def test_bad_questions(private, call, words):
    with pytest.raises(gm.ArgumentError, match=words):
        call(private)


def test_a_negative_lower_bound_is_refused():
    release = gm.release(
        {"x": [0.1] * 50, "y": [1.0] * 50}, schema={"x": [0, 1], "y": [-1, 2]}, epsilon=1.0, delta=1e-6
    )
    with pytest.raises(gm.ArgumentError, match="with the lower bound -1"):
        release.poisson("y")


def test_formulas_accept_factors(private):
    assert private.logit("sick ~ age + C(region)").params == private.logit("sick ~ age + region").params


def test_a_number_is_rejected_as_a_factor(private):
    words = r"age is declared as a number. Declare its levels before the release to use C\(\)"
    with pytest.raises(gm.ArgumentError, match=words):
        private.logit("sick ~ C(age) + region")
    with pytest.raises(gm.ArgumentError, match=words):
        private.ols("claims", predictors=["C(age)"])
    with pytest.raises(gm.ArgumentError, match=words):
        gm.Schema.of({"age": [0, 100], "y": [0, 1], "sex": ["f", "m"]}, terms=["C(age):sex"])


# ---------------------------------------------------------------------------------------------------------------
# Predictors
def test_predictors_are_near_maximum_likelihood_in_loss():
    release, rows = released(1.0), TABLE
    y = rows["sick"].to_numpy(float)

    def loss(p):
        return -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))

    coded = release.topcode(rows)
    names = list(release.logit("sick", ON).params)
    fit = sm.Logit(y, design(coded, names)).fit(disp=False)
    best, constant = loss(fit.predict(design(coded, names))), loss(np.full(len(y), y.mean()))
    found = loss(release.predictor("sick", ON, family="logit").predict(rows))
    assert found - best < 0.05 * (constant - best)
    with pytest.raises(gm.ArgumentError, match="family must be one of"):
        release.predictor("sick", ON, family="cubist")


def test_normal_predictors_have_the_closed_forms():
    """Along the fit: Fisher's discriminant for logit, b over the mean for Poisson."""
    rng = np.random.default_rng(0)
    X = rng.normal(0, 0.4, (60_000, 2))
    counts = rng.poisson(np.exp(0.5 + X @ [0.8, -0.4])).astype(float)
    model = gm.PoissonRegressor(epsilon=math.inf, bounds_X=(-3, 3), bounds_y=(0, 40)).fit(X, counts)
    slopes = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), counts, rcond=None)[0][:2]
    assert model.coef_ == pytest.approx(slopes / counts.mean(), rel=1e-3)
    assert model.predict(X).mean() == pytest.approx(counts.mean(), rel=0.01)
    assert model.summary().params["x0"] == pytest.approx(model.coef_[0], rel=0.02)


def test_models_of_the_three_families_have_one_type(private):
    assert {type(private.fit(family.name, response, ["age"])) for family, response in
            ((LOGIT, "sick"), (PROBIT, "sick"), (POISSON, "visits"))} == {glm.GeneralizedLinearModel}  # fmt: skip
    assert isinstance(private.logit("sick", ["age"])._model, Model)
    assert isinstance(private.logit("sick", ["age"])._model.responses[0], Response)


def test_a_class_without_rows_is_not_identified_and_has_probability_zero():
    schema = {"age": [0, 100], "region": {"levels": ["none", "north", "south", "west", "empty"]}}
    private = gm.release(TABLE, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    model = private.mnlogit("region", ["age"])
    found = model.summary()
    assert set(found) == {"none", "south", "west", "empty"}  # against the first class that has rows
    for name, own in found.items():
        absent = name in ("none", "empty")
        assert all(math.isnan(value) == absent for value in own.params.values())
        assert all(math.isnan(end) == absent for ends in own.conf_int().values() for end in ends)
    assert "the count of class empty is not significantly above zero" in str(found["empty"])
    assert all(math.isnan(value) for value in model.summary(reference={"region": "none"})["south"].params.values())
    p = model.predict(TABLE[:100])
    np.testing.assert_array_equal(p[:, [0, 4]], 0.0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p.mean(axis=0)[1:4], [0.5, 0.3, 0.2], atol=0.05)
    assert list(model.get_margeff()) == ["north", "south", "west"]
    own = model.get_prediction(TABLE[:100])
    assert np.isnan(own["empty"].conf_int()).all()
    assert np.isfinite(own["north"].conf_int()).all()


def test_one_class_has_no_effects_and_probability_one():
    rows = TABLE.assign(region="south")
    private = gm.release(rows, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    model = private.mnlogit("region", ["age"])
    ((name, table),) = model.get_margeff().items()
    assert name == "south"
    assert all(math.isnan(row["conf.low"]) for row in table.rows())
    np.testing.assert_array_equal(model.predict(rows[:5])[:, 1], 1.0)
    assert np.isnan(model.get_prediction(rows[:5])["south"].conf_int()).all()


def test_odds_ratios_per_several_units_are_powers(private):
    one = private.logit("sick", ["age", "smoker"]).summary()
    ten = one.per({"age": 10})
    assert ten.params["age (per 10)"] == pytest.approx(10 * one.params["age"])
    assert ten.pvalues["age (per 10)"] == one.pvalues["age"]
    np.testing.assert_allclose(ten.conf_int()["age (per 10)"], np.multiply(10, one.conf_int()["age"]))
    assert ten.params["smoker"] == one.params["smoker"]


# ---------------------------------------------------------------------------------------------------------------
# Where noise dominates
def small(n, seed, k=6, slope=0.5):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({f"x{i}": rng.uniform(-1, 1, n) for i in range(k)})
    rows["b"] = rng.random(n) < special.expit(slope * rows["x0"] - 1.5)
    rows["c"] = np.minimum(rng.poisson(np.exp(slope * rows["x0"])), 20).astype(float)
    return rows, {**{f"x{i}": [-3, 3] for i in range(k)}, "b": "boolean", "c": [0, 20]}


def loss(y, mean, of_classes):
    mean = np.clip(mean, 1e-12, 1 - 1e-12 if of_classes else np.inf)
    return -np.mean(y * np.log(mean) + ((1 - y) * np.log1p(-mean) if of_classes else -mean))


@pytest.mark.parametrize(("name", "response"), [("logit", "sick"), ("poisson", "visits")])
def test_gain_is_that_of_the_rows(exact, name, response):
    """Without noise it is the difference of log-likelihoods per row from a constant's, on the rows themselves."""
    model, y = exact.fit(name, response, ON), TABLE[response].to_numpy(float)
    of_classes = name == "logit"
    constant = loss(y, np.full(len(y), y.mean()), of_classes)
    expected = constant - loss(y, model.predict(TABLE), of_classes)
    gain, error = model._solution.gain(y.mean())
    assert gain == pytest.approx(expected, rel=0.02)
    assert error < 1e-6
    assert model._mean == pytest.approx(y.mean(), rel=1e-3)
    assert not model.summary().noise_dominates


@pytest.mark.parametrize(("name", "response"), [("logit", "b"), ("poisson", "c")])
def test_models_that_noise_dominates_predict_the_mean(name, response):
    """Of 20 small tables, models that are kept beat the mean on average, and coefficients of others may lose much."""
    kept, of_params = [], []
    for seed in range(20):
        rows, schema = small(int(1000 * 1.15**seed), seed)
        private = gm.release(rows, schema=schema, epsilon=0.3, delta=1e-6, random_state=seed)
        model, y = private.fit(name, response), rows[response].to_numpy(float)
        raw = model.get_prediction(rows).predicted_mean
        excess = loss(y, raw, name == "logit") - loss(y, np.full(len(y), y.mean()), name == "logit")
        if model.summary().noise_dominates:
            of_params.append(np.nan_to_num(excess, nan=np.inf))
            with pytest.warns(UserWarning, match="predicts no better than the mean"):
                assert np.unique(model.predict(rows)).tolist() == [model._mean]
        else:
            kept.append(excess)
            assert np.array_equal(model.predict(rows), raw)
        assert math.isnan(model.prsquared) or 0 <= model.prsquared <= 1
    assert len(kept) >= 3
    assert len(of_params) >= 3
    assert np.mean(kept) < 0
    assert max(of_params) > 0.3


def test_a_mean_response_below_zero_identifies_nothing():
    rows, schema = small(1000, 0, k=8)
    rows["b"] = np.arange(1000) == 0
    hidden = 0
    for seed in range(6):
        private = gm.release(rows, schema=schema, epsilon=0.3, delta=1e-6, random_state=seed)
        model = private.logit("b", ["x0", "x1"])
        if not math.isnan(model.params["(intercept)"]):
            continue
        hidden += 1
        assert all(map(math.isnan, model.params.values()))
        assert "No coefficient is identified at this budget." in str(model.summary())
        assert math.isnan(model.prsquared)
        with pytest.warns(UserWarning, match="predicts no better than the mean"):
            assert (model.predict(rows[:3]) == model._mean).all()
        assert 0 < model._mean < 0.2
    assert hidden


def test_rates_that_noise_dominates_are_multiples_of_the_exposure():
    rows = table(800, seed=3)
    private = gm.release(rows, schema=SCHEMA, epsilon=0.1, delta=1e-6, random_state=0)
    model = private.poisson("claims", ON, exposure="years")
    assert model.summary().noise_dominates
    with pytest.warns(UserWarning, match="predicts no better than the mean"):
        found = model.predict(rows)
    if np.isfinite(found).all():
        assert np.ptp(found / np.maximum(rows["years"], 1e-3)) < 1e-9 + np.max(found)
