"""Draw the README's picture, the tutorial's first model beside the fit that its intervals are for; and the report page.

Also measure how standard errors of this model vary between releases.

    python -m experiments.first_figure            # docs/figures/first.png
    python -m experiments.first_figure --page     # docs/figures/page.png, with Chromium
    python -m experiments.first_figure --errors   # range of standard errors over 20 releases, for docs/linear.md

Seed 1, as in ``tests/doc_pages.py``, so that the first picture shows the numbers of docs/tutorial.md. The page is of a
release without a seed, because a page of a seeded one says first that nothing is guaranteed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from statsmodels.datasets import randhie

import gaussmix as gm
from gaussmix.report.page import render

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SCHEMA = {
    "visits": [0, 40],
    "pays": [0, 100],
    "deductible": "boolean",
    "limited": [0, 1],
    "diseases": [0, 60],
    "health": ["excellent", "good", "fair or poor"],
}
UNITS = {"pays": 100, "diseases": 10}  # coefficients are drawn per so many units
LABELS = {"pays": "pays everything", "diseases": "disease index + 10"}


def tutorial_table() -> pd.DataFrame:
    """Return the table of docs/tutorial.md."""
    rand = randhie.load_pandas().data
    health = np.select([rand.hlthg == 1, rand.hlthf + rand.hlthp > 0], ["good", "fair or poor"], "excellent")
    table = rand[["mdvis", "disea", "physlm"]].set_axis(["visits", "diseases", "limited"], axis=1)
    return table.assign(pays=np.exp(rand.lncoins) - 1, deductible=rand.idp == 1, health=health).round(3)


def draw_first(table: pd.DataFrame) -> None:
    """Draw coefficients with intervals, and weighted least squares on the top-coded rows."""
    private = gm.release(table, SCHEMA, epsilon=1.0, delta=1e-6, random_state=1)
    fit, coded = private.ols("visits"), private.topcode(table)
    weights = np.sqrt(private.weights(coded))
    numbers = coded[["pays", "deductible", "limited", "diseases"]].astype(float)
    X = np.column_stack([np.ones(len(coded)), numbers, coded.health == "good", coded.health == "fair or poor"])
    solution = np.linalg.lstsq(weights[:, None] * X, weights * coded.visits, rcond=None)[0]
    exact = dict(zip(fit.params, solution, strict=True))

    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    names = [name for name in fit.params if name != "(intercept)"]
    for height, name in enumerate(reversed(names)):
        unit = UNITS.get(name, 1)
        low, high = (unit * end for end in fit.conf_int()[name])
        axes.plot([low, high], [height, height], color="#1f5fa8", lw=3, solid_capstyle="butt")
        ours, theirs = ("", "") if height else ("private, 95 % interval", "the same fit on the rows")
        axes.plot(unit * fit.params[name], height, "o", color="#1f5fa8", label=ours)
        axes.plot(unit * exact[name], height, "x", color="#d1495b", ms=8, mew=2, label=theirs)
    axes.axvline(0, color="0.6", lw=1, ls="--")
    axes.set_yticks(range(len(names)), [LABELS.get(name, name) for name in reversed(names)])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("visits to a doctor in a year")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(FIGURES / "first.png", dpi=110)


def draw_page(table: pd.DataFrame) -> None:
    """Take a picture of the upper part of the report page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        page = Path(folder) / "report.html"
        title = "Visits to doctors, RAND Health Insurance Experiment"
        about = "Person-years with the share of the cost that the family pays."
        private = gm.release(table, SCHEMA, epsilon=1.0, delta=1e-6)
        page.write_text(render(private, response="visits", title=title, description=about), encoding="utf-8")
        chromium = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = chromium.new_page(viewport={"width": 1120, "height": 2150})
        opened.goto(page.as_uri())
        opened.wait_for_timeout(3_000)  # the page computes its first model
        opened.screenshot(path=FIGURES / "page.png")
        chromium.close()


def range_of_errors(table: pd.DataFrame, releases: int, passes: int) -> pd.DataFrame:
    """Return the smallest and the largest standard error of each coefficient over releases, and their ratio."""
    drawn = (
        gm.release(table, SCHEMA, epsilon=1.0, delta=1e-6, passes=passes, random_state=seed) for seed in range(releases)
    )
    found = pd.DataFrame([private.ols("visits").bse for private in drawn])
    return pd.DataFrame({"least": found.min(), "most": found.max(), "ratio": found.max() / found.min()})


def print_errors(table: pd.DataFrame) -> None:
    """Print the ranges over 20 releases in four passes, and in one."""
    warnings.filterwarnings("ignore", "These rows were already released", UserWarning)
    for passes in (4, 1):
        print(f"passes={passes}", range_of_errors(table, 20, passes).round(4), sep="\n")


def main() -> None:
    """Write one of the pictures, or print the ranges of standard errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--page", action="store_true")
    group.add_argument("--errors", action="store_true")
    chosen = parser.parse_args()
    (draw_page if chosen.page else print_errors if chosen.errors else draw_first)(tutorial_table())


if __name__ == "__main__":
    main()
