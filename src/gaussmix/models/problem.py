"""One regression of a release as an inference problem: its second moments, and the way back to the user's units."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.models.sketch import Sketch
from gaussmix.tables.columns import Categorical
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["Problem", "Response", "in_reference_coding", "regression_problem"]


@dataclass(frozen=True)
class Problem:
    """One regression in encoded units, and how to report it.

    Attributes
    ----------
    W_xx, w_xy, w_yy : array (d, d), array (d,), float
        Blocks of RᵀR / k.
    response_noise : float
        Variance of the noise in the response.
    noise_variance : float
        σ² of the noise in every feature.
    sketch_size : int
        Rows k of the sketch; 0 for a second moment without noise.
    names : tuple of str
        Of the features.
    to_user : array (d, d), offset : array (d,)
        Coefficients in the user's units are ``to_user @ theta + offset``.
    groups : dict of str to tuple of int
        Features that belong together: levels of a category.
    total : float
        Sum of squares of the response about its mean (about 0 without an intercept), in encoded units, noise removed.
    nobs : float
        Rows in the table, as the release shows them: noisy. NaN without an intercept column.
    response_name : str
        For the heading.
    surrogate : bool
        Whether coefficients are those of the quadratic surrogate of a logistic model.
    """

    W_xx: Floats
    w_xy: Floats
    w_yy: float
    response_noise: float
    noise_variance: float
    sketch_size: int
    names: tuple[str, ...]
    to_user: Floats
    offset: Floats
    groups: dict[str, tuple[int, ...]]
    total: float
    nobs: float
    response_name: str
    surrogate: bool = False

    @cached_property
    def debiased(self) -> Floats:
        """W_xx - σ²I."""
        return self.W_xx - self.noise_variance * np.eye(len(self.W_xx))

    @cached_property
    def positive(self) -> Floats:
        """``debiased`` with its eigenvalues raised to at least a millionth of the largest."""
        values, vectors = scipy.linalg.eigh(self.debiased)
        return np.asarray((vectors * np.maximum(values, 1e-6 * max(values[-1], 1e-300))) @ vectors.T)

    def to_theta(self, coefficients: Floats) -> Floats:
        """Coefficients in the user's units back in encoded units."""
        return np.asarray(scipy.linalg.solve(self.to_user, coefficients - self.offset))

    def omega(self, theta: Floats) -> float:
        """ω(θ): mean square of the residuals of the sketch rows."""
        return float(self.w_yy - 2 * theta @ self.w_xy + theta @ self.W_xx @ theta)

    def residual(self, theta: Floats) -> float:
        """Residual sum of squares of the table: ω less the noise, σ²|θ|² and the response's own."""
        return self.omega(theta) - self.noise_variance * float(theta @ theta) - self.response_noise

    @property
    def strength(self) -> float:
        """s: standard deviations by which the weakest direction stands above the noise floor."""
        if self.noise_variance == 0:
            return math.inf
        weakest = float(scipy.linalg.eigvalsh(self.W_xx)[0])
        return (1 - self.noise_variance / weakest) * math.sqrt(self.sketch_size / 2)


@dataclass(frozen=True)
class Response:
    """What is explained: a combination of encoded columns, and its units.

    Attributes
    ----------
    name : str
        For headings.
    vector : array (m,)
        Weights of the encoded columns.
    centre, scale : float
        A response of 1 in encoded units is ``scale`` in the user's, about ``centre``.
    surrogate : bool
        Whether it stands for the log odds of a class.
    """

    name: str
    vector: Floats
    centre: float
    scale: float
    surrogate: bool = False


def regression_problem(sketch: Sketch, response: Response, names: Collection[str]) -> Problem:
    """The regression of a response on the encoded columns ``names``: first levels left out, the intercept first."""
    schema, W, noise = sketch.schema, sketch.noisy_second_moment, sketch.noise_variance
    kept = [i for i, column in enumerate(schema.encoded) if column.name in names]
    if schema.intercept:
        first = set(_first_levels(schema).values())
        kept = [schema.groups[INTERCEPT][0], *(i for i in kept if i not in first)]
    own, y = [schema.encoded[i] for i in kept], response.vector
    to_user = np.diag([response.scale / column.scale for column in own])
    offset, nobs = np.zeros(len(kept)), math.nan
    y_noise = noise * float(y @ y)
    total = float(y @ W @ y) - y_noise
    if schema.intercept:
        constant = kept[0]
        to_user[0, 1:] = [-response.scale * column.centre / column.scale for column in own[1:]]
        offset[0] = response.centre
        total -= float(W[constant] @ y) ** 2 / max(W[constant, constant] - noise, 1e-300)
        nobs = float(W[constant, constant] - noise) * own[0].scale ** 2
    return Problem(
        W_xx=W[np.ix_(kept, kept)],
        w_xy=W[kept] @ y,
        w_yy=float(y @ W @ y),
        response_noise=y_noise,
        noise_variance=noise,
        sketch_size=sketch.size if noise else 0,
        names=tuple(column.name for column in own),
        to_user=to_user,
        offset=offset,
        groups={
            source: tuple(j for j, column in enumerate(own) if column.source == source)
            for source in schema.columns
            if any(column.source == source for column in own)
        },
        total=total,
        nobs=nobs,
        response_name=response.name,
        surrogate=response.surrogate,
    )


def in_reference_coding(schema: Schema, coef: dict[str, float], intercept: float, name: str) -> float:
    """A coefficient measured from the first level of its category, and the intercept with these levels in it."""
    first = {source: schema.names[index] for source, index in _first_levels(schema).items()}
    first = {source: level for source, level in first.items() if level in coef}
    if name == INTERCEPT:
        return intercept + sum(coef[level] for level in first.values())
    source = next(column.source for column in schema.encoded if column.name == name)
    return coef[name] - (coef[first[source]] if source in first else 0.0)


def _first_levels(schema: Schema) -> dict[str, int]:
    """Index of the first level of every category, which the others are measured from."""
    return {name: schema.groups[name][0] for name, column in schema.columns.items() if isinstance(column, Categorical)}
