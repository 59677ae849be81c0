"""The names of statsmodels on every fitted model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

from gaussmix.models.coding import Label
from gaussmix.models.summary import Estimand, Summary

__all__ = ["Named", "Summarised", "SummarisedByClass"]


class Named(ABC):
    """What is known of coefficients under the names that statsmodels gives it, for the default estimand."""

    @property
    @abstractmethod
    def _table(self) -> Summary:
        """The summary behind them."""

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


class Summarised(Named):
    """A model that does not change: its summary is computed once."""

    @abstractmethod
    def summary(self, *, estimand: Estimand = "table", n_rows: int | None = None) -> Summary:
        """Coefficients with standard errors, p-values and intervals."""

    @cached_property
    def _table(self) -> Summary:
        return self.summary()


class SummarisedByClass(ABC):
    """The same names where every class but one has coefficients: dictionaries by class, of what one class has."""

    @abstractmethod
    def summary(self, *, estimand: Estimand = "table", n_rows: int | None = None) -> Mapping[Label, Summary]:
        """Coefficients with standard errors, p-values and intervals, by class."""

    @cached_property
    def _tables(self) -> Mapping[Label, Summary]:
        return self.summary()

    @property
    def params(self) -> dict[Label, dict[str, float]]:
        """Estimates by class and name, without the ridge that makes ``coef`` predict well."""
        return {name: own.params for name, own in self._tables.items()}

    @property
    def bse(self) -> dict[Label, dict[str, float]]:
        """Standard errors by class and name."""
        return {name: own.bse for name, own in self._tables.items()}

    @property
    def pvalues(self) -> dict[Label, dict[str, float]]:
        """p-values by class and name."""
        return {name: own.pvalues for name, own in self._tables.items()}

    def conf_int(self, alpha: float = 0.05) -> dict[Label, dict[str, tuple[float, float]]]:
        """Intervals of level 1 - alpha by class and name."""
        return {name: own.conf_int(alpha) for name, own in self._tables.items()}

    @property
    def rsquared(self) -> dict[Label, float]:
        """R² by class, of the least squares behind its coefficients, within [0, 1]."""
        return {name: own.rsquared for name, own in self._tables.items()}

    @property
    def nobs(self) -> float:
        """Rows in the table, of all classes, as the release shows them: noisy."""
        return next(iter(self._tables.values())).nobs
