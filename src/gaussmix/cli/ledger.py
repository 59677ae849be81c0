"""``gaussmix ledger``: budgets of sets of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gaussmix._files import reserve
from gaussmix._text import json_text
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.cli.exits import echo, echo_json
from gaussmix.cli.options import FORCE, JSON
from gaussmix.errors import LedgerDamagedError, OutputExistsError
from gaussmix.ledger import BudgetCap, Entry, Ledger
from gaussmix.ledger.store import refuse_as_output
from gaussmix.report.verify import Outcome, outcomes

__all__ = ["ledger"]

_LEDGER: Callable[[Any], Any] = click.argument(
    "file", metavar="LEDGER", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


@click.group()
def ledger() -> None:
    """Ledgers: one budget for all releases of one set of rows."""


@ledger.command()
@click.argument("file", metavar="LEDGER", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--epsilon", "-e", type=float, required=True, help="ε of all releases together.")
@click.option("--delta", "-d", type=float, required=True, help="δ of all releases together, for example 1e-6.")
@click.option("--releases", type=int, default=1, show_default=True, help="How many releases of one size are planned.")
@click.option(
    "--neighbours", type=click.Choice(NEIGHBOURS), default="add-remove", show_default=True, help="Neighbours."
)
@click.option(
    "--privacy-unit", help="Column that names a person: the budget is for all rows of one. Default: for one row."
)
@click.option("--mu", type=float, help="Gaussian budget. Default: all that ε and δ allow.")
@click.option("--delta-slack", type=float, help="Part of δ for slacks. Default: δ/1000.")
@JSON
def create(
    file: Path,
    epsilon: float,
    delta: float,
    releases: int,
    neighbours: Neighbours,
    privacy_unit: str | None,
    mu: float | None,
    delta_slack: float | None,
    as_json: bool,
) -> None:
    """Make a ledger. What it reserves never changes: a release that does not fit is refused.

    \b
    gaussmix ledger create patients.ledger --epsilon 1 --delta 1e-6 --releases 4
    """  # noqa: D301 - click wants the character
    if file.exists():
        raise OutputExistsError(f"{file} is there already, and a ledger is never replaced: see gaussmix ledger show.")
    made = Ledger(
        file,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        delta_slack=delta_slack,
        neighbours=neighbours,
        releases=releases,
        unit=privacy_unit,
    )
    if as_json:
        echo_json({"reserved": asdict(made.reservation), "head": made.head})
        return
    _print_reserved(file, made.reservation)
    echo(f"left: {made.remaining()}")


@ledger.command()
@_LEDGER
@JSON
def show(file: Path, as_json: bool) -> None:
    """What a ledger has recorded, what is left, how many more releases fit, and which entry has no file."""
    opened = Ledger.open(file)
    found, room, head = outcomes(opened), opened.remaining(), opened.head
    if as_json:
        entries = [{**_plain(outcome.entry), "state": outcome.state} for outcome in found]
        content = {"reserved": asdict(opened.reservation), "entries": entries, "left": asdict(room), "head": head}
        echo_json(content)
        return
    _print_reserved(file, opened.reservation)
    for outcome in found:
        echo(f"  {_words(outcome)}")
    echo(f"left: {room}")
    echo(f"head: {head}")


@ledger.command()
@_LEDGER
@click.option("--head", help="A head that was noted: fail if the ledger has never had it, as an older copy has not.")
@JSON
def verify(file: Path, head: str | None, as_json: bool) -> None:
    """Compute anew what a ledger reserves, and every hash. Exit code 0: all of it is true.

    Exit code 5: it is damaged or edited, reserves more than its budget, or has never had the head that was noted.
    """
    opened = Ledger.open(file)
    if head is not None and not opened.contains_digest(head.strip().lower()):
        raise LedgerDamagedError(
            f"{file} has never had this head: it is an older copy, or another ledger. Restore the one that has every "
            "release; if there is none, take its budget as spent."
        )
    reserved, entries = opened.reservation, opened.entries()
    if as_json:
        content = {"reserved": asdict(reserved), "entries": len(entries), "left": asdict(opened.remaining())}
        echo_json({**content, "head": opened.head, "true": True})
        return
    echo(
        f"{file}: true. Computed anew, everything reserved is ({reserved.epsilon:g}, {reserved.delta_reserved:.6g})-"
        f"differentially private ({reserved.neighbours}), within delta = {reserved.delta:g}; "
        f"the {len(entries)} recorded are within what is reserved, and their hashes fit."
    )


@ledger.command()
@_LEDGER
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="JSON file. Default: standard output."
)
@FORCE
def export(file: Path, out: Path | None, force: bool) -> None:
    """Budget and entries as JSON, for records elsewhere. Only a ledger itself can be spent from."""
    opened = Ledger.open(file)
    content = {
        "reservation": asdict(opened.reservation),
        "entries": [_plain(entry) for entry in opened.entries()],
        "left": asdict(opened.remaining()),
        "head": opened.head,
    }
    text = json_text(content)
    if out is None:
        echo(text)
        return
    refuse_as_output(out, opened.path)
    with reserve(out, 0, force=force) as output:
        written = output.commit(f"{text}\n".encode(), mode=0o600)  # as the ledger
    echo(f"wrote {written}", err=True)


def _plain(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "time": entry.time.isoformat()}


def _print_reserved(file: Path, reserved: BudgetCap) -> None:
    budget = f"({reserved.epsilon:g}, {reserved.delta:g}) for all releases together, {reserved.neighbours}"
    if reserved.unit:
        budget += f", of one person (all rows with the same {reserved.unit})"
    planned = f"{reserved.releases} release{'s' * (reserved.releases > 1)} planned"
    gaussian = f"mu {reserved.mu:.6g} and {reserved.delta_slack:g} of delta for slacks"
    echo(f"{file}: {budget}; Gaussian: {gaussian}, {planned}")


def _words(outcome: Outcome) -> str:
    entry = outcome.entry
    named = f" {entry.file}:" if entry.file else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"entry {entry.id}, {entry.time:%Y-%m-%d %H:%M} UTC, mu {entry.mu:g}{note}:{named} {outcome.words}"
