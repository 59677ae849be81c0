"""Options that several commands have.

What commands read: files, folders and patterns, a query on a DuckDB database, or standard input.

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
    "MAX_EFFECT",
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
    "--schema", "-s", "schema_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML or JSON."
)
FORMULA = click.option(
    "--formula", help="Columns and terms of the release, made from the schema's: 'log(wage) ~ poly(age, 2) + sex'."
)
WEIGHT = click.option("--weight", help="A numeric column, declared from 0, that weighs the rows.")
ESTIMAND = click.option(
    "--estimand",
    type=click.Choice(["table", "population"]),
    default="table",
    show_default=True,
    help="Which coefficients the intervals are for.",
)
EXPECT_ROWS = click.option("--expected-rows", type=int, help="Refuse a table with another number of rows.")
ROWS = click.option("--rows", type=int, help="Rows of the table, if public: for --estimand population.")
COLLAPSE = click.option(
    "--collapse",
    multiple=True,
    metavar="COLUMN:NEW=LEVEL,...",
    help="Take levels as one, 'job:other=none,unpaid'; repeat.",
)
REFERENCE = click.option(
    "--reference",
    multiple=True,
    metavar="COLUMN=LEVEL",
    help="The level that others are measured from, 'race=White'; repeat. Default: the first.",
)
MAX_EFFECT = click.option(
    "--max-effect",
    type=float,
    help="Assumed: no predictor changes RESPONSE by more than this many times its range. Default: 5.",
)
FORCE = click.option("--force", is_flag=True, help="Replace the output if it is there already.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
PREDICTORS = click.option("--predictors", multiple=True, help="A predictor; repeat. Default: all other columns.")
RELEASE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


def declared_in(schema_file: Path | None) -> Schema:
    """The schema that ``--schema`` names."""
    if schema_file is None:
        raise click.UsageError("Declare the columns with --schema FILE; `gaussmix schema SOURCE` writes a template.")
    return Schema.of(schema_file)


def collapses(given: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """``--collapse column:new=level,level`` as the library has it."""
    found: dict[str, dict[str, list[str]]] = {}
    for text in given:
        column, colon, rest = text.partition(":")
        new, equals, levels = rest.partition("=")
        if not (column and colon and new and equals and levels):
            raise click.UsageError("--collapse is written COLUMN:NEW=LEVEL,LEVEL, as in 'job:other=none,unpaid'.")
        if new in found.setdefault(column, {}):
            raise click.UsageError("--collapse makes one level twice: name all that it replaces at once.")
        found[column][new] = levels.split(",")
    return found


def references(given: Sequence[str]) -> dict[str, str]:
    """``--reference column=level`` as the library has it."""
    found: dict[str, str] = {}
    for text in given:
        column, equals, level = text.partition("=")
        if not (column and equals and level):
            raise click.UsageError("--reference is written COLUMN=LEVEL, as in 'race=White'.")
        if column in found:
            raise click.UsageError("--reference names a column twice.")
        found[column] = level
    return found


def refuse_lone_force(force: bool, output: Path | None) -> None:
    """An option that would do nothing is a mistake."""
    if force and output is None:
        raise click.UsageError("--force replaces a file, but none is written: leave it out.")


def UNIT(command: F) -> F:  # noqa: N802 - used as the options above are
    """Whose rows are protected together, for every command that sums them up."""
    for option in (
        click.option(
            "--sorted-by-unit", is_flag=True, help="Rows of a person stand together in SOURCES; it is checked."
        ),
        click.option(
            "--contribution-bounding", type=click.Choice(BOUNDS), help="Of who has more rows: shorten all (default)."
        ),
        UNIT_NAMED,
    ):
        command = option(command)
    return command


def UNIT_NAMED(command: F) -> F:  # noqa: N802 - used as the options above are
    """The two of them that a command needs to read the unit."""
    for option in (
        click.option("--max-contributions", type=int, help="As how many rows a person counts at most."),
        click.option("--privacy-unit", help="Column that names a person: all rows of one are protected together."),
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
                "max_contributions and contribution_bounding go with a unit: name its column, or leave them out."
            )
        return None
    if max_contributions is None:
        raise DeclarationError(
            "max_contributions must be declared with a unit: how many rows of one person count. It must be fixed "
            "before the data are seen."
        )
    return PrivacyUnit(column, max_contributions, contribution_bounding or "scale")


def CSV(command: F) -> F:  # noqa: N802 - used as the options above are
    """How CSV files are written, for every command that reads tables; `csv_options` takes what was given."""
    for option in (
        click.option("--skip-initial-space", is_flag=True, help="CSV: spaces after a delimiter do not count."),
        click.option("--na-value", "na_values", multiple=True, help="CSV: a field that means missing; repeat."),
        click.option("--quoted-newlines", is_flag=True, help="CSV: quoted fields may hold line breaks."),
        click.option(
            "--quoting/--no-quoting", default=None, help='CSV: whether " encloses fields; default: not in TSV.'
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
    """What was declared about CSV files; where none is read it would do nothing, and is refused."""
    found = CsvOptions(
        skip_initial_space=skip_initial_space,
        na_values=na_values or None,
        quoted_newlines=quoted_newlines,
        quoting=quoting,
    )
    others = (".moments", *(suffix for known in FORMATS if not known.types_are_guessed for suffix in known.suffixes))
    if found != CsvOptions() and all(is_database(source) or source.lower().endswith(others) for source in sources):
        raise click.UsageError("Options for CSV files are given, but no CSV file is read: leave them out.")
    return found


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
