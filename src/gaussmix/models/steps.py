"""One private step on the likelihood of two classes: what was asked of the rows, and the noisy answer.

**Private**: functions of noisy outputs and of declared quantities. :mod:`gaussmix.models.newton` has their rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import Transform, to_units
from gaussmix.errors import ArgumentError

__all__ = ["Likelihood", "StepOutput", "StepRequest", "label_of"]


@dataclass(frozen=True)
class Likelihood:
    """Steps that are asked for: how many, on the likelihood of which boolean column."""

    target: str
    steps: int


@dataclass(frozen=True, eq=False)
class StepRequest:
    """A step: everything that decides what is computed from the rows, and none of it from rows.

    Attributes
    ----------
    target : str
        The column with two classes.
    transform : Transform
        Square: a metric for all columns but the target's, and in its last row the coefficients θ, of rows divided by C.
    clip : float
        Squared norm of the longest gradient.
    """

    target: str
    transform: Transform
    clip: float

    @property
    def coefficients(self) -> Floats:
        """θ on all encoded columns, 0 on the target's, of rows divided by C."""
        return np.asarray(self.transform.matrix[-1])

    @property
    def metric(self) -> Floats:
        """E, shape (m - 1, m): z = E r for rows divided by C."""
        return np.asarray(self.transform.matrix[:-1])


@dataclass(frozen=True, eq=False)
class StepOutput:
    """The noisy answer.

    Attributes
    ----------
    request : StepRequest
    gradient : array (m - 1,)
        Σ (y - p) z in units of the clip's root (rows of norm at most 1), with noise 1/μ.
    weight : float
        Σ p(1 - p) in units of ¼, with noise 1/μ_w.
    mu, weight_mu : float
        Sensitivities over noise, as the account has them.
    """

    request: StepRequest
    gradient: Floats
    weight: float
    mu: float
    weight_mu: float

    def check(self, schema: Schema) -> None:
        """Refuse what no mechanism drew from a table of these columns."""
        m, label, transform = schema.n_columns, label_of(schema, self.request.target), self.request.transform
        if transform.integers.shape != (m, m) or transform.integers[:, label].any():
            raise ArgumentError("A step was not planned for these columns.")
        to_units(transform, check.positive(finite=True, clip=self.request.clip))
        if self.gradient.shape != (m - 1,) or not np.isfinite([*self.gradient, self.weight]).all():
            raise ArgumentError("A step must be finite numbers, one for each column but the target's, and a weight.")
        check.positive(finite=True, mu=self.mu)
        check.positive(finite=True, weight_mu=self.weight_mu)


def label_of(schema: Schema, target: str) -> int:
    """The encoded column whose sign tells the classes of a boolean column."""
    if not isinstance(schema.columns.get(target), Boolean):
        raise ArgumentError(f"Steps on the likelihood are for a boolean column, and {target!r} is none.")
    if schema.weight is not None:
        raise ArgumentError("Steps on a likelihood are for rows of equal weight: leave steps out, or the weight.")
    (index,) = schema.groups[target]
    return index
