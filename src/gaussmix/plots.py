"""Figures of public quantities. Needs the extra ``gaussmix[plots]``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gaussmix import accounting
from gaussmix.accounting import Analysis

__all__ = ["compare_analyses"]

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
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'gaussmix[plots]'.") from error
    gammas = np.geomspace((4 / 3) ** 2, 1e4, 60)
    curves = {
        name: accounting.epsilon(delta, sketch_size=sketch_size, gamma=gammas, scale="larger", analysis=name)
        for name in _STYLES
    }
    figure = Figure(figsize=(10, 4.2), layout="constrained")
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
