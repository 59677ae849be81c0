"""``gaussmix schema``, ``check``, ``moments`` and ``release``: from a table to a release."""

from __future__ import annotations

import functools
import json
import math
import operator
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gaussmix._files import refuse_inputs, reserve
from gaussmix.accounting.arguments import RELATIONS, Relation
from gaussmix.cli.options import CSV, FORCE, JSON, SCHEMA, UNIT, csv_options, refuse_lone_force
from gaussmix.mechanism.preparation import prepare
from gaussmix.tables.checking import check_table
from gaussmix.tables.csv_options import CsvOptions
from gaussmix.tables.moments import Moments
from gaussmix.tables.persons import persons_of
from gaussmix.tables.rows import RowSource, rows_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.sources import source_schema
from gaussmix.tables.template import describe_columns
from gaussmix.tables.unit import BoundRows, Unit

__all__ = ["check", "moments", "release", "schema"]

_NO_SCHEMA = "Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template."
_SPARE_BYTES = 2**12  # for names of parts
_EXPECT_ROWS = click.option("--expect-rows", type=int, help="Refuse a table with another number of rows.")


@click.command()
@click.argument("source")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="JSON file; default: print.")
@FORCE
@CSV
def schema(source: str, out: Path | None, force: bool, **csv: Any) -> None:
    """Write a template of a schema for SOURCE (Parquet, CSV, a folder or a glob).

    It holds names and types of columns, never a value; bounds and levels are for you to fill in, from what is known
    about the columns without looking at the rows.
    """
    refuse_lone_force(force, out)
    found = source_schema(source, csv=csv_options([source], **csv))
    text = json.dumps(describe_columns(found), indent=2, ensure_ascii=False)
    if out is None:
        click.echo(text)
        return
    refuse_inputs(out, [source])
    content = (text + "\n").encode()
    written = reserve(out, len(content), force=force).commit(content)
    click.echo(f"wrote {written}: fill in bounds and levels, delete the columns that you do not want", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@_EXPECT_ROWS
@CSV
@JSON
def check(
    sources: tuple[str, ...], schema_file: Path | None, expect_rows: int | None, as_json: bool, **csv: Any
) -> None:
    """Show what a schema does to SOURCES, **for the curator's eyes only**: what is printed is not private.

    Shares of rows that are clipped, unknown, missing or dropped, and what looks like a mistake. Spends nothing.

    \b
    gaussmix check patients.csv --schema patients.json --expect-rows 120000
    """  # noqa: D301 - click wants the character
    declared, options = _declared(schema_file, []), csv_options(sources, **csv)
    found = check_table(_paths(sources), declared, csv=options, expect_rows=expect_rows, progress=True)
    if as_json:
        content = {"sensitive": True, **asdict(found), "remarks": found.remarks()}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    table = Table(title=f"{found.rows:,} rows, {found.dropped:.2%} dropped", title_justify="left")
    table.add_column("column")
    for heading in ("clipped", "unknown", "missing", "dropped"):
        table.add_column(heading, justify="right")
    for name, column in found.columns.items():
        shares = (column.clipped, column.unknown, column.missing, column.dropped)
        table.add_row(name, *(f"{share:.2%}" if share else "" for share in shares))
    Console(file=sys.stdout).print(table)
    for remark in found.remarks():
        click.echo(remark)
    click.echo("For the curator only: these numbers are not private. Nothing was spent.", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@JSON
@FORCE
@CSV
@UNIT
@_EXPECT_ROWS
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True)
def moments(
    sources: tuple[str, ...],
    schema_file: Path | None,
    as_json: bool,
    force: bool,
    expect_rows: int | None,
    out: Path,
    unit: str | None,
    rows_per_unit: int | None,
    bound_rows: BoundRows | None,
    unit_sorted: bool,
    **csv: Any,
) -> None:
    """Sum up the rows of SOURCES into one file of moments, which is **as sensitive as the rows**.

    Sites that trust one curator send such files; `gaussmix release` adds them up and draws the noise once. With --unit
    no person may be in the files of two sites.
    """
    declared, options = _declared(schema_file, []), csv_options(sources, **csv)
    refuse_inputs(out, [*sources, *([] if schema_file is None else [schema_file])])
    size = len(Moments.empty(declared).to_bytes()) + _SPARE_BYTES
    with reserve(out, size, force=force) as output:
        sums = Moments.of(
            _paths(sources),
            declared,
            csv=options,
            expect_rows=expect_rows,
            progress=True,
            unit=unit,
            rows_per_unit=rows_per_unit,
            bound_rows=bound_rows,
            unit_sorted=unit_sorted,
        )
        written = output.commit(sums.to_bytes(), mode=0o600)
    if as_json:
        content = {"file": str(written), "parts": sorted(sums.parts), "schema": declared.fingerprint, "sensitive": True}
        click.echo(json.dumps(content, indent=2))
    click.echo(f"wrote {written} (mode 0600). It is as sensitive as the rows: do not publish it.", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@click.option("--epsilon", "-e", type=float, help="ε of the budget.")
@click.option("--delta", "-d", type=float, help="δ of the budget.")
@click.option("--sketch-size", "-k", type=int, help="Rows of a Gaussian sketch; default: its limit, in passes.")
@click.option("--passes", type=int, help="How often the table is read, 1 to 4; default: 4, or 1 for moments.")
@click.option("--relation", type=click.Choice(RELATIONS), help="Default: zero-out, or the ledger's.")
@click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A ledger (`gaussmix ledger create`): its budget takes the place of -e and -d.",
)
@click.option("--share", type=float, help="Share of the ledger's budget; default: one of its planned parts.")
@click.option("--note", default="", help="Kept in the ledger.")
@JSON
@FORCE
@CSV
@UNIT
@_EXPECT_ROWS
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True)
def release(
    sources: tuple[str, ...],
    schema_file: Path | None,
    epsilon: float | None,
    delta: float | None,
    sketch_size: int | None,
    passes: int | None,
    relation: Relation | None,
    ledger_file: Path | None,
    share: float | None,
    note: str,
    as_json: bool,
    force: bool,
    expect_rows: int | None,
    out: Path,
    unit: str | None,
    rows_per_unit: int | None,
    bound_rows: BoundRows | None,
    unit_sorted: bool,
    **csv: Any,
) -> None:
    """Release private second moments of SOURCES: tables, or files of moments.

    Budget, ledger, schema and output are looked at before a row is read; the ledger is charged when the output has its
    room on the disk.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release visits.csv -s visits.json -e 1 -d 1e-6 --unit patient_id --rows-per-unit 12 -o visits.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    """  # noqa: D301 - click wants the character
    refuse_inputs(out, [name for name in (*sources, schema_file, ledger_file) if name is not None])
    if epsilon == math.inf:
        raise click.UsageError("An infinite ε protects nothing: the file would be as sensitive as the rows.")
    if note and ledger_file is None:
        raise click.UsageError("--note is kept in a ledger: give --ledger as well, or leave it out.")
    options = csv_options(sources, **csv)
    sums = [source for source in sources if source.endswith(".moments")]
    tables = [source for source in sources if not source.endswith(".moments")]
    declared = _declared(schema_file, sums if not tables else [])
    whose = Unit.declared(unit, rows_per_unit, bound_rows, declared)
    if unit_sorted and (whose is None or sums):
        raise click.UsageError("--unit-sorted goes with --unit and tables: leave it out.")
    if whose is None and sums and not tables:
        whose = Moments.load(sums[0]).unit
    with prepare(
        declared,
        epsilon=epsilon,
        delta=delta,
        sketch_size=sketch_size,
        passes="auto" if passes is None else passes,
        relation=relation,
        ledger=ledger_file,
        share=share,
        note=note,
        out=out,
        force=force,
        unit=whose,
    ) as prepared:
        if whose is None or sums:
            rows = _rows(tables, sums, prepared.schema, options, expect_rows, whose)
        else:
            rows = persons_of(
                _paths(tables),
                prepared.schema,
                whose,
                key=prepared.rng.bytes(32),
                is_sorted=unit_sorted,
                csv=options,
                expect_rows=expect_rows,
                progress=True,
            )
        with closing(rows):
            private = prepared.draw(rows, progress=True)
    click.echo(f"wrote {out}", err=True)
    click.echo(json.dumps(private.certificate.to_dict(), indent=2) if as_json else str(private.certificate))


def _rows(
    tables: Sequence[str],
    sums: Sequence[str],
    schema: Schema,
    csv: CsvOptions,
    expect_rows: int | None,
    unit: Unit | None,
) -> RowSource:
    """Tables that can be read again; with files of moments, sums that cannot."""
    if not sums:
        return rows_of(_paths(tables), schema, csv=csv, expect_rows=expect_rows, progress=True)
    parts = [Moments.load(source) for source in sums]
    if tables:
        whose: Any = {} if unit is None else {"unit": unit.column, "rows_per_unit": unit.rows, "bound_rows": unit.bound}
        parts.append(Moments.of(_paths(tables), schema, csv=csv, progress=True, **whose))
    return rows_of(functools.reduce(operator.add, parts), schema, expect_rows=expect_rows)


def _declared(schema_file: Path | None, sums: Sequence[str]) -> Schema:
    """The schema that is named, or the one that a file of moments holds."""
    if schema_file is not None:
        return Schema.of(schema_file)
    if not sums:
        raise click.UsageError(_NO_SCHEMA)
    return Moments.load(sums[0]).schema


def _paths(sources: Sequence[str]) -> str | list[str]:
    """One path, or a list of them, in which no file may occur twice."""
    return sources[0] if len(sources) == 1 else list(sources)
