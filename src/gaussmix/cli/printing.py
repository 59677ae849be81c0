"""What commands print: no control character of a name, a note or a file reaches the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gaussmix._text import json_text, plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["cell", "echo", "echo_json"]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines of text, control characters as escapes."""
    click.echo(plain(text, lines=True), err=err, nl=nl)


def echo_json(content: Any) -> None:
    """Print plain values as JSON."""
    click.echo(json_text(content))


def cell(text: str) -> Text:
    """Return a cell of a table that is printed as it is, brackets included."""
    from rich.text import Text  # every command imports this module, and few print tables

    return Text(plain(text))
