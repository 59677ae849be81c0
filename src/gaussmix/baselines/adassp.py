"""AdaSSP: sufficient statistics with Gaussian noise and an adaptive ridge (Wang 2018, arXiv:1803.02596).

As printed in arXiv:2505.24603v2 (appendix "AdaSSP"), with L = log(6/δ) and s = √L/(ε/3):

    λ̃ = max(λ_min(XᵀX) + s C_X² z - s √L C_X², 0),   λ = max(0, s √(d log(2d²/ρ)) C_X² - λ̃),
    θ = (XᵀX + s C_X² E + λI)⁻¹ (Xᵀy + s C_X C_Y e)

with E symmetric. As printed, each of the three releases costs (ε/3, δ/3), which fails for large ε. One joint Gaussian
account of all three holds up to about ε = 10 for the printed s; beyond that s is raised until it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.accounts import AdaSSPAccount
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.accounting.numerics import root_up
from gaussmix.baselines.reference import without_noise
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.estimators.base import Draw, LinearRegressor, Private
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.mechanism.noise import down_to_grid, generator, public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify, check_rows
from gaussmix.releases.certificate import Certificate

__all__ = ["AdaSSP", "NoisyBlocks", "PreparedAdaSSP", "eigenvalue_and_error"]


@dataclass(frozen=True)
class NoisyBlocks:
    """XᵀX and XᵀY with Gaussian noise and the ridge to solve them with, in units where C = 1."""

    XX: Floats
    XY: Floats
    ridge: float
    certificate: Certificate


@dataclass(frozen=True)
class PreparedAdaSSP:
    """AdaSSP, ready except for the rows.

    Attributes
    ----------
    noise : float
        s, the noise of each of the three releases relative to its sensitivity; together they have μ = √3/s.
    """

    schema: Schema
    epsilon: float
    delta: float
    noise: float
    rho: float
    analysis: Literal["exact", "printed"]
    n_rows: int | None
    rng: np.random.Generator
    _once: OneDraw = field(default_factory=OneDraw, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        rho: float,
        analysis: Literal["exact", "printed"],
        n_rows: int | None,
        rng: np.random.Generator,
    ) -> PreparedAdaSSP:
        """Check the parameters and compute the noise."""
        check.choice(("exact", "printed"), analysis=analysis)
        rho, delta = check.in_interval(0, 1, rho=rho), check.in_interval(0, 1, delta=delta)
        noise = root_up(3 / Fraction(gaussian_mu(epsilon, delta)) ** 2)
        if analysis == "printed":
            noise = max(noise, math.sqrt(math.log(6 / delta)) / (epsilon / 3))
        return cls(schema, epsilon, delta, noise, rho, analysis, n_rows, rng)

    def draw(self, rows: RowSource) -> NoisyBlocks:
        """Draw the three releases: λ_min(XᵀX), XᵀX and XᵀY. X includes the intercept."""
        schema, s = self.schema, self.noise
        X, *targets = schema.columns
        features = np.array([*schema.groups[X], *schema.groups.get(INTERCEPT, ())])
        responses = np.array([schema.groups[name][0] for name in targets])
        x_norm = schema.norm_of([X], intercept=True) / schema.row_norm
        y_norm = schema.norm_of(targets) / schema.row_norm
        check_rows(rows, schema)
        gram, p = rows.gram().floats(), len(features)
        self._once.take()
        XX, XY = gram[np.ix_(features, features)], gram[np.ix_(features, responses)]
        noisy_eigenvalue = _noisy_eigenvalue(XX, schema.n_columns, x_norm**2, s, self.n_rows, self.rng)
        lower = max(noisy_eigenvalue - s * math.sqrt(math.log(6 / self.delta)) * x_norm**2, 0.0)
        ridge = max(0.0, s * math.sqrt(p * math.log(2 * p**2 / self.rho)) * x_norm**2 - lower)
        noise = _symmetric_noise(p, 1.0 if self.analysis == "printed" else math.sqrt(0.5), self.rng)
        x_noise, y_noise = s * x_norm**2, s * x_norm * y_norm
        account = AdaSSPAccount(noise=s, ridge=ridge * schema.row_norm**2, rho=self.rho, analysis=self.analysis)
        return NoisyBlocks(
            to_grid(XX + x_noise * noise, public_grid(x_noise)),
            to_grid(XY + y_noise * self.rng.standard_normal(XY.shape), public_grid(y_noise)),
            ridge,
            certify(
                schema,
                account,
                self.rng,
                made_by="AdaSSP",
                budget=(self.epsilon, self.delta),
                neighbours="add-remove",
                n_rows=self.n_rows,
            ),
        )


def eigenvalue_and_error(gram: Floats, columns: int, n_rows: int | None) -> tuple[float, float]:
    """Return λ_min minus a public bound on the error of the solver, at least 0, and the bound. **Sensitive**."""
    error = eigenvalue_error_bound(columns, n_max=2**40 if n_rows is None else n_rows)
    return max(float(scipy.linalg.eigvalsh(gram, check_finite=False)[0]) - error, 0.0), error


def _noisy_eigenvalue(
    gram: Floats, columns: int, sensitivity: float, noise: float, n_rows: int | None, rng: np.random.Generator
) -> float:
    """Return λ_min plus Gaussian noise, rounded down to the grid.

    One row changes the exact value by at most ``sensitivity`` and the computed value by at most 2e more, where e is the
    error bound of the solver. ``noise`` is relative to this sum.
    """
    lower, error = eigenvalue_and_error(gram, columns, n_rows)
    std = noise * (sensitivity + 2 * error)
    return down_to_grid(lower + std * rng.standard_normal(), public_grid(std))


def _symmetric_noise(p: int, off_diagonal: float, rng: np.random.Generator) -> Floats:
    """Return a symmetric matrix of normals.

    (x_i², √2 x_i x_j) has norm ‖x‖², so off-diagonal noise may be √2 smaller than diagonal noise at the same cost.
    AdaSSP as printed uses the same noise for both.
    """
    noise = rng.standard_normal((p, p))
    upper = np.triu(noise, 1) * off_diagonal
    return np.asarray(upper + upper.T + np.diag(np.diagonal(noise)))


@dataclass(kw_only=True, eq=False, repr=False)
class AdaSSP(LinearRegressor, Private):
    """Linear regression by AdaSSP, with the constants of its paper or with one exact joint privacy account.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearRegression`.
    analysis : {"exact", "printed"}
        ``"exact"``: the three releases share one Gaussian budget μ by the exact curve, s = √3/μ, and off-diagonal noise
        is √2 smaller. ``"printed"``: the constants of the paper.
    rho : float
        Failure probability in the ridge.
    """

    analysis: Literal["exact", "printed"] = "exact"
    rho: float = 0.05
    n_rows: int | None = None

    def _prepare(self, schema: Schema) -> Draw:
        if check.positive(epsilon=self.epsilon) == math.inf:
            return without_noise("AdaSSP")
        prepared = PreparedAdaSSP.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            analysis=self.analysis,
            n_rows=self.n_rows,
            rng=generator(self.random_state),
        )
        warn_if_weak(self.epsilon, self.delta)

        def draw(rows: RowSource) -> tuple[Floats, Certificate]:
            drawn = prepared.draw(rows)
            # Noise may have left the matrix indefinite; it is singular with probability 0.
            theta = scipy.linalg.solve(drawn.XX + drawn.ridge * np.eye(len(drawn.XX)), drawn.XY, assume_a="sym")
            return np.asarray(theta), drawn.certificate

        return draw
