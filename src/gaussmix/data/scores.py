r"""Scores of declared models: one vector per row or privacy unit, clipped in norm, and their exact sums.

**Sensitive.** The score of a row (x, y) is the derivative of its log-likelihood, x(y - μ), in a metric E:

.. math:: s = E x\,(y - e\,h(\theta^\top x)) ,

with h the mean of the family and e the exposure of the row, 1 without one. Everything but the row is public: E, θ, h
and the clip c. A row with the weight ω is encoded as √ω times itself, which its constant column t = √ω shows; its score
is ω times that of the row. A row of zeros has the score 0.

**Sensitivity.** With ‖s̄‖² ≤ c, adding or removing one row changes Σ s̄ by at most √c in norm, the Gram matrix Σ s̄ s̄ᵀ by
at most c in Frobenius norm, and one bin of a histogram of ‖s‖² by 1, whatever h, θ and E are. Replacing a row changes
Σ s̄ by at most 2√c (opposite scores), the Gram matrix by at most √2·c and the histogram by √2. The scores of the rows of
a privacy unit are added up, S = Σ s̄_i, and S is clipped in place of s: the same bounds hold for one unit, however many
rows it has.

**Exact.** Products with integers are exact (:mod:`gaussmix.data.transforms`). h is made of single operations of float64
on single numbers, which IEEE 754 fixes (:mod:`gaussmix.data.terms`). Scores are then rounded to whole numbers, 2⁻²⁰ of
the root of the clip, clipped row by row, added up within a unit and clipped again: sums of whole numbers below 2⁵³. The
norm is checked after rounding, in integers. So a row has the same score, bit for bit, in every block, thread and order
and on every processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.data.encode import squared_norms_of
from gaussmix.data.gram import BinCounts, ExactSums, Gram, Query
from gaussmix.data.transforms import ROW_UNIT, Transform, clip_norms, to_units
from gaussmix.errors import ArgumentError

_NORM_UNIT = 2.0**26  # root of the last edge of a histogram


@dataclass(frozen=True, eq=False)
class ScoreMap:
    """The score of a row as a function of that row alone. Public.

    Attributes
    ----------
    transform : Transform
        E, then one row each for θ, the response and, if there is one, the exposure, of rows of norm at most 1.
    size : int
        Number of rows of E.
    mean : callable
        h, made of operations that IEEE 754 fixes.
    constant : int or None
        The constant column, whose entry is ``entry`` in a row of weight 1; None without one.
    entry : float
        In lattice units.
    response, exposure : float
        Centres of the response and of the exposure in original units.
    """

    transform: Transform
    size: int
    mean: Callable[[Floats], Floats]
    constant: int | None
    entry: float
    response: float
    exposure: float = 0.0

    @property
    def has_exposure(self) -> bool:
        """Whether the mean is multiplied by a column."""
        return len(self.transform.integers) == self.size + 3

    def check(self, m: int) -> None:
        """Reject a map that does not fit rows of m columns."""
        rows, columns = self.transform.integers.shape
        if columns != m or self.size < 1 or rows not in (self.size + 2, self.size + 3):
            raise ArgumentError(
                f"The matrix of a declared model must have {m} columns, and rows for its coefficients and response, "
                f"got {rows} x {columns}."
            )
        if self.constant is not None and not (0 <= self.constant < m and self.entry > 0):
            raise ArgumentError("The constant column of a score must be a column of the schema.")

    def scores(self, rows: Floats, factors: Floats, limit: float, starts: Integers | None) -> Floats:
        """Return whole numbers, the scores of rows or units times ``factors``, whose rows were clipped to ``limit``.

        Shape (n, d), or (units, d) with the sums over the rows of each unit, which may exceed the limit.
        """
        products, scales, d = self.transform.product(rows), self.transform.scales, self.size  # exact
        with np.errstate(all="ignore"):
            weight = np.ones(len(rows)) if self.constant is None else rows[:, self.constant] / self.entry  # t
            inverse = np.where(weight != 0, 1 / weight, 0.0)
            eta = products[:, d] * scales[d] * inverse
            mean = self.mean(eta)
            if self.has_exposure:
                exposure = products[:, d + 2] * scales[d + 2] * inverse + self.exposure
                mean = np.maximum(exposure, 0.0) * mean
            residual = (products[:, d + 1] * scales[d + 1] * inverse + self.response - mean) * weight
            scores = products[:, :d] * factors * residual[:, np.newaxis]
            np.trunc(scores, out=scores)
        clip_norms(scores, limit)
        return scores if starts is None else np.add.reduceat(scores, starts, axis=0)


@dataclass(eq=False)
class ScoreNorms(Query[BinCounts]):
    """Counts of rows, or privacy units, with ‖s‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞); a score of 0 is in no bin.

    Scores beyond the last edge are clipped to it before they are added up within a unit.
    """

    scores: ScoreMap
    edges: Floats

    def _start(self, m: int) -> None:
        self.scores.check(m)
        self.set_up(m, self.scores.transform)
        factors = to_units(self.scores.transform, float(self.edges[-1]))[: self.scores.size]
        self.factors = factors * (_NORM_UNIT / ROW_UNIT)
        self.limits = self.edges / self.edges[-1] * _NORM_UNIT**2
        if not (np.diff(self.limits) > 0).all():
            raise ArgumentError("edges must be strictly increasing.")
        self.counts, self.n = np.zeros(len(self.limits) + 1, dtype=np.int64), 0

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        # Rows are clipped a little beyond the last edge, so that those beyond it are counted there.
        scores = self.scores.scores(rows, self.factors, 1.5 * _NORM_UNIT**2, starts)
        squares = squared_norms_of(scores)
        places = np.searchsorted(self.limits, squares[squares > 0], side="left")
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.n += len(scores)

    def result(self) -> BinCounts:
        """Return the counts of all bins."""
        return BinCounts([self.counts.copy()], self.n)


@dataclass(frozen=True, repr=False)
class ScoreTotals:
    """Σ s̄ in units of 2⁻²⁰ of the root of the clip, and Σ s̄ s̄ᵀ in units of 2⁻⁴⁰ of the clip. **Sensitive**."""

    total: Integers
    squares: ExactSums

    def __add__(self, other: ScoreTotals) -> ScoreTotals:
        return ScoreTotals(self.total + other.total, self.squares + other.squares)


@dataclass(eq=False)
class ScoreSums(Query[ScoreTotals]):
    """Σ s̄ and Σ s̄ s̄ᵀ over rows, or over privacy units, with ‖s̄‖² ≤ clip: the sensitivities are √clip and clip."""

    scores: ScoreMap
    clip: float

    def _start(self, m: int) -> None:
        self.scores.check(m)
        self.set_up(m, self.scores.transform)
        self.factors = to_units(self.scores.transform, self.clip)[: self.scores.size]
        self.total, self.gram = np.zeros(self.scores.size, dtype=np.int64), Gram().aggregator(self.scores.size)

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        scores = self.of_rows(rows, starts)
        self.total += scores.astype(np.int64).sum(axis=0)
        self.gram.add(scores)

    def of_rows(self, rows: Floats, starts: Integers | None = None) -> Floats:
        """Return the clipped scores of rows or units as whole numbers of norm at most 2²⁰."""
        scores = self.scores.scores(rows, self.factors, ROW_UNIT**2, starts)
        if starts is not None:
            clip_norms(scores, ROW_UNIT**2)
        return scores

    def result(self) -> ScoreTotals:
        """Return the sums over all rows that were added."""
        return ScoreTotals(self.total.copy(), self.gram.result())


def score_map(
    metric: Transform,
    linear: Transform,
    *,
    mean: Callable[[Floats], Floats],
    constant: int | None,
    entry: float,
    response: float,
    exposure: float = 0.0,
) -> ScoreMap:
    """Return the map of a metric and, in ``linear``, of θ, the response and the exposure."""
    integers = np.concatenate([metric.integers, linear.integers])
    transform = Transform(integers, np.concatenate([metric.scales, linear.scales]))
    return ScoreMap(transform, len(metric.integers), mean, constant, entry, response, exposure)


def identity(eta: Floats) -> Floats:
    """Return the linear predictor: the mean of a linear model."""
    return eta
