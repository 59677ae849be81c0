"""Proposals of bounds and levels under attack, by the schema that they publish."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from audit.releases import limit_epsilon
from audit.subject import Neighbours, Subject, repeated
from gaussmix._types import Floats
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.accounting.thresholds import CountsAccount, counts_account
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.proposing import propose
from gaussmix.mechanism.sampling import secure_generator
from gaussmix.models.proposing import coarse_bounds
from gaussmix.tables.columns import Categorical, Column, Numeric
from gaussmix.tables.dyadic import COARSE_BINS, FINE_BINS

__all__ = ["Bounds", "Levels", "Proposed"]

_COMMON, _RARE = 1.0, 1000.0
"""Far from each other: where the rare value counts, the fine grid is so wide that its first bin tells."""

_SURE = 40.0
"""Noises by which a count is above whatever decides."""


class Proposed(Subject):
    """A proposal for one column y of numbers or of codes.

    Noisy counts are not published. One of them decides whether something shows, at a public count t. Of its noise σ
    alone no test shows more than "above t" where t is ε₁σ² + ½ above what the table has without the row, ε₁ what this
    one release spends at δ: the tables are made so that it is.
    """

    kind: str

    @property
    @abstractmethod
    def account(self) -> CountsAccount:
        """Noise and threshold, from declared quantities."""

    @property
    @abstractmethod
    def decides(self) -> float:
        """The count that decides."""

    @cached_property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """A common value, and a rare one at the count that decides."""
        mu = self.account.lattice.noise_mu[0]
        rare = max(round(self.decides - gaussian_epsilon(self.delta, mu=mu) / mu**2 - 0.5), 1)
        common = repeated(int(self.decides + _SURE / mu), (0.0, _COMMON))
        words = "rows of a common value and of one about as rare as can show, and one more of this"
        return Neighbours(np.concatenate([common, repeated(rare, (0.0, _RARE))]), (0.0, _RARE), words)

    def claimed(self, delta: float) -> float | None:
        """By the exact curve, with what the threshold has of δ."""
        left = delta - self.account.threshold_delta
        return limit_epsilon(left, self.account.lattice) if left > 0 else None

    def observe(self, *, present: bool, runs: int) -> Floats:
        """What the proposed column tells."""
        _, y = self.neighbours.arrays(present=present)
        table, seen = {"y": y.astype(np.int64) if self.kind == "codes" else y}, []
        for _ in range(runs):
            found = propose(
                table, {"y": self.kind}, epsilon=self.epsilon, delta=self.delta, random_state=secure_generator()
            )
            seen.append(self.told(found.schema.columns["y"]))
        return np.array(seen)

    @abstractmethod
    def told(self, column: Column) -> list[float]:
        """Numbers that the column tells."""


class Levels(Proposed):
    """Levels that nobody has declared, above a threshold."""

    words = "propose, levels of a category"
    kind = "codes"

    @cached_property
    def account(self) -> CountsAccount:
        """Noise and threshold, from declared quantities."""
        return counts_account(self.epsilon, self.delta, keys=1)

    @property
    def decides(self) -> float:
        """The threshold."""
        return self.account.threshold_in_rows

    def told(self, column: Column) -> list[float]:
        """Whether the rare level shows: the likelihood ratio has two values, and rises with it."""
        if not isinstance(column, Categorical):
            raise ArgumentError("Codes are proposed as a category.")
        return [float(_RARE in column.levels)]


class Bounds(Proposed):
    """Bounds of a number, on a coarse grid and then on a fine one."""

    words = "propose, bounds of a number"
    kind = "number"

    @cached_property
    def account(self) -> CountsAccount:
        """Noise, from declared quantities."""
        return counts_account(self.epsilon, self.delta, grids=[COARSE_BINS], refined=[FINE_BINS])

    @property
    def decides(self) -> float:
        """What a bin must have to count: the least, found by trying."""
        counts, noise = np.zeros(COARSE_BINS), 1 / self.account.lattice.noise_mu[0]
        while coarse_bounds(counts, noise=noise, columns=1) is None:
            counts[-1] += noise / 100
        return float(counts[-1])

    def told(self, column: Column) -> list[float]:
        """Whether the bin of the rare value counted, and the bounds, which may be 10³⁰⁰, brought together."""
        if not isinstance(column, Numeric):
            raise ArgumentError("Numbers are proposed with bounds.")
        return [float(column.upper > 2 * _COMMON), *np.arcsinh([column.upper, column.lower])]
