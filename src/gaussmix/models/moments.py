r"""Number of rows, means and covariances in original units, and simulated ones: post-processing.

The released second moment of encoded features, M = G + E with noise E of shape N
(:mod:`gaussmix.releases.noisy`), is mapped to original units: indicator columns for levels, without a reference level,
and terms as powers and products. With M₀₀ the entry of the intercept,

.. math:: n = M_{00}, \qquad \bar x = M_{x0}/M_{00}, \qquad C = M_{xx} - M_{x0} M_{0x}/M_{00} ,

up to units, and the covariance matrix is C/(n - 1). They are computed in encoded units, so that columns far from 0
lose no digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding, Reference
from gaussmix.models.results import Frame, LabelledSquare, labelled
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = ["SecondMoments", "features", "positive_definite", "second_moments", "simulated_moments"]


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Number of rows, means and covariances of a table, in original units, from a release.

    Attributes
    ----------
    names : tuple of str
        Columns: numbers, booleans, all levels but the reference, terms.
    n_rows : float
        Noisy number of rows; with row weights the sum of the weights.
    means : array (p,)
    covariance : array (p, p)
        With denominator n - 1, not necessarily positive semidefinite.
    references : tuple of str
        Reference levels, which have no column.
    """

    names: tuple[str, ...]
    n_rows: float
    means: Floats
    covariance: Floats
    references: tuple[str, ...] = ()

    @property
    def gram(self) -> Floats:
        """Σ x xᵀ over the rows, with x = (1, columns), shape (p + 1, p + 1)."""
        n, mean = self.n_rows, np.append(1.0, self.means)
        found = n * np.outer(mean, mean)
        found[1:, 1:] += (n - 1) * self.covariance
        return found

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Return the covariance matrix as a data frame of pandas, polars or Arrow, names in the first column."""
        rows = zip(self.names, self.covariance, strict=True)
        return LabelledSquare({name: labelled(self.names, row) for name, row in rows}).to_frame(frame)

    def __repr__(self) -> str:
        return f"SecondMoments({len(self.names)} columns, about {self.n_rows:,.0f} rows)"


def second_moments(noisy: NoisyMoment, schema: Schema, coding: Coding) -> SecondMoments:
    """Return number of rows, means and covariances of features from their second moment, the intercept first."""
    M, units = noisy.moment, coding.units
    if not M[0, 0] > 0:
        raise ArgumentError("The noisy number of rows is not positive, so means cannot be computed at this budget.")
    n = schema.weight_bound * float(units.scales[0]) ** 2 * float(M[0, 0])
    means = units.centres[1:] + units.scales[1:] * M[1:, 0] / (M[0, 0] * units.scales[0])
    back = np.diag(units.scales[1:])
    if units.raw is not None:  # terms as powers and products: A x + b
        A, b = units.raw
        means, back = A[1:, 1:] @ means + b[1:], A[1:, 1:] @ back
    covariance = schema.weight_bound * back @ _about_mean(M) @ back.T / max(n - 1, 1.0)
    references = tuple(name for name, _ in coding.references.values())
    return SecondMoments(coding.names[1:], n, means, (covariance + covariance.T) / 2, references)


def features(noisy: NoisyMoment, schema: Schema, reference: Reference | None = None) -> tuple[NoisyMoment, Coding]:
    """Return the second moment of all columns without reference levels, the intercept first."""
    if not schema.intercept:
        raise ArgumentError("Means and covariances require a release with an intercept.")
    coding = Coding.of(schema, list(schema.parts), reference=reference, noisy=noisy)
    return noisy.mapped(coding.rows), coding


def simulated_moments(
    statistic: Transcript, n: int, *, reference: Reference | None, random_state: int | np.random.Generator | None
) -> list[SecondMoments]:
    """Return the moments of :meth:`gaussmix.Release.draws`."""
    n, rng, schema = check.positive_integer(n=n), np.random.default_rng(random_state), statistic.schema
    own, coding = features(statistic.noisy, schema, reference)
    # N = BBᵀ; the allowance for clipping multiplies all standard errors.
    B = (1 + own.clipping_bias**2) ** 0.25 * coding.rows @ statistic.last.factor
    found = []
    for _ in range(n):
        Z = rng.standard_normal((B.shape[1], B.shape[1]))
        noise = B @ ((Z + Z.T) / math.sqrt(2)) @ B.T  # GOE: variance 1 off the diagonal, 2 on it
        found.append(second_moments(replace(own, moment=own.moment + (noise + noise.T) / 2), schema, coding))
    return found


def positive_definite(noisy: NoisyMoment) -> tuple[NoisyMoment, int]:
    r"""Raise the least variances of a second moment, the intercept first, so that C is positive definite.

    C has noise of shape Ũ, to first order (:class:`gaussmix.models.inference.Residuals`). In directions u with
    Cu = hŨu the variance is h/√2 standard errors of its noise. Those below 1 are raised to 1:

    .. math:: C + \tilde U \Bigl(\sum_{h < \sqrt 2} (\sqrt 2 - h)\, u u^\top\Bigr) \tilde U,
              \qquad u^\top \tilde U u = 1 ,

    the nearest matrix to C, in the metric of its noise, without variances below one standard error. Number of rows and
    means are unchanged. Returns the moment, and the number of directions that were raised.
    """
    M, p = noisy.moment, len(noisy.moment) - 1
    C = _about_mean(M)
    rows = np.column_stack([-M[1:, 0] / M[0, 0], np.eye(p)])
    shape, least = rows @ noisy.shape @ rows.T, math.sqrt(2)
    if not noisy.has_noise:
        shape, least = np.diag(np.maximum(np.diagonal(M)[1:], 1e-300)), _ROUNDING
    unit = 1 / np.sqrt(np.diagonal(shape))
    C, shape = C * np.outer(unit, unit), shape * np.outer(unit, unit) + 1e-13 * np.eye(p)
    h, V = scipy.linalg.eigh(C, shape)
    back = shape @ V / unit[:, np.newaxis]
    moment = np.array(M)
    moment[1:, 1:] += (back * np.maximum(least - h, 0.0)) @ back.T
    return replace(noisy, moment=(moment + moment.T) / 2), int(np.sum(h < least))


_ROUNDING = 1e-10  # relative size of variances that are rounding errors, in a release without noise


def _about_mean(M: Floats) -> Floats:
    """Return C, the second moment about the means, of a second moment with the intercept first."""
    return np.asarray(M[1:, 1:] - np.outer(M[1:, 0], M[0, 1:]) / M[0, 0])
