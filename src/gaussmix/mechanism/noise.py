"""Noise: exact discrete Gaussian draws, the secure generator, and rounding to a public grid.

This module is part of the mechanism, the boundary between sensitive and private values. Noise is as sensitive as the
rows: anyone who knows it can subtract it.

**Discrete Gaussian noise.** Exact sums are integers (:mod:`gaussmix.data.moments`: units of 2⁻⁴⁰). An independent
discrete Gaussian, P(z) ∝ exp(-z²/2σ²), is added to each. It is drawn by OpenDP without floating-point arithmetic
(Canonne, Kamath and Steinke, arXiv:2004.00010) from the operating system's entropy. The noisy sum is an integer and is
converted to a float afterwards, which is post-processing. No rounding takes place between the rows and the release, so
the guarantee of docs/lattice.md holds on the computer.

>>> noise = symmetric_noise(3, diagonal=100.0, off_diagonal=71.0, rng=None)
>>> noise.shape, noise.dtype, bool((noise == noise.T).all())
((3, 3), dtype('int64'), True)

**Generators.** Anyone who knows the state of a generator can remove its noise. Releases are therefore drawn with
`secure_generator`; a certificate states that any other generator voids the guarantee (`describe`).

**Public grid.** Methods with floating-point noise round their results to a public grid before they are released. An
unrounded double reveals which products could have produced it, and between one in 40 and one in 7 of these products
are impossible under the neighbouring table. Rounding is post-processing and prevents this attack. The guarantee of
these methods still assumes real arithmetic (SECURITY.md).
"""

from __future__ import annotations

import functools
import math
import os
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.accounting.discrete import LARGEST_SIGMA, LEAST_SIGMA, NATURAL_BITS
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, ArgumentTypeError, MissingPackageError
from gaussmix.releases.certificate import SECURE

__all__ = [
    "SEEDED",
    "Exact",
    "Parties",
    "add_noise",
    "describe",
    "discrete_gaussian",
    "down_to_grid",
    "exact_integers",
    "generator",
    "public_grid",
    "secure_generator",
    "symmetric_noise",
    "to_floats",
    "to_grid",
]


SEEDED = "seeded (not private)"
"""Description of a generator whose state may be known."""


def secure_generator() -> np.random.Generator:
    """Return a new ChaCha20 generator with a 256-bit key from the operating system.

    It cannot be pickled or copied, and a forked child gets a new key: no two generators ever share a stream.
    """
    return _SecureGenerator()


def generator(random_state: int | np.random.Generator | None = None) -> np.random.Generator:
    """Return the generator for a ``random_state``.

    None returns the secure generator. An integer seed or a generator supplied by the caller is for tests and
    experiments: anyone who knows its state can remove the noise.
    """
    if random_state is None:
        return secure_generator()
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ArgumentError(
        "random_state must be None (secure), an integer ≥ 0 or a numpy.random.Generator, "
        f"got {type(random_state).__name__}. Use None for anything that is released."
    )


def describe(rng: np.random.Generator) -> str:
    """Return the description in a certificate: `SECURE` for the result of `secure_generator`, otherwise `SEEDED`."""
    return SECURE if isinstance(rng, _SecureGenerator) else SEEDED


def _refuse(self: object, *_: object) -> NoReturn:
    raise ArgumentTypeError(
        "A secure generator cannot be pickled, copied or spawned. Create a new one with secure_generator()."
    )


def _os_key() -> int:
    return int.from_bytes(os.urandom(32), "little")


class _SecureChaCha(ChaCha):
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = spawn = _refuse

    @property
    def state(self) -> Any:
        """Read-only state: a caller who could set it would know the noise."""
        return ChaCha.state.__get__(self)

    @state.setter
    def state(self, _: Any) -> None:
        raise ArgumentTypeError(
            "The state of a secure generator cannot be set. Create a new generator with secure_generator()."
        )

    def rekey(self) -> None:
        ChaCha.state.__set__(self, type(self)(key=_os_key(), rounds=20).state)


class _SecureGenerator(np.random.Generator):
    __reduce__ = __reduce_ex__ = __getstate__ = _refuse
    __copy__ = __deepcopy__ = spawn = _refuse  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(_SecureChaCha(key=_os_key(), rounds=20))
        _alive.add(self)


_alive: weakref.WeakSet[_SecureGenerator] = weakref.WeakSet()


def _rekey_all() -> None:
    for alive in _alive:
        alive.bit_generator.rekey()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_all)


try:  # here and not at the first draw: by then the budget is charged
    # Not the prelude, which loads scikit-learn's decompositions and polars.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features
except ImportError:
    raise
except Exception as error:  # OpenDP's own exception type, if the library cannot be mapped into memory
    raise MissingPackageError(
        "OpenDP, which draws the noise, could not be loaded. Give the process more memory, or reinstall opendp."
    ) from error


Exact = NDArray[np.object_]
Progress = Callable[[int], object]


class Parties(Protocol):
    """Several sites that add up and draw the noise of a release together: all that differs from one curator."""

    def agree(self, question: str, *public: Transform | Floats | float) -> None:
        """Begin a question: all parties must ask it with the same public parameters."""

    def share(self, sigma: float) -> float:
        """Return the σ of the noise that this party draws, of a total σ."""

    def total(self, noisy: Exact) -> Exact:
        """Return the sum of the noisy sums of all parties. The argument is private only once it has been added up."""


_CHUNK = 2**12  # draws of one call of OpenDP, which other threads do not wait for: about 50 ms


def discrete_gaussian(
    count: int, *, sigma: float, rng: np.random.Generator | None, progress: Progress | None = None
) -> Integers:
    """Draw independent discrete Gaussians, shape (count,).

    Parameters
    ----------
    count : int
    sigma : float
        Parameter of exp(-z²/2σ²), from 0.74 to 2⁵⁷. For σ above about 1 it is also the standard deviation.
    rng : Generator or None
        With None or the result of :func:`~gaussmix.mechanism.noise.secure_generator`, draws are exact and use the
        operating system's entropy; each takes about 10 µs of one processor at every σ. With any other generator, normal
        numbers are rounded to integers. Such draws are reproducible and have the right distribution up to 0.021/σ² and
        float64's 53 bits, but they **void the guarantee**: anyone who knows the state of the generator can remove the
        noise.
    progress : callable, optional
        Called with the number of draws after some of them.
    """
    if not LEAST_SIGMA <= check.positive(sigma=sigma) < LARGEST_SIGMA:
        raise ArgumentError(f"sigma must lie in [{LEAST_SIGMA}, 2**57) units of the integer grid, got {sigma!r}.")
    if rng is not None and describe(rng) != SECURE:
        noise = np.rint(sigma * rng.standard_normal(count)).astype(np.int64)
        if progress is not None:
            progress(count)
        return noise
    sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    with ThreadPoolExecutor(max_workers=min(len(sizes), os.cpu_count() or 1) or 1) as threads:
        pieces: list[Any] = []
        for piece in threads.map(functools.partial(_opendp_draws, sigma=sigma), sizes):
            pieces.append(piece)
            if progress is not None:
                progress(len(piece))
    return np.concatenate([np.empty(0, dtype=np.int64), *pieces])


def _opendp_draws(count: int, sigma: float) -> Any:
    """Return exact draws: the integer Gaussian mechanism on zeros, the only access to OpenDP's sampler."""
    return _opendp_mechanism(count, float(sigma))(np.zeros(count, dtype=np.int64))  # a list is checked entry by entry


@functools.lru_cache(maxsize=64)
def _opendp_mechanism(count: int, sigma: float) -> Any:
    """Return a cached mechanism: building one takes longer than a few draws.

    Versions of OpenDP up to 0.14 are rejected: their distribution is wrong if σ is not an integer. At σ = 2.5 a
    chi-square test of 200,000 draws gives p < 10⁻²⁰⁰. The error decreases with σ, but no bound on it is known. From
    version 0.15 the tests pass.
    """
    found = metadata.version("opendp")
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < (0, 15):
        raise MissingPackageError(
            f"opendp must be version 0.15 or later, got {found}, whose discrete Gaussian noise has the wrong "
            'distribution: pip install "opendp>=0.15".'
        )
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
    """Draw a symmetric matrix (m, m) of discrete Gaussians, independent on and above the diagonal.

    ``diagonal`` and ``off_diagonal`` are the two σ of :func:`gaussmix.accounting.discrete.diagonal_sigma` and
    ``off_diagonal_sigma``. Other parameters as in :func:`discrete_gaussian`.
    """
    noise = np.diag(discrete_gaussian(m, sigma=diagonal, rng=rng, progress=progress))
    rows, columns = np.triu_indices(m, 1)
    noise[rows, columns] = discrete_gaussian(len(rows), sigma=off_diagonal, rng=rng, progress=progress)
    noise[columns, rows] = noise[rows, columns]
    return noise


# ---------------------------------------------------------------------------------------------------------------
# Exact integers
def exact_integers(high: Integers, low: Integers, *, refinement: int = 0, limb_bits: int = NATURAL_BITS) -> Exact:
    """Return Python integers (high · 2^limb_bits + low) · 2^refinement, in the shape of the limbs. **Sensitive**."""
    if refinement < 0:
        raise ArgumentError(
            f"refinement must be at least 0, got {refinement}. For a coarser grid, round the rows, not their sums."
        )
    return np.asarray(((high.astype(object) << limb_bits) + low.astype(object)) << refinement, dtype=object)


def add_noise(exact: Exact | Integers, noise: Integers) -> Exact:
    """Return the exact sum of integers and noise, as Python integers. The result is private."""
    if exact.shape != noise.shape:
        raise ArgumentError(f"noise must have the shape {exact.shape} of the exact values, got {noise.shape}.")
    return np.asarray(exact.astype(object) + noise.astype(object), dtype=object)


def to_floats(integers: Exact | Integers, bits: int) -> NDArray[np.float64]:
    """Convert integers in units of 2**-bits to float64, each rounded once. This is post-processing of a release."""
    unit = 1 << bits
    flat = [int(value) / unit for value in integers.ravel()]  # true division of Python integers rounds correctly
    return np.array(flat, dtype=np.float64).reshape(integers.shape)


GRID_BITS = 20


def public_grid(scale: float) -> float:
    """Return a power of two of about a millionth of a public noise scale: 2^(⌈log₂ scale⌉ - 20)."""
    return 2.0 ** (math.ceil(math.log2(scale)) - GRID_BITS)


def to_grid(values: Floats, grid: float) -> Floats:
    """Round to the nearest points of the grid."""
    return np.asarray(np.round(values / grid) * grid + 0.0)  # + 0.0: no negative zero


def down_to_grid(value: float, grid: float) -> float:
    """Round down to a point of the grid."""
    return math.floor(value / grid) * grid
