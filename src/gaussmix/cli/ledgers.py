"""``gaussmix ledger``: budgets of sets of rows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gaussmix.cli.options import JSON
from gaussmix.ledger import Ledger
from gaussmix.reporting.outcomes import outcomes

__all__ = ["ledger"]


@click.group()
def ledger() -> None:
    """Ledgers: one budget for all releases of one set of rows."""


@ledger.command()
@click.argument("file", metavar="LEDGER", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@JSON
def show(file: Path, as_json: bool) -> None:
    """What a ledger has recorded, what is left, and which entry has no file."""
    opened = Ledger.open(file)
    found, room, head = outcomes(opened), opened.remaining(), opened.head
    reserved = opened.reservation
    if as_json:
        entries = [
            {**asdict(outcome.entry), "time": outcome.entry.time.isoformat(), "state": outcome.state}
            for outcome in found
        ]
        content = {"reserved": asdict(reserved), "entries": entries, "left": asdict(room), "head": head}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    click.echo(f"{file}: ({reserved.epsilon:g}, {reserved.delta:g}) for all releases together, {reserved.relation}")
    for outcome in found:
        entry = outcome.entry
        spent = f"{entry.sketch_size} sketch rows" if entry.sketch_size else f"mu {entry.mu:g}"
        named = f" {entry.file}:" if entry.file else ""
        note = f" ({entry.note})" if entry.note else ""
        click.echo(f"  entry {entry.id}, {entry.time:%Y-%m-%d %H:%M} UTC, {spent}{note}:{named} {outcome.words}")
    click.echo(f"left: {room}")
    click.echo(f"head: {head}")
