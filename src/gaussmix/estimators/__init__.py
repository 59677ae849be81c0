"""Private linear and logistic regression behind scikit-learn's interface."""

from gaussmix.estimators.linear import LinearRegression
from gaussmix.estimators.logistic import LogisticRegression

__all__ = ["LinearRegression", "LogisticRegression"]
