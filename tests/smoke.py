"""Use an installed gaussmix with no more than its own dependencies: ``python smoke.py [GOLDEN]``.

Run by ``tests/release_check.py`` in empty environments, outside the checkout. With the extra ``plots`` it also makes
the report and runs the demonstration. GOLDEN is a folder with a file of every format.
"""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import gaussmix as gm

SCHEMA = {"age": [18, 95], "sex": {"levels": ["f", "m"]}, "smoker": "boolean", "cost": [0, 40]}
WITH_PLOTS = importlib.util.find_spec("jinja2") is not None


def patients(n: int = 5_000) -> pa.Table:
    """Return a table in which costs rise with age."""
    rng = np.random.default_rng(0)
    age, smoker = rng.uniform(18, 95, n), rng.random(n) < 0.3
    cost = 2 + 0.1 * age + 4 * smoker + rng.normal(0, 1, n)
    return pa.table({"age": age, "sex": rng.choice(["f", "m"], n), "smoker": smoker, "cost": cost})


def library(folder: Path) -> None:
    """Make a release through a ledger, fit models, and load the file."""
    ledger = gm.Ledger(folder / "patients.ledger", epsilon=3.0, delta=1e-6, releases=2)
    private = gm.release(
        patients(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=folder / "patients.release.parquet"
    )
    model = private.ols("cost")
    low, high = model.summary().conf_int()["smoker"]
    assert low < high, (low, high)
    assert np.isfinite(private.logit("smoker").odds_ratios().columns["odds.ratio"]).all()
    assert gm.load(folder / "patients.release.parquet").fingerprint == private.fingerprint
    assert ledger.remaining().mu > 0
    gm.LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(np.eye(3), [0.1, 0.2, 0.3])


def commands(folder: Path) -> None:
    """Run commands on the same table and release."""
    program = shutil.which("gaussmix", path=str(Path(sys.executable).parent))
    assert program is not None, "the command gaussmix is not installed"
    pa.csv.write_csv(patients(), folder / "patients.csv")
    asked = [
        ["--version"],
        ["schema", "patients.csv", "-o", "template.json"],
        ["account", "-k", "250", "-e", "1", "-d", "1e-6"],
        ["ols", "patients.release.parquet", "cost"],
        ["describe", "patients.release.parquet"],
        ["verify", "patients.release.parquet"],
        ["ledger", "show", "patients.ledger"],
    ]
    if WITH_PLOTS:
        asked += [["report", "patients.release.parquet", "-o", "page.html"], ["demo", "--out", "demo"]]
    for words in asked:
        done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
    if WITH_PLOTS:
        assert (folder / "page.html").stat().st_size > 10_000
        assert (folder / "demo" / "demo.report.html").is_file()


def formats(folder: Path, golden: Path) -> int:
    """Read every golden file, and return their number."""
    read = 0
    for file in sorted(golden.iterdir()):
        if file.name == "paper.parquet":
            gm.paper.Sketch.load(file)
        elif file.suffix == ".parquet":
            gm.load(file)
        elif file.suffix == ".moments":
            gm.Moments.load(file)
        elif file.suffix == ".ledger":
            copied = Path(shutil.copyfile(file, folder / file.name))
            copied.chmod(0o600)
            gm.Ledger.open(copied)
        else:
            continue
        read += 1
    assert read > 0, golden
    return read


def main() -> None:
    """Run all of it, and print one line."""
    from gaussmix.data import kernels

    home = Path(gm.__file__).parent
    assert (home / "py.typed").is_file()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library(folder)
        commands(folder)
        read = formats(folder, Path(sys.argv[1])) if sys.argv[1:] else 0
    compiled = "compiled" if kernels.library() is not None else "without compiled functions"
    extras = "with plots" if WITH_PLOTS else "alone"
    print(
        f"gaussmix {gm.__version__} {extras}, {compiled}, {read} golden files: "
        f"Python {sys.version.split()[0]}, numpy {np.__version__}, SQLite {sqlite3.sqlite_version}"
    )


if __name__ == "__main__":
    main()
