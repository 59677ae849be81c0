"""``gaussmix ledger``: create, show and verify privacy ledgers."""

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
    """Privacy ledgers: one budget for all releases of one set of rows."""


@ledger.command()
@click.argument("file", metavar="LEDGER", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--epsilon", "-e", type=float, required=True, help="ε of all releases together.")
@click.option("--delta", "-d", type=float, required=True, help="δ of all releases together, for example 1e-6.")
@click.option("--releases", type=int, default=1, show_default=True, help="Planned number of equal releases.")
@click.option(
    "--neighbours", type=click.Choice(NEIGHBOURS), default="add-remove", show_default=True, help="Neighbours."
)
@click.option("--privacy-unit", help="Privacy-unit column: the budget covers all rows of a unit. Default: row-level.")
@click.option("--mu", type=float, help="Gaussian-DP budget μ. Default: the largest that ε and δ allow.")
@click.option("--delta-slack", type=float, help="Part of δ reserved for discretisation. Default: δ/1000.")
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
    """Create a ledger. Its budget is fixed; releases that exceed it are rejected.

    \b
    gaussmix ledger create patients.ledger --epsilon 1 --delta 1e-6 --releases 4
    """  # noqa: D301 - click wants the character
    if file.exists():
        raise OutputExistsError(f"{file} already exists, and a ledger cannot be replaced. See gaussmix ledger show.")
    made = Ledger(
        file,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        delta_slack=delta_slack,
        neighbours=neighbours,
        releases=releases,
        privacy_unit=privacy_unit,
    )
    if as_json:
        echo_json({"reserved": asdict(made.reservation), "head": made.head})
        return
    _print_reserved(file, made.reservation)
    echo(f"remaining budget: {made.remaining()}")


@ledger.command()
@_LEDGER
@JSON
def show(file: Path, as_json: bool) -> None:
    """Show the entries of a ledger, its remaining budget, and entries without a release file."""
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
    echo(f"remaining budget: {room}")
    echo(f"digest: {head}")


@ledger.command()
@_LEDGER
@click.option(
    "--head", help="A digest noted earlier: fail if the ledger's hash chain does not contain it (stale copy)."
)
@JSON
def verify(file: Path, head: str | None, as_json: bool) -> None:
    """Verify the reservation and hash chain of a ledger. Exit code 0: valid.

    Exit code 5: it is damaged or edited, reserves more than its budget, or does not contain the given digest.
    """
    opened = Ledger.open(file)
    if head is not None and not opened.contains_digest(head.strip().lower()):
        raise LedgerDamagedError(
            f"The hash chain of {file} does not contain this digest: stale copy or different ledger. Restore the copy "
            "that contains every release. If there is none, treat its budget as spent."
        )
    reserved, entries = opened.reservation, opened.entries()
    if as_json:
        content = {"reserved": asdict(reserved), "entries": len(entries), "left": asdict(opened.remaining())}
        echo_json({**content, "head": opened.head, "true": True})
        return
    echo(
        f"{file}: valid. The reservation is ({reserved.epsilon:g}, {reserved.delta_reserved:.6g})-"
        f"differentially private ({reserved.neighbours}), within delta = {reserved.delta:g}; "
        f"{len(entries)} recorded release{'s' * (len(entries) != 1)} within the reservation; hash chain intact."
    )


@ledger.command()
@_LEDGER
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="JSON file. Default: standard output."
)
@FORCE
def export(file: Path, out: Path | None, force: bool) -> None:
    """Export budget and entries as JSON. The export cannot be used as a ledger."""
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
        written = output.commit(f"{text}\n".encode(), mode=0o600)  # same mode as the ledger
    echo(f"wrote {written}", err=True)


def _plain(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "time": entry.time.isoformat()}


def _print_reserved(file: Path, reserved: BudgetCap) -> None:
    budget = f"({reserved.epsilon:g}, {reserved.delta:g}) for all releases together, {reserved.neighbours}"
    if reserved.privacy_unit:
        budget += f", privacy unit: all rows with the same {reserved.privacy_unit}"
    planned = f"{reserved.releases} release{'s' * (reserved.releases > 1)} planned"
    gaussian = f"μ = {reserved.mu:.6g}, δ reserved for discretisation {reserved.delta_slack:g}"
    echo(f"{file}: {budget}; Gaussian-DP budget {gaussian}, {planned}")


def _words(outcome: Outcome) -> str:
    entry = outcome.entry
    named = f" {entry.file}:" if entry.file else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"entry {entry.id}, {entry.time:%Y-%m-%d %H:%M} UTC, μ = {entry.mu:g}{note}:{named} {outcome.words}"
