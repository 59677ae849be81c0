"""Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise. Rows have norm at most 1.

Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise at all (Sheffet 2017, 2019).

As arXiv:2505.24603v2 prints it (its appendix on Sheffet's Algorithm 1), with rows of norm at most C, and corrected: γ
is a variance in units of C², so that the test compares λ_min with γC² and the noise has standard deviation √γ·C.

    noise-free if  λ_min > C² (γ + z + 4 log(1/δ)/ε),   z ~ Laplace(4/ε)

The test costs ε/4 and fails with probability δ/2; the sketch has ε/2 and δ/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.accounts import SheffetAccount
from gaussmix.accounting.calibration import calibrate, least_gamma
from gaussmix.accounting.parameters import warn_if_weak
from gaussmix.baselines.adassp import eigenvalue_and_error
from gaussmix.baselines.reference import Unnoised, least_squares_of
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.estimators.base import FEATURES, Bounds, LinearRegressor, PreparedDraw
from gaussmix.mechanism.noise import generator, public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify, check_rows
from gaussmix.models.linear import feature_indices
from gaussmix.models.release import Release
from gaussmix.paper.estimators import paper_sketch_size
from gaussmix.paper.mixing import covariance_factor, draw_factor
from gaussmix.releases.certificate import Certificate

__all__ = ["PreparedSheffet", "SheffetMixing", "SheffetSketch"]


@dataclass(frozen=True, eq=False)
class SheffetSketch:
    """A sketch whose noise a private test of λ_min decided about, and what was spent on it.

    Attributes
    ----------
    factor : array (m, m)
        R, triangular, with RᵀR = MᵀM for the k sketch rows M, in encoded units and on a public grid.
    noise_variance : float
        σ² of the noise in M, in encoded units; 0 where the test found that none is needed.
    certificate : Certificate
        What was spent; its account has k.
    """

    factor: Floats
    noise_variance: float
    certificate: Certificate


@dataclass(frozen=True)
class PreparedSheffet:
    """Sheffet's algorithm for which all is ready but the rows; the test costs ε/4 and δ/2, the sketch ε/2 and δ/2."""

    schema: Schema
    epsilon: float
    delta: float
    account: SheffetAccount
    n_rows: int | None
    rng: np.random.Generator
    _once: OneDraw = field(default_factory=OneDraw, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        sketch_size: int,
        analysis: Literal["sheffet", "renyi"],
        n_rows: int | None,
        rng: np.random.Generator,
    ) -> PreparedSheffet:
        """From declared quantities, checked. Sheffet's γ is raised where the exact curve shows that it must be."""
        check.choice(("sheffet", "renyi"), analysis=analysis)
        delta = check.in_interval(0, 1, delta=delta)
        k = check.sketch_rows(sketch_size=sketch_size)
        if k < schema.n_columns:
            raise ArgumentError(
                f"sketch_size must be at least the number of encoded columns, {schema.n_columns}, got {k}."
            )
        if analysis == "sheffet":
            log_term = math.log(8 / delta)
            gamma = 4 / epsilon * (math.sqrt(2 * k * log_term) + 2 * log_term)
            gamma = max(gamma, least_gamma(epsilon / 2, delta / 2, sketch_size=k, bound_holds_for="larger"))
        else:
            gamma = calibrate(epsilon / 2, delta / 2, sketch_size=k, analysis="renyi").gamma
        margin = 4 * math.log(1 / delta) / epsilon
        account = SheffetAccount(k, gamma, margin=margin, laplace_scale=4 / epsilon, analysis=analysis)
        return cls(schema, epsilon, delta, account, n_rows, rng)

    def draw(self, rows: RowSource) -> SheffetSketch:
        """No noise if a noisy test finds λ_min > γ + margin, else noise of variance γ.

        The test is given λ_min less its error bound e, and Laplace noise for a sensitivity of 1 + 2e; the margin is a
        multiple of that noise, so it grows with it.
        """
        check_rows(rows, self.schema)
        account, gram = self.account, rows.moments().gram()
        self._once.take()
        lower, error = eigenvalue_and_error(gram, self.schema.n_columns, self.n_rows)
        z = self.rng.laplace(scale=account.laplace_scale * (1 + 2 * error))
        sigma2 = 0.0 if lower > account.gamma + z + account.margin * (1 + 2 * error) else account.gamma
        certificate = certify(
            self.schema,
            account,
            self.rng,
            made_by="SheffetMixing",
            budget=(self.epsilon, self.delta),
            neighbours="add-remove",
            n_rows=self.n_rows,
        )
        C = self.schema.row_norm
        R = draw_factor(covariance_factor(gram, sigma2), account.sketch_size, self.rng)
        return SheffetSketch(to_grid(C * R, public_grid(C * math.sqrt(account.gamma))), sigma2 * C**2, certificate)


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
