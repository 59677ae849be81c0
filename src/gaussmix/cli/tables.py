"""The command ``gaussmix``: numbers on standard output, words on standard error."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
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
        except (ValueError, TypeError, ImportError, OSError, LedgerError) as error:
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
    """Privacy of a sketch: ε from γ by every analysis, or γ from ε.

    \b
    gaussmix account --sketch-size 150 --gamma 100 --delta 1e-8
    gaussmix account --sketch-size 250 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click wants the character
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
_TARGET_OPTION = click.option(
    "--intervals",
    "kind",
    type=click.Choice(["table", "ridge", "population"]),
    default="table",
    show_default=True,
    help="Which coefficients the intervals are for.",
)
_ROWS_OPTION = click.option("--rows", type=int, help="Rows of the table, if public: for --intervals population.")
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
    elif out.exists():
        raise click.UsageError(f"{out} exists already: choose another name, so that no schema is lost.")
    else:
        write_whole(out, (text + "\n").encode())
        click.echo(f"wrote {out}: fill in bounds and levels, delete the columns that you do not want", err=True)


@main.command()
@click.argument("sources", nargs=-1, required=True)
@_SCHEMA_OPTION
@_JSON_OPTION
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True)
def moments(sources: tuple[str, ...], schema_file: Path | None, as_json: bool, out: Path) -> None:
    """Sum up the rows of SOURCES into one file of moments, which is **as sensitive as the rows**.

    Sites that trust one curator send such files; `gaussmix release` adds them up and draws the noise once.
    """
    from gaussmix.moments import Moments

    if schema_file is None:
        raise click.UsageError("Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template.")
    _check_output(out, *sources, schema_file)
    sums = Moments.from_(_paths(sources), schema_file, progress=True)
    sums.save(out)
    if as_json:
        assert sums.schema is not None
        content = {"file": str(out), "parts": sorted(sums.parts), "schema": sums.schema.fingerprint, "sensitive": True}
        click.echo(json.dumps(content, indent=2))
    click.echo(f"wrote {out} (mode 0600). It is as sensitive as the rows: do not publish it.", err=True)


@main.command()
@click.argument("sources", nargs=-1, required=True)
@_SCHEMA_OPTION
@click.option("--epsilon", "-e", type=float, help="ε of the budget.")
@click.option("--delta", "-d", type=float, help="δ of the budget.")
@click.option("--sketch-size", "-k", type=int, help="Rows of the sketch; default: 10⁶ or 500 per column.")
@click.option("--relation", type=click.Choice(accounting.RELATIONS), help="Default: zero-out, or the ledger's.")
@click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A ledger made in Python by gaussmix.Ledger: its budget takes the place of -e and -d.",
)
@click.option("--note", default="", help="Kept in the ledger.")
@_JSON_OPTION
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True)
def release(
    sources: tuple[str, ...],
    schema_file: Path | None,
    epsilon: float | None,
    delta: float | None,
    sketch_size: int | None,
    relation: accounting.Relation | None,
    ledger_file: Path | None,
    note: str,
    as_json: bool,
    out: Path,
) -> None:
    """Release one private sketch of SOURCES: tables, or files of moments.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    """  # noqa: D301 - click wants the character
    from gaussmix.curation import release as make
    from gaussmix.ledger import Ledger
    from gaussmix.moments import Moments

    _check_output(out, *sources, schema_file, ledger_file)
    if epsilon == math.inf:
        raise click.UsageError("An infinite ε protects nothing: the file would be as sensitive as the rows.")
    sums = [source for source in sources if source.endswith(".moments")]
    tables = [source for source in sources if not source.endswith(".moments")]
    if tables and schema_file is None:
        raise click.UsageError("Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template.")
    parts = [Moments.load(source) for source in sums]
    if tables:
        assert schema_file is not None
        parts.append(Moments.from_(_paths(tables), schema_file, progress=True))
    private = make(
        functools.reduce(operator.add, parts),
        epsilon=epsilon,
        delta=delta,
        sketch_size="auto" if sketch_size is None else sketch_size,
        relation=relation,
        ledger=None if ledger_file is None else Ledger.open(ledger_file),
        note=note,
    )
    private.save(out)
    click.echo(json.dumps(private.certificate.as_dict(), indent=2) if as_json else str(private.certificate))
    click.echo(f"wrote {out}", err=True)


def _check_output(out: Path, *inputs: str | Path | None) -> None:
    """Before anything is spent: a folder that can be written to, and no input that would be overwritten."""
    target = out.resolve()
    if not target.parent.is_dir():
        raise click.UsageError(f"The folder {out.parent} does not exist: make it first. Nothing was spent.")
    if not os.access(target.parent, os.W_OK) or (target.exists() and not target.is_file()):
        raise click.UsageError(f"{out} cannot be written. Nothing was spent.")
    for name in inputs:
        source = Path(name).resolve() if name is not None else None
        if source is not None and (target == source or (source.is_dir() and source in target.parents)):
            raise click.UsageError(f"{out} would overwrite, or lie among, what is read: choose another name.")


def _paths(sources: Sequence[str]) -> Any:
    """One path, or a list of them, in which no file may occur twice."""
    return sources[0] if len(sources) == 1 else list(sources)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target")
@click.option("--on", multiple=True, help="A column to explain it with; repeat. Default: all others.")
@_JSON_OPTION
@_TARGET_OPTION
@_ROWS_OPTION
def regress(file: Path, target: str, on: tuple[str, ...], as_json: bool, kind: Any, rows: int | None) -> None:
    """Explain the column TARGET of a release by others: free, as often as you like."""
    from gaussmix.releases import load

    model = load(file).regress(target, list(on) or None)
    _print_model(model.summary(target=kind, n=rows), model.coef, model.intercept, as_json)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target")
@click.option("--on", multiple=True, help="A column to explain it with; repeat. Default: all others.")
@_JSON_OPTION
@_TARGET_OPTION
@_ROWS_OPTION
def classify(file: Path, target: str, on: tuple[str, ...], as_json: bool, kind: Any, rows: int | None) -> None:
    """Log odds of the column TARGET of a release, boolean or with two levels, by the quadratic surrogate."""
    from gaussmix.releases import load

    model = load(file).classify(target, list(on) or None)
    _print_model(model.summary(target=kind, n=rows), model.coef, model.intercept, as_json)


def _print_model(summary: Any, coef: dict[str, float], intercept: float, as_json: bool) -> None:
    """The summary as a table; as JSON also the coefficients that predict best."""
    if not as_json:
        click.echo(str(summary))
        return
    intervals = [[low, high] if low > -math.inf else None for low, high in summary.conf_int().tolist()]
    columns = {"coef": summary.params, "std_err": summary.bse, "p": summary.pvalues}
    rows = {
        name: {**{key: float(values[i]) for key, values in columns.items()}, "interval": intervals[i]}
        for i, name in enumerate(summary.names)
    }
    content = {"target": summary.target, "coefficients": rows, "predictor": {"coef": coef, "intercept": intercept}}
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


@main.command()
@click.option("--rows", "-n", type=int, required=True, help="Rows of the table.")
@click.option("--features", "-p", type=int, required=True, help="Features of the model.")
@click.option("--epsilon", "-e", type=float, required=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget.")
@click.option("--r2", type=float, default=0.4, show_default=True, help="R² that you expect without privacy.")
@_JSON_OPTION
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw R² lost against ε to a file.")
def plan(rows: int, features: int, epsilon: float, delta: float, r2: float, as_json: bool, plot: Path | None) -> None:
    """What to expect of a release, before any data is touched."""
    from gaussmix.planning import expect, least_useful_epsilon

    found = expect(rows=rows, features=features, epsilon=epsilon, delta=delta, r2=r2)
    least = least_useful_epsilon(rows=rows, features=features, delta=delta, r2=r2)
    if as_json:
        content = {**asdict(found), "least_useful_epsilon": least if least < math.inf else None}
        click.echo(json.dumps(content, indent=2))
    else:
        table = Table(title=f"{rows:,} rows, {features} features, ε = {epsilon:g}, δ = {delta:g}", title_justify="left")
        table.add_column("expected")
        table.add_column("", justify="right")
        lines = {
            "γ, noise variance in units of C²": f"{found.gamma:.4g}",
            "noise in one entry of the second moment": f"{found.noise_per_entry:.4g}",
            "standard error of a coefficient: noise": f"{found.standard_error:.2g}",
            "standard error of a coefficient: sampling": f"{found.sampling_error:.2g}",
            "half width of a 95 % interval": f"{found.interval:.2g}",
            f"R² lost to noise, of {r2:g}": f"{found.lost_r2:.2g}",
            "ε at which noise costs a tenth of R²": f"{least:.2g}",
        }
        for name, value in lines.items():
            table.add_row(name, value)
        Console(file=sys.stdout).print(table)
        click.echo(
            "Coefficients are in units of the target's range over the feature's range, for features that spread evenly "
            "over their bounds and are unrelated. Real tables have weaker directions and larger errors."
        )
    if plot is not None:
        from gaussmix.plots import lost_r2

        lost_r2(plot, rows=rows, features=features, delta=delta, r2=r2, chosen=epsilon)
        click.echo(f"wrote {plot}", err=True)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, help="HTML file.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Intervals have level 1 - alpha.")
@click.option("--target", "targets", multiple=True, help="A column to explain; repeat. Default: all that can be.")
@_JSON_OPTION
def report(file: Path, out: Path, alpha: float, targets: tuple[str, ...], as_json: bool) -> None:
    """Write one HTML page about a release: its privacy statement and curve, coefficients, noise against signal.

    The page loads nothing from elsewhere, holds nothing but what the release says, and costs no privacy.

    \b
    gaussmix report patients.release.parquet -o report.html
    """  # noqa: D301 - click wants the character
    from gaussmix.releases import load
    from gaussmix.report import write

    _check_output(out, file)
    with Console(stderr=True).status("computing intervals"):
        write(load(file), out, alpha=alpha, targets=list(targets) or None)
    if as_json:
        click.echo(json.dumps({"file": str(out), "release": str(file)}, indent=2))
    click.echo(f"wrote {out}", err=True)


@main.command()
@click.option("--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, default=1e-6, show_default=True, help="δ of the budget.")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for release and report.",
)
@_JSON_OPTION
def demo(epsilon: float, delta: float, out: Path, as_json: bool) -> None:
    """One private release of 100,000 synthetic patients, and three models from it beside the truth."""
    from gaussmix import demo as hospital
    from gaussmix.report import write as write_report

    console = Console(file=sys.stdout)
    with Console(stderr=True).status("making 100,000 patients and one private release of them"):
        private = hospital.private_patients(hospital.make_patients(), epsilon=epsilon, delta=delta)
    models: dict[str, tuple[Any, dict[str, float]]] = {}
    for target, truth in hospital.LINEAR_TRUTHS.items():
        on = [name for name in private.certificate.bounds["columns"] if any(key.split("=")[0] == name for key in truth)]
        models[f"{target}, linear"] = (private.regress(target, on=on), truth)
    surrogate = "readmitted, log odds; intervals are for the quadratic surrogate, not for the truth"
    models[surrogate] = (private.classify("readmitted", on=["age", "smoker"]), hospital.LOGISTIC_TRUTH)
    tables = {
        title: _beside_truth(model.summary(target="population", n=hospital.ROWS), truth)
        for title, (model, truth) in models.items()
    }
    if as_json:
        click.echo(json.dumps({"certificate": private.certificate.as_dict(), "models": tables}, indent=2))
    else:
        click.echo(str(private.certificate))
        for title, rows in tables.items():
            console.print(_truth_table(title, rows))
    out.mkdir(parents=True, exist_ok=True)
    private.save(out / "demo.release.parquet")
    write_report(private, out / "demo.report.html")
    click.echo(f"wrote {out / 'demo.release.parquet'} and {out / 'demo.report.html'}", err=True)


def _beside_truth(summary: Any, truth: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """True value, private estimate and interval of every coefficient; no numbers where it is not identified."""
    found = {}
    for name, value, (low, high) in zip(summary.names, summary.params, summary.conf_int().tolist(), strict=True):
        known = math.isfinite(low)
        interval = [low, high] if known else None
        found[name] = {"truth": truth[name], "private": float(value) if known else None, "interval": interval}
    return found


def _truth_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("coefficient", "truth", "private", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "coefficient" else "right")
    for name, row in rows.items():
        if row["interval"] is None:
            table.add_row(name, f"{row['truth']:g}", "", "not identified at this budget")
        else:
            low, high = row["interval"]
            table.add_row(name, f"{row['truth']:g}", f"{row['private']:.3g}", f"{low:.3g} to {high:.3g}")
    return table


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
