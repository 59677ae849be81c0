"""The command ``gaussmix``: numbers on standard output, words on standard error."""

from __future__ import annotations

import functools
import json
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gaussmix import accounting
from gaussmix._files import write_whole
from gaussmix._version import __version__
from gaussmix.calibration import calibrate
from gaussmix.ledger import LedgerError

__all__ = ["main"]

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


class _Group(click.Group):
    """Turns the library's errors into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, ImportError, FileNotFoundError, LedgerError) as error:
            raise click.UsageError(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gaussmix")
def main() -> None:
    """Differentially private regression by the Gaussian mixing mechanism."""


@main.command()
@click.option("--sketch-size", "-k", type=int, required=True, help="Rows of the sketch.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget, for example 1e-6.")
@click.option("--gamma", "-g", type=float, help="(σ² + λ)/C²: print the ε that this noise gives.")
@click.option("--epsilon", "-e", type=float, help="ε of the budget: print the γ that it needs.")
@click.option(
    "--scale",
    type=click.Choice(accounting.SCALES),
    default="larger",
    show_default=True,
    help="With --gamma: leverage 1/(1+γ) (none) or the paper's 1/γ (larger).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw ε against γ to a PNG, SVG or PDF file.",
)
def account(
    sketch_size: int,
    delta: float,
    gamma: float | None,
    epsilon: float | None,
    scale: accounting.Scale,
    as_json: bool,
    plot: Path | None,
) -> None:
    r"""Privacy of a sketch: ε from γ by every analysis, or γ from ε.

    \b
    gaussmix account --sketch-size 150 --gamma 100 --delta 1e-8
    gaussmix account --sketch-size 250 --epsilon 1 --delta 1e-6
    """
    if (gamma is None) == (epsilon is None):
        raise click.UsageError("Give either --gamma, to account for it, or --epsilon, to calibrate.")
    if gamma is not None:
        rows = _try_each(_ANALYSIS_NAMES, lambda name: _epsilon_row(name, sketch_size, gamma, delta, scale))
        title, first = f"ε of k = {sketch_size}, γ = {gamma:g} at δ = {delta:g} (scale: {scale})", "analysis"
    else:
        names = {name: label for name, (label, _) in _WAYS.items()}
        rows = _try_each(names, lambda name: _gamma_row(name, sketch_size, epsilon, delta))
        title, first = f"γ for ε = {epsilon:g}, δ = {delta:g}, k = {sketch_size}", "calibration"
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_table(title, first, rows)
    if plot is not None:
        from gaussmix.plots import compare_analyses

        compare_analyses(plot, sketch_size=sketch_size, delta=delta)
        click.echo(f"wrote {plot}", err=True)


# ---------------------------------------------------------------------------------------------------------------
# From a table to a release
_SCHEMA_OPTION = click.option(
    "--schema", "-s", "schema_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML or JSON."
)
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@main.command()
@click.argument("source")
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="JSON file; default: print.")
def schema(source: str, out: Path | None) -> None:
    """Write a template of a schema for SOURCE (Parquet, CSV, a folder or a glob).

    It holds names and types of columns, never a value; bounds and levels are for you to fill in, from what is known
    about the columns without looking at the rows.
    """
    from gaussmix.schema import describe_columns
    from gaussmix.sources import source_schema

    text = json.dumps(describe_columns(source_schema(source)), indent=2, ensure_ascii=False)
    if out is None:
        click.echo(text)
    else:
        write_whole(out, (text + "\n").encode())
        click.echo(f"wrote {out}: fill in bounds and levels, delete the columns that you do not want", err=True)


@main.command()
@click.argument("sources", nargs=-1, required=True)
@_SCHEMA_OPTION
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True)
def moments(sources: tuple[str, ...], schema_file: Path | None, out: Path) -> None:
    """Sum up the rows of SOURCES into one file of moments, which is **as sensitive as the rows**.

    Sites that trust one curator send such files; `gaussmix release` adds them up and draws the noise once.
    """
    from gaussmix.moments import Moments

    if schema_file is None:
        raise click.UsageError("Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template.")
    _merged([Moments.from_(source, schema_file, progress=True) for source in _once(sources)]).save(out)
    click.echo(f"wrote {out} (mode 0600). It is as sensitive as the rows: do not publish it.", err=True)


@main.command()
@click.argument("sources", nargs=-1, required=True)
@_SCHEMA_OPTION
@click.option("--epsilon", "-e", type=float, help="ε of the budget.")
@click.option("--delta", "-d", type=float, help="δ of the budget.")
@click.option("--sketch-size", "-k", type=int, help="Rows of the sketch; default: 10⁶ or 500 per column.")
@click.option("--relation", type=click.Choice(accounting.RELATIONS), default="zero-out", show_default=True)
@click.option("--ledger", "ledger_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--note", default="", help="Kept in the ledger.")
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True)
def release(
    sources: tuple[str, ...],
    schema_file: Path | None,
    epsilon: float | None,
    delta: float | None,
    sketch_size: int | None,
    relation: accounting.Relation,
    ledger_file: Path | None,
    note: str,
    out: Path,
) -> None:
    r"""Release one private sketch of SOURCES: tables, or files of moments.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    """
    from gaussmix.curation import release as make
    from gaussmix.ledger import Ledger
    from gaussmix.moments import Moments

    if not out.parent.is_dir():
        raise click.UsageError(f"The folder {out.parent} does not exist: make it first. Nothing was spent.")
    parts = []
    for source in _once(sources):
        if source.endswith(".moments"):
            parts.append(Moments.load(source))
        elif schema_file is None:
            raise click.UsageError(
                "Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template."
            )
        else:
            parts.append(Moments.from_(source, schema_file, progress=True))
    private = make(
        _merged(parts),
        epsilon=epsilon,
        delta=delta,
        sketch_size="auto" if sketch_size is None else sketch_size,
        relation=relation,
        ledger=None if ledger_file is None else Ledger.open(ledger_file),
        note=note,
    )
    private.save(out)
    click.echo(str(private.certificate))
    click.echo(f"wrote {out}", err=True)


def _once(sources: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(sources)) < len(sources):
        raise click.UsageError("A source is named twice: its rows would be counted twice, and protected half as well.")
    return sources


def _merged(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target")
@click.option("--on", multiple=True, help="A column to explain it with; repeat. Default: all others.")
@_JSON_OPTION
def regress(file: Path, target: str, on: tuple[str, ...], as_json: bool) -> None:
    """Explain the column TARGET of a release by others: free, as often as you like."""
    from gaussmix.releases import load

    model = load(file).regress(target, list(on) or None)
    _print_model(f"{target}: linear model", model.coef, model.intercept, as_json)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target")
@click.option("--on", multiple=True, help="A column to explain it with; repeat. Default: all others.")
@_JSON_OPTION
def classify(file: Path, target: str, on: tuple[str, ...], as_json: bool) -> None:
    """Log odds of the column TARGET of a release, boolean or with two levels."""
    from gaussmix.releases import load

    model = load(file).classify(target, list(on) or None)
    _print_model(f"{target} = {model.classes[1]}: log odds", model.coef, model.intercept, as_json)


def _print_model(title: str, coef: dict[str, float], intercept: float, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"coef": coef, "intercept": intercept}, indent=2, ensure_ascii=False))
        return
    table = Table(title=title, title_justify="left")
    table.add_column("column")
    table.add_column("coefficient", justify="right")
    for name, value in {"(intercept)": intercept, **coef}.items():
        table.add_row(name, f"{value:.5g}")
    Console(file=sys.stdout).print(table)


@main.command()
@click.option("--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, default=1e-6, show_default=True, help="δ of the budget.")
def demo(epsilon: float, delta: float) -> None:
    """A private regression on 100,000 synthetic patients whose true coefficients are known."""
    from sklearn.linear_model import LinearRegression

    from gaussmix import demo as patients

    table = patients.make_patients()
    plain = LinearRegression().fit(table.features, table.cost)
    private = patients.private_cost_model(table, epsilon=epsilon, delta=delta)
    shown = Table(title="Yearly cost of 100,000 synthetic patients", title_justify="left")
    for heading in ("coefficient", "truth", "least squares", "private"):
        shown.add_column(heading, justify="left" if heading == "coefficient" else "right")
    names = ("(intercept)", *patients.FEATURES)
    columns = (
        (patients.TRUE_INTERCEPT, *patients.TRUE_COEFFICIENTS),
        (plain.intercept_, *plain.coef_),
        (private.intercept_, *private.coef_),
    )
    for name, *values in zip(names, *columns, strict=True):
        shown.add_row(name, *(f"{value:.3f}" for value in values))
    Console(file=sys.stdout).print(shown)
    click.echo(
        f"R²: least squares {plain.score(table.features, table.cost):.3f}, "
        f"private {private.score(table.features, table.cost):.3f}"
    )
    click.echo(str(private.privacy_))


def _try_each(names: Mapping[str, str], row: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One row a name; where an analysis does not apply, its reason. If even the exact one fails, its error."""
    rows: dict[str, dict[str, Any]] = {}
    for name, label in names.items():
        try:
            rows[name] = {"label": label, **row(name)}
        except ValueError as error:
            if name == "exact":
                raise
            rows[name] = {"label": label, "error": str(error)}
    return rows


def _epsilon_row(name: Any, sketch_size: int, gamma: float, delta: float, scale: accounting.Scale) -> dict[str, Any]:
    value = accounting.epsilon(delta, sketch_size=sketch_size, gamma=gamma, scale=scale, analysis=name)
    if value == float("inf") and name != "exact":
        return {"error": "does not apply to this gamma"}
    return {"epsilon": value}


def _gamma_row(name: str, sketch_size: int, epsilon: Any, delta: float) -> dict[str, Any]:
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
