"""Noise against signal of every encoded column, as the page shows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gaussmix.models.release import Release

__all__ = ["SIGNAL_WORDS", "signals_of"]

SIGNAL_WORDS = (
    "Signal is the sum of squares of each encoded column (bounds mapped to plus and minus the column's weight), "
    "estimated from the release; noise is the standard deviation that privacy adds to an entry of the second moment "
    "where the table is empty. A column whose signal is near the noise says little."
)


def signals_of(release: Release) -> list[dict[str, Any]]:
    """Sum of squares of every encoded column beside the noise."""
    diagonal = np.diagonal(release.second_moment).tolist()
    return [
        {
            "name": name,
            "signal": value,
            "signal_text": f"{value:.4g}",
            "noise": noise,
            "noise_text": f"{noise:.4g}",
            "ratio_text": f"{value / noise:.3g}" if noise > 0 else "no noise",
        }
        for name, value, noise in zip(
            release.schema.names, diagonal, release.statistic.column_noise.tolist(), strict=True
        )
    ]
