"""Declared models that noise hides: the release is drawn and can be read, and summaries say what was not used."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.data.transforms import Transform
from gaussmix.models import declared as module
from gaussmix.releases.preconditioning import bin_edges

SCHEMA = {"x": [-1, 1], "group": ["a", "b", "c"], "time": [0.1, 4], "visits": [0, 10], "sick": "boolean", "w": [0, 2]}
MODELS = [
    gm.DeclaredModel("sick ~ x + group", "logit"),
    gm.DeclaredModel("sick ~ x", "probit"),
    gm.DeclaredModel("visits ~ x + group", "poisson", "time"),
    gm.DeclaredModel("group ~ x", "logit", None, "c"),
    gm.DeclaredModel("x ~ visits + group", "ols"),
]
NOTE = "The outputs of the declared model are not used, because noise dominates its signal at this budget."


def table(n, seed):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-1, 1, n),
        "group": rng.choice(list("abc"), n, p=[0.7, 0.28, 0.02]),
        "time": rng.uniform(0.1, 4, n),
        "visits": np.minimum(rng.poisson(1.0, n), 10).astype(float),
        "sick": rng.random(n) < 0.4,
        "w": rng.uniform(0, 2, n),
        "who": rng.integers(0, max(n // 3, 1), n),
    }


def drawn(n, epsilon, kind, seed, models=tuple(MODELS), **options):
    neighbours = "replace-one" if kind == "replace" else "add-remove"
    schema = {name: own for name, own in SCHEMA.items() if name != "w" or kind == "weights"}
    return gm.release(
        table(n, seed),
        schema,
        budget=gm.Budget(epsilon, 1e-6, neighbours=neighbours),
        weight="w" if kind == "weights" else None,
        privacy_unit=gm.PrivacyUnit("who", 3) if kind == "units" else None,
        models=models,
        random_state=seed,
        **options,
    )


def fits(private):
    return [
        private.logit("sick ~ x + group"),
        private.probit("sick ~ x"),
        private.poisson("visits ~ x + group", exposure="time"),
        private.logit("group ~ x", level="c"),
        private.ols("x ~ visits + group"),
    ]


@pytest.mark.parametrize("kind", ["rows", "units", "weights", "replace"])
@pytest.mark.parametrize("epsilon", [2e-3, 0.3, 8.0])
@pytest.mark.filterwarnings("ignore")
def test_no_noise_loses_a_release(kind, epsilon, tmp_path):
    epsilon = max(epsilon, 0.02) if kind == "units" else epsilon  # smaller ones are rejected before a row is read
    seed = round(1000 * epsilon)
    private = drawn(20 + 37 * (seed % 11), epsilon, kind, seed, topcode=None if seed % 2 else "auto")
    private.save(tmp_path / "release.parquet")
    again = gm.load(tmp_path / "release.parquet")
    for output in again.statistic.models:
        assert len(module.scans_of(again.statistic, output)) == len(output.linear)
    for fit in fits(again):
        text = str(fit.summary())
        used = module.find_output(fit)
        assert (NOTE in text) == (used is None)


@pytest.mark.filterwarnings("ignore")
def test_hidden_models_are_read_as_if_they_were_not_declared():
    private = drawn(300, 2e-3, "rows", 0)
    for output, fit in zip(private.statistic.models, fits(private), strict=True):
        assert output.metric.integers.shape[0] == 1
        summary = fit.summary()
        assert np.isnan(list(summary.bse.values())).all()
        assert NOTE in str(summary)
        assert "No coefficient is identified at this budget." in str(summary)
        with pytest.raises(gm.ArgumentError, match="is identified at this budget"):
            fit.summary(estimand="population", cov_type="robust")


@pytest.fixture(scope="module")
def private():
    return drawn(4000, 8.0, "rows", 3, models=MODELS[:1])


def test_a_model_that_stands_out_of_noise_has_no_note(private):
    assert module.find_output(fits(private)[0]) is private.statistic.models[0]
    assert NOTE not in str(fits(private)[0].summary())


@pytest.mark.parametrize("failure", [ZeroDivisionError, IndexError, np.linalg.LinAlgError, gm.ArgumentError])
def test_a_plan_follows_whatever_fails(failure, private, monkeypatch):
    def fail(*arguments, **options):
        raise failure("no plan")

    plan = module.Plan.of(private.statistic, MODELS[0])
    monkeypatch.setattr(module._Newton, "step", fail)
    assert plan.advanced(np.zeros(plan.size), 1.0, 1.0) is plan
    assert module.find_output(fits(private)[0]) is None
    monkeypatch.setattr(module, "_start", fail)
    hidden = module.Plan.of(private.statistic, MODELS[0])
    assert hidden.metric == module.Plan.public(private.statistic, MODELS[0]).metric
    assert hidden.advanced(np.full(1, 1e300), 1.0, 1.0) is hidden


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_plans_that_cannot_be_drawn_are_replaced(bad, private, monkeypatch):
    start = module._start

    def far(fitted):
        features, theta, begun = start(fitted)
        return features, np.full_like(theta, bad), begun

    monkeypatch.setattr(module, "_start", far)
    plan = module.Plan.of(private.statistic, MODELS[0])
    assert np.isfinite(plan.theta).all()
    assert isinstance(plan.scan().linear, Transform)
    edges = bin_edges(plan.expected())
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 1e6):
        clip, excess, lost = plan.clip(scale * rng.normal(size=len(edges) + 1), edges, noise=max(scale, 1.0), mu=1e-3)
        assert 0 < clip < np.inf
        assert 0 <= excess < np.inf
        assert 0 <= lost <= 1
