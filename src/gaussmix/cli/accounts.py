"""``gaussmix account``: what noise is worth, and what noise a budget needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gaussmix import accounting
from gaussmix.accounting.calibration import calibrate
from gaussmix.accounting.parameters import BoundHoldsFor
from gaussmix.cli.options import FORCE, JSON, refuse_lone_force
from gaussmix.cli.printing import echo, echo_json
from gaussmix.errors import ArgumentError

__all__ = ["account"]

_ANALYSIS_NAMES = {
    "exact": "exact",
    "renyi": "Rényi (Lemma 1, Proposition 1)",
    "tcdp": "tCDP (Corollary 1, Proposition 2)",
    "sheffet": "Sheffet 2019 (Theorem 2)",
}
_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("noise alone, exact", {}),
    "renyi": ("noise alone, Rényi", {"analysis": "renyi"}),
    "replace_one": ("noise alone, exact, replace-one", {"relation": "replace-one"}),
    "private": ("private eigenvalue, joint account", {"scale": "private"}),
    "paper": ("private eigenvalue, Theorem 1", {"scale": "private", "analysis": "paper"}),
}


@click.command()
@click.option("--sketch-size", "-k", type=int, required=True, help="Rows of the sketch.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget, for example 1e-6.")
@click.option("--gamma", "-g", type=float, help="(σ² + λ)/C²: print the ε that this noise gives.")
@click.option("--epsilon", "-e", type=float, help="ε of the budget: print the γ that it needs.")
@click.option(
    "--bound-holds-for",
    type=click.Choice(accounting.BOUND_HOLDS_FOR),
    help="With --gamma: leverage 1/(1+γ) (both, the default) or the paper's 1/γ (larger).",
)
@JSON
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw ε against γ to a PNG, SVG or PDF file."
)
@FORCE
def account(
    sketch_size: int,
    delta: float,
    gamma: float | None,
    epsilon: float | None,
    bound_holds_for: BoundHoldsFor | None,
    as_json: bool,
    plot: Path | None,
    force: bool,
) -> None:
    """Privacy of a sketch: ε from γ by every analysis, or γ from ε.

    \b
    gaussmix account --sketch-size 150 --gamma 100 --delta 1e-8
    gaussmix account --sketch-size 250 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click wants the character
    refuse_lone_force(force, plot)
    if (gamma is None) == (epsilon is None):
        raise click.UsageError("Give either --gamma, to account for it, or --epsilon, to calibrate.")
    if gamma is not None:
        holds = bound_holds_for or "both"
        rows = _try_each(_ANALYSIS_NAMES, lambda name: _epsilon_row(name, sketch_size, gamma, delta, holds))
        title = f"ε of k = {sketch_size}, γ = {gamma:g} at δ = {delta:g} (bound holds for: {holds})"
        first = "analysis"
    else:
        if bound_holds_for is not None:
            raise click.UsageError("--bound-holds-for goes with --gamma: a calibration to --epsilon has its own.")
        names = {name: label for name, (label, _) in _WAYS.items()}
        rows = _try_each(names, lambda name: _gamma_row(name, sketch_size, epsilon, delta))
        title, first = f"γ for ε = {epsilon:g}, δ = {delta:g}, k = {sketch_size}", "calibration"
    if plot is not None:
        from gaussmix.report.plots import compare_analyses  # an optional extra

        compare_analyses(plot, sketch_size=sketch_size, delta=delta, force=force)
        echo(f"wrote {plot}", err=True)
    if as_json:
        echo_json(rows)
    else:
        _print_table(title, first, rows)


def _try_each(names: Mapping[str, str], row: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One row a name; where an analysis does not apply, its reason. If even the exact one fails, its error."""
    rows: dict[str, dict[str, Any]] = {}
    for name, label in names.items():
        try:
            rows[name] = {"label": label, **row(name)}
        except ArgumentError as error:
            if name == "exact":
                raise
            rows[name] = {"label": label, "error": str(error)}
    return rows


def _epsilon_row(
    name: Any, sketch_size: int, gamma: float, delta: float, bound_holds_for: BoundHoldsFor
) -> dict[str, Any]:
    value = accounting.epsilon(
        delta, sketch_size=sketch_size, gamma=gamma, bound_holds_for=bound_holds_for, analysis=name
    )
    if value == float("inf") and name != "exact":
        return {"error": "does not apply to this gamma"}
    return {"epsilon": value}


def _gamma_row(name: str, sketch_size: int, epsilon: float | None, delta: float) -> dict[str, Any]:
    found = asdict(calibrate(epsilon, delta, sketch_size=sketch_size, **_WAYS[name][1]))
    reach = found["gamma"] + (found["eta"] * found["tau"] if found["eta"] is not None else 0.0)
    return {**found, "gamma_plus_eta_tau": reach, "delta_split": dict(found["delta_split"])}


def _print_table(title: str, first: str, rows: dict[str, dict[str, Any]]) -> None:
    columns = {"epsilon": "ε", "gamma": "γ", "eta": "η", "tau": "τ", "gamma_plus_eta_tau": "γ + ητ"}
    calibrated = any("gamma" in row for row in rows.values())
    shown = [key for key in columns if (key != "epsilon") == calibrated]
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for key in shown:
        table.add_column(columns[key], justify="right")
    for row in rows.values():
        cells = [f"{row[key]:.5g}" if row.get(key) is not None else "" for key in shown]
        table.add_row(row["label"], *(cells if "error" not in row else ["not applicable", *cells[1:]]))
    Console(file=sys.stdout).print(table)
