"""``gaussmix check``: what a schema does to a table, for the curator."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gaussmix.cli.inputs import INPUT, inputs
from gaussmix.cli.options import CSV, EXPECT_ROWS, JSON, SCHEMA, UNIT_NAMED, csv_options, declared_in
from gaussmix.cli.printing import cell, echo, echo_json
from gaussmix.tables.checking import check_table
from gaussmix.tables.options import ReadOptions

__all__ = ["check"]


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
    expect_rows: int | None,
    as_json: bool,
    query: str | None,
    kind: str | None,
    unit: str | None,
    rows_per_unit: int | None,
    **csv: Any,
) -> None:
    """Show what a schema does to SOURCES, **for the curator's eyes only**: what is printed is not private.

    Shares of rows that are clipped, unknown, missing or dropped, and what looks like a mistake. Spends nothing.

    \b
    gaussmix check patients.csv --schema patients.json --expect-rows 120000
    gaussmix check visits.csv --schema visits.json --unit patient_id --rows-per-unit 12
    """  # noqa: D301 - click wants the character
    declared, options = declared_in(schema_file), csv_options(sources, **csv)
    with inputs(sources, query=query, kind=kind) as data:
        found = check_table(
            data,
            declared,
            options=ReadOptions(csv=options, expected_rows=expect_rows, progress=True),
            unit=unit,
            rows_per_unit=rows_per_unit,
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
