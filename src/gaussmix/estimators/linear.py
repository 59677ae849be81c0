"""Private linear regression behind scikit-learn's interface.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (20_000, 3))
>>> y = X @ [0.5, -0.3, 0.1] + rng.uniform(-0.1, 0.1, 20_000)
>>> model = LinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(X, y)
>>> bool(np.all(np.abs(model.coef_ - [0.5, -0.3, 0.1]) < 0.05))
True
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from gaussmix._types import Floats
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.estimators.base import FEATURES, Bounds, LinearRegressor, Weighting, named, target_names
from gaussmix.estimators.fitting import check_groups, grouped_rows, prepare_estimator, table_of
from gaussmix.ledger import Ledger
from gaussmix.mechanism.release import Passes, Prepared
from gaussmix.models.linear import feature_indices
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, Summary, summarise
from gaussmix.releases.certificate import Certificate

__all__ = ["LinearRegression"]


class _SeveralTargetsError(ArgumentError, AttributeError):
    """What one target has, asked of a model of several: to ``hasattr``, ``dir`` and notebooks it is not there."""


class LinearRegression(Named, LinearRegressor[Release]):
    """Private linear regression from noisy second moments of the table.

    Parameters
    ----------
    epsilon, delta : float
        The privacy budget. ``epsilon=float("inf")`` gives least squares, not private.
    data_norm : float, optional
        Bound on the Euclidean norm of a row of features, after the map of ``bounds_X`` if there is one. A longer row is
        multiplied as a whole, target included, so that linear relations survive. Default: what ``bounds_X`` implies.
    bounds_X : (lower, upper), optional
        Scalars or one value per feature, all lower ones first: ``(np.array([0, 10]), np.array([1, 20]))`` for features
        in [0, 1] and [10, 20]. Lists that could be one pair per feature are an error. Features are clipped to them and
        mapped to [-1, 1].
    bounds_y : (lower, upper)
        Targets are clipped to them.
    fit_intercept : bool
        Without one nothing is centred, and bounds are widened to be symmetric about 0.
    passes : int or "auto"
        How often the table is read (:func:`gaussmix.release`).
    n_rows : int, optional
        The number of rows, if it is public. It allows a warning, before anything is spent, if the budget is hopeless.
    max_contributions : int, optional
        Protect persons: :meth:`fit` is told whose each row is, and nobody counts for more than so many rows. It must
        be fixed before the data are seen. None, the default: each row is somebody else's (docs/persons.md).
    ledger : Ledger, optional
        Where the release is recorded before its noise is drawn. Its budget, which covers all of its releases together,
        takes the place of ``epsilon`` and ``delta``.
    random_state : int or numpy Generator, optional
        None is the secure generator. A seed is for tests: whoever knows it can remove the noise.

    Attributes
    ----------
    coef_ : array (features,) or (targets, features)
        In the units of the table.
    intercept_ : float or array (targets,)
        0 without an intercept.
    release_ : Release
        What everything was computed from, of a vector ``X`` and targets ``y``: it can be saved,
        reported and regressed like any other.
    privacy_ : Certificate
        What was spent, and what the guarantee rests on.
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
        passes: Passes = "auto",
        n_rows: int | None = None,
        max_contributions: int | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.passes = passes
        self.n_rows = n_rows
        self.max_contributions = max_contributions
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> LinearRegression:
        """Fit to X (rows, features) and y (rows,) or (rows, targets).

        Parameters
        ----------
        X, y : array
        groups : array (rows,), optional
            Whose each row is, text or whole numbers: with ``max_contributions`` the unit of privacy is a person.
        """
        check_groups(groups, self.max_contributions)
        schema, single = self._schema_of(X, y)
        prepared = self._prepare(schema)
        rows, targets = self._arrays(X, y)
        with grouped_rows(rows, targets, groups, prepared, n_rows=self.n_rows) as source:
            self._fit_drawn(prepared.draw(source, data=table_of(X)), schema, single=single)
        return self

    def _weighting(self) -> Weighting:
        return "balanced"

    def _prepare(self, schema: Schema) -> Prepared:
        return prepare_estimator(self, schema)

    def _solve(self, drawn: Release, schema: Schema) -> tuple[Floats, Certificate]:
        self.release_ = drawn
        targets = [name for name in schema.columns if name != FEATURES]
        responses = np.eye(schema.n_columns)[:, [schema.groups[name][0] for name in targets]]
        theta = drawn.statistic.solve(feature_indices(schema, targets, None), responses)
        return theta, drawn.certificate

    def predict(self, X: ArrayLike) -> Floats:
        """Predicted targets, shape (rows,) or (rows, targets), within ``bounds_y``."""
        predicted = super().predict(X)
        return predicted if self.bounds_y is None else np.clip(predicted, *self.bounds_y)

    def summary(self, *, estimand: Estimand = "table", output: int = 0) -> Summary:
        """Standard errors, p-values and intervals, from the release alone (:mod:`gaussmix.models.inference`).

        The coefficients in it are estimated without the ridge that makes ``coef_`` predict well.

        Parameters
        ----------
        estimand : {"table", "population"}
            For ``"population"`` the number of rows is ``n_rows`` or, without it, what the release shows of it.
        output : int
            Which target column, of several.
        """
        check_is_fitted(self)
        n_targets = len(self.release_.schema.columns) - 1
        model = self.release_.ols(target_names(n_targets)[output], [FEATURES])
        rows = self.n_rows if estimand == "population" else None
        return summarise(named(self, model.problem()), estimand=estimand, n_rows=rows)

    @property
    def _table(self) -> Summary:
        """Computed anew whenever it is asked for: an estimator may be fitted again."""
        check_is_fitted(self)
        if len(self.release_.schema.columns) > 2:
            raise _SeveralTargetsError("This model has several targets: name one, as in summary(output=1).params.")
        return self.summary()
