"""Figures of public quantities. Needs the extra ``gaussmix[plots]``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix.accounting import Analysis
from gaussmix.accounting.arguments import Relation
from gaussmix.errors import ArgumentError, BudgetWarning, MissingPackageError
from gaussmix.reporting.planning import MOST_EPSILON, USEFUL, Passes, SchemaLike, expect

__all__ = ["compare_analyses", "lost_r2"]

_FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, which stay apart for colour-blind readers, with a line style each for print.
_STYLES: dict[Analysis, tuple[str, str, str]] = {
    "sheffet": ("Sheffet 2019, Theorem 2", "#E69F00", ":"),
    "tcdp": ("tCDP, Corollary 1", "#56B4E9", "-."),
    "renyi": ("Rényi, Lemma 1", "#0072B2", "--"),
    "exact": ("exact", "#D55E00", "-"),
}

_TABLES = (("#56B4E9", "--"), ("#0072B2", "-"), ("#D55E00", "-."))
"""Colour and line of the imagined tables, from kind to hard."""

_LEAST_SHOWN = 1e-5  # of R²: less is nothing


def compare_analyses(path: str | Path, *, sketch_size: int, delta: float) -> None:
    """Draw Figure 1 of arXiv:2505.24603v2 with the exact curve added, to a PNG, SVG or PDF file.

    Left: the ε that each analysis proves for γ = (λ + σ²)/C², at leverage 1/γ. Right: each of them over the exact one.
    """
    figure = _figure(path, 10, 4.2)
    gammas = np.geomspace((4 / 3) ** 2, 1e4, 60)
    curves = {
        name: accounting.epsilon(delta, sketch_size=sketch_size, gamma=gammas, bound_holds_for="larger", analysis=name)
        for name in _STYLES
    }
    left, right = figure.subplots(1, 2)
    for name, (label, colour, line) in _STYLES.items():
        left.loglog(gammas, curves[name], line, color=colour, label=label)
        right.semilogx(gammas, curves[name] / curves["exact"], line, color=colour, label=label)
    left.set(ylabel="ε", title=f"ε proved at δ = {delta:g}, k = {sketch_size}")
    right.set(ylabel="ε / exact ε", title="Ratio to the exact ε", ylim=(0.9, None))
    for axes in (left, right):
        axes.set_xlabel("γ = (λ + σ²) / C²")
        axes.grid(visible=True, alpha=0.3)
    left.legend()
    figure.savefig(Path(path), dpi=150)


def lost_r2(
    path: str | Path,
    schema: SchemaLike,
    *,
    rows: int,
    delta: float,
    chosen: float,
    target: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    relation: Relation = "zero-out",
) -> None:
    """Draw the R² that privacy is expected to cost against ε, for each imagined table, from a tenth to ten times one ε.

    Parameters are those of :func:`gaussmix.reporting.planning.expect`; ``chosen`` is the ε that is marked.
    """
    figure = _figure(path, 6, 4)
    middle = check.positive(finite=True, epsilon=chosen)
    epsilons = [min(float(e), MOST_EPSILON) for e in middle * np.geomspace(0.1, 10, 7)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # of budgets that nobody asked for
        plans = [
            expect(schema, rows=rows, epsilon=e, delta=delta, target=target, r2=r2, passes=passes, relation=relation)
            for e in epsilons
        ]
    axes = figure.subplots()
    for table, (colour, line) in zip(plans[0].tables, _TABLES, strict=True):
        lost = [max(plan[table.name].lost_r2, _LEAST_SHOWN) for plan in plans]
        axes.loglog(epsilons, lost, line, color=colour, label=f"{table.name} table")
    axes.axhline(USEFUL * r2, color="grey", linestyle=":", label="a tenth of R²")
    axes.axvline(middle, color="grey", linestyle="-", linewidth=0.8, label=f"ε = {middle:g}")
    axes.set(xlabel="ε", ylabel="R² lost to privacy", title=f"{rows:,} rows, {plans[0].target}, δ = {delta:g}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(Path(path), dpi=150)


def _figure(path: str | Path, width: float, height: float) -> Any:
    if Path(path).suffix.lower() not in _FORMATS:
        raise ArgumentError(f"{path} must end in one of {', '.join(_FORMATS)}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("Plots need matplotlib: pip install 'gaussmix[plots]'.") from error
    return Figure(figsize=(width, height), layout="constrained")
