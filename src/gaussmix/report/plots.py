"""Figures of public quantities. Requires the extra ``gaussmix[plots]``."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix._files import reserve
from gaussmix.accounting import Analysis
from gaussmix.errors import ArgumentError, BudgetWarning, MissingPackageError
from gaussmix.report.plan import LARGEST_EPSILON, USEFUL, Planner

__all__ = ["compare_analyses", "drawn", "lost_r2"]

_FORMATS = (".png", ".svg", ".pdf")

# The colour-blind safe palette of Okabe and Ito, with distinct line styles for print.
_STYLES: dict[Analysis, tuple[str, str, str]] = {
    "sheffet": ("Sheffet 2019, Theorem 2", "#E69F00", ":"),
    "tcdp": ("tCDP, Corollary 1", "#56B4E9", "-."),
    "renyi": ("Rényi, Lemma 1", "#0072B2", "--"),
    "exact": ("exact", "#D55E00", "-"),
}

_SCENARIOS = (("#56B4E9", "--"), ("#0072B2", "-"), ("#D55E00", "-."))
"""Colour and line style of the scenarios, from the best case to the adverse one."""

_LEAST_SHOWN = 1e-5  # smaller losses of R² are drawn at this value


def compare_analyses(path: str | Path, *, sketch_size: int, delta: float, force: bool = False) -> None:
    """Draw Figure 1 of arXiv:2505.24603v2 with the exact curve added, to a PNG, SVG or PDF file.

    Left: the ε that each analysis proves for γ = (λ + σ²)/C², at leverage 1/γ. Right: the ratio of each ε to the exact
    one. An existing file is replaced only with ``force``.
    """
    gammas = np.geomspace((4 / 3) ** 2, 1e4, 60)
    curves = {
        name: accounting.epsilon(delta, sketch_size=sketch_size, gamma=gammas, bound_holds_for="larger", analysis=name)
        for name in _STYLES
    }
    with drawn(path, 10, 4.2, force=force) as figure:
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


def lost_r2(path: str | Path, planner: Planner, *, n_rows: int, chosen: float, force: bool = False) -> None:
    """Draw the expected loss of R² against ε from 0.1 to 10 times ``chosen``, which is marked, for each scenario.

    An existing file is replaced only with ``force``.
    """
    middle = check.positive(finite=True, epsilon=chosen)
    epsilons = [min(float(e), LARGEST_EPSILON) for e in middle * np.geomspace(0.1, 10, 7)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # of budgets that the user did not request
        plans = [planner.expect(n_rows=n_rows, epsilon=e) for e in epsilons]
    with drawn(path, 6, 4, force=force) as figure:
        axes, first = figure.subplots(), plans[0]
        for name, (colour, line) in zip((own.name for own in first.scenarios), _SCENARIOS, strict=True):
            lost = [max(plan[name].lost_r2, _LEAST_SHOWN) for plan in plans]
            axes.loglog(epsilons, lost, line, color=colour, label=name)
        axes.axhline(USEFUL * first.r2, color="grey", linestyle=":", label="a tenth of R²")
        axes.axvline(middle, color="grey", linestyle="-", linewidth=0.8, label=f"ε = {middle:g}")
        title = f"{first.n_rows:,} rows, response {first.response}, δ = {first.delta:g}"
        axes.set(xlabel="ε", ylabel="loss of R² to privacy", title=title)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()


@contextmanager
def drawn(path: str | Path, width: float, height: float, *, force: bool) -> Iterator[Any]:
    """Yield a figure that is saved when the block ends; check that the path can be written first."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ArgumentError(f"{path} must end in one of {', '.join(_FORMATS)}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError('Plots require matplotlib: pip install "gaussmix[plots]".') from error
    with reserve(path, 0, force=force) as output:
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format=suffix[1:], dpi=150)
        output.commit(content.getvalue())
