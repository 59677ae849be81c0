"""Several fitted models in one table, and plots of coefficients.

>>> cell(0.1234, 0.0456), cell(float("nan"), float("nan"))
('0.123 (0.046)', '')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gaussmix import _validation as check
from gaussmix.data.schema import INTERCEPT
from gaussmix.errors import ArgumentError, ArgumentTypeError
from gaussmix.models.rendering import in_latex, new_axes, notes, to_error
from gaussmix.models.results import FittedModel, ResultTable, Summary

__all__ = ["Comparison", "cell", "compare", "plot_coefficients"]


class Comparison(ResultTable):
    """Coefficients of several models with standard errors in parentheses, one column per model.

    Exports are those of :class:`~gaussmix.models.results.ResultTable`; LaTeX has the notes below the table.
    """

    def as_latex(self) -> str:
        """Return a LaTeX tabular with notes."""
        return in_latex(list(self.columns), self.cells(), self.notes, footnotes=True)


def compare(
    models: Sequence[FittedModel], *, names: Sequence[str] | None = None, exponentiate: bool = False
) -> Comparison:
    """Return several models in one table: coefficients, standard errors, number of rows and goodness of fit.

    Parameters
    ----------
    models : list of fitted models
        Of one or several releases, with one coefficient per feature.
    names : list of str, optional
        Headings of the models; default: ``(1)``, ``(2)``, … with the response.
    exponentiate : bool
        Whether odds or rate ratios with intervals are shown in place of coefficients with standard errors. Models
        without ratios keep their coefficients.
    """
    if not models or not all(isinstance(model, FittedModel) for model in models):
        raise ArgumentTypeError("models must be a nonempty list of fitted models with one coefficient per feature.")
    summaries = [model.summary() for model in models]
    heads = [f"({k}) {own.response_name}" for k, own in enumerate(summaries, 1)] if names is None else list(names)
    if len(heads) != len(models) or len(set(heads)) != len(heads):
        raise ArgumentError(f"names must have {len(models)} different entries, got {heads!r}.")
    terms = list(dict.fromkeys(term for own in summaries for term in own.params))
    if INTERCEPT in terms:  # last, as in most journals
        terms = [*(term for term in terms if term != INTERCEPT), INTERCEPT]
    columns: dict[str, tuple[Any, ...]] = {"term": (*terms, "family", "rows", "R²")}
    for head, model, own in zip(heads, models, summaries, strict=True):
        ratios = exponentiate and bool(own.family.ratio)
        body = [_ratio(own, term) if ratios else _coefficient(own, term) for term in terms]
        columns[head] = (*body, own.family.name, f"{own.nobs:,.0f}", _goodness(model, own))
    return Comparison("Comparison of models", columns, _notes(heads, summaries, exponentiate=exponentiate))


def cell(estimate: float, error: float) -> str:
    """Return an estimate with its standard error in parentheses; empty where it is not identified."""
    return "" if math.isnan(estimate) else f"{to_error(estimate, error)} ({to_error(error, error)})"


def _coefficient(summary: Summary, term: str) -> str:
    return cell(summary.params.get(term, math.nan), summary.bse.get(term, math.nan))


def _ratio(summary: Summary, term: str) -> str:
    estimate = summary.params.get(term, math.nan)
    if math.isnan(estimate):
        return ""
    with np.errstate(over="ignore"):
        low, high = np.exp(summary.conf_int()[term]).tolist()
    return f"{math.exp(estimate):.4g} [{low:.4g}, {high:.4g}]"


def _goodness(model: FittedModel, summary: Summary) -> str:
    found = getattr(model, "prsquared", math.nan) if summary.family.mean is not None else summary.rsquared
    return "" if math.isnan(found) else f"{found:.3f}"


def _notes(heads: Sequence[str], summaries: Sequence[Summary], *, exponentiate: bool) -> tuple[str, ...]:
    """Return the notes of all models, each with the models it is about unless it is about all."""
    found: dict[str, list[str]] = {}
    for head, own in zip(heads, summaries, strict=True):
        for note in notes(own):
            found.setdefault(note, []).append(head)
    shown = [f"{note}" if len(about) == len(heads) else f"{', '.join(about)}: {note}" for note, about in found.items()]
    void = [own.void for own in summaries if own.void]
    ratios = "Ratios exp(β) with 95 % intervals in brackets, where the family has them; otherwise coefficients"
    first = f"{ratios if exponentiate else 'Coefficients'} with standard errors in parentheses."
    last = "R² is 1 - deviance/null deviance for generalised linear models. An empty cell: not in the model, or not " \
        "identified at this budget."  # fmt: skip
    return (*dict.fromkeys(void), first, *(note for note in shown if note not in void), last)


def plot_coefficients(summary: Summary, ax: Any, *, alpha: float, exponentiate: bool) -> Any:
    """Draw the coefficients but the intercept with intervals of level 1 - alpha, and return the axes.

    Ratios are on a log axis. Coefficients that are not identified have no mark; an infinite end reaches the margin.
    """
    if exponentiate and not summary.family.ratio:
        raise ArgumentError(f"Ratios exp(β) are not defined for the family {summary.family.name!r}. Omit exponentiate.")
    ax = new_axes() if ax is None else ax
    ends = summary.conf_int(check.in_interval(0, 1, alpha=alpha))
    terms = [term for term in summary.params if term != INTERCEPT]
    estimates = np.array([summary.params[term] for term in terms])
    bounds = np.array([ends[term] for term in terms]).reshape(-1, 2)
    finite = np.concatenate([bounds[np.isfinite(bounds)], estimates[np.isfinite(estimates)], [0.0]])
    margin = 0.05 * (np.ptp(finite) or 1.0)
    bounds = np.clip(bounds, finite.min() - margin, finite.max() + margin)
    if exponentiate:
        estimates, bounds = np.exp(estimates), np.exp(bounds)
        ax.set_xscale("log")
    places = np.arange(len(terms))[::-1]
    ax.hlines(places, bounds[:, 0], bounds[:, 1], color="#0072B2")
    ax.plot(estimates, places, "o", color="#0072B2")
    ax.axvline(1.0 if exponentiate else 0.0, color="#666666", linewidth=0.8)
    ax.set_yticks(places, terms)
    words = summary.family.ratio if exponentiate else f"coefficient ({summary.family.link})"
    ax.set(xlabel=f"{words}, {100 * (1 - alpha):g} % intervals", title=summary.response_name)
    return ax
