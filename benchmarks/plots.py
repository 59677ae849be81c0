"""Pictures of a run for docs/results.md: python -m benchmarks.plots [RUN] [--out FILE].

RUN is the committed ``reference.csv`` unless it is named.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.compare import REFERENCE

OUT = Path(__file__).parents[1] / "docs" / "figures" / "performance.png"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "black")  # Okabe and Ito
MARKERS = "os^Dv*"


def measured(run: pd.DataFrame, benchmark: str, measure: str, pattern: str) -> pd.DataFrame:
    """Values of one measure, with the groups of a pattern that its cases match."""
    lines = run[(run["benchmark"] == benchmark) & (run["measure"] == measure)]
    found = lines["case"].str.extract(re.compile(pattern))
    return found.assign(value=lines["value"]).dropna()


def _number(words: pd.Series) -> pd.Series:
    return words.str.replace(",", "").astype(int)


def _lines(axes: Axes, table: pd.DataFrame, by: str, x: str) -> None:
    for (name, part), colour, marker in zip(table.groupby(by, sort=False), COLOURS, MARKERS, strict=False):
        part = part.sort_values(x)
        axes.plot(part[x], part["value"], marker=marker, color=colour, label=str(name))
    axes.set(xscale="log", yscale="log")
    at = sorted(set(table[x]))
    axes.set_xticks(at, labels=[f"{value:,}" for value in at])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def growth(figure_axes: tuple[Axes, Axes], run: pd.DataFrame) -> None:
    """Milliseconds of a release by rows, and by columns, a line for every number of passes and one for AᵀA."""
    pattern = r"(?P<rows>[\d,]+) × (?P<columns>\d+), (?P<passes>\d) passes"
    table = measured(run, "passes", "cpu ms", pattern)
    ratios = measured(run, "passes", "ratio to AᵀA", pattern)
    gram = table.assign(value=table["value"] / ratios["value"].to_numpy(), passes="AᵀA").drop_duplicates(
        ["rows", "columns"]
    )
    names = table["passes"].map({"1": "one pass", "2": "two", "3": "three", "4": "four passes"})
    table = pd.concat([table.assign(passes=names), gram])
    table = table.assign(rows=_number(table["rows"]), columns=_number(table["columns"]))
    for axes, x, fixed, words in zip(
        figure_axes, ("rows", "columns"), ("columns", "rows"), ("20", "200,000"), strict=True
    ):
        part = table[table[fixed] == int(words.replace(",", ""))]
        _lines(axes, part, "passes", x)
        axes.set(title=f"A release of {words} {fixed}", xlabel=x, ylabel="processor time, ms")


def files(axes: Axes, run: pd.DataFrame) -> None:
    """Seconds of releases from Parquet, and of column sums."""
    table = measured(run, "tables", "s", r"(?P<task>[\w ]+), (?P<rows>[\d,]+) rows")
    names = {"duckdb": "DuckDB, column sums", "polars": "polars, column sums", "release": "release, one pass"}
    table = table.assign(rows=_number(table["rows"]), task=table["task"].replace(names | {"in passes": "four passes"}))
    _lines(axes, table, "task", "rows")
    axes.set(title="Parquet, 21 columns", xlabel="rows", ylabel="seconds")


def peers(axes: Axes, run: pd.DataFrame) -> None:
    """Fits of the same array by others, over AᵀA."""
    table = measured(run, "peers", "ratio to AᵀA", r"(?P<fit>.+), (?P<size>[\d,]+ × \d+)$")
    wide = table.pivot(index="fit", columns="size", values="value")
    wide = wide.loc[list(dict.fromkeys(table["fit"]))[::-1], list(dict.fromkeys(table["size"]))]
    height = 0.8 / wide.shape[1]
    for k, (size, colour) in enumerate(zip(wide, COLOURS, strict=False)):
        axes.barh([i + (k - 0.5) * height for i in range(len(wide))], wide[size], height, color=colour, label=str(size))
    axes.set_xscale("log")
    axes.set_xticks([2, 5, 10, 20, 50], labels=["2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.set(yticks=range(len(wide)), yticklabels=wide.index, xlabel="times AᵀA, one thread")
    axes.set_title("Fits by others")
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def draw(run: pd.DataFrame, out: Path) -> None:
    """Four panels."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(2, 2)
    growth((panels[0, 0], panels[0, 1]), run)
    files(panels[1, 0], run)
    peers(panels[1, 1], run)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, default=REFERENCE)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    draw(pd.read_csv(options.run), options.out)


if __name__ == "__main__":
    main()
