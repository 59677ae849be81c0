"""The passes of a release together: what they pool to, what is fitted from them, and what no claim can hide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.accounting.accounts import AdaSSPAccount
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.releases.transcript import PassOutput, Transcript

SCHEMA = Schema.of({"x": [-1, 1], "level": ["a", "b"], "flag": "boolean", "y": [-1, 1]})


def table(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    x, flag = np.clip(rng.normal(0.2, 0.05, n), -1, 1), rng.random(n) < 0.3
    level = rng.choice(["a", "b"], n)
    y = 2 * (x - 0.2) + 0.1 * flag + 0.05 * (level == "b") + rng.normal(0, 0.02, n)
    return {"x": x, "level": level, "flag": flag, "y": np.clip(y, -1, 1)}


@pytest.fixture(scope="module")
def private() -> gm.Release:
    return gm.release(table(), schema=SCHEMA, epsilon=3.0, delta=1e-6, topcode=None, random_state=0)


@pytest.fixture(scope="module")
def single() -> gm.Release:
    return gm.release(table(), schema=SCHEMA, epsilon=3.0, delta=1e-6, passes=1, random_state=0)


def error(release):
    gram = rows_of(table(), SCHEMA).gram().floats() * SCHEMA.row_norm**2
    return release.second_moment - gram


def test_one_pass_is_the_gram_matrix_plus_noise(single):
    (output,) = single.statistic.passes
    assert output.request is None
    assert np.array_equal(single.second_moment, output.matrix * SCHEMA.row_norm**2)
    scale = SCHEMA.row_norm**2 / (np.sqrt(2) * output.mu)
    assert single.statistic.column_noise == pytest.approx(np.full(SCHEMA.n_columns, scale))
    assert np.abs(error(single)).max() < 6 * scale
    assert single.statistic.clipping_bias == 0.0


def test_passes_have_less_noise_where_rows_are_few_or_close_together(private, single):
    """y about 2x - 0.4: this direction has little energy, and is what a regression needs."""
    a = np.zeros(SCHEMA.n_columns)
    a[SCHEMA.groups["x"][0]], a[SCHEMA.groups["y"][0]], a[-1] = -2, 1, 0.4
    noise = {name: np.sqrt(2) * a @ release.statistic.pooled.shape @ a for name, release in
             (("passes", private), ("single", single))}  # fmt: skip
    assert noise["passes"] < 0.1 * noise["single"]
    assert abs(a @ error(private) @ a) < 6 * noise["passes"]


@pytest.mark.slow
def test_shapes_are_those_of_the_noise():
    """Every pass of 40 releases less what was asked of the rows, exactly, whitened by its stated shape: variance 1.

    3,360 numbers: noise a tenth too small would be 0.81, eight standard errors away.
    """
    rows, z = rows_of(table(2000), SCHEMA), []
    upper = np.triu_indices(SCHEMA.n_columns)
    for seed in range(40):
        release = gm.release(table(2000), schema=SCHEMA, epsilon=3.0, delta=1e-6, topcode=None, random_state=seed)
        for output, member in zip(release.statistic.passes, release.statistic.pool.members, strict=True):
            asked = output.request
            sums = rows.gram() if asked is None else rows.mapped(asked.metric.transform, asked.clip)
            noise = output.matrix - (sums.high + sums.low / 2.0**40)
            if asked is not None:  # back in the units of rows, as the pool has it
                E = np.linalg.inv(asked.metric.transform.matrix)
                noise = asked.clip * E @ noise @ E.T
                noise *= member.matrix[-1, -1] / (E @ output.matrix @ E.T * asked.clip)[-1, -1]
            white = member.inverse @ noise @ member.inverse.T
            z.append(white[upper] / np.where(upper[0] == upper[1], np.sqrt(2), 1.0))
    z = np.concatenate(z)
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / len(z))


def test_what_is_fitted(private, single):
    truth = {"x": 2.0, "flag": 0.1}
    model = private.ols("y", predictors=["x", "flag", "level"])
    for name, value in truth.items():
        assert model.params[name] == pytest.approx(value, abs=0.05)
    assert model.params["level=b"] == pytest.approx(0.05, abs=0.02)
    worse = single.ols("y", predictors=["x", "flag", "level"])
    assert abs(worse.params["x"] - 2) > abs(model.params["x"] - 2)
    predicted = model.predict(table(100, seed=1))
    assert np.all((predicted >= -1) & (predicted <= 1))
    several = private.ols(["y", "flag"], predictors=["x"])
    assert several["y"].params == private.ols("y", predictors=["x"]).params


def test_the_same_release_gives_the_same_fit(private):
    copy = gm.Release(replace(private.statistic, void=""), private.certificate)
    assert copy.ols("y").params == private.ols("y").params
    assert copy.predictor("y").coef == private.predictor("y").coef


def test_classes(private):
    model = private.logit("flag", predictors=["x", "y"])
    assert model.params["y"] > 0 > model.params["x"]  # given x, y is larger where the flag is set
    assert private.logit("level", predictors=["y"]).classes == ("a", "b")


def forged(private, number, **values):
    passes = list(private.statistic.passes)
    passes[number] = replace(passes[number], **values)
    return replace(private.statistic, passes=tuple(passes))


def test_no_release_can_be_made_with_other_noise(private, single):
    certificate, statistic = private.certificate, private.statistic
    for number in range(4):
        mu = statistic.passes[number].mu * 0.5
        request = statistic.passes[number].request
        request = None if request is None else replace(request, mu=mu * statistic.passes[number].rate)
        with pytest.raises(gm.NotPrivateError, match="noise of a pass does not match"):
            gm.Release(forged(private, number, mu=mu, request=request), certificate)
    with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
        gm.Release(replace(statistic, passes=statistic.passes[:3]), certificate)
    with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
        gm.Release(single.statistic, certificate)
    other = replace(certificate, account=AdaSSPAccount(noise=50.0, ridge=0.0, rho=0.05, analysis="exact"))
    with pytest.raises(gm.NotPrivateError, match="does not describe a release of this kind"):
        gm.Release(statistic, other)


def test_malformed_passes_are_refused(private):
    first = private.statistic.passes[0].matrix
    for values in (
        {"matrix": first[:3, :3]},
        {"matrix": np.full_like(first, np.nan)},
        {"matrix": np.triu(first)},
        {"rate": 0.0},
        {"rate": 1.5},
        {"mu": -1.0},
        {"request": private.statistic.passes[1].request},
    ):
        with pytest.raises(gm.ArgumentError):
            gm.Release(forged(private, 0, **values), private.certificate)
    with pytest.raises(gm.ArgumentError):
        gm.Release(forged(private, 1, request=None), private.certificate)
    asked = private.statistic.passes[1].request
    untrue = replace(asked, metric=replace(asked.metric, power=0.0))
    with pytest.raises(gm.ArgumentError, match="must not transform or clip rows"):
        gm.Release(forged(private, 1, request=untrue), private.certificate)
    with pytest.raises(gm.ArgumentError, match="at least one pass"):
        gm.Release(Transcript((), private.schema), private.certificate)
    other = Schema.of({"x": [-1, 1]})
    with pytest.raises(gm.ArgumentError, match="columns of the release do not match"):
        gm.Release(Transcript((PassOutput(np.eye(2), 0.1),), other), private.certificate)


def test_without_an_intercept():
    schema = {"columns": {"x": [-1, 1], "y": [-1, 1]}, "intercept": 0.0}
    data = {name: table()[name] for name in ("x", "y")}
    release = gm.release(data, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    exact = np.sum(data["x"] * data["y"]) / np.sum(data["x"] ** 2)
    assert release.ols("y").params["x"] == pytest.approx(exact, abs=0.1)


def test_words(private):
    assert repr(private) == "Release(no privacy guarantee, 6 columns, passes=4, epsilon=3)"
    assert "μ = " not in str(private.certificate)  # seeded: no guarantee
