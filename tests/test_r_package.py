"""The R package in ``r/`` gives the regressions that Python computes from the same release."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.export import exported

PACKAGE = Path(__file__).parents[1] / "r"

pytestmark = pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library with the package, installed as a user would."""
    folder = tmp_path_factory.mktemp("library")
    source = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("source") / "gaussmix")
    command = ["R", "CMD", "INSTALL", "--no-test-load", f"--library={folder}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run(library, tmp_path):
    """A function that runs R code with the package and returns what it prints."""

    def run(code, ok=True):
        code = f'library(gaussmix, lib.loc = "{library}"); options(width = 200)\n{code}'
        done = subprocess.run(
            ["Rscript", "--vanilla", "-e", code], capture_output=True, text=True, cwd=tmp_path, timeout=120
        )
        assert (done.returncode == 0) == ok, done.stderr
        return done.stdout if ok else done.stderr

    return run


@pytest.fixture(scope="module")
def private():
    return gm.release(patients(20_000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


TIDY = """out <- gaussmix:::tidy.gaussmix_ols(model, conf.level = 0.9)
out[-1] <- lapply(out[-1], format, digits = 17, trim = TRUE); write.csv(out, "out.csv", row.names = FALSE)
write.csv(format(vcov(model), digits = 17, trim = TRUE), "vcov.csv")"""


def same(folder, summary):
    """Compare what TIDY wrote with a summary of Python."""
    found = pd.read_csv(folder / "out.csv")
    assert list(found["term"]) == list(summary.params)
    for column, values in (("estimate", summary.params), ("std.error", summary.bse), ("p.value", summary.pvalues)):
        assert_allclose(found[column], list(values.values()), rtol=1e-8, atol=1e-300)
    assert_allclose(found[["conf.low", "conf.high"]], list(summary.conf_int(0.1).values()), rtol=1e-8, atol=1e-10)
    own = np.array([list(row.values()) for row in summary.cov_params().values()])
    covariance = pd.read_csv(folder / "vcov.csv", index_col=0).to_numpy(float)
    size = np.sqrt(np.outer(np.diagonal(own), np.diagonal(own)))
    assert_allclose(covariance / size, own / size, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("passes", [1, "auto"])
def test_models_are_those_of_python(passes, run, tmp_path):
    private = gm.release(patients(20_000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, passes=passes)
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    run(f'model <- ols(read_release("r.csv"), cost ~ region + smoker + age)\n{TIDY}')
    same(tmp_path, private.ols("cost", ["age", "region", "smoker"]).summary())
    run(f'model <- ols(read_release("r.csv"), "smoker")\n{TIDY}')
    same(tmp_path, private.ols("smoker").summary())
    run(f'model <- ols(read_release("r.csv"), cost ~ ., reference = c(region = "west"))\n{TIDY}')
    same(tmp_path, private.ols("cost").summary(reference={"region": "west"}))


def test_columns_are_left_out_as_in_python(run, tmp_path):
    """Rare levels, columns that hardly vary and collinear columns, at a small budget, with top-coding."""
    rng = np.random.default_rng(0)
    n = 8000
    table = pd.DataFrame({"x": rng.normal(0, 1, n), "w": 0.002 * rng.normal(0, 1, n), "e": rng.exponential(1, n)})
    table["near"] = (table["x"] + 0.01 * rng.normal(0, 1, n)).clip(-4, 4)
    table["g"] = rng.choice(list("abcd"), n, p=[0.01, 0.49, 0.495, 0.005])
    table["y"] = (table["x"] + table["e"] + rng.normal(0, 1, n)).clip(-10, 30)
    schema = {"x": [-4, 4], "w": [-1, 1], "e": [0, 100], "near": [-4, 4], "g": list("abcd"), "y": [-10, 30]}
    private = gm.release(table, schema, epsilon=0.3, delta=1e-6, random_state=0)
    summary = private.ols("y").summary()
    assert len(summary.left_out) >= 3
    assert summary.coded
    assert summary.references == ("g=b",)  # the largest level
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    printed = run(f'model <- ols(read_release("r.csv"), "y"); print(model)\n{TIDY}')
    same(tmp_path, summary)
    first = str(summary).splitlines()
    assert printed.splitlines()[:2] == first[:2]
    left = printed.split("left out: ")[1].split(".\n")[0].split(", ")
    assert set(left) == set(summary.left_out)
    assert f"R-squared: {summary.rsquared:.3g}" in printed


def test_a_release_without_noise_and_one_without_intercept(run, tmp_path):
    exact = gm.release(patients(3000), schema=SCHEMA, epsilon=float("inf"), delta=1e-6, passes=1)
    (tmp_path / "r.csv").write_text(exported(exact, "r"), encoding="utf-8")
    run('model <- ols(read_release("r.csv"), "cost"); write.csv(format(coef(model), digits = 17), "coef.csv")')
    found = pd.read_csv(tmp_path / "coef.csv", index_col=0)["x"].astype(float)
    assert_allclose(found, list(exact.ols("cost").params.values()), rtol=1e-7)
    table = patients(20_000)
    schema = gm.Schema({"age": [0, 100], "sex": ["f", "m"], "cost": [0, 20]}, intercept=0.0)
    private = gm.release(table, schema, epsilon=3.0, delta=1e-6, random_state=0)
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    run(f'model <- ols(read_release("r.csv"), "cost")\n{TIDY}')
    same(tmp_path, private.ols("cost").summary())


def test_parquet_files_are_verified_and_exported_by_the_command(private, run, tmp_path):
    private.save(tmp_path / "it's.parquet")
    command = tmp_path / "command"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gaussmix "$@"\n')
    command.chmod(0o755)
    run(f'model <- ols(read_release("it\'s.parquet", gaussmix = "{command}"), "cost")\n{TIDY}')
    same(tmp_path, private.ols("cost").summary())
    assert "--to r" in run('read_release("it\'s.parquet", gaussmix = "no-such-command")', ok=False)
    (tmp_path / "bad.parquet").write_bytes((tmp_path / "it's.parquet").read_bytes()[:-100])
    assert "bad.parquet" in run(f'read_release("bad.parquet", gaussmix = "{command}")', ok=False)


def test_names_that_look_like_formulas_or_are_not_ascii(run, tmp_path):
    rng = np.random.default_rng(0)
    table = {"=x": rng.uniform(-1, 1, 5000), 'größe, "q"': rng.uniform(0, 1, 5000)}
    table |= {"g": rng.choice(["@a", "-2+3", "b\nc"], 5000), "y": rng.uniform(0, 1, 5000)}
    schema = {"=x": [-1, 1], 'größe, "q"': [0, 1], "g": ["@a", "-2+3", "b\nc"], "y": [0, 1]}
    private = gm.release(table, schema, epsilon=3.0, delta=1e-6, random_state=0)
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    run(f'model <- ols(read_release("r.csv"), "y")\n{TIDY}')
    same(tmp_path, private.ols("y").summary())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('ols(r, "costs", "age")', "there is no column 'costs'"),
        ('ols(r, "cost", c("age", "age"))', "each once"),
        ('ols(r, "region", "age")', "numeric or boolean"),
        ('ols(r, "cost", c("age", "cost"))', "cannot be a predictor"),
        ("ols(r, cost ~ age * bmi)", "without products"),
        ("ols(r, cost ~ age - 1)", "with an intercept"),
        ("ols(r, log(cost) ~ age)", "must be y ~ x1"),
        ('ols(r, "cost", "age", reference = c(region = "west"))', "not a level of a predictor"),
        ('ols(r, "cost", "region", reference = c(region = "east"))', "not a level of a predictor"),
        ('confint(ols(r, "cost"), level = 95)', "between 0 and 1"),
        ('read_release("moments.csv")', "--to r"),
        ('read_release("none.csv")', "no file"),
    ],
)
def test_mistakes_are_explained(call, words, private, run, tmp_path):
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    (tmp_path / "moments.csv").write_text(exported(private, "csv"), encoding="utf-8")
    assert words in run(f'r <- read_release("r.csv"); {call}', ok=False)


def test_terms_and_missing_values_are_refused(run, tmp_path):
    table = patients(20_000)
    table.loc[::7, "bmi"] = np.nan
    schema = gm.Schema(
        {
            "age": [0, 100],
            "bmi": {"lower": 10, "upper": 50, "missing": "indicator"},
            "cost": [0, 20],
            "smoker": "boolean",
        },
        terms={"age^2": 1.0},
    )
    private = gm.release(table, schema, epsilon=3.0, delta=1e-6, random_state=0)
    (tmp_path / "r.csv").write_text(exported(private, "r"), encoding="utf-8")
    assert "Use gaussmix ols" in run('ols(read_release("r.csv"), "cost", c("age", "age^2"))', ok=False)
    assert "Use gaussmix ols" in run('ols(read_release("r.csv"), "cost", "bmi")', ok=False)
    assert "List the predictors" in run('ols(read_release("r.csv"), "cost")', ok=False)
    run(f'model <- ols(read_release("r.csv"), "cost", c("age", "smoker"))\n{TIDY}')
    same(tmp_path, private.ols("cost", ["age", "smoker"]).summary())


def test_lavaan_scripts_define_the_moments(private, run, tmp_path):
    (tmp_path / "m.R").write_text(exported(private, "lavaan"), encoding="utf-8")
    printed = run('source("m.R"); cat(sample.nobs, sample.mean, sample.cov, chol(sample.cov)[1]); cat("", columns)')
    found, moments = printed.split(), private.moments()
    p = len(moments.names)
    numbers = np.array(found[: 1 + p + p * p], dtype=float)
    assert numbers[0] == round(moments.n_rows)
    assert_allclose(numbers[1:], [*moments.means, *moments.covariance.ravel()], rtol=1e-6)
    assert found[-p:] == ["age", "bmi", "sex_m", "region_south", "region_west", "smoker", "cost"]
