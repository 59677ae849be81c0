r"""Means of a number within the levels of a category, and whether they differ: analysis of variance from a release.

For every level a the block of the category and of x holds n_a and S_a = Σ_a x, solved together with Σ x² by generalised
least squares (:mod:`gaussmix.models.structured`). A mean is S_a/n_a, with Fieller's interval: where a level's count is
not told from 0, the interval does not end.

Analysis of variance, of the population behind the rows: with m = S/n and h_a = S_a - m n_a, the sum of squares between
groups is Σ h_a²/n_a, and what is left of Σ x² - S²/n within. Under equal means h has mean 0 and covariance

.. math:: J V J^\top + s^2\,(\mathrm{diag}\,n_a - n_a n_b/n), \qquad s^2 = \text{within}/(n - A),

V that of (n_a, S_a), J the derivative of h; hᵀ(covariance)⁻¹h/(A - 1), the last level left out, is compared with F of
A - 1 and n - A degrees of freedom. Without noise it is the usual F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Numeric
from gaussmix.data.schema import Schema
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import column_of, kinds_of
from gaussmix.models.describe import notes_of
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.rendering import void_mark
from gaussmix.models.results import Frame, ResultTable, columns_of
from gaussmix.models.structured import Fitted, fit_structure, group_designs, ratio_interval

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["Anova", "anova", "group_means", "group_sums"]


def group_sums(noisy: NoisyMoment, schema: Schema, target: str, by: str) -> tuple[tuple[str, ...], Fitted]:
    """Levels, and (n_a, S_a, Σ x²) in the units of the matrix; x is measured from its declared centre."""
    column = column_of(schema, target)
    if not isinstance(column, Numeric | Boolean):
        raise ArgumentError(f"Column {target!r} has no mean: name a numeric or a boolean column.")
    if target == by:
        raise ArgumentError(f"Column {target!r} cannot be grouped by itself.")
    labels, kinds = kinds_of(schema, by)
    (index,) = schema.groups[target]
    units = unweighted_units(schema)
    own = noisy.mapped(np.vstack([units.one, units.rows(schema.groups[by]), units.deviations([index])]))
    return labels, fit_structure(own, group_designs(np.column_stack([np.ones(len(kinds)), kinds])))


def group_means(release: Release, target: str, by: str, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.means`."""
    z = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))
    schema = release.schema
    labels, sums = group_sums(release.statistic.noisy, schema, target, by)
    (index,) = schema.groups[target]
    centre, k, V = float(schema.units.centres[index]), len(labels), sums.covariance
    n, S = sums.values[:k], sums.values[k : 2 * k]
    var_n, var_s, both = (np.diagonal(block) for block in (V[:k, :k], V[k : 2 * k, k : 2 * k], V[:k, k : 2 * k]))
    low, high = ratio_interval(S, n, var_s, var_n, both, z)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(np.isfinite(low), S / n, np.nan)
        errors = np.sqrt(np.maximum(var_s - 2 * means * both + means**2 * var_n, 0.0)) / np.abs(n)
    found = [
        (label, *(float(number) for number in numbers))
        for label, *numbers in zip(labels, means + centre, errors, low + centre, high + centre, strict=True)
    ]
    names = (by, "mean", "std.error", "conf.low", "conf.high")
    words = () if np.isfinite(low).all() else ("A mean without ends is of a level that is not told from 0 rows.",)
    return ResultTable(f"mean of {target} by {by}", columns_of(names, found), (*notes_of(release), *words))


@dataclass(frozen=True)
class Anova:
    """An analysis of variance of one number by one category.

    Attributes
    ----------
    target, by : str
    between, within : float
        Sums of squares, noise taken out of neither.
    degrees : tuple of float
        A - 1, and n - A with the noisy number of rows.
    statistic, p_value : float
        F with the noise in its denominator; NaN where levels drown in noise.
    eta_squared : float
        between/(between + within).
    privacy_share : float
        Share of the covariance of group means that is privacy noise; the rest is sampling.
    void : str
        Why the release guarantees nothing; empty if it does.
    """

    target: str
    by: str
    between: float
    within: float
    degrees: tuple[int, float]
    statistic: float
    p_value: float
    eta_squared: float
    privacy_share: float
    void: str = ""

    def table(self) -> ResultTable:
        """In the usual form."""
        first, second = self.degrees
        rows = [
            (self.by, self.between, float(first), self.between / first, self.statistic, self.p_value),
            ("residual", self.within, second, self.within / second, math.nan, math.nan),
        ]
        names = ("term", "sum.sq", "df", "mean.sq", "statistic", "p.value")
        note = (
            "F compares group means with sampling error and privacy noise together; "
            f"{100 * self.privacy_share:.0f} % of that variance is privacy noise."
        )
        return ResultTable(
            f"{self.target} by {self.by}", columns_of(names, rows), tuple(filter(None, (self.void, note)))
        )

    def to_frame(self, frame: Frame | None = None) -> Any:
        """In the usual form, as a data frame."""
        return self.table().to_frame(frame)

    def _repr_html_(self) -> str:
        return self.table().as_html()

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        what = f"{void_mark(self.void)}{self.target!r} by {self.by!r}"
        return f"Anova({what}, F = {self.statistic:.4g}, p = {self.p_value:.4g})"


def anova(release: Release, target: str, by: str) -> Anova:
    """The analysis of :meth:`gaussmix.Release.anova`."""
    noisy = release.statistic.noisy
    noisy.check_independent("An analysis of variance", instead="means(), whose intervals are of the table")
    labels, sums = group_sums(noisy, release.schema, target, by)
    return replace(analysis(sums, len(labels), target, by), void=release.certificate.void_words)


def analysis(sums: Fitted, k: int, target: str, by: str) -> Anova:
    """From the sums of k groups."""
    n, S, square = sums.values[:k], sums.values[k : 2 * k], float(sums.values[-1])
    rows = float(n.sum())
    freedom = (k - 1, rows - k)
    if k < 2 or n.min() <= 0 or rows <= k:
        return Anova(target, by, *(math.nan,) * 2, freedom, *(math.nan,) * 4)
    m = float(S.sum()) / rows
    h = S - m * n
    between = float(np.sum(h**2 / n))
    within = square - float(S.sum()) ** 2 / rows - between
    if within <= 0:
        return Anova(target, by, between, within, freedom, *(math.nan,) * 4)
    mean_move = np.concatenate([np.full(k, -m), np.ones(k)]) / rows
    J = np.hstack([-m * np.eye(k), np.eye(k)]) - np.outer(n, mean_move)
    kept = slice(0, k - 1)
    noise = (J @ sums.covariance[: 2 * k, : 2 * k] @ J.T)[kept, kept]
    sampling = within / freedom[1] * (np.diag(n) - np.outer(n, n) / rows)[kept, kept]
    found: Floats = scipy.linalg.solve(noise + sampling, np.column_stack([h[kept], noise]), assume_a="pos")
    statistic = float(h[kept] @ found[:, 0]) / freedom[0]
    return Anova(
        target,
        by,
        between,
        within,
        freedom,
        statistic,
        float(stats.f.sf(statistic, *freedom)),
        between / (between + within),
        float(np.trace(found[:, 1:])) / freedom[0],
    )
