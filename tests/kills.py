"""Kill ``gaussmix release`` at random moments and count what is left: ``python tests/kills.py 200``.

A file without an entry in the ledger would be a release that nobody accounts for: there must be none. An entry without
a file is budget lost, which a kill between the two may cause and nothing else.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import gaussmix as gm
from example_tables import SCHEMA, patients

# Imports take most of a run and are of no interest: one process has them, and each release is a fork of it, killed if
# it does not end in time. Nobody else has waited for the child, so that its number is still its own.
FORKS = """
import json, os, select, signal, sys, time
import gaussmix.cli.data
from gaussmix.cli import main

for line in sys.stdin:
    kill_after, arguments = json.loads(line)
    start = time.monotonic()
    if not (child := os.fork()):
        os.dup2(2, 1)
        sys.argv[1:] = arguments
        try:
            main()
        finally:
            os._exit(0)  # without tidying up, which takes most of the time that is left and touches no file
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], kill_after)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    print(json.dumps([killed, time.monotonic() - start]), flush=True)
"""


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
    ledger = gm.Ledger(folder / "l.ledger", epsilon=1.0, delta=1e-6, releases=rounds + 1)
    killed = unrecorded = lost = lost_unkilled = damaged = 0
    run = _releases(folder, ledger)
    next(run)
    usual = run.send((folder / "first.parquet", None))[1]
    entries = len(ledger.entries())
    for number in range(rounds):
        out = folder / f"{number}.parquet"
        was_killed, seconds = run.send((out, rng.uniform(0, 1.2 * usual)))
        usual = usual if was_killed else min(usual, seconds)  # the first has its files to find
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
    run.close()
    files = sum((folder / f"{number}.parquet").exists() for number in range(rounds))
    return Count(rounds, killed, files, entries - 1, unrecorded, lost, lost_unkilled, damaged)


def _releases(folder: Path, ledger: gm.Ledger) -> Generator[tuple[bool, float], tuple[Path, float | None], None]:
    """Send an output and when to kill; get whether the release was killed, and how long it ran."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        result = False, 0.0
        while True:
            out, kill_after = yield result
            options = ["-s", "schema.json", "--ledger", str(ledger.path), "--passes", "1", "-o", str(out)]
            process.stdin.write(json.dumps([kill_after, ["release", "rows.parquet", *options]]) + "\n")
            process.stdin.flush()
            result = tuple(json.loads(process.stdout.readline()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(count_kills(Path(name), int(sys.argv[1])))
