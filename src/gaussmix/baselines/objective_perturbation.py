r"""Objective perturbation for logistic regression, in the calibrations of 2012 and of 2023.

With features of norm at most C_X, noise b ~ N(0, σ²I) and a penalty Δ the coefficients are

.. math:: \theta = \arg\min_\theta \sum_i \log(1 + e^{-y_i x_i\theta}) + b^\top\theta + \tfrac\Delta2\|\theta\|^2

(arXiv:2505.24603v2 prints the loss with the opposite sign.) The proofs are for the exact minimum: Newton's method
continues until the norm of the gradient is at most 10⁻⁸ C_X, and fails otherwise. The loss is a sum over rows that
moments do not determine, so the rows are read here, encoded as for a release.

**2012** (Kifer, Smith and Thakurta): σ = C_X √(8 log(2/δ) + 4ε)/ε and Δ = 2(C_X²/4)/ε, twice the largest curvature of
the loss over ε, are (ε, δ)-differentially private.

**2023** (Redberg, Koskela and Wang, arXiv:2401.00583, the theorem on the hockey-stick divergence). With
q = log(1 + C_X²/(4Δ)), μ = C_X/σ and δ_G(ε; μ) the curve of the Gaussian mechanism
(:mod:`gaussmix.accounting.gaussian`),

.. math:: \delta(\varepsilon) \le 2\,\delta_G(\varepsilon - q; \mu), \qquad \varepsilon - q \ge \mu^2/2.

*Proof.* θ determines the noise, b(θ) = -∇L(θ) - Δθ, so θ has the density φ_σ(b(θ))·det(∇²L(θ) + ΔI). A row (x, y) more
changes b(θ) by g(θ) = s·yx with 0 < s = 1/(1 + e^{yxθ}) < 1, and the matrix H = ∇²L(θ) + ΔI by s(1 - s)xᵀx, so that the
determinant grows by the factor 1 + s(1 - s)xH⁻¹xᵀ, between 1 and e^q, as s(1 - s) ≤ 1/4 and H ≥ ΔI. Let P be the
distribution of θ on either table and Q on the other. Under P the noise b of P's own table is N(0, σ²I), and with
t = ±1 according to which table is the larger

.. math:: \log\frac{dP}{dQ}(\theta) \le q + \frac{\|b + tg\|^2 - \|b\|^2}{2\sigma^2}
          \le q + \frac{\mu^2}2 + \mu|Z|, \qquad Z = \frac{b^\top x}{\sigma\|x\|} \sim N(0, 1),

because x is fixed and only s depends on θ. Hence δ(ε) = E_P[(1 - e^ε dQ/dP)₊] ≤ E[(1 - e^{ε - q - μ²/2 - μ|Z|})₊]. If
ε - q ≥ μ²/2 the integrand is 0 at Z = 0, and each sign of Z gives E[(1 - e^{ε - q - μ²/2 - μZ})₊] = δ_G(ε - q; μ): the
privacy loss of the Gaussian mechanism is μ²/2 + μZ. ∎

The authors have \|log(1 - C_X²/(4Δ))\| in place of q, which is larger, and a second case for ε - q < μ²/2, which no
calibration here needs. As s has one sign, |Z| could be max(Z, 0), without the factor 2, for 2 to 3 % less noise; the
factor is left as published. ``penalty_share`` chooses Δ by q = penalty_share·ε: a smaller share buys less noise with a
larger penalty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.accounting.accounts import ObjectivePerturbationAccount
from gaussmix.data.arrays import read_classes
from gaussmix.data.encode import encode_arrays
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DataError
from gaussmix.estimators.base import LinearClassifier, Private, coefficients
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.mechanism.noise import generator, public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify
from gaussmix.releases.certificate import Certificate, Condition

__all__ = ["ObjectivePerturbation", "PreparedObjectivePerturbation", "minimise"]


MAX_STEPS = 200
LEAST_EPSILON = 1e-5


@dataclass(frozen=True)
class PreparedObjectivePerturbation:
    """Objective perturbation, ready except for the rows.

    With ``epsilon=inf`` the penalty is 1e-6 and there is no noise.
    """

    schema: Schema
    epsilon: float
    delta: float
    account: ObjectivePerturbationAccount
    conditions: Sequence[Condition]
    rng: np.random.Generator
    _once: OneDraw = field(default_factory=OneDraw, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        conditions: Sequence[Condition],
        rng: np.random.Generator,
        penalty_share: float | None = None,
    ) -> PreparedObjectivePerturbation:
        """Check the parameters and compute noise and penalty."""
        epsilon, delta = check.positive(epsilon=epsilon), check.in_interval(0, 1, delta=delta)
        if epsilon < LEAST_EPSILON:
            raise ArgumentError(
                f"epsilon must be at least {LEAST_EPSILON:g} for objective perturbation, got {epsilon!r}: for "
                "smaller values rounding prevents the minimisation from converging."
            )
        (X, _) = schema.columns
        x_norm = schema.norm_of([X], intercept=True)
        if penalty_share is not None:
            penalty_share = check.in_interval(0, 1, penalty_share=penalty_share)
        account = ObjectivePerturbationAccount.calibrated(epsilon, delta, x_norm=x_norm, penalty_share=penalty_share)
        return cls(schema, epsilon, delta, account, conditions, rng)

    def draw(self, X: Rows, second: Rows) -> tuple[Floats, Certificate]:
        """Return θ on features and intercept, in encoded units and on the grid; ``second`` marks the second class."""
        schema, account = self.schema, self.account
        encoded = encode_arrays(schema, X, second.astype(float)) * schema.row_norm
        self._once.take()
        d = X.shape[1]
        features = np.delete(encoded, d, axis=1)  # clipped rows are scaled as a whole, label included
        b = np.asarray(account.noise * self.rng.standard_normal(features.shape[1]))
        signs = np.where(second, 1.0, -1.0)
        theta = minimise(features, signs, b, account.penalty, tolerance=account.gradient_norm)
        if not math.isinf(self.epsilon):
            theta = to_grid(theta, public_grid(1 / account.x_norm))
        certificate = certify(
            schema,
            account,
            self.rng,
            made_by="ObjectivePerturbation",
            budget=(self.epsilon, self.delta),
            neighbours="add-remove",
            conditions=self.conditions,
        )
        return theta, certificate


def minimise(X: Floats, y: Floats, b: Floats, penalty: float, *, tolerance: float) -> Floats:
    """Minimise Σ log(1 + exp(-y xθ)) + bᵀθ + penalty/2 ‖θ‖² by damped Newton steps."""
    theta = np.zeros(X.shape[1])
    A = y[:, None] * X

    def objective(theta: Floats) -> float:
        return float(np.logaddexp(0, -A @ theta).sum() + b @ theta + penalty / 2 * theta @ theta)

    value = objective(theta)
    for _ in range(MAX_STEPS):
        p = special.expit(-A @ theta)
        gradient = b + penalty * theta - A.T @ p
        if np.linalg.norm(gradient) <= tolerance:
            return theta
        hessian = (X.T * (p * (1 - p))) @ X + penalty * np.eye(len(theta))
        direction = scipy.linalg.solve(hessian, gradient, assume_a="pos")
        step, rounding = 1.0, 1e-12 * (1 + abs(value))  # near the minimum the objective no longer shows progress
        while (new := objective(theta - step * direction)) > value + rounding and step > 1e-12:
            step /= 2
        theta, value = theta - step * direction, new
    raise DataError(
        "The minimisation did not reach the required gradient norm, so the privacy proof does not apply and nothing "
        "was released. Treat the budget as spent, because the noise was drawn. Consider "
        "gm.LogisticRegression, which needs no minimisation."
    )


@dataclass(kw_only=True, eq=False, repr=False)
class ObjectivePerturbation(LinearClassifier, Private):
    """Private logistic regression by a random linear term in the objective.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, classes, fit_intercept, random_state
        As in :class:`gaussmix.LogisticRegression`. With an infinite ``epsilon`` the penalty is 1e-6, without noise.
    penalty_share : float, optional
        Share of ε that the penalty uses in the calibration of 2023, between 0 and 1. Default: the calibration of 2012.
    """

    penalty_share: float | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> ObjectivePerturbation:
        """Fit to X (rows, features) and y (rows,) with two labels."""
        schema = self._schema_of(X, y)
        prepared = PreparedObjectivePerturbation.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            conditions=self._conditions,
            rng=generator(self.random_state),
            penalty_share=self.penalty_share,
        )
        warn_if_weak(self.epsilon, self.delta)
        rows, second, self.classes_ = read_classes(self, X, y, self.classes, finite=False)
        theta, self.privacy_ = prepared.draw(rows, second)
        self.coef_, self.intercept_ = coefficients(schema, theta[:, np.newaxis], scale=1.0)
        return self
