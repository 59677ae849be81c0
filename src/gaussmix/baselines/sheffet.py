r"""Sheffet's algorithm: a noisy test of λ_min decides whether the sketch needs noise at all (Sheffet 2017, 2019).

As arXiv:2505.24603v2 prints it (its appendix on Sheffet's Algorithm 1), with rows of norm at most C, and corrected: γ
is a variance in units of C², so that the test compares λ_min with γC² and the noise has standard deviation √γ·C.

    noise-free if  λ_min > C² (γ + z + 4 log(1/δ)/ε),   z ~ Laplace(4/ε)

The test costs ε/4 and fails with probability δ/2; the sketch has ε/2 and δ/2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix.baselines._regressor import LinearBaseline
from gaussmix.calibration import calibrate
from gaussmix.encoding import RowEncoder
from gaussmix.estimators import papers_sketch_size
from gaussmix.mechanism import certify, draw_tested_release, largest_table, open_release
from gaussmix.moments import Moments
from gaussmix.releases import Certificate
from gaussmix.sampling import generator
from gaussmix.solvers import as_published, least_squares

__all__ = ["SheffetMixing"]

Floats = NDArray[np.float64]


class SheffetMixing(LinearBaseline):
    """Sheffet's algorithm with either analysis of the sketch.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, n_rows, random_state
        As in :class:`gaussmix.LinearMixing`.
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
        bounds_X: Any = None,
        bounds_y: Any = None,
        fit_intercept: bool = True,
        analysis: Literal["sheffet", "renyi"] = "sheffet",
        sketch_size: int | Literal["auto"] = "auto",
        n_rows: int | None = None,
        random_state: Any = None,
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

    def _theta(self, read: Callable[[], Moments], encoder: RowEncoder) -> tuple[Floats, Certificate]:
        check.choice(("sheffet", "renyi"), analysis=self.analysis)
        p = encoder.n_columns - encoder.n_targets
        if check.positive(epsilon=self.epsilon) == math.inf:
            release = open_release(read())
            G = release.second_moment()
            return least_squares(G[:p, :p], G[:p, p:]), release.certificate
        delta = check.in_interval(0, 1, delta=self.delta)
        if self.sketch_size == "auto":
            k = papers_sketch_size(encoder)
        else:
            k = check.positive_integer(sketch_size=self.sketch_size)
        if self.analysis == "sheffet":
            log_term = math.log(8 / delta)
            gamma = 4 / self.epsilon * (math.sqrt(2 * k * log_term) + 2 * log_term)
            gamma = max(gamma, _least_gamma(self.epsilon / 2, delta / 2, k))
        else:
            gamma = calibrate(self.epsilon / 2, delta / 2, sketch_size=k, analysis="renyi").gamma
        rng, source = generator(self.random_state)
        moments = read()
        certificate = certify(
            encoder,
            mechanism="SheffetMixing",
            epsilon=self.epsilon,
            delta=delta,
            relation="zero-out",
            analysis=self.analysis,
            generator=source,
            parameters={"sketch_size": k, "gamma": gamma},
            n_rows=self.n_rows,
        )
        release = draw_tested_release(
            moments,
            gamma=gamma,
            margin=4 * math.log(1 / delta) / self.epsilon,
            laplace_scale=4 / self.epsilon,
            sketch_size=k,
            rng=rng,
            certificate=certificate,
            n_max=largest_table(self.n_rows),
        )
        W = release.noisy_second_moment
        return as_published(W[:p, :p], W[:p, p:]), certificate


@functools.lru_cache(maxsize=1024)
def _least_gamma(epsilon: float, delta: float, k: int) -> float:
    """Least γ at which a sketch with leverage 1/γ meets its share of the budget by the exact curve."""
    return accounting.smallest_safe(
        lambda g: accounting.log_excess(accounting.delta(epsilon, sketch_size=k, gamma=g, scale="larger"), delta),
        1 + 1e-9,
        3.0,
        limit=accounting.GAMMA_MAX,
        log=True,
    )
