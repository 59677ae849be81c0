"""Runs of an attack, in parallel, and what they show."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn
from sklearn.tree import DecisionTreeClassifier

from audit.bounds import lower_bounds
from audit.catalogue import SUBJECTS
from audit.results import Audit, Point
from audit.subject import Subject
from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import BudgetWarning

__all__ = ["attack", "run"]

Scores = tuple[Floats, Floats]
"""Of runs with the row, and of runs without it."""

CONFIDENCE = 0.95
ALONG = (0.1, 0.03, 0.01)
"""Other δ at which the claimed curve is tested."""

_GRID = 30  # δ at which a claimed curve is drawn
_CHUNK = 250
_TRAINING = 100_000  # runs that a classifier learns from at most: more teach it nothing


def run(
    subject: str | type[Subject],
    *,
    runs: int = 10_000,
    epsilon: float = 1.0,
    delta: float = 1e-3,
    confidence: float = CONFIDENCE,
    processes: int | None = None,
    progress: bool = True,
) -> Audit:
    """Attack one mechanism.

    Parameters
    ----------
    subject : str or subclass of Subject
        A name of `SUBJECTS`, or a mechanism of one's own.
    runs : int
        With the row, and as many without it.
    epsilon, delta : float
        The budget that it is asked to keep.
    confidence : float
        With which all bounds of this audit hold together. Of several audits use `shared_confidence`.
    processes : int, optional
        Default: one for every core, or fewer for few runs; with 1 runs stay in this process.
    progress : bool
        Show a bar on a terminal.

    Returns
    -------
    Audit

    Examples
    --------
    >>> found = run("sketch", runs=400, processes=1, progress=False)
    >>> found.holds
    True
    """
    kind = SUBJECTS[check.choice(tuple(SUBJECTS), subject=subject)] if isinstance(subject, str) else subject
    name = subject if isinstance(subject, str) else kind.__name__
    runs, delta = check.positive_integer(runs=runs), check.in_interval(0, 1, delta=delta)
    epsilon, confidence = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, confidence=confidence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # δ is large so that few runs show something
        made = kind(epsilon, delta)
        present, absent = _observed(kind, epsilon, delta, runs, processes, progress=progress)
        others = [(at, made.claimed(at)) for at in ALONG if at > delta]
        claims = [(delta, epsilon), *((at, claimed) for at, claimed in others if claimed is not None)]
        shown = attack(present, absent, [at for at, _ in claims], confidence=confidence)
        curve = _curve(made, delta)
    points = tuple(Point(at, claimed, found) for (at, claimed), found in zip(claims, shown, strict=True))
    return Audit(name, kind.words, made.neighbours.words, epsilon, delta, runs, confidence, points, curve)


def _curve(subject: Subject, delta: float) -> tuple[tuple[float, float], ...]:
    """The claim from one end of the tested δ to the other."""
    grid = np.geomspace(delta, max(ALONG), _GRID) if delta < max(ALONG) else ()
    claims = [(float(at), subject.claimed(float(at))) for at in grid]
    return tuple((at, claimed) for at, claimed in claims if claimed is not None)


def attack(present: Floats, absent: Floats, deltas: Sequence[float], *, confidence: float) -> list[float]:
    """Lower bounds on ε from what was seen of runs with the row and without it, shape (runs, k) each.

    Scores are the columns and, where there are several, a classifier that was trained on one half of the runs.
    """
    half = len(present) // 2
    learnt, tested = (present[:half], absent[:half]), (present[half : 2 * half], absent[half : 2 * half])
    if present.shape[1] > 1:
        learnt, tested = _classified(learnt, tested)
    return lower_bounds(learnt, tested, deltas, confidence=confidence)


def _classified(learnt: Scores, tested: Scores) -> tuple[Scores, Scores]:
    """Scores with one more column: what a tree makes of them. It is judged on runs that it has not learnt."""
    runs = min(len(learnt[0]) // 2, _TRAINING)
    rows = np.concatenate([seen[:runs] for seen in learnt])
    tree = DecisionTreeClassifier(max_depth=8, min_samples_leaf=max(runs // 50, 5), random_state=0)
    tree.fit(rows, np.repeat([False, True], runs)[::-1])
    with_odds = [np.column_stack([seen, tree.predict_proba(seen)[:, 1]]) for seen in (*learnt, *tested)]
    return (with_odds[0][runs:], with_odds[1][runs:]), (with_odds[2], with_odds[3])


def _observed(
    kind: type[Subject], epsilon: float, delta: float, runs: int, processes: int | None, *, progress: bool
) -> tuple[Floats, Floats]:
    """Everything seen, with the row and without it."""
    sizes = [min(_CHUNK, runs - start) for start in range(0, runs, _CHUNK)]
    jobs = [(kind, epsilon, delta, there, size) for size in sizes for there in (True, False)]
    workers = min(len(sizes), os.cpu_count() or 1) if processes is None else check.positive_integer(processes=processes)
    shown = progress and sys.stderr.isatty()
    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task(f"Attacking {kind.words}", total=len(jobs))
        found: list[Floats] = []
        if workers == 1:
            for job in jobs:
                found.append(_observe(job))
                bar.advance(task)
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                for seen in pool.map(_observe, jobs):
                    found.append(seen)
                    bar.advance(task)
    return np.concatenate(found[::2]), np.concatenate(found[1::2])


def _observe(job: tuple[type[Subject], float, float, bool, int]) -> Floats:
    kind, epsilon, delta, present, runs = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        return kind(epsilon, delta).observe(present=present, runs=runs)
