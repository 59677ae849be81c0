r"""Rows drawn from a distribution of the predictors that has the second moments of a release: post-processing.

A release has second moments of all columns and counts of single columns, and nothing about three columns at once. Where
a model needs expectations of other functions of a row (:mod:`gaussmix.models.likelihood`), they are taken over rows
that are drawn here from a distribution with the released moments:

1. Categories, booleans and missing-value indicators are drawn one after the other in the order of the schema. The
   probabilities of each are linear in the indicators of those before it, by least squares. The classes of the response
   come last.
2. Numbers are normal given all of these, with means linear in them and one covariance.
3. A number whose cells were counted (:mod:`gaussmix.releases.marginals`) is mapped through its rank to the quantile
   function of its cells. The map changes means and covariances, which are therefore corrected by their differences from
   the released ones `ROUNDS` times.
4. Powers, products and splines are computed from the values drawn.

**Noise.** Least squares on noisy moments M with noise of shape N divides by what noise alone may have made. The
coefficients of a column with the cross moments g minimise ‖Mθ - g‖² in the metric N⁻¹ plus d‖θ‖² in the metric N:

.. math:: \theta = (M N^{-1} M + d N)^{-1} M N^{-1} g .

In the metric of the noise a direction with the signal h is divided by h + d/h in place of h: strong directions keep
their value, and directions within the edge √d of the noise count little. Before that, moments of indicators are set to
what they must be: an indicator is its own square, two levels of a category never meet, and no cell has more rows than
its margins.

**Points.** The uniform numbers are a Sobol sequence with a fixed digital shift, centred in its cells. A release
therefore gives the same rows at every call, on every machine and in the page (`directions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.terms import Block, Log, Numbers, TermValues, bases_of, logarithm, missing_name, parse_terms
from gaussmix.releases.counts import RowCounts
from gaussmix.releases.marginals import without_empty_ends
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "POINTS",
    "CellQuantiles",
    "PredictorDistribution",
    "bases_in_release",
    "cell_quantiles",
    "directions",
    "number_behind",
    "quantiles_of",
    "sobol_points",
    "two_valued",
    "unequal_shares",
]

POINTS = 16_384
"""Number of rows drawn, a power of two; the page draws as many."""

BETA_CELLS = 128
"""Number of cells of a shape that is not counted."""

ROUNDS = 3
"""Number of times that means and covariances of numbers are corrected after they were mapped to their shapes."""

_LEAST = 1e-9
_LEAST_SHARE = 1e-7  # of a level: a share of 0 would make moments singular
_FLOOR = 1e-9  # least variance of a number given the others, relative to its mean square
_LARGEST_DISTANCE = 3.0  # of Σ u(1 - u) from 0, in standard errors, for an entry with two values
_LEAST_VARIANCE = 1e-6  # of an entry of a vector with bounds -1 and 1, and least distance of its mean from them
_LARGEST_ERROR = 0.05  # of Σ u(1 - u)/n: that of a number that is uniform between its bounds is 1/6
_GOLDEN = 2654435769  # 2³² over the golden ratio: its multiples shift the dimensions by different amounts


# ---------------------------------------------------------------------------------------------------------------
# Points
def directions(dimensions: int, points: int = POINTS) -> tuple[Integers, Integers]:
    """Return the direction numbers of the Sobol sequence, shape (bits, dimensions), and its shifts (dimensions,).

    Point n + 1 is point n XOR the direction number of the lowest zero bit of n, so that point 2^(k + 1) - 1 is the
    direction number of bit k alone (Gray code). They are those of `scipy.stats.qmc.Sobol`, in units of 1/points.
    """
    bits = points.bit_length() - 1
    first = qmc.Sobol(dimensions, scramble=False).random(points)[2 ** np.arange(1, bits + 1) - 1]
    shifts = (np.arange(1, dimensions + 1, dtype=np.uint64) * _GOLDEN % 2**32) >> np.uint64(32 - bits)
    return np.asarray(np.rint(first * points), dtype=np.int64), shifts.astype(np.int64)


def sobol_points(dimensions: int, points: int = POINTS) -> Floats:
    """Return a shifted Sobol sequence in (0, 1), shape (points, dimensions): each column has every (i + ½)/points once.

    >>> np.sort(sobol_points(3, 4), axis=0)[:, 2].tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    own, shifts = directions(dimensions, points)
    found = np.broadcast_to(shifts, (points, dimensions)).copy()
    for k, direction in enumerate(own):  # point n has the directions of the bits of its Gray code
        n = np.arange(points)
        found[((n ^ (n >> 1)) >> k & 1) == 1] ^= direction
    return np.asarray((found + 0.5) / points)


# ---------------------------------------------------------------------------------------------------------------
# Shapes of numbers
@dataclass(frozen=True, eq=False)
class CellQuantiles:
    """The quantile function of a number from counts of its cells, uniform within cells.

    Attributes
    ----------
    below : array (J + 1,)
        Share of the rows below each edge.
    low, high : array (J,)
        Ends of the cells; of a column of whole numbers, the least and the largest whole number in them.
    whole : bool
    """

    below: Floats
    low: Floats
    high: Floats
    whole: bool

    def __call__(self, rank: Floats) -> Floats:
        """Return the values of ranks in (0, 1)."""
        cell = np.clip(np.searchsorted(self.below, rank, side="right") - 1, 0, len(self.low) - 1)
        share = self.below[cell + 1] - self.below[cell]
        part = np.clip((rank - self.below[cell]) / np.maximum(share, 1e-300), 0.0, 1 - 1e-12)
        low, width = self.low[cell], self.high[cell] - self.low[cell]
        return np.asarray(low + np.floor(part * np.maximum(width + 1, 1)) if self.whole else low + part * width)


def cell_quantiles(edges: Floats, counts: Floats, errors: Floats) -> CellQuantiles:
    """Return the quantile function of a number; cells at the ends that do not stand out from the noise are empty."""
    noise = float(np.median(errors))
    kept = np.maximum(without_empty_ends(counts, noise) if noise > 0 else counts, 0.0)
    if not kept.any():
        kept = np.diff(edges)
    below = np.append(0.0, np.cumsum(kept)) / kept.sum()
    low, high = np.ceil(edges[:-1]), np.ceil(edges[1:]) - 1  # whole numbers in the cells
    high[-1] = np.floor(edges[-1])
    if _are_whole(edges, counts, noise, low <= high):
        return CellQuantiles(below, low, high, True)
    return CellQuantiles(below, edges[:-1], edges[1:], False)


def _are_whole(edges: Floats, counts: Floats, noise: float, has_whole: NDArray[np.bool_]) -> bool:
    """Return whether a column appears to hold whole numbers: in narrow cells, rows are where whole numbers are."""
    narrow = np.diff(edges) < 0.5
    with_whole, without = (float(counts[narrow & own].sum()) for own in (has_whole, ~has_whole))
    return bool(with_whole > 5 * noise * math.sqrt(np.sum(narrow & has_whole)) and without < 0.1 * with_whole)


def unequal_shares(cells: int) -> Floats:
    """Return shares of the rows below the edges of cells that become narrow towards both ends: sin²(πi/2J)."""
    return np.asarray(np.sin(np.pi / 2 * np.arange(cells + 1) / cells) ** 2)


def quantiles_of(statistic: Transcript, index: int) -> CellQuantiles:
    """Return the quantile function of a number, an encoded column, in original units and before it is top-coded.

    Without cells it is that of the Beta distribution on the declared range with the mean and variance of the release.
    """
    schema, counts = statistic.schema, RowCounts(statistic)
    name = schema.encoded[index].source or ""
    base = number_behind(schema, name)
    if statistic.marginals is not None and base is not None:
        edges, found = counts.edges(base), counts.of(base)
        J = len(edges) - 1  # missing values come after the cells
        own = cell_quantiles(edges, found.values[:J], found.std_errors[:J])
        if base == name:
            return own
        column = schema.columns[base]
        least = column.lower if isinstance(column, Numeric) else 0.0
        ends = logarithm(np.maximum(edges, least))
        return CellQuantiles(own.below, ends[:-1], ends[1:], False)
    n, first, second = _moments_of(statistic, index)
    scale = float(schema.units.scales[index]) * schema.parts[name].weight
    share = min(max((first / n / scale + 1) / 2, _LEAST), 1 - _LEAST)
    room = share * (1 - share)
    variance = min(max((second / n - (first / n) ** 2) / (2 * scale) ** 2, _LEAST * room), (1 - 1e-6) * room)
    strength, low = room / variance - 1, float(schema.units.centres[index]) - scale
    below = unequal_shares(BETA_CELLS)
    values = low + 2 * scale * special.betaincinv(share * strength, (1 - share) * strength, below)
    return CellQuantiles(below, values[:-1], values[1:], False)


def _moments_of(statistic: Transcript, index: int) -> tuple[float, float, float]:
    """Return the number of rows, Σ(x - centre) and Σ(x - centre)² of a number or an entry of a vector."""
    schema = statistic.schema
    name = schema.encoded[index].source or ""
    if name in schema.columns:
        values = RowCounts(statistic).sums(name, schema.groups[name].index(index)).values
    else:
        own = statistic.predictive.mapped(np.vstack([schema.units.one, schema.units.deviations([index])])).moment
        values = np.array([own[0, 0], own[0, 1], own[1, 1]])
    n, first, second = values.tolist()
    return max(n, 1.0), first, max(second, 0.0)


# ---------------------------------------------------------------------------------------------------------------
# Rows
@dataclass(frozen=True, eq=False)
class PredictorDistribution:
    """The distribution of some parts of a release, and of a response.

    Attributes
    ----------
    statistic : Transcript
    sources : tuple of str
        Parts of the release.
    response : array (q, m)
        Combinations of encoded columns that are 1 in rows of a class and 0 in others, without one of the classes;
        (0, m) for a response that is no class.
    shaped : bool
        Whether numbers have the shapes of their cells; otherwise they are normal given the others.
    exposure : str or None
        A number that has its shape in any case.
    numbers_first : bool
        Whether numbers are drawn before levels, whose probabilities are then linear in them.
    booleans : bool
        Whether entries of vectors that appear to have two values are drawn as booleans (`two_valued`), and others whose
        mean is within a standard deviation of a bound have the shape of a Beta distribution.
    points : int
        Number of rows, a power of two.
    """

    statistic: Transcript
    sources: tuple[str, ...]
    response: Floats
    shaped: bool = True
    exposure: str | None = None
    numbers_first: bool = False
    booleans: bool = False
    points: int = POINTS

    @property
    def schema(self) -> Schema:
        """The schema of the release."""
        return self.statistic.schema

    @cached_property
    def rows(self) -> Floats:
        """Encoded rows, shape (points, m); 0 in columns of other parts."""
        return _Draw(self).rows()

    @property
    def drawn(self) -> tuple[list[str], list[int]]:
        """Names of the parts that are drawn as levels, and encoded columns that are drawn as numbers, in order."""
        schema = self.schema
        wanted = set(self.sources)
        for name in self.sources:
            wanted |= set(bases_in_release(schema, name))
        parts = [name for name in schema.parts if name in wanted]
        levels = [name for name in parts if _is_discrete(schema, name)]
        others = [name for name in parts if name not in levels and not bases_in_release(schema, name)]
        entries = [index for name in others for index in schema.groups[name]]
        return (
            [*levels, *(schema.names[i] for i in entries if i in self.two_valued)],
            [i for i in entries if i not in self.two_valued],
        )

    @property
    def has_assumptions(self) -> bool:
        """Whether it may differ from the distribution of the table without noise: not if it is that of one level."""
        levels, numbers = self.drawn
        return bool(numbers) or len(levels) > 1

    @cached_property
    def two_valued(self) -> dict[int, tuple[float, float]]:
        """Entries of vectors that are drawn as booleans, with their two values."""
        return two_valued(self.statistic, self.sources) if self.booleans else {}


def bases_in_release(schema: Schema, name: str) -> tuple[str, ...]:
    """Return the parts from which the values of a term are computed; empty for a part that is itself drawn.

    A term whose column is not in the release is drawn like a number, entry by entry.
    """
    part = schema.parts[name]
    if not isinstance(part, Block) or part.term is None:
        return ()
    found = []
    for base in bases_of(part.term):
        own = next((own for own in schema.parts if own == base or number_behind(schema, own) == base), None)
        if own is None:
            return ()
        found += [own, *([missing_name(base)] if missing_name(base) in schema.parts else [])]
    return tuple(dict.fromkeys(found))


def two_valued(statistic: Transcript, sources: Sequence[str]) -> dict[int, tuple[float, float]]:
    r"""Return the entries of bounded vectors that appear to have two values, as encoded columns, with these values.

    The values are the declared bounds, or 0 and 1. With u = (x - a)/(b - a), Σ u(1 - u) is 0 if x has the values a and
    b only. For the declared bounds it is positive otherwise: a variable on [a, b] with the mean m has at most the
    variance (m - a)(b - m), which only a variable with these two values attains. Other numbers may have Σ u(1 - u) = 0
    for 0 and 1 within wider bounds; a boolean with their mean then has their variance too. The sum has the noise of

    .. math:: \mathrm{Var}(u^\top M (1 - u)) = (u^\top N u)\,((1 - u)^\top N (1 - u)) + (u^\top N (1 - u))^2 .

    An entry whose noise exceeds `_LARGEST_ERROR` of the rows is not examined. Norm clipping changes the weights of
    rows, and thus nothing in a sum that is 0 in every row.
    """
    schema, noisy = statistic.schema, statistic.predictive
    one, found = schema.units.one, dict[int, tuple[float, float]]()
    rows = max(float(one @ noisy.moment @ one), 1.0)
    for name in sources:
        part = schema.parts[name]
        if not isinstance(part, Vector) or not part.bounded:
            continue
        for index, (centre, half) in zip(schema.groups[name], part.intervals, strict=True):
            pairs = [(centre - half, centre + half)]
            if pairs[0][0] <= 0 and pairs[0][1] >= 1:
                pairs.append((0.0, 1.0))
            distances = [_distance(schema.units.rows([index])[0], pair, one, noisy, rows) for pair in pairs]
            best = int(np.argmin(distances))
            if distances[best] <= _LARGEST_DISTANCE:
                found[index] = pairs[best]
    return found


def _distance(x: Floats, pair: tuple[float, float], one: Floats, noisy: NoisyMoment, rows: float) -> float:
    """Return |Σ u(1 - u)| in standard errors of its noise; infinite if the noise is too large."""
    low, high = pair
    u, v, N = (x - low * one) / (high - low), (high * one - x) / (high - low), noisy.shape
    error = math.sqrt(max(float(u @ N @ u) * float(v @ N @ v) + float(u @ N @ v) ** 2, 0.0))
    if error > _LARGEST_ERROR * rows:
        return math.inf
    return abs(float(u @ noisy.moment @ v)) / max(error, 1e-9 * rows)  # without noise there is rounding


def _is_discrete(schema: Schema, name: str) -> bool:
    part = schema.parts[name]
    return isinstance(part, Categorical | Boolean) or (isinstance(part, Block) and part.term is None)


def number_behind(schema: Schema, name: str) -> str | None:
    """Return the column of the table behind a number of the release: itself, or that of a logarithm."""
    if not isinstance(schema.parts[name], Numeric):
        return None
    if name in schema.columns:
        return name
    (term,) = parse_terms(name, ())
    return bases_of(term)[0] if isinstance(term, Log) else None


class _Draw:
    """The computation of `PredictorDistribution.rows`, one step after the other.

    V has the columns (1, indicators of levels but a reference level each, classes of the response, numbers), of which G
    are the second moments per row and N the shape of their noise.
    """

    def __init__(self, own: PredictorDistribution) -> None:
        self.own, self.schema = own, own.schema
        self.levels, self.numbers = own.drawn
        self.entries = {self.schema.names[index]: index for index in own.two_valued}
        self.places: dict[str, list[int]] = {}
        self.references: dict[str, int | None] = {}
        rows = [self.schema.units.one]
        for name in self.levels:
            indicators = self._indicators(name)
            self.places[name] = list(range(len(rows), len(rows) + len(indicators)))
            rows += indicators
        self.of_response = list(range(len(rows), len(rows) + len(own.response)))
        rows += list(own.response)
        self.of_numbers = list(range(len(rows), len(rows) + len(self.numbers)))
        rows += list(np.eye(self.schema.n_columns)[self.numbers])
        noisy = own.statistic.predictive.mapped(np.array(rows))
        size = max(float(noisy.moment[0, 0]), 1.0)
        self.N = noisy.shape / size
        self.G = _as_indicators(noisy.moment / size, [*self.places.values(), self.of_response])

    def _indicators(self, name: str) -> list[Floats]:
        """Return the combinations of encoded columns that are indicators of levels, without the largest level."""
        units, self.references[name] = self.schema.units, None
        if name in self.entries:
            index = self.entries[name]
            low, high = self.own.two_valued[index]
            return [(units.rows([index])[0] - low * units.one) / (high - low)]
        part, found = self.schema.parts[name], list(units.rows(self.schema.groups[name]))
        if isinstance(part, Categorical) and part.unknown != "zero":
            moment = self.own.statistic.predictive.moment
            self.references[name] = int(np.argmax([row @ moment @ units.one for row in found]))
            found = [row for place, row in enumerate(found) if place != self.references[name]]
        return found

    def rows(self) -> Floats:
        n, schema = self.own.points, self.schema
        levels = [own for own in (*self.places.values(), self.of_response) if own]
        marks = [self.places[name] for name in self.levels if isinstance(schema.parts.get(name), Block)]
        before = marks if self.own.numbers_first else levels  # where a number is missing is known before it is drawn
        U = sobol_points(max(len(levels) + len(self.numbers), 1), n)
        self.V, done, column = np.ones((n, len(self.G))), [0], 0
        for own in (*before, self.of_numbers, *(own for own in levels if own not in before)):
            if own is not self.of_numbers:
                self._draw_levels(U[:, [column]], done, own)
            elif own:
                self.V[:, own] = self._draw_numbers(special.ndtri(U[:, column : column + len(own)]), done)
            done, column = done + own, column + (len(own) if own is self.of_numbers else 1)
        R = np.zeros((n, schema.n_columns))
        R[:, list(schema.groups[INTERCEPT])] = schema.rounded_intercept
        for name in self.levels:
            self._write_levels(R, name)
        R[:, self.numbers] = self.V[:, self.of_numbers]
        self._write_terms(R)
        return R

    # -- levels ------------------------------------------------------------------------------------------------------
    def _draw_levels(self, u: Floats, done: list[int], own: list[int]) -> None:
        """Draw the indicators ``own``, or none of them, with probabilities that are linear in what is done."""
        p = np.maximum(self.V[:, done] @ least_squares_of(self.G, self.N, done, own), 0.0)
        rest = np.maximum(1 - p.sum(axis=1, keepdims=True), 0.0)
        ends = np.cumsum(np.hstack([p, rest]), axis=1)
        picked = (u * ends[:, -1:] > ends[:, :-1]).sum(axis=1)
        self.V[:, own] = picked[:, np.newaxis] == np.arange(len(own))

    def _write_levels(self, R: Floats, name: str) -> None:
        if name in self.entries:
            index = self.entries[name]
            low, high = self.own.two_valued[index]
            R[:, [index]] = self.schema.units.encode(low + (high - low) * self.V[:, self.places[name]], [index])
            return
        hot, reference = self.V[:, self.places[name]], self.references[name]
        if reference is not None:
            hot = np.insert(hot, reference, 1 - hot.sum(axis=1), axis=1)
        columns = list(self.schema.groups[name])
        R[:, columns] = self.schema.units.encode(hot, columns)

    # -- numbers -----------------------------------------------------------------------------------------------------
    def _draw_numbers(self, Z: Floats, done: list[int]) -> Floats:
        """Return encoded numbers: normal given what is done, mapped to their shapes, with the released moments."""
        own, V = self.of_numbers, self.V
        theta = least_squares_of(self.G, self.N, done, own)
        wanted = self.G[np.ix_(own, own)] - self.G[np.ix_(own, done)] @ theta
        wanted = (wanted + wanted.T) / 2
        floor = _FLOOR * np.maximum(np.diagonal(self.G)[own], 1e-12)
        shapes = [self._shape(index) for index in self.numbers]
        absent = [self._absent(index) for index in self.numbers]
        adjusted = any(shape is not None for shape in shapes) or any(mask is not None for mask in absent)
        mean, S = V[:, done] @ theta, wanted
        D = V[:, done]
        # Columns that no drawn row has, or that others determine, would make these moments singular.
        moments = D.T @ D + 1e-10 * len(D) * np.eye(len(done))
        X = np.empty_like(mean)
        for turn in range(ROUNDS + 1):
            X = mean + Z @ lower_root(S, floor).T
            for place, (shape, mask) in enumerate(zip(shapes, absent, strict=True)):
                X[:, place] = _mapped(X[:, place], shape, mask)
            if not adjusted or turn == ROUNDS:
                break
            now = scipy.linalg.solve(moments, D.T @ X, assume_a="pos")
            left = X - D @ now
            mean = mean + D @ (theta - now)
            ratio = np.sqrt(np.maximum(np.diagonal(S), floor) / np.maximum(np.diagonal(wanted), floor))
            S = S + (wanted - left.T @ left / len(X)) * np.outer(ratio, ratio)
        return X

    def _shape(self, index: int) -> Callable[[Floats], Floats] | None:
        """Return the quantile function of encoded values, top-coded; None for a normal shape."""
        schema = self.schema
        name = schema.encoded[index].source or ""
        column = schema.parts[name]
        if self.own.booleans and isinstance(column, Vector):
            return self._near_a_bound(index)
        if not (self.own.shaped or name == self.own.exposure) or not isinstance(column, Numeric | Vector):
            return None
        quantiles = quantiles_of(self.own.statistic, index)

        def encoded(rank: Floats) -> Floats:
            values = quantiles(rank)
            if isinstance(column, Numeric):
                values = np.clip(values, column.lower, column.upper)
            return schema.units.encode(values[:, np.newaxis], [index])[:, 0]

        return encoded

    def _near_a_bound(self, index: int) -> Callable[[Floats], Floats] | None:
        """Return the quantile function of an entry of a vector whose mean is within a standard deviation of a bound.

        A normal distribution would lie beyond the bound for a sixth of the rows and more, and its other tail would be
        far too short. A Beta distribution on the declared range has the mean and variance of the pool.
        """
        part = self.schema.parts[self.schema.encoded[index].source or ""]
        noisy, one = self.own.statistic.predictive, self.schema.units.one
        if not isinstance(part, Vector) or not part.bounded:
            return None
        size = part.weight  # an entry is encoded as weight · [-1, 1]
        entry, n = np.eye(self.schema.n_columns)[index] / size, max(float(one @ noisy.moment @ one), 1.0)
        mean = float(one @ noisy.moment @ entry) / n
        variance = max(float(entry @ noisy.moment @ entry) / n - mean**2, _LEAST_VARIANCE)
        if 1 - abs(mean) > math.sqrt(variance):
            return None
        share = min(max((mean + 1) / 2, _LEAST_VARIANCE), 1 - _LEAST_VARIANCE)
        room = share * (1 - share)
        strength = room / min(variance / 4, 0.98 * room) - 1
        return lambda rank: size * (2 * special.betaincinv(share * strength, (1 - share) * strength, rank) - 1)

    def _absent(self, index: int) -> NDArray[np.bool_] | None:
        """Return where a number is missing; None if it has no indicator."""
        base = number_behind(self.schema, self.schema.encoded[index].source or "")
        mark = missing_name(base or "")
        return self.V[:, self.places[mark][0]] > 0.5 if mark in self.places else None

    # -- terms -------------------------------------------------------------------------------------------------------
    def _write_terms(self, R: Floats) -> None:
        """Write the entries of terms, which are functions of the values drawn."""
        schema = self.schema
        terms = [name for name in self.own.sources if bases_in_release(schema, name)]
        if not terms:
            return
        values = TermValues(schema.columns, lambda name: self._values(R, name), lambda name: self._hot(R, name))
        for name in terms:
            part, own = schema.parts[name], list(schema.groups[name])
            R[:, own] = values.entries(name, part) / schema.units.scales[own]

    def _values(self, R: Floats, name: str) -> Numbers:
        """Return the values of a column of the table, clamped to its bounds."""
        schema, column = self.schema, self.schema.columns[name]
        part = next(own for own in schema.parts if own == name or number_behind(schema, own) == name)
        (index,) = schema.groups[part]
        values = schema.units.decode(R[:, [index]], [index])[:, 0]
        values = values if part == name else np.exp(values)
        if isinstance(column, Numeric):
            values = np.clip(values, column.lower, column.upper)
        mark = missing_name(name)
        return Numbers(values, R[:, schema.groups[mark][0]] > 0 if mark in self.places else None)

    def _hot(self, R: Floats, name: str) -> Floats:
        columns = list(self.schema.groups[name])
        return self.schema.units.decode(R[:, columns], columns)


def _mapped(values: Floats, shape: Callable[[Floats], Floats] | None, absent: NDArray[np.bool_] | None) -> Floats:
    """Map values through their ranks to a shape; entries of missing numbers are 0."""
    known = np.flatnonzero(~absent) if absent is not None else np.arange(len(values))
    found = np.zeros_like(values)
    found[known] = values[known]
    if shape is not None and len(known):
        order = known[np.argsort(values[known], kind="stable")]
        found[order] = shape((np.arange(len(known)) + 0.5) / len(known))
    return found


def _as_indicators(G: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """Set the moments of indicators, in the columns ``groups`` of G, to what moments of indicators can be."""
    places = [place for own in groups for place in own]
    share = np.zeros(len(G))
    share[places] = np.clip((np.diagonal(G)[places] + G[0, places]) / 2, _LEAST_SHARE, 1 - _LEAST_SHARE)
    for own in groups:
        share[list(own)] *= min(1.0, (1 - _LEAST_SHARE) / max(share[list(own)].sum(), _LEAST_SHARE))
    found, at, s = G.copy(), np.ix_(places, places), share[places]
    found[at] = np.clip(G[at], np.maximum(np.add.outer(s, s) - 1, 0.0), np.minimum.outer(s, s))
    for own in groups:
        found[np.ix_(own, own)] = 0.0
    found[0, places], found[places, 0], found[places, places] = s, s, s
    found[0, 0] = 1.0
    return found


def least_squares_of(G: Floats, N: Floats, done: Sequence[int], own: Sequence[int]) -> Floats:
    """Return θ of the columns ``own`` on the columns ``done``, shape (done, own), as in the module's docstring."""
    at, d = np.ix_(done, done), len(done)
    unit = 1 / np.sqrt(np.maximum(np.diagonal(G)[list(done)], 1e-300))
    M, shape = G[at] * np.outer(unit, unit), N[at] * np.outer(unit, unit)
    cross = unit[:, np.newaxis] * G[np.ix_(done, own)]
    if not shape.any():
        return unit[:, np.newaxis] * (np.linalg.pinv(M, rcond=1e-9, hermitian=True) @ cross)
    shape = shape + 1e-12 * np.trace(shape) / d * np.eye(d)
    root = scipy.linalg.cholesky(shape, lower=True)
    half = scipy.linalg.solve_triangular(root, np.hstack([M, cross]), lower=True)
    L, g = half[:, :d], half[:, d:]
    return np.asarray(unit[:, np.newaxis] * scipy.linalg.solve(L.T @ L + d * shape, L.T @ g, assume_a="pos"))


def lower_root(S: Floats, floor: Floats) -> Floats:
    """Return L with LLᵀ = S, lower triangular; squared pivots are raised to ``floor`` where noise made them less."""
    L = np.zeros_like(S)
    for j in range(len(S)):
        left = S[j:, j] - L[j:, :j] @ L[j, :j]
        L[j, j] = math.sqrt(max(float(left[0]), float(floor[j])))
        # A pivot that was raised stands for no variance: nothing may depend on it.
        L[j + 1 :, j] = left[1:] / L[j, j] if left[0] >= floor[j] else 0.0
    return L
