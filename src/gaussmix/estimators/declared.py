r"""An estimator is a schema: a vector X, the targets, and an intercept, from what the caller declares.

>>> schema = regression_schema(3, 1, data_norm=None, bounds_X=(-1, 1), bounds_y=(0, 10), fit_intercept=True)
>>> schema.names
('X[0]', 'X[1]', 'X[2]', 'y', '(intercept)')
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix.errors import DeclarationError
from gaussmix.tables.columns import Boolean, Column, Numeric, Vector
from gaussmix.tables.schema import Schema

__all__ = ["FEATURES", "Bounds", "Weighting", "classification_schema", "regression_schema", "target_names"]

Bounds = tuple[ArrayLike, ArrayLike]
Weighting = Literal["balanced", "paper"]

FEATURES = "X"
"""Name of the vector of features."""

INTERCEPT_OF_NORM = 0.5
"""Value of the constant column, in units of ``data_norm``, where features are bounded by norm alone."""


def target_names(n_targets: int) -> tuple[str, ...]:
    """``("y",)``, or ``("y0", "y1", …)``."""
    return ("y",) if n_targets == 1 else tuple(f"y{i}" for i in range(n_targets))


def regression_schema(
    n_features: int,
    n_targets: int,
    *,
    data_norm: float | None,
    bounds_X: Bounds | None,
    bounds_y: Bounds | None,
    fit_intercept: bool,
    weighting: Weighting = "balanced",
) -> Schema:
    r"""The schema of a linear regression.

    With an intercept, bounded features and targets are centred; without one nothing is, and bounds are widened to
    ±max(\|lower\|, \|upper\|), so that no intercept comes in through the centres.

    The weight of the q targets is ``"balanced"``,

    .. math:: w^2 = C_X^2\,\bigl(\sqrt{1 + 8/q} - 1\bigr)/4,

    which minimises (C_X² + q w²)²(1/w² + 1/C_X²), the variance of the noise in xᵀ(y - xθ) for a θ that takes rows of
    norm C_X to targets of size 1; or the ``"paper"``'s: targets enter in the units of the features.
    """
    if bounds_y is None:
        raise DeclarationError(
            "bounds_y=(lower, upper) must be declared. It must be fixed before the data are seen: "
            "a bound taken from the data is not private."
        )
    lower, upper = _per_column(bounds_y, n_targets, "bounds_y")
    if not fit_intercept:
        lower, upper = _symmetric(lower, upper)
    features, intercept = _features(n_features, data_norm, bounds_X, fit_intercept)
    if weighting == "balanced":
        weights = [_balanced_weight(features, intercept, n_targets)] * n_targets
    elif features.bounded:
        weights = [1.0] * n_targets
    else:
        weights = [(high - low) / 2 / (features.norm or 1.0) for low, high in zip(lower, upper, strict=True)]
    targets = {
        name: Numeric(low, high, weight=weight)
        for name, low, high, weight in zip(target_names(n_targets), lower, upper, weights, strict=True)
    }
    return Schema({FEATURES: features, **targets}, intercept)


def classification_schema(
    n_features: int,
    *,
    data_norm: float | None,
    bounds_X: Bounds | None,
    fit_intercept: bool,
    weighting: Weighting = "balanced",
) -> Schema:
    """The schema of a classification with two classes, as true and false; weights as for targets in [-1, 1]."""
    features, intercept = _features(n_features, data_norm, bounds_X, fit_intercept)
    if weighting == "balanced":
        weight = _balanced_weight(features, intercept, 1)
    else:
        weight = 1.0 if features.bounded else 1 / (features.norm or 1.0)
    columns: dict[str, Column] = {FEATURES: features, **{name: Boolean(weight=weight) for name in target_names(1)}}
    return Schema(columns, intercept)


def _features(
    n_features: int, data_norm: float | None, bounds_X: Bounds | None, fit_intercept: bool
) -> tuple[Vector, float]:
    """The vector X and the value of the constant column."""
    if data_norm is None and bounds_X is None:
        raise DeclarationError(
            "Declare bounds_X or data_norm. They must be fixed before the data are seen: "
            "a bound taken from the data is not private."
        )
    if data_norm is not None:
        data_norm = check.positive(finite=True, data_norm=data_norm)
    if bounds_X is None:
        return Vector(n_features, norm=data_norm), INTERCEPT_OF_NORM if fit_intercept else 0.0
    lower, upper = _per_column(bounds_X, n_features, "bounds_X")
    if not fit_intercept:
        lower, upper = _symmetric(lower, upper)
    return Vector(n_features, lower=lower, upper=upper, norm=data_norm), 1.0 if fit_intercept else 0.0


def _balanced_weight(features: Vector, intercept: float, n_targets: int) -> float:
    square = float(features.squared_norm) + intercept**2
    return math.sqrt(square * (math.sqrt(1 + 8 / n_targets) - 1) / 4)


def _per_column(bounds: Bounds, columns: int, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lower and upper bounds, one each a column, from scalars or one value a column; pairs by column are refused."""
    if _looks_like_pairs(bounds, columns):
        raise DeclarationError(
            f"{name} must be (lower, upper), each a scalar or one value per column, and what was given can be read as "
            "one pair per column. Say which bounds are which: (np.array([all lower]), np.array([all upper]))."
        )
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise DeclarationError(f"{name} must be a pair (lower, upper), got {bounds!r}.") from None
    try:
        lows = np.broadcast_to(check.numbers(lower=lower), columns)
        highs = np.broadcast_to(check.numbers(upper=upper), columns)
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{name} must be a pair (lower, upper) of numbers, each a scalar or one per column ({columns}), "
            f"got {bounds!r}."
        ) from None
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            way = (
                "Swap them: the smaller bound comes first" if low > high else "A constant column carries no information"
            )
            raise DeclarationError(
                f"{name} must be a pair (lower, upper), finite with lower < upper, got ({low!r}, {high!r}). {way}."
            )
    return tuple(lows.tolist()), tuple(highs.tolist())


def _looks_like_pairs(bounds: object, columns: int) -> bool:
    """Whether bounds could be one (lower, upper) for each column, and would then mean something else.

    ``[(0, 1), (10, 20)]`` could be either, of two columns. Two arrays, ``(np.array([0, 1]), np.array([10, 20]))``, are
    taken for what they are.
    """
    nested = isinstance(bounds, list | tuple) and all(isinstance(pair, list | tuple) for pair in bounds)
    try:
        pairs = np.asarray(bounds if nested or isinstance(bounds, np.ndarray) else (), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    if pairs.shape != (columns, 2) or not np.all(pairs[:, 0] < pairs[:, 1]):
        return False
    return columns != 2 or bool(pairs[0, 1] != pairs[1, 0])  # else both ways to read it are the same


def _symmetric(lower: tuple[float, ...], upper: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    widest = tuple(max(abs(low), abs(high)) for low, high in zip(lower, upper, strict=True))
    return tuple(-bound for bound in widest), widest
