"""The formulas that the study of rates compares: its own is the library's, and near maximum likelihood."""

from __future__ import annotations

import math

import pytest

import gaussmix as gm
from experiments import rates_study


def test_the_studys_formula_is_the_librarys():
    table = rates_study.made("normal", 0.3, n=20_000)
    X, names, sources = rates_study.design(table, "count")
    found = rates_study.estimates(X, table["count"].to_numpy(float), names, sources)
    schema = {"count": [0, 500], "x1": [-8, 8], "x2": [-8, 8], "d": "boolean", "level": ["0", "1", "2"]}
    rows = table.astype({"level": str})
    params = gm.release(rows, schema=schema, epsilon=math.inf, delta=1e-6).poisson("count").params
    assert names == ["x1", "x2", "d=true", "level=1", "level=2"]
    assert list(params.values())[1:] == pytest.approx(found["here"], abs=1e-4)
    assert found["here"] == pytest.approx(found["likelihood"], abs=0.02)
    assert abs(found["b/mean"] - found["likelihood"]).max() > 0.02
