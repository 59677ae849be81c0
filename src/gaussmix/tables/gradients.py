r"""Gradients of a logistic likelihood, summed over rows that each count for a bounded vector; **sensitive**.

With margin s = y·(θ·r), y = ±1 the sign of a row's label, and q = 1/(1 + eˢ), the probability of the other class, a row
has the gradient y q z in the metric z = T r and the weight q(1 - q) in the Hessian. Every row comes out the same, bit
for bit, wherever it stands (:mod:`gaussmix.tables.transforms`):

- T r and θ·r are one exact product of integers; θ is the last row of the transform.
- eˢ is a fixed polynomial and a power of two, computed by single additions, multiplications and divisions of float64,
  which IEEE 754 fixes. A library's exponential may differ by its place in an array: vectorised loops and their
  remainders are different code.
- Gradients are rounded to whole numbers, 2⁻²⁰ of the clip, and no longer than that after rounding, in integers; weights
  are whole numbers of at most 2²⁰ units of ¼.

A row without a label, the neighbour's row of zeros among them, has neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.errors import ArgumentError
from gaussmix.tables.encoder import pieces
from gaussmix.tables.gram import Aggregator, block_rows
from gaussmix.tables.transforms import ROW_UNIT, Transform, clip_norms, to_units

__all__ = ["ClippedGradient", "GradientSums", "exponential"]

_FARTHEST = 40.0  # e⁻⁴⁰ is less than the unit of any weight or gradient that is not clipped
_LOG2 = math.log(2.0)
_COEFFICIENTS = tuple(1 / math.factorial(k) for k in range(14))  # |x| ≤ log(2)/2: the next term is below 2⁻⁵⁷


def exponential(x: Floats) -> Floats:
    """eˣ for x within ±40, beyond as at ±40, to a relative error of 10⁻¹⁴: the same bits for the same x, always."""
    x = np.clip(x, -_FARTHEST, _FARTHEST)
    whole = np.rint(x / _LOG2)
    rest = x - whole * _LOG2
    value = np.full_like(rest, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        value = value * rest
        value = value + coefficient
    return np.ldexp(value, whole.astype(np.int32))


@dataclass(frozen=True, repr=False)
class GradientSums:
    """**Sensitive**: Σ of gradients in units of 2⁻²⁰ of the clip, and of weights in units of 2⁻²⁰ of ¼."""

    gradient: Integers
    weight: int

    def __add__(self, other: GradientSums) -> GradientSums:
        return GradientSums(self.gradient + other.gradient, self.weight + other.weight)


@dataclass(frozen=True)
class ClippedGradient:
    """Σ ū over rows, u = y q z clipped to ‖ū‖² ≤ clip, and Σ q(1 - q): sensitivities are the clip's root and ¼.

    Attributes
    ----------
    transform : Transform
        z, and in its last row θ, of rows of norm at most 1. Neither reads the label.
    label : int
        Column whose sign is the class.
    clip : float
        Squared norm of the longest gradient.
    """

    transform: Transform
    label: int
    clip: float

    def __post_init__(self) -> None:
        to_units(self.transform, self.clip)
        k, m = self.transform.integers.shape
        if k < 2 or not 0 <= self.label < m or self.transform.integers[:, self.label].any():
            raise ArgumentError("a gradient needs a metric and coefficients, and neither may read the label.")

    def aggregator(self, m: int) -> Aggregator[GradientSums]:
        """For rows of m columns."""
        if self.transform.integers.shape[1] != m:
            raise ArgumentError(
                f"The transform maps rows of {self.transform.integers.shape[1]} columns, the schema has {m}."
            )
        return _GradientAggregator(self)


class _GradientAggregator:
    take = None

    def __init__(self, query: ClippedGradient) -> None:
        self.transform, self.label = query.transform, query.label
        k, m = self.transform.integers.shape
        self.block_rows = block_rows(max(k, m))
        self.factors = to_units(self.transform, query.clip)[:-1]
        self.gradient, self.weight = np.zeros(k - 1, dtype=np.int64), 0

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:  # the gradients of one unit's rows may add up to any number of clips
            raise ArgumentError("Gradients are summed over single rows: they have no account for a privacy unit.")
        for piece in pieces(len(rows), self.block_rows):
            gradients, weights = self.of_rows(rows[piece])
            # Whole numbers of at most 2²⁰, in blocks of at most 2¹² rows: no order of summation rounds them.
            self.gradient += gradients.sum(axis=0).astype(np.int64)
            self.weight += int(weights.sum())

    def of_rows(self, rows: Floats) -> tuple[Floats, Floats]:
        """What every row adds: (n, k) and (n,), whole numbers."""
        signs = np.sign(rows[:, self.label])
        products = self.transform.product(rows)
        other = 1 / (1 + exponential(signs * (products[:, -1] * self.transform.scales[-1])))
        gradients = products[:, :-1] * self.factors * (signs * other)[:, np.newaxis]
        np.trunc(gradients, out=gradients)
        clip_norms(gradients, ROW_UNIT**2)
        weights = np.minimum(np.trunc(4 * other * (1 - other) * np.abs(signs) * ROW_UNIT), ROW_UNIT)
        return gradients, weights

    def result(self) -> GradientSums:
        return GradientSums(self.gradient.copy(), self.weight)
