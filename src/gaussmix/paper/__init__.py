"""The methods of arXiv:2505.24603v2, "The Gaussian Mixing Mechanism", in the notation and units of the paper.

>>> import numpy as np
>>> A = np.random.default_rng(1).uniform(-0.5, 0.5, (5_000, 3))
>>> sketch = gauss_mix(A, 200, 7.0, row_norm=1.0, columns=("a", "b", "y"))
>>> round(sketch.epsilon(1e-6), 2), sketch.lstsq("y", ["a", "b"]).shape
(0.97, (2,))

The package contains GaussMix and Algorithm 1 (`gauss_mix`, `modified_gauss_mix`), Algorithm 2 and its logistic version
(`LinearMixing`, `LogisticMixing`), Theorem 3 with exact constants (`excess_risk_bound`), and distributed sketching
(`stack`, `average`). Accounts are in :mod:`gaussmix.accounting`. docs/paper.md lists corrections to the paper.
"""

from gaussmix.paper.certificate import Certificate
from gaussmix.paper.estimators import LinearMixing, LogisticMixing
from gaussmix.paper.mixing import gauss_mix, modified_gauss_mix
from gaussmix.paper.sketch import Sketch, average, stack
from gaussmix.paper.utility import (
    RiskBound,
    Surrogate,
    excess_risk_bound,
    excess_risk_distribution,
    logistic_surrogate,
)

__all__ = [
    "Certificate",
    "LinearMixing",
    "LogisticMixing",
    "RiskBound",
    "Sketch",
    "Surrogate",
    "average",
    "excess_risk_bound",
    "excess_risk_distribution",
    "gauss_mix",
    "logistic_surrogate",
    "modified_gauss_mix",
    "stack",
]
