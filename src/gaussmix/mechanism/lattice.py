r"""Exact discrete Gaussian noise on the integers, and its addition to exact sums.

**Part of the line** between sensitive and private: whoever has the noise can take it away.

Exact sums are integers (:mod:`gaussmix.data.moments`: units of 2⁻⁴⁰). To each is added an independent discrete
Gaussian, P(z) ∝ exp(-z²/2σ²), drawn by OpenDP without floating point (Canonne, Kamath and Steinke, arXiv:2004.00010)
from the operating system's entropy. The sum is an integer; it becomes a float afterwards, which is post-processing. No
rounded number stands between the rows and the release, so the guarantee of docs/lattice.md holds on the computer.

>>> noise = symmetric_noise(3, diagonal=100.0, off_diagonal=71.0, rng=None)
>>> noise.shape, noise.dtype, bool((noise == noise.T).all())
((3, 3), dtype('int64'), True)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix._types import Integers
from gaussmix.accounting.discrete import LARGEST_SIGMA, LEAST_SIGMA, NATURAL_BITS
from gaussmix.errors import ArgumentError, MissingPackageError
from gaussmix.mechanism.sampling import describe
from gaussmix.releases.certificate import SECURE

try:  # here and not at the first draw: by then the budget is charged
    # Not the prelude, which loads scikit-learn's decompositions and polars.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features
except ImportError:
    raise
except Exception as error:  # in its own words, where the library cannot be mapped into memory
    raise MissingPackageError(
        "OpenDP, which draws the noise, cannot be loaded: give the process more memory, or install opendp again."
    ) from error

__all__ = ["add_noise", "discrete_gaussian", "exact_integers", "symmetric_noise", "to_floats"]

Exact = NDArray[np.object_]
Progress = Callable[[int, int], None]

_CHUNK = 2**12  # draws between two calls of a progress callback: about 80 ms


def discrete_gaussian(
    count: int, *, sigma: float, rng: np.random.Generator | None, progress: Progress | None = None
) -> Integers:
    """Independent discrete Gaussians, shape (count,).

    Parameters
    ----------
    count : int
    sigma : float
        Parameter of exp(-z²/2σ²), from 0.74 up to 2⁵⁷; from about 1 on it is also the standard deviation.
    rng : Generator or None
        None, or a generator that :func:`~gaussmix.mechanism.sampling.secure_generator` made: exact draws from the
        operating system's entropy, 15 to 20 µs each at every σ. Any other generator: normals rounded to integers, which
        are repeatable, have the right law up to 0.021/σ² and float64's 53 bits, and **void the guarantee**, as any seed
        does: whoever knows the generator's state can take the noise away.
    progress : callable, optional
        Called with (drawn so far, count).
    """
    if not LEAST_SIGMA <= check.positive(sigma=sigma) < LARGEST_SIGMA:
        raise ArgumentError(f"sigma must lie in [{LEAST_SIGMA}, 2**57) lattice units, got {sigma!r}.")
    if rng is not None and describe(rng) != SECURE:
        noise = np.rint(sigma * rng.standard_normal(count)).astype(np.int64)
        if progress is not None:
            progress(count, count)
        return noise
    noise = np.empty(count, dtype=np.int64)
    for start in range(0, count, _CHUNK):
        piece = noise[start : start + _CHUNK]
        piece[:] = _opendp_draws(len(piece), sigma)
        if progress is not None:
            progress(start + len(piece), count)
    return noise


@functools.cache
def _check_sampler() -> None:
    """Refuse versions of OpenDP whose discrete Gaussian has another law.

    Up to 0.14 it is wrong for σ that are no integers: at σ = 2.5 a chi-square test of 200,000 draws gives p < 10⁻²⁰⁰.
    The error falls with σ, but nobody has bounded it. From 0.15 on the tests of this module hold.
    """
    found = metadata.version("opendp")
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < (0, 15):
        raise MissingPackageError(
            f"opendp {found} draws discrete Gaussians of another law than it says: pip install 'opendp>=0.15'."
        )


def _opendp_draws(count: int, sigma: float) -> Any:
    """Exact draws: the integer Gaussian mechanism on zeros, the only door that the library has to its sampler."""
    return _opendp_mechanism(count, float(sigma))(np.zeros(count, dtype=np.int64))  # a list is checked entry by entry


@functools.lru_cache(maxsize=64)
def _opendp_mechanism(count: int, sigma: float) -> Any:
    """Remembered: making one takes longer than a few draws."""
    _check_sampler()
    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=count)
    return make_gaussian(domain, l2_distance(T="f64"), scale=sigma)


def symmetric_noise(
    m: int,
    *,
    diagonal: float,
    off_diagonal: float,
    rng: np.random.Generator | None,
    progress: Progress | None = None,
) -> Integers:
    """Symmetric matrix (m, m) of discrete Gaussians, independent on and above the diagonal.

    ``diagonal`` and ``off_diagonal`` are the two σ of :func:`gaussmix.accounting.discrete.diagonal_sigma` and
    ``off_diagonal_sigma``. Other parameters as in :func:`discrete_gaussian`.
    """
    above = m * (m - 1) // 2
    total = m + above

    def later(done: int, _: int) -> None:
        if progress is not None:
            progress(m + done, total)

    noise = np.diag(discrete_gaussian(m, sigma=diagonal, rng=rng))
    rows, columns = np.triu_indices(m, 1)
    noise[rows, columns] = discrete_gaussian(above, sigma=off_diagonal, rng=rng, progress=later)
    noise[columns, rows] = noise[rows, columns]
    return noise


# ---------------------------------------------------------------------------------------------------------------
# Exact integers
def exact_integers(high: Integers, low: Integers, *, refinement: int = 0, limb_bits: int = NATURAL_BITS) -> Exact:
    """Python integers (high · 2^limb_bits + low) · 2^refinement, of the limbs' shape: **sensitive**."""
    if refinement < 0:
        raise ArgumentError(
            "refinement must be at least 0: a coarser lattice is made by coarser rows, not by their sums."
        )
    return np.asarray(((high.astype(object) << limb_bits) + low.astype(object)) << refinement, dtype=object)


def add_noise(exact: Exact | Integers, noise: Integers) -> Exact:
    """Exact sum of integers and noise, in Python integers: what leaves it is private."""
    if exact.shape != noise.shape:
        raise ArgumentError(f"noise must have the shape of what it hides, {exact.shape}, got {noise.shape}.")
    return np.asarray(exact.astype(object) + noise.astype(object), dtype=object)


def to_floats(integers: Exact | Integers, bits: int) -> NDArray[np.float64]:
    """Integers in units of 2**-bits as float64, each rounded once: post-processing of a release."""
    unit = 1 << bits
    flat = [int(value) / unit for value in integers.ravel()]  # true division of Python integers rounds correctly
    return np.array(flat, dtype=np.float64).reshape(integers.shape)
