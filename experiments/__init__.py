"""Comparisons of methods on public data sets: outside the package ``gaussmix``, run as ``python -m experiments.…``."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
