"""``gaussmix report``, ``verify`` and ``plan``: what a release says, whether it is true, and what to expect of one."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from gaussmix._files import refuse_inputs, reserve
from gaussmix.cli.exits import NOT_PRIVATE
from gaussmix.cli.options import FORCE, JSON, RELEASE, refuse_lone_force
from gaussmix.models.release import load
from gaussmix.reporting.page import render
from gaussmix.reporting.planning import Expectation, expect, least_useful_epsilon
from gaussmix.reporting.statement import is_valid
from gaussmix.reporting.verification import verify as verdict_on

__all__ = ["plan", "report", "verify"]


@click.command()
@RELEASE
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="HTML file.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Intervals have level 1 - alpha.")
@click.option("--target", "targets", multiple=True, help="A column to explain; repeat. Default: all that can be.")
@FORCE
@JSON
def report(file: Path, out: Path, alpha: float, targets: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Write one HTML page about a release: its privacy statement and curve, coefficients, noise against signal.

    The page loads nothing from elsewhere, holds nothing but what the release says, and costs no privacy.

    \b
    gaussmix report patients.release.parquet -o report.html

    Exit code 5 if the release guarantees nothing: the page says so, and shows no ε.
    """  # noqa: D301 - click wants the character
    refuse_inputs(out, [file])
    with reserve(out, 0, force=force) as output:  # before intervals are computed
        release = load(file)
        with Console(stderr=True).status("computing intervals"):
            page = render(release, alpha=alpha, targets=list(targets) or None)
        written, valid = output.commit(page.encode()), is_valid(release)
    if as_json:
        click.echo(json.dumps({"file": str(written), "release": str(file), "private": valid}, indent=2))
    click.echo(f"wrote {written}", err=True)
    if not valid:
        click.echo(f"{file} guarantees nothing: do not publish it.", err=True)
        raise click.exceptions.Exit(NOT_PRIVATE)


@click.command()
@RELEASE
@JSON
def verify(file: Path, as_json: bool) -> None:
    """Compute (ε, δ) of a release anew from its sketch size and noise. Exit code 0: its certificate is true.

    Exit code 5: it claims more privacy than it gives, is void, or is damaged.
    """
    verdict = verdict_on(file)
    click.echo(json.dumps(verdict.to_dict(), indent=2, ensure_ascii=False) if as_json else verdict.sentence)
    if not verdict.is_private:
        raise click.exceptions.Exit(NOT_PRIVATE)


@click.command()
@click.option("--rows", "-n", type=int, required=True, help="Rows of the table.")
@click.option("--features", "-p", type=int, required=True, help="Features of the model.")
@click.option("--epsilon", "-e", type=float, required=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget.")
@click.option("--r2", type=float, default=0.4, show_default=True, help="R² that you expect without privacy.")
@JSON
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw R² lost against ε to a file.")
@FORCE
def plan(
    rows: int,
    features: int,
    epsilon: float,
    delta: float,
    r2: float,
    as_json: bool,
    plot: Path | None,
    force: bool,
) -> None:
    """What to expect of a release, before any data is touched."""
    refuse_lone_force(force, plot)
    found = expect(rows=rows, features=features, epsilon=epsilon, delta=delta, r2=r2)
    least = least_useful_epsilon(rows=rows, features=features, delta=delta, r2=r2)
    if plot is not None:
        from gaussmix.reporting.plots import lost_r2  # an optional extra

        lost_r2(plot, rows=rows, features=features, delta=delta, r2=r2, chosen=epsilon, force=force)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        content = {**asdict(found), "least_useful_epsilon": least if least < math.inf else None}
        click.echo(json.dumps(content, indent=2))
    else:
        _print_expectation(found, least)


def _print_expectation(found: Expectation, least: float) -> None:
    title = f"{found.rows:,} rows, {found.features} features, ε = {found.epsilon:g}, δ = {found.delta:g}"
    table = Table(title=title, title_justify="left")
    table.add_column("expected")
    table.add_column("", justify="right")
    lines = {
        "γ, noise variance in units of C²": f"{found.gamma:.4g}",
        "noise in one entry of the second moment": f"{found.noise_per_entry:.4g}",
        "standard error of a coefficient: noise": f"{found.standard_error:.2g}",
        "standard error of a coefficient: sampling": f"{found.sampling_error:.2g}",
        "half width of a 95 % interval": f"{found.interval:.2g}",
        f"R² lost to noise, of {found.r2:g}": f"{found.lost_r2:.2g}" if found.lost_r2 < found.r2 else "all of it",
        "ε at which noise costs a tenth of R²": f"{least:.2g}",
    }
    for name, value in lines.items():
        table.add_row(name, value)
    Console(file=sys.stdout).print(table)
    click.echo(
        "Coefficients are in units of the target's range over the feature's range, for features that spread evenly "
        "over their bounds and are unrelated. Real tables have weaker directions and larger errors."
    )
    if not found.useful:
        click.echo("Noise costs more than a tenth of R²: use more rows, fewer features or a larger ε.")
