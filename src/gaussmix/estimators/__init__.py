"""Private linear and logistic regression behind scikit-learn's interface."""

from gaussmix.estimators.linear import LinearMixing
from gaussmix.estimators.logistic import LogisticMixing

__all__ = ["LinearMixing", "LogisticMixing"]
