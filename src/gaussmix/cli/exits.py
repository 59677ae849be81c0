"""How the command ``gaussmix`` ends: one line and an exit code for what the user can mend, a traceback for our faults.

====  ==============================================================================
code  meaning
====  ==============================================================================
0     done
1     interrupted, or out of memory; with a traceback, a fault of gaussmix
2     what was asked for cannot be done: arguments, schema, files that are not there
3     the rows do not fit their declaration, or cannot be read
4     the ledger has no budget left for it
5     a release, moments or ledger is damaged, or is not private
====  ==============================================================================

What commands print: no control character of a name, a note or a file reaches the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gaussmix import errors
from gaussmix._text import json_text, plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["EXIT_CODES", "NOT_PRIVATE", "Group", "cell", "echo", "echo_json", "exit_code"]


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


NOT_PRIVATE = 5
"""Exit code of a release that is damaged, or guarantees nothing."""

EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.BudgetExceededError, 4),
    (errors.NotPrivateError, NOT_PRIVATE),
    (errors.DamagedError, NOT_PRIVATE),
    (errors.LedgerError, NOT_PRIVATE),
    (errors.DataError, 3),
    (errors.GaussmixError, 2),
    (OSError, 2),
    (ImportError, 2),
)
"""The first type that fits decides."""

_FAULT = (
    "This is a fault of gaussmix, not of your input: please report it. Read the traceback before you send it: "
    "it may quote values."
)


class Group(click.Group):
    """Commands whose errors end as the table above says."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run with standard streams that can be written to, whatever the caller has closed."""
        _open_closed_streams()
        try:
            return super().main(*arguments, **options)
        finally:
            _let_go_of_broken_streams()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse bytes that are no text before they reach a file, a ledger or a terminal."""
        if not all(_is_text(argument) for argument in args):
            raise _failure("Arguments and names of files must be valid UTF-8: rename the file.", 2)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _in_one_line(error, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Turn errors that the user can mend into one line."""
        with _warnings_as_lines():
            try:
                return super().invoke(ctx)
            except MemoryError as error:
                raise _failure(str(error) or "There is not enough memory.", 1) from None
            except click.UsageError as error:
                raise _in_one_line(error, ctx) from None
            except Exception as error:
                code = exit_code(error)
                if code is None:
                    error.add_note(_FAULT)
                    raise
                raise _failure(str(error), code) from None


def _failure(message: str, code: int) -> click.ClickException:
    """One line and an exit code."""
    failure = click.ClickException(plain(message, lines=True))
    failure.__dict__["exit_code"] = code  # click reads it from the instance, and declares it on the class
    return failure


def _in_one_line(error: click.UsageError, ctx: click.Context) -> click.ClickException:
    """What is wrong with a command, and where to read how it is written; help that was asked for stays as it is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    words = re.sub(r"\s*\n\s*", " ", error.format_message())
    words = words if words.endswith((".", "?)")) else f"{words}."
    if error.ctx is not None:
        command = error.ctx.command_path
    else:  # an option without its value
        command = " ".join(filter(None, [ctx.command_path, ctx.invoked_subcommand]))
    if error.ctx is not None and isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        pieces = error.ctx.command.collect_usage_pieces(error.ctx)
        words = f"{words} It is written '{' '.join([command, *pieces])}'."
    return _failure(f"{words} Try '{command} --help'.", error.exit_code)


def exit_code(error: Exception) -> int | None:
    """What the command ends with; None for click's own errors, and for faults of the library."""
    if isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort):
        return None
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # click ends quietly
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return 1
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)


# ---------------------------------------------------------------------------------------------------------------
# Streams
def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _open_closed_streams() -> None:
    """Give the first three descriptors to /dev/null where they are closed: no file of ours may become one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # so Python has it where they were closed
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))


def _let_go_of_broken_streams() -> None:
    """Python writes what is left when it ends, and complains of a full disk or a closed pipe once more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings about the user's choices as lines on standard error; all others as Python shows them."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
            if category in (UserWarning, errors.BudgetWarning):
                echo(f"Warning: {message}", err=True)
            else:
                shown(message, category, *rest, **options)

        for category in (errors.BudgetWarning, UserWarning):
            warnings.filterwarnings("once", category=category)
        warnings.showwarning = show
        yield
