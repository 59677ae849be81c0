"""Privacy accounting. All functions are pure functions of public parameters; this package never sees data.

>>> round(epsilon(1e-6, sketch_size=250, gamma=52.9), 2)
1.0
"""

from gaussmix.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from gaussmix.accounting.mixing import delta, epsilon, rdp, theorem1_epsilon
from gaussmix.accounting.parameters import ANALYSES, BOUND_HOLDS_FOR, NEIGHBOURS, Analysis, BoundHoldsFor, Neighbours
from gaussmix.accounting.pld import privacy_loss_distribution
from gaussmix.accounting.private_scale import private_scale_delta

__all__ = [
    "ANALYSES",
    "BOUND_HOLDS_FOR",
    "NEIGHBOURS",
    "Analysis",
    "BoundHoldsFor",
    "Neighbours",
    "delta",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "privacy_loss_distribution",
    "private_scale_delta",
    "rdp",
    "theorem1_epsilon",
]
