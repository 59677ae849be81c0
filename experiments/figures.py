"""Figures 2 to 5, drawn from the tables in ``results``: PNG and SVG. Figure 1 is :mod:`gaussmix.report.plots`'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

TITLES = {
    "communities": "Communities & Crime",
    "tecator": "Tecator",
    "gaussian": "Gaussian, rank 4",
    "mlp": "MLP",
    "wine": "Wine",
    "uniform": "Uniform",
    "boston": "Boston housing",
    "bike": "Bike sharing",
    "fashion": "Fashion-MNIST, 3 and 8",
    "cifar100": "CIFAR-100, 3 and 8 (split by hash)",
    "cifar10": "CIFAR-10, 3 and 8",
    "mnist": "MNIST, 3 and 8",
}


class Style(NamedTuple):
    """Colours of Okabe and Ito, which stay apart for colour-blind readers, with a line and a marker each for print."""

    colour: str
    line: str
    marker: str


LINEAR = {
    "LinearMixing, passes": Style("black", "-", "*"),
    "LinearMixing, exact": Style("#D55E00", "-", "o"),
    "LinearMixing, paper": Style("#CC79A7", "-", "s"),
    "AdaSSP, exact": Style("#0072B2", "--", "^"),
    "AdaSSP, printed": Style("#56B4E9", "--", "v"),
    "Sheffet, Rényi": Style("#009E73", "-.", "D"),
    "Sheffet, printed": Style("#E69F00", "-.", "P"),
}
LINEAR_CODE = {
    "published: LinearMixing": LINEAR["LinearMixing, paper"],
    "published: AdaSSP": LINEAR["AdaSSP, printed"],
    "published: Sheffet, Rényi": LINEAR["Sheffet, Rényi"],
    "published: Sheffet": LINEAR["Sheffet, printed"],
}
LOGISTIC = {
    "LogisticMixing, passes": Style("black", "-", "*"),
    "LogisticMixing, steps": Style("#E69F00", "-", "D"),
    "LogisticMixing, exact": Style("#D55E00", "-", "o"),
    "LogisticMixing, paper": Style("#CC79A7", "-", "s"),
    "objective perturbation": Style("#0072B2", "--", "^"),
    "scikit-learn (not private)": Style("black", ":", "."),
    "the network itself": Style("#009E73", "-.", "x"),
}
LOGISTIC_CODE = {
    "published: LogisticMixing": LOGISTIC["LogisticMixing, paper"],
    "published: objective perturbation": LOGISTIC["objective perturbation"],
    "scikit-learn (not private)": LOGISTIC["scikit-learn (not private)"],
}
LINES = {
    "ridge (not private)": ("black", ":"),
    "mean of y (not private)": ("grey", "--"),
    "zero": ("grey", "-."),
    "constant": ("grey", "-."),
}


def linear(table: pd.DataFrame, sets: Sequence[str], out: Path) -> None:
    """Figures 2 and 4: test MSE against ε, a row of panels a set: correct noise, and the published code."""
    note = "Rows and targets are scaled by the training data's largest, as in the paper: that step is not private."
    _pairs(table, sets, out, (LINEAR, LINEAR_CODE), value="mse", label="test MSE", note=note)


def logistic(table: pd.DataFrame, sets: Sequence[str], out: Path, *, largest_norm: bool) -> None:
    """Figures 3 and 5: test error against ε, a row of panels a set: correct noise, and the published code."""
    note = (
        "Features are scaled by the training data's largest norm: NOT PRIVATE."
        if largest_norm
        else "Left: features bounded by a declared norm. Right: scaled by the data's largest norm, not private."
    )
    _pairs(table, sets, out, (LOGISTIC, LOGISTIC_CODE), value="error", label="test error", note=note)


def _pairs(
    table: pd.DataFrame,
    sets: Sequence[str],
    out: Path,
    styles: tuple[Mapping[str, Style], Mapping[str, Style]],
    *,
    value: str,
    label: str,
    note: str,
) -> None:
    figure = Figure(figsize=(11, 3.3 * len(sets) + 1.2), layout="constrained")
    panels = figure.subplots(len(sets), 2, sharey="row", squeeze=False)
    for name, row in zip(sets, panels, strict=True):
        rows = table[table["set"] == name]
        for axes, shown, heading in zip(row, styles, ("correct noise", "published code, emulated"), strict=True):
            _curves(axes, rows, shown, value)
            axes.set(xscale="log", yscale="log", xlabel="ε")
            axes.set_title(f"{TITLES[name]}: {heading}", fontsize=11)
            axes.grid(visible=True, alpha=0.3, which="both")
        row[0].set_ylabel(label)
    figure.suptitle(note, fontsize=9)
    handles: dict[str, Artist] = {}
    for axes in panels[0]:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    _save(figure, out)


def _curves(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, Style], value: str) -> None:
    for method, style in styles.items():
        curve = rows[rows["method"] == method].sort_values("epsilon")
        if not len(curve):
            continue
        axes.plot(
            curve["epsilon"],
            curve[value],
            style.line,
            color=style.colour,
            marker=style.marker,
            markersize=4,
            label=method,
        )
        low, high = curve[value] - curve["ci95"], curve[value] + curve["ci95"]
        axes.fill_between(curve["epsilon"], low, high, color=style.colour, alpha=0.2, linewidth=0)
    for method, (colour, line) in LINES.items():
        level = rows[rows["method"] == method][value]
        if len(level):
            axes.axhline(level.iloc[0], color=colour, linestyle=line, linewidth=1, label=method)


def _save(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "gaussmix"}):  # the same figure is the same file
        for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
            figure.savefig(out.with_suffix(suffix), dpi=130, metadata=metadata)
