"""What commands read: files, folders and patterns, a query on a DuckDB database, or standard input.

Standard input comes once, and a release in passes reads its table several times: it is copied to a file of the user's
alone, which is deleted at the end.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from gaussmix._files import refuse_inputs
from gaussmix.errors import DataError
from gaussmix.tables.engines import DuckDBQuery, is_database
from gaussmix.tables.files import PLAIN_SUFFIXES

__all__ = ["INPUT", "ROW_BY_ROW", "STANDARD_INPUT", "inputs"]

F = TypeVar("F", bound=Callable[..., Any])

STANDARD_INPUT = "-"
ROW_BY_ROW = click.option(
    "--row-by-row",
    is_flag=True,
    help="Declare that each stored row affects at most one row of what --query returns; its plan is not examined.",
)
_KINDS = tuple(suffix.removeprefix(".") for suffix in PLAIN_SUFFIXES)


def INPUT(command: F) -> F:  # noqa: N802 - used as the options are
    """Options about what is read, for every command that reads tables; `inputs` takes what was given."""
    for option in (
        click.option("--query", help="SQL, where the source is a DuckDB database; it is opened read-only."),
        click.option(
            "--format", "kind", type=click.Choice(_KINDS), help="Of standard input, the source -. Default: csv."
        ),
    ):
        command = option(command)
    return command


@contextmanager
def inputs(
    sources: Sequence[str],
    *,
    query: str | None,
    kind: str | None,
    outputs: Sequence[Path | None] = (),
    others: Sequence[Path | None] = (),
) -> Iterator[Any]:
    """What the library reads for the sources of a command.

    Parameters
    ----------
    sources : sequence of str
        Paths, patterns, ``-``.
    query, kind
        What was given for `INPUT`.
    outputs, others : sequence of Path or None
        Files to be written, none of which may be a source or one of the others.
    """
    if kind is not None and STANDARD_INPUT not in sources:
        raise click.UsageError("--format is of standard input: give - as a source, or leave it out.")
    if sources.count(STANDARD_INPUT) > 1:
        raise click.UsageError("Standard input can be read only once: give - once.")
    named = [source for source in sources if source != STANDARD_INPUT]
    for output in outputs:
        if output is not None:
            refuse_inputs(output, [*named, *(other for other in others if other is not None)])
    if query is not None:
        if len(named) != 1 or len(sources) != 1:
            raise click.UsageError("--query is about one database: give its file, and nothing else.")
        yield DuckDBQuery(sources[0], query)
        return
    databases = [source for source in named if is_database(source)]
    if databases:
        raise click.UsageError(f"{databases[0]} is a database: say with --query what is read from it.")
    with _spooled(sources, kind or "csv") as found:
        yield found[0] if len(found) == 1 else found


@contextmanager
def _spooled(sources: Sequence[str], kind: str) -> Iterator[list[str]]:
    """The sources, with a file for standard input."""
    if STANDARD_INPUT not in sources:
        yield list(sources)
        return
    with tempfile.TemporaryDirectory(prefix="gaussmix-") as folder:  # mode 0700
        file = Path(folder) / f"standard-input.{kind}"
        with file.open("xb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        if not file.stat().st_size:
            raise DataError("Standard input is empty: pipe a table into it.")
        yield [str(file) if source == STANDARD_INPUT else source for source in sources]
