"""Commands on a table: schema, check, bounds, moments and release."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gaussmix._files import refuse_suffix, reserve
from gaussmix._text import json_text
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.cli.exits import cell, echo, echo_json
from gaussmix.cli.options import (
    CSV,
    EXPECT_ROWS,
    FORCE,
    FORMULA,
    INPUT,
    JSON,
    ROW_BY_ROW,
    SCHEMA,
    UNIT,
    UNIT_NAMED,
    WEIGHT,
    csv_options,
    declared_in,
    inputs,
    refuse_lone_force,
    unit_of,
)
from gaussmix.data.check import check_table
from gaussmix.data.contributions import ContributionBounding, PrivacyUnit
from gaussmix.data.moments import Moments, check_name
from gaussmix.data.schema import Schema, declared_schema, describe_columns
from gaussmix.data.source import ReadOptions
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError
from gaussmix.ledger import Budget, Ledger
from gaussmix.mechanism.bounds import MOST_LEVELS, propose_bounds
from gaussmix.mechanism.release import release as draw_release
from gaussmix.models.bounds import TAIL
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.preconditioning import CLIPS, Clip

__all__ = [
    "LEDGER",
    "NOTE",
    "SHARE",
    "bounds",
    "check",
    "moments",
    "print_left",
    "refuse_lone_note",
    "release",
    "schema",
]


LEDGER = click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A ledger (`gaussmix ledger create`): its budget takes the place of -e and -d.",
)
SHARE = click.option(
    "--share", metavar="SHARE", help="Share of the ledger's budget, 0.1 or 1/3; default: one of its planned parts."
)
NOTE = click.option("--note", default="", help="Kept in the ledger.")

ADD_UP = (
    "Privacy budgets of several releases of the same rows add up. A ledger accounts for all of them: "
    "gaussmix ledger create FILE, then --ledger FILE."
)


def refuse_lone_note(note: str, ledger_file: Path | None) -> None:
    """A note that would be kept nowhere is a mistake."""
    if note and ledger_file is None:
        raise click.UsageError("--note is kept in a ledger: give --ledger as well, or leave it out.")


def print_left(ledger_file: Path | None, certificate: Certificate) -> None:
    """What a ledger has left, and how many more releases of the same cost, on standard error; or why to keep one."""
    if ledger_file is None:
        echo(ADD_UP, err=True)
        return
    ledger = Ledger.open(ledger_file)
    more = ledger.remaining_releases(certificate.entry)
    fit = "1 more like this one fits" if more == 1 else f"{more or 'no'} more like this one fit"
    echo(f"left in {ledger_file}: {ledger.remaining()}; {fit}", err=True)


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
    expected_rows: int | None,
    query: str | None,
    kind: str | None,
    row_by_row: bool,
    out: Path,
    privacy_unit: str | None,
    max_contributions: int | None,
    contribution_bounding: ContributionBounding | None,
    sorted_by_unit: bool,
    **csv: Any,
) -> None:
    """Sum up the rows of SOURCES into one file of moments, which is **as sensitive as the rows**.

    Sites that trust one curator send such files; `gaussmix release` adds them up and draws the noise once. With
    --privacy-unit no unit may be in the files of two sites.
    """
    check_name(out)
    declared = declared_in(schema_file)
    options = ReadOptions(
        csv=csv_options(sources, **csv),
        expected_rows=expected_rows,
        progress=True,
        row_by_row=row_by_row,
        sorted_by_unit=sorted_by_unit,
    )
    size = len(Moments.empty(declared).to_bytes()) + _SPARE_BYTES
    with (
        inputs(sources, query=query, kind=kind, outputs=[out], others=[schema_file]) as data,
        reserve(out, size, force=force) as output,
    ):
        sums = Moments.of(
            data,
            declared,
            reading=options,
            privacy_unit=unit_of(privacy_unit, max_contributions, contribution_bounding),
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
@click.option(
    "--clip",
    type=click.Choice(CLIPS),
    default="prediction",
    show_default=True,
    help="What later passes clip rows for: inference clips hardly any row, at 2 to 3 times the noise.",
)
@click.option("--neighbours", type=click.Choice(NEIGHBOURS), help="Default: add-remove, or the ledger's.")
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
    clip: Clip,
    neighbours: Neighbours | None,
    ledger_file: Path | None,
    share: str | None,
    note: str,
    as_json: bool,
    force: bool,
    expected_rows: int | None,
    query: str | None,
    kind: str | None,
    row_by_row: bool,
    out: Path,
    privacy_unit: str | None,
    max_contributions: int | None,
    contribution_bounding: ContributionBounding | None,
    sorted_by_unit: bool,
    **csv: Any,
) -> None:
    """Release private second moments of SOURCES: tables, files of moments, or - for standard input.

    Budget, ledger, schema and output are looked at before a row is read; the ledger is charged when the output has its
    room on the disk.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release cps.csv -s cps.json --formula "log(wage) ~ poly(age, 2)" -e 1 -d 1e-6 -o cps.release.parquet
    gaussmix release visits.csv -s visits.json -e 1 -d 1e-6 --privacy-unit patient_id --max-contributions 9 -o v.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    gaussmix release hospital.duckdb --query "FROM patients" -s patients.json --ledger patients.ledger -o out.parquet
    """  # noqa: D301 - click wants the character
    if epsilon == math.inf:
        raise click.UsageError("An infinite ε protects nothing: the file would be as sensitive as the rows.")
    refuse_lone_note(note, ledger_file)
    options = ReadOptions(
        csv=csv_options(sources, **csv),
        expected_rows=expected_rows,
        progress=True,
        row_by_row=row_by_row,
        sorted_by_unit=sorted_by_unit,
    )
    sums = [source for source in sources if source.endswith(".moments")]
    tables = [source for source in sources if not source.endswith(".moments")]
    if (formula is not None or weight is not None) and schema_file is None:
        raise click.UsageError("--formula and --weight need the columns that they are made of: give --schema.")
    others = [*map(Path, sums), schema_file, ledger_file]
    budget = Budget(epsilon, delta, neighbours=neighbours, ledger=ledger_file, share=share, note=note)
    unit = unit_of(privacy_unit, max_contributions, contribution_bounding)
    declared: Any = _declared(schema_file, sums if not tables else [])
    with inputs(tables, query=query, kind=kind, outputs=[out], others=others) as data:
        if sums:
            declared = declared_schema(declared, formula=formula, weight=weight)
            data, options = _total(data, sums, declared, options, unit)
            formula = weight = None
        private = draw_release(
            data,
            declared,
            budget=budget,
            reading=options,
            privacy_unit=unit,
            formula=formula,
            weight=weight,
            passes="auto" if passes is None else passes,
            clip=clip,
            out=out,
            force=force,
        )
    echo(f"wrote {out}", err=True)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))
    print_left(ledger_file, private.certificate)


def _total(
    data: Any, sums: Sequence[str], schema: Schema, options: ReadOptions, unit: PrivacyUnit | None
) -> tuple[Moments, ReadOptions]:
    """Add moments of tables, which are read once, to files of moments; return how the total is checked."""
    parts = [Moments.load(source) for source in sums]
    if data != []:
        if options.sorted_by_unit and unit is None:
            raise ArgumentError("sorted_by_unit goes with a unit and the table: name the unit's column.")
        parts.append(Moments.of(data, schema, reading=replace(options, expected_rows=None), privacy_unit=unit))
        options = ReadOptions(expected_rows=options.expected_rows, progress=options.progress)
    return functools.reduce(operator.add, parts), options


def _declared(schema_file: Path | None, sums: Sequence[str]) -> Schema:
    """The schema that is named, or the one that a file of moments holds."""
    return declared_in(schema_file) if schema_file is not None or not sums else Moments.load(sums[0]).schema


@click.command()
@click.argument("sources", nargs=-1, required=True)
@SCHEMA
@EXPECT_ROWS
@CSV
@INPUT
@UNIT_NAMED
@JSON
def check(
    sources: tuple[str, ...],
    schema_file: Path | None,
    expected_rows: int | None,
    as_json: bool,
    query: str | None,
    kind: str | None,
    privacy_unit: str | None,
    max_contributions: int | None,
    **csv: Any,
) -> None:
    """Show what a schema does to SOURCES, **for the curator's eyes only**: what is printed is not private.

    Shares of rows that are clipped, unknown, missing or dropped, and what looks like a mistake. Spends nothing.

    \b
    gaussmix check patients.csv --schema patients.json --expected-rows 120000
    gaussmix check visits.csv --schema visits.json --privacy-unit patient_id --max-contributions 12
    """  # noqa: D301 - click wants the character
    declared, options = declared_in(schema_file), csv_options(sources, **csv)
    with inputs(sources, query=query, kind=kind) as data:
        found = check_table(
            data,
            declared,
            reading=ReadOptions(csv=options, expected_rows=expected_rows, progress=True),
            privacy_unit=unit_of(privacy_unit, max_contributions),
        )
    if as_json:
        content = {"sensitive": True, **asdict(found), "remarks": found.remarks()}
        echo_json(content)
        return
    table = Table(title=f"{found.rows:,} rows, {found.dropped:.2%} dropped", title_justify="left")
    table.add_column("column")
    for heading in ("clipped", "unknown", "missing", "dropped"):
        table.add_column(heading, justify="right")
    for name, column in found.columns.items():
        shares = (column.clipped, column.unknown, column.missing, column.dropped)
        table.add_row(cell(name), *(f"{share:.2%}" if share else "" for share in shares))
    Console(file=sys.stdout).print(table)
    for remark in found.remarks():
        echo(remark)
    echo("For the curator only: these numbers are not private. Nothing was spent.", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--schema",
    "-s",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="TOML or JSON: kinds of columns, bounds and levels left open, as in a template.",
)
@click.option("--epsilon", "-e", type=float, help="ε of the proposal.")
@click.option("--delta", "-d", type=float, help="δ of the proposal.")
@click.option("--neighbours", type=click.Choice(NEIGHBOURS), help="Default: add-remove, or the ledger's.")
@LEDGER
@SHARE
@NOTE
@click.option("--tail", type=float, default=TAIL, show_default=True, help="Share of rows beyond either bound.")
@click.option("--most-levels", type=int, default=MOST_LEVELS, show_default=True, help="Levels of a category, at most.")
@EXPECT_ROWS
@JSON
@FORCE
@CSV
@INPUT
@ROW_BY_ROW
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="JSON file for the schema.")
def bounds(
    sources: tuple[str, ...],
    schema_file: Path,
    epsilon: float | None,
    delta: float | None,
    neighbours: Neighbours | None,
    ledger_file: Path | None,
    share: str | None,
    note: str,
    tail: float,
    most_levels: int,
    expected_rows: int | None,
    as_json: bool,
    force: bool,
    query: str | None,
    kind: str | None,
    row_by_row: bool,
    out: Path,
    **csv: Any,
) -> None:
    """Propose bounds and levels for SOURCES, privately: a release of its own, which costs a budget.

    What is printed is its certificate. Columns for which nothing stands out from the noise are left out.

    \b
    gaussmix schema patients.parquet -o open.json
    gaussmix bounds patients.parquet -s open.json --ledger patients.ledger --share 0.1 -o patients.json
    """  # noqa: D301 - click wants the character
    refuse_lone_note(note, ledger_file)
    options = csv_options(sources, **csv)
    with inputs(sources, query=query, kind=kind, outputs=[out], others=[schema_file, ledger_file]) as data:
        found = propose_bounds(
            data,
            schema_file,
            budget=Budget(epsilon, delta, neighbours=neighbours, ledger=ledger_file, share=share, note=note),
            reading=ReadOptions(csv=options, expected_rows=expected_rows, progress=True, row_by_row=row_by_row),
            tail=tail,
            most_levels=most_levels,
            out=out,
            force=force,
        )
    echo(f"wrote {out}", err=True)
    if as_json:
        content = {"certificate": found.certificate.to_dict(), "left_out": list(found.left_out)}
        echo_json(content)
    else:
        echo(str(found))
    print_left(ledger_file, found.certificate)
