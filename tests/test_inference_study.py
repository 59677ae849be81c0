"""The study of intervals runs: what they should hold is computed as it says, and a stopped run goes on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gaussmix as gm
from experiments import inference_study as study
from gaussmix.data.rows import rows_of


@pytest.fixture(scope="module")
def table():
    return study.load("rare")


def test_the_made_table_has_a_rare_level_that_is_not_counted(table):
    assert (table.frame["work"] == "unpaid").sum() == 5
    assert table.counted == ["age", "hours", "female", "work=public", "work=self"]
    assert list(table.design) == ["(intercept)", *table.counted, "work=unpaid"]


def test_shortened_rows_are_rows_with_weights(table):
    """Least squares with the weights min(1, clip/‖z‖²), on the rows themselves."""
    rows = rows_of(pa.Table.from_pandas(table.frame, preserve_index=False), table.schema)
    private = gm.release(table.frame, schema=table.schema, epsilon=1.0, delta=1e-9, random_state=0)
    request, model = private.statistic.passes[-1].request, private.ols("income")
    sums, reference = study.shortened_sums(private.statistic, rows), table.reference
    summary = model.summary(reference=reference)
    found = study.as_shortened(model, summary, sums, request, reference)
    encoded = np.column_stack([_encoded(table, column) for column in table.schema.encoded])
    squares = np.sum((encoded @ request.metric.transform.matrix.T / table.schema.row_norm) ** 2, axis=1)
    root = np.sqrt(np.minimum(1.0, request.clip / squares))
    kept = [name for name in table.design if name not in summary.left_out]
    X, y = table.design[kept].to_numpy(), table.frame["income"].to_numpy()
    theta, *_ = np.linalg.lstsq(X * root[:, None], y * root, rcond=None)
    assert (root < 1).sum() >= 5
    assert "work=unpaid" in summary.left_out
    wanted = dict(zip(kept, theta.tolist(), strict=True))
    assert [found[name] for name in table.counted] == pytest.approx([wanted[name] for name in table.counted], rel=1e-3)


def _encoded(table, column):
    if column.source is None:
        return np.ones(len(table.frame))
    values = table.frame[column.source]
    if column.kind == "level":
        return (values == column.name.partition("=")[2]).to_numpy(float)
    return (values.to_numpy(float) - column.centre) / column.scale


def test_tables_of_the_population_have_its_coefficients(table):
    drawn = table.drawn(np.random.default_rng(0))
    z = (drawn.fitted[0] - table.fitted[0])[:-1] / drawn.fitted[1][:-1]
    assert np.abs(z).max() < 5
    bounds = drawn.schema.columns["income"]
    assert bounds.lower <= drawn.frame["income"].min()
    assert drawn.frame["income"].max() <= bounds.upper


def test_a_stopped_run_goes_on_and_is_reported(tmp_path):
    draws = tmp_path / "draws.csv"
    for releases in (1, 2):
        study.run(["rare"], ["table"], releases, draws, redraws=2, lost_weight=0.075, keep=tmp_path)
    rows = pd.read_csv(draws)
    assert len(rows) == 2 * 2 * 5
    assert not rows.duplicated().any()
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    found = study.report(rows)
    assert (found["draws"] == 4).all()
    assert (found["finite"] == 1).all()
    assert study.by_table(found)["coefficients"].item() == 5
