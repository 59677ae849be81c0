"""Options of commands that spend from a ledger, and what they say of it afterwards."""

from __future__ import annotations

from pathlib import Path

import click

from gaussmix.cli.printing import echo
from gaussmix.ledger import Ledger
from gaussmix.models.certificate import Certificate

__all__ = ["LEDGER", "NOTE", "SHARE", "print_left", "refuse_lone_note"]

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
    more = ledger.more_like(certificate.entry)
    fit = "1 more like this one fits" if more == 1 else f"{more or 'no'} more like this one fit"
    echo(f"left in {ledger_file}: {ledger.remaining()}; {fit}", err=True)
