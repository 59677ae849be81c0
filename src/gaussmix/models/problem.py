"""One regression of a release as an inference problem: its second moment, and the way back to the user's units."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.units import half_range, half_span
from gaussmix.models.coding import Coding, Merge, Reference, propose_merges, rows_where
from gaussmix.models.families import LINEAR, Family
from gaussmix.models.noisy import NoisyMoment

__all__ = ["Problem", "Response", "sources_of"]


@dataclass(frozen=True)
class Problem:
    """One regression in encoded units, and how to report it.

    Attributes
    ----------
    noisy : NoisyMoment
        Of the d features and, last, the response.
    names : tuple of str
        Of the features.
    to_user : array (d, d), offset : array (d,)
        Coefficients in the user's units are ``to_user @ theta + offset``. The diagonal has no zero.
    groups : dict of str to tuple of int
        Features that belong together: levels of a category.
    reach : array (d,)
        What a coefficient is, in encoded units, that moves the response by its declared range across the feature's
        own; for the intercept, that puts the response as far from its centre.
    total : float
        Sum of squares of the response about its mean (about 0 without an intercept), in encoded units, noise removed.
    nobs, nobs_deviation : float
        Rows in the table, as the release shows them, and the standard deviation of their noise. NaN without an
        intercept column. Where rows have weights, the sum of these.
    response_name : str
        For the heading.
    weighted : bool
        Whether rows have weights.
    scale : float
        What 1 in the encoded units of the response is in the user's.
    family : Family
        How the model's coefficients come from those of least squares.
    coding : Coding or None
        The features as sums of encoded columns, of a problem that was made from a schema.
    counts : dict of str to (float, float)
        Rows of every level among the features and of the levels left out, as the release shows them, ± noise.
    references : dict of str to str
        The level that every category is measured from, by its name.
    proposed : dict
        Merges of rare levels that the noisy counts propose, as ``merge=`` takes them.
    """

    noisy: NoisyMoment
    names: tuple[str, ...]
    to_user: Floats
    offset: Floats
    groups: dict[str, tuple[int, ...]]
    reach: Floats
    total: float
    nobs: float
    response_name: str
    nobs_deviation: float = math.nan
    weighted: bool = False
    scale: float = 1.0
    family: Family = LINEAR
    coding: Coding | None = None
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    proposed: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        noisy: NoisyMoment,
        schema: Schema,
        response: Response,
        names: Collection[str],
        *,
        merge: Merge | None = None,
        reference: Reference | None = None,
    ) -> Problem:
        """The regression of a response on the encoded columns ``names``: one level of each category left out.

        The intercept comes first. ``merge`` and ``reference`` are those of :class:`~gaussmix.models.coding.Coding`.
        """
        sources = sources_of(schema, names)
        coding = Coding.of(schema, sources, merge=merge, reference=reference)
        own = noisy.mapped(np.vstack([coding.rows, response.vector]))
        d = len(coding.names)
        offset = np.zeros(d)
        total, nobs, deviation = float(own.moment[d, d]), math.nan, math.nan
        if schema.intercept:
            offset[0] = response.centre
            total -= float(own.moment[0, d]) ** 2 / max(float(own.moment[0, 0]), 1e-300)
            nobs, deviation = rows_where(noisy, schema, coding.rows[0])
        half = half_range(schema, response.vector)
        spans = np.array([half_span(schema, column) for column in coding.columns])
        levels = [
            (name, row)
            for name, row, column in zip(coding.names, coding.rows, coding.columns, strict=True)
            if column.kind == "level"
        ]
        return cls(
            noisy=own,
            names=coding.names,
            to_user=coding.units.matrix(response.scale),
            offset=offset,
            groups=coding.groups,
            reach=half / spans,
            total=total,
            nobs=nobs,
            nobs_deviation=deviation,
            response_name=response.name,
            weighted=schema.weight is not None,
            scale=response.scale,
            family=response.family,
            coding=coding,
            counts={name: rows_where(noisy, schema, row) for name, row in [*levels, *coding.references.values()]},
            references={source: name for source, (name, _) in coding.references.items()},
            proposed=propose_merges(noisy, schema, sources - set(merge or {})),
        )

    @property
    def moment(self) -> Floats:
        """M_xx, the features' block of the second moment."""
        return self.noisy.moment[:-1, :-1]

    @property
    def cross(self) -> Floats:
        """M_xy."""
        return self.noisy.moment[:-1, -1]

    def to_theta(self, coefficients: Floats) -> Floats:
        """Coefficients in the user's units back in encoded units."""
        return np.asarray(scipy.linalg.solve(self.to_user, coefficients - self.offset))

    @property
    def one(self) -> Floats:
        """The combination of features and response that is 1 in every row: a multiple of the intercept, the first."""
        found = np.zeros(len(self.names) + 1)
        found[0] = self.scale / self.to_user[0, 0]
        return found

    def residual(self, theta: Floats) -> float:
        """Residual sum of squares of the table, aᵀMa: noise taken out, so that it may be negative."""
        a = np.append(-theta, 1.0)
        return float(a @ self.noisy.moment @ a)

    def bounds(self, largest: float) -> Floats:
        """Largest coefficients that are assumed, in encoded units, where ``largest`` times the range is."""
        constant = np.array([name == INTERCEPT for name in self.names])
        return np.where(constant, (1 + 2 * largest) * self.reach, largest * self.reach)

    @cached_property
    def directions(self) -> tuple[Floats, Floats]:
        """Signal of independent directions in the noise's metric, increasing: h and F with FᵀMF = h, FᵀNF = I."""
        N = self.noisy.shape[:-1, :-1]
        scale = 1 / np.sqrt(np.maximum(np.diagonal(N), 1e-300))
        metric = N * np.outer(scale, scale) + 1e-13 * np.eye(len(scale))
        h, F = scipy.linalg.eigh(self.moment * np.outer(scale, scale), metric)
        return h, scale[:, np.newaxis] * F

    @property
    def strength(self) -> float:
        """Standard deviations by which the weakest direction stands above the noise: min uᵀMu / (√2·uᵀNu)."""
        return float(self.directions[0][0]) / math.sqrt(2) if self.noisy.has_noise else math.inf


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
    family : Family
        How coefficients come from least squares on it.
    """

    name: str
    vector: Floats
    centre: float
    scale: float
    family: Family = LINEAR

    @classmethod
    def of(cls, schema: Schema, target: str, family: Family = LINEAR) -> Response:
        """Return a part of the release that is one number, or true and false, as a response."""
        (index,) = schema.groups[target]
        vector = np.zeros(schema.n_columns)
        vector[index] = 1.0
        return cls(target, vector, float(schema.units.centres[index]), float(schema.units.scales[index]), family)


def sources_of(schema: Schema, names: Collection[str]) -> set[str]:
    """Parts of the schema that some encoded columns belong to."""
    return {column.source for column in schema.encoded if column.name in names and column.source is not None}
