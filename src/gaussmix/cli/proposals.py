"""``gaussmix propose``: bounds and levels by a private release of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gaussmix.accounting.parameters import RELATIONS, Relation
from gaussmix.cli.budget import LEDGER, NOTE, SHARE, print_left, refuse_lone_note
from gaussmix.cli.inputs import INPUT, ROW_BY_ROW, inputs
from gaussmix.cli.options import CSV, EXPECT_ROWS, FORCE, JSON, csv_options
from gaussmix.cli.printing import echo, echo_json
from gaussmix.mechanism.proposing import MOST_LEVELS
from gaussmix.mechanism.proposing import propose as proposed
from gaussmix.models.proposing import TAIL

__all__ = ["propose"]


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
@click.option("--relation", type=click.Choice(RELATIONS), help="Default: zero-out, or the ledger's.")
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
def propose(
    sources: tuple[str, ...],
    schema_file: Path,
    epsilon: float | None,
    delta: float | None,
    relation: Relation | None,
    ledger_file: Path | None,
    share: str | None,
    note: str,
    tail: float,
    most_levels: int,
    expect_rows: int | None,
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
    gaussmix propose patients.parquet -s open.json --ledger patients.ledger --share 0.1 -o patients.json
    """  # noqa: D301 - click wants the character
    refuse_lone_note(note, ledger_file)
    options = csv_options(sources, **csv)
    with inputs(sources, query=query, kind=kind, outputs=[out], others=[schema_file, ledger_file]) as data:
        found = proposed(
            data,
            schema_file,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            ledger=ledger_file,
            share=share,
            note=note,
            tail=tail,
            most_levels=most_levels,
            csv=options,
            expect_rows=expect_rows,
            out=out,
            force=force,
            progress=True,
            row_by_row=row_by_row,
        )
    echo(f"wrote {out}", err=True)
    if as_json:
        content = {"certificate": found.certificate.to_dict(), "left_out": list(found.left_out)}
        echo_json(content)
    else:
        echo(str(found))
    print_left(ledger_file, found.certificate)
