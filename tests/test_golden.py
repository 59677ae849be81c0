"""Numbers that must not move: Gram bits, calibrations, accounts and seeded coefficients, from a file.

``tests/golden/numbers.json`` was written by the library before its modules became rooms. Gram matrices are whole
numbers in units of 2⁻⁴⁰, compared exactly. Floats are in hexadecimal: what is promised to be the same on every
processor (noise scales of the Gaussian mechanism) is compared to the last bit, calibrations and accounts to 1e-9.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gaussmix as gm
from gaussmix import accounting
from gaussmix.accounting.gaussian import gaussian_delta_up

GOLDEN = json.loads((Path(__file__).parent / "golden" / "numbers.json").read_text())
DECLARED = {
    "norm, intercept": {"data_norm": 8.0, "bounds_X": None, "bounds_y": (-4, 4), "fit_intercept": True},
    "norm, no intercept": {"data_norm": 8.0, "bounds_X": None, "bounds_y": (-4, 6), "fit_intercept": False},
    "bounds, intercept": {
        "data_norm": None,
        "bounds_X": ((-3, -9, -1, -20), (3, 8, 1, 30)),
        "bounds_y": (-4, 5),
        "fit_intercept": True,
    },
    "bounds and norm": {
        "data_norm": 1.1,
        "bounds_X": ((-3, -9, -1, -20), (3, 8, 1, 30)),
        "bounds_y": (-4, 5),
        "fit_intercept": True,
    },
}
HOLDS = {"none": "both", "larger": "larger"}


def arrays(n=5000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) * [1, 3, 0.2, 10]
    return X, X @ np.array([0.5, -0.3, 1.0, 0.05]) + rng.normal(size=n) * 0.3


def table(n=3000):
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "age": rng.integers(10, 110, n),
            "bmi": rng.normal(25, 6, n),
            "sex": rng.choice(["f", "m", "x"], n),
            "smoker": rng.random(n) < 0.3,
            "cost": rng.lognormal(1, 1, n),
        }
    )


def units(moments: gm.Moments) -> list[list[int]]:
    """The Gram matrix in units of 2⁻⁴⁰."""
    return [
        [int(high) * 2**40 + int(low) for high, low in zip(*rows, strict=True)]
        for rows in zip(moments.sums().high, moments.sums().low, strict=True)
    ]


@pytest.mark.parametrize("name", GOLDEN["arrays"])
def test_gram_bits_of_arrays(name):
    declared, _, weighting = name.rpartition(", ")
    schema = {"balanced": gm.LinearRegression, "paper": gm.baselines.Ridge}[weighting](**DECLARED[declared]).schema(4)
    found = np.array(units(gm.Moments.of_arrays([arrays()], schema)), dtype=object)
    if schema.intercept:  # the intercept stood before the target then
        order = [0, 1, 2, 3, 5, 4]
        found = found[np.ix_(order, order)]
    assert found.tolist() == GOLDEN["arrays"][name]["gram"]
    assert schema.row_norm == pytest.approx(float.fromhex(GOLDEN["arrays"][name]["row_norm"]), rel=1e-15)


@pytest.mark.parametrize("name", GOLDEN["tables"])
def test_gram_bits_of_tables(name):
    golden = GOLDEN["tables"][name]
    declared = {"max_row_norm" if key == "row_norm" else key: value for key, value in golden["schema"].items()}
    moments = gm.Moments.of(table(), declared)
    assert units(moments) == golden["gram"]
    assert list(moments.schema.names) == golden["names"]
    assert moments.schema.row_norm.hex() == golden["row_norm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN["calibrations"])
def test_calibrations(name):
    epsilon, delta, k, *options = name.split()
    found = gm.calibrate(float(epsilon), float(delta), sketch_size=int(k), **dict(o.split("=") for o in options))
    for field, value in GOLDEN["calibrations"][name].items():
        now = getattr(found, field)
        if isinstance(now, float):
            assert now == pytest.approx(float.fromhex(value), rel=1e-9), field
        else:
            assert now == value, field


@pytest.mark.parametrize("name", [name for name in GOLDEN["accounts"] if name.startswith(("delta", "epsilon", "rdp"))])
def test_accounts(name):
    kind, k, gamma, *rest = name.split()
    mixing = {"sketch_size": int(k), "gamma": float(gamma)}
    if kind == "rdp":
        found = accounting.rdp(1.2, **mixing)
    elif kind == "delta":
        found = accounting.delta(0.7, **mixing, bound_holds_for=HOLDS[rest[0]], neighbours=rest[1])
    else:
        found = accounting.epsilon(1e-7, **mixing, bound_holds_for=HOLDS[rest[0]], analysis=rest[1])
    assert float(found) == pytest.approx(float.fromhex(GOLDEN["accounts"][name]), rel=1e-9)


def test_gaussian_accounts():
    assert float(accounting.gaussian_mu(1.0, 1e-6)).hex() == GOLDEN["accounts"]["gaussian_mu"]
    assert gaussian_delta_up(1.0, 0.3).hex() == GOLDEN["accounts"]["gaussian_delta_up"]
    delta = float.fromhex(GOLDEN["accounts"]["gaussian_delta"])
    assert accounting.gaussian_delta(1.0, mu=0.3) == pytest.approx(delta, rel=1e-9)


def decoded(values: list[str]) -> list[float]:
    return [float.fromhex(value) for value in values]


@pytest.mark.parametrize(("analysis", "key"), [("exact", "{}"), ("printed", "{'accounting': 'printed'}")])
def test_coefficients_of_a_seed_by_adassp(analysis, key):
    declared = DECLARED["bounds, intercept"]
    model = gm.baselines.AdaSSP(epsilon=3.0, delta=1e-6, random_state=5, analysis=analysis, **declared).fit(*arrays())
    golden = decoded(GOLDEN["coefficients"][f"AdaSSP {key}"])
    assert [*model.coef_, model.intercept_] == pytest.approx(golden, rel=1e-9, abs=1e-12)
