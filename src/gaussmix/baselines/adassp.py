r"""AdaSSP: sufficient statistics with Gaussian noise and an adaptive ridge (Wang 2018, arXiv:1803.02596).

As arXiv:2505.24603v2 prints it (its appendix "AdaSSP"), with L = log(6/δ) and s = √L/(ε/3):

    λ̃ = max(λ_min(XᵀX) + s C_X² z - s √L C_X², 0),   λ = max(0, s √(d log(2d²/ρ)) C_X² - λ̃),
    θ = (XᵀX + s C_X² E + λI)⁻¹ (Xᵀy + s C_X C_Y e)

with E symmetric. Printed, each of the three releases is claimed to cost (ε/3, δ/3), which fails for large ε; one joint
Gaussian account of all three holds up to about ε = 10 for the printed s, and beyond that s is raised until it does.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.parameters import warn_if_weak
from gaussmix.baselines.unprotected import Unnoised, least_squares_of
from gaussmix.data.schema import Schema
from gaussmix.estimators.base import Bounds, LinearRegressor, PreparedDraw
from gaussmix.mechanism.adassp import NoisyBlocks, PreparedAdaSSP
from gaussmix.mechanism.sampling import generator
from gaussmix.models.release import Release
from gaussmix.releases.certificate import Certificate

__all__ = ["AdaSSP"]


class AdaSSP(LinearRegressor[NoisyBlocks | Release]):
    """AdaSSP as printed, or under one exact joint account.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearRegression`.
    analysis : {"exact", "printed"}
        ``"exact"``: the three releases share one Gaussian budget μ by the exact curve, s = √3/μ, and off-diagonal noise
        is √2 smaller. ``"printed"``: the constants above.
    rho : float
        Failure probability in the ridge.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        analysis: Literal["exact", "printed"] = "exact",
        rho: float = 0.05,
        n_rows: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.analysis = analysis
        self.rho = rho
        self.n_rows = n_rows
        self.random_state = random_state

    def _prepare(self, schema: Schema) -> PreparedDraw[NoisyBlocks | Release]:
        if check.positive(epsilon=self.epsilon) == math.inf:
            return Unnoised("AdaSSP")
        prepared = PreparedAdaSSP.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            analysis=self.analysis,
            n_rows=self.n_rows,
            rng=generator(self.random_state),
        )
        warn_if_weak(prepared.epsilon, prepared.delta)
        return prepared

    def _solve(self, drawn: NoisyBlocks | Release, schema: Schema) -> tuple[Floats, Certificate]:
        if isinstance(drawn, Release):
            return least_squares_of(drawn), drawn.certificate
        # Noise may have left the matrix indefinite; that it is singular has probability 0.
        theta = scipy.linalg.solve(drawn.XX + drawn.ridge * np.eye(len(drawn.XX)), drawn.XY, assume_a="sym")
        return np.asarray(theta), drawn.certificate
