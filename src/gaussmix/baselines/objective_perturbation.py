r"""Objective perturbation for logistic regression (Kifer, Smith and Thakurta 2012).

With features of norm at most C_X, b ~ N(0, σ²I), σ = C_X √(8 log(2/δ) + 4ε)/ε, and Δ = 2(C_X²/4)/ε, twice the largest
curvature of the loss over ε,

.. math:: \theta = \arg\min_\theta \sum_i \log(1 + e^{-y_i x_i\theta}) + b^\top\theta + \tfrac\Delta2\|\theta\|^2

is (ε, δ)-differentially private. (arXiv:2505.24603v2 prints the loss with the opposite sign.) The proof is about the
exact minimum: Newton's method goes on until the gradient's norm is at most 10⁻⁸ C_X, and fails otherwise
(:mod:`gaussmix.mechanism.objective_perturbation`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gaussmix.accounting.parameters import warn_if_weak
from gaussmix.estimators.base import LABELS_PUBLIC, Bounds, LinearClassifier, in_arrays, read_classes, target_names
from gaussmix.mechanism.objective_perturbation import PreparedObjectivePerturbation
from gaussmix.mechanism.sampling import generator

__all__ = ["ObjectivePerturbation"]


class ObjectivePerturbation(LinearClassifier):
    """Private logistic regression by a random linear term in the objective.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, classes, fit_intercept, random_state
        As in :class:`gaussmix.LogisticRegression`. With an infinite ``epsilon`` the penalty is 1e-6, without noise.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> ObjectivePerturbation:
        """Fit to X (rows, features) and y (rows,) with two labels."""
        schema = self._schema_of(X, y)
        prepared = PreparedObjectivePerturbation.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            conditions=() if self.classes is not None else (LABELS_PUBLIC,),
            rng=generator(self.random_state),
        )
        warn_if_weak(prepared.epsilon, prepared.delta)
        rows, second, classes = read_classes(self, X, y, self.classes)
        theta, self.privacy_ = prepared.draw(rows, second)
        self.classes_ = classes
        self.coef_, self.intercept_ = in_arrays(schema, list(target_names(1)), theta[:, np.newaxis], scale=1.0)
        return self
