r"""BinAgg: least squares on noisy sums over private bins, with intervals (Lin, Slavković and Bhoomireddy 2026).

arXiv:2510.16974v3, Algorithms 1 and 2. The box of declared bounds is divided into bins by PrivTree (arXiv:1601.03229).
Counts c_k, sums of features s_k and sums of responses t_k of all bins are released with Gaussian noise. Bins with a
noisy count below 2 are dropped. With w_k = 1/c̃_k and D_k the covariance matrix of the noise of s̃_k,

.. math::
    \hat\beta = M^{-1} \frac1K \sum_k w_k \tilde s_k \tilde t_k, \qquad
    M = \frac1K \sum_k w_k (\tilde s_k \tilde s_k^\top - D_k),

.. math::
    \mathrm{Cov}(\hat\beta) = M^{-1} \frac{\sum_k Q_k Q_k^\top}{K (K - p)} M^{-1}, \qquad
    Q_k = w_k \tilde s_k (\tilde t_k - \tilde s_k^\top \hat\beta) + w_k D_k \hat\beta,

with p coefficients. Intervals are normal, for the coefficients of the population.

**Privacy** (add-remove). One row is in one bin. Given the bins, it changes one count by 1, feature j of one sum by at
most Δ_kj = max(abs(L_kj), abs(U_kj)), where [L, U] is the bin, and each of q sums of responses by at most B_y. Noise of
standard deviation 1/μ_c, √d Δ_kj/μ_s and √q B_y/μ_t therefore gives μ_c-, μ_s- and μ_t-Gaussian DP:
Σ_j (Δ_kj/(√d Δ_kj/μ_s))² = μ_s². (The published code has Δ_kj/μ_s for every feature, which spends √d μ_s.) Bins and
sums compose to μ² = μ_b² + μ_c² + μ_s² + μ_t² with the published ratios 1 : 3 : 3 : 3 of μ.

**The bins** are ε_b-differentially private with ε_b = log(Φ(μ_b/2)/Φ(-μ_b/2)), which implies μ_b-Gaussian DP: both
trade-off functions start in (0, 1), that of ε_b-DP is linear up to its fixed point 1/(1 + e^ε_b) = Φ(-μ_b/2), which is
also the fixed point of the other one, and the other one is convex. A box of depth h and count c is divided in two if
max(c - hδ, -δ) + Laplace(λ) > 0, with u = 1/λ = ε_b/3 and δ = λ log 2. Let a row be added, and let b_h and b'_h be the
maxima along its path. A box that is not divided costs at most u, in the direction opposite to all divided ones. Let m
be the last divided box of the path with a := b'_m + δ > 0; later ones do not change. As counts do not increase along
the path, b'_{m-j} ≥ a + (j - 1)δ. The hazard of the Laplace distribution is at most u min(1, e^{-ux}) at distance x
below the threshold, so that box m costs at most u min(a, 1), and the others cost at most

- a ≥ 1: (e^u - 1) e^{-au} 2^{1-j} ≤ u 2^{1-j}, in sum 2u;
- a < 1: (1 - a)u + 1 - e^{-au} for j = 1, and (e^u - 1) e^{-au} 2^{1-j} for j ≥ 2, in sum with box m
  u + 1 + e^{-au}(e^u - 2), at most u + 2 - 2e^{-u} or u + e^u - 1. Both are at most 3u for u ≤ 1.25, the cap here.

So all costs add up to at most 3u = ε_b. A division that the number of bins or a maximum depth requires depends on
the tree alone.

Differences from the published code: the noise of s_k (above); a value on the border of two bins counts in one of them;
noisy counts are not rescaled to the exact number of rows, which is not public (without an intercept the estimate does
not depend on the scale of the weights); and there may be an intercept, whose sums are the noisy counts themselves.
Products with them need no correction: w_k c̃_k² = c̃_k. As published there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy import special
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.accounting.accounts import BinAggAccount, binning_epsilon
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.baselines.reference import without_noise
from gaussmix.data.arrays import read_targets, shape_of
from gaussmix.data.encode import encode_arrays
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DataError
from gaussmix.estimators.base import FEATURES, Draw, LinearRegressor, Private, coefficients
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.mechanism.noise import generator, public_grid, to_grid
from gaussmix.mechanism.release import OneDraw, certify
from gaussmix.releases.certificate import Certificate

__all__ = ["BinAgg", "BinSums", "Box", "PreparedBinAgg", "estimate", "privtree", "with_enough_bins"]

Correction = Literal["theorem", "code"]
MAX_DEPTH = 200
LEAST_COUNT = 2.0
"""Noisy count below which a bin is dropped."""


@dataclass(frozen=True)
class BinSums:
    """Noisy counts and sums of bins, in encoded units.

    Attributes
    ----------
    counts : array (bins,)
    sums_x, variances_x : array (bins, features)
        Sums of features and variances of their noise.
    sums_y : array (bins, targets)
    """

    counts: Floats
    sums_x: Floats
    variances_x: Floats
    sums_y: Floats


# ----------------------------------------------------------------------------------------------------------------------
# Bins
@dataclass(frozen=True)
class Box:
    """A box of PrivTree with the positions of its rows, which are **sensitive**."""

    lower: Floats
    upper: Floats
    rows: Integers
    depth: int

    def halves(self, X: Floats) -> list[Box]:
        """Divide the widest side, the first one of several, at its midpoint."""
        j = int(np.argmax(self.upper - self.lower))
        middle = (self.lower[j] + self.upper[j]) / 2
        below = X[self.rows, j] < middle
        upper, lower = self.upper.copy(), self.lower.copy()
        upper[j] = lower[j] = middle
        return [
            Box(self.lower, upper, self.rows[below], self.depth + 1),
            Box(lower, self.upper, self.rows[~below], self.depth + 1),
        ]


def privtree(
    X: Floats, laplace_scale: float, rng: np.random.Generator, corners: tuple[Floats, Floats] | None = None
) -> list[Box]:
    """Divide a box of the rows X, (n, d), by default [-1, 1]^d; the boxes without their rows are private."""
    d, decay = X.shape[1], laplace_scale * math.log(2)
    lower, upper = corners or (np.full(d, -1.0), np.full(d, 1.0))
    waiting, leaves = [Box(lower, upper, np.arange(len(X)), 0)], []
    while waiting:
        box = waiting.pop()
        biased = max(len(box.rows) - box.depth * decay, -decay)
        if biased + rng.laplace(scale=laplace_scale) > 0 and box.depth < MAX_DEPTH:
            waiting += box.halves(X)
        else:
            leaves.append(box)
    return leaves


def with_enough_bins(leaves: list[Box], X: Floats) -> list[Box]:
    """Divide boxes of the least depth until there are d + 2: an intercept and d slopes need a degree of freedom.

    What is divided depends on the boxes alone.
    """
    leaves = list(leaves)
    while len(leaves) < X.shape[1] + 2:
        shallowest = min(range(len(leaves)), key=lambda i: leaves[i].depth)
        leaves += leaves.pop(shallowest).halves(X)
    return leaves


# ----------------------------------------------------------------------------------------------------------------------
# Estimate
def estimate(sums: BinSums, intercept: float, correction: Correction = "theorem") -> tuple[Floats, Floats]:
    """Return β, (p, targets), and its covariance matrices, (targets, p, p); infinite if there are too few bins.

    ``intercept`` is the value of the constant column, which comes last; 0 without one. With ``correction="code"`` the
    sum of w_k D_k is divided by K once more in β, not in the covariance matrix.
    """
    kept = sums.counts >= LEAST_COUNT
    w, T = 1 / sums.counts[kept], sums.sums_y[kept]
    S, D = sums.sums_x[kept], sums.variances_x[kept]
    if intercept:
        S, D = np.column_stack([S, intercept / w]), np.column_stack([D, np.zeros(len(w))])
    (K, p), q = S.shape, T.shape[1]
    if p >= K:  # M is singular: the shortest solution of weighted least squares, and no intervals
        root = np.sqrt(w)[:, np.newaxis]
        return np.asarray(np.linalg.lstsq(S * root, T * root, rcond=None)[0], np.float64), np.full((q, p, p), math.inf)
    M = ((S.T * w) @ S - np.diag(w @ D)) / K
    solved = M if correction == "theorem" else ((S.T * w) @ S - np.diag(w @ D) / K) / K
    beta = scipy.linalg.solve(solved, (S.T * w) @ T / K, assume_a="sym")  # indefinite if noise dominates, as published
    covariances = []
    for t, b in zip(T.T, beta.T, strict=True):
        Q = w[:, np.newaxis] * (S * (t - S @ b)[:, np.newaxis] + D * b)
        half = scipy.linalg.solve(M, Q.T, assume_a="sym")
        covariances.append(half @ half.T / (K * (K - p)))
    return np.asarray(beta), np.array(covariances)


# ----------------------------------------------------------------------------------------------------------------------
# Mechanism
@dataclass(frozen=True)
class PreparedBinAgg:
    """BinAgg, ready except for the rows; ``corners`` are those of the box of features in encoded units."""

    schema: Schema
    epsilon: float
    delta: float
    account: BinAggAccount
    rng: np.random.Generator
    corners: tuple[Floats, Floats]
    _once: OneDraw = field(default_factory=OneDraw, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        rng: np.random.Generator,
        corners: tuple[Floats, Floats] | None = None,
    ) -> PreparedBinAgg:
        """Check the parameters and compute the noise; by default the box is [-1, 1]^d."""
        epsilon, delta = check.positive(epsilon=epsilon), check.in_interval(0, 1, delta=delta)
        mu = gaussian_mu(epsilon, delta)
        whole = np.ones(len(schema.groups[FEATURES]))
        return cls(schema, epsilon, delta, BinAggAccount(mu, 3 / binning_epsilon(mu)), rng, corners or (-whole, whole))

    def draw(self, X: ArrayLike, y: ArrayLike) -> tuple[BinSums, Certificate]:
        """Draw bins, counts and sums."""
        schema, rng = self.schema, self.rng
        encoded = encode_arrays(schema, X, y) * schema.row_norm
        self._once.take()
        rows = np.clip(encoded[:, schema.groups[FEATURES]], *self.corners)
        targets = [name for name in schema.columns if name != FEATURES]
        bound = np.array([schema.norm_of([name]) for name in targets])
        responses = np.clip(encoded[:, [schema.groups[name][0] for name in targets]], -bound, bound)
        boxes = with_enough_bins(privtree(rows, self.account.laplace_scale, rng, self.corners), rows)
        largest = np.array([np.maximum(np.abs(box.lower), np.abs(box.upper)) for box in boxes])
        each = 1 / self.account.mu_of_each_sum
        noise_x = math.sqrt(largest.shape[1]) * largest * each
        noise_y = math.sqrt(len(targets)) * bound * each
        counts = np.array([len(box.rows) for box in boxes], dtype=np.float64)
        sums_x, sums_y = (np.array([part[box.rows].sum(axis=0) for box in boxes]) for part in (rows, responses))
        sums = BinSums(
            to_grid(counts + each * rng.standard_normal(counts.shape), public_grid(each)),
            to_grid(sums_x + noise_x * rng.standard_normal(sums_x.shape), public_grid(each)),
            noise_x**2,
            to_grid(sums_y + noise_y * rng.standard_normal(sums_y.shape), public_grid(each * float(bound.min()))),
        )
        certificate = certify(
            schema,
            self.account,
            rng,
            made_by="BinAgg",
            budget=(self.epsilon, self.delta),
            neighbours="add-remove",
        )
        return sums, certificate


@dataclass(kw_only=True, eq=False, repr=False)
class BinAgg(LinearRegressor, Private):
    """Linear regression on noisy sums over private bins, with intervals for the population's coefficients.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, bounds_y, fit_intercept, random_state
        As in :class:`gaussmix.LinearRegression`. An infinite ``epsilon`` gives least squares, without intervals.
    correction : {"theorem", "code"}
        ``"theorem"`` subtracts the covariance of the noise from the matrix of sums. ``"code"`` subtracts it divided by
        the number of bins, as the published code does: nearly nothing, which biases coefficients towards 0 and makes
        predictions more stable.

    Attributes
    ----------
    coef_, intercept_
        In the units of the table.
    covariance_ : array (targets, p, p)
        Estimated covariance matrix of the coefficients, the intercept last; infinite if too few bins are left.
    privacy_ : Certificate
        The guarantee and its conditions.
    """

    correction: Correction = "theorem"

    def fit(self, X: ArrayLike, y: ArrayLike) -> BinAgg:
        """Fit to X (rows, features) and y (rows,) or (rows, targets)."""
        check.choice(("theorem", "code"), correction=self.correction)
        n_features, shape = shape_of(X, y)
        schema = self.schema(n_features, *shape)
        if check.positive(epsilon=self.epsilon) == math.inf:
            self.covariance_ = np.full((len(schema.columns) - 1, *2 * (n_features + self.fit_intercept,)), math.nan)
            return super().fit(X, y)
        rng = generator(self.random_state)
        corners = self._corners(schema)
        prepared = PreparedBinAgg.of(schema, epsilon=self.epsilon, delta=self.delta, rng=rng, corners=corners)
        warn_if_weak(self.epsilon, self.delta)
        rows, targets = read_targets(self, X, y, several=True, finite=False)  # NaN is found where rows are encoded
        if len(rows) < n_features:
            raise DataError(
                "The table has fewer rows than features, so no regression is identified. Use fewer features."
            )
        sums, self.privacy_ = prepared.draw(rows, targets)
        theta, covariances = estimate(sums, schema.intercept, self.correction)
        # Coefficients in original units are an affine function of θ: its matrix, column by column.
        zero, size = np.zeros_like(theta), theta.shape[0]
        columns = [self._flat(schema, zero + np.eye(size)[:, [j]]) - self._flat(schema, zero) for j in range(size)]
        A = np.stack(columns, axis=-1)
        self.covariance_ = np.full_like(covariances, math.inf)
        if np.isfinite(covariances).all():
            self.covariance_ = A @ covariances @ A.transpose(0, 2, 1)
        return self._fit_theta(schema, theta, shape)

    def _corners(self, schema: Schema) -> tuple[Floats, Floats] | None:
        """Return the declared box in encoded units.

        Without an intercept nothing is centred and a schema widens bounds to be symmetric; the bins need not.
        """
        if self.bounds_X is None or self.fit_intercept:
            return None
        ends = np.array([np.broadcast_to(end, len(schema.groups[FEATURES])) for end in self.bounds_X], dtype=np.float64)
        lower, upper = ends / np.abs(ends).max(axis=0)
        return lower, upper

    def _flat(self, schema: Schema, theta: Floats) -> Floats:
        """Return coefficients and intercept of every target in original units, (targets, p)."""
        coef, intercept = coefficients(schema, theta)
        return np.column_stack([coef, intercept]) if self.fit_intercept else coef

    def _prepare(self, schema: Schema) -> Draw:
        return without_noise("BinAgg")

    def fit_moments(self, moments: Moments) -> BinAgg:
        """Raise an error: bins need the rows, not their moments."""
        raise ArgumentError("BinAgg cannot be fitted to moments, because binning requires the rows. Use fit.")

    def conf_int(self, alpha: float = 0.05, *, output: int = 0) -> Floats:
        """Return normal intervals of level 1 - alpha, (p, 2), the intercept last.

        Parameters
        ----------
        alpha : float
        output : int
            Index of the target, if there are several.
        """
        check_is_fitted(self)
        z = float(special.ndtri(1 - check.in_interval(0, 1, alpha=alpha) / 2))
        centre = np.atleast_2d(self.coef_)[output]
        if self.fit_intercept:
            centre = np.append(centre, np.atleast_1d(self.intercept_)[output])
        half = z * np.sqrt(np.diagonal(self.covariance_[output]))
        return np.column_stack([centre - half, centre + half])
