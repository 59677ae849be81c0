"""``gaussmix ledger``: create, show and verify privacy ledgers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gaussmix._files import reserve
from gaussmix._text import json_text
from gaussmix.cli.exits import Command, echo, echo_json
from gaussmix.cli.options import FORCE, JSON, LEDGER, NEIGHBOURS_OPTION, NEW_LEDGER, out_option
from gaussmix.errors import LedgerDamagedError, OutputExistsError
from gaussmix.ledger import BudgetCap, Entry, Ledger
from gaussmix.ledger.store import Place, refuse_as_output, resolved
from gaussmix.report.verify import STATES, entry_state

__all__ = ["ledger"]

_LEDGER = click.argument("file", metavar="LEDGER", type=LEDGER)


@click.group()
def ledger() -> None:
    """Privacy ledgers: one budget for all releases of one set of rows."""


@ledger.command(cls=Command)
@click.argument("file", metavar="LEDGER", type=NEW_LEDGER)
@click.option("--epsilon", "-e", type=float, required=True, help="Total ε of all releases.")
@click.option("--delta", "-d", type=float, required=True, help="Total δ of all releases, for example 1e-6.")
@click.option("--releases", type=int, default=1, show_default=True, help="Planned number of releases of equal size.")
@NEIGHBOURS_OPTION
@click.option("--privacy-unit", help="Privacy-unit column: the budget covers all rows of a unit. Default: row-level.")
@click.option("--mu", type=float, help="Gaussian-DP budget μ. Default: the largest that ε and δ allow.")
@click.option("--delta-slack", type=float, help="Part of δ reserved for discretisation. Default: δ/1000.")
@JSON
def create(file: Path | str, privacy_unit: str | None, as_json: bool, **budget: Any) -> None:
    """Create a ledger. Its budget is fixed; releases that exceed it are rejected.

    \b
    gaussmix ledger create patients.ledger --epsilon 1 --delta 1e-6 --releases 4
    gaussmix ledger create "postgresql://host/db?ledger=patients" --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click wants the character
    if resolved(file).exists():
        raise OutputExistsError(
            f"{resolved(file)} already exists, and a ledger cannot be replaced. Run 'gaussmix ledger show' to see its "
            "budget."
        )
    made = Ledger(file, privacy_unit=privacy_unit, **budget)
    if as_json:
        echo_json(_content(made))
        return
    _print_reserved(made.path, made.reservation)
    echo(f"remaining budget: {made.remaining()}")


@ledger.command(cls=Command)
@_LEDGER
@JSON
def show(file: Path | str, as_json: bool) -> None:
    """Show the entries of a ledger, whether their release files exist, and the remaining budget."""
    opened = Ledger.open(file)
    states = [(entry, entry_state(entry)) for entry in opened.entries()]
    if as_json:
        echo_json({**_content(opened), "entries": [{**_plain(entry), "state": state} for entry, state in states]})
        return
    _print_reserved(opened.path, opened.reservation)
    for entry, state in states:
        name = f" {entry.file}:" if entry.file else ""
        note = f" ({entry.note})" if entry.note else ""
        start = f"entry {entry.id}, {entry.time:%Y-%m-%d %H:%M} UTC, μ = {entry.mu:g}"
        echo(f"  {start}{note}:{name} {STATES[state]}")
    echo(f"remaining budget: {opened.remaining()}")
    echo(f"digest: {opened.head}")


@ledger.command(cls=Command)
@_LEDGER
@click.option(
    "--head",
    help=(
        "Digest printed earlier by 'gaussmix ledger show'. Fail if the hash chain does not contain it, for example "
        "because the file is an old copy."
    ),
)
@JSON
def verify(file: Path | str, head: str | None, as_json: bool) -> None:
    """Verify the reserved budget and the hash chain of a ledger. Exit code 0: valid.

    Exit code 5: it is damaged or edited, reserves more than its budget, or does not contain the given digest.
    """
    opened = Ledger.open(file)
    if head is not None and not opened.contains_digest(head.strip().lower()):
        raise LedgerDamagedError(
            f"The hash chain of {opened.path} does not contain this digest: the file is an old copy or a different "
            "ledger. Restore the copy that contains every release. If there is none, treat the budget as spent."
        )
    reserved, entries = opened.reservation, opened.entries()
    if as_json:
        echo_json({**_content(opened), "entries": len(entries), "true": True})
        return
    echo(
        f"{opened.path}: valid. The reserved budget is ({reserved.epsilon:g}, {reserved.delta_reserved:.6g})-"
        f"differentially private ({reserved.neighbours}), within delta = {reserved.delta:g}; "
        f"{len(entries)} recorded release{'s' * (len(entries) != 1)} within it; hash chain intact."
    )


@ledger.command(cls=Command)
@_LEDGER
@out_option("JSON file. Default: standard output.")
@FORCE
def export(file: Path | str, out: Path | None, force: bool) -> None:
    """Export budget and entries as JSON. The export cannot be used as a ledger."""
    opened = Ledger.open(file)
    text = json_text({**_content(opened), "entries": [_plain(entry) for entry in opened.entries()]})
    if out is None:
        echo(text)
        return
    refuse_as_output(out, opened.path)
    with reserve(out, 0, force=force) as output:
        written = output.commit(f"{text}\n".encode(), mode=0o600)  # same mode as the ledger
    echo(f"wrote {written}", err=True)


def _content(ledger: Ledger) -> dict[str, Any]:
    """Return budget, remaining budget and digest as plain values."""
    return {"reserved": asdict(ledger.reservation), "left": asdict(ledger.remaining()), "head": ledger.head}


def _plain(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "time": entry.time.isoformat()}


def _print_reserved(place: Place, reserved: BudgetCap) -> None:
    budget = f"({reserved.epsilon:g}, {reserved.delta:g}) for all releases together, {reserved.neighbours}"
    if reserved.privacy_unit:
        budget += f", privacy unit: all rows with the same {reserved.privacy_unit}"
    planned = f"{reserved.releases} release{'s' * (reserved.releases > 1)} planned"
    gaussian = f"μ = {reserved.mu:.6g}, δ reserved for discretisation {reserved.delta_slack:g}"
    echo(f"{place}: {budget}; Gaussian-DP budget {gaussian}, {planned}")
