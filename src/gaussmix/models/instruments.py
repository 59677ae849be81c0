r"""Instrumental variables from a release: two-stage least squares is a computation on second moments.

Features x, some of them endogenous; instruments z, the exogenous features and the constant among them.

.. math:: \theta = (M_{xz} M_{zz}^{-1} M_{zx})^{-1} M_{xz} M_{zz}^{-1} M_{zy} = W M_{zy} .

With a = (-θ, 1) on (x, y) the score (Ma)_z moves with the noise by (Ea)_z, whose covariance is
α[Q_zz aᵀQa + (Qa)_z(Qa)_zᵀ]; θ has W · Wᵀ of it, and of s²M_zz for a population, s² the residual variance (Wald).

With weak instruments Wald intervals fail. Where one feature is endogenous its interval is Anderson and Rubin's instead:
with C and Ũ the moments of (x, y, excluded instruments) after the exogenous features are taken out
(:mod:`gaussmix.models.residuals`), a value β is accepted where g = C_zy - βC_zx, with
V = α[Ũ_zz bᵀŨb + (Ũb)_z(Ũb)_zᵀ] + s²(β)C_zz, b = (-β, 1), has gᵀV⁻¹g below its chi-square quantile: nothing is divided
by a noisy first stage. For the table's own coefficients, where there is no sampling, that is right with one excluded
instrument only: with more of them g is not 0 at any β.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.linalg
from scipy import optimize, stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import Coding
from gaussmix.models.fits import column_of
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.residuals import Residuals, residuals
from gaussmix.models.result_table import Frame, ResultTable
from gaussmix.models.row_counts import row_count
from gaussmix.models.user_units import constant_row, unit_rows
from gaussmix.tables.columns import Boolean, Numeric
from gaussmix.tables.schema import INTERCEPT

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["AndersonRubin", "InstrumentalModel", "fit_instruments", "two_stage"]

_WEAK = 10.0
"""First-stage statistic below which instruments are called weak."""


@dataclass(frozen=True, eq=False)
class AndersonRubin:
    """Tests of the coefficient of one endogenous feature: x, y, then the excluded instruments in ``left``."""

    left: Residuals
    rows: float | None

    def statistic(self, value: float) -> float:
        """gᵀV⁻¹g, chi-square with one degree of freedom an instrument at the true value."""
        return self._square(np.array([-value, 1.0]))

    def _square(self, b: Floats) -> float:
        C, U, a = self.left.moment, self.left.spread, self.left.alpha
        g, turn = C[2:, :2] @ b, U[2:, :2] @ b
        V = a * (U[2:, 2:] * float(b @ U[:2, :2] @ b) + np.outer(turn, turn))
        if self.rows is not None:
            V = V + max(float(b @ C[:2, :2] @ b), 0.0) / self.rows * C[2:, 2:]
        return float(g @ scipy.linalg.pinvh(V) @ g)

    def _beyond(self, distance: float, middle: float, side: float, most: float) -> float:
        return self.statistic(middle + side * distance) - most

    @property
    def first_stage(self) -> float:
        """The statistic of no relation between instruments and feature, per instrument: below 10 they are weak."""
        return self._square(np.array([1.0, 0.0])) / self.instruments

    @property
    def instruments(self) -> int:
        """Excluded instruments."""
        return len(self.left.moment) - 2

    def interval(self, middle: float, deviation: float, alpha: float) -> tuple[float, float]:
        """Ends of the accepted values about the estimate; infinite where they do not end, NaN where there are none."""
        most = float(stats.chi2.isf(alpha, self.instruments))
        if self._square(np.array([1.0, 0.0])) <= most:
            return -math.inf, math.inf
        if self.statistic(middle) > most:
            return math.nan, math.nan
        ends = []
        for side in (-1.0, 1.0):
            step = max(deviation, 1e-12 * max(abs(middle), 1e-300))
            while self.statistic(middle + side * step) <= most and step < 1e12 * max(deviation, 1e-300):
                step *= 2
            ends.append(optimize.brentq(self._beyond, 0.0, step, args=(middle, side, most), xtol=1e-9 * step))
        return middle - ends[0], middle + ends[1]


@dataclass(frozen=True, eq=False)
class InstrumentalModel:
    """Two-stage least squares of one column on others, from a release.

    Attributes
    ----------
    target : str
    endogenous : tuple of str
        Features that are no instruments.
    excluded : tuple of str
        Instruments that are no features.
    estimand : {"table", "population"}
        What the errors are about: noise alone, or noise and sampling.
    params, bse, noise_share : dict of str to float
        In the user's units; Wald standard errors, and the share of their squares that is privacy noise.
    test : AndersonRubin or None
        Of the one endogenous feature, where there is one and the test is right.
    """

    target: str
    endogenous: tuple[str, ...]
    excluded: tuple[str, ...]
    estimand: Literal["table", "population"]
    params: dict[str, float]
    bse: dict[str, float]
    noise_share: dict[str, float]
    test: AndersonRubin | None = field(repr=False)
    _again: Callable[[Literal["table", "population"]], InstrumentalModel] = field(repr=False)

    def for_population(self) -> InstrumentalModel:
        """The same with the errors of a population that the rows were drawn from."""
        return self._again("population")

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Intervals by name: Anderson and Rubin's for one endogenous feature, Wald's for the others."""
        z = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))
        found = {name: (b - z * self.bse[name], b + z * self.bse[name]) for name, b in self.params.items()}
        if self.test is not None:
            (name,) = self.endogenous
            found[name] = self.test.interval(self.params[name], self.bse[name], alpha)
        return found

    def table(self, alpha: float = 0.05) -> ResultTable:
        """One row a coefficient, as ``tidy`` of other models has it."""
        ends = self.conf_int(alpha)
        ratio = {name: b / self.bse[name] if self.bse[name] else math.inf for name, b in self.params.items()}
        p = {name: float(2 * stats.norm.sf(abs(t))) for name, t in ratio.items()}
        if self.test is not None:
            (name,) = self.endogenous
            p[name] = float(stats.chi2.sf(self.test.statistic(0.0), self.test.instruments))
        columns: dict[str, tuple[Any, ...]] = {
            "term": tuple(ends),
            "estimate": tuple(self.params.values()),
            "std.error": tuple(self.bse.values()),
            "statistic": tuple(ratio.values()),
            "p.value": tuple(p.values()),
            "conf.low": tuple(low for low, _ in ends.values()),
            "conf.high": tuple(high for _, high in ends.values()),
            "privacy.share": tuple(self.noise_share.values()),
        }
        return ResultTable(f"{self.target}: two-stage least squares, {self.estimand}", columns, self._notes())

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05) -> Any:
        """The same as a data frame."""
        return self.table(alpha).to_frame(frame)

    def _notes(self) -> tuple[str, ...]:
        found = [f"Endogenous: {', '.join(self.endogenous) or 'none'}; excluded: {', '.join(self.excluded) or 'none'}."]
        if self.test is None:
            found.append("Intervals are Wald's: they fail where instruments are weak.")
        else:
            weak = ": weak" if self.test.first_stage < _WEAK else ""
            found.append(
                f"The interval of {self.endogenous[0]} is Anderson and Rubin's, the others are Wald's. "
                f"First stage {self.test.first_stage:.3g} per instrument{weak}."
            )
        return tuple(found)

    def _repr_html_(self) -> str:
        return self.table().as_html()

    def __str__(self) -> str:
        return str(self.table())


def two_stage(noisy: NoisyMoment, X: Floats, Z: Floats, y: Floats, rows: float | None) -> tuple[Floats, Floats, Floats]:
    """θ with its covariances from noise and from sampling, of combinations X (d, m), Z (q, m) and y (m,)."""
    d, q = len(X), len(Z)
    own = noisy.mapped(np.vstack([X, Z, y]))
    M, Q = own.moment, own.spread
    x, z = slice(0, d), slice(d, d + q)
    first = scipy.linalg.lstsq(M[z, z], M[z, x])[0]
    W = scipy.linalg.lstsq(first.T @ M[z, x], first.T)[0]
    theta = W @ M[z, -1]
    a = np.concatenate([-theta, np.zeros(q), [1.0]])
    seen = (Q @ a)[z]
    noise = own.alpha * (Q[z, z] * float(a @ Q @ a) + np.outer(seen, seen))
    sampling = np.zeros((q, q)) if rows is None else max(float(a @ M @ a), 0.0) / max(rows - d, 1.0) * M[z, z]
    return theta, W @ noise @ W.T, W @ sampling @ W.T


def fit_instruments(
    release: Release,
    target: str | list[str],
    on: Sequence[str] | None,
    instruments: Sequence[str],
    estimand: Literal["table", "population"] = "table",
) -> InstrumentalModel:
    """The model of :meth:`gaussmix.Release.regress` with ``instruments``."""
    check.choice(("table", "population"), estimand=estimand)
    schema, noisy = release.schema, release.statistic.noisy
    if not isinstance(target, str) or on is None or isinstance(on, str) or isinstance(instruments, str):
        raise ArgumentError("With instruments= name one target, the columns that explain it in on=, and lists of both.")
    if not isinstance(column_of(schema, target), Numeric | Boolean):
        raise ArgumentError(f"Column {target!r} is no number: name a numeric or a boolean column.")
    for name in (*on, *instruments):
        column_of(schema, name)
        if name == target:
            raise ArgumentError(f"Column {target!r} can neither explain itself nor be its own instrument.")
    outside, inside = [name for name in instruments if name not in on], [name for name in on if name not in instruments]
    explained, given = Coding.of(schema, on), Coding.of(schema, instruments)
    if len(given.names) < len(explained.names):
        raise ArgumentError("There are fewer instruments than features: name the exogenous columns of on= there too.")
    rows = None
    if estimand == "population":
        noisy.check_independent("for_population()", instead="the table's own intervals")
        rows = row_count(release).rows
    constant, centres = constant_row(schema), np.array([column.centre for column in explained.columns[1:]])

    def centred(names: Sequence[str]) -> Floats:
        indices = [schema.names.index(name) for name in names if name != INTERCEPT]
        own = unit_rows(schema, indices) - np.outer(schema.decode_map[0][indices], constant)
        return np.vstack([constant, own]) if INTERCEPT in names else own

    y = centred([target])[0]
    theta, noise, sampling = two_stage(noisy, centred(explained.names), centred(given.names), y, rows)
    back = np.eye(len(theta))
    back[0, 1:] = -centres
    params, noise, sampling = back @ theta, back @ noise @ back.T, back @ sampling @ back.T
    params[0] += schema.encoded[schema.groups[target][0]].centre
    total = np.maximum(np.diagonal(noise + sampling), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.diagonal(noise) / total
    endogenous = [name for name, source in zip(explained.names, explained.sources, strict=True) if source in inside]
    excluded = [name for name, source in zip(given.names, given.sources, strict=True) if source in outside]
    test = None
    if len(endogenous) == 1 and (len(excluded) == 1 or estimand == "population"):
        held = [name for name in given.names if name not in excluded]
        left = residuals(noisy, np.vstack([centred(endogenous), y, centred(excluded)]), centred(held))
        test = AndersonRubin(left, rows)
    numbers = (params, np.sqrt(total), share)
    coef, error, part = (dict(zip(explained.names, map(float, values), strict=True)) for values in numbers)
    again = partial(fit_instruments, release, target, on, instruments)
    return InstrumentalModel(
        target, tuple(endogenous), tuple(excluded), estimand, coef, error, part, test=test, _again=again
    )
