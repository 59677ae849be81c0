"""Figures of public quantities. Needs the extra ``gaussmix[plots]``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix import accounting
from gaussmix._files import reserve
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


def compare_analyses(path: str | Path, *, sketch_size: int, delta: float, force: bool = False) -> None:
    """Draw Figure 1 of arXiv:2505.24603v2 with the exact curve added, to a PNG, SVG or PDF file.

    Left: the ε that each analysis proves for γ = (λ + σ²)/C², at leverage 1/γ. Right: each of them over the exact one.
    A file that is there already is replaced with ``force`` only.
    """
    with _drawn(path, 10, 4.2, force=force) as figure:
        _draw_analyses(figure, sketch_size, delta)


def _draw_analyses(figure: Any, sketch_size: int, delta: float) -> None:
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


def lost_r2(
    path: str | Path, *, rows: int, features: int, delta: float, r2: float, chosen: float, force: bool = False
) -> None:
    """Draw the R² that noise is expected to cost against ε (:func:`gaussmix.reporting.planning.expect`).

    A file that is there already is replaced with ``force`` only.
    """
    with _drawn(path, 6, 4, force=force) as figure:
        _draw_lost_r2(figure.subplots(), rows, features, delta, r2, chosen)


def _draw_lost_r2(axes: Any, rows: int, features: int, delta: float, r2: float, chosen: float) -> None:
    epsilons = np.geomspace(min(0.03, chosen / 2), max(10.0, chosen * 2), 40)
    lost = [expect(rows=rows, features=features, epsilon=float(e), delta=delta, r2=r2).lost_r2 for e in epsilons]
    here = expect(rows=rows, features=features, epsilon=chosen, delta=delta, r2=r2).lost_r2
    axes.loglog(epsilons, lost, color="#0072B2")
    axes.loglog([chosen], [here], "o", color="#D55E00", label=f"ε = {chosen:g}")
    axes.axhline(0.1 * r2, color="grey", linestyle=":", label="a tenth of R²")
    axes.set(xlabel="ε", ylabel="R² lost to noise", title=f"{rows:,} rows, {features} features, δ = {delta:g}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


@contextmanager
def _drawn(path: str | Path, width: float, height: float, *, force: bool) -> Iterator[Any]:
    """A figure that is written at the end, whole; a name that cannot be written to is found at the beginning."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ArgumentError(f"{path} must end in one of {', '.join(_FORMATS)}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("Plots need matplotlib: pip install 'gaussmix[plots]'.") from error
    with reserve(path, 0, force=force) as output:
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format=suffix[1:], dpi=150)
        output.commit(content.getvalue())
