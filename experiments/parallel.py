"""Many small jobs in parallel, each kept as a file, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

Rows = list[dict[str, object]]


def run_all(
    function: Callable[..., Rows], jobs: Iterable[tuple[Any, ...]], *, folder: Path, processes: int | None = None
) -> pd.DataFrame:
    """The rows that ``function(*job)`` gives for all jobs, in the order of the jobs.

    Results that are in ``folder`` are read; the others are computed in parallel and put there. A job's name is made of
    its arguments (folders left out), so a folder must hold the results of one function and one version of the code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = list(jobs)
    files = {job: folder / ("_".join(str(part) for part in job if not isinstance(part, Path)) + ".csv") for job in jobs}
    missing = [(function, job, path) for job, path in files.items() if not path.exists()]
    processes = processes or os.cpu_count()
    console = Console(stderr=True)
    with multiprocessing.get_context("fork").Pool(processes, initializer=one_thread) as pool:
        done = pool.imap_unordered(_run, missing)
        for _ in track(done, total=len(missing), description=folder.name, console=console):
            pass
    return pd.concat([pd.read_csv(path) for path in files.values()], ignore_index=True)


def forget(folder: Path, prefixes: Sequence[str] = ("",)) -> None:
    """Remove the results of an earlier version of the code, of jobs whose first argument is one of the prefixes."""
    for prefix in prefixes:
        for path in folder.glob(f"**/{prefix}*.csv"):
            path.unlink()


def one_thread() -> None:
    """In a process: as many processes as cores, one thread each."""
    threadpool_limits(1)


def _run(task: tuple[Callable[..., Rows], tuple[Any, ...], Path]) -> None:
    function, job, path = task
    unfinished = path.with_suffix(".part")
    pd.DataFrame(function(*job)).to_csv(unfinished, index=False)
    unfinished.rename(path)
