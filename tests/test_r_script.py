"""docs/gaussmix.R gives the regression that Python computes from the same export."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from example_tables import SCHEMA, patients
from gaussmix import release
from gaussmix.models.design import Problem, Response
from gaussmix.models.inference import Coefficients, least_squares
from gaussmix.models.release import as_csv
from gaussmix.releases.noisy import NoisyMoment

SCRIPT = Path(__file__).parents[1] / "docs" / "gaussmix.R"
ON = ["age", "region", "smoker"]


@pytest.fixture(scope="module")
def private():
    return release(patients(20_000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


def wald(private):
    """Least squares on the pool, and the standard errors of its noise, in the user's units."""
    schema, noisy = private.schema, private.statistic.predictive
    (index,) = schema.groups["cost"]
    encoded, unit = schema.encoded[index], np.eye(schema.n_columns)[index]
    names = [column.name for column in schema.encoded if column.source in ON]
    problem = Problem.of(noisy, schema, Response("cost", unit, encoded.centre, encoded.scale), names)
    fit = least_squares(problem.noisy, intercept=True)
    own = Coefficients.of(fit, problem.to_user, problem.offset)
    return problem.names, own.estimate, own.std_errors


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_the_script_gives_the_same_regression(private, tmp_path):
    (tmp_path / "r.csv").write_text(as_csv(private))
    code = f"""source("{SCRIPT}"); release <- read_release("r.csv")
    found <- regression(release, "cost", c({", ".join(f'"{name}"' for name in ON)}))
    write.csv(format(found, digits = 15), "out.csv", row.names = FALSE)"""
    subprocess.run(["Rscript", "--vanilla", "-e", code], check=True, cwd=tmp_path, timeout=120)
    found = pd.read_csv(tmp_path / "out.csv")
    names, params, errors = wald(private)
    assert [name.strip() for name in found["term"]] == list(names)
    assert_allclose(found["estimate"], params, rtol=1e-9)
    assert_allclose(found["std.error"], errors, rtol=1e-9)


def test_its_standard_errors_are_below_those_of_the_last_pass(private):
    _, params, errors = wald(private)
    summary = private.ols("cost", ON).summary()
    assert_allclose(params, list(summary.params.values()), atol=4 * max(summary.bse.values()))
    assert isinstance(private.statistic.predictive, NoisyMoment)
    ratio = errors / np.array(list(summary.bse.values()))
    assert ((ratio > 0.5) & (ratio < 1.1)).all()  # the pool has less noise than its last pass
