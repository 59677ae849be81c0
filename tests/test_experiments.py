"""The experiments run, on the real tables where they are at hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

datasets = pytest.importorskip("datasets", reason="experiments/ is not on the path")

SHAPES = {
    "boston": (506, 13),
    "wine": (1359, 11),
    "bike": (10886, 18),
    "communities": (822, 99),
    "tecator": (240, 124),
    "gaussian": (10_240, 512),
    "uniform": (10_240, 512),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tables_have_the_published_shapes(name):
    if name not in ("gaussian", "uniform") and datasets.data_folder() is None:
        pytest.skip("set GAUSSMIX_DATA to the folder of the data sets")
    X, y = datasets.LINEAR[name](np.random.default_rng(0))
    assert X.shape == SHAPES[name]
    assert y.shape == SHAPES[name][:1]
    assert np.isfinite(X).all()


def test_other_files_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSMIX_DATA", str(tmp_path))
    (tmp_path / "boston").mkdir()
    (tmp_path / "boston" / "housing.txt").write_text("1 2 3\n")
    with pytest.raises(ValueError, match="its checksum differs"):
        datasets.boston(np.random.default_rng(0))
    monkeypatch.delenv("GAUSSMIX_DATA")
    with pytest.raises(FileNotFoundError, match="Set GAUSSMIX_DATA"):
        datasets.boston(np.random.default_rng(0))


def test_the_accuracy_table_has_every_method_and_the_default_leads():
    if datasets.data_folder() is None:
        pytest.skip("set GAUSSMIX_DATA to the folder of the data sets")
    import linear_accuracy

    with np.errstate(all="raise"):
        results = pd.DataFrame(linear_accuracy.run(("boston", 0, 3)))
    means = results.groupby("method")["score"].mean()
    assert set(means.index) == {*linear_accuracy.METHODS, "mean of y (not private)"}
    assert means["LinearMixing, exact"] < means["AdaSSP, exact"] < means["Sheffet, printed"]
    linear_accuracy.summary(results)
    linear_accuracy.by_epsilon(results)
