"""``gaussmix demo``: compare models from a private release of synthetic patients with the truth."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from gaussmix._files import reserve
from gaussmix.cli.exits import command, echo, echo_json
from gaussmix.cli.options import FORCE, JSON
from gaussmix.data.schema import INTERCEPT
from gaussmix.models.classification import fit_classification
from gaussmix.models.release import Release
from gaussmix.models.rendering import NOT_IDENTIFIED
from gaussmix.models.results import FittedModel, Summary
from gaussmix.report import demo as hospital
from gaussmix.report.page import render

__all__ = ["demo"]


@command()
@click.option("--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, default=1e-6, show_default=True, help="δ of the budget.")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Directory for table, release and report.",
)
@FORCE
@JSON
def demo(epsilon: float, delta: float, out: Path, force: bool, as_json: bool) -> None:
    """Release 100,000 synthetic patients and compare three models with the true coefficients."""
    out.mkdir(parents=True, exist_ok=True)
    patients = hospital.make_patients()
    with (
        reserve(out / "patients.parquet", 0, force=force) as table,
        reserve(out / "demo.release.parquet", 0, force=force) as file,
        reserve(out / "demo.report.html", 0, force=force) as page,
    ):
        private = _shown(patients, epsilon, delta, as_json)
        written = [
            table.commit(_parquet(patients)),
            file.commit(private.to_bytes(), mode=private.file_mode),
            page.commit(_page(private).encode()),
        ]
    echo(f"wrote {written[0]}, {written[1]} and {written[2]}", err=True)


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _page(private: Release) -> str:
    return render(
        private,
        response="cost",
        title="100,000 synthetic patients",
        description="A synthetic hospital table with known coefficients.",
        n_rows=hospital.ROWS,
    )


def _shown(patients: pa.Table, epsilon: float, delta: float, as_json: bool) -> Release:
    """Print the models of a release and return it."""
    with Console(stderr=True).status("releasing 100,000 synthetic patients"):
        private = hospital.private_patients(patients, epsilon=epsilon, delta=delta)
    models: dict[str, tuple[FittedModel, dict[str, float]]] = {}
    for target, truth in hospital.LINEAR_TRUTHS.items():
        on = [name for name in private.schema.columns if any(key.split("=")[0] == name for key in truth)]
        models[f"{target}, linear"] = (private.ols(target, on), truth)
    title = "readmitted, log odds; intervals are for the linear discriminant, which approximates the truth"
    models[title] = (
        fit_classification(private.statistic, "readmitted", ["age", "smoker"]),
        hospital.LOGISTIC_TRUTH,
    )
    tables = {
        title: _beside_truth(model.summary(estimand="population", n_rows=hospital.ROWS), truth)
        for title, (model, truth) in models.items()
    }
    odds = _odds_beside_truth(tables[title])
    if as_json:
        shown = {"certificate": private.certificate.to_dict(), "passes": _passes(private)}
        echo_json(shown | {"models": tables, "odds_ratios": odds})
    else:
        echo(str(private.certificate))
        console = Console(file=sys.stdout)
        console.print(_pass_table(_passes(private)))
        for title, rows in (tables | {"readmitted, odds ratios": odds}).items():
            console.print(_truth_table(title, rows))
    return private


def _passes(private: Release) -> list[dict[str, float]]:
    """Return the budget of each pass and its sampling rate."""
    passes = private.statistic.passes
    whole = sum(output.mu**2 for output in passes)
    return [{"mu": output.mu, "share": output.mu**2 / whole, "rate": output.rate} for output in passes]


def _pass_table(passes: Sequence[Mapping[str, float]]) -> Table:
    table = Table(title="passes (adaptive preconditioning)", title_justify="left")
    for heading in ("pass", "μ", "share of the matrices' budget", "rows read"):
        table.add_column(heading, justify="right")
    for number, row in enumerate(passes, 1):
        table.add_row(str(number), f"{row['mu']:.3f}", f"{row['share']:.0%}", f"{row['rate']:.0%}")
    return table


def _odds_beside_truth(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the same table as odds ratios."""
    return {
        name: {
            "truth": math.exp(row["truth"]),
            "private": None if row["private"] is None else math.exp(row["private"]),
            "interval": None if row["interval"] is None else [math.exp(end) for end in row["interval"]],
        }
        for name, row in rows.items()
        if name != INTERCEPT
    }


def _beside_truth(summary: Summary, truth: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return true value, estimate and interval of every coefficient; no estimate if it is not identified."""
    found = {}
    for name, (low, high) in summary.conf_int().items():
        known = math.isfinite(low)
        interval = [low, high] if known else None
        found[name] = {"truth": truth[name], "private": summary.params[name] if known else None, "interval": interval}
    return found


def _truth_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("coefficient", "truth", "private", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "coefficient" else "right")
    for name, row in rows.items():
        if row["interval"] is None:
            table.add_row(name, f"{row['truth']:.4g}", "", NOT_IDENTIFIED)
        else:
            low, high = row["interval"]
            table.add_row(name, f"{row['truth']:.4g}", f"{row['private']:.4g}", f"{low:.4g} to {high:.4g}")
    return table
