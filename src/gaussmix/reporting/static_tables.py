"""Static tables of a page: description, group means, correlations and cross-tables.

**Private**: functions of the release. They are written into the page as HTML; the script of the page computes only
models.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gaussmix.errors import ArgumentError
from gaussmix.models.coding import kinds_of
from gaussmix.models.crosstab import NOISY
from gaussmix.models.describe import chosen_columns, counted_early_words
from gaussmix.models.release import Release
from gaussmix.models.row_counts import row_count
from gaussmix.models.whole_rows import counted_early
from gaussmix.tables.columns import Boolean, Categorical, Numeric
from gaussmix.tables.units import unweighted_units

__all__ = ["CorrelationTable", "StaticTable", "StaticTables", "static_tables"]

MOST_LEVELS = 100
"""Maximum number of levels of a category, or entries of a vector, shown in tables."""

MOST_CORRELATED = 60
"""Maximum number of encoded columns in the table of correlations."""

MOST_PAIRS = 12
MOST_CELLS = 400
"""Maximum number of cross-tables, and of cells in each."""

_SHADES = 9  # colour steps between correlations of 0 and 1


@dataclass(frozen=True)
class StaticTable:
    """A table as text.

    Attributes
    ----------
    caption : str
    head : tuple of str
    rows : tuple of tuples of str
        The first entry of a row is its label.
    notes : tuple of str
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CorrelationTable:
    """The lower triangle of a matrix of correlations, each with a class for its colour.

    Attributes
    ----------
    names : tuple of str
    rows : tuple of tuples of (str, str)
        Text and class: ``above`` or ``below`` 0 with a step from 0 to 9.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class StaticTables:
    """All static tables of a page.

    Attributes
    ----------
    description : StaticTable
    means : StaticTable or None
        Means of the response within the levels of every category, if the response is numeric or Boolean.
    correlations : CorrelationTable or None
        None if there are more than :data:`MOST_CORRELATED` encoded columns.
    crosstabs : tuple of StaticTable
    notes : tuple of str
        Tables that were omitted, with reasons.
    """

    description: StaticTable
    means: StaticTable | None
    correlations: CorrelationTable | None
    crosstabs: tuple[StaticTable, ...]
    notes: tuple[str, ...]


def static_tables(release: Release, response: str | None, *, alpha: float) -> StaticTables:
    """Compute the tables, with intervals of level 1 - alpha.

    Raise :class:`~gaussmix.errors.ArgumentError` if rows have weights or the release has no intercept.
    """
    schema, notes = release.schema, []
    unweighted_units(schema)
    every = chosen_columns(schema, None)
    shown = [name for name in every if len(schema.groups[name]) <= MOST_LEVELS]
    if len(shown) < len(every):
        large = ", ".join(name for name in every if name not in shown)
        notes.append(f"Columns with more than {MOST_LEVELS} levels or entries are omitted: {large}.")
    classes = [name for name in shown if isinstance(schema.columns[name], Categorical | Boolean)]
    correlations = None
    if sum(len(schema.groups[name]) for name in shown) <= MOST_CORRELATED:
        correlations = _correlations(release, shown)
    else:
        notes.append(f"Correlations of more than {MOST_CORRELATED} encoded columns are printed by gaussmix corr.")
    crosstabs, words = _crosstabs(release, classes, alpha)
    return StaticTables(
        _description(release, shown, alpha), _means(release, response, classes, alpha), correlations, crosstabs,
        (*notes, *words),
    )  # fmt: skip


def _description(release: Release, shown: Sequence[str], alpha: float) -> StaticTable:
    found = release.describe(shown, alpha=alpha)
    rows = []
    for term, statistic, estimate, error, low, high in zip(*found.columns.values(), strict=True):
        count = statistic == "count"
        ends = f"{low:,.0f} to {high:,.0f}" if count else _range(low, high)
        rows.append((term, statistic, f"{estimate:,.0f}" if count else _digits(estimate), _digits(error, 3), ends))
    head = ("Column", "Statistic", "Estimate", "Std. error", _level(alpha))
    return StaticTable("Rows, means, standard deviations and shares of levels", head, tuple(rows), found.notes)


def _means(release: Release, response: str | None, classes: Sequence[str], alpha: float) -> StaticTable | None:
    """Return means of a numeric column, or shares of true of a Boolean, by category."""
    by = [name for name in classes if name != response]
    if not by or response is None or not isinstance(release.schema.columns.get(response), Numeric | Boolean):
        return None
    rows, unbounded = [], False
    for name in by:
        for label, mean, error, low, high in zip(
            *release.means(response, name, alpha=alpha).columns.values(), strict=True
        ):
            rows.append((f"{name}={label}", _digits(mean), _digits(error, 3), _range(low, high)))
            unbounded |= not math.isfinite(low)
    words = ("An interval is unbounded where the number of rows of a level cannot be distinguished from 0.",)
    head = ("Level", f"Mean of {response}", "Std. error", _level(alpha))
    return StaticTable(f"Means of {response} within levels", head, tuple(rows), words if unbounded else ())


def _correlations(release: Release, shown: Sequence[str]) -> CorrelationTable:
    found = release.corr(shown)
    return CorrelationTable(
        found.names,
        tuple(tuple(_shaded(r) for r in row[: place + 1]) for place, row in enumerate(found.values.tolist())),
    )


def _shaded(r: float) -> tuple[str, str]:
    if not math.isfinite(r):
        return "–", ""
    return f"{r:z.2f}", f"{'below' if r < 0 else 'above'} shade-{round(_SHADES * abs(r))}"


def _crosstabs(
    release: Release, classes: Sequence[str], alpha: float
) -> tuple[tuple[StaticTable, ...], tuple[str, ...]]:
    """Return cross-tables of the first pairs of categories, and notes about them."""
    every = list(itertools.combinations(classes, 2))
    if not every:
        return (), ()
    try:
        row_count(release)
    except ArgumentError as error:
        return (), (str(error),)
    levels = {name: len(kinds_of(release.schema, name)[0]) for name in classes}
    pairs = [pair for pair in every if levels[pair[0]] * levels[pair[1]] <= MOST_CELLS][:MOST_PAIRS]
    notes = [NOISY]
    if len(pairs) < len(every):
        notes.append(
            f"Cross-tables are shown for the first {len(pairs)} of {len(every)} pairs of categorical columns, in the "
            f"order of declaration and with at most {MOST_CELLS} cells; gaussmix crosstab prints the others."
        )
    early = [name for pair in pairs if counted_early(release.statistic, pair) for name in pair]
    notes += [counted_early_words(early)] * bool(early)
    found = []
    for one, two in pairs:
        table = release.crosstab(one, two)
        head, *rows = table.cells(alpha)
        caption = f"{one} by {two}: noisy counts, ± half the {_level(alpha)}"
        found.append(StaticTable(caption, tuple(head), tuple(map(tuple, rows)), (str(table.independence),)))
    return tuple(found), tuple(notes)


def _level(alpha: float) -> str:
    return f"{100 * (1 - alpha):g} % interval"


def _digits(value: float, many: int = 4) -> str:
    return "" if math.isnan(value) else f"{value:.{many}g}"


def _range(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}" if math.isfinite(low) and math.isfinite(high) else "unbounded"
