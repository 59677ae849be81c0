"""Figures of public quantities. Needs the extra ``gaussmix[plots]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gaussmix import accounting
from gaussmix.accounting import Analysis
from gaussmix.errors import ArgumentError, MissingPackageError
from gaussmix.reporting.planning import expect

__all__ = ["compare_analyses", "lost_r2"]

_FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, which stay apart for colour-blind readers, with a line style each for print.
_STYLES: dict[Analysis, tuple[str, str, str]] = {
    "sheffet": ("Sheffet 2019, Theorem 2", "#E69F00", ":"),
    "tcdp": ("tCDP, Corollary 1", "#56B4E9", "-."),
    "renyi": ("Rényi, Lemma 1", "#0072B2", "--"),
    "exact": ("exact", "#D55E00", "-"),
}


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


def lost_r2(path: str | Path, *, rows: int, features: int, delta: float, r2: float, chosen: float) -> None:
    """Draw the R² that noise is expected to cost against ε (:func:`gaussmix.reporting.planning.expect`)."""
    figure = _figure(path, 6, 4)
    epsilons = np.geomspace(min(0.03, chosen / 2), max(10.0, chosen * 2), 40)
    lost = [expect(rows=rows, features=features, epsilon=float(e), delta=delta, r2=r2).lost_r2 for e in epsilons]
    here = expect(rows=rows, features=features, epsilon=chosen, delta=delta, r2=r2).lost_r2
    axes = figure.subplots()
    axes.loglog(epsilons, lost, color="#0072B2")
    axes.loglog([chosen], [here], "o", color="#D55E00", label=f"ε = {chosen:g}")
    axes.axhline(0.1 * r2, color="grey", linestyle=":", label="a tenth of R²")
    axes.set(xlabel="ε", ylabel="R² lost to noise", title=f"{rows:,} rows, {features} features, δ = {delta:g}")
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
