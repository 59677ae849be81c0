"""The secure generator of noise, and what a certificate says of any other.

Whoever knows the state of the generator can remove the noise: what is drawn for a release uses `secure_generator`.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, NoReturn

import numpy as np
from randomgen import ChaCha

from gaussmix.errors import ArgumentError, ArgumentTypeError
from gaussmix.releases.certificate import SECURE

__all__ = ["SEEDED", "describe", "generator", "secure_generator"]

SEEDED = "seeded (not private)"
"""Description of any generator whose state somebody may know."""


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
