"""A release is what its certificate says, however it is made; estimators' releases are releases like any other."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.sketch import Sketch, rows_from_factor
from gaussmix.reporting import page
from gaussmix.reporting.verification import verify


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def private(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, sketch_size=10**6, random_state=0)


@pytest.fixture(scope="module")
def open_table(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def changed(sketch: Sketch, **values) -> Sketch:
    return replace(sketch, **values)


def test_second_moment_pca_and_rows(private, open_table, table):
    exact = open_table.second_moment
    assert np.abs(private.second_moment - exact).max() < 8 * private.sketch.entry_noise
    variances, components, names = open_table.pca(["age", "bmi"])
    centred = np.column_stack([(table["age"] - 50) / 50, (table["bmi"] - 30) / 20])
    centred = centred - centred.mean(axis=0)
    assert variances == pytest.approx(np.linalg.eigvalsh(centred.T @ centred)[::-1], rel=1e-3)
    assert components @ components.T == pytest.approx(np.eye(2), abs=1e-12)
    assert names == ("age", "bmi")
    small = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, sketch_size=50, random_state=0).sketch
    rows = rows_from_factor(small.factor, small.size, np.random.default_rng(0))
    assert rows.shape == (50, small.factor.shape[1])
    assert rows.T @ rows == pytest.approx(small.factor.T @ small.factor)


def test_pca_of_all_columns_and_about_zero(open_table, table):
    variances, components, names = open_table.pca()
    assert names == open_table.schema.names[:-1]
    assert np.all(np.diff(variances) <= 0)
    assert components.shape == (len(names), len(names))
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=math.inf, delta=1e-6)
    plain = np.column_stack([(table["age"] - 50) / 50, (table["bmi"] - 30) / 20])
    assert bare.pca(["age", "bmi"])[0] == pytest.approx(np.linalg.eigvalsh(plain.T @ plain)[::-1], rel=1e-3)


def test_certificate_is_public_and_complete(private):
    certificate = private.certificate
    assert certificate.row_norm == pytest.approx(math.sqrt(7))  # six columns and the intercept
    assert certificate.schema == private.schema == gm.Schema.of(SCHEMA)
    assert certificate.account.sketch_size == private.sketch.size == 10**6
    assert certificate.time.endswith("+00:00")
    assert private.sketch.noise_variance == pytest.approx(certificate.account.gamma * 7)
    assert "20000" not in json.dumps(certificate.to_dict()).replace("_", "")


@pytest.mark.parametrize(
    "change", ["noise_variance", "sketch_size", "row_norm", "epsilon", "gamma", "schema", "factor"]
)
def test_no_release_can_be_made_with_a_false_claim(private, change):
    certificate, sketch = private.certificate, private.sketch
    smaller = gm.Schema(certificate.schema.columns, max_row_norm=certificate.row_norm / 2)
    make = {
        "noise_variance": lambda: replace(private, statistic=changed(sketch, noise_variance=sketch.noise_variance / 2)),
        "sketch_size": lambda: replace(private, statistic=changed(sketch, size=sketch.size * 2)),
        "row_norm": lambda: replace(
            private, statistic=changed(sketch, schema=smaller), certificate=replace(certificate, schema=smaller)
        ),
        "schema": lambda: replace(private, certificate=replace(certificate, schema=smaller)),
        "epsilon": lambda: replace(private, certificate=replace(certificate, epsilon=1.0)),
        "gamma": lambda: replace(
            private,
            statistic=changed(sketch, noise_variance=sketch.noise_variance / 2),
            certificate=replace(certificate, account=replace(certificate.account, gamma=certificate.account.gamma / 2)),
        ),
        "factor": lambda: replace(private, statistic=changed(sketch, factor=sketch.factor.T)),
    }[change]
    with pytest.raises(ValueError, match=r"do not fit|claims|not those|does not give|different columns"):
        make()


@pytest.mark.parametrize("entry", [math.nan, math.inf])
def test_a_factor_that_is_no_number_is_refused(private, entry):
    factor = private.sketch.factor.copy()
    factor[0, 0] = entry
    with pytest.raises(gm.ArgumentError, match="do not fit each other"):
        replace(private, statistic=changed(private.sketch, factor=factor))


def test_what_was_changed_behind_the_checks_is_not_written(private, tmp_path):
    for name in ("noise_variance", "size"):
        wrong = pickle.loads(pickle.dumps(private))
        object.__setattr__(wrong.sketch, name, 0.0 if name == "noise_variance" else 2 * 10**6)
        with pytest.raises(gm.NotPrivateError):
            wrong.save(tmp_path / "x.parquet")
    wrong = pickle.loads(pickle.dumps(private))
    object.__setattr__(wrong.certificate.account, "gamma", wrong.certificate.account.gamma / 2)
    with pytest.raises(gm.NotPrivateError):
        wrong.save(tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())


def test_repr_tells_size_and_budget(private):
    assert repr(private) == "Release(no privacy guarantee, 10 columns, sketch_size=1000000, epsilon=3)"


# ------------------------------------------------------------------------------------------------ estimators' releases
def features(n=4000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ [0.5, -0.3, 0.0] + 0.1 + rng.uniform(-0.1, 0.1, n)


BUDGET = {"epsilon": 5.0, "delta": 1e-6, "bounds_X": (-1, 1)}
ESTIMATORS = {
    "LinearRegression": lambda X, y: gm.LinearRegression(**BUDGET, bounds_y=(-1, 1)).fit(X, y),
    "by norm": lambda X, y: gm.LinearRegression(epsilon=5.0, data_norm=1.8, bounds_y=(-1, 1)).fit(X, y),
    "both": lambda X, y: gm.LinearRegression(**BUDGET, data_norm=1.2, bounds_y=(-1, 1)).fit(X, y),
    "bounds of their own": lambda X, y: gm.LinearRegression(
        epsilon=5.0, bounds_X=([-1, -2, -1], [1, 1, 3]), bounds_y=(-1, 1)
    ).fit(X, y),
    "several targets": lambda X, y: gm.LinearRegression(**BUDGET, bounds_y=([-1, -2], [1, 2])).fit(
        X, np.column_stack([y, -y])
    ),
    "without an intercept": lambda X, y: gm.LinearRegression(**BUDGET, bounds_y=(-1, 1), fit_intercept=False).fit(X, y),
    "paper": lambda X, y: gm.LinearRegression(**BUDGET, bounds_y=(-1, 1), variant="paper").fit(X, y),
    "paper, rows public": lambda X, y: gm.LinearRegression(
        **BUDGET, bounds_y=(-1, 1), variant="paper", n_rows=len(X)
    ).fit(X, y),
    "LogisticRegression": lambda X, y: gm.LogisticRegression(**BUDGET).fit(X, y > 0.1),
    "LogisticRegression, declared": lambda X, y: gm.LogisticRegression(**BUDGET, classes=["no", "yes"]).fit(
        X, np.where(y > 0.1, "yes", "no")
    ),
    "LogisticRegression, paper": lambda X, y: gm.LogisticRegression(**BUDGET, variant="paper").fit(X, y > 0.1),
    "not private": lambda X, y: gm.LinearRegression(epsilon=math.inf, bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(X, y),
}


@pytest.fixture(scope="module", params=list(ESTIMATORS))
def estimator(request):
    return ESTIMATORS[request.param](*features())


def test_an_estimators_release_can_be_saved_and_loaded(estimator, tmp_path):
    release = estimator.release_
    release.save(tmp_path / "r.parquet")
    back = gm.load(tmp_path / "r.parquet")
    assert np.array_equal(back.second_moment, release.second_moment)
    assert back.certificate == release.certificate == estimator.privacy_
    assert back.certificate.made_by == type(estimator).__name__
    assert back.schema == release.schema
    assert back.fingerprint == release.fingerprint
    private = math.isfinite(release.certificate.epsilon)
    assert verify(tmp_path / "r.parquet").state == ("true" if private else "void")


def test_an_estimators_release_gives_its_coefficients_again(estimator):
    release, X = estimator.release_, features()[0]
    d = X.shape[1]
    if isinstance(estimator, gm.LogisticRegression):
        model = release.classify("y", variant=estimator.variant)
        assert list(model.coef.values()) == pytest.approx(estimator.coef_[0])
        assert model.intercept == pytest.approx(estimator.intercept_[0])
        return
    targets = [name for name in release.schema.columns if name != "X"]
    models = release.regress(targets, variant=estimator.variant)
    for target, coef, intercept in zip(
        targets, np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_), strict=True
    ):
        assert list(models[target].coef) == [f"X[{i}]" for i in range(d)]
        assert list(models[target].coef.values()) == pytest.approx(coef)
        assert models[target].intercept == pytest.approx(intercept)


def test_an_estimators_release_predicts_tables_of_vectors(estimator):
    if isinstance(estimator, gm.LogisticRegression) or estimator.coef_.ndim > 1:
        return
    X = features()[0][:20]
    model = estimator.release_.regress("y", variant=estimator.variant)
    assert model.predict(pa.table({"X": pa.FixedSizeListArray.from_arrays(X.ravel(), 3)})) == pytest.approx(
        estimator.predict(X)
    )


def test_an_estimators_summary_is_that_of_its_release(estimator):
    release = estimator.release_
    model = (
        release.classify("y", on=["X"], variant=estimator.variant)
        if isinstance(estimator, gm.LogisticRegression)
        else release.regress("y" if "y" in release.schema.columns else "y0", on=["X"])
    )
    own, found = estimator.summary(), model.summary()
    assert list(own.params.values()) == list(found.params.values())
    assert list(own.bse.values()) == list(found.bse.values())
    assert own.rsquared == found.rsquared
    assert [name for name in own.params if name != "(intercept)"] == ["x0", "x1", "x2"]


def test_an_estimators_release_is_reported(estimator):
    release = estimator.release_
    found = page.render(release)
    assert "vector of 3" in found
    assert release.certificate.made_by in found
    if math.isinf(release.certificate.epsilon):
        assert "Not private." in found
    else:
        assert 'id="banner"' not in found


def test_a_private_eigenvalue_is_kept_with_its_release(tmp_path):
    """Where rows are many, the paper's variant lowers its noise by v: the file holds v, and no other noise is true."""
    X, y = features(100_000)
    model = gm.LinearRegression(**BUDGET, bounds_y=(-1, 1), variant="paper", n_rows=len(X)).fit(X, y)
    certificate, sketch = model.release_.certificate, model.release_.sketch
    assert certificate.account.scale == "private"
    assert certificate.eigenvalue_bound > 0
    lowered = max(certificate.account.gamma - certificate.eigenvalue_bound, 0.0)
    assert sketch.noise_variance == pytest.approx(lowered * certificate.row_norm**2)
    model.release_.save(tmp_path / "r.parquet")
    back = gm.load(tmp_path / "r.parquet")
    assert back.certificate.eigenvalue_bound == certificate.eigenvalue_bound
    assert "eigenvalue_bound" in page.render(back)
    assert verify(tmp_path / "r.parquet").state == "true"
    for bound in (None, 0.0, certificate.account.gamma * 0.5):
        with pytest.raises(gm.NotPrivateError, match="not those"):
            replace(model.release_, certificate=replace(certificate, eigenvalue_bound=bound))
