"""Exit codes, error messages and terminal output of the command ``gaussmix``, whose --help lists the codes.

Errors that the user can fix are printed in one line; bugs in gaussmix show a traceback. Control characters in names,
notes and files are escaped before they are printed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gaussmix import errors
from gaussmix._text import json_text, plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = [
    "EXIT_CODES",
    "NOT_PRIVATE",
    "Command",
    "Group",
    "cell",
    "command",
    "echo",
    "echo_json",
    "echo_written",
    "exit_code",
]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text with control characters escaped."""
    click.echo(plain(text, lines=True), err=err, nl=nl)


def echo_written(out: Path, path: Path | None) -> None:
    """Name the file that was written: another one than ``out`` if a process created that in the meantime."""
    moved = path is not None and path != out.resolve()
    echo(f"wrote {path if moved else out}", err=True)


def echo_json(content: Any) -> None:
    """Print plain values as JSON."""
    click.echo(json_text(content))


def cell(text: str) -> Text:
    """Return a table cell that is printed verbatim, brackets included."""
    from rich.text import Text  # every command imports this module, but few print tables

    return Text(plain(text))


NOT_PRIVATE = 5
"""Exit code for a release that is damaged or has no guarantee."""

EXIT_CODES: dict[tuple[type[Exception], ...], int] = {
    (errors.BudgetExceededError,): 4,
    (errors.NotPrivateError, errors.DamagedError, errors.LedgerError): NOT_PRIVATE,
    (errors.SiteError,): 6,
    (errors.DataError,): 3,
    (errors.GaussmixError, OSError, ImportError): 2,
}
"""The first matching type decides."""

_FAULT = (
    "This is a bug in gaussmix; please report it. Read the traceback before you send it: it may contain data values."
)


class Command(click.Command):
    """A command that rejects an option given twice. By default click silently keeps the last value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments and count how often each option occurs."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        given = [option for option in order if isinstance(option, click.Option) and not option.multiple]
        for option in given:
            repeatable = option.is_flag and not option.secondary_opts  # --json --json has one meaning
            if given.count(option) > 1 and not repeatable:
                raise click.UsageError(f"{option.opts[0]} was given more than once. Give it once.", ctx)
        return super().parse_args(ctx, args)


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Command]:
    """Equivalent to `click.command`, for a `Command`."""
    return click.command(name, cls=Command, **options)


class Group(click.Group):
    """A command group that maps errors to the exit codes above."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run with usable standard streams, even if the caller has closed them."""
        _open_closed_streams()
        try:
            return super().main(*arguments, **options)
        finally:
            _let_go_of_broken_streams()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reject arguments that are not valid UTF-8."""
        try:
            "".join(args).encode()
            return super().parse_args(ctx, args)
        except UnicodeEncodeError:
            raise _failure("Arguments and file names must be valid UTF-8. Rename the file.", 2) from None
        except click.UsageError as error:
            raise _in_one_line(error, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Print errors that the user can fix in one line."""
        with _warnings_as_lines():
            try:
                return super().invoke(ctx)
            except MemoryError as error:
                raise _failure(" ".join([str(error) or "Out of memory.", *_notes(error)]), 1) from None
            except click.UsageError as error:
                raise _in_one_line(error, ctx) from None
            except Exception as error:
                code = exit_code(error)
                if code is None:
                    error.add_note(_FAULT)
                    raise
                raise _failure(" ".join([str(error), *_notes(error)]), code) from None
            except KeyboardInterrupt as error:  # click only says that the command was aborted
                for note in _notes(error):
                    echo(note, err=True)
                raise


def _notes(error: BaseException) -> list[str]:
    """Return notes of an error, such as how to resume a release."""
    return [str(note) for note in getattr(error, "__notes__", [])]


def _failure(message: str, code: int) -> click.ClickException:
    """Return an exception with a message and an exit code."""
    failure = click.ClickException(plain(message, lines=True))
    failure.__dict__["exit_code"] = code  # click reads it from the instance, and declares it on the class
    return failure


def _in_one_line(error: click.UsageError, ctx: click.Context) -> click.ClickException:
    """Format a usage error in one line with a pointer to --help; requested help is left unchanged."""
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
        words = f"{words} Usage: '{' '.join([command, *pieces])}'."
    return _failure(f"{words} Try '{command} --help'.", error.exit_code)


def exit_code(error: Exception) -> int | None:
    """Return the exit code for an error; None for click's own errors and for bugs."""
    if isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort):
        return None
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # click ends quietly
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return 1
    return next((code for kinds, code in EXIT_CODES.items() if isinstance(error, kinds)), None)


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard descriptors, so that no output file gets one of their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # Python sets closed streams to None
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))


def _let_go_of_broken_streams() -> None:
    """Detach broken streams: otherwise Python reports a full disk or closed pipe again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print gaussmix warnings as single lines on standard error."""
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
