"""Two-stage least squares from a release: the table's own where noise is negligible; intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import gaussmix as gm
from example_problems import binomial_in
from gaussmix.models.instruments import two_stage
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

SCHEMA = {"y": [0, 20], "x": [0, 10], "z": [0, 5], "w": [0, 5], "g": ["a", "b"]}


def table(n=20_000, seed=0, strength=1.0):
    """x is endogenous: u moves x and y; z and w move x alone."""
    rng = np.random.default_rng(seed)
    u, z, w = rng.uniform(-1, 1, n), rng.uniform(0, 5, n), rng.uniform(0, 5, n)
    g = rng.choice(["a", "b"], n)
    x = 2 + strength * (0.6 * z + 0.4 * w) + 1.5 * u + rng.uniform(-0.5, 0.5, n)
    y = 3 + 0.8 * x + 2 * u + (g == "b") + rng.uniform(-1, 1, n)
    return pd.DataFrame({"y": y, "x": x, "z": z, "w": w, "g": g})


def exact(frame, instruments):
    X = np.column_stack([np.ones(len(frame)), frame["x"], frame["g"] == "b"]).astype(float)
    Z = np.column_stack([np.ones(len(frame)), frame[instruments], frame["g"] == "b"]).astype(float)
    fitted = Z @ np.linalg.lstsq(Z, X, rcond=None)[0]
    theta = np.linalg.solve(fitted.T @ X, fitted.T @ frame["y"])
    left = frame["y"] - X @ theta
    return theta, np.sqrt(np.diagonal(np.linalg.inv(fitted.T @ fitted)) * left.var())


@pytest.mark.parametrize("instruments", [["z"], ["z", "w"]])
def test_it_is_two_stage_least_squares(instruments):
    frame = table()
    release = gm.release(frame, schema=SCHEMA, epsilon=20, delta=1e-6, random_state=0)
    found = release.iv("y", predictors=["x", "g"], instruments=[*instruments, "g"])
    theta, errors = exact(frame, instruments)
    assert list(found.params) == ["(intercept)", "x", "g=b"]
    assert_allclose(list(found.params.values()), theta, atol=0.03)
    assert found.endogenous == ("x",)
    assert found.excluded == tuple(instruments)
    population = found.summary(estimand="population")
    assert_allclose(list(population.bse.values()), errors, rtol=0.1)
    low, high = population.conf_int()["x"]
    assert low < 0.8 < high
    plain = release.ols("y", predictors=["x", "g"]).params["x"]
    assert plain > high  # least squares is biased by u
    assert "standard errors above 0." in str(population)
    assert found.tidy("arrow").num_rows == 3
    assert "<table>" in found._repr_html_()


def gram():
    rng = np.random.default_rng(1)
    n, u = 4000, rng.uniform(-1, 1, 4000)
    z = rng.uniform(-1, 1, n)
    x = 0.12 * z + 0.8 * u
    A = np.column_stack([np.ones(n), z, x, 0.5 * x + u])
    return A.T @ A


def test_intervals_cover_where_the_first_stage_is_identified():
    """The instrument has a signal of about four standard errors, so that few releases lose it."""
    G, rng, noise = gram(), np.random.default_rng(0), 40.0
    truth = two_stage(NoisyMoment(G, np.zeros_like(G)), [0, 2], [0, 1])[0].theta
    held, told, trials = 0, 0, 1500
    for _ in range(trials):
        fit, signal = two_stage(NoisyMoment(G + noise * goe(4, rng), shape=noise * np.eye(4)), [0, 2], [0, 1])
        assert (fit.kept == (0, 1)) == (signal >= 3)
        if fit.kept:
            told += 1
            held += abs(fit.theta[1] - truth[1]) < 1.96 * np.sqrt(fit.noise[1, 1])
    assert told > 0.6 * trials
    assert binomial_in(held, told, 0.92, 0.98)
    weak = [two_stage(NoisyMoment(G + 300.0 * goe(4, rng), 300.0 * np.eye(4)), [0, 2], [0, 1]) for _ in range(200)]
    assert np.mean([bool(fit.kept) for fit, _ in weak]) < 0.05


def test_the_covariance_is_that_of_simulated_releases():
    """Mean squares of 2 × 10,000 whitened errors within 5.5 standard errors of 1; 10 % more or less would be seen."""
    G, rng, noise = gram(), np.random.default_rng(1), 0.3
    truth = two_stage(NoisyMoment(G, np.zeros_like(G)), [0, 2], [0, 1])[0].theta
    found = []
    for _ in range(10_000):
        fit, _ = two_stage(NoisyMoment(G + noise * goe(4, rng), shape=noise * np.eye(4)), [0, 2], [0, 1])
        found.append(np.linalg.solve(np.linalg.cholesky(fit.noise), fit.theta - truth))
    square, bound = float(np.mean(np.square(found))), 5.5 * np.sqrt(2 / 20_000)
    assert abs(square - 1) < bound
    assert min(abs(square / 0.9 - 1), abs(square / 1.1 - 1)) > bound


def test_what_cannot_be_asked():
    release = gm.release(table(2000), schema=SCHEMA, epsilon=3, delta=1e-6, random_state=0)
    for arguments, words in (
        (("y", ["x", "g"], ["z"]), "at least as many instruments as predictors"),
        (("y", ["x", "y"], ["z", "w"]), "cannot also be a predictor"),
        (("g", ["x"], ["z"]), "must be a numeric or boolean column, got 'g'"),
        (("y", None, ["z"]), "predictors and instruments must be lists"),
    ):
        with pytest.raises(gm.ArgumentError, match=words):
            release.iv(arguments[0], predictors=arguments[1], instruments=arguments[2])


def test_tests_are_those_of_the_intervals():
    release = gm.release(table(), schema=SCHEMA, epsilon=3, delta=1e-6, random_state=0)
    summary = release.iv("y", predictors=["x", "g"], instruments=["z", "g"]).summary()
    for name, (low, high) in summary.conf_int(0.1).items():
        assert_allclose([summary.t_test(f"{name} = {end!r}").pvalue[0] for end in (low, high)], 0.1, rtol=1e-6)
    assert summary.f_test(["x", "g=b"]).pvalue < 1e-6
    with pytest.raises(gm.ArgumentError, match="estimand must be"):
        release.iv("y", predictors=["x"], instruments=["z"]).summary(estimand="ridge")
    declared = release.iv("y", predictors=["x"], instruments=["z"]).summary(estimand="population", n_rows=200)
    shown = release.iv("y", predictors=["x"], instruments=["z"]).summary(estimand="population")
    assert declared.bse["x"] > 5 * shown.bse["x"]


def test_merged_levels_and_another_reference():
    release = gm.release(table(), schema=SCHEMA, epsilon=3, delta=1e-6, random_state=0)
    model = release.iv("y", predictors=["x", "g"], instruments=["z", "g"])
    other = model.summary(reference={"g": "b"})
    assert other.params["g=a"] == pytest.approx(-model.params["g=b"], rel=1e-3)
    assert other.params["x"] == pytest.approx(model.params["x"], rel=1e-3)


def test_instruments_that_say_nothing_are_reported():
    release = gm.release(table(2000, strength=0.0), schema=SCHEMA, epsilon=1, delta=1e-6, random_state=0)
    model = release.iv("y", predictors=["x"], instruments=["z"])
    assert np.isnan([*model.params.values(), *model.conf_int()["x"]]).all()
    assert "use stronger instruments" in str(model.summary())
    assert "standard errors above 0, weak (below 3)." in str(model.summary())
    assert model.summary().left_out["x"] == "the first stage is weak"


def test_terms_are_reported_in_original_units():
    """Coefficients and intervals of powers are those of numpy's two-stage least squares on the powers."""
    rng = np.random.default_rng(0)
    n = 4000
    z, age = rng.uniform(-1, 1, n), rng.uniform(10, 90, n)
    x = np.clip(z + 0.3 * rng.normal(size=n), -3, 3)
    y = 0.1 * age - 0.001 * age**2 + x + 0.2 * rng.normal(size=n)
    table = pd.DataFrame({"z": z, "age": age, "x": x, "y": np.clip(y, -10, 10)})
    schema = gm.Schema.of({"z": [-1, 1], "age": [10, 90], "x": [-3, 3], "y": [-10, 10]}, terms=["poly(age, 2)"])
    X, Z = np.column_stack([np.ones(n), age, x, age**2]), np.column_stack([np.ones(n), age, z, age**2])
    wanted = np.linalg.solve(Z.T @ X, Z.T @ table.y.to_numpy())
    chosen = {"predictors": ["age", "age^2", "x"], "instruments": ["age", "age^2", "z"]}
    model = gm.release(table, schema=schema, epsilon=math.inf, delta=1e-6).iv("y", **chosen)
    assert list(model.params.values()) == pytest.approx(wanted, rel=2e-3, abs=2e-3)
    # The square as the endogenous feature, with an instrument of its own: the interval is about its coefficient.
    table["w"] = np.clip((age - 50) ** 2 / 1600 + 0.1 * rng.normal(size=n), 0, 2)
    schema = gm.Schema.of({"w": [0, 2], "age": [10, 90], "y": [-10, 10]}, terms=["poly(age, 2)"])
    private = gm.release(table, schema=schema, epsilon=20.0, delta=1e-6, passes=1, random_state=0)
    model = private.iv("y", predictors=["age", "age^2"], instruments=["age", "w"])
    X, Z = np.column_stack([np.ones(n), age, age**2]), np.column_stack([np.ones(n), age, table.w])
    wanted = np.linalg.solve(Z.T @ X, Z.T @ table.y.to_numpy())[2]
    low, high = model.conf_int(1e-3)["age^2"]
    assert low < wanted < high
    assert high - low < 0.5 * abs(wanted)
    assert model.t_test(f"age^2 = {1000 * wanted}").pvalue[0] < 1e-6
