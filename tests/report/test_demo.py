"""The demonstration table, and models from one release of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.report.demo import PREDICTORS, ROWS, SCHEMA, make_patients


def test_the_table_is_within_its_declared_bounds_and_the_same_for_a_seed():
    table = make_patients(20_000)
    assert table.column_names == list(SCHEMA)
    assert table.equals(make_patients(20_000))
    assert not table.equals(make_patients(20_000, seed=1))
    for name, declared in SCHEMA.items():
        if isinstance(declared, list):
            values = table[name].to_numpy()
            assert np.mean((values < declared[0]) | (values > declared[1])) < 1e-3, name
    assert set(table["region"].to_pylist()) == set(SCHEMA["region"]["levels"])
    assert make_patients(3).num_rows == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(folder):
    result = CliRunner().invoke(main, ["demo", "-o", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def design(predictors):
    table = make_patients()
    columns = {"(intercept)": np.ones(ROWS)}
    for name in predictors:
        if name == "region":
            region = np.array(table[name].to_pylist())
            columns |= {f"region={level}": region == level for level in SCHEMA["region"]["levels"][1:]}
        else:
            columns[name] = _clamped(table, name)
    return {name: np.asarray(column, float) for name, column in columns.items()}


def _clamped(table, name):
    values, declared = table[name].to_numpy(), SCHEMA[name]
    return np.clip(values, *declared) if isinstance(declared, list) else values


@pytest.mark.parametrize("response", ["cost", "pressure"])
def test_exact_values_are_least_squares_on_the_table(shown, response):
    columns = design(PREDICTORS[response])
    beta, *_ = np.linalg.lstsq(np.column_stack(list(columns.values())), _clamped(make_patients(), response), rcond=None)
    rows = shown["models"][f"{response}, linear"]
    assert list(rows) == list(columns)
    assert [row["exact"] for row in rows.values()] == pytest.approx(beta.tolist(), rel=1e-3, abs=1e-3)


def test_exact_log_odds_are_maximum_likelihood_on_the_table(shown):
    sm = pytest.importorskip("statsmodels.api")
    columns = design(PREDICTORS["readmitted"])
    fit = sm.Logit(make_patients()["readmitted"].to_numpy(), np.column_stack(list(columns.values()))).fit(disp=False)
    rows = shown["models"]["readmitted, log odds"]
    assert [rows[name]["exact"] for name in columns] == pytest.approx(fit.params.tolist(), rel=1e-3)
    assert shown["odds_ratios"]["smoker"]["exact"] == pytest.approx(np.exp(rows["smoker"]["exact"]))


def test_intervals_are_near_the_exact_values(shown, folder):
    for rows in shown["models"].values():
        for name, row in rows.items():
            low, high = row["interval"]
            assert abs(row["private"] - row["exact"]) < 2 * (high - low), name  # about eight standard errors
    assert sum(own["share"] for own in shown["passes"]) == pytest.approx(1)
    certificate = gm.load(folder / "demo.release.parquet").certificate
    assert certificate.is_private
    assert (certificate.epsilon, certificate.delta) == (1.0, 1e-6)
