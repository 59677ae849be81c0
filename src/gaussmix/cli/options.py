"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["ESTIMAND", "FORCE", "JSON", "ON", "RELEASE", "ROWS", "SCHEMA"]

SCHEMA = click.option(
    "--schema", "-s", "schema_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML or JSON."
)
ESTIMAND = click.option(
    "--intervals",
    "estimand",
    type=click.Choice(["table", "ridge", "population"]),
    default="table",
    show_default=True,
    help="Which coefficients the intervals are for.",
)
ROWS = click.option("--rows", type=int, help="Rows of the table, if public: for --intervals population.")
FORCE = click.option("--force", is_flag=True, help="Replace the output if it is there already.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ON = click.option("--on", multiple=True, help="A column to explain it with; repeat. Default: all others.")
RELEASE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
