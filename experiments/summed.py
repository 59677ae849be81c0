"""A table summed up once, and many models fitted from its sums: what makes hundreds of trials affordable.

The only place of the experiments that knows how an estimator encodes its rows and fits from moments.
"""

from __future__ import annotations

from typing import Protocol, Self

from numpy.typing import ArrayLike

from experiments import Floats
from gaussmix import Moments, Schema
from gaussmix.paper import LinearMixing


class Regressor(Protocol):
    """What a linear model of this library offers, private or not."""

    def schema(self, n_features: int) -> Schema:
        """How rows are encoded under the declared bounds."""

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a table that is summed up already."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows and targets."""

    def predict(self, X: ArrayLike) -> Floats:
        """Predicted targets."""


class SummedTable:
    """A training table, summed up once for each way of encoding its rows."""

    def __init__(self, X: Floats, y: Floats) -> None:
        self.X, self.y = X, y
        self._moments: dict[Schema, Moments] = {}

    def fit(self, model: Regressor | LinearMixing) -> Regressor | LinearMixing:
        """Fit a model from the sums, or from the rows where it takes none."""
        if isinstance(model, LinearMixing):
            return model.fit(self.X, self.y)
        schema = model.schema(self.X.shape[1])
        if schema not in self._moments:
            self._moments[schema] = Moments.of_arrays([(self.X, self.y)], schema)
        return model.fit_moments(self._moments[schema])
