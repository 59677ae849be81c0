"""Ridge regression without privacy, on the same encoded rows: what there is to lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix.baselines._regressor import LinearBaseline
from gaussmix.encoding import RowEncoder
from gaussmix.mechanism import open_release
from gaussmix.moments import Moments
from gaussmix.releases import Certificate

__all__ = ["Ridge"]


class Ridge(LinearBaseline):
    """Ridge regression, θ = (XᵀX + ridge·I)⁻¹ Xᵀy, which is **not private**.

    Parameters
    ----------
    data_norm, bounds_X, bounds_y, fit_intercept
        As in :class:`gaussmix.LinearMixing`.
    ridge : float
        In the units of encoded rows; the paper's experiments use 1e-6.
    """

    def __init__(
        self,
        *,
        data_norm: float | None = None,
        bounds_X: Any = None,
        bounds_y: Any = None,
        fit_intercept: bool = True,
        ridge: float = 1e-6,
    ) -> None:
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.ridge = ridge

    def _theta(self, read: Callable[[], Moments], encoder: RowEncoder) -> tuple[NDArray[np.float64], Certificate]:
        ridge = check.positive(finite=True, ridge=self.ridge)
        release = open_release(read())
        p = encoder.n_columns - encoder.n_targets
        G = release.second_moment()
        theta = scipy.linalg.solve(G[:p, :p] + ridge * np.eye(p), G[:p, p:], assume_a="sym")
        return np.asarray(theta), release.certificate
