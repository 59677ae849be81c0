"""Commands on a table: schema, check, per-unit, bounds, moments and release."""

from __future__ import annotations

import functools
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
from gaussmix.cli.exits import cell, command, echo, echo_json, echo_written
from gaussmix.cli.options import (
    FORCE,
    JSON,
    TABLES,
    TOPCODE,
    WEIGHT,
    Sources,
    budget_options,
    out_option,
    refuse_lone_force,
    schema_option,
    table_options,
)
from gaussmix.data.check import check_table
from gaussmix.data.moments import Moments, check_name
from gaussmix.data.per_unit import parse_feature
from gaussmix.data.per_unit import per_unit as units_of
from gaussmix.data.schema import Schema, declared_schema, describe_columns
from gaussmix.data.source import OTHER_DELIMITER, ReadOptions, has_other_delimiter
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError, DataError
from gaussmix.ledger import Budget
from gaussmix.mechanism.bounds import MOST_LEVELS, propose_bounds
from gaussmix.mechanism.release import release as draw_release
from gaussmix.models.bounds import TAIL
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.declared import MODEL_SHARE, DeclaredModel

__all__ = ["bounds", "check", "moments", "per_unit", "release", "schema"]

_SPARE_BYTES = 2**12  # for names of parts


@command()
@out_option("JSON file. Default: standard output.")
@FORCE
@table_options(several=False, rows=False)
def schema(sources: Sources, out: Path | None, force: bool) -> None:
    """Write a schema template for SOURCE (Parquet, Arrow, CSV, a directory or glob, a DuckDB database, -).

    The template has column names and types but no values. Fill in bounds and levels from public knowledge, without
    looking at the data. CSV files have no types: those marked with a question mark were guessed from the first rows;
    remove the question mark to confirm one.
    """
    refuse_lone_force(force, out)
    if out is not None:
        refuse_suffix(out, own=(".json",), kind="a JSON schema")
    with sources.opened(out=out) as data:
        table = open_table(data, sources.reading)
        columns = table.schema()
        if has_other_delimiter(columns.names):
            raise DataError(f"No template was written. {OTHER_DELIMITER}")
        text = json_text(describe_columns(columns, guessed=table.types_are_guessed)) + "\n"
    if out is None:
        echo(text, nl=False)
        return
    written = reserve(out, len(text.encode()), force=force).commit(text.encode())
    echo(f"wrote {written}. Fill in bounds and levels, and delete unwanted columns.", err=True)


@command()
@schema_option(required=True)
@out_option("File of moments, ending in .moments.", required=True)
@JSON
@FORCE
@table_options(unit=True, aggregates=True)
def moments(sources: Sources, schema_file: Path, as_json: bool, force: bool, out: Path) -> None:
    """Aggregate SOURCES into a file of exact second moments. The file is as sensitive as the rows.

    Sites that trust one curator send such files; gaussmix release adds them and draws the noise once. With
    --privacy-unit, each unit must be in the file of one site only.
    """
    check_name(out)
    declared = Schema.of(schema_file)
    size = len(Moments.empty(declared).to_bytes()) + _SPARE_BYTES
    with sources.opened(out=out, others=[schema_file]) as data, reserve(out, size, force=force) as file:
        sums = Moments.of(data, declared, reading=sources.reading, privacy_unit=sources.unit)
        written = file.commit(sums.to_bytes(), mode=0o600)
    if as_json:
        parts = sorted(sums.parts)
        echo_json({"file": str(written), "parts": parts, "schema": declared.fingerprint, "sensitive": True})
    echo(f"wrote {written} (mode 0600). It is as sensitive as the rows: do not publish it.", err=True)


@command()
@schema_option()
@click.option("--formula", help="Columns and terms to release, e.g. 'log(wage) ~ poly(age, 2) + sex'.")
@WEIGHT
@budget_options
@click.option(
    "--passes", type=int, help="Number of passes over the data, 1 to 4. Default: 4, or 1 for files of moments."
)
@TOPCODE
@TABLES
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Model to declare, [FAMILY:]FORMULA[;EXPOSURE], e.g. 'poisson: claims ~ age;duration'. Repeatable.",
)
@click.option("--model-share", type=float, help=f"Share of μ² for declared models. Default: {MODEL_SHARE}.")
@out_option("Release file, ending in .parquet.", required=True)
@click.option("--resume", is_flag=True, help="Continue an interrupted release with the same arguments, at no cost.")
@JSON
@FORCE
@table_options(unit=True, aggregates=True)
def release(
    sources: Sources,
    schema_file: Path | None,
    formula: str | None,
    weight: str | None,
    budget: Budget,
    passes: int | None,
    topcode: bool,
    tables: tuple[str, ...],
    models: tuple[str, ...],
    model_share: float | None,
    resume: bool,
    as_json: bool,
    force: bool,
    out: Path,
) -> None:
    """Release private second moments of SOURCES: tables, files of moments, or - for standard input.

    Budget, ledger, schema and output are checked before the data are read. The ledger is charged after disk space for
    the output has been reserved. A release that is interrupted afterwards leaves its outputs so far in OUT.partial;
    the same command with --resume continues it.

    \b
    gaussmix release patients.parquet --schema patients.json -e 1 -d 1e-6 -o patients.release.parquet
    gaussmix release cps.csv -s cps.json --formula "log(wage) ~ poly(age, 2)" -e 1 -d 1e-6 -o cps.release.parquet
    gaussmix release visits.csv -s visits.json -e 1 -d 1e-6 --privacy-unit patient_id --max-contributions 9 -o v.parquet
    gaussmix release site-a.moments site-b.moments -e 1 -d 1e-6 -o joint.release.parquet
    gaussmix release nass.csv -s nass.json -e 1 -d 1e-6 --model "dead ~ airbag + seatbelt" -o nass.release.parquet
    gaussmix release hospital.duckdb --query "FROM patients" -s patients.json --ledger patients.ledger -o out.parquet
    """  # noqa: D301 - click wants the character
    sums = [name for name in sources.names if name.endswith(".moments")]
    files = tuple(name for name in sources.names if not name.endswith(".moments"))
    if schema_file is None and (formula is not None or weight is not None):
        raise click.UsageError("--formula and --weight require --schema.")
    if model_share is not None and not models:
        raise click.UsageError("--model-share requires --model.")
    if schema_file is None and files:
        raise click.UsageError("--schema is required. 'gaussmix schema SOURCE' writes a template.")
    declared = Moments.load(sums[0]).schema if schema_file is None else Schema.of(schema_file)
    reading, others = sources.reading, [*map(Path, sums), schema_file, _ledger_file(budget)]
    with replace(sources, names=files).opened(out=out, others=others) as data:
        if sums:
            declared = declared_schema(declared, formula=formula, weight=weight)
            data, reading = _total(data, sums, declared, sources)
            formula = weight = None
        private = draw_release(
            data,
            declared,
            budget=budget,
            reading=reading,
            privacy_unit=sources.unit,
            formula=formula,
            weight=weight,
            passes="auto" if passes is None else passes,
            topcode="auto" if topcode else None,
            tables=[_pair(columns) for columns in tables],
            models=[_declared(text) for text in models],
            model_share=MODEL_SHARE if model_share is None else model_share,
            out=out,
            force=force,
            resume=resume,
        )
    echo_written(out, private.path)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))
    _print_remaining(budget, private.certificate)


def _declared(text: str) -> DeclaredModel:
    """Return the model of ``--model "FAMILY: FORMULA; EXPOSURE"``, of which only the formula is required."""
    formula, _, exposure = (part.strip() for part in text.partition(";"))
    family, colon, rest = (part.strip() for part in formula.partition(":"))
    # A colon after the tilde is that of a product, as in y ~ a:b.
    named = bool(colon) and "~" not in family
    return DeclaredModel(rest if named else formula, family if named else None, exposure or None)


def _pair(columns: str) -> tuple[str, str]:
    """Return the two columns of ``--table A,B``."""
    first, _, second = columns.partition(",")
    if not first or not second:
        raise click.UsageError(f"--table must name two columns, as in --table A,B, got {columns!r}.")
    return first, second


def _total(data: Any, sums: Sequence[str], schema: Schema, sources: Sources) -> tuple[Moments, ReadOptions]:
    """Add the moments of tables to files of moments; return the sum and the options for checking it."""
    parts, reading = [Moments.load(source) for source in sums], sources.reading
    if data != []:
        if reading.sorted_by_unit and sources.unit is None:
            raise ArgumentError("--sorted-by-unit requires a table and --privacy-unit.")
        parts.append(Moments.of(data, schema, reading=replace(reading, expected_rows=None), privacy_unit=sources.unit))
        reading = ReadOptions(expected_rows=reading.expected_rows, progress=True)
    return functools.reduce(operator.add, parts), reading


def _ledger_file(budget: Budget) -> Path | None:
    return budget.ledger.path if budget.ledger is not None and isinstance(budget.ledger.path, Path) else None


def _print_remaining(budget: Budget, certificate: Certificate) -> None:
    """Print the remaining budget of the ledger, or advice to use one, on standard error."""
    if budget.ledger is None:
        echo(
            "Privacy losses of several releases of the same rows add up. Use a ledger to account for all of them: "
            "gaussmix ledger create FILE, then --ledger FILE.",
            err=True,
        )
        return
    more = budget.ledger.remaining_releases(certificate.entry)
    fit = f"budget for {more or 'no'} more {'release' if more == 1 else 'releases'} of this size remains"
    echo(f"remaining budget in {budget.ledger.path}: {budget.ledger.remaining()}; {fit}", err=True)


@command()
@schema_option(required=True)
@JSON
@table_options(unit=True)
def check(sources: Sources, schema_file: Path, as_json: bool) -> None:
    """Show the effect of a schema on SOURCES. For the curator only: the output is not private.

    Counts clamped, unknown, missing and dropped values, and names likely mistakes. Spends no budget.

    \b
    gaussmix check patients.csv --schema patients.json --expected-rows 120000
    gaussmix check visits.csv --schema visits.json --privacy-unit patient_id --max-contributions 12
    """  # noqa: D301 - click wants the character
    declared = Schema.of(schema_file)
    with sources.opened() as data:
        found = check_table(data, declared, reading=sources.reading, privacy_unit=sources.unit)
    if as_json:
        echo_json({"sensitive": True, **asdict(found), "remarks": found.remarks()})
        return
    dropped = _counted(found.dropped, found.rows) or "none"
    table = Table(title=f"{found.rows:,} rows, {dropped} dropped", title_justify="left")
    table.add_column("column")
    for heading in ("clamped", "unknown level", "missing", "row dropped"):
        table.add_column(heading, justify="right")
    for name, column in found.columns.items():
        shares = (column.clipped, column.unknown, column.missing, column.dropped)
        table.add_row(cell(name), *(_counted(share, found.rows) for share in shares))
    Console(file=sys.stdout).print(table)
    for remark in found.remarks():
        echo(remark)
    echo("For the curator only: these numbers are not private. No budget was spent.", err=True)


def _counted(share: float, rows: int) -> str:
    """Return a number of rows and its share of them; empty if it is 0."""
    percent = f"{100 * share:.2f}" if share >= 5e-5 else "<0.01"
    return f"{round(share * rows):,} ({percent} %)" if share else ""


@command(name="per-unit")
@click.option("--unit", required=True, metavar="COLUMN", help="Privacy-unit column, for example patient_id.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    required=True,
    metavar="NAME=FUNCTION(COLUMN)",
    help="Feature per privacy unit, e.g. 'age=last(age, by=date)'. Functions: count, mean, sum, min, max, any, all, "
    "first, last. Repeatable.",
)
@click.option(
    "--join",
    type=click.Path(exists=True),
    help="Table with one row per privacy unit, whose columns are added to the result.",
)
@out_option("Parquet file, as sensitive as the rows.", required=True)
@FORCE
@table_options(rows=False)
def per_unit(sources: Sources, unit: str, features: tuple[str, ...], join: str | None, out: Path, force: bool) -> None:
    """Write a table with one row for each privacy unit of SOURCES. For the curator only: the output is not private.

    A release of its rows protects whole units, however many rows they have.

    \b
    gaussmix per-unit visits.parquet --unit patient_id -o patients.parquet
        --feature "visits=count()" --feature "age=last(age, by=date)"
        --feature "bp=mean(pressure, bounds=(60, 220))"
    """  # noqa: D301 - click wants the character
    declared = dict(map(parse_feature, features))
    if len(declared) < len(features):
        raise ArgumentError(f"Features must have different names, got {', '.join(features)}. Rename one of them.")
    with sources.opened(out=out, others=[None if join is None else Path(join)]) as data:
        found = units_of(data, unit=unit, join=join, reading=sources.reading, **declared)
        echo(f"wrote {found.save(out, force=force)}, as sensitive as the rows", err=True)


@command()
@schema_option(required=True, help="Schema, TOML or JSON. Bounds and levels may be missing (null), as in a template.")
@budget_options
@click.option(
    "--tail",
    type=float,
    default=TAIL,
    show_default=True,
    help="Share of rows that may lie beyond each estimated bound.",
)
@click.option(
    "--privacy-unit",
    "unit",
    metavar="COLUMN",
    help="Privacy-unit column. One row of each unit, chosen at random, is counted.",
)
@click.option(
    "--most-levels", type=int, default=MOST_LEVELS, show_default=True, help="Maximum number of levels found per column."
)
@out_option("JSON file for the schema.", required=True)
@JSON
@FORCE
@table_options(aggregates=True)
def bounds(
    sources: Sources,
    schema_file: Path,
    budget: Budget,
    tail: float,
    unit: str | None,
    most_levels: int,
    as_json: bool,
    force: bool,
    out: Path,
) -> None:
    """Estimate bounds and levels for SOURCES privately. This is a release and consumes budget.

    Prints the certificate of this release. A column is omitted if no count of its values exceeds the noise threshold.

    \b
    gaussmix schema patients.parquet -o open.json
    gaussmix bounds patients.parquet -s open.json --ledger patients.ledger --share 0.1 -o patients.json
    """  # noqa: D301 - click wants the character
    with sources.opened(out=out, others=[schema_file, _ledger_file(budget)]) as data:
        found = propose_bounds(
            data,
            schema_file,
            budget=budget,
            reading=sources.reading,
            privacy_unit=unit,
            tail=tail,
            most_levels=most_levels,
            out=out,
            force=force,
        )
    echo_written(out, found.path)
    if as_json:
        echo_json({"certificate": found.certificate.to_dict(), "left_out": list(found.left_out)})
    else:
        echo(str(found))
    _print_remaining(budget, found.certificate)
