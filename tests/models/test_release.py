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
from gaussmix.accounting.accounts import NonPrivate
from gaussmix.report import page
from gaussmix.report.verify import verify


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def private(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def open_table(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def with_pass(release: gm.Release, number: int, **values):
    """The numbers of a release with one pass changed."""
    passes = list(release.statistic.passes)
    passes[number] = replace(passes[number], **values)
    return replace(release.statistic, passes=tuple(passes))


def test_second_moment_and_pca(private, open_table, table):
    exact = open_table.second_moment
    scale = np.sqrt(2 * np.outer(private.statistic.column_noise, private.statistic.column_noise))
    assert (np.abs(private.second_moment - exact) < 8 * scale + 0.02 * np.abs(exact)).all()  # rows are shortened
    variances, components, names = open_table.pca(["age", "bmi"])
    centred = np.column_stack([(table["age"] - 50) / 50, (table["bmi"] - 30) / 20])
    centred = centred - centred.mean(axis=0)
    assert variances == pytest.approx(np.linalg.eigvalsh(centred.T @ centred)[::-1], rel=1e-3)
    assert components @ components.T == pytest.approx(np.eye(2), abs=1e-12)
    assert names == ("age", "bmi")


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
    assert certificate.time.endswith("+00:00")
    assert "20000" not in json.dumps(certificate.to_dict()).replace("_", "")


@pytest.mark.parametrize("change", ["mu", "passes", "row_norm", "epsilon", "account", "schema", "no noise"])
def test_no_release_can_be_made_with_a_false_claim(private, open_table, change):
    certificate, statistic = private.certificate, private.statistic
    smaller = gm.Schema(certificate.schema.columns, max_row_norm=certificate.row_norm / 2)
    make = {
        "mu": lambda: replace(private, statistic=with_pass(private, 0, mu=statistic.passes[0].mu / 2)),
        "passes": lambda: replace(private, statistic=replace(statistic, passes=statistic.passes[:1])),
        "row_norm": lambda: replace(private, statistic=replace(statistic, schema=smaller)),
        "schema": lambda: replace(private, certificate=replace(certificate, schema=smaller)),
        "epsilon": lambda: replace(private, certificate=replace(certificate, epsilon=1.0)),
        "account": lambda: replace(
            private, certificate=replace(certificate, account=replace(certificate.account, mu=9.0))
        ),
        "no noise": lambda: replace(private, statistic=open_table.statistic),
    }[change]
    with pytest.raises(ValueError, match=r"claims|does not|do not"):
        make()


def test_a_release_without_noise_is_certified_as_such_and_no_other_is(private, open_table):
    assert open_table.certificate.account == NonPrivate()
    assert open_table.statistic.exact
    assert not private.statistic.exact
    with pytest.raises(gm.NotPrivateError, match="a release without noise, but the release has noise"):
        replace(open_table, statistic=private.statistic)
    with pytest.raises(gm.NotPrivateError, match="a release without noise, but the release has noise"):
        replace(open_table, statistic=with_pass(open_table, 0, mu=1.0))


@pytest.mark.parametrize("entry", [math.nan, math.inf])
def test_a_pass_that_is_no_number_is_refused(private, entry):
    matrix = private.statistic.passes[0].matrix.copy()
    matrix[0, 0] = entry
    with pytest.raises(gm.ArgumentError, match="finite symmetric matrix"):
        replace(private, statistic=with_pass(private, 0, matrix=matrix))


def test_what_was_changed_behind_the_checks_is_not_read(private, tmp_path):
    for number, change in enumerate(("pass", "account")):
        wrong = pickle.loads(pickle.dumps(private))
        changed = wrong.statistic.passes[-1] if change == "pass" else wrong.certificate.account
        object.__setattr__(changed, "mu", changed.mu * 1.5)
        wrong.save(tmp_path / f"{number}.parquet")
        with pytest.raises(ValueError):
            gm.load(tmp_path / f"{number}.parquet")


def test_repr_tells_size_and_budget(private):
    assert repr(private) == "Release(no privacy guarantee, 10 columns, passes=4, epsilon=3)"


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
    "LogisticRegression": lambda X, y: gm.LogisticRegression(**BUDGET).fit(X, y > 0.1),
    "LogisticRegression, declared": lambda X, y: gm.LogisticRegression(**BUDGET, classes=["no", "yes"]).fit(
        X, np.where(y > 0.1, "yes", "no")
    ),
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
        model = release.predictor("y", family="logit")
        assert list(model.coef.values()) == pytest.approx(estimator.coef_[0])
        assert model.intercept == pytest.approx(estimator.intercept_[0])
        return
    targets = [name for name in release.schema.columns if name != "X"]
    models = {target: release.predictor(target, ["X"]) for target in targets}
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
    model = estimator.release_.predictor("y")
    assert model.predict(pa.table({"X": pa.FixedSizeListArray.from_arrays(X.ravel(), 3)})) == pytest.approx(
        estimator.predict(X)
    )


def test_an_estimators_summary_is_that_of_its_release(estimator):
    release = estimator.release_
    model = (
        release.logit("y", predictors=["X"])
        if isinstance(estimator, gm.LogisticRegression)
        else release.ols("y" if "y" in release.schema.columns else "y0", predictors=["X"])
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
