"""``gaussmix regress`` and ``classify``: models from a release, free and as often as one likes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gaussmix.cli.options import ESTIMAND, JSON, ON, RELEASE, ROWS
from gaussmix.models.classes import ClassificationModel
from gaussmix.models.fits import RegressionModel
from gaussmix.models.release import load
from gaussmix.models.rendering import as_plain
from gaussmix.models.summary import Estimand

__all__ = ["classify", "regress"]


@click.command()
@RELEASE
@click.argument("target")
@ON
@JSON
@ESTIMAND
@ROWS
def regress(file: Path, target: str, on: tuple[str, ...], as_json: bool, estimand: Estimand, rows: int | None) -> None:
    """Explain the column TARGET of a release by others: free, as often as you like."""
    _print_model(load(file).regress(target, list(on) or None), estimand, rows, as_json)


@click.command()
@RELEASE
@click.argument("target")
@ON
@JSON
@ESTIMAND
@ROWS
def classify(file: Path, target: str, on: tuple[str, ...], as_json: bool, estimand: Estimand, rows: int | None) -> None:
    """Log odds of the column TARGET of a release, boolean or with two levels, by the quadratic surrogate."""
    _print_model(load(file).classify(target, list(on) or None), estimand, rows, as_json)


def _print_model(
    model: RegressionModel | ClassificationModel, estimand: Estimand, rows: int | None, as_json: bool
) -> None:
    """The summary as a table; as JSON also the coefficients that predict best."""
    if rows is not None and estimand != "population":
        raise click.UsageError("--rows goes with --intervals population: other intervals do not depend on it.")
    summary = model.summary(estimand=estimand, n_rows=rows)
    if as_json:
        content = as_plain(summary) | {"predictor": {"coef": model.coef, "intercept": model.intercept}}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        click.echo(str(summary))
