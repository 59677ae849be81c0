"""Published methods for comparison, with the same interface and, if private, the same certificate.

:class:`AdaSSP`, :class:`SheffetMixing` and, with intervals, :class:`BinAgg` (linear), :class:`ObjectivePerturbation`
(logistic), :class:`Ridge` (not private), and :class:`Constant`, which predicts one declared number and so is the least
that a method should improve on.
"""

from gaussmix.baselines.adassp import AdaSSP
from gaussmix.baselines.binagg import BinAgg
from gaussmix.baselines.objective_perturbation import ObjectivePerturbation
from gaussmix.baselines.reference import Constant, Ridge
from gaussmix.baselines.sheffet import SheffetMixing

__all__ = ["AdaSSP", "BinAgg", "Constant", "ObjectivePerturbation", "Ridge", "SheffetMixing"]
