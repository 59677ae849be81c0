"""Milliseconds of a fit by diffprivlib, in an environment that has it (:mod:`benchmarks.peers`)."""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LinearRegression  # type: ignore[import-not-found]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given, taken = np.load(sys.argv[1]), []
    X, y = given["X"], given["y"]
    for _ in range(int(sys.argv[2]) + 1):
        start = time.process_time()
        LinearRegression(epsilon=1.0, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0)).fit(X, y)
        taken.append(1e3 * (time.process_time() - start))
    print(min(taken[1:]))
