"""A figure of audits: the claimed curve, and what the attack shows. Needs the extra ``gaussmix[plots]``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from audit.results import Audit
from gaussmix.errors import ArgumentError
from gaussmix.reporting.plots import drawn

__all__ = ["draw_audits"]

_ACROSS = 4


def draw_audits(path: str | Path, audits: Sequence[Audit], *, force: bool = False) -> None:
    """One panel for every audit: ε against δ, claimed as a curve or a point, shown as points below it."""
    if not audits:
        raise ArgumentError("audits must have at least one entry.")
    across = min(len(audits), _ACROSS)
    down = math.ceil(len(audits) / across)
    with drawn(path, 2.9 * across + 0.6, 2.7 * down + 0.6, force=force) as figure:
        panels = figure.subplots(down, across, squeeze=False, sharey=True)
        for panel in panels.flat[len(audits) :]:
            panel.set_visible(False)
        for panel, audit in zip(panels.flat, audits, strict=False):
            points = sorted(audit.points, key=lambda point: point.delta)
            deltas = np.array([point.delta for point in points])
            panel.semilogx(*np.reshape(audit.curve, (-1, 2)).T, "-", color="#0072B2")
            panel.semilogx(deltas, [point.claimed for point in points], "o", color="#0072B2", label="claimed")
            panel.semilogx(deltas, [point.shown for point in points], "^", color="#D55E00", label="shown")
            panel.set_xticks(deltas, [f"{delta:g}" for delta in deltas])
            panel.minorticks_off()
            panel.set_title(audit.words, fontsize=9)
            panel.grid(alpha=0.3)
        for panel in panels[-1]:
            panel.set_xlabel("δ")
        for panel in panels[:, 0]:
            panel.set_ylabel("ε")
        panels.flat[0].set_ylim(bottom=0)
        panels.flat[0].legend(frameon=False, fontsize=8)
