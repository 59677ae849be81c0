"""What networks (``dp_sgd.py``) and heads (``logistic.py``) share: budgets, and the files of features between them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import Floats

EPSILONS = np.logspace(-1, 1.5, 5)
NETWORK_SHARE = 0.1
D = 128


def total_delta(n: int) -> float:
    """The paper's δ = min(10⁻⁶, 0.01/n) for network and head together."""
    return min(1e-6, 0.01 / n)


def feature_file(name: str, epsilon: float, cache: Path) -> Path:
    """Where the features of one network are kept."""
    return cache / f"{name}_{epsilon:.4g}.npz"


class Features(NamedTuple):
    """Features and labels, the δ of network and head together, and what the network's noise was."""

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    delta: float
    noise: float
    rate: float
    steps: int
    network_error: float


def load(name: str, epsilon: float, cache: Path) -> Features:
    """The features of one network."""
    path = _existing(feature_file(name, epsilon, cache))
    with np.load(path) as kept:
        if not math.isclose(float(kept["epsilon"]), epsilon, rel_tol=1e-9):
            raise ValueError(f"{path} is of a network for ε = {float(kept['epsilon'])!r}, not {epsilon!r}.")
        return Features(
            X=kept["train"].astype(float),
            y=kept["train_labels"].astype(float),
            X_test=kept["test"].astype(float),
            y_test=kept["test_labels"].astype(float),
            delta=float(kept["delta"]),
            noise=float(kept["noise"]),
            rate=float(kept["rate"]),
            steps=int(kept["steps"]),
            network_error=float(kept["error"]),
        )


def digest(pairs: Iterable[tuple[str, float]], cache: Path) -> str:
    """Tells other networks apart, whose heads must not be mixed with these."""
    found = hashlib.sha256()
    for name, epsilon in pairs:
        found.update(_existing(feature_file(name, epsilon, cache)).read_bytes())
    return found.hexdigest()[:12]


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run experiments.dp_sgd (make networks) first.")
    return path
