"""The paper's figures and those of Theorem 3, drawn from the tables in ``results``: PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gaussmix.paper import excess_risk_distribution

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


LINEAR = {  # the four methods of the paper
    "LinearMixing, paper": Style("#D55E00", "-", "s"),
    "AdaSSP, printed": Style("#0072B2", "--", "^"),
    "Sheffet, Rényi": Style("#009E73", "-.", "D"),
    "Sheffet, printed": Style("#E69F00", ":", "P"),
}
LINEAR_CODE = {
    "published: LinearMixing": LINEAR["LinearMixing, paper"],
    "published: AdaSSP": LINEAR["AdaSSP, printed"],
    "published: Sheffet, Rényi": LINEAR["Sheffet, Rényi"],
    "published: Sheffet": LINEAR["Sheffet, printed"],
}
LINEAR_LIBRARY = {
    "LinearMixing, passes": Style("black", "-", "*"),
    "LinearMixing, exact": Style("#CC79A7", "-", "o"),
    "AdaSSP, exact": Style("#0072B2", "--", "^"),
    "LinearMixing, paper": LINEAR["LinearMixing, paper"],
}
LABELS = {
    "LinearMixing, paper": "LinearMixing (Algorithm 2)",
    "AdaSSP, printed": "AdaSSP, as printed",
    "Sheffet, Rényi": "Sheffet, with Lemma 1",
    "Sheffet, printed": "Sheffet, as printed",
    "published: LinearMixing": "LinearMixing",
    "published: AdaSSP": "AdaSSP",
    "published: Sheffet, Rényi": "Sheffet, with Lemma 1",
    "published: Sheffet": "Sheffet",
    "LinearMixing, passes": "LinearRegression, default (four passes)",
    "LinearMixing, exact": "sketch of 10⁶ rows (before version 0.3)",
    "AdaSSP, exact": "AdaSSP, exact accounting",
    "LogisticMixing, passes": "LogisticRegression, default",
    "LogisticMixing, steps": "LogisticRegression, Newton steps",
    "LogisticMixing, exact": "sketch of 10⁶ rows (before version 0.3)",
    "LogisticMixing, paper": "LogisticMixing (section 4.2)",
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
}


SPREAD = 1.1  # between points of neighbouring curves at one ε
SCALED = "Rows and targets are scaled by the training data's largest, as in the paper: that step is not private."


# ---------------------------------------------------------------------------------------------------------------
# Figure 1
def analyses(table: pd.DataFrame, out: Path, *, sketch_size: int, delta: float) -> None:
    """Figure 1 as in the paper: ε by Sheffet's theorem and by Lemma 1, and the ratio of the two, for γ up to 10⁷."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.loglog(
        table["gamma"], table["sheffet_printed"], ":", color="#E69F00", marker="P", label="Sheffet 2019, Theorem 2"
    )
    left.loglog(table["gamma"], table["renyi"], "-", color="#D55E00", marker="s", label="Lemma 1 and Proposition 1")
    left.set(ylabel="ε", title=f"(a) ε proved at δ = {delta:g}, k = {sketch_size}")
    left.legend()
    ratio = table["sheffet_printed"] / table["renyi"]
    right.semilogx(table["gamma"], ratio, "-", color="#0072B2", marker="o")
    right.axhline(1.0, color="grey", linewidth=1)
    right.set(ylabel="Sheffet's ε / ε of Lemma 1", title="(b) ratio of the two bounds", ylim=(0, 10))
    for number, (x, y) in enumerate(zip(table["gamma"], ratio, strict=True)):
        if number in (0, len(table) - 1):
            right.annotate(f"{y:.2f}", (x, y), xytext=(0, 8), textcoords="offset points", ha="center")
    for axes in (left, right):
        axes.set_xlabel("λ̄_min + σ², in units of C²")
        axes.grid(visible=True, alpha=0.3)
    _save(figure, out)


# ---------------------------------------------------------------------------------------------------------------
# Figures 2 and 4
def paper_methods(table: pd.DataFrame, sets: Sequence[str], out: Path) -> None:
    """The paper's four methods alone, a panel for each set, with the difference from LinearMixing below."""
    _grid(table, sets, out, LINEAR, "LinearMixing, paper", heading="The paper's four methods, with correct noise")


def published_code(table: pd.DataFrame, sets: Sequence[str], out: Path) -> None:
    """The same of the published code, whose noise is not what it is accounted for."""
    heading = "The published code, emulated with its mistakes: NOT PRIVATE"
    _grid(table, sets, out, LINEAR_CODE, "published: LinearMixing", heading=heading)


def library(table: pd.DataFrame, sets: Sequence[str], out: Path) -> None:
    """Methods of this library on the same tables, with AdaSSP, LinearMixing, ridge and the mean for comparison."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    panels = figure.subplots(2, 2)
    for name, axes in zip(sets, panels.flat, strict=True):
        rows = table[table["set"] == name]
        _curves(axes, rows, LINEAR_LIBRARY, "mse", spread=SPREAD)
        for method, (colour, line) in LINES.items():
            _level(axes, rows, method, colour, line)
        trials = sorted(set(rows["trials"]))
        _panel(axes, f"{TITLES[name]}: {' or '.join(f'{count:g}' for count in trials)} trials")
    for axes in panels[:, 0]:
        axes.set_ylabel("test MSE")
    figure.suptitle(f"This library's methods beside AdaSSP and Algorithm 2\n{SCALED}", fontsize=10)
    _legend(figure, [panels[0, 0]], columns=3)
    _save(figure, out)


def _grid(
    table: pd.DataFrame, sets: Sequence[str], out: Path, styles: Mapping[str, Style], reference: str, *, heading: str
) -> None:
    """Panels of two by two, each on a range of its own, with a strip of differences."""
    figure = Figure(figsize=(11, 11.5), layout="constrained")
    outer = figure.add_gridspec(2, 2)
    first: Axes | None = None
    for place, name in enumerate(sets):
        inner = outer[place // 2, place % 2].subgridspec(2, 1, height_ratios=(1.8, 1), hspace=0.03)
        main = figure.add_subplot(inner[0])
        strip = figure.add_subplot(inner[1], sharex=main)
        rows = table[table["set"] == name]
        _curves(main, rows, styles, "mse", open_markers=True)
        main.set(xscale="log", yscale="log")
        _not_private(main, rows)
        _panel(main, f"{TITLES[name]}: {rows['trials'].iloc[0]:g} trials")
        main.set(xlabel="")
        main.tick_params(labelbottom=False)
        _differences(strip, rows, styles, reference)
        if place % 2 == 0:
            main.set_ylabel("test MSE")
            strip.set_ylabel("difference from\nLinearMixing")
        first = first or main
    drawn = "Every method on the same tables; bars are 95 % intervals; differences at one ε are set side by side."
    figure.suptitle(f"{heading}. {drawn}\n{SCALED}", fontsize=10)
    if first is not None:
        _legend(figure, [first], columns=4)
    _save(figure, out)


def _differences(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, Style], reference: str) -> None:
    """Mean test errors relative to one method's, in per cent; small differences on a linear scale, large ones on logs.

    Bars are 95 % intervals of the mean difference on the same tables, where they were recorded.
    """
    level = rows[rows["method"] == reference].set_index("epsilon")["mse"]
    for shift, (method, style) in zip(_shifts(len(styles), SPREAD), styles.items(), strict=True):
        curve = rows[rows["method"] == method].set_index("epsilon").sort_index()
        percent = 100 * (curve["mse"] / level - 1)
        bars = 100 * curve["paired_ci95"] / level if "paired_ci95" in curve else None
        axes.errorbar(
            percent.index * shift,
            percent,
            bars,
            linestyle=style.line,
            color=style.colour,
            marker=style.marker,
            markersize=5,
            elinewidth=1,
            capsize=2,
        )
    axes.set(xlabel="ε", xscale="log")
    axes.set_yscale("symlog", linthresh=2)
    axes.yaxis.set_major_locator(FixedLocator([-50, -10, -2, 0, 2, 10, 50]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:+g} %" if number else "0"))
    axes.grid(visible=True, alpha=0.3)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.3g}"))


def _not_private(axes: Axes, rows: pd.DataFrame) -> None:
    """Ridge without privacy: a line if it is near the curves, else a note, so that it does not set the range."""
    level = rows[rows["method"] == "ridge (not private)"]["mse"]
    if not len(level):
        return
    low, high = axes.get_ylim()
    value, note = float(level.iloc[0]), f"ridge, not private: {level.iloc[0]:.3g}"
    if value > 0.6 * low:
        axes.axhline(value, color="black", linestyle=(0, (1, 2)), linewidth=1)
        axes.set_ylim(min(low, 0.95 * value), high)
        axes.annotate(note, (0.02, value), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    else:
        axes.annotate(f"{note}, below this range", (0.02, 0.02), xycoords="axes fraction", va="bottom", fontsize=8)


# ---------------------------------------------------------------------------------------------------------------
# Theorem 3
def training_risk(table: pd.DataFrame, sets: Sequence[str], out: Path) -> None:
    """Training risk of LinearMixing against ε, with its exact mean and the bounds of Theorem 3."""
    figure = Figure(figsize=(14, 7), layout="constrained")
    panels = figure.subplots(2, 4)
    for name, axes in zip(sets, panels.flat, strict=True):
        rows = table[table["set"] == name]
        curve = rows[rows["method"] == "LinearMixing, paper"].sort_values("epsilon")
        x = curve["epsilon"]
        axes.plot(
            x, curve["best_limit"], "--", color="#0072B2", label="bound of Theorem 3, probability 0.95, best comparison"
        )
        axes.plot(x, curve["expected"], "-", color="#009E73", linewidth=4, alpha=0.4, label="exact mean")
        axes.errorbar(
            x, curve["train"], curve["train_ci95"], fmt="s", color="#D55E00", markersize=4, capsize=2, label="measured"
        )
        for method, (colour, line) in {"zero": ("grey", "-."), "ridge (not private)": ("black", ":")}.items():
            _level(axes, rows, method, colour, line, value="train")
        _panel(axes, f"{TITLES[name]}: {curve['trials'].iloc[0]:g} trials")
    for axes in panels[:, 0]:
        axes.set_ylabel("training risk ‖y - Xθ‖²/n")
    figure.suptitle(f"Training risk of LinearMixing (Algorithm 2)\n{SCALED}", fontsize=10)
    _legend(figure, [panels[0, 0]], columns=5)
    _save(figure, out)


def excess_risk(settings: pd.DataFrame, percentiles: pd.DataFrame, out: Path) -> None:
    """Measured percentiles of the excess of Theorem 3 beside its exact distribution function."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    panels = figure.subplots(3, 3, sharey=True)
    for axes, (_, row) in zip(panels.flat, settings.iterrows(), strict=True):
        chosen = (percentiles["table"] == row["table"]) & (percentiles["epsilon"] == row["epsilon"])
        drawn, exact = percentiles[chosen], excess_risk_distribution(int(row["k"]), int(row["d"]))
        x = np.linspace(0, exact.ppf(0.998), 300)
        axes.plot(x, exact.cdf(x), "-", color="#0072B2", linewidth=3, alpha=0.5, label="exact distribution")
        axes.plot(
            drawn["excess"], drawn["percent"] / 100, ".", color="#D55E00", markersize=4, label="measured percentiles"
        )
        axes.set_title(
            f"{row['table']}, d = {row['d']}, k = {row['k']}, ε = {row['epsilon']:g}: {row['draws']:,} draws\n"
            f"p = {row['ks_p']:.2f}, mean {row['mean']:.4f}, exact mean {row['exact_mean']:.4f}",
            fontsize=9,
        )
        axes.grid(visible=True, alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("L̄(θ)/L̄(θ*(σ²)) - 1")
    for axes in panels[:, 0]:
        axes.set_ylabel("probability")
    figure.suptitle("Excess training risk of LinearMixing: d/(k - d + 1)·F(d, k - d + 1)", fontsize=11)
    _legend(figure, [panels[0, 0]], columns=2)
    _save(figure, out)


# ---------------------------------------------------------------------------------------------------------------
# Figures 3 and 5
def logistic(
    table: pd.DataFrame, sets: Sequence[str], out: Path, *, largest_norm: bool, ratios: Mapping[str, str] | None = None
) -> None:
    """Test error against ε, a row of panels a set: correct noise, and the published code; run-time ratios as text."""
    note = (
        "Features are scaled by the training data's largest norm: NOT PRIVATE."
        if largest_norm
        else "Left: features bounded by a declared norm. Right: scaled by the data's largest norm, not private."
    )
    figure = Figure(figsize=(11, 4.2 * len(sets) + 1.4), layout="constrained")
    panels = figure.subplots(len(sets), 2, sharey="row", squeeze=False)
    for name, row in zip(sets, panels, strict=True):
        rows = table[table["set"] == name]
        for axes, shown, heading in zip(
            row, (LOGISTIC, LOGISTIC_CODE), ("correct noise", "published code, emulated"), strict=True
        ):
            _curves(axes, rows, shown, "error", count=True)
            _level(axes, rows, "constant", "grey", "-.", value="error")
            _panel(axes, f"{TITLES[name]}: {heading}")
        row[0].set_ylabel("test error")
        if ratios and name in ratios:
            row[0].set_xlabel(f"ε\n{ratios[name]}", fontsize=9)
    figure.suptitle(note, fontsize=10)
    _legend(figure, list(panels[0]), columns=2)
    _save(figure, out)


# ---------------------------------------------------------------------------------------------------------------
def _shifts(count: int, step: float) -> list[float]:
    """Factors that set the points of several curves side by side on a logarithmic axis."""
    return [step ** (i - (count - 1) / 2) for i in range(count)]


def _curves(
    axes: Axes,
    rows: pd.DataFrame,
    styles: Mapping[str, Style],
    value: str,
    *,
    spread: float = 1.0,
    count: bool = False,
    open_markers: bool = False,
) -> None:
    """Curves with 95 % intervals, their points side by side where ``spread`` is above 1.

    Open markers, each smaller than the one before, show where several curves have the same point.
    """
    for place, (shift, (method, style)) in enumerate(zip(_shifts(len(styles), spread), styles.items(), strict=True)):
        curve = rows[rows["method"] == method].sort_values("epsilon")
        if not len(curve):
            continue
        label = LABELS.get(method, method)
        if count:
            label = f"{label}: {_trials(curve)}"
        axes.errorbar(
            curve["epsilon"] * shift,
            curve[value],
            curve["ci95"],
            linestyle=style.line,
            color=style.colour,
            marker=style.marker,
            markersize=10 - 1.5 * place if open_markers else 5,
            markerfacecolor="none" if open_markers else style.colour,
            markeredgewidth=1.3,
            elinewidth=1,
            capsize=2,
            label=label,
        )


def _trials(curve: pd.DataFrame) -> str:
    count = int(curve["trials"].iloc[0])
    return "once for each ε" if count == 1 else f"{count} trials"


def _level(axes: Axes, rows: pd.DataFrame, method: str, colour: str, line: str, *, value: str = "mse") -> None:
    """A method that no ε changes."""
    level = rows[rows["method"] == method][value]
    if len(level):
        axes.axhline(level.iloc[0], color=colour, linestyle=line, linewidth=1.2, label=method)


def _panel(axes: Axes, title: str) -> None:
    """Logarithmic axes with plain numbers, a title and a grid."""
    axes.set(xscale="log", yscale="log", xlabel="ε")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, alpha=0.3, which="both")
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    steps = {3.0: (1.0,), 1.0: (1.0, 2.0, 5.0), 0.3: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)}
    subs = next((found for least, found in steps.items() if decades > least), tuple(np.arange(1, 10, 0.2)))
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=100))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.3g}"))


def _legend(figure: Figure, panels: Sequence[Axes], *, columns: int) -> None:
    """One legend below, of everything that the panels show."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _save(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "gaussmix"}):  # the same figure is the same file
        for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
            figure.savefig(out.with_suffix(suffix), dpi=130, metadata=metadata)
