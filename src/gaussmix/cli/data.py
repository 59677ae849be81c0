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
    help="Ledger to charge (`gaussmix ledger create`); replaces -e and -d.",
)
SHARE = click.option(
    "--share", metavar="SHARE", help="Share of the ledger's budget, e.g. 0.1 or 1/3. Default: one planned release."
)
NOTE = click.option("--note", default="", help="Note stored in the ledger.")

ADD_UP = (
    "Several releases of the same rows compose. Use a ledger to account for all of them: "
    "gaussmix ledger create FILE, then --ledger FILE."
)


def refuse_lone_note(note: str, ledger_file: Path | None) -> None:
    """Reject --note without --ledger."""
    if note and ledger_file is None:
        raise click.UsageError("--note requires --ledger.")


def print_left(ledger_file: Path | None, certificate: Certificate) -> None:
    """Print the remaining budget of the ledger, or advice to use one, on standard error."""
    if ledger_file is None:
        echo(ADD_UP, err=True)
        return
    ledger = Ledger.open(ledger_file)
    more = ledger.remaining_releases(certificate.entry)
    fit = f"budget for {more or 'no'} more {'release' if more == 1 else 'releases'} of this size remains"
    echo(f"remaining budget in {ledger_file}: {ledger.remaining()}; {fit}", err=True)


_SPARE_BYTES = 2**12  # for names of parts


@click.command()
@click.argument("source")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="JSON file. Default: standard output.")
@FORCE
@CSV
@INPUT
def schema(source: str, out: Path | None, force: bool, query: str | None, kind: str | None, **csv: Any) -> None:
    """Write a schema template for SOURCE (Parquet, Arrow, CSV, a directory or glob, a DuckDB database, -).

    The template has column names and types but no values. Fill in bounds and levels from public knowledge, without
    looking at the data. CSV files have no types: those marked with a question mark were guessed from the first rows.
    """
    refuse_lone_force(force, out)
    if out is not None:
        refuse_suffix(out, own=(".json",), kind="a JSON schema")
    with inputs([source], query=query, kind=kind, outputs=[out]) as data:
        table = open_table(data, ReadOptions(csv=csv_options([source], **csv)))
        text = json_text(describe_columns(table.schema(), guessed=table.types_are_guessed)) + "\n"
    if out is None:
        echo(text, nl=False)
        return
    content = text.encode()
    written = reserve(out, len(content), force=force).commit(content)
    echo(f"wrote {written}: fill in bounds and levels, and delete unwanted columns", err=True)


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
    """Aggregate SOURCES into a file of exact second moments, which is **as sensitive as the rows**.

    Sites that trust one curator send such files; `gaussmix release` adds them and draws the noise once. With
    --privacy-unit, each unit must be in the file of one site only.
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
@click.option("--passes", type=int, help="Number of passes over the data, 1 to 4. Default: 4, or 1 for moments.")
@click.option(
    "--topcode/--no-topcode",
    default=True,
    help="Code heavy-tailed numbers to thresholds found within the budget. Default: --topcode.",
)
@click.option("--table", "tables", multiple=True, help="Two columns A,B whose cross-table is counted. Repeatable.")
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
    topcode: bool,
    tables: tuple[str, ...],
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

    Budget, ledger, schema and output are checked before the data are read. The ledger is charged after disk space for
    the output has been reserved.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release cps.csv -s cps.json --formula "log(wage) ~ poly(age, 2)" -e 1 -d 1e-6 -o cps.release.parquet
    gaussmix release visits.csv -s visits.json -e 1 -d 1e-6 --privacy-unit patient_id --max-contributions 9 -o v.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    gaussmix release hospital.duckdb --query "FROM patients" -s patients.json --ledger patients.ledger -o out.parquet
    """  # noqa: D301 - click wants the character
    if epsilon == math.inf:
        raise click.UsageError(
            "--epsilon must be finite: with infinite ε the release would be as sensitive as the rows."
        )
    refuse_lone_note(note, ledger_file)
    options = ReadOptions(
        csv=csv_options(sources, **csv),
        expected_rows=expected_rows,
        progress=True,
        row_by_row=row_by_row,
        sorted_by_unit=sorted_by_unit,
    )
    sums = [source for source in sources if source.endswith(".moments")]
    files = [source for source in sources if not source.endswith(".moments")]
    if (formula is not None or weight is not None) and schema_file is None:
        raise click.UsageError("--formula and --weight require --schema.")
    others = [*map(Path, sums), schema_file, ledger_file]
    budget = Budget(epsilon, delta, neighbours=neighbours, ledger=ledger_file, share=share, note=note)
    unit = unit_of(privacy_unit, max_contributions, contribution_bounding)
    declared: Any = _declared(schema_file, sums if not files else [])
    with inputs(files, query=query, kind=kind, outputs=[out], others=others) as data:
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
            topcode="auto" if topcode else None,
            tables=[_pair(columns) for columns in tables],
            out=out,
            force=force,
        )
    echo(f"wrote {out}", err=True)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))
    print_left(ledger_file, private.certificate)


def _pair(columns: str) -> tuple[str, str]:
    """Return the two columns of ``--table A,B``."""
    first, _, second = columns.partition(",")
    if not first or not second:
        raise click.UsageError(f"--table must name two columns, as in --table A,B, got {columns!r}.")
    return first, second


def _total(
    data: Any, sums: Sequence[str], schema: Schema, options: ReadOptions, unit: PrivacyUnit | None
) -> tuple[Moments, ReadOptions]:
    """Add the moments of tables to files of moments; return the sum and the options for checking it."""
    parts = [Moments.load(source) for source in sums]
    if data != []:
        if options.sorted_by_unit and unit is None:
            raise ArgumentError(
                "sorted_by_unit requires a table and a privacy unit. Declare the unit or omit sorted_by_unit."
            )
        parts.append(Moments.of(data, schema, reading=replace(options, expected_rows=None), privacy_unit=unit))
        options = ReadOptions(expected_rows=options.expected_rows, progress=options.progress)
    return functools.reduce(operator.add, parts), options


def _declared(schema_file: Path | None, sums: Sequence[str]) -> Schema:
    """Return the schema from --schema, or the one stored in a file of moments."""
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
    """Show the effect of a schema on SOURCES. **For the curator only**: the output is not private.

    Prints the shares of clamped, unknown, missing and dropped values, and likely mistakes. Spends no budget.

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
    echo("For the curator only: these numbers are not private. No budget was spent.", err=True)


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--schema",
    "-s",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="TOML or JSON file with column types; bounds and levels may be open, as in a template.",
)
@click.option("--epsilon", "-e", type=float, help="ε of this release.")
@click.option("--delta", "-d", type=float, help="δ of this release.")
@click.option("--neighbours", type=click.Choice(NEIGHBOURS), help="Default: add-remove, or the ledger's.")
@LEDGER
@SHARE
@NOTE
@click.option("--tail", type=float, default=TAIL, show_default=True, help="Share of rows beyond each bound.")
@click.option(
    "--most-levels", type=int, default=MOST_LEVELS, show_default=True, help="Maximum number of levels of a category."
)
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
    """Estimate bounds and levels for SOURCES privately. This is a release and consumes budget.

    Prints its certificate. Columns without a bound or level above the noise threshold are omitted.

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
