"""Published methods for comparison, with the same interface and, if private, the same certificate.

:class:`AdaSSP` and :class:`SheffetMixing` (linear), :class:`ObjectivePerturbation` (logistic), :class:`Ridge` (not
private), and :class:`Constant`, which predicts one declared number and so is the least that a method should improve on.
"""

from gaussmix.baselines.adassp import AdaSSP
from gaussmix.baselines.objective_perturbation import ObjectivePerturbation
from gaussmix.baselines.reference import Constant, Ridge
from gaussmix.baselines.sheffet import SheffetMixing

__all__ = ["AdaSSP", "Constant", "ObjectivePerturbation", "Ridge", "SheffetMixing"]
