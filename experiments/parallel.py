"""The one way to run trials: many small jobs in parallel, their rows in one table that does not depend on how many."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

Rows = list[dict[str, object]]


def run_all(
    function: Callable[..., Rows],
    jobs: Iterable[tuple[Any, ...]],
    *,
    folder: Path | None = None,
    processes: int | None = None,
) -> pd.DataFrame:
    """The rows that ``function(*job)`` gives for all jobs, in the order of the jobs.

    Each job seeds its own generator and has one thread, so that the table is the same for any number of processes.
    With a ``folder`` each job's rows are kept there as a file: a run that was stopped goes on where it was. A file's
    name is made of the job's arguments (folders left out), so a folder must hold the results of one function and one
    version of the code.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as forgotten:
            return run_all(function, jobs, folder=Path(forgotten), processes=processes)
    folder.mkdir(parents=True, exist_ok=True)
    files = {job: folder / _file_name(job) for job in jobs}
    missing = [(function, job, path) for job, path in files.items() if not path.exists()]
    with multiprocessing.get_context("fork").Pool(processes or os.cpu_count(), initializer=_one_thread) as pool:
        done = pool.imap_unordered(_run, missing)
        shown = function.__name__.replace("_", " ")
        for _ in track(done, total=len(missing), description=shown, console=Console(stderr=True)):
            pass
    # As JSON, which gives every number back to its last bit; pandas' CSV does not in all versions.
    return pd.DataFrame([row for path in files.values() for row in json.loads(path.read_text())])


def forget(folder: Path, prefixes: Sequence[str] = ("",)) -> None:
    """Remove the results of an earlier version of the code, of jobs whose first argument is one of the prefixes."""
    for prefix in prefixes:
        for path in folder.glob(f"**/{prefix}*.json"):
            path.unlink()


def _file_name(job: tuple[Any, ...]) -> str:
    return "_".join(str(part) for part in job if not isinstance(part, Path)) + ".json"


def _one_thread() -> None:
    threadpool_limits(1)


def _run(task: tuple[Callable[..., Rows], tuple[Any, ...], Path]) -> None:
    function, job, path = task
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(function(*job)))
    unfinished.rename(path)
