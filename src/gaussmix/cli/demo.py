"""``gaussmix demo``: compare models from a private release of synthetic patients with the same models without noise."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from gaussmix._files import reserve
from gaussmix._types import Floats
from gaussmix.cli.exits import command, echo, echo_json
from gaussmix.cli.options import FORCE, JSON
from gaussmix.data.schema import INTERCEPT
from gaussmix.mechanism.release import release
from gaussmix.models.release import Release
from gaussmix.models.rendering import NOT_IDENTIFIED
from gaussmix.models.results import FittedModel
from gaussmix.report.demo import PREDICTORS, ROWS, SCHEMA, make_patients
from gaussmix.report.page import render

__all__ = ["compared", "comparison", "demo", "without_noise"]

LEAST_SQUARES, LIKELIHOOD = "least squares on the table", "maximum likelihood on the table"
"""Headings of the column of exact values: of the rows as the release codes and weights them, without noise."""


@command()
@click.option("--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, default=1e-6, show_default=True, help="δ of the budget.")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Directory for table, release and report. Default: the current directory.",
)
@FORCE
@JSON
def demo(epsilon: float, delta: float, out: Path, force: bool, as_json: bool) -> None:
    """Release 100,000 synthetic patients and compare three models with the same models without noise."""
    out.mkdir(parents=True, exist_ok=True)
    patients, buffer = make_patients(), io.BytesIO()
    with (
        reserve(out / "patients.parquet", 0, force=force) as table,
        reserve(out / "demo.release.parquet", 0, force=force) as file,
        reserve(out / "demo.report.html", 0, force=force) as page,
    ):
        with Console(stderr=True).status("releasing 100,000 synthetic patients"):
            private = release(patients, schema=SCHEMA, epsilon=epsilon, delta=delta)
        _show(private, patients, as_json)
        pq.write_table(patients, buffer)
        html = render(
            private,
            response="cost",
            title="100,000 synthetic patients",
            description="A synthetic hospital table.",
            n_rows=ROWS,
        )
        written = [
            table.commit(buffer.getvalue()),
            file.commit(private.to_bytes(), mode=private.file_mode),
            page.commit(html.encode()),
        ]
    echo(f"wrote {written[0]}, {written[1]} and {written[2]}", err=True)


def _show(private: Release, patients: pa.Table, as_json: bool) -> None:
    """Print the certificate, the passes and the models of a release."""
    weights = private.weights(patients)
    exact = without_noise(private, patients)
    models = {
        f"{response}, linear": compared(private.ols, response, exact.ols(response, PREDICTORS[response]).params)
        for response in ("cost", "pressure")
    }
    likelihood = _maximum_likelihood(private, patients, weights)
    models["readmitted, log odds"] = log_odds = compared(private.logit, "readmitted", likelihood)
    odds = {name: _exponentials(row) for name, row in log_odds.items() if name != INTERCEPT}
    passes = _passes(private)
    if as_json:
        certificate = private.certificate.to_dict()
        echo_json({"certificate": certificate, "passes": passes, "models": models, "odds_ratios": odds})
        return
    echo(str(private.certificate))
    console = Console(file=sys.stdout)
    table = Table(title="passes (adaptive preconditioning)", title_justify="left")
    for heading in ("pass", "μ", "share of the passes' budget", "rows read"):
        table.add_column(heading, justify="right")
    for number, own in enumerate(passes, 1):
        table.add_row(str(number), f"{own['mu']:.3f}", f"{own['share']:.0%}", f"{own['rate']:.0%}")
    console.print(table)
    for title, rows in {**models, "readmitted, odds ratios": odds}.items():
        console.print(comparison(title, LEAST_SQUARES if "linear" in title else LIKELIHOOD, rows))


def without_noise(private: Release, patients: pa.Table) -> Release:
    """Return the release without noise that a private one estimates: of the coded rows with their weights."""
    rows = private.topcode(patients).append_column("row_weight", pa.array(private.weights(patients)))
    return release(rows, {**SCHEMA, "row_weight": [0, 1]}, weight="row_weight", epsilon=math.inf, delta=1e-6)


def _passes(private: Release) -> list[dict[str, float]]:
    """Return the budget of each pass and its sampling rate."""
    passes = private.statistic.passes
    whole = sum(output.mu**2 for output in passes)
    return [{"mu": output.mu, "share": output.mu**2 / whole, "rate": output.rate} for output in passes]


def compared(fit: Callable[..., FittedModel], response: str, truth: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Return exact value, estimate and interval of each coefficient; None for those that are not identified."""
    estimated, found = fit(response, PREDICTORS[response]).summary(), {}
    for name, ends in estimated.conf_int().items():
        known = math.isfinite(ends[0])
        found[name] = {
            "exact": truth[name],
            "private": estimated.params[name] if known else None,
            "interval": list(ends) if known else None,
        }
    return found


def _maximum_likelihood(private: Release, patients: pa.Table, weights: Floats) -> dict[str, float]:
    """Return the coefficients of logistic regression on the rows themselves, as the release codes and weights them."""
    from sklearn.linear_model import LogisticRegression

    coded, names = private.topcode(patients), PREDICTORS["readmitted"]
    X = np.column_stack([coded[name].to_numpy().astype(float) for name in names])
    own = LogisticRegression(C=math.inf, solver="newton-cholesky", tol=1e-10)
    own.fit(X, patients["readmitted"].to_numpy(), sample_weight=weights)
    return dict(zip([INTERCEPT, *names], [*own.intercept_.tolist(), *own.coef_[0].tolist()], strict=True))


def _exponentials(row: dict[str, Any]) -> dict[str, Any]:
    interval = row["interval"]
    return {
        "exact": math.exp(row["exact"]),
        "private": None if row["private"] is None else math.exp(row["private"]),
        "interval": None if interval is None else [math.exp(end) for end in interval],
    }


def comparison(title: str, exact: str, rows: dict[str, dict[str, Any]]) -> Table:
    """Return the result of `compared` as a table; ``exact`` is the heading of the exact values."""
    table = Table(title=title, title_justify="left")
    for heading in ("coefficient", exact, "private", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "coefficient" else "right")
    for name, row in rows.items():
        private, interval = "", NOT_IDENTIFIED
        if row["interval"] is not None:
            private, interval = f"{row['private']:.4g}", "{:.4g} to {:.4g}".format(*row["interval"])
        table.add_row(name, f"{row['exact']:.4g}", private, interval)
    return table
