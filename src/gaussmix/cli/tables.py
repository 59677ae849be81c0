"""``gaussmix schema``, ``moments`` and ``release``: from a table to a release."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gaussmix._files import refuse_suffix, reserve
from gaussmix._text import json_text
from gaussmix.accounting.parameters import RELATIONS, Relation
from gaussmix.cli.budget import LEDGER, NOTE, SHARE, print_left, refuse_lone_note
from gaussmix.cli.inputs import INPUT, ROW_BY_ROW, inputs
from gaussmix.cli.options import (
    CSV,
    EXPECT_ROWS,
    FORCE,
    FORMULA,
    JSON,
    SCHEMA,
    UNIT,
    WEIGHT,
    csv_options,
    declared_in,
    refuse_lone_force,
)
from gaussmix.cli.printing import echo, echo_json
from gaussmix.mechanism.preparation import Prepared, prepare
from gaussmix.tables.contributions import BoundRows, Unit
from gaussmix.tables.formulas import declared_schema
from gaussmix.tables.moments import Moments, check_name
from gaussmix.tables.options import ReadOptions
from gaussmix.tables.rows import RowSource
from gaussmix.tables.schema import Schema
from gaussmix.tables.table import open_table
from gaussmix.tables.template import describe_columns

__all__ = ["moments", "release", "schema"]

_SPARE_BYTES = 2**12  # for names of parts


@click.command()
@click.argument("source")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="JSON file; default: print.")
@FORCE
@CSV
@INPUT
def schema(source: str, out: Path | None, force: bool, query: str | None, kind: str | None, **csv: Any) -> None:
    """Write a template of a schema for SOURCE (Parquet, Arrow, CSV, a folder or a glob, a DuckDB database, -).

    It holds names and types of columns, never a value; bounds and levels are for you to fill in, from what is known
    about the columns without looking at the rows. CSV files have no types: those with a question mark were guessed
    from the first rows.
    """
    refuse_lone_force(force, out)
    if out is not None:
        refuse_suffix(out, own=(".json",), kind="a schema in JSON")
    with inputs([source], query=query, kind=kind, outputs=[out]) as data:
        table = open_table(data, ReadOptions(csv=csv_options([source], **csv)))
        text = json_text(describe_columns(table.schema(), guessed=table.types_are_guessed)) + "\n"
    if out is None:
        echo(text, nl=False)
        return
    content = text.encode()
    written = reserve(out, len(content), force=force).commit(content)
    echo(f"wrote {written}: fill in bounds and levels, delete the columns that you do not want", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@JSON
@FORCE
@CSV
@INPUT
@ROW_BY_ROW
@UNIT
@EXPECT_ROWS
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True)
def moments(
    sources: tuple[str, ...],
    schema_file: Path | None,
    as_json: bool,
    force: bool,
    expect_rows: int | None,
    query: str | None,
    kind: str | None,
    row_by_row: bool,
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
    check_name(out)
    declared = declared_in(schema_file)
    options = ReadOptions(
        csv=csv_options(sources, **csv),
        expected_rows=expect_rows,
        progress=True,
        row_by_row=row_by_row,
        sorted_by_unit=unit_sorted,
    )
    size = len(Moments.empty(declared).to_bytes()) + _SPARE_BYTES
    with (
        inputs(sources, query=query, kind=kind, outputs=[out], others=[schema_file]) as data,
        reserve(out, size, force=force) as output,
    ):
        sums = Moments.of(
            data,
            declared,
            options=options,
            unit=unit,
            rows_per_unit=rows_per_unit,
            bound_rows=bound_rows,
        )
        written = output.commit(sums.to_bytes(), mode=0o600)
    if as_json:
        content = {"file": str(written), "parts": sorted(sums.parts), "schema": declared.fingerprint, "sensitive": True}
        echo_json(content)
    echo(f"wrote {written} (mode 0600). It is as sensitive as the rows: do not publish it.", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@FORMULA
@WEIGHT
@click.option("--epsilon", "-e", type=float, help="ε of the budget.")
@click.option("--delta", "-d", type=float, help="δ of the budget.")
@click.option("--passes", type=int, help="How often the table is read, 1 to 4; default: 4, or 1 for moments.")
@click.option("--keep-tails", is_flag=True, help="Shorten hardly any row: skewed columns, at 2 to 3 times the noise.")
@click.option("--relation", type=click.Choice(RELATIONS), help="Default: zero-out, or the ledger's.")
@LEDGER
@SHARE
@NOTE
@JSON
@FORCE
@CSV
@INPUT
@ROW_BY_ROW
@UNIT
@EXPECT_ROWS
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True)
def release(
    sources: tuple[str, ...],
    schema_file: Path | None,
    formula: str | None,
    weight: str | None,
    epsilon: float | None,
    delta: float | None,
    passes: int | None,
    keep_tails: bool,
    relation: Relation | None,
    ledger_file: Path | None,
    share: str | None,
    note: str,
    as_json: bool,
    force: bool,
    expect_rows: int | None,
    query: str | None,
    kind: str | None,
    row_by_row: bool,
    out: Path,
    unit: str | None,
    rows_per_unit: int | None,
    bound_rows: BoundRows | None,
    unit_sorted: bool,
    **csv: Any,
) -> None:
    """Release private second moments of SOURCES: tables, files of moments, or - for standard input.

    Budget, ledger, schema and output are looked at before a row is read; the ledger is charged when the output has its
    room on the disk.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release cps.csv -s cps.json --formula "log(wage) ~ poly(age, 2)" -e 1 -d 1e-6 -o cps.release.parquet
    gaussmix release visits.csv -s visits.json -e 1 -d 1e-6 --unit patient_id --rows-per-unit 12 -o visits.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    gaussmix release hospital.duckdb --query "FROM patients" -s patients.json --ledger patients.ledger -o out.parquet
    """  # noqa: D301 - click wants the character
    if epsilon == math.inf:
        raise click.UsageError("An infinite ε protects nothing: the file would be as sensitive as the rows.")
    refuse_lone_note(note, ledger_file)
    options = ReadOptions(
        csv=csv_options(sources, **csv),
        expected_rows=expect_rows,
        progress=True,
        row_by_row=row_by_row,
        sorted_by_unit=unit_sorted,
    )
    sums = [source for source in sources if source.endswith(".moments")]
    tables = [source for source in sources if not source.endswith(".moments")]
    if (formula is not None or weight is not None) and schema_file is None:
        raise click.UsageError("--formula and --weight need the columns that they are made of: give --schema.")
    read = inputs(tables, query=query, kind=kind, outputs=[out], others=[*map(Path, sums), schema_file, ledger_file])
    declared = declared_schema(_declared(schema_file, sums if not tables else []), formula=formula, weight=weight)
    whose = Unit.declared(unit, rows_per_unit, bound_rows, declared)
    if whose is None and sums and not tables:
        whose = Moments.load(sums[0]).unit
    with (
        read as data,
        prepare(
            declared,
            epsilon=epsilon,
            delta=delta,
            passes="auto" if passes is None else passes,
            keep_tails=keep_tails,
            relation=relation,
            ledger=ledger_file,
            share=share,
            note=note,
            out=out,
            force=force,
            unit=whose,
        ) as prepared,
        closing(_rows(prepared, data, sums, options)) as rows,
    ):
        private = prepared.draw(rows, progress=True)
    echo(f"wrote {out}", err=True)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))
    print_left(ledger_file, private.certificate)


def _rows(prepared: Prepared, data: Any, sums: Sequence[str], options: ReadOptions) -> RowSource:
    """Return tables that can be read again; with files of moments, sums that cannot."""
    if not sums:
        return prepared.rows(data, options)
    parts = [Moments.load(source) for source in sums]
    if data != []:
        with closing(prepared.rows(data, replace(options, expected_rows=None))) as rows:
            parts.append(rows.moments())
        options = ReadOptions(expected_rows=options.expected_rows)
    return prepared.rows(functools.reduce(operator.add, parts), options)


def _declared(schema_file: Path | None, sums: Sequence[str]) -> Schema:
    """The schema that is named, or the one that a file of moments holds."""
    return declared_in(schema_file) if schema_file is not None or not sums else Moments.load(sums[0]).schema
