"""Ratios of a run beside the committed ones: python -m benchmarks.compare [RUN] [--reference FILE] [--accept].

A ratio that is worse by more than 15 % is red, and the exit code is 1. RUN is the newest file of ``benchmarks/runs``
unless it is named. ``--accept`` makes it the reference. Ratios are times over a yardstick in the same run, so that they
can be compared between machines, as far as these differ alike in both; seconds are not compared.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.record import RATIO
from benchmarks.run import RUNS

REFERENCE = Path(__file__).parent / "reference.csv"
WORSE = 1.15
"""From here on a ratio is shown in red."""

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Comparison:
    """One ratio then and now; None where it was not measured."""

    key: Key
    then: float | None
    now: float | None

    @property
    def change(self) -> float:
        """Now over then; 1 where one of them is missing."""
        return 1.0 if self.then is None or self.now is None else self.now / self.then

    @property
    def is_worse(self) -> bool:
        """By more than is put up with."""
        return self.change > WORSE


def ratios(path: Path) -> dict[Key, float]:
    """Ratios of a file, by benchmark, case and measure; of several lines the last."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return {
        (line["benchmark"], line["case"], line["measure"]): float(line["value"])
        for line in lines
        if line["measure"].startswith(RATIO)
    }


def compared(then: dict[Key, float], now: dict[Key, float]) -> list[Comparison]:
    """Every ratio of either, the worst first."""
    found = [Comparison(key, then.get(key), now.get(key)) for key in {**then, **now}]
    return sorted(found, key=lambda comparison: (-comparison.change, comparison.key))


def shown(found: list[Comparison]) -> Table:
    """As a table; what is worse in red, what is missing without a colour."""
    table = Table()
    for heading in ("benchmark", "case", "measure", "then", "now", "change"):
        table.add_column(heading, justify="right" if heading in ("then", "now", "change") else "left")
    for comparison in found:
        numbers = ["" if value is None else f"{value:.3g}" for value in (comparison.then, comparison.now)]
        known = comparison.then is not None and comparison.now is not None
        change = f"{comparison.change - 1:+.0%}" if known else "not measured" if comparison.then else "new"
        table.add_row(*comparison.key, *numbers, change, style="red" if comparison.is_worse else None)
    return table


def newest() -> Path | None:
    """The last run, by its name."""
    return max(RUNS.glob("*.csv"), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="default: the newest")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--accept", action="store_true", help="make the run the reference")
    options = parser.parse_args()
    run: Path | None = options.run or newest()
    if run is None or not run.is_file():
        sys.exit("There is no run: make bench.")
    if options.accept:
        shutil.copyfile(run, options.reference)
        print(f"{run} is the reference now: commit {options.reference}.")
        return
    if not options.reference.is_file():
        sys.exit(f"There is no {options.reference}: python -m benchmarks.compare --accept makes {run} the reference.")
    found = compared(ratios(options.reference), ratios(run))
    worse = sum(comparison.is_worse for comparison in found)
    Console().print(shown(found))
    print(f"{worse} of {len(found)} ratios are worse by more than {WORSE - 1:.0%}.")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
