r"""One-way marginals of a table: exact counts on public cells, sums and sums of squares of every column. **Sensitive**.

Marginals are taken of the columns as declared, before terms, row weights' square roots, top-coding and norm clipping:
the base schema (:class:`gaussmix.releases.marginals.MarginalPlan`). A row r of that encoding, whole numbers of norm at
most 2²⁰, contributes three vectors, each multiplied by the weight W/2²⁰ of the row:

- one cell of each of K columns, and of each of T declared two-way tables: norm √(K + T);
- r_j of the L columns that are numbers, and of the intercept: each at most ω, the largest entry;
- q_j = r_j²/ω of the numbers, rounded to whole numbers. As |r_j| ≤ ω are whole numbers, |q_j| ≤ |r_j|.

So adding or removing a row changes the counts by a vector of norm at most √(K + T), and sums with squares by one of
norm at most √(2L + 1)·ω. Replacing a row changes both by at most √2 times that. Counts: two cells of each column. Sums
with squares: for entries a, b with |a|, |b| ≤ ω, (a - b)² + (a²/ω - b²/ω)² = (a - b)²(1 + (a + b)²/ω²) ≤ 4ω², rounding
included, because |a - b| + |a + b| ≤ 2ω; the intercept does not change: 4Lω² in all. (Sums alone would change by twice
their norm.) With weights the change is convex in each row's weight, and largest where a weight is 0 or 1.

**Weights.** W = ⌊2²⁰ w/w_max⌋ multiplies the row itself, not its square root, so that sums are weighted sums. Without
row weights W = 2²⁰.

**Privacy units.** All p rows of a unit are multiplied by min(1, j/p), j the contribution bound: their weights add up to
at most j, and so every bound above is multiplied by j. (The factor that bounds a Gram matrix would not bound sums.)

A row of zeros, whose intercept is 0, is in no cell and adds nothing.

>>> cells = cells_of(Schema.of({"age": [0, 100], "smoker": "boolean"}))
>>> [(found.column, found.size) for found in cells.columns]
[('age', 46), ('smoker', 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector, set_field
from gaussmix.data.encode import BlockEncoder, pieces
from gaussmix.data.gram import Query
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.data.terms import missing_name
from gaussmix.errors import DeclarationError

NONE_OF_THESE = "(none of these)"
"""Label of rows whose value is not a declared level, in columns with ``unknown="zero"``."""

_ONE = 1 << FRACTION_BITS

EQUAL_CELLS = 32
DEPTH = 12
"""A grid has 32 equal cells, and cells halved 12 times towards the bounds, and towards 0 if it lies inside."""

_BINS = 1 << DEPTH
_MOST_IN_BIN = 3


def grid(lower: float, upper: float) -> Floats:
    """Return public edges between declared bounds that resolve skewed columns as well as even ones.

    >>> edges = grid(0.0, 4096.0)
    >>> edges[:4].tolist(), edges[-2:].tolist()
    ([0.0, 1.0, 2.0, 4.0], [4095.0, 4096.0])
    """
    width = upper - lower
    edges = [lower + width * i / EQUAL_CELLS for i in range(EQUAL_CELLS + 1)]
    for step in (2.0**-j for j in range(1, DEPTH + 1)):
        edges.append(lower + width * step)
        edges += [upper * step, lower * step] if lower < 0 < upper else [upper - width * step]
    if lower < 0 < upper:
        edges.append(0.0)
    edges.sort()
    kept = [edges[0]]
    for edge in edges[1:]:
        if edge - kept[-1] > 1e-9 * width:
            kept.append(edge)
    kept[-1] = upper
    return np.array(kept)


def has_marginals(schema: Schema) -> bool:
    """Return whether a table with this schema has marginals, that is, no vector column."""
    return not any(isinstance(column, Vector) for column in schema.columns.values())


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """Public cells of one column.

    Attributes
    ----------
    column : str
    labels : tuple of str
        Of the cells: levels of a category, false and true, or empty for a number. Missing values of a number come last.
    edges : array (J + 1,) or None
        Of the J cells [e₁, e₂), …, [e_J, e_(J+1)] of a number, in original units.
    entries : tuple of int
        Encoded columns.
    limits : array (J - 1,)
        Inner edges as encoded entries.
    missing : int or None
        Encoded column that says where a number is missing.
    is_boolean : bool
    """

    column: str
    labels: tuple[str, ...]
    edges: Floats | None
    entries: tuple[int, ...]
    limits: Floats
    missing: int | None
    is_boolean: bool = False

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.labels) if self.edges is None else len(self.edges) - 1 + (self.missing is not None)

    def places(self, rows: Floats) -> Integers:
        """Return the cell of every encoded row."""
        entries = rows[:, list(self.entries)]
        if self.edges is not None:
            found = self._limits_up_to(entries[:, 0])
            return found if self.missing is None else np.where(rows[:, self.missing] != 0, self.size - 1, found)
        if self.is_boolean:
            return np.asarray((entries[:, 0] > 0).astype(np.int64))
        return np.where(entries.any(axis=1), np.argmax(entries, axis=1), self.size - 1)

    def _limits_up_to(self, x: Floats) -> Integers:
        """Return how many limits are at most x: those in earlier bins, from a table, and then one after the other.

        The bin of x does not decrease with x. Limits that crowd into one bin are searched instead.
        """
        if self._table is None:
            return np.asarray(np.searchsorted(self.limits, x, side="right"))
        before, limits, most = self._table
        found = before.take(self._bins_of(x))
        for _ in range(most):
            found += x >= limits.take(found)
        return found

    def _bins_of(self, x: Floats) -> Integers:
        first, width = self.limits[0], self.limits[-1] - self.limits[0]
        return np.asarray(np.clip((x - first) * (_BINS / max(width, 1.0)), 0, _BINS - 1).astype(np.intp))

    @cached_property
    def _table(self) -> tuple[Integers, Floats, int] | None:
        """The number of limits in the bins before each bin, the limits with ∞ last, and how many one bin has."""
        if not len(self.limits):
            return None
        bins = self._bins_of(self.limits)
        most = int(np.bincount(bins).max())
        if most > _MOST_IN_BIN:
            return None
        return np.searchsorted(bins, np.arange(_BINS), side="left"), np.append(self.limits, np.inf), most


@dataclass(frozen=True, eq=False)
class CellLayout:
    """Cells of all columns and of declared two-way tables, one after the other.

    Attributes
    ----------
    columns : tuple of ColumnCells
    tables : tuple of (str, str)
    numbers : dict of str to int
        Encoded columns of the numbers, by name: those that are summed.
    sizes : tuple of int
        Number of cells of each of K columns, then of each of T tables: a row is in one cell of each.
    total : int
        Number of all cells.
    """

    columns: tuple[ColumnCells, ...]
    tables: tuple[tuple[str, str], ...] = ()
    numbers: dict[str, int] = field(init=False)
    sizes: tuple[int, ...] = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        own = {cells.column: cells.size for cells in self.columns}
        sizes = (*own.values(), *(own[rows] * own[columns] for rows, columns in self.tables))
        numbers = {cells.column: cells.entries[0] for cells in self.columns if cells.edges is not None}
        for name, value in {"numbers": numbers, "sizes": sizes, "total": sum(sizes)}.items():
            set_field(self, name, value)

    def split(self, counts: Floats) -> dict[str | tuple[str, str], Floats]:
        """Return counts by column and, as a matrix, by table."""
        own = {cells.column: cells.size for cells in self.columns}
        parts = np.split(counts, np.cumsum(self.sizes)[:-1])
        found: dict[str | tuple[str, str], Floats] = dict(zip(own, parts[: len(own)], strict=True))
        for pair, cells in zip(self.tables, parts[len(own) :], strict=True):
            found[pair] = cells.reshape(own[pair[0]], own[pair[1]])
        return found


def cells_of(schema: Schema, *, weight: str | None = None, tables: Sequence[tuple[str, str]] = ()) -> CellLayout:
    """Return the cells of the columns of a base schema; the column of row weights has none."""
    plan = BlockEncoder.of(schema)
    columns = tuple(_cells(schema, plan, name, column) for name, column in schema.columns.items() if name != weight)
    levels = {cells.column for cells in columns if cells.edges is None}
    for place, pair in enumerate(tables):
        if isinstance(pair, str) or len(pair) != 2 or pair[0] == pair[1]:
            raise DeclarationError(f"tables must be a list of pairs of different columns, got {pair!r}.")
        for name in pair:
            if name not in levels:
                raise DeclarationError(
                    f"tables: {name!r} must be a categorical or boolean column of the schema. Numeric columns have no "
                    "levels."
                )
        if set(pair) in map(set, tables[:place]):
            raise DeclarationError(f"tables must not contain a pair twice, got {tuple(pair)!r}. Each table has a cost.")
    return CellLayout(columns, tuple((str(rows), str(columns)) for rows, columns in tables))


def _cells(schema: Schema, plan: BlockEncoder, name: str, column: Column) -> ColumnCells:
    entries = schema.groups[name]
    if isinstance(column, Numeric):
        edges, at = grid(column.lower, column.upper), entries[0]
        # As rows are encoded: a value below an edge is never counted beyond it by more than 2⁻²⁰ of the row's norm.
        limit = float(plan.limits[at])
        limits = np.trunc(np.clip((edges[1:-1] - plan.centre[at]) * plan.multiplier[at], -limit, limit))
        missing = schema.groups[missing_name(name)][0] if column.missing == "indicator" else None
        return ColumnCells(name, (), edges, entries, limits, missing)
    if isinstance(column, Boolean):
        return ColumnCells(name, ("false", "true"), None, entries, np.empty(0), None, is_boolean=True)
    if isinstance(column, Categorical):
        labels = column.labels + (NONE_OF_THESE,) * (column.unknown == "zero")
        return ColumnCells(name, labels, None, entries, np.empty(0), None)
    raise DeclarationError(f"Column {name!r} is a vector, for which marginal counts are not supported.")


@dataclass(frozen=True, repr=False, eq=False)
class MarginalSums:
    """Counts in units of 2⁻²⁰ rows; sums and sums of squares of encoded entries in units of 2⁻⁴⁰. **Sensitive**.

    There are sums of the numbers and, last, of the intercept, and sums of squares of the numbers.
    """

    counts: Integers
    sums: Integers
    squares: Integers
    n: int

    def __add__(self, other: MarginalSums) -> MarginalSums:
        return MarginalSums(
            self.counts + other.counts, self.sums + other.sums, self.squares + other.squares, self.n + other.n
        )


@dataclass(eq=False)
class MarginalQuery(Query[MarginalSums]):
    """Counts of every column of a base schema, sums and sums of squares of its numbers. Public.

    Attributes
    ----------
    schema : Schema
        A base schema.
    cells : CellLayout
    weight : str or None
        Column of row weights.
    max_contributions : int
        Contribution bound j of a privacy unit.
    """

    schema: Schema
    cells: CellLayout
    weight: str | None = None
    max_contributions: int = 1

    def _start(self, m: int) -> None:
        self.set_up(m)
        schema, self.n = self.schema, 0
        self.constant, self.numbers = schema.groups[INTERCEPT][0], list(self.cells.numbers.values())
        self.weights = None if self.weight is None else schema.groups[self.weight][0]
        # Columns and intercept of a base schema all have weight 1, so that no entry is larger than this.
        self.largest = schema.in_units(1.0)
        self.counts = np.zeros(self.cells.total, dtype=np.int64)
        # Python's integers: weighted sums in units of 2⁻⁴⁰ pass 2⁶³ after eight million rows.
        numbers = len(self.numbers)
        self.sums, self.squares = np.zeros(numbers + 1, dtype=object), np.zeros(numbers, dtype=object)

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        # W of every row: whole numbers from 0 to 2²⁰.
        weights = np.where(rows[:, self.constant] != 0, _ONE, 0)
        if self.weights is not None:  # entries from -ω to ω are weights from 0 to w_max
            weights = weights * (rows[:, self.weights].astype(np.int64) + self.largest) // (2 * self.largest)
        if starts is not None:
            sizes = np.diff(np.append(starts, len(rows)))
            weights = weights * self.max_contributions // np.repeat(np.maximum(sizes, self.max_contributions), sizes)
        for piece in pieces(len(rows), self.block_rows):  # a privacy unit may have more rows
            part, own = rows[piece], weights[piece]
            places = {cells.column: cells.places(part) for cells in self.cells.columns}
            width = {cells.column: cells.size for cells in self.cells.columns}
            found = [*places.values(), *(places[a] * width[b] + places[b] for a, b in self.cells.tables)]
            start = 0
            for place, size in zip(found, self.cells.sizes, strict=True):
                # At most 2¹² weights of at most 2²⁰: float64 adds them exactly.
                self.counts[start : start + size] += np.bincount(place, own, minlength=size).astype(np.int64)
                start += size
            # Products of at most 2⁴⁰, at most 2¹² of them: below 2⁵³, exact in any order.
            entries = part[:, self.numbers]
            self.sums += (own @ part[:, [*self.numbers, self.constant]]).astype(np.int64)
            self.squares += (own @ np.rint(entries * entries / self.largest)).astype(np.int64)
        self.n += len(rows)

    def result(self) -> MarginalSums:
        """Return the sums over all rows that were added."""
        return MarginalSums(self.counts.copy(), self.sums.copy(), self.squares.copy(), self.n)
