"""Linear regression by diffprivlib on arrays from a file, in an environment that has it (:mod:`experiments.league`)."""

from __future__ import annotations

import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression  # type: ignore[import-not-found]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = np.load(sys.argv[1])
    found = [
        LinearRegression(
            epsilon=float(epsilon), bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=int(given["seed"])
        )
        .fit(given["X"], given["y"])
        .predict(given["Z"])
        for epsilon in given["epsilons"]
    ]
    np.save(sys.argv[2], np.array(found))
