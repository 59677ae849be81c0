"""Random draws: the secure generator, Wishart factors and Gaussian sketches.

The mechanism M(A) = S A + σ Ξ (Gaussian S, Ξ) has i.i.d. rows N(0, G + σ²I) with G = AᵀA.
With L Lᵀ = G + σ²I there are three ways to draw it, all of one law: `explicit_sketch` as written,
`sketch_rows` as Z Lᵀ, and `wishart_factor`, which draws only the triangular factor R of M (RᵀR = MᵀM, a
sufficient statistic).

>>> rng = generator(0)
>>> L = factor(np.diag([3.0, 1.0]), 1.0)
>>> wishart_factor(L, 50, rng).shape, wishart_factor(L, 1, rng).shape
((2, 2), (1, 2))

Whoever knows the state of the generator can remove the noise: what is drawn for a release uses
`secure_generator`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from randomgen import ChaCha

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError, ArgumentTypeError
from gaussmix.models.certificate import SECURE

__all__ = [
    "SEEDED",
    "describe",
    "explicit_sketch",
    "factor",
    "generator",
    "secure_generator",
    "sketch_rows",
    "wishart_factor",
]

SEEDED = "seeded (not private)"
"""Description of any generator whose state somebody may know."""

_LARGEST_CHOLESKY = 2**12
_SKETCH_ROWS = 2**10  # rows of the table per piece of an explicit sketch


# ----------------------------------------------------------------------------------------------------------
# Generators


def secure_generator() -> np.random.Generator:
    """A new ChaCha20 generator with 256 bits of key from the operating system.

    It cannot be pickled or copied, and a forked child gets a new key: no two generators ever share a stream.
    """
    return _SecureGenerator()


def generator(random_state: int | np.random.Generator | None = None) -> np.random.Generator:
    """Generator for a ``random_state``; `describe` says of it what a certificate needs.

    None is the secure one. An integer seed or a generator of the caller's is for tests and experiments:
    whoever knows its state can remove the noise.
    """
    if random_state is None:
        return secure_generator()
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ArgumentError(
        "random_state must be None (secure), an integer >= 0 or a numpy.random.Generator, "
        f"got {type(random_state).__name__}. Use None for anything that is released."
    )


def describe(rng: np.random.Generator) -> str:
    """What a certificate says of a generator: `SECURE` for one that `secure_generator` made, else `SEEDED`."""
    return SECURE if isinstance(rng, _SecureGenerator) else SEEDED


def _refuse(self: object, *_: object) -> NoReturn:
    raise ArgumentTypeError(
        "A secure generator is never pickled, copied or spawned: build a new one with secure_generator()."
    )


def _os_key() -> int:
    return int.from_bytes(os.urandom(32), "little")


class _SecureChaCha(ChaCha):
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = spawn = _refuse

    @property
    def state(self) -> Any:
        """To be looked at; whoever set it would know the noise."""
        return ChaCha.state.__get__(self)

    @state.setter
    def state(self, _: Any) -> None:
        raise ArgumentTypeError(
            "The state of a secure generator cannot be set: build a new one with secure_generator()."
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


# ----------------------------------------------------------------------------------------------------------
# Draws


def factor(gram: Floats, sigma2: float) -> Floats:
    """Lower triangular L with L Lᵀ = G + σ²I, in units where C = 1.

    Which algorithm runs depends on public numbers only, and none of them fails, retries or adds jitter. For
    σ² ≥ 1, Cholesky: its rounding error, below (m + 1)·u·trace(G + σ²I), is less than σ² up to 2⁴⁰ rows and
    2¹² columns. Otherwise the eigenvalues, those below zero taken as zero.
    """
    m = len(gram)
    shifted = gram + sigma2 * np.eye(m)
    if sigma2 >= 1 and m <= _LARGEST_CHOLESKY:
        return np.asarray(scipy.linalg.cholesky(shifted, lower=True, check_finite=False))
    values, vectors = scipy.linalg.eigh(shifted, check_finite=False)
    return _triangular(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T).T


def wishart_factor(L: Floats, k: int, rng: np.random.Generator) -> Floats:
    """R upper triangular (k ≥ m) or trapezoidal (k < m), shape (min(k, m), m), with RᵀR ~ Wishart(k, L Lᵀ).

    For k ≥ m by Bartlett's decomposition, R = (L B)ᵀ with B lower triangular, B_ii² ~ χ²(k - i), i = 0, …,
    m - 1, and standard normals below the diagonal; its cost does not depend on k. For k < m, R is the
    factor of Z Lᵀ. The diagonal of R is not negative.
    """
    m = len(L)
    if check.sketch_rows(k=k) < m:
        return _triangular(sketch_rows(L, k, rng))
    B = np.tril(rng.standard_normal((m, m)), -1)
    np.fill_diagonal(B, np.sqrt(rng.chisquare(k - np.arange(m))))
    return np.triu((L @ B).T)


def sketch_rows(L: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Rows drawn from N(0, L Lᵀ), shape (k, m), as Z Lᵀ."""
    return rng.standard_normal((check.sketch_rows(k=k), len(L))) @ L.T


def explicit_sketch(blocks: Iterable[NDArray[Any]], k: int, sigma: float, rng: np.random.Generator) -> Floats:
    """S A + σ Ξ as written, shape (k, m), over blocks of rows of A: the reference.

    One pass; k·2¹⁰ normals in memory. The columns of S do not depend on how A is cut into blocks.
    """
    check.sketch_rows(k=k)
    sketch: Floats | None = None
    for block in blocks:
        A = np.asarray(block, dtype=np.float64)
        sketch = np.zeros((k, A.shape[1])) if sketch is None else sketch
        for start in range(0, len(A), _SKETCH_ROWS):
            piece = A[start : start + _SKETCH_ROWS]
            sketch += rng.standard_normal((len(piece), k)).T @ piece
    if sketch is None:
        raise ArgumentError("There are no blocks: yield at least one array, of shape (0, columns) for an empty table.")
    return sketch + sigma * rng.standard_normal(sketch.shape)


def _triangular(M: Floats) -> Floats:
    """R of M = Q R, shape (min(k, m), m), its diagonal not negative: a function of MᵀM."""
    (R,) = scipy.linalg.qr(M, mode="r", check_finite=False)
    R = R[: min(M.shape)]
    return np.asarray(R * _signs(R)[:, np.newaxis])


def _signs(R: Floats) -> Floats:
    return np.where(np.diagonal(R) < 0, -1.0, 1.0)
