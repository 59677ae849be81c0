"""Array types used throughout the package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "Rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[Any]
