"""Print values that must not depend on the processor, as JSON: run by test_portability.py in other environments.

``exact`` values are compared to the last bit, ``close`` ones to a relative 1e-9.

    python tests/portable.py FOLDER     # of release files
"""

from __future__ import annotations

import contextlib
import json
import locale
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gaussmix as gm
from gaussmix import accounting
from gaussmix.accounting.discrete import lattice_account
from gaussmix.accounting.gaussian import gaussian_delta_up
from gaussmix.accounting.thresholds import counts_account

SCHEMA: dict[str, Any] = {
    "columns": {
        "age": [0, 100],
        "sex": ["f", "m", "x"],
        "smoker": "boolean",
        "wage": [1, 1000],
        "cost": [0, 20],
    },
    "terms": ["log(wage)", "poly(age, 3)", "age:smoker"],
}


def rows(n: int = 3000) -> pa.Table:
    """A table computed from integers alone."""
    i = np.arange(n)
    return pa.table(
        {
            "age": (37 * i) % 120,
            "sex": pa.array([("f", "m", "x")[j % 3] for j in i]),
            "smoker": i % 4 == 0,
            "wage": 1 + ((577 * i) % 9973) / 10,
            "cost": ((13 * i) % 23) / 2,
            "weight": 1 + (i % 5) / 8,
            "person": pa.array([f"p{j % (n // 4)}" for j in i]),
        }
    )


def units(moments: gm.Moments) -> list[str]:
    """The exact Gram matrix, as decimal integers."""
    gram = moments.gram() * 2**40
    return [str(Fraction(value)) for value in gram.ravel()]


def exact(folder: Path) -> dict[str, Any]:
    """Fingerprints, sums over rows, and what noise is drawn with."""
    account = lattice_account(1.0, 1e-9, shares=("0.05", "0.02", "0.93"), coordinates=(400, 48, 400))
    counts = counts_account(1.0, 1e-6, grids=[4001], keys=3)
    first = gm.release(rows(), schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1, random_state=0)
    return {
        "fingerprints": {path.name: gm.load(path).fingerprint for path in sorted(folder.glob("*.parquet"))},
        "schema": gm.Schema.of(SCHEMA).fingerprint,
        "gram": units(gm.Moments.of(rows(), SCHEMA)),
        "gram of persons": units(gm.Moments.of(rows(), SCHEMA, privacy_unit=gm.PrivacyUnit("person", 2))),
        "mu": [gm.accounting.gaussian_mu(epsilon, 1e-6).hex() for epsilon in (0.1, 1.0, 3.0, 20.0)],
        "delta": [gaussian_delta_up(epsilon, 0.3).hex() for epsilon in (0.0, 0.1, 1.0, 3.0)],
        "lattice": [account.bits, account.slack.hex(), *(part.hex() for part in account.noise_mu)],
        "threshold": [counts.threshold, counts.threshold_delta.hex()],
        "first pass": [value.hex() for value in first.statistic.passes[0].matrix.ravel()],
    }


def close(folder: Path) -> dict[str, Any]:
    """Calibrations, accounts, and coefficients of releases."""
    found: dict[str, Any] = {}
    for scale in ("none", "private"):
        plan = gm.calibrate(1.0, 1e-6, sketch_size=250, scale=scale)
        found[f"calibration, scale={scale}"] = [plan.gamma, plan.eta or 0.0, plan.tau or 0.0]
    found["theorem 1"] = gm.calibrate(1.0, 1e-6, sketch_size=250, scale="private", analysis="paper").gamma
    found["replace-one"] = gm.calibrate(1.0, 1e-6, sketch_size=250, neighbours="replace-one").gamma
    for gamma in (1.5, 50.0, 1e6):
        found[f"delta at {gamma}"] = accounting.delta(0.7, sketch_size=150, gamma=gamma)
        found[f"epsilon at {gamma}"] = accounting.epsilon(1e-7, sketch_size=150, gamma=gamma)
    for path in sorted(folder.glob("*.parquet")):
        model, predictor = (fit("cost", ["age", "smoker"]) for fit in (gm.load(path).ols, gm.load(path).predictor))
        found[f"coefficients of {path.name}"] = [*model.params.values(), *model.bse.values(), *predictor.coef.values()]
    return found


def values(folder: Path) -> dict[str, Any]:
    """Both."""
    return {"exact": exact(folder), "close": close(folder)}


if __name__ == "__main__":
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    json.dump(values(Path(sys.argv[1])), sys.stdout)
