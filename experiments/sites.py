"""Joint releases of sites as processes on the loopback interface: python -m experiments.sites time|accuracy [--out F].

``time``: seconds and bytes of every pass, for 20 and 100 columns and 3 and 5 sites, reading included. ``accuracy``: the
wage equation of CPS 2024 with rows split over three sites at random, one of which may collude, beside releases by a
curator with the same guarantee: standard errors, and root mean squared errors of the coefficients against least squares
on all rows, weighted as the release weights them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import multiprocessing
import socket
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments.study_tables import DEVELOPMENT
from gaussmix.mechanism import sites as mechanism
from gaussmix.mechanism.mpc import Mesh, make_keys
from gaussmix.mechanism.sites import Study, run

EPSILON, DELTA = 1.0, 1e-6
WAIT = 600.0


class _Measured(Mesh):
    """Connections that note seconds and bytes of every sum."""

    notes: list[tuple[str, float, int]]

    def sum(self, values: Any, doing: str) -> list[int]:
        """Add up, and note what it took."""
        before, start = self.bytes_sent, time.perf_counter()
        found = super().sum(values, doing)
        self.notes.append((doing, time.perf_counter() - start, self.bytes_sent - before))
        return found


def _site(site: int, studies: list[Study], table: Any, folder: Path, results: Any) -> None:
    """Run all studies at one site, one after the other."""
    setattr(mechanism, "Mesh", _Measured)  # noqa: B010 - mypy does not let a module's name be replaced
    _Measured.notes = []
    found = []
    for number, study in enumerate(studies):
        place = folder / str(number)
        ledger = gm.Ledger(place / f"site{site}.ledger", epsilon=2 * EPSILON, delta=10 * DELTA)
        lines: list[tuple[str, float]] = []
        private = run(
            study,
            table,
            site=site,
            ledger=ledger,
            keys=place / "keys",
            progress=lambda line, lines=lines: lines.append((line, time.perf_counter())),  # type: ignore[misc]
        )
        lines.append(("end", time.perf_counter()))
        found.append((private.to_bytes(), lines, _Measured.notes[:]))
        _Measured.notes.clear()
    results.put((site, found))


def joint_releases(schema: Any, tables: list[Any], *, colluding: int, number: int = 1) -> dict[int, list[Any]]:
    """Make joint releases by processes on the loopback interface; return what each site has of them."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        studies = []
        for index in range(number):
            sockets = [socket.create_server(("127.0.0.1", 0)) for _ in tables]
            addresses = {f"site {i}": f"127.0.0.1:{own.getsockname()[1]}" for i, own in enumerate(sockets, 1)}
            for own in sockets:
                own.close()
            study = Study.new(
                "loopback", schema, addresses, epsilon=EPSILON, delta=DELTA, colluding=colluding, timeout=WAIT
            )
            for site in range(1, len(tables) + 1):
                make_keys(Path(folder) / str(index) / "keys", site, study.release)
            studies.append(study)
        results = context.Queue()
        processes = [
            context.Process(target=_site, args=(site, studies, table, Path(folder), results), daemon=True)
            for site, table in enumerate(tables, 1)
        ]
        for process in processes:
            process.start()
        found = dict(results.get(timeout=WAIT) for _ in processes)
        for process in processes:
            process.join()
    for files in zip(*([content for content, _, _ in found[site]] for site in found), strict=True):
        if len(set(files)) > 1:
            raise RuntimeError("the sites have different files")
    return found


# ---------------------------------------------------------------------------------------------------------------
# Time and traffic
def measured(columns: int, number: int, rows: int = 20_000) -> dict[str, float]:
    """Seconds of the slowest site and bytes sent by a site in a pass: the median over the passes after the first."""
    rng = np.random.default_rng(0)
    schema = {f"x{i}": [-4.0, 4.0] for i in range(columns)}
    mix = rng.normal(size=(columns, columns)) / math.sqrt(columns)
    tables = [dict(zip(schema, (rng.normal(size=(rows, columns)) @ mix).T, strict=True)) for _ in range(number)]
    found = joint_releases(schema, tables, colluding=(number - 1) // 2)
    whole, adding, sent = [], [], []
    for [(_, lines, notes)] in found.values():
        moments = [at for _, at in lines]
        passes = [i for i, (line, _) in enumerate(lines) if line.startswith("Pass") and "norms" not in line and i > 2]
        whole.append([moments[i + 1] - moments[i] for i in passes if not lines[i][0].endswith("Pass 1")])
        matrices = [note for note in notes if note[0] in {lines[i][0] for i in passes}]
        adding.append([seconds for _, seconds, _ in matrices])
        sent.append([count for _, _, count in matrices if count > 10_000] or [count for _, _, count in matrices])
    total = max(lines[-1][1] for [(_, lines, _)] in found.values()) - min(
        next(at for line, at in lines if line.startswith("all sites")) for [(_, lines, _)] in found.values()
    )
    return {
        "columns": columns,
        "sites": number,
        "rows a site": rows,
        "seconds a pass": float(np.median(np.max(whole, axis=0))),
        "of these adding": float(np.median(np.max(adding, axis=0))),
        "kB sent a site and pass": float(np.median(np.concatenate(sent))) / 1000,
        "seconds a release": total,
    }


def times() -> pd.DataFrame:
    """The table of time and traffic."""
    return pd.DataFrame([measured(columns, number) for columns in (20, 100) for number in (3, 5)])


# ---------------------------------------------------------------------------------------------------------------
# Accuracy
PREDICTORS = ["educ_years", "experience", "experience_sq", "female"]
BY = ("three sites", "curator")


def accuracy(releases: int) -> pd.DataFrame:
    """Standard errors and errors of the wage equation, joint over central."""
    table = DEVELOPMENT["cps2024_log"]()
    frame, schema = table.frame, dict(table.schema)
    place = np.random.default_rng(0).integers(0, 3, len(frame))
    parts = [frame[place == site] for site in range(3)]
    made = joint_releases(schema, parts, colluding=1, number=releases)
    joint = [gm.Release.from_bytes(content) for content, _, _ in made[1]]
    warnings.filterwarnings("ignore", "These rows were already released")
    central = [gm.release(frame, schema, epsilon=EPSILON, delta=DELTA) for _ in range(releases)]
    rows = []
    for name, released in zip(BY, (joint, central), strict=True):
        for private in released:
            fitted = private.ols("log_wage", PREDICTORS)
            coded, weights = private.topcode(frame), np.sqrt(private.weights(frame))
            X = np.column_stack([np.ones(len(coded)), coded[PREDICTORS].to_numpy(float)])
            exact = np.linalg.lstsq(X * weights[:, None], coded["log_wage"].to_numpy(float) * weights, rcond=None)[0]
            for coefficient, truth in zip(PREDICTORS, exact[1:], strict=True):
                term = next(
                    term for term in fitted.params if term.startswith(coefficient) and _matches(term, coefficient)
                )
                low, high = fitted.conf_int()[term]
                rows.append(
                    {
                        "by": name,
                        "coefficient": coefficient,
                        "bse": fitted.bse[term],
                        "error": fitted.params[term] - truth,
                        "held": low <= truth <= high,
                    }
                )
    seen = pd.DataFrame(rows).groupby(["coefficient", "by"])
    found = {
        "standard error": seen["bse"].median(),
        "root mean squared error": np.sqrt(seen["error"].apply(lambda error: (error**2).mean())),
        "coverage": seen["held"].mean(),
    }
    columns = {f"{what}, {by}": values.xs(by, level="by") for what, values in found.items() for by in BY}
    wide = pd.DataFrame(columns)
    for what in list(found)[:2]:
        wide[f"{what}, ratio"] = wide[f"{what}, {BY[0]}"] / wide[f"{what}, {BY[1]}"]
    return wide


def _matches(term: str, coefficient: str) -> bool:
    rest = term.removeprefix(coefficient)
    return not rest or not rest.startswith("_")


def main() -> None:
    """Run one of the two experiments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["time", "accuracy"])
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = times() if options.what == "time" else accuracy(options.releases)
    print((found.T if options.what == "accuracy" else found).to_string(float_format="%.4g"))
    if options.out is not None:
        found.to_csv(options.out, index=options.what == "accuracy", float_format="%.5g")


if __name__ == "__main__":
    main()
