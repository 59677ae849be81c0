r"""AdaSSP: sufficient statistics with Gaussian noise and an adaptive ridge (Wang 2018, arXiv:1803.02596).

As arXiv:2505.24603v2 prints it (its appendix "AdaSSP"), with L = log(6/δ) and s = √L/(ε/3):

    λ̃ = max(λ_min(XᵀX) + s C_X² z - s √L C_X², 0),   λ = max(0, s √(d log(2d²/ρ)) C_X² - λ̃),
    θ = (XᵀX + s C_X² E + λI)⁻¹ (Xᵀy + s C_X C_Y e)

with E symmetric. Printed, each of the three releases is claimed to cost (ε/3, δ/3), which fails for large ε; one joint
Gaussian account of all three holds up to about ε = 10 for the printed s, and beyond that s is raised until it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix.baselines._regressor import LinearBaseline
from gaussmix.encoding import RowEncoder
from gaussmix.mechanism import (
    certify,
    draw_noisy_blocks,
    draw_smallest_eigenvalue,
    largest_table,
    open_release,
)
from gaussmix.moments import Moments
from gaussmix.releases import Certificate
from gaussmix.sampling import generator
from gaussmix.solvers import least_squares

__all__ = ["AdaSSP"]

Floats = NDArray[np.float64]


class AdaSSP(LinearBaseline):
    """AdaSSP as printed, or under one exact joint account.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearMixing`.
    accounting : {"exact", "printed"}
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
        bounds_X: Any = None,
        bounds_y: Any = None,
        fit_intercept: bool = True,
        accounting: Literal["exact", "printed"] = "exact",
        rho: float = 0.05,
        n_rows: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.accounting = accounting
        self.rho = rho
        self.n_rows = n_rows
        self.random_state = random_state

    def _theta(self, read: Callable[[], Moments], encoder: RowEncoder) -> tuple[Floats, Certificate]:
        check.choice(("exact", "printed"), accounting=self.accounting)
        check.in_interval(0, 1, rho=self.rho)
        p = encoder.n_columns - encoder.n_targets
        if check.positive(epsilon=self.epsilon) == math.inf:
            release = open_release(read())
            G = release.second_moment()
            return least_squares(G[:p, :p], G[:p, p:]), release.certificate
        log_term = math.log(6 / check.in_interval(0, 1, delta=self.delta))
        # In units of its own sensitivity each release has noise s: together they are one Gaussian of μ = √3/s.
        s = math.sqrt(3) / accounting.gaussian_mu(self.epsilon, self.delta)
        if self.accounting == "printed":
            s = max(s, math.sqrt(log_term) / (self.epsilon / 3))
        rng, source = generator(self.random_state)
        moments = read()
        features, targets = slice(0, p), slice(p, None)
        # Sensitivities where encoded rows have norm at most 1: squared share of the features, and of the targets.
        C = encoder.row_norm
        x_norm = math.sqrt(encoder.x_norm**2 + encoder.intercept**2) / C
        y_norm = math.sqrt(sum(w**2 for w in encoder.target_weights)) / C
        noisy_eigenvalue = draw_smallest_eigenvalue(
            moments, features, sensitivity=x_norm**2, noise=s, rng=rng, n_max=largest_table(self.n_rows)
        )
        lower = max(noisy_eigenvalue - s * math.sqrt(log_term) * x_norm**2, 0.0)
        ridge = max(0.0, s * math.sqrt(p * math.log(2 * p**2 / self.rho)) * x_norm**2 - lower)
        XX, XY = draw_noisy_blocks(
            moments,
            features,
            targets,
            feature_noise=s * x_norm**2,
            target_noise=s * x_norm * y_norm,
            off_diagonal="root half" if self.accounting == "exact" else "as diagonal",
            rng=rng,
        )
        certificate = certify(
            encoder,
            mechanism="AdaSSP",
            epsilon=self.epsilon,
            delta=self.delta,
            relation="zero-out",
            analysis="joint Gaussian" if self.accounting == "exact" else "printed constants, checked jointly",
            generator=source,
            parameters={"noise": s, "ridge": ridge * C**2, "rho": self.rho},
            n_rows=self.n_rows,
        )
        # Noise may have left the matrix indefinite; that it is singular has probability 0.
        theta = scipy.linalg.solve(XX + ridge * np.eye(p), XY, assume_a="sym")
        return np.asarray(theta), certificate
