"""Run a subject many times on both tables and report the lower bounds on ε."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from audit.bounds import lower_bounds
from audit.subjects import SUBJECTS, Subject
from gaussmix._types import Floats
from gaussmix.errors import BudgetWarning
from gaussmix.report.plots import drawn

CURVE = (0.1, 0.03, 0.01)
"""Further δ at which a claimed curve is tested."""

_CHUNK = 250  # runs of one job


@dataclass(frozen=True)
class Point:
    """The claimed ε and its lower bound at one δ."""

    delta: float
    claimed: float
    lower_bound: float


@dataclass(frozen=True)
class Audit:
    """The result of an attack on one subject.

    All ``points`` hold jointly with the given confidence. The first is at the claimed δ, the others are on the claimed
    curve, if there is one. ``curve`` has claimed pairs of δ and ε on a fine grid, for a figure.
    """

    subject: str
    description: str
    epsilon: float
    delta: float
    runs: int  # on each of the two tables
    confidence: float
    points: tuple[Point, ...]
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no lower bound exceeds its claim."""
        return all(point.lower_bound <= point.claimed for point in self.points)

    @property
    def tightness(self) -> float:
        """Lower bound over claimed ε, at the claimed δ."""
        return self.points[0].lower_bound / self.points[0].claimed

    def to_dict(self) -> dict[str, Any]:
        """Return all but the curve, for JSON."""
        fields = dataclasses.asdict(self) | {"holds": self.holds, "tightness": self.tightness}
        del fields["curve"]
        return fields

    def __str__(self) -> str:
        first = self.points[0]
        return (
            f"{self.subject}: claim {'holds' if self.holds else 'VIOLATED'}, ε ≥ {first.lower_bound:.3f} of "
            f"{first.claimed:.3f} at δ = {first.delta:g} ({self.runs:,} runs, {100 * self.confidence:.4g}% confidence)"
        )


def run(
    subject: str | Callable[..., Subject],
    *,
    runs: int = 10_000,
    epsilon: float = 1.0,
    delta: float = 1e-3,
    confidence: float = 0.95,
    pool: Executor | None = None,
) -> Audit:
    """Attack one subject.

    Parameters
    ----------
    subject : str or callable
        A name of `SUBJECTS`, or a function of ``epsilon`` and ``delta`` that returns a `Subject`.
    runs : int
        Number of runs on each of the two tables.
    epsilon, delta : float
        The claimed budget.
    confidence : float
        Joint confidence of all bounds. For several audits see `shared_confidence`.
    pool : Executor, optional
        Processes that share the runs. Default: run in this process.

    Examples
    --------
    >>> run("sketch", runs=400).holds
    True
    """
    make = SUBJECTS[subject] if isinstance(subject, str) else subject
    sizes = [min(_CHUNK, runs - start) for start in range(0, runs, _CHUNK)]
    jobs = [(make, epsilon, delta, present, size) for size in sizes for present in (True, False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # a large δ, so that few runs suffice
        made = make(epsilon=epsilon, delta=delta)
        done = track(
            map(_observe, jobs) if pool is None else pool.map(_observe, jobs),
            description=f"Attacking {made.description}",
            total=len(jobs),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        scores = list(done)
        claims = [(delta, epsilon), *_claims(made, [at for at in CURVE if at > delta])]
        curve = _claims(made, np.geomspace(delta, max(CURVE), 30).tolist() if delta < max(CURVE) else [])
    present, absent = np.concatenate(scores[::2]), np.concatenate(scores[1::2])
    bounds = lower_bounds(present, absent, [at for at, _ in claims], confidence=confidence)
    points = tuple(Point(at, claimed, bound) for (at, claimed), bound in zip(claims, bounds, strict=True))
    name = subject if isinstance(subject, str) else made.description
    return Audit(name, made.description, epsilon, delta, runs, confidence, points, tuple(curve))


def _observe(job: tuple[Callable[..., Subject], float, float, bool, int]) -> Floats:
    """Run one job. It makes its own subject: a pickled generator would draw the same noise in every process."""
    make, epsilon, delta, present, runs = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        warnings.filterwarnings("ignore", message="These rows were already released", category=UserWarning)
        return make(epsilon=epsilon, delta=delta).observe(present=present, runs=runs)


def _claims(subject: Subject, deltas: Sequence[float]) -> list[tuple[float, float]]:
    """Return δ and claimed ε wherever one is claimed."""
    claims = [(delta, subject.claimed(delta)) for delta in deltas]
    return [(delta, claimed) for delta, claimed in claims if claimed is not None]


def plot(path: str | Path, audits: Sequence[Audit]) -> None:
    """Draw claimed ε and lower bounds against δ, one panel for each audit, to a PNG, SVG or PDF file."""
    across = min(len(audits), 4)
    down = math.ceil(len(audits) / across)
    with drawn(path, 2.9 * across + 0.6, 2.7 * down + 0.6, force=True) as figure:
        panels = figure.subplots(down, across, squeeze=False, sharey=True)
        for panel in panels.flat[len(audits) :]:
            panel.set_visible(False)
        for panel, audit in zip(panels.flat, audits, strict=False):
            deltas = [point.delta for point in audit.points]
            panel.semilogx(*np.reshape(audit.curve, (-1, 2)).T, "-", color="#0072B2")
            panel.semilogx(deltas, [point.claimed for point in audit.points], "o", color="#0072B2", label="claimed")
            bounds = [point.lower_bound for point in audit.points]
            panel.semilogx(deltas, bounds, "^", color="#D55E00", label="lower bound")
            panel.set_xticks(deltas, [f"{delta:g}" for delta in deltas])
            panel.minorticks_off()
            panel.set_title(audit.description, fontsize=9)
            panel.grid(alpha=0.3)
        for panel in panels[-1]:
            panel.set_xlabel("δ")
        for panel in panels[:, 0]:
            panel.set_ylabel("ε")
        panels.flat[0].set_ylim(bottom=0)
        panels.flat[0].legend(frameon=False, fontsize=8)
