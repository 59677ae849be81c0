"""Private linear regression with scikit-learn's interface.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (20_000, 3))
>>> y = X @ [0.5, -0.3, 0.1] + rng.uniform(-0.1, 0.1, 20_000)
>>> model = LinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(X, y)
>>> bool(np.all(np.abs(model.coef_ - [0.5, -0.3, 0.1]) < 0.05))
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from gaussmix._types import Floats
from gaussmix.data.arrays import read_targets, shape_of
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.estimators.base import (
    FEATURES,
    Draw,
    LinearRegressor,
    Released,
    Weighting,
    default_summary,
    encoded_columns,
    named,
    target_names,
)
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, Summary, summarise
from gaussmix.releases.certificate import Certificate

__all__ = ["LinearRegression", "least_squares"]


class _SeveralTargetsError(ArgumentError, AttributeError):
    """An attribute of one target, requested from a model of several: ``hasattr`` returns False."""


def least_squares(release: Release) -> Floats:
    """Return θ of all targets on features and intercept in encoded units, (p, targets)."""
    features, targets = encoded_columns(release.schema)
    return release.statistic.solve(features, np.eye(release.schema.n_columns)[:, targets])


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Named, LinearRegressor, Released):
    """Private linear regression from noisy second moments of the table.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget. ``epsilon=float("inf")`` gives least squares, which is not private.
    data_norm : float, optional
        Bound on the Euclidean norm of a row of features, after they are mapped by ``bounds_X`` if that is declared.
        Longer rows are scaled to this norm as a whole, target included, which keeps linear relations. Default: the norm
        that ``bounds_X`` implies.
    bounds_X : (lower, upper), optional
        Scalars, or one value per feature: ``(np.array([0, 10]), np.array([1, 20]))`` for features in [0, 1] and
        [10, 20]. Lists that could also be one pair per feature are rejected. Features are clamped to the bounds and
        mapped to [-1, 1].
    bounds_y : (lower, upper)
        Targets are clamped to these bounds.
    fit_intercept : bool
        Without an intercept nothing is centred, and bounds are widened to be symmetric about 0.
    passes : int or "auto"
        Number of times that the table is read (:func:`gaussmix.release`).
    n_rows : int, optional
        The number of rows, if it is public. A warning is given, before any budget is spent, if they are too few.
    max_contributions : int, optional
        Maximum number of rows counted per privacy unit; :meth:`fit` then requires ``groups``. Declare it before looking
        at the data. Default: the privacy unit is one row (docs/units.md).
    ledger : Ledger, optional
        Ledger in which the release is recorded before its noise is drawn. Its budget, which covers all of its releases
        together, replaces ``epsilon`` and ``delta``.
    random_state : int or numpy Generator, optional
        Default: the secure generator. A seed is for tests; it voids the guarantee.

    Attributes
    ----------
    coef_ : array (features,) or (targets, features)
        In the units of the table.
    intercept_ : float or array (targets,)
        0 without an intercept.
    release_ : Release
        The release of a vector ``X`` and targets ``y``, from which everything was computed. It can be saved, reported
        and regressed like any other.
    privacy_ : Certificate
        The guarantee and its conditions.
    """

    _weighting: ClassVar[Weighting] = "balanced"

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> LinearRegression:
        """Fit to X (rows, features) and y (rows,) or (rows, targets).

        Parameters
        ----------
        X, y : array
        groups : array (rows,), optional
            The privacy unit of each row, text or integers; requires ``max_contributions``.
        """
        n_features, shape = shape_of(X, y)
        schema = self.schema(n_features, *shape)
        prepared = self._prepare_release(schema, groups)
        rows, targets = read_targets(self, X, y, several=True, finite=False)  # NaN is found where rows are encoded
        self.release_ = self._draw(prepared, X, rows, targets, groups)
        self.privacy_ = self.release_.certificate
        return self._fit_theta(schema, least_squares(self.release_), shape)

    def _prepare(self, schema: Schema) -> Draw:
        prepared = self._prepare_release(schema)

        def draw(rows: RowSource) -> tuple[Floats, Certificate]:
            self.release_ = prepared.draw(rows)
            return least_squares(self.release_), self.release_.certificate

        return draw

    def predict(self, X: ArrayLike) -> Floats:
        """Return predicted targets, shape (rows,) or (rows, targets), clamped to ``bounds_y``."""
        predicted = super().predict(X)
        return predicted if self.bounds_y is None else np.clip(predicted, *self.bounds_y)

    def summary(self, *, estimand: Estimand = "table", output: int = 0) -> Summary:
        """Return standard errors, p-values and intervals, computed from the release (:mod:`gaussmix.models.inference`).

        Its coefficients are estimated without the ridge penalty of ``coef_``, which improves predictions.

        Parameters
        ----------
        estimand : {"table", "population"}
            For ``"population"`` the number of rows is ``n_rows`` or, without it, an estimate from the release.
        output : int
            Index of the target, if there are several.
        """
        check_is_fitted(self)
        n_targets = len(self.release_.schema.columns) - 1
        model = self.release_.ols(target_names(n_targets)[output], [FEATURES])
        rows = self.n_rows if estimand == "population" else None
        return summarise(named(self, model.problem()), estimand=estimand, n_rows=rows)

    @property
    def _table(self) -> Summary:
        """The default summary."""
        check_is_fitted(self)
        if len(self.release_.schema.columns) > 2:
            raise _SeveralTargetsError("This model has several targets: choose one, as in summary(output=1).params.")
        return default_summary(self)
