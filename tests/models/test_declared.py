"""Declared models: nearer to maximum likelihood than the release alone, with robust errors, and said so first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm

import gaussmix as gm
from gaussmix.models import declared as module
from gaussmix.releases.preconditioning import bin_edges
from gaussmix.report.statement import fields_of

SCHEMA = {"x": [-3, 3], "group": ["a", "b", "c"], "sick": "boolean", "visits": [0, 30], "time": [0, 2], "y": [-9, 9]}
MODELS = [
    "sick ~ x + group",
    "y ~ x + group",
    gm.DeclaredModel("visits ~ x + group", "poisson", "time"),
    gm.DeclaredModel("sick ~ x", "probit"),
]


def table(n=30_000, seed=0):
    rng = np.random.default_rng(seed)
    x, group = np.minimum(rng.gamma(1.5, 0.8, n) - 1.5, 3.0), rng.choice(list("abc"), n, p=[0.5, 0.4, 0.1])
    who = np.arange(n) // 3
    eta = 0.8 * x + 0.7 * (group == "b") - 0.9
    time = rng.uniform(0.3, 2, n)
    shared = rng.normal(0, 0.7, n // 3 + 1)[who]
    return {
        "x": x,
        "group": group,
        "sick": rng.random(n) < 1 / (1 + np.exp(-eta)),
        "visits": np.minimum(rng.poisson(time * np.exp(0.4 * x - 0.3 * (group == "b"))), 30).astype(float),
        "time": time,
        "y": np.clip(0.5 * x + shared + rng.normal(0, 0.2 + 0.4 * np.abs(x), n), -9, 9),
        "who": who,
    }


ROWS = table()


def design(rows, *names):
    levels = {f"group={level}": (rows["group"] == level) * 1.0 for level in "abc"}
    return np.column_stack([np.ones(len(rows["x"])), *(levels.get(name, rows.get(name)) for name in names)])


@pytest.fixture(scope="module")
def private():
    return gm.release(ROWS, SCHEMA, epsilon=4.0, delta=1e-6, topcode=None, models=MODELS, random_state=1)


@pytest.fixture(scope="module")
def persons():
    unit = gm.PrivacyUnit("who", 3)
    return gm.release(
        ROWS, SCHEMA, epsilon=8.0, delta=1e-6, topcode=None, privacy_unit=unit, models=MODELS[:2], random_state=2
    )


def maximum_likelihood():
    X = design(ROWS, "x", "group=b", "group=c")
    logit = sm.Logit(ROWS["sick"].astype(float), X).fit(disp=0)
    poisson = sm.GLM(ROWS["visits"], X, family=sm.families.Poisson(), exposure=ROWS["time"]).fit()
    return {"logit": logit, "poisson": poisson}


def test_steps_reach_maximum_likelihood(private):
    best = maximum_likelihood()
    models = {
        "logit": private.logit("sick ~ x + group"),
        "poisson": private.poisson("visits ~ x + group", exposure="time"),
    }
    for name, fitted in models.items():
        own = fitted.summary()
        for estimate, error, true, theirs in zip(
            own.params.values(), own.bse.values(), best[name].params, best[name].bse, strict=True
        ):
            assert abs(estimate - true) < 4 * error + 0.1 * theirs
            assert error < 3 * theirs


def test_the_first_line_says_that_the_model_was_declared(private):
    lines = str(private.logit("sick ~ x + group").summary()).splitlines()
    assert lines[0].startswith("No privacy guarantee")  # the seed
    assert lines[1] == "Declared model: two private Newton steps on the likelihood."
    assert any('The column "distribution" is the change that a third step would make' in line for line in lines)
    assert 'column "distribution"' not in str(private.logit("sick ~ x + group").odds_ratios())
    for other in (private.logit("sick ~ x"), private.poisson("visits ~ x + group")):
        assert "Declared model" not in str(other.summary())
    assert "Declared model" not in str(private.logit("sick ~ x + group").summary(reference={"group": "b"}))
    assert "Declared model: sandwich" in str(private.ols("y ~ x + group").summary(estimand="population"))
    assert "Declared model" not in str(private.ols("y ~ x + group").summary())
    found, other = private.logit("sick", ["group", "x"]), private.logit("sick ~ x + group")
    assert list(found.params) == ["(intercept)", "group=b", "group=c", "x"]
    assert found.params == pytest.approx(other.params, rel=1e-9)
    assert found.bse == pytest.approx(other.bse, rel=1e-9)
    first, second = (
        private.ols("y", order).summary(estimand="population") for order in (["group", "x"], ["x", "group"])
    )
    assert first.bse == pytest.approx(second.bse, rel=1e-9)
    first, second = (private.poisson("visits", order, exposure="time") for order in (["group", "x"], ["x", "group"]))
    assert first.params == pytest.approx(second.params, rel=1e-9)
    assert first.bse == pytest.approx(second.bse, rel=1e-9)


def test_statement_and_certificate_name_the_models(private):
    (field,) = [own for own in fields_of(private, None, valid=False) if own.name == "Declared models"]
    for text in (field.value, str(private.certificate)):
        assert "logit: sick ~ x + group" in text
        assert "poisson: visits ~ x + group, exposure time" in text


def test_robust_errors_are_those_of_statsmodels(private):
    X = design(ROWS, "x", "group=b", "group=c")
    robust = sm.OLS(ROWS["y"], X).fit(cov_type="HC1").bse
    plain = sm.OLS(ROWS["y"], X).fit().bse
    assert robust[1] > 1.25 * plain[1]
    own = private.ols("y ~ x + group").summary(estimand="population")
    assert own.cov_type == "robust"
    sampling = np.sqrt(np.diagonal(own._coefficients.sampling))
    assert sampling == pytest.approx(robust, rel=0.15)
    other = private.ols("y ~ x + group").summary(estimand="population", cov_type="nonrobust")
    assert np.sqrt(np.diagonal(other._coefficients.sampling)) == pytest.approx(plain, rel=0.1)
    logit = private.logit("sick ~ x + group").summary(estimand="population")
    theirs = sm.Logit(ROWS["sick"].astype(float), X).fit(disp=0, cov_type="HC1").bse
    assert np.sqrt(np.diagonal(logit._coefficients.sampling)) == pytest.approx(theirs, rel=0.2)


def test_clustered_errors_are_those_of_statsmodels(persons):
    X = design(ROWS, "x", "group=b", "group=c")
    theirs = sm.OLS(ROWS["y"], X).fit(cov_type="cluster", cov_kwds={"groups": ROWS["who"]}).bse
    own = persons.ols("y ~ x + group").summary(estimand="population")
    assert own.cov_type == "cluster"
    assert np.sqrt(np.diagonal(own._coefficients.sampling)) == pytest.approx(theirs, rel=0.25)
    assert "robust to dependence within privacy units" in str(own)
    logit = persons.logit("sick ~ x + group").summary(estimand="population")
    assert np.isfinite(list(logit.bse.values())).all()


def test_population_intervals_of_persons_require_a_declared_model(persons):
    for fitted in (persons.ols("y ~ x"), persons.logit("sick ~ x"), persons.poisson("visits ~ x")):
        with pytest.raises(gm.ArgumentError, match="declare the model"):
            fitted.summary(estimand="population")
    with pytest.raises(gm.ArgumentError, match="declare the model"):
        persons.ols("y ~ x + group").summary(estimand="population", cov_type="nonrobust")


def test_covariances_that_are_not_there_are_refused(private, persons):
    with pytest.raises(gm.ArgumentError, match="requires a model that was declared"):
        private.ols("y ~ x").summary(estimand="population", cov_type="robust")
    with pytest.raises(gm.ArgumentError, match="requires a model that was declared"):
        private.mnlogit("group", ["x"]).summary(estimand="population", cov_type="robust")
    with pytest.raises(gm.ArgumentError, match="must be 'robust'"):
        private.ols("y ~ x + group").summary(estimand="population", cov_type="cluster")
    with pytest.raises(gm.ArgumentError, match="must be 'cluster'"):
        persons.ols("y ~ x + group").summary(estimand="population", cov_type="robust")
    with pytest.raises(gm.ArgumentError, match='requires estimand="population"'):
        private.ols("y ~ x + group").summary(cov_type="robust")
    with pytest.raises(gm.ArgumentError, match="cov_type must be one of"):
        private.ols("y ~ x + group").summary(estimand="population", cov_type="HC3")


def test_predictions_use_the_steps(private):
    rows = {name: values[:500] for name, values in ROWS.items()}
    fitted = private.logit("sick ~ x + group")
    best = maximum_likelihood()["logit"].predict(design(rows, "x", "group=b", "group=c"))
    assert np.abs(fitted.predict(rows) - best).max() < 0.03
    predictor = private.predictor("sick ~ x + group", family="logit")
    assert np.abs(predictor.predict(rows) - best).max() < 0.03
    assert fitted.get_margeff().columns["dy/dx"][0] == pytest.approx(0.15, abs=0.05)
    assert fitted.prsquared > 0.05


def test_the_clip_grows_with_the_tail():
    """A tail of rows beyond the simulated one raises the clip; without it the simulated tail decides."""
    statistic = gm.release(ROWS, SCHEMA, epsilon=4.0, delta=1e-6, topcode=None, random_state=3).statistic
    plan = module.Plan.of(statistic, gm.DeclaredModel("visits ~ x + group", "poisson", "time"))
    edges = bin_edges(plan.expected())
    beyond = 30_000 * plan.drawn.beyond(edges)
    counts = -np.diff(np.append([30_000, *beyond], 0))
    low = plan.clip(counts, edges, noise=5.0, mu=0.2)
    heavy = counts.copy()
    heavy[14] += 3_000
    high = plan.clip(heavy, edges, noise=5.0, mu=0.2)
    assert high[0] >= 4 * low[0]
    assert plan.clip(counts, edges, noise=5.0, mu=0.02)[0] <= low[0]


def test_what_remains_is_small_when_steps_shrink():
    H = np.diag([100.0, 400.0])
    moves = np.array([[1.0, 0.0], [0.1, 0.0]])
    remains = module._remaining(H, moves, [0.0, 0.0])
    assert np.sqrt(remains[0, 0]) == pytest.approx(0.01)  # a tenth of the last
    assert not module._remaining(H, moves, [5.0, 5.0]).any()


def test_weighted_releases_have_weighted_models():
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.2, 1.0, len(ROWS["x"]))
    private = gm.release(
        {**ROWS, "w": weights}, {**SCHEMA, "w": [0, 1]}, epsilon=6.0, delta=1e-6, weight="w", topcode=None,
        models=["sick ~ x + group"], random_state=4,
    )  # fmt: skip
    X = design(ROWS, "x", "group=b", "group=c")
    glm = sm.GLM(ROWS["sick"].astype(float), X, family=sm.families.Binomial(), freq_weights=weights).fit()
    own = private.logit("sick ~ x + group").summary()
    for estimate, error, true in zip(own.params.values(), own.bse.values(), glm.params, strict=True):
        assert abs(estimate - true) < 4 * error + 0.02
    robust = private.logit("sick ~ x + group").summary(estimand="population")
    assert robust.cov_type == "robust"


def test_declarations_are_checked():
    with pytest.raises(gm.ArgumentTypeError, match="must be a string"):
        gm.DeclaredModel("y ~ x", family=3)
    model = gm.DeclaredModel("visits ~ x", "poisson", "time")
    assert str(model) == "poisson: visits ~ x, exposure time"
    assert replace(model, exposure=None, level="a") != model
