"""The study of coverage: its least squares, one release of a simulated table, and the figures of a report."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import truth_study
from experiments.study_tables import load


def test_least_squares_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(1e3, 1, 200), "group": rng.choice(["a", "b", "c"], 200)})
    frame["y"] = 2 * frame["x"] + (frame["group"] == "b") + rng.standard_normal(200)
    found, error = truth_study.least_squares(frame, "y", ["x", "group=b", "group=c"])
    X = np.column_stack([np.ones(200), frame["x"], frame["group"] == "b", frame["group"] == "c"]).astype(float)
    expected, (square,), *_ = np.linalg.lstsq(X, frame["y"].to_numpy(), rcond=None)
    centred = X[:, 1:] - X[:, 1:].mean(axis=0)
    variances = square / (200 - 4) * np.diagonal(np.linalg.inv(centred.T @ centred))
    np.testing.assert_allclose(found, expected[1:], rtol=1e-7)
    np.testing.assert_allclose(error, np.sqrt(variances), rtol=1e-7)


def test_weighted_least_squares_counts_rows_as_often_as_their_weights() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.standard_normal((100, 3)), columns=["x", "z", "y"])
    times = rng.integers(0, 4, 100)
    found, _ = truth_study.least_squares(frame, "y", ["x", "z"], times.astype(float))
    repeated, _ = truth_study.least_squares(frame.iloc[np.repeat(np.arange(100), times)], "y", ["x", "z"])
    np.testing.assert_allclose(found, repeated, rtol=1e-10)


def test_intervals_of_a_release_are_compared_with_the_coded_table() -> None:
    rows = pd.DataFrame(truth_study.measure("curved_square", 3.0, 0))
    coefficients = rows[rows["kind"] == "coefficient"]
    assert list(coefficients["term"]) == ["x", "z"]
    assert coefficients["kept"].all()
    assert coefficients["found"].all()
    coded = rows[rows["kind"] == "coded"].set_index("term")
    assert 0 < coded.loc["x", "changed"] < 0.03
    assert coded.loc["x", "high"] < load("curved_square").frame["x"].max()
    assert (coefficients["moved"] > 5).any()  # the slope of the tail is another one


def test_a_report_weights_coverage_by_the_releases_that_keep_a_coefficient() -> None:
    line = {"table": "curved_log", "epsilon": 1.0, "kind": "coefficient", "response": "y", "found": True, "moved": 0.0}
    line |= {"weighted": 0.0, "covered_plain": None}
    kept = {"kept": True, "covered_plain": False, "covered_all": True, "length": 2.0, "t": 9.0}
    left_out = {"kept": False, "covered": None, "covered_all": None, "length": math.nan, "t": 9.0, "found": False}
    rows = [line | kept | {"term": "x", "seed": seed, "covered": seed % 10 > 0} for seed in range(40)]
    rows += [line | kept | {"term": "z", "seed": seed, "covered": True} for seed in range(10)]
    rows += [line | left_out | {"term": "z", "seed": seed} for seed in range(10, 40)]
    (found,) = truth_study.summarise(truth_study.aggregate(pd.DataFrame(rows))).to_dict("records")
    assert found["coverage"] == pytest.approx((36 + 10) / 50)
    assert found["least"] == pytest.approx(0.9)  # z is kept too rarely to count
    assert found["coverage_plain"] == 0
    assert found["kept"] == pytest.approx((1 + 0.25) / 2)
    assert found["power"] == pytest.approx((1 + 0.25) / 2)
    assert found["length"] == 2.0


def test_the_page_has_the_numbers_of_the_file() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "inference.md").read_text(encoding="utf-8")
    for table in truth_study.page_tables(pd.read_csv(root / "experiments" / "results" / "truth.csv")).values():
        assert f"|\n{table}\n\n" in page
