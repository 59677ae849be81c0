"""``gaussmix describe``, ``corr``, ``crosstab``, ``synthetic`` and ``export``: tables from a release."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gaussmix._files import refuse_suffix, write_whole
from gaussmix._text import csv_cell
from gaussmix.cli.options import FORCE, JSON, RELEASE
from gaussmix.cli.printing import echo, echo_json
from gaussmix.models.export import as_csv
from gaussmix.models.release import load
from gaussmix.models.rendering import void_first
from gaussmix.models.results import ResultTable
from gaussmix.tables.files import PARQUET

__all__ = ["corr", "crosstab", "describe", "export", "synthetic"]

_ON = click.option("--on", multiple=True, help="A column; repeat. Default: all.")
_CSV = click.option("--csv", "csv", is_flag=True, help="Print CSV, numbers in all their digits.")
_ALPHA = click.option("--alpha", type=float, default=0.05, show_default=True, help="Intervals have level 1 - alpha.")


@click.command()
@RELEASE
@_ON
@_ALPHA
@JSON
@_CSV
def describe(file: Path, on: tuple[str, ...], alpha: float, as_json: bool, csv: bool) -> None:
    """Rows, means, standard deviations and shares of levels of a release, with intervals."""
    table = load(file).describe(list(on) or None, alpha=alpha)
    _print(table, str(table), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@_ON
@click.option("--given", multiple=True, help="A column that is held fixed; repeat.")
@_ALPHA
@JSON
@_CSV
def corr(file: Path, on: tuple[str, ...], given: tuple[str, ...], alpha: float, as_json: bool, csv: bool) -> None:
    """Correlations of the columns of a release; with intervals as JSON or CSV."""
    found = load(file).corr(list(on) or None, given=list(given))
    _print(found.pairs(alpha), str(found), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@click.argument("rows")
@click.argument("columns")
@_ALPHA
@JSON
@_CSV
def crosstab(file: Path, rows: str, columns: str, alpha: float, as_json: bool, csv: bool) -> None:
    """Counts of two categorical or boolean columns against each other, with a test that knows the noise."""
    found = load(file).crosstab(rows, columns)
    _print(found.table(alpha), str(found), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@click.argument("n", type=int)
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File: .csv or .parquet."
)
@click.option("--seed", type=int, help="For the same rows again.")
@FORCE
def synthetic(file: Path, n: int, out: Path, seed: int | None, force: bool) -> None:
    """N made-up rows with the second moments of a release. Only these are right: nothing else is."""
    release = load(file)
    table, sink = release.synthetic(n, seed=seed), pa.BufferOutputStream()
    if out.suffix.lower() in PARQUET:
        pq.write_table(table, sink)
    elif out.suffix.lower() == ".csv":
        pa_csv.write_csv(_without_formulas(table), sink)
    else:
        raise click.UsageError("--out must end in .csv or .parquet.")
    write_whole(out, sink.getvalue().to_pybytes(), force=force)
    _say_void(release.certificate.void_words)
    echo(f"wrote {out}: synthetic rows, of which only second moments are right", err=True)


@click.command()
@RELEASE
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@FORCE
def export(file: Path, out: Path, force: bool) -> None:
    """Write the matrices of a release to OUT, a CSV file, for tools that read no Parquet (docs/gaussmix.R)."""
    refuse_suffix(out, own=(".csv",), kind="a CSV file")
    release = load(file)
    write_whole(out, as_csv(release).encode(), force=force)
    _say_void(release.certificate.void_words)
    echo(f"wrote {out}", err=True)


def _say_void(*words: str) -> None:
    """Print that nothing is guaranteed on standard error, where the output has no room for words."""
    for note in filter(None, words):
        echo(note, err=True)


def _without_formulas(table: pa.Table) -> pa.Table:
    """Return a table whose names and text cells no spreadsheet takes for formulas."""
    columns = [
        pa.array([csv_cell(value) for value in column.to_pylist()], column.type)
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[str(csv_cell(name)) for name in table.column_names])


def _print(table: ResultTable, text: str, *, as_json: bool, csv: bool) -> None:
    if as_json and csv:
        raise click.UsageError("--json and --csv are two ways to print: give one.")
    if as_json:
        echo_json(table.as_plain())
    else:
        _say_void(*void_first(table.notes)[0] if csv else ())
        echo(table.as_csv() if csv else text, nl=not csv)
