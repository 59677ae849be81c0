"""Options shared by several commands, and the sources that commands read.

A source is a file, a directory, a glob, a query on a DuckDB database, or standard input. A release in passes reads its
table several times, so standard input is copied to a private temporary file, which is deleted at the end.
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
from gaussmix.data.contributions import BOUNDS, ContributionBounding, PrivacyUnit
from gaussmix.data.engines import DuckDBQuery, is_database
from gaussmix.data.readers import FORMATS, PLAIN_SUFFIXES
from gaussmix.data.schema import Schema
from gaussmix.data.source import CsvOptions
from gaussmix.errors import ArgumentError, DataError, DeclarationError

__all__ = [
    "COLLAPSE",
    "CSV",
    "ESTIMAND",
    "EXPECT_ROWS",
    "FORCE",
    "FORMULA",
    "INPUT",
    "JSON",
    "PREDICTORS",
    "REFERENCE",
    "RELEASE",
    "ROWS",
    "ROW_BY_ROW",
    "SCHEMA",
    "STANDARD_INPUT",
    "UNIT",
    "UNIT_NAMED",
    "WEIGHT",
    "collapses",
    "csv_options",
    "declared_in",
    "inputs",
    "references",
    "refuse_lone_force",
    "unit_of",
]


F = TypeVar("F", bound=Callable[..., Any])

SCHEMA = click.option(
    "--schema",
    "-s",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Schema, TOML or JSON.",
)
FORMULA = click.option("--formula", help="Columns and terms to release, e.g. 'log(wage) ~ poly(age, 2) + sex'.")
WEIGHT = click.option("--weight", help="Column of sampling weights, numeric with lower bound 0.")
ESTIMAND = click.option(
    "--estimand",
    type=click.Choice(["table", "population"]),
    default="table",
    show_default=True,
    help="Estimand of the intervals.",
)
EXPECT_ROWS = click.option("--expected-rows", type=int, help="Fail if the table has a different number of rows.")
ROWS = click.option("--rows", type=int, help="Number of rows, if public; for --estimand population.")
COLLAPSE = click.option(
    "--collapse",
    multiple=True,
    metavar="COLUMN:NEW=LEVEL,...",
    help="Collapse levels, e.g. 'job:other=none,unpaid'; repeatable.",
)
REFERENCE = click.option(
    "--reference",
    multiple=True,
    metavar="COLUMN=LEVEL",
    help="Reference level, e.g. 'race=White'; repeatable. Default: the first level, or the largest if that is rare.",
)
FORCE = click.option("--force", is_flag=True, help="Overwrite an existing output file.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
PREDICTORS = click.option("--predictors", multiple=True, help="Predictor; repeatable. Default: all other columns.")
RELEASE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


def declared_in(schema_file: Path | None) -> Schema:
    """Load the schema given by ``--schema``."""
    if schema_file is None:
        raise click.UsageError("--schema is required. `gaussmix schema SOURCE` writes a template.")
    return Schema.of(schema_file)


def collapses(given: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Parse ``--collapse column:new=level,level``."""
    found: dict[str, dict[str, list[str]]] = {}
    for text in given:
        column, colon, rest = text.partition(":")
        new, equals, levels = rest.partition("=")
        if not (column and colon and new and equals and levels):
            raise click.UsageError(
                "--collapse must have the form COLUMN:NEW=LEVEL,LEVEL, e.g. 'job:other=none,unpaid'."
            )
        if new in found.setdefault(column, {}):
            raise click.UsageError(
                "--collapse defines the same new level twice. List all replaced levels in one option."
            )
        found[column][new] = levels.split(",")
    return found


def references(given: Sequence[str]) -> dict[str, str]:
    """Parse ``--reference column=level``."""
    found: dict[str, str] = {}
    for text in given:
        column, equals, level = text.partition("=")
        if not (column and equals and level):
            raise click.UsageError("--reference must have the form COLUMN=LEVEL, e.g. 'race=White'.")
        if column in found:
            raise click.UsageError("--reference must be given at most once per column.")
        found[column] = level
    return found


def refuse_lone_force(force: bool, output: Path | None) -> None:
    """Reject --force without an output file."""
    if force and output is None:
        raise click.UsageError("--force has no effect without an output file. Omit it.")


def UNIT(command: F) -> F:  # noqa: N802 - used like the options above
    """Add the options of the privacy unit, for commands that aggregate rows."""
    for option in (
        click.option("--sorted-by-unit", is_flag=True, help="SOURCES are sorted by privacy unit (verified)."),
        click.option(
            "--contribution-bounding",
            type=click.Choice(BOUNDS),
            help="For units with more rows: scale all (default) or sample.",
        ),
        UNIT_NAMED,
    ):
        command = option(command)
    return command


def UNIT_NAMED(command: F) -> F:  # noqa: N802 - used like the options above
    """Add the options needed to read the privacy unit."""
    for option in (
        click.option("--max-contributions", type=int, help="Maximum number of rows counted per privacy unit."),
        click.option("--privacy-unit", help="Privacy-unit column: all rows of a unit are protected together."),
    ):
        command = option(command)
    return command


def unit_of(
    column: str | None, max_contributions: int | None, contribution_bounding: ContributionBounding | None = None
) -> PrivacyUnit | None:
    """Return the privacy unit that options declare; None for one row."""
    if column is None:
        if max_contributions is not None or contribution_bounding is not None:
            raise ArgumentError(
                "max_contributions and contribution_bounding require a privacy unit. Declare it or omit them."
            )
        return None
    if max_contributions is None:
        raise DeclarationError(
            "max_contributions must be declared with a privacy unit: the maximum number of rows counted per unit. "
            "Declare it without looking at the data."
        )
    return PrivacyUnit(column, max_contributions, contribution_bounding or "scale")


def CSV(command: F) -> F:  # noqa: N802 - used like the options above
    """Add the CSV options, for commands that read tables; `csv_options` collects them."""
    for option in (
        click.option("--skip-initial-space", is_flag=True, help="CSV: ignore spaces after a delimiter."),
        click.option(
            "--na-value", "na_values", multiple=True, help="CSV: text that denotes a missing value; repeatable."
        ),
        click.option("--quoted-newlines", is_flag=True, help="CSV: quoted fields may contain line breaks."),
        click.option(
            "--quoting/--no-quoting", default=None, help='CSV: whether " quotes fields. Default: yes, except in TSV.'
        ),
    ):
        command = option(command)
    return command


def csv_options(
    sources: Sequence[str],
    *,
    skip_initial_space: bool,
    na_values: tuple[str, ...],
    quoted_newlines: bool,
    quoting: bool | None,
) -> CsvOptions:
    """Return the CSV options; reject them if no CSV file is read."""
    found = CsvOptions(
        skip_initial_space=skip_initial_space,
        na_values=na_values or None,
        quoted_newlines=quoted_newlines,
        quoting=quoting,
    )
    others = (".moments", *(suffix for known in FORMATS if not known.types_are_guessed for suffix in known.suffixes))
    if found != CsvOptions() and all(is_database(source) or source.lower().endswith(others) for source in sources):
        raise click.UsageError("CSV options have no effect because no CSV file is read. Omit them.")
    return found


STANDARD_INPUT = "-"
ROW_BY_ROW = click.option(
    "--row-by-row",
    is_flag=True,
    help="Declare that each stored row affects at most one row of the --query result; the plan is not checked.",
)
_KINDS = tuple(suffix.removeprefix(".") for suffix in PLAIN_SUFFIXES)


def INPUT(command: F) -> F:  # noqa: N802 - used like the options
    """Add the input options, for commands that read tables; `inputs` evaluates them."""
    for option in (
        click.option("--query", help="SQL query on a DuckDB database, which is opened read-only."),
        click.option(
            "--format", "kind", type=click.Choice(_KINDS), help='Format of standard input (SOURCE "-"). Default: csv.'
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
    """Return the data sources of a command.

    Parameters
    ----------
    sources : sequence of str
        Paths, patterns, ``-``.
    query, kind
        Values of the options of `INPUT`.
    outputs, others : sequence of Path or None
        Files to be written. They must differ from the sources and from each other.
    """
    if kind is not None and STANDARD_INPUT not in sources:
        raise click.UsageError('--format applies to standard input only. Give "-" as a source or omit it.')
    if sources.count(STANDARD_INPUT) > 1:
        raise click.UsageError('Standard input can be read only once. Give "-" once.')
    named = [source for source in sources if source != STANDARD_INPUT]
    for output in outputs:
        if output is not None:
            refuse_inputs(output, [*named, *(other for other in others if other is not None)])
    if query is not None:
        if len(named) != 1 or len(sources) != 1:
            raise click.UsageError("--query requires exactly one source, a DuckDB database file.")
        yield DuckDBQuery(sources[0], query)
        return
    databases = [source for source in named if is_database(source)]
    if databases:
        raise click.UsageError(f"{databases[0]} is a database. Give --query to select rows.")
    with _spooled(sources, kind or "csv") as found:
        yield found[0] if len(found) == 1 else found


@contextmanager
def _spooled(sources: Sequence[str], kind: str) -> Iterator[list[str]]:
    """Yield the sources, with standard input copied to a file."""
    if STANDARD_INPUT not in sources:
        yield list(sources)
        return
    with tempfile.TemporaryDirectory(prefix="gaussmix-") as folder:  # mode 0700
        file = Path(folder) / f"standard-input.{kind}"
        with file.open("xb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        if not file.stat().st_size:
            raise DataError("Standard input is empty.")
        yield [str(file) if source == STANDARD_INPUT else source for source in sources]
