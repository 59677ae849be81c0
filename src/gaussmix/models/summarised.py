"""The names of statsmodels on every fitted model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from gaussmix.models.summary import Estimand, Summary

__all__ = ["Summarised"]


class Summarised(ABC):
    """What is known of coefficients under the names that statsmodels gives it, for the default estimand."""

    @abstractmethod
    def summary(self, *, estimand: Estimand = "table", n_rows: int | None = None) -> Summary:
        """Coefficients with standard errors, p-values and intervals."""

    @cached_property
    def _table(self) -> Summary:
        return self.summary()

    @property
    def params(self) -> dict[str, float]:
        """Estimates by name, without the ridge that makes ``coef`` predict well."""
        return self._table.params

    @property
    def bse(self) -> dict[str, float]:
        """Standard errors by name."""
        return self._table.bse

    @property
    def pvalues(self) -> dict[str, float]:
        """p-values by name."""
        return self._table.pvalues

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Intervals of level 1 - alpha by name."""
        return self._table.conf_int(alpha)

    @property
    def rsquared(self) -> float:
        """R², within [0, 1]."""
        return self._table.rsquared

    @property
    def nobs(self) -> float:
        """Rows in the table, as the release shows them: noisy. Where rows have weights, the sum of these."""
        return self._table.nobs
