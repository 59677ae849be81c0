"""Options shared by several commands, collected into one value each: tables to read, budget, printed results.

A source is a file, a directory, a glob, a query on a DuckDB database, or standard input. A release in passes reads its
table several times, so standard input is copied to a private temporary file, which is deleted at the end.
"""

from __future__ import annotations

import functools
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gaussmix._files import refuse_inputs
from gaussmix.accounting.parameters import NEIGHBOURS
from gaussmix.data.contributions import BOUNDS, ContributionBounding, PrivacyUnit
from gaussmix.data.engines import DuckDBQuery, is_database
from gaussmix.data.readers import FORMATS, PLAIN_SUFFIXES
from gaussmix.data.source import STANDARD_INPUT, CsvOptions, ReadOptions
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.ledger import Budget
from gaussmix.models.release import Release

__all__ = [
    "ALPHA",
    "FORCE",
    "INPUT_FILE",
    "JSON",
    "LEDGER",
    "NEIGHBOURS_OPTION",
    "NEW_LEDGER",
    "PREDICTORS",
    "RELEASE",
    "TABLES",
    "TOPCODE",
    "UNIT",
    "WEIGHT",
    "Decorator",
    "Printing",
    "Sources",
    "budget_options",
    "collected",
    "names_in",
    "out_option",
    "printing_options",
    "refuse_lone_force",
    "schema_option",
    "table_options",
    "unit_of",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _LedgerPlace(click.Path):
    """A ledger's file, or the address of a database."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


LEDGER = _LedgerPlace(exists=True, dir_okay=False, path_type=Path)
NEW_LEDGER = _LedgerPlace(dir_okay=False, path_type=Path)
RELEASE = click.argument("file", metavar="RELEASE", type=INPUT_FILE)
FORCE = click.option("--force", is_flag=True, help="Overwrite an existing output file.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ALPHA = click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Intervals have confidence level 1 - alpha."
)
NEIGHBOURS_OPTION = click.option(
    "--neighbours",
    type=click.Choice(NEIGHBOURS),
    default="add-remove",
    show_default=True,
    help="Neighbouring tables differ by one row added or removed, or by one row replaced.",
)


def schema_option(
    *, required: bool = False, help: str = "Schema: bounds and levels of the columns, TOML or JSON."
) -> Decorator:
    """Return the option ``--schema``."""
    return click.option("--schema", "-s", "schema_file", type=INPUT_FILE, required=required, help=help)


def out_option(help: str, *, required: bool = False) -> Decorator:
    """Return the option ``--out``."""
    return click.option("--out", "-o", type=click.Path(path_type=Path), required=required, help=help)


def refuse_lone_force(force: bool, output: Path | None) -> None:
    """Reject --force without an output file."""
    if force and output is None:
        raise click.UsageError("--force has no effect without an output file. Omit it.")


def collected(options: Sequence[Any], collect: Callable[[dict[str, Any]], None]) -> Decorator:
    """Return a decorator that adds options and lets ``collect`` replace their values by one value."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            collect(given)
            return command(**given)

        for option in reversed(options):
            called = option(called)
        return called

    return decorate


# ---------------------------------------------------------------------------------------------------------------
# Tables
_FORMATS = [suffix.removeprefix(".") for suffix in PLAIN_SUFFIXES]
_READING = (
    click.option("--query", help="SQL query on a DuckDB database, which is opened read-only."),
    click.option(
        "--format", "kind", type=click.Choice(_FORMATS), help='Format of standard input (SOURCE "-"). Default: csv.'
    ),
    click.option("--delimiter", help="CSV: character between fields, e.g. ';'. Default: comma, or tab in TSV files."),
    click.option(
        "--quoting/--no-quoting",
        default=None,
        help="CSV: whether double quotes enclose fields. Default: yes, except in TSV files.",
    ),
    click.option("--quoted-newlines", is_flag=True, help="CSV: quoted fields may contain line breaks."),
    click.option("--na-value", "na_values", multiple=True, help="CSV: text that denotes a missing value. Repeatable."),
    click.option("--skip-initial-space", is_flag=True, help="CSV: ignore spaces after a delimiter."),
)
_EXPECTED_ROWS = click.option("--expected-rows", type=int, help="Fail if the table has a different number of rows.")
_ROW_BY_ROW = click.option(
    "--row-by-row",
    is_flag=True,
    help=(
        "Declare that each stored row affects at most one row of the --query result. The query plan is then not "
        "checked."
    ),
)
UNIT = (
    click.option("--privacy-unit", help="Privacy-unit column: all rows of a unit are protected together."),
    click.option("--max-contributions", type=int, help="Maximum number of rows counted per privacy unit."),
)
WEIGHT = click.option("--weight", help="Column of sampling weights, numeric with lower bound 0.")
TOPCODE = click.option(
    "--topcode/--no-topcode",
    default=True,
    help="Top-code heavy-tailed numeric columns at thresholds estimated within the budget. Default: --topcode.",
)
TABLES = click.option("--table", "tables", multiple=True, help="Pair of columns A,B to cross-tabulate. Repeatable.")
_BOUNDING = (
    click.option(
        "--contribution-bounding",
        type=click.Choice(BOUNDS),
        help="For privacy units with more rows: scale down all of their rows (default), or sample some of them.",
    ),
    click.option("--sorted-by-unit", is_flag=True, help="SOURCES are sorted by privacy unit. This is checked."),
)


@dataclass(frozen=True)
class Sources:
    """The tables named on the command line, and how they are read.

    Attributes
    ----------
    names : tuple of str
        Paths, patterns, or ``-`` for standard input.
    """

    names: tuple[str, ...]
    query: str | None
    kind: str | None
    reading: ReadOptions
    unit: PrivacyUnit | None

    @contextmanager
    def opened(self, *, out: Path | None = None, others: Sequence[Path | None] = ()) -> Iterator[Any]:
        """Yield the data. ``out``, a file to be written, must differ from the sources and from ``others``."""
        names = self.names
        if self.kind is not None and "-" not in names:
            raise click.UsageError('--format applies to standard input only. Give "-" as a source, or omit --format.')
        if names.count("-") > 1:
            raise click.UsageError('Standard input can be read only once. Give "-" once.')
        if out is not None:
            refuse_inputs(out, [name for name in (*names, *others) if name not in ("-", None)])
        if self.query is not None:
            if len(names) != 1 or names[0] == "-":
                raise click.UsageError("--query requires exactly one source, a DuckDB database file.")
            yield DuckDBQuery(names[0], self.query)
            return
        for name in names:
            if is_database(name):
                raise click.UsageError(f"{name} is a database. Give --query to select rows.")
        with ExitStack() as stack:
            found = [stack.enter_context(_copied(self.kind or "csv")) if name == "-" else name for name in names]
            yield found[0] if len(found) == 1 else found


@contextmanager
def _copied(kind: str) -> Iterator[str]:
    """Copy standard input to a temporary file and yield its name."""
    with tempfile.TemporaryDirectory(prefix="gaussmix-") as folder:  # mode 0700
        file = Path(folder) / f"{STANDARD_INPUT}.{kind}"
        with file.open("xb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        if not file.stat().st_size:
            raise DataError("Standard input is empty.")
        yield str(file)


def table_options(
    *, several: bool = True, rows: bool = True, unit: bool = False, aggregates: bool = False
) -> Decorator:
    """Add the sources and the options of reading them, passed to the command as one `Sources`.

    Parameters
    ----------
    several : bool
        Accept more than one source.
    rows : bool
        Add ``--expected-rows``.
    unit : bool
        Add the privacy unit.
    aggregates : bool
        Add ``--row-by-row`` and, with ``unit``, contribution bounding.
    """
    argument = click.argument(
        "sources", nargs=-1 if several else 1, required=True, metavar="SOURCES..." if several else "SOURCE"
    )
    options = [argument, *_READING]
    options += [_ROW_BY_ROW] * aggregates + [_EXPECTED_ROWS] * rows
    options += [*UNIT * unit, *_BOUNDING * (unit and aggregates)]

    def collect(given: dict[str, Any]) -> None:
        names = given["sources"] if several else (given["sources"],)
        missing = given.pop("na_values") or None
        csv = CsvOptions(
            na_values=missing,
            **{name: given.pop(name) for name in ("delimiter", "quoting", "quoted_newlines", "skip_initial_space")},
        )
        typed = (".moments", *(suffix for known in FORMATS if not known.types_are_guessed for suffix in known.suffixes))
        if csv != CsvOptions() and all(is_database(name) or name.lower().endswith(typed) for name in names):
            raise click.UsageError("CSV options have no effect because no CSV file is read. Omit them.")
        reading = ReadOptions(
            csv=csv,
            progress=True,
            expected_rows=given.pop("expected_rows", None),
            row_by_row=given.pop("row_by_row", False),
            sorted_by_unit=given.pop("sorted_by_unit", False),
        )
        declared = unit_of(
            *(given.pop(name, None) for name in ("privacy_unit", "max_contributions", "contribution_bounding"))
        )
        given["sources"] = Sources(names, given.pop("query"), given.pop("kind"), reading, declared)

    return collected(options, collect)


def unit_of(
    column: str | None, max_contributions: int | None, contribution_bounding: ContributionBounding | None = None
) -> PrivacyUnit | None:
    """Return the declared privacy unit; None for one row."""
    if column is None:
        if max_contributions is not None or contribution_bounding is not None:
            raise ArgumentError("--max-contributions and --contribution-bounding require --privacy-unit.")
        return None
    if max_contributions is None:
        raise DeclarationError(
            "--privacy-unit requires --max-contributions, the maximum number of rows counted per unit. "
            "Choose it without looking at the data."
        )
    return PrivacyUnit(column, max_contributions, contribution_bounding or "scale")


# ---------------------------------------------------------------------------------------------------------------
# Budget
_BUDGET = (
    click.option("--epsilon", "-e", type=float, help="ε of this release."),
    click.option("--delta", "-d", type=float, help="δ of this release, for example 1e-6."),
    click.option(
        "--neighbours",
        type=click.Choice(NEIGHBOURS),
        help=(
            "Neighbouring tables differ by one row added or removed, or by one row replaced. Default: add-remove, or "
            "that of the ledger."
        ),
    ),
    click.option(
        "--ledger",
        type=LEDGER,
        help="Ledger to charge, created by 'gaussmix ledger create'. Replaces --epsilon and --delta.",
    ),
    click.option(
        "--share",
        metavar="SHARE",
        help="Share of the ledger's budget, e.g. 0.1 or 1/3. Default: the share of one planned release.",
    ),
    click.option("--note", default="", help="Note stored in the ledger."),
)


def _collect_budget(given: dict[str, Any]) -> None:
    if given["epsilon"] == math.inf:
        raise click.UsageError(
            "--epsilon must be finite: with infinite ε the output would be as sensitive as the rows."
        )
    given["budget"] = Budget(
        **{name: given.pop(name) for name in ("epsilon", "delta", "neighbours", "ledger", "share", "note")}
    )


budget_options = collected(_BUDGET, _collect_budget)
"""Add the options of the budget of a release, passed to the command as one `Budget`."""


# ---------------------------------------------------------------------------------------------------------------
# Printed results
@dataclass(frozen=True)
class Printing:
    """How a result is printed: as "text", "json", "csv" or "latex", with intervals of level 1 - alpha."""

    style: str
    alpha: float


def _collect_printing(given: dict[str, Any]) -> None:
    chosen = [name for name in ("json", "csv", "latex") if given.pop(f"as_{name}")]
    if len(chosen) > 1:
        raise click.UsageError("--json, --csv and --latex are mutually exclusive. Give one of them.")
    given["printing"] = Printing(chosen[0] if chosen else "text", given.pop("alpha"))


printing_options = collected(
    (
        ALPHA,
        JSON,
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV with full precision."),
        click.option("--latex", "as_latex", is_flag=True, help="Print a LaTeX tabular."),
    ),
    _collect_printing,
)
"""Add the forms of a printed result, passed to the command as one `Printing`."""


_COMMA = re.compile(r",(?![^(]*\))")  # outside parentheses
PREDICTORS = click.option(
    "--predictors",
    multiple=True,
    metavar="NAME,...",
    help="Predictors, separated by commas; repeatable. Default: all other columns.",
)


def names_in(release: Release, given: Sequence[str]) -> list[str] | None:
    """Return names of columns and terms, split at commas outside parentheses; None if the option is not given."""
    names: list[str] = []
    known = {*release.schema.parts, *release.certificate.schema.columns}
    for text in given:
        names += [text] if text in known else [name.strip() for name in _COMMA.split(text)]
    if not all(names):
        raise click.UsageError("A list of columns must not be empty or have an empty entry.")
    return names or None
