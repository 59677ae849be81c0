"""Ridge regression without privacy, on the same encoded rows: what there is to lose."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.baselines.unprotected import Unnoised, blocks_of
from gaussmix.data.schema import Schema
from gaussmix.estimators.base import Bounds, LinearRegressor
from gaussmix.models.release import Release
from gaussmix.releases.certificate import Certificate

__all__ = ["Ridge"]


class Ridge(LinearRegressor[Release]):
    """Ridge regression, θ = (XᵀX + ridge·I)⁻¹ Xᵀy, which is **not private**.

    Parameters
    ----------
    data_norm, bounds_X, bounds_y, fit_intercept
        As in :class:`gaussmix.LinearRegression`.
    ridge : float
        In the units of encoded rows; the paper's experiments use 1e-6.
    """

    def __init__(
        self,
        *,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        ridge: float = 1e-6,
    ) -> None:
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.ridge = ridge

    def _prepare(self, schema: Schema) -> Unnoised:
        check.positive(finite=True, ridge=self.ridge)
        return Unnoised("Ridge")

    def _solve(self, drawn: Release, schema: Schema) -> tuple[Floats, Certificate]:
        XX, XY = blocks_of(drawn)
        theta = scipy.linalg.solve(XX + self.ridge * np.eye(len(XX)), XY, assume_a="sym")
        return np.asarray(theta), drawn.certificate
