"""A logistic regression of 50 coefficients, in Python and in the page.

    python -m benchmarks.logit [--part 20] [--csv FILE]

The release has 20 numbers, six categories of six levels and the response: 50 coefficients and the intercept. Python:
the fit with all intervals, of a release that remembers nothing. Page: the same model in Chromium, offline, in the
report of the same release. Both are processor times of one thread, the least of several, so that other processes do not
count. One second is allowed for each.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

import gaussmix as gm
from benchmarks import record
from gaussmix.report.page import render

ROWS, NUMBERS, CATEGORIES, LEVELS = 50_000, 20, 6, 6
COEFFICIENTS = 1 + NUMBERS + CATEGORIES * (LEVELS - 1)
REPEATS = 5


def made(rows: int) -> gm.Release:
    """A release with 20 numbers, six categories of six levels and a boolean response."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, NUMBERS))
    levels = [f"level {k}" for k in range(LEVELS)]
    codes = rng.integers(0, LEVELS, (rows, CATEGORIES))
    eta = X.sum(axis=1) / 4 + 0.2 * codes[:, 0] - 1
    table: dict[str, Any] = {f"x{i}": X[:, i] for i in range(NUMBERS)}
    table |= {f"c{i}": np.array(levels)[codes[:, i]] for i in range(CATEGORIES)}
    table["y"] = rng.random(rows) < 1 / (1 + np.exp(-eta))
    schema: dict[str, Any] = {f"x{i}": [-1, 1] for i in range(NUMBERS)}
    schema |= {f"c{i}": levels for i in range(CATEGORIES)} | {"y": "boolean"}
    return gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)


def in_python(private: gm.Release) -> float:
    """Return milliseconds of a fit with intervals."""

    def fit() -> object:
        return gm.Release(private.statistic, private.certificate).logit("y").summary().conf_int()

    return record.best_in_turns({"logit": fit}, REPEATS, time.process_time)["logit"]


def in_the_page(private: gm.Release) -> float | None:
    """Return milliseconds of the same model in Chromium; None where Chromium or playwright is not installed."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    predictors = [name for name in private.schema.columns if name != "y"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        path = Path(folder) / "report.html"
        path.write_text(render(private, response="y"), encoding="utf-8")
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_context(offline=True).new_page()
        tab.goto(path.as_uri())
        devtools = tab.context.new_cdp_session(tab)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def clock() -> float:
            found = {entry["name"]: entry["value"] for entry in devtools.send("Performance.getMetrics")["metrics"]}
            return 1e3 * float(found["ThreadTime"])

        times = []
        for _ in range(REPEATS):
            start = clock()
            count = tab.evaluate(
                "(asked) => gaussmix.regress(asked).coefficients.length",
                {"response": "y", "predictors": predictors, "scale": "logit"},
            )
            times.append(clock() - start)
            if count != COEFFICIENTS:
                raise RuntimeError(f"The page has {count} coefficients, not {COEFFICIENTS}.")
        browser.close()
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    private = made(ROWS // options.part)
    measured: list[record.Measurement] = [("Python", "cpu ms", in_python(private))]
    page = in_the_page(private)
    if page is None:
        Console(stderr=True).print("The page is not measured: Chromium or playwright is not installed.")
    else:
        measured.append(("page", "cpu ms", page))
    for where, unit, taken in measured:
        Console().print(f"{COEFFICIENTS} coefficients, {where}: {taken:.0f} {unit}")
    record.append(options.csv, "logit", measured)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
