"""What baselines do without a budget: the table's own second moments, and least squares on them: not private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.rows import RowSource
from gaussmix.estimators.base import FEATURES
from gaussmix.mechanism.drawing import open_release
from gaussmix.models.linear import feature_indices
from gaussmix.models.release import Release

__all__ = ["Unnoised", "blocks_of", "least_squares_of"]


@dataclass(frozen=True)
class Unnoised:
    """A release without noise, certified as protecting nothing."""

    made_by: str

    def draw(self, rows: RowSource) -> Release:
        """The Gram matrix itself."""
        return open_release(rows.moments(), made_by=self.made_by)


def blocks_of(release: Release) -> tuple[Floats, Floats]:
    """XᵀX and XᵀY in encoded units, the intercept among the features."""
    schema = release.schema
    targets = [name for name in schema.columns if name != FEATURES]
    features = np.array(feature_indices(schema, targets, None))
    responses = np.array([schema.groups[name][0] for name in targets])
    M = release.second_moment
    return M[np.ix_(features, features)], M[np.ix_(features, responses)]


def least_squares_of(release: Release) -> Floats:
    """θ of all targets by least squares."""
    schema = release.schema
    targets = [name for name in schema.columns if name != FEATURES]
    responses = np.eye(schema.n_columns)[:, [schema.groups[name][0] for name in targets]]
    return release.statistic.solve(feature_indices(schema, targets, None), responses)
