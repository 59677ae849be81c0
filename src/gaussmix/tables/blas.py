"""BLAS with one thread, for as long as anyone in the process needs it.

The limit is the process's: who ends first may not lift it for others, and who ends last must restore what was there
before the first, and not what another had set.

>>> before = blas_threads()
>>> with one_blas_thread():
...     blas_threads() == before
True
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["blas_threads", "one_blas_thread"]

_lock = threading.Lock()
_users = 0
_limit: Any = None  # of threadpoolctl, while there are users
_threads_before = 1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks up the loaded libraries: a few milliseconds, once


def _current_threads() -> int:
    counts = [library["num_threads"] for library in _controller().info() if library["user_api"] == "blas"]
    return max(counts, default=1)


def blas_threads() -> int:
    """Threads that BLAS would use, under the limits that the user has set and not under ours."""
    with _lock:
        return _threads_before if _users else _current_threads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the last one to leave restores what the first one found."""
    global _users, _limit, _threads_before
    with _lock:
        if not _users:
            _threads_before = _current_threads()
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()
