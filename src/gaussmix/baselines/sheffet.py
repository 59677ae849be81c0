"""Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise (Sheffet 2017, 2019).

As printed in arXiv:2505.24603v2 (appendix on Sheffet's Algorithm 1), for rows of norm at most C, with one correction: γ
is a variance in units of C², so the test compares λ_min with γC² and the noise has standard deviation √γ·C.

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
from gaussmix.baselines.adassp import eigenvalue_and_error
from gaussmix.baselines.reference import without_noise
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.estimators.base import FEATURES, Draw, LinearRegressor, Private
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.mechanism.noise import generator, public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify, check_rows
from gaussmix.models.linear import feature_indices
from gaussmix.paper.estimators import paper_sketch_size
from gaussmix.paper.mixing import covariance_factor, draw_factor
from gaussmix.releases.certificate import Certificate

__all__ = ["PreparedSheffet", "SheffetMixing", "SheffetSketch"]


@dataclass(frozen=True, eq=False)
class SheffetSketch:
    """A sketch whose noise was decided by a private test of λ_min.

    Attributes
    ----------
    factor : array (m, m)
        R, triangular, with RᵀR = MᵀM for the k sketch rows M, in encoded units and on a public grid.
    noise_variance : float
        σ² of the noise in M, in encoded units; 0 if the test found that none is needed.
    certificate : Certificate
        The guarantee; its account has k.
    """

    factor: Floats
    noise_variance: float
    certificate: Certificate


@dataclass(frozen=True)
class PreparedSheffet:
    """Sheffet's algorithm, ready except for the rows."""

    schema: Schema
    epsilon: float
    delta: float
    account: SheffetAccount
    n_rows: int | None
    rng: np.random.Generator
    _once: OneDraw = field(default_factory=OneDraw, repr=False, compare=False)

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
        """Check the parameters and compute the noise. Sheffet's γ is raised if the exact curve requires it."""
        check.choice(("sheffet", "renyi"), analysis=analysis)
        delta = check.in_interval(0, 1, delta=delta)
        k = check.sketch_rows(sketch_size=sketch_size)
        if k < schema.n_columns:
            raise ArgumentError(
                f"sketch_size must be at least {schema.n_columns}, the number of columns of X and y after encoding, "
                f"got {k}."
            )
        if analysis == "sheffet":
            log_term = math.log(8 / delta)
            gamma = 4 / epsilon * (math.sqrt(2 * k * log_term) + 2 * log_term)
            gamma = max(gamma, least_gamma(epsilon / 2, delta / 2, sketch_size=k))
        else:
            gamma = calibrate(epsilon / 2, delta / 2, sketch_size=k, analysis="renyi").gamma
        margin = 4 * math.log(1 / delta) / epsilon
        account = SheffetAccount(k, gamma, margin=margin, laplace_scale=4 / epsilon, analysis=analysis)
        return cls(schema, epsilon, delta, account, n_rows, rng)

    def draw(self, rows: RowSource) -> SheffetSketch:
        """Draw a sketch without noise if a noisy test finds λ_min > γ + margin, otherwise with noise of variance γ.

        The test uses λ_min minus its error bound e, and Laplace noise for a sensitivity of 1 + 2e. The margin is
        proportional to that noise.
        """
        check_rows(rows, self.schema)
        account, gram = self.account, rows.gram().floats()
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


@dataclass(kw_only=True, eq=False, repr=False)
class SheffetMixing(LinearRegressor, Private):
    """Linear regression by Sheffet's algorithm, with his analysis of the sketch or the Rényi analysis.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearRegression`.
    analysis : {"sheffet", "renyi"}
        ``"sheffet"``: γ = (4/ε)(√(2k log(8/δ)) + 2 log(8/δ)), raised where that is not private (large ε).
        ``"renyi"``: the smallest γ for which Lemma 1 and Proposition 1 give ε/2 at δ/2.
    sketch_size : int or "auto"
        ``"auto"`` is 2.5 max(d, log 10¹⁰), as in the paper's experiments.
    """

    analysis: Literal["sheffet", "renyi"] = "sheffet"
    sketch_size: int | Literal["auto"] = "auto"
    n_rows: int | None = None

    def _prepare(self, schema: Schema) -> Draw:
        check.choice(("sheffet", "renyi"), analysis=self.analysis)
        if check.positive(epsilon=self.epsilon) == math.inf:
            return without_noise("SheffetMixing")
        targets = [name for name in schema.columns if name != FEATURES]
        x, y = feature_indices(schema, targets, None), [schema.groups[name][0] for name in targets]
        k = self.sketch_size
        prepared = PreparedSheffet.of(
            schema,
            epsilon=self.epsilon,
            delta=self.delta,
            sketch_size=max(paper_sketch_size(len(x)), schema.n_columns) if k == "auto" else k,
            analysis=self.analysis,
            n_rows=self.n_rows,
            rng=generator(self.random_state),
        )
        warn_if_weak(self.epsilon, self.delta)

        def draw(rows: RowSource) -> tuple[Floats, Certificate]:
            drawn = prepared.draw(rows)
            theta = np.linalg.lstsq(drawn.factor[:, x], drawn.factor[:, y], rcond=None)[0]
            return np.asarray(theta), drawn.certificate

        return draw
