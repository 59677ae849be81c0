"""Models declared before a release is drawn: their share of the budget and their noisy outputs.

**Private**: everything here is a function of noisy outputs and of declared quantities.

For a declared model a release also contains sums over the scores of its rows, s = E x(y - μ) clipped to ‖s‖² ≤ clip
(:mod:`gaussmix.data.scores`), each with its own part of the share of μ² that is set aside for models:

1. a histogram of ‖s‖², from which the clip is chosen; it is not published;
2. for generalised linear models two sums Σ s̄, each at the coefficients known by then: private Newton steps;
3. the Gram matrix Σ s̄ s̄ᵀ at the last of them, the middle of the sandwich covariance.

Metric, coefficients and clip are functions of earlier outputs (:mod:`gaussmix.models.declared`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.discrete import split_mu
from gaussmix.accounting.parameters import Neighbours
from gaussmix.data.transforms import Transform, to_units
from gaussmix.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "LINEAR_NAME",
    "MODEL_SHARE",
    "MOST_MODELS",
    "DeclaredModel",
    "ModelBudget",
    "ModelOutput",
    "model_share",
    "mu_of_sum",
]

MODEL_SHARE = 0.3
"""Default share of μ² for declared models."""

LINEAR_NAME = "ols"
"""Name of the family of linear models."""

MOST_MODELS = 16

_STEP_SHARES = tuple(map(Fraction, ("0.08", "0.17", "0.50", "0.25")))  # histogram, two sums, Gram matrix
_LINEAR_SHARES = tuple(map(Fraction, ("0.08", "0.92")))


@dataclass(frozen=True)
class DeclaredModel:
    """A model that is declared before a release is drawn.

    Parameters
    ----------
    formula : str
        ``"dead ~ airbag + seatbelt + age"``, of columns and terms of the release.
    family : str, optional
        ``"ols"`` or one of ``gaussmix.models.FAMILIES``. Default: ``"logit"`` for a boolean response, ``"ols"`` for a
        number.
    exposure : str, optional
        Column that multiplies the mean, as in :meth:`gaussmix.Release.poisson`.
    level : optional
        The level that is compared with all others, as in :meth:`gaussmix.Release.logit`.

    >>> DeclaredModel.of("wage ~ age")
    DeclaredModel(formula='wage ~ age', family=None, exposure=None, level=None)
    """

    formula: str
    family: str | None = None
    exposure: str | None = None
    level: str | int | bool | None = None

    def __post_init__(self) -> None:
        for name, value in (("formula", self.formula), ("family", self.family), ("exposure", self.exposure)):
            if not isinstance(value, str) and (name == "formula" or value is not None):
                raise ArgumentTypeError(f"{name} of a declared model must be a string, got {type(value).__name__}.")
        if not isinstance(self.level, str | int | bool | None):
            raise ArgumentTypeError(
                f"level of a declared model must be a string, an integer or a boolean, got {type(self.level).__name__}."
            )
        if "~" not in self.formula:
            raise ArgumentError(f'A declared model must be a formula such as "wage ~ age + sex", got {self.formula!r}.')

    @classmethod
    def of(cls, model: DeclaredModel | str) -> DeclaredModel:
        """Return a formula as a declared model."""
        return model if isinstance(model, DeclaredModel) else cls(model)

    @property
    def is_linear(self) -> bool:
        """Whether the model is least squares, which needs no steps."""
        return self.family == LINEAR_NAME

    def __str__(self) -> str:
        words = f"{self.family}: {self.formula}" if self.family else self.formula
        words += f", exposure {self.exposure}" if self.exposure is not None else ""
        return words + (f", level {self.level}" if self.level is not None else "")


def mu_of_sum(mu: float, neighbours: Neighbours) -> float:
    """Return √clip over the noise of a sum of scores, from its part of μ, rounded down.

    Scores may be opposite, so that replacing one changes the sum by 2√clip: √2 times what the account of replace-one
    neighbours has for other releases.
    """
    return split_mu(mu, [Fraction(1, 2)])[0] if neighbours == "replace-one" else mu


def model_share(share: float) -> Fraction:
    """Return the share of μ² for declared models, as the decimal number that was written."""
    return Fraction(repr(float(check.in_interval(0, 1, model_share=share))))


@dataclass(frozen=True)
class ModelBudget:
    """Declared models and their share of μ², fixed before a row is read.

    Attributes
    ----------
    models : tuple of DeclaredModel
    sizes : tuple of int
        Number of encoded columns of the predictors of each model, the constant included.
    share : float
    """

    models: tuple[DeclaredModel, ...]
    sizes: tuple[int, ...]
    share: float

    @property
    def fraction(self) -> Fraction:
        """The share as an exact number; 0 without models."""
        return model_share(self.share) if self.models else Fraction(0)

    def releases(self, bins: int) -> tuple[list[Fraction], list[int]]:
        """Return the share of μ² and the number of coordinates of each release: models have equal shares."""
        shares, coordinates = list[Fraction](), list[int]()
        for model, size in zip(self.models, self.sizes, strict=True):
            parts = _LINEAR_SHARES if model.is_linear else _STEP_SHARES
            shares += [self.fraction / len(self.models) * part for part in parts]
            coordinates += [bins, *[size] * (len(parts) - 2), size * size]
        return shares, coordinates

    def split(self, parts: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
        """Return the parts of μ of each model: each of them once."""
        counts = [len(_LINEAR_SHARES if model.is_linear else _STEP_SHARES) for model in self.models]
        if sum(counts) != len(parts):
            raise ArgumentError(f"The account must have {sum(counts)} parts for the declared models, got {len(parts)}.")
        ends = list(itertools.accumulate(counts))
        return tuple(parts[end - count : end] for count, end in zip(counts, ends, strict=True))


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """The noisy outputs of one declared model.

    Attributes
    ----------
    model : DeclaredModel
    metric : Transform
        E, shape (d, m), of rows divided by C.
    linear : tuple of Transform
        θ, the response and, if there is one, the exposure, shape (2 or 3, m), of each scan: two for generalised linear
        models, one for least squares.
    clip : float
        Bound on ‖s‖².
    excess : float
        Estimate of Σ(‖s‖ - √clip)₊ from the histogram, in units of √clip.
    lost : float
        Estimated share of Σ‖s‖² removed by clipping.
    totals : tuple of array (d,)
        Σ s̄ in units of √clip, with noise 1/``vector_mu``; none for least squares.
    squares : array (d, d)
        Σ s̄ s̄ᵀ in units of the clip, with noise 1/(√2 μ) off the diagonal.
    mu : tuple of float
        Parts of the account's μ: histogram, sums, Gram matrix.
    vector_mu : tuple of float
        √clip over the noise of the sums: their part of μ, with replace-one neighbours divided by √2.
    """

    model: DeclaredModel
    metric: Transform
    linear: tuple[Transform, ...]
    clip: float
    excess: float
    lost: float
    totals: tuple[Floats, ...]
    squares: Floats
    mu: tuple[float, ...]
    vector_mu: tuple[float, ...]

    @property
    def squares_mu(self) -> float:
        """The part of μ of the Gram matrix."""
        return self.mu[-1]

    def check(self, m: int) -> None:
        """Reject outputs that do not match the columns of the schema."""
        d, steps = len(self.metric.integers), 0 if self.model.is_linear else 2
        rows = 2 + (self.model.exposure is not None)
        shapes = [self.metric.integers.shape == (d, m), d <= m, len(self.linear) == max(steps, 1)]
        shapes += [own.integers.shape == (rows, m) for own in self.linear]
        shapes += [len(self.totals) == steps, len(self.vector_mu) == steps, len(self.mu) == steps + 2]
        shapes += [own.shape == (d,) for own in self.totals]
        shapes += [self.squares.shape == (d, d) and bool(np.all(self.squares == self.squares.T))]
        if not all(shapes):
            raise ArgumentError("The outputs of a declared model do not match the columns of the schema.")
        if not all(np.isfinite(own).all() for own in (*self.totals, self.squares)):
            raise ArgumentError("The outputs of a declared model must be finite.")
        to_units(self.metric, check.positive(finite=True, clip=self.clip))
        check.nonnegative(excess=self.excess)
        check.in_interval(0, 1, closed=True, lost=self.lost)
        for part in (*self.mu, *self.vector_mu):
            check.positive(finite=True, mu=part)
