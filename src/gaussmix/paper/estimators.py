r"""Algorithm 2 of arXiv:2505.24603v2 and its logistic version as scikit-learn estimators.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-0.5, 0.5, (20_000, 3))
>>> y = X @ [0.5, -0.3, 0.1] + rng.uniform(-0.1, 0.1, 20_000)
>>> model = LinearMixing(epsilon=1.0, delta=1e-6, data_norm=1.0, bounds_y=(-1, 1)).fit(X, y)
>>> model.coef_.shape, model.certificate_.budget
((3,), (1.0, 1e-06))
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.accounting.calibration import calibrate, eigenvalue_error_bound
from gaussmix.data.arrays import check_classes, read_classes, read_features, read_targets, without_values
from gaussmix.errors import ArgumentError, DeclarationError
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.mechanism.noise import generator
from gaussmix.paper.certificate import N_MAX, Analysis, Certificate
from gaussmix.paper.mixing import modified_gauss_mix
from gaussmix.paper.sketch import Sketch
from gaussmix.paper.utility import logistic_surrogate

__all__ = ["LinearMixing", "LogisticMixing", "paper_sketch_size"]

RESPONSE, INTERCEPT = "y", "(intercept)"
LABELS_PUBLIC = "The two labels were taken from the table and are assumed to be public."
_BLOCK = 2**12


def paper_sketch_size(d: int) -> int:
    """Return k = ⌈2.5 max(d, log 10¹⁰)⌉, the rule of the paper's experiments, for d predictors."""
    return math.ceil(2.5 * max(check.positive_integer(d=d), math.log(1e10)))


@dataclass(kw_only=True, eq=False, repr=False)
class _Mixing(BaseEstimator):
    """Release a sketch of (x, y) by Algorithm 1 and solve it by least squares."""

    epsilon: float = 1.0
    delta: float = 1e-6
    data_norm: float | None = None
    fit_intercept: bool = False
    sketch_size: int | None = None
    analysis: Analysis = "paper"
    n_max: int = N_MAX
    random_state: int | np.random.Generator | None = None

    def _check_parameters(self) -> None:
        """Check all parameters before a row is read."""
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        if self.data_norm is None:
            raise DeclarationError(
                "data_norm is required. Declare it before looking at the data: a bound computed from the data is not "
                "private."
            )
        check.positive(finite=True, data_norm=self.data_norm)
        check.choice(("exact", "paper"), analysis=self.analysis)
        check.positive_integer(n_max=self.n_max)
        if self.sketch_size is not None:
            check.sketch_rows(sketch_size=self.sketch_size)
        generator(self.random_state)
        warn_if_weak(self.epsilon, self.delta)

    def _release(self, X: Rows, y: Rows, y_abs: float) -> tuple[Floats, float]:
        """Draw the sketch and return the coefficients of the features and of the intercept."""
        data_norm = float(self.data_norm or 0.0)
        constant = data_norm / 2 if self.fit_intercept else 0.0  # the value of the intercept column
        features = [f"X[{j}]" for j in range(X.shape[1])]
        columns = [*features, *([INTERCEPT] if self.fit_intercept else []), RESPONSE]
        d = len(columns) - 1
        k = paper_sketch_size(d) if self.sketch_size is None else self.sketch_size
        if k < d:
            raise ArgumentError(f"sketch_size must be at least the number of predictors, {d}, got {k}.")
        calibration = calibrate(
            self.epsilon,
            self.delta,
            sketch_size=k,
            scale="private",
            analysis=self.analysis,
            eigenvalue_error=eigenvalue_error_bound(d + 1, n_max=self.n_max),
        )

        def blocks() -> Iterator[Floats]:
            for start in range(0, len(X), _BLOCK):
                rows, targets = X[start : start + _BLOCK], y[start : start + _BLOCK]
                yield np.column_stack([rows, *([np.full(len(rows), constant)] if constant else []), targets])

        self.sketch_: Sketch = modified_gauss_mix(
            blocks(),
            math.sqrt(data_norm**2 + constant**2 + y_abs**2),
            calibration=calibration,
            n_max=self.n_max,
            columns=columns,
            rng=self.random_state,
        )
        theta = self.sketch_.lstsq(RESPONSE)
        return theta[: len(features)], float(theta[-1] * constant) if self.fit_intercept else 0.0

    @property
    def certificate_(self) -> Certificate:
        """The guarantee and its conditions."""
        return self.sketch_.certificate


@dataclass(kw_only=True, eq=False, repr=False)
class LinearMixing(RegressorMixin, _Mixing):
    r"""Private linear regression by Algorithm 2 of arXiv:2505.24603v2 (LinearMixing), corrected.

    The smallest γ > 5/2 that meets the budget by Theorem 1 with η = γ/√k is computed. Algorithm 1 then sketches (X, y)
    with :math:`C^2 = C_X^2 + C_Y^2` and τ = √(2 log(3/δ)), and the sketch is solved by least squares. The corrections
    are those of :func:`gaussmix.paper.modified_gauss_mix`. Every fit is a release with its own budget.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget.
    data_norm : float
        C_X, a bound on the Euclidean norm of a row of features.
    bounds_y : (float, float)
        Lower and upper bound on y, to which y is clamped; C_Y is the larger absolute value. Rows (x, y) of norm above C
        are scaled back to it as a whole. Declare both bounds before looking at the data.
    fit_intercept : bool
        Add a constant column of value C_X/2, which C then includes. Not part of Algorithm 2.
    sketch_size : int, optional
        k; ⌈2.5 max(d, log 10¹⁰)⌉ by default, as in the paper's experiments.
    analysis : {"paper", "exact"}
        Theorem 1, or the joint account of :mod:`gaussmix.accounting.private_scale` with γ, η and τ chosen together,
        which needs about half of the noise.
    n_max : int
        A public bound on the number of rows, for the numerical error of λ_min. The default holds for every table.
    random_state : None, int or numpy.random.Generator
        Default: the secure generator. A seed voids the guarantee, and the certificate states so.

    Attributes
    ----------
    coef_ : array (features,)
        θ.
    intercept_ : float
        0 without an intercept.
    sketch_ : Sketch
        The release, of columns ``X[0]``, …, ``y``: everything else is computed from it.
    certificate_ : Certificate
        The guarantee and its conditions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Names of the features, if X was a data frame.
    """

    bounds_y: tuple[float, float] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> LinearMixing:
        """Fit to X (rows, features) and y (rows,)."""
        self._check_parameters()
        lower, upper = _bounds(self.bounds_y)
        rows, targets = read_targets(self, X, y)
        clamped = np.clip(targets, lower, upper)
        self.coef_, self.intercept_ = self._release(rows, clamped, max(abs(lower), abs(upper)))
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return predicted targets, shape (rows,)."""
        check_is_fitted(self)
        return np.asarray(read_features(self, X) @ self.coef_ + self.intercept_)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predictions. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise exceeds the signal of the small tables that scikit-learn tries
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticMixing(ClassifierMixin, _Mixing):
    r"""Private logistic regression by a quadratic surrogate (section 4.2 of arXiv:2505.24603v2), corrected.

    -log(1 + e⁻ˢ) is replaced by the parabola b₀ + b₁s + b₂s² on [-Q, Q] (:func:`gaussmix.paper.logistic_surrogate`),
    whose maximum is least squares: :class:`LinearMixing` with responses y ∈ {-1, 1} and C_Y = 1, its θ multiplied by
    -b₁/(2b₂). The paper's appendix scales θ as well; scaling y, as in its section 4.2, would raise C_Y to 3.5.

    Parameters
    ----------
    epsilon, delta, data_norm, fit_intercept, sketch_size, analysis, n_max, random_state
        As in :class:`LinearMixing`.
    classes : (first, second), optional
        The two labels. By default they are taken from y, and the certificate states that they are assumed public.
    surrogate_radius : float
        Q: the surrogate is meant for margins :math:`|x^T\theta| \le Q`.

    Attributes
    ----------
    coef_ : array (1, features)
        Coefficients of the log odds of the second class.
    intercept_ : array (1,)
        0 without an intercept.
    classes_ : array (2,)
        The labels.
    sketch_, certificate_, n_features_in_, feature_names_in_
        As in :class:`LinearMixing`; ``y`` is -1 and 1.
    """

    classes: ArrayLike | None = None
    surrogate_radius: float = 6.0

    def fit(self, X: ArrayLike, y: ArrayLike) -> LogisticMixing:
        """Fit to X (rows, features) and y (rows,), two labels of any type."""
        self._check_parameters()
        scale = logistic_surrogate(check.positive(finite=True, surrogate_radius=self.surrogate_radius)).scale
        check_classes(self.classes)
        rows, second, classes = read_classes(self, X, y, self.classes)
        coef, intercept = self._release(rows, np.where(second, 1.0, -1.0), 1.0)
        if self.classes is None:
            certificate = replace(self.sketch_.certificate, assumptions=(LABELS_PUBLIC,))
            self.sketch_ = replace(self.sketch_, certificate=certificate)
        self.coef_, self.intercept_, self.classes_ = scale * coef[np.newaxis], np.array([scale * intercept]), classes
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return log odds of the second class, shape (rows,)."""
        check_is_fitted(self)
        return np.asarray(read_features(self, X) @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> Rows:
        """Return predicted labels, shape (rows,)."""
        log_odds = self.decision_function(X)
        return np.asarray(self.classes_[(log_odds > 0).astype(int)])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of the predicted labels. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags


def _bounds(bounds_y: Any) -> tuple[float, float]:
    """Return the declared bounds on y."""
    if bounds_y is None:
        raise DeclarationError(
            "bounds_y=(lower, upper) is required. Declare it before looking at the data: a bound computed from the "
            "data is not private."
        )
    try:
        lower, upper = (float(bound) for bound in bounds_y)
    except (TypeError, ValueError):
        raise DeclarationError(f"bounds_y must be a pair of numbers (lower, upper), got {bounds_y!r}.") from None
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise DeclarationError(f"bounds_y must be finite with lower < upper, got ({lower!r}, {upper!r}).")
    return lower, upper
