"""Defer interruptions between charging a budget and writing the release."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["interruptions_wait"]

_WAITING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptions_wait() -> Iterator[None]:
    """Defer SIGINT (Ctrl-C) and SIGTERM until the block ends. Has no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: handler for number in _WAITING if (handler := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signalled in dict.fromkeys(received):
            os.kill(os.getpid(), signalled)
