"""Fitted models as tables, with the names of broom: one row a coefficient (`tidy`), one row a model (`glance`)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from gaussmix import _validation as check
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import Label
from gaussmix.models.rendering import notes, void_mark
from gaussmix.models.result_table import Frame, ResultTable
from gaussmix.models.summarised import Summarised, SummarisedByClass
from gaussmix.models.summary import Summary

__all__ = ["Tidied", "TidiedByClass", "glance_table", "tidy_by_class", "tidy_table"]


class Tidied(Summarised):
    """A model whose coefficients and qualities are tables. Options are those of the model's ``summary``."""

    target: str
    coef: dict[str, float]
    certificate: Certificate | None

    @property
    @abstractmethod
    def _unit(self) -> float:
        """What 1 in the encoded units of the response is in the user's."""

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Any) -> Any:
        """One row a coefficient: term, estimate, std.error, statistic, p.value, conf.low, conf.high, privacy.share.

        Parameters
        ----------
        frame : {"pandas", "polars", "arrow"}, optional
            Default: the first of them that is installed.
        alpha : float
            Intervals have level 1 - alpha. They come from the score test, and so does p.value: where directions are
            weak they need not agree with estimate and std.error.
        **summary
            As in ``summary``: ``estimand="population"``, ``n_rows``, ``merge``, ``reference``.
        """
        return tidy_table(self.summary(**summary), alpha).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Any) -> Any:
        """One row: nobs, r.squared, sigma, df, epsilon, delta, mu; what is not known is missing."""
        return glance_table(self.summary(**summary), self.certificate, unit=self._unit).to_frame(frame)

    def to_frame(self, frame: Frame | None = None) -> Any:
        """The same as :meth:`tidy`."""
        return self.tidy(frame)

    def as_csv(self, alpha: float = 0.05) -> str:
        """:meth:`tidy` as CSV, in all digits."""
        return tidy_table(self._table, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """The summary as a LaTeX tabular."""
        return self._table.as_latex(alpha)

    def _repr_html_(self) -> str:
        return self._table.as_html()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_void(self.certificate)}{self.target!r} on {len(self.coef)} encoded columns)"


class TidiedByClass(SummarisedByClass):
    """The same of a model with coefficients for every class but one."""

    target: str
    coef: dict[Label, dict[str, float]]
    certificate: Certificate | None

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Any) -> Any:
        """One row a class and coefficient: y.level, then the columns of ``tidy`` of other models."""
        return tidy_by_class(self.target, self.summary(**summary), alpha).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Any) -> Any:
        """One row, as of other models; df counts the coefficients of all classes but intercepts."""
        own = list(self.summary(**summary).values())
        found = glance_table(own[0], self.certificate, unit=math.nan)
        columns = {**found.columns, "df": (len(own) * found.columns["df"][0],)}
        return ResultTable(self.target, columns).to_frame(frame)

    def to_frame(self, frame: Frame | None = None) -> Any:
        """The same as :meth:`tidy`."""
        return self.tidy(frame)

    def as_csv(self, alpha: float = 0.05) -> str:
        """:meth:`tidy` as CSV, in all digits."""
        return tidy_by_class(self.target, self._tables, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """The summaries as LaTeX tabulars, one below the other."""
        return "\n\n".join(own.as_latex(alpha) for own in self._tables.values())

    def _repr_html_(self) -> str:
        return "".join(own.as_html() for own in self._tables.values())

    def __repr__(self) -> str:
        features, void = len(next(iter(self.coef.values()))), _void(self.certificate)
        classes = f"{len(self.coef) + 1} classes"
        return f"{type(self).__name__}({void}{self.target!r} on {features} encoded columns, {classes})"


def _void(certificate: Certificate | None) -> str:
    """Why nothing is guaranteed, before what a representation says; empty if something is."""
    return "" if certificate is None else void_mark(certificate.void_words)


def tidy_table(summary: Summary, alpha: float = 0.05) -> ResultTable:
    """Coefficients with what is known of them; where an interval does not end, nothing is: NaN."""
    ends = summary.conf_int(check.in_interval(0, 1, alpha=alpha))
    known = {name: math.isfinite(low) and math.isfinite(high) for name, (low, high) in ends.items()}
    statistic = summary.tvalues

    def column(values: dict[str, float]) -> tuple[float, ...]:
        return tuple(float(values[name]) if known[name] else math.nan for name in ends)

    columns = {
        "term": tuple(ends),
        "estimate": column(summary.params),
        "std.error": column(summary.bse),
        "statistic": column(statistic),
        "p.value": tuple(float(summary.pvalues[name]) for name in ends),
        "conf.low": tuple(float(low) for low, _ in ends.values()),
        "conf.high": tuple(float(high) for _, high in ends.values()),
        "privacy.share": column(summary.noise_share),
    }
    words = notes(summary, unidentified=not all(known.values()))
    return ResultTable(f"{summary.response_name}: {summary.estimand}", columns, tuple(words))


def tidy_by_class(target: str, summaries: Mapping[Label, Summary], alpha: float = 0.05) -> ResultTable:
    """Coefficients of all classes, one class below the other."""
    tables = {name: tidy_table(own, alpha) for name, own in summaries.items()}
    levels = tuple(name for name, own in tables.items() for _ in range(len(own)))
    names = next(iter(tables.values())).columns
    columns = {key: tuple(value for own in tables.values() for value in own.columns[key]) for key in names}
    words = dict.fromkeys(note for own in tables.values() for note in own.notes)
    return ResultTable(target, {"y.level": levels, **columns}, tuple(words))


def glance_table(summary: Summary, certificate: Certificate | None, *, unit: float) -> ResultTable:
    """The model as a whole. sigma is the residual standard deviation, of n - d degrees of freedom, n noisy."""
    d, nobs = len(summary.params), summary.nobs
    problem, other = summary._problem, summary.discriminant or summary.rates
    sigma = math.nan
    if not (other or summary.noise_dominates) and nobs > d:
        sigma = unit * math.sqrt(problem.total * (1 - summary.rsquared) / (nobs - d))
    account = None if certificate is None else certificate.account
    columns: dict[str, tuple[Any, ...]] = {
        "nobs": (nobs,),
        "r.squared": (math.nan if summary.noise_dominates or other else summary.rsquared,),
        "sigma": (sigma,),
        "df": (d - ("(intercept)" in summary.params),),
        "epsilon": (math.nan if certificate is None else certificate.epsilon,),
        "delta": (math.nan if certificate is None else certificate.delta,),
        "mu": (float(getattr(account, "mu", math.nan)),),
    }
    return ResultTable(summary.response_name, columns)
