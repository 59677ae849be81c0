"""Explicit Gaussian sketches: what drawing through the Gram matrix saves."""

from __future__ import annotations

import numpy as np

from experiments import Floats
from gaussmix.paper.mixing import draw_rows

__all__ = ["LARGE_SKETCH", "explicit_sketch"]

LARGE_SKETCH = 10**6
"""Rows of the sketch that the recorded figures of the exact variant were drawn with."""

_BLOCK = 2**10


def explicit_sketch(A: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw S A + Ξ as written, shape (k, columns)."""
    return draw_rows((A[i : i + _BLOCK] for i in range(0, len(A), _BLOCK)), A.shape[1], k, 1.0, rng)
