"""Kill ``gaussmix release`` at random moments and count what is left: ``python tests/kills.py 200``.

A file without an entry in the ledger would be a release that nobody accounts for: there must be none. An entry without
a file is budget lost, which a kill between the two may cause and nothing else.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import gaussmix as gm
from example_tables import SCHEMA, patients

# Imports take most of a run and are of no interest: the child says when they are over.
CHILD = "import sys; from gaussmix.cli import main; import gaussmix.cli.tables; print('ready', flush=True); main()"
ROWS_PER_RELEASE = 20


@dataclass(frozen=True)
class Count:
    """What some rounds left behind."""

    rounds: int
    killed: int
    files: int
    entries: int
    unrecorded: int  # files whose release is in no entry
    lost: int  # entries without a file
    lost_unkilled: int  # of rounds that ended by themselves
    damaged: int  # files that cannot be loaded


def count_kills(folder: Path, rounds: int, *, seed: int = 0) -> Count:
    """Run releases, each killed after a random time, and look at ledger and files after each."""
    rng = random.Random(seed)
    patients(2000).to_parquet(folder / "rows.parquet")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    ledger = gm.Ledger(folder / "l.ledger", epsilon=1.0, delta=1e-6, sketch_rows=ROWS_PER_RELEASE * (rounds + 1))
    killed = unrecorded = lost = lost_unkilled = damaged = 0
    usual = _duration(folder, ledger, folder / "first.parquet", None)[1]
    entries = len(ledger.entries())
    for number in range(rounds):
        out = folder / f"{number}.parquet"
        was_killed, _ = _duration(folder, ledger, out, rng.uniform(0, 1.2 * usual))
        recorded = len(ledger.entries()) - entries
        entries += recorded
        killed += was_killed
        unrecorded += out.exists() and not recorded
        lost += recorded and not out.exists()
        lost_unkilled += bool(recorded and not out.exists() and not was_killed)
        if out.exists():
            try:
                gm.load(out)
            except ValueError:
                damaged += 1
    files = sum((folder / f"{number}.parquet").exists() for number in range(rounds))
    return Count(rounds, killed, files, entries - 1, unrecorded, lost, lost_unkilled, damaged)


def _duration(folder: Path, ledger: gm.Ledger, out: Path, kill_after: float | None) -> tuple[bool, float]:
    """Whether a release was killed, and how long it ran after its imports."""
    arguments = ["release", "rows.parquet", "-s", "schema.json", "--ledger", ledger.path, "-k", ROWS_PER_RELEASE]
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, [*arguments, "-o", out])],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()
    start = time.monotonic()
    try:
        process.wait(kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    process.stdout.close()
    return process.returncode == -signal.SIGKILL, time.monotonic() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(count_kills(Path(name), int(sys.argv[1])))
