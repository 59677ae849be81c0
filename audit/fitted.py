"""Estimators and baselines under attack, by what they show once fitted."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import special

from audit.likelihoods import TranscriptRatio, gaussian_ratio, symmetric_ratio
from audit.persons import PersonPasses
from audit.releases import CLOUD, limit_epsilon, sketch_ratio
from audit.subject import CORNER, OPPOSITE, SCHEMA, Neighbours, Subject, repeated
from gaussmix._types import Floats
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.baselines import ObjectivePerturbation
from gaussmix.errors import ArgumentError
from gaussmix.estimators.linear import LinearMixing
from gaussmix.estimators.logistic import LogisticMixing
from gaussmix.estimators.preparing import prepare_estimator
from gaussmix.mechanism.adassp import PreparedAdaSSP
from gaussmix.mechanism.sampling import secure_generator
from gaussmix.mechanism.sheffet import PreparedSheffet
from gaussmix.models.steps import Likelihood
from gaussmix.models.transcript import Transcript

__all__ = [
    "AdaSSP",
    "Classifier",
    "Grouped",
    "Perturbed",
    "PrintedAdaSSP",
    "Regressor",
    "RenyiSheffet",
    "Sheffet",
    "Stepped",
]


class Regressor(Subject):
    """`LinearMixing`."""

    words = "LinearMixing, as fitted"
    neighbours = CLOUD
    likelihood: Likelihood | None = None

    def model(self) -> LinearMixing | LogisticMixing:
        """Not fitted yet."""
        return LinearMixing(
            epsilon=self.epsilon,
            delta=self.delta,
            bounds_X=(-1, 1),
            bounds_y=(-1, 1),
            random_state=secure_generator(),
        )

    def fitted(self, *, present: bool) -> LinearMixing | LogisticMixing:
        """A model of one of the two tables."""
        return self.model().fit(*self.neighbours.arrays(present=present))

    @cached_property
    def account(self) -> LatticeAccount:
        """Every μ, from declared quantities."""
        model = self.model()
        found = prepare_estimator(model, model.schema(1), likelihood=self.likelihood).account
        if not isinstance(found, LatticeAccount):
            raise ArgumentError("Only releases in the limit are attacked here.")
        return found

    def claimed(self, delta: float) -> float | None:
        """By the exact curve."""
        return limit_epsilon(delta, self.account)

    def observe(self, *, present: bool, runs: int) -> Floats:
        """The likelihood ratio of the release that it shows, what the release tells besides, and coefficients."""
        ratio = TranscriptRatio(self.neighbours, self.model().schema(1))
        seen = []
        for _ in range(runs):
            model = self.fitted(present=present)
            transcript = model.release_.statistic
            if not isinstance(transcript, Transcript):
                raise ArgumentError("Only releases in the limit are attacked here.")
            seen.append([*ratio.seen(transcript), *np.ravel(model.coef_), *np.ravel(model.intercept_)])
        return np.array(seen)


class Grouped(Regressor):
    """`LinearMixing` that protects persons, told whose each row is."""

    words = "LinearMixing, as fitted to persons"
    neighbours = PersonPasses.neighbours

    def model(self) -> LinearMixing:
        """Not fitted yet."""
        model = super().model()
        model.set_params(rows_per_group=self.neighbours.unit.rows)
        return model

    def fitted(self, *, present: bool) -> LinearMixing:
        """A model of one of the two tables."""
        X, y = self.neighbours.arrays(present=present)
        return self.model().fit(X, y, groups=self.neighbours.who(present=present))


class Classifier(Regressor):
    """`LogisticMixing`."""

    words = "LogisticMixing, as fitted"
    neighbours = Neighbours(
        np.where(CLOUD.common[:, :1] > 0, [0.1, 1.0], [-0.1, -1.0]),
        OPPOSITE,
        "200 rows of two classes near the middle, and one more far on the wrong side",
        intercept=True,
    )

    def model(self) -> LogisticMixing:
        """Not fitted yet."""
        return LogisticMixing(
            epsilon=self.epsilon,
            delta=self.delta,
            bounds_X=(-1, 1),
            classes=(-1.0, 1.0),
            random_state=secure_generator(),
        )


class Stepped(Classifier):
    """`LogisticMixing` with private Newton steps, after one pass, in which the row counts in full too."""

    words = "LogisticMixing, three steps"
    likelihood = Likelihood("y", 3)

    def model(self) -> LogisticMixing:
        """Not fitted yet."""
        model = super().model()
        model.set_params(passes=1, steps=self.likelihood.steps)
        return model


class AdaSSP(Subject):
    """AdaSSP under its exact account."""

    words = "AdaSSP, exact"
    analysis: Literal["exact", "printed"] = "exact"

    def claimed(self, delta: float) -> float | None:
        """By the exact curve of three Gaussian releases."""
        return gaussian_epsilon(delta, mu=math.sqrt(3) / self.prepared.noise)

    @cached_property
    def prepared(self) -> PreparedAdaSSP:
        """Ready but for the rows."""
        return PreparedAdaSSP.of(
            SCHEMA,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=0.05,
            analysis=self.analysis,
            n_rows=None,
            rng=secure_generator(),
        )

    @cached_property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """As many rows as make the ridge tell most of the eigenvalue: in the middle of where it is not cut off."""
        window = math.sqrt(math.log(6 / self.delta)) + math.sqrt(math.log(2 / self.prepared.rho)) / 2
        return Neighbours(
            repeated(int(self.prepared.noise * window), CORNER), CORNER, "equal rows at a corner, and one more"
        )

    def observe(self, *, present: bool, runs: int) -> Floats:
        """Likelihood ratios of XᵀX and XᵀY, and the ridge, which tells the eigenvalue."""
        rows, (absent, there) = self.neighbours.rows(present=present), self.neighbours.grams()
        x_norm, y_norm = (SCHEMA.norm_of([name]) / SCHEMA.row_norm for name in ("X", "y"))
        s, seen = self.prepared.noise, []
        for _ in range(runs):
            blocks = replace(self.prepared).draw(rows)
            ratio = symmetric_ratio(blocks.XX, absent[:1, :1], there[:1, :1], mu=1 / (s * x_norm**2))
            ratio += gaussian_ratio(blocks.XY, absent[:1, 1:], there[:1, 1:], sigma=s * x_norm * y_norm)
            seen.append([ratio, blocks.ridge, float(blocks.XX[0, 0]), float(blocks.XY[0, 0])])
        return np.array(seen)


class PrintedAdaSSP(AdaSSP):
    """AdaSSP with the constants that were printed."""

    words = "AdaSSP, as printed"
    analysis = "printed"

    def claimed(self, delta: float) -> float | None:
        """One point, as printed."""
        return None


class Sheffet(Subject):
    """Sheffet's algorithm."""

    words = "SheffetMixing, k = 10"
    analysis: Literal["sheffet", "renyi"] = "sheffet"

    @cached_property
    def prepared(self) -> PreparedSheffet:
        """Ready but for the rows."""
        return PreparedSheffet.of(
            SCHEMA,
            epsilon=self.epsilon,
            delta=self.delta,
            sketch_size=10,
            analysis=self.analysis,
            n_rows=None,
            rng=secure_generator(),
        )

    @cached_property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """The smallest eigenvalue is that of the row's direction, and in the middle of what the test decides."""
        weak = int(self.prepared.account.gamma + self.prepared.account.margin)
        common = np.concatenate([repeated(weak, CORNER), repeated(2 * weak, OPPOSITE)])
        return Neighbours(common, CORNER, "rows at two corners at a right angle, and one more at the rarer corner")

    def observe(self, *, present: bool, runs: int) -> Floats:
        """The likelihood ratio of the sketch given its noise, and whether it has noise."""
        rows, grams = self.neighbours.rows(present=present), self.neighbours.grams()
        seen = []
        for _ in range(runs):
            sketch = replace(self.prepared).draw(rows).sketch
            seen.append([sketch_ratio(sketch, grams), float(sketch.noise_variance > 0)])
        return np.array(seen)


class RenyiSheffet(Sheffet):
    """Sheffet's algorithm with the sketch's noise by Lemma 1."""

    words = "SheffetMixing, Rényi, k = 10"
    analysis = "renyi"


class Perturbed(Subject):
    r"""Objective perturbation.

    θ determines the random term, b(θ) = -∇L(θ) - Δθ, so that θ has density φ(b(θ)/σ)·det(∇²L(θ) + ΔI), up to constants.
    """

    words = "ObjectivePerturbation"
    neighbours = Classifier.neighbours

    def observe(self, *, present: bool, runs: int) -> Floats:
        """The likelihood ratio of θ, and θ."""
        X, y = self.neighbours.arrays(present=present)
        seen = []
        for _ in range(runs):
            model = ObjectivePerturbation(
                epsilon=self.epsilon,
                delta=self.delta,
                bounds_X=(-1, 1),
                classes=(-1.0, 1.0),
                random_state=secure_generator(),
            ).fit(X, y)
            theta = np.array([*np.ravel(model.coef_), *np.ravel(model.intercept_)])
            logs = [self._log_density(theta, model, present=there) for there in (False, True)]
            seen.append([logs[1] - logs[0], *theta])
        return np.array(seen)

    def _log_density(self, theta: Floats, model: ObjectivePerturbation, *, present: bool) -> float:
        X, y = self.neighbours.arrays(present=present)
        A = np.column_stack([X, np.ones(len(X))])
        account = model.privacy_.account
        p = special.expit(-y * (A @ theta))
        b = A.T @ (y * p) - account.penalty * theta  # type: ignore[union-attr]
        hessian = (A.T * (p * (1 - p))) @ A + account.penalty * np.eye(2)  # type: ignore[union-attr]
        return float(-b @ b / (2 * account.noise**2) + np.linalg.slogdet(hessian)[1])  # type: ignore[union-attr]
