r"""Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise at all (Sheffet 2017, 2019).

As arXiv:2505.24603v2 prints it (its appendix on Sheffet's Algorithm 1), with rows of norm at most C, and corrected: γ
is a variance in units of C², so that the test compares λ_min with γC² and the noise has standard deviation √γ·C.

    noise-free if  λ_min > C² (γ + z + 4 log(1/δ)/ε),   z ~ Laplace(4/ε)

The test costs ε/4 and fails with probability δ/2; the sketch has ε/2 and δ/2.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.parameters import warn_if_weak
from gaussmix.baselines.reference import Unnoised, least_squares_of
from gaussmix.data.schema import Schema
from gaussmix.estimators.base import FEATURES, Bounds, LinearRegressor, PreparedDraw
from gaussmix.mechanism.noise import generator
from gaussmix.models.linear import feature_indices
from gaussmix.models.release import Release
from gaussmix.paper.estimators import paper_sketch_size
from gaussmix.paper.sheffet import PreparedSheffet, SheffetSketch
from gaussmix.releases.certificate import Certificate

__all__ = ["SheffetMixing"]


class SheffetMixing(LinearRegressor[SheffetSketch | Release]):
    """Sheffet's algorithm with either analysis of the sketch.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearRegression`.
    analysis : {"sheffet", "renyi"}
        ``"sheffet"``: γ = (4/ε)(√(2k log(8/δ)) + 2 log(8/δ)), raised where that is not private (large ε).
        ``"renyi"``: the least γ whose Lemma 1 and Proposition 1 give ε/2 at δ/2.
    sketch_size : int or "auto"
        ``"auto"`` is 2.5 max(d, log 10¹⁰), as in the paper's experiments.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        analysis: Literal["sheffet", "renyi"] = "sheffet",
        sketch_size: int | Literal["auto"] = "auto",
        n_rows: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.analysis = analysis
        self.sketch_size = sketch_size
        self.n_rows = n_rows
        self.random_state = random_state

    def _prepare(self, schema: Schema) -> PreparedDraw[SheffetSketch | Release]:
        check.choice(("sheffet", "renyi"), analysis=self.analysis)
        if check.positive(epsilon=self.epsilon) == math.inf:
            return Unnoised("SheffetMixing")
        features, k = schema.n_columns - (len(schema.columns) - 1), self.sketch_size
        prepared = PreparedSheffet.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            sketch_size=max(paper_sketch_size(features), schema.n_columns) if k == "auto" else k,
            analysis=self.analysis,
            n_rows=self.n_rows,
            rng=generator(self.random_state),
        )
        warn_if_weak(prepared.epsilon, prepared.delta)
        return prepared

    def _solve(self, drawn: SheffetSketch | Release, schema: Schema) -> tuple[Floats, Certificate]:
        if isinstance(drawn, Release):
            return least_squares_of(drawn), drawn.certificate
        targets = [name for name in schema.columns if name != FEATURES]
        responses = [schema.groups[name][0] for name in targets]
        X, Y = drawn.factor[:, feature_indices(schema, targets, None)], drawn.factor[:, responses]
        return np.asarray(np.linalg.lstsq(X, Y, rcond=None)[0]), drawn.certificate
