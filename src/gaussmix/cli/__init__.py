"""The command ``gaussmix``: numbers on standard output, messages on standard error. Commands are imported lazily."""

from __future__ import annotations

import importlib

import click

from gaussmix._version import __version__
from gaussmix.cli.exits import Group
from gaussmix.models import FAMILIES

__all__ = ["main"]

_COMMANDS = {
    "schema": "data",
    "check": "data",
    "per-unit": "data",
    "bounds": "data",
    "moments": "data",
    "release": "data",
    "ols": "models",
    **dict.fromkeys(FAMILIES, "models"),
    "mnlogit": "models",
    "describe": "models",
    "means": "models",
    "corr": "models",
    "crosstab": "models",
    "synthetic": "models",
    "export": "models",
    "report": "report",
    "sign": "report",
    "verify": "report",
    "plan": "report",
    "ledger": "ledger",
    "account": "report",
    "sites": "sites",
    "demo": "demo",
}
"""Module of each command, in the order shown by --help."""


class _Commands(Group):
    """A command group that imports each command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of a typical workflow."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command from its module."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"gaussmix.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = (
            module.family_command(cmd_name) if cmd_name in FAMILIES else getattr(module, cmd_name.replace("-", "_"))
        )
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gaussmix")
def main() -> None:
    """Differentially private regression: one release of a table, any number of models.

    \b
    Exit codes: 0 success, 1 interrupted or out of memory, 2 invalid arguments,
    3 data do not match the schema or cannot be read, 4 budget exceeded,
    5 damaged or not private, 6 another site is missing, disagrees or stopped.
    """  # noqa: D301 - click wants the character
