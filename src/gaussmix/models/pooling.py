r"""Several noisy second moments of one table, pooled by inverse variance and cleaned of their noise.

Post-processing: functions of releases alone.

A release is M = G + B·W·Bᵀ with W a symmetric Gaussian matrix of unit scale (variance 1 off the diagonal, 2 on it:
"GOE") and B known. The law depends on the *shape* N = BBᵀ only. For a pass with transform E and noise scale s,
B = √s·E⁻¹, so that B⁻¹ is known without inverting anything: pooling needs no factorisation that could fail.

>>> first = NoisyGram.isotropic(np.diag([5.0, 3.0]), scale=1.0)
>>> second = NoisyGram.isotropic(np.diag([6.0, 4.0]), scale=1.0)
>>> Pool.of(first).add(second).matrix.round(12).tolist()
[[5.5, 0.0], [0.0, 3.5]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy import optimize

from gaussmix._types import Floats

__all__ = ["Cleaned", "NoisyGram", "Pool", "clean", "goe"]


_RANGE = 1e-13
"""Relative size below which eigenvalues of float64 matrices are rounding errors."""


@dataclass(frozen=True, eq=False)
class NoisyGram:
    """A second moment with noise B·GOE·Bᵀ.

    Attributes
    ----------
    matrix : array (m, m)
        M, symmetric, in encoded units.
    factor : array (m, m)
        B.
    inverse : array (m, m)
        B⁻¹.
    """

    matrix: Floats
    factor: Floats
    inverse: Floats

    @classmethod
    def isotropic(cls, matrix: Floats, *, scale: float) -> NoisyGram:
        """Noise of standard deviation ``scale`` off the diagonal, √2 times that on it; 0 for none."""
        root, identity = math.sqrt(scale), np.eye(len(matrix))
        return cls(matrix, root * identity, identity / root if root else np.diag(np.full(len(matrix), np.inf)))

    @classmethod
    def in_metric(cls, matrix: Floats, *, transform: Floats, scale: float) -> NoisyGram:
        """From the release ``matrix`` of Σ z zᵀ, z = E r, with isotropic noise of ``scale``: back in the units of r."""
        back: Floats = np.asarray(np.linalg.inv(transform), dtype=np.float64)
        moment = back @ matrix @ back.T
        return cls((moment + moment.T) / 2, math.sqrt(scale) * back, transform / math.sqrt(scale))

    def times(self, weight: float) -> NoisyGram:
        """The release multiplied by a number, matrix and noise."""
        root = math.sqrt(weight)
        return NoisyGram(weight * self.matrix, root * self.factor, self.inverse / root)

    @property
    def shape(self) -> Floats:
        """N = BBᵀ."""
        return np.asarray(self.factor @ self.factor.T)


@dataclass(frozen=True, eq=False)
class _Step:
    """One pooling: in the basis V both shapes are diagonal; ``weights`` are those of what was there before."""

    basis: Floats  # V: Vᵀ N_new V = I, Vᵀ N_old V = diag(d)
    back: Floats  # V⁻¹
    weights: Floats

    def combine(self, old: Floats, new: Floats) -> Floats:
        V, W = self.basis, self.back
        mixed = self.weights * (V.T @ old @ V) + (1 - self.weights) * (V.T @ new @ V)
        pooled = W.T @ mixed @ W
        return np.asarray((pooled + pooled.T) / 2)


@dataclass(frozen=True, eq=False)
class Pool:
    r"""Releases of one table, pooled one after the other.

    For two releases of shapes N_a, N_b, take the basis in which N_b = I and N_a = diag(d). Entry (i, j) has variance
    d_i d_j in a and 1 in b, so inverse-variance weights are 1/(1 + d_i d_j) and d_i d_j/(1 + d_i d_j), and its
    precision is 1 + 1/(d_i d_j). The pooled shape is the rank-one fit ν_i ν_j of the inverse precisions on the log
    scale: of the form BBᵀ again, and exact where one of the two is much better in all entries, or where the two are
    proportional.

    Given the weights the pool is linear in its members; their noise goes through the same map
    (:meth:`noise`).

    Attributes
    ----------
    current : NoisyGram
        Pooled matrix and the fitted shape of its noise.
    members : tuple of NoisyGram
        What was pooled.
    """

    current: NoisyGram
    members: tuple[NoisyGram, ...]
    _steps: tuple[_Step, ...] = ()

    @classmethod
    def of(cls, release: NoisyGram) -> Pool:
        """A pool of one."""
        return cls(release, (release,))

    @property
    def matrix(self) -> Floats:
        """The pooled second moment."""
        return self.current.matrix

    @property
    def shape(self) -> Floats:
        """N, the fitted shape of its noise."""
        return self.current.shape

    def add(self, release: NoisyGram) -> Pool:
        """The pool with one more release.

        The basis comes from one singular value decomposition of B_b⁻¹B_a, which cannot be found indefinite; ratios
        beyond float64's digits are raised to them.
        """
        relative = release.inverse @ self.current.factor  # B_b⁻¹ B_a; its Gram matrix is N_a as seen from b
        U, roots, _ = scipy.linalg.svd(relative)
        d = np.maximum(roots, roots[0] * _RANGE) ** 2
        products = d[:, np.newaxis] * d[np.newaxis]
        back = U.T @ release.factor.T
        step = _Step(release.inverse.T @ U, back, 1 / (1 + products))
        log_precision = np.log1p(1 / products)
        fit = log_precision.mean(axis=1) - log_precision.mean() / 2
        nu = np.exp(-fit / 2)  # square roots of ν
        pooled = NoisyGram(
            step.combine(self.matrix, release.matrix), back.T * nu, (U.T @ release.inverse) / nu[:, np.newaxis]
        )
        return Pool(pooled, (*self.members, release), (*self._steps, step))

    def noise(self, rng: np.random.Generator) -> Floats:
        """A draw of the pooled noise, shape (m, m): members' noises through the pool's own weights."""
        draws = [member.factor @ goe(len(member.matrix), rng) @ member.factor.T for member in self.members]
        total = draws[0]
        for step, draw in zip(self._steps, draws[1:], strict=True):
            total = step.combine(total, draw)
        return np.asarray((total + total.T) / 2)


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A second moment whose noise has been taken out of its eigenvalues: G ≈ F·diag(values)·Fᵀ.

    ``frame`` F = B·U maps the eigenbasis of B⁻¹MB⁻ᵀ to encoded units; ``values`` increase and are not negative, in
    units of the noise.
    """

    values: Floats
    frame: Floats

    @property
    def matrix(self) -> Floats:
        """The cleaned second moment, positive semidefinite."""
        return np.asarray((self.frame * self.values) @ self.frame.T)

    def raised(self, floor: float) -> Floats:
        """The same with ``floor`` added to every value: no direction is smaller than a part of its noise."""
        return np.asarray((self.frame * (self.values + floor)) @ self.frame.T)


def clean(release: NoisyGram, *, matrix: Floats | None = None, scale: float = 1.0) -> Cleaned:
    r"""Take the noise out of the eigenvalues, in the metric in which it is isotropic.

    With :math:`B^{-1} M B^{-\top} = U\,\mathrm{diag}(h)\,U^\top` and noise of scale s in it,

    .. math:: \xi_i = h_i - 2 s^2 \sum_j \frac{h_i - h_j}{(h_i - h_j)^2 + s^2}

    made monotone and not negative: the rotation-invariant estimator for additive Gaussian noise (Bun, Allez, Bouchaud
    and Potters, arXiv:1502.06736), with a kernel of width s.

    Parameters
    ----------
    release : NoisyGram
    matrix : array, optional
        Another matrix with noise of the same shape, instead of the release's own.
    scale : float
        s: scale of that matrix's noise in units of the release's.
    """
    moment = release.inverse @ (release.matrix if matrix is None else matrix) @ release.inverse.T
    h, U = np.linalg.eigh((moment + moment.T) / 2)
    gap = h[:, np.newaxis] - h[np.newaxis]
    xi = h - 2 * scale**2 * np.sum(gap / (gap**2 + scale**2), axis=1)
    return Cleaned(np.maximum(optimize.isotonic_regression(xi).x, 0.0), release.factor @ U)


def goe(m: int, rng: np.random.Generator) -> Floats:
    """Symmetric Gaussian matrix: standard deviation 1 off the diagonal, √2 on it. For simulation, not for releases."""
    noise = rng.standard_normal((m, m))
    return np.asarray((noise + noise.T) / math.sqrt(2))
