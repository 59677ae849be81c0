"""Figures 1 to 5 of arXiv:2505.24603v2: configuration to table to figure.

    GAUSSMIX_DATA=... python -m experiments.reproduce figure1 figure2 figure3 figure4 figure5

Tables go to ``experiments/results``, figures to ``docs/figures``; the README's version of Figure 1, with the exact
curve, to ``docs``. Trials that are done are kept in ``experiments/cache``: a run that was stopped goes on where it was;
after a change of the code start with ``--fresh``. ``--draw`` draws from the tables alone. Figures 2 and 4 have the
paper's four methods alone; ``_code`` and ``_library`` stand for the published code and for this library's methods on
the same tables. Figures 3 and 5 need the features that ``experiments.dp_sgd`` (``make networks``) puts there. Results
of ``experiments.linear_in_passes``, ``logistic_in_passes`` and ``logistic_times`` are drawn too, where they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import figures, linear, linear_in_passes, logistic, logistic_in_passes, logistic_times
from experiments.data_files import CACHE, RESULTS
from experiments.network_features import EPSILONS
from experiments.parallel import forget
from gaussmix import accounting
from gaussmix.accounting import Analysis
from gaussmix.accounting.numerics import smallest_safe
from gaussmix.report import plots

SETS = {
    "figure2": ("communities", "tecator", "gaussian", "mlp"),
    "figure4": ("wine", "uniform", "boston", "bike"),
    "figure3": ("fashion", "cifar100"),
    "figure5": ("cifar10", "mnist"),
}
LINEAR, LOGISTIC = ("figure2", "figure4"), ("figure3", "figure5")
FIGURES = ("figure1", "figure2", "figure3", "figure4", "figure5")
SKETCH_SIZE, DELTA = 150, 1e-8  # of Figure 1
ANALYSES: tuple[Analysis, ...] = ("sheffet", "tcdp", "renyi", "exact")
OUT = Path(__file__).parents[1] / "docs"


def figure1(results: Path, *, points: int) -> None:
    """ε of each analysis on the paper's grid of γ, and γ for a grid of ε, at leverage 1/γ."""
    gammas = np.geomspace((4 / 3) ** 2, 1e7, points)
    log_term = np.log(4 / DELTA)
    printed = 2 / gammas * (np.sqrt(2 * SKETCH_SIZE * log_term) + log_term)
    table = pd.DataFrame({"gamma": gammas, "sheffet_printed": printed})
    epsilons = np.geomspace(0.05, 30, points)
    required = pd.DataFrame({"epsilon": epsilons})
    for analysis in ANALYSES:
        table[analysis] = accounting.epsilon(
            DELTA, sketch_size=SKETCH_SIZE, gamma=gammas, bound_holds_for="larger", analysis=analysis
        )
        required[analysis] = [gamma_for(float(epsilon), analysis) for epsilon in epsilons]
    results.mkdir(parents=True, exist_ok=True)
    table.to_csv(results / "figure1.csv", index=False, float_format="%.8g")
    required.to_csv(results / "figure1_gamma.csv", index=False, float_format="%.8g")


def gamma_for(epsilon: float, analysis: Analysis) -> float:
    """Least γ for which an analysis proves ε."""

    def excess(gamma: float) -> float:
        found = accounting.epsilon(
            DELTA, sketch_size=SKETCH_SIZE, gamma=gamma, bound_holds_for="larger", analysis=analysis
        )
        return found - epsilon

    return smallest_safe(excess, 1 + 1e-6, 1e3, limit=1e7, rtol=1e-7)


def compute(name: str, options: argparse.Namespace) -> None:
    """Tables of one figure, from trials that are kept in the cache or run now."""
    common = {"processes": options.processes, "cache": options.cache, "results": options.results}
    if name == "figure1":
        figure1(options.results, points=25)
    elif name in LINEAR:
        if options.fresh:
            for folder in linear.FOLDERS:
                forget(options.cache / folder, prefixes=SETS[name])
        linear.run(name, SETS[name], count=options.trials, **common)
    else:
        epsilons = options.epsilons or EPSILONS.tolist()
        if options.fresh:
            forget(logistic.folder(SETS[name], epsilons, options.cache))
        logistic.run(
            file_name(name, options),
            SETS[name],
            count=options.trials,
            epsilons=epsilons,
            largest_norm=options.largest_norm,
            **common,
        )


def draw(name: str, options: argparse.Namespace) -> None:
    """One figure from its tables; of Figure 1 the README's version too."""
    file = file_name(name, options)
    table, out = pd.read_csv(options.results / f"{file}.csv"), options.out / "figures" / file
    if name == "figure1":
        figures.analyses(table, out, sketch_size=SKETCH_SIZE, delta=DELTA)
        plots.compare_analyses(options.out / "figure1.png", sketch_size=SKETCH_SIZE, delta=DELTA, force=True)
    elif name in LINEAR:
        figures.paper_methods(table, SETS[name], out)
        figures.published_code(_existing(options, f"{name}_code.csv"), SETS[name], out.with_name(f"{name}_code"))
        figures.library(library_table(name, table, options), SETS[name], out.with_name(f"{name}_library"))
        if all((options.results / f"{other}.csv").exists() for other in LINEAR):
            both = pd.concat([pd.read_csv(options.results / f"{other}.csv") for other in LINEAR])
            sets = [image_set for other in LINEAR for image_set in SETS[other]]
            figures.training_risk(both, sets, out.with_name("training_risk"))
    else:
        ratios = None
        if not options.largest_norm:
            table = pd.concat([table, _existing(options, logistic_in_passes.FILE)])
            ratios = logistic_times.ratios(
                _existing(options, f"{name}_times.csv"), _existing(options, logistic_times.FILE)
            )
        figures.logistic(table, SETS[name], out, largest_norm=options.largest_norm, ratios=ratios)


def library_table(name: str, table: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Methods of this library, and those they are compared with, on the same tables.

    On the sets of 512 columns four passes were measured on the first ten tables only; there every method has ten.
    """
    passes, wide = _existing(options, linear_in_passes.FILE), _existing(options, linear_in_passes.WIDE_FILE)
    table = pd.concat([table, _existing(options, f"{name}_library.csv"), passes])
    if len(wide):
        table = pd.concat([table[~table["set"].isin(linear.SYNTHETIC) | table["method"].isin(passes["method"])], wide])
    return table[table["set"].isin(SETS[name])]


def _existing(options: argparse.Namespace, file: str) -> pd.DataFrame:
    """A table of results, or an empty one."""
    path = options.results / file
    return pd.read_csv(path) if path.exists() else pd.DataFrame({"set": [], "method": [], "trials": []})


def file_name(name: str, options: argparse.Namespace) -> str:
    """Results without a private scaling never take the place of the others."""
    return f"{name}_largest_norm" if options.largest_norm and name in LOGISTIC else name


def main(arguments: list[str] | None = None) -> None:
    """Compute what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="figure1 … figure5", help="which; all of them if none is named")
    parser.add_argument("--draw", action="store_true", help="only draw, from the tables that are there")
    parser.add_argument("--trials", type=int, default=linear.TRIALS)
    parser.add_argument("--epsilons", nargs="*", type=float, help="Figures 3 and 5: only these ε")
    parser.add_argument("--largest-norm", action="store_true", help="Figures 3 and 5: the paper's scaling, NOT PRIVATE")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--fresh", action="store_true", help="forget these figures' trials of an earlier version")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"There is no {', '.join(sorted(unknown))}: choose from {', '.join(FIGURES)}.")
    quick = options.trials != linear.TRIALS or options.epsilons is not None
    if quick and not options.draw and (options.results == RESULTS or options.out == OUT):
        parser.error("A quick try must not take the place of the kept tables: give it other --results and --out.")
    for name in options.figures or FIGURES:
        if not options.draw:
            compute(name, options)
        draw(name, options)


if __name__ == "__main__":
    main()
