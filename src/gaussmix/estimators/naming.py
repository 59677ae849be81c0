"""Problems of an estimator's release under the names of its features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gaussmix.estimators.declared import FEATURES
from gaussmix.models.problem import Problem

__all__ = ["named"]


def named(estimator: Any, problem: Problem) -> Problem:
    """A problem with ``feature_names_in_``, or x0, x1, …, in place of the entries of the vector."""
    entries = {f"{FEATURES}[{i}]": f"x{i}" for i in range(estimator.n_features_in_)}
    if hasattr(estimator, "feature_names_in_"):
        entries = dict(zip(entries, (str(name) for name in estimator.feature_names_in_), strict=True))
    return replace(problem, names=tuple(entries.get(name, name) for name in problem.names))
