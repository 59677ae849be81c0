"""Two-stage least squares from a release: the table's own where noise is negligible; Anderson and Rubin's intervals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import gaussmix as gm
from gaussmix.models.inference import residuals
from gaussmix.models.instruments import AndersonRubin, two_stage
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
    found = release.regress("y", on=["x", "g"], instruments=[*instruments, "g"])
    theta, errors = exact(frame, instruments)
    assert list(found.params) == ["(intercept)", "x", "g=b"]
    assert_allclose(list(found.params.values()), theta, atol=0.03)
    assert found.endogenous == ("x",)
    assert found.excluded == tuple(instruments)
    assert (found.test is None) == (len(instruments) > 1)
    population = found.summary(estimand="population")
    assert_allclose(list(population.bse.values()), errors, rtol=0.1)
    low, high = population.conf_int()["x"]
    assert low < 0.8 < high
    plain = release.regress("y", on=["x", "g"]).params["x"]
    assert plain > high  # least squares is biased by u
    assert "Anderson" in str(population)
    assert found.tidy("arrow").num_rows == 3
    assert "<table>" in found._repr_html_()


def gram():
    rng = np.random.default_rng(1)
    n, u = 4000, rng.uniform(-1, 1, 4000)
    z = rng.uniform(-1, 1, n)
    x = 0.12 * z + 0.8 * u
    A = np.column_stack([np.ones(n), z, x, 0.5 * x + u])
    return A.T @ A


def test_anderson_and_rubin_cover_where_instruments_are_weak():
    G, rng, unit = gram(), np.random.default_rng(0), np.eye(4)
    N, held = 80.0 * np.eye(4), []
    truth, _, _ = two_stage(NoisyMoment(G, np.zeros_like(G)), unit[[0, 2]], unit[[0, 1]], unit[3], None)
    for _ in range(300):
        M = NoisyMoment(G + 80.0 * goe(4, rng), shape=N)
        left = residuals(M, unit[[2, 3, 1]], unit[[0]])
        held.append(AndersonRubin(left, None).statistic(truth[1]) <= 3.8415)
    assert 0.91 < np.mean(held) < 0.985  # 3.2 standard errors
    left = residuals(NoisyMoment(G, shape=N), unit[[2, 3, 1]], unit[[0]])
    assert AndersonRubin(left, None).interval(0.5, 1.0, 1e-9) == (-np.inf, np.inf)


def test_intervals_end_where_the_test_does():
    left = residuals(NoisyMoment(gram(), shape=5.0 * np.eye(4)), np.eye(4)[[2, 3, 1]], np.eye(4)[[0]])
    test = AndersonRubin(left, None)
    middle = float(left.moment[2, 1] / left.moment[2, 0])
    low, high = test.interval(middle, 0.1, 0.05)
    assert low < middle < high
    assert_allclose([test.statistic(low), test.statistic(high)], 3.841459, rtol=1e-5)


def test_what_cannot_be_asked():
    release = gm.release(table(2000), schema=SCHEMA, epsilon=3, delta=1e-6, random_state=0)
    for arguments, words in (
        (("y", ["x", "g"], ["z"]), "fewer instruments"),
        (("y", ["x", "y"], ["z", "w"]), "explain itself"),
        (("g", ["x"], ["z"]), "must be numeric"),
        (("y", None, ["z"]), "name one target"),
    ):
        with pytest.raises(gm.ArgumentError, match=words):
            release.regress(arguments[0], on=arguments[1], instruments=arguments[2])


def test_tests_of_single_values_are_those_of_the_intervals():
    release = gm.release(table(), schema=SCHEMA, epsilon=3, delta=1e-6, random_state=0)
    summary = release.regress("y", on=["x", "g"], instruments=["z", "g"]).summary()
    for name, (low, high) in summary.conf_int(0.1).items():
        assert_allclose([summary.test(name, low), summary.test(name, high)], 0.1, rtol=1e-4)
        assert summary.f_test(name) == summary.test(name, 0.0)
    assert summary.f_test(["x", "g=b"]) < 1e-6
    with pytest.raises(gm.ArgumentError, match="estimand must be"):
        release.regress("y", on=["x"], instruments=["z"]).summary(estimand="ridge")
    declared = release.regress("y", on=["x"], instruments=["z"]).summary(estimand="population", n_rows=200)
    shown = release.regress("y", on=["x"], instruments=["z"]).summary(estimand="population")
    assert declared.bse["x"] > 5 * shown.bse["x"]


def test_instruments_that_say_nothing_are_told():
    release = gm.release(table(2000, strength=0.0), schema=SCHEMA, epsilon=1, delta=1e-6, random_state=0)
    model = release.regress("y", on=["x"], instruments=["z"])
    assert model.conf_int()["x"] == (-np.inf, np.inf)
    assert "name stronger instruments" in str(model.summary())
    assert ": weak" in str(model.summary())


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
    chosen = {"on": ["age", "age^2", "x"], "instruments": ["age", "age^2", "z"]}
    model = gm.release(table, schema=schema, epsilon=math.inf, delta=1e-6).regress("y", **chosen)
    assert list(model.params.values()) == pytest.approx(wanted, rel=2e-3, abs=2e-3)
    assert model.params == {"(intercept)": model.intercept, **model.coef}
    # The square as the endogenous feature, with an instrument of its own: the interval is about its coefficient.
    table["w"] = np.clip((age - 50) ** 2 / 1600 + 0.1 * rng.normal(size=n), 0, 2)
    schema = gm.Schema.of({"w": [0, 2], "age": [10, 90], "y": [-10, 10]}, terms=["poly(age, 2)"])
    private = gm.release(table, schema=schema, epsilon=20.0, delta=1e-6, passes=1, random_state=0)
    model = private.regress("y", on=["age", "age^2"], instruments=["age", "w"])
    assert model.test is not None
    X, Z = np.column_stack([np.ones(n), age, age**2]), np.column_stack([np.ones(n), age, table.w])
    wanted = np.linalg.solve(Z.T @ X, Z.T @ table.y.to_numpy())[2]
    low, high = model.conf_int(1e-3)["age^2"]
    assert low < wanted < high
    assert high - low < 0.5 * abs(wanted)
    assert model.summary().test("age^2", 1000 * wanted) < 1e-6
