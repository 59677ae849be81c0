"""Counts from second moments whose structure is known, by generalised least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical
from gaussmix.data.marginals import NONE_OF_THESE
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.releases.noisy import NoisyMoment

__all__ = ["Fitted", "fit_structure", "kinds_of", "level_designs"]

_FLOOR = 1e-11
"""Directions of the noise that are smaller, relative to the largest, count as this large: only weights change."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Estimates with normal errors of known covariance.

    Attributes
    ----------
    values : array (p,)
    covariance : array (p, p)
    """

    values: Floats
    covariance: Floats

    def mapped(self, A: Floats) -> Fitted:
        """Of A β in place of β."""
        return Fitted(np.asarray(A @ self.values), np.asarray(A @ self.covariance @ A.T))

    @property
    def std_errors(self) -> Floats:
        """Standard deviations."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))


def fit_structure(noisy: NoisyMoment, designs: Floats) -> Fitted:
    """β̂ and its covariance from designs D, shape (number of parameters, p, p), symmetric."""
    P = _inverse(noisy.shape if noisy.has_noise else np.diag(np.maximum(np.diagonal(noisy.moment), 1e-300)))
    seen = (P @ designs @ P).reshape(len(designs), -1)
    K = seen @ designs.reshape(len(designs), -1).T / 2
    r = seen @ noisy.moment.ravel() / 2
    unit = 1 / np.sqrt(np.maximum(np.diagonal(K), 1e-300))
    scaled = K * np.outer(unit, unit)
    back = unit[:, np.newaxis] * scipy.linalg.pinvh((scaled + scaled.T) / 2) * unit
    return Fitted(np.asarray(back @ r), np.asarray(back) if noisy.has_noise else np.zeros_like(back))


def level_designs(u: Floats) -> Floats:
    """D = u uᵀ for every kind of row u, shape (kinds, p)."""
    return np.asarray(u[:, :, np.newaxis] * u[:, np.newaxis])


def _inverse(Q: Floats) -> Floats:
    """Q⁻¹, directions below `_FLOOR` raised to it."""
    unit = 1 / np.sqrt(np.maximum(np.diagonal(Q), 1e-300))
    values, vectors = scipy.linalg.eigh(Q * np.outer(unit, unit))
    half = unit[:, np.newaxis] * vectors / np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    return np.asarray(half @ half.T)


def kinds_of(schema: Schema, name: str) -> tuple[tuple[str, ...], Floats]:
    """Levels of a category, or false and true; and what each is in the user's units, shape (levels, entries)."""
    column, entries = schema.parts[schema.resolve(name)[0]], len(schema.groups[name])
    if isinstance(column, Boolean):
        return ("false", "true"), np.array([[0.0], [1.0]])
    if not isinstance(column, Categorical):
        raise ArgumentError(f"Column {name!r} has no levels to count: name a categorical or a boolean column.")
    if column.unknown == "zero":
        return (*column.labels, NONE_OF_THESE), np.vstack([np.eye(entries), np.zeros(entries)])
    return column.labels, np.eye(entries)
