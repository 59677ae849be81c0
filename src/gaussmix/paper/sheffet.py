"""Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise. Rows have norm at most 1."""

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
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.noise import public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify, check_rows
from gaussmix.paper.mixing import covariance_factor, draw_factor
from gaussmix.releases.certificate import Certificate

__all__ = ["PreparedSheffet", "SheffetSketch"]


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
            relation="zero-out",
            n_rows=self.n_rows,
        )
        C = self.schema.row_norm
        R = draw_factor(covariance_factor(gram, sigma2), account.sketch_size, self.rng)
        return SheffetSketch(to_grid(C * R, public_grid(C * math.sqrt(account.gamma))), sigma2 * C**2, certificate)
