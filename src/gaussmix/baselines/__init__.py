"""Published methods to compare with, behind the same interface; private ones carry the same certificate.

:class:`AdaSSP`, :class:`SheffetMixing` (linear), :class:`ObjectivePerturbation` (logistic), and, not private,
:class:`Ridge`. :class:`Constant` predicts one number: a table of results without it says little.
"""

from gaussmix.baselines.adassp import AdaSSP
from gaussmix.baselines.objective_perturbation import ObjectivePerturbation
from gaussmix.baselines.reference import Constant, Ridge
from gaussmix.baselines.sheffet import SheffetMixing

__all__ = ["AdaSSP", "Constant", "ObjectivePerturbation", "Ridge", "SheffetMixing"]
