"""Signal-to-noise ratio of every encoded column, as shown on the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gaussmix.models.release import Release

__all__ = ["SIGNAL_WORDS", "signals_of"]

SIGNAL_WORDS = (
    "Signal is the sum of squares of an encoded column (bounds mapped to plus and minus the column's weight), "
    "estimated from the release. Noise is the standard deviation of the privacy noise on an entry of the second moment "
    "of an empty table. A column with a ratio near 1 carries little information."
)


def signals_of(release: Release) -> list[dict[str, Any]]:
    """Return signal, noise and their ratio for every encoded column as text, and the length of its bar in percent.

    Bars are logarithmic: 0 for a signal that does not exceed the noise, 100 for the largest ratio.
    """
    signals, noises = np.diagonal(release.second_moment).tolist(), release.statistic.column_noise.tolist()
    ratios = [signal / noise for signal, noise in zip(signals, noises, strict=True) if noise > 0]
    longest = math.log10(max([10.0, *ratios]))
    return [
        {
            "name": name,
            "signal": f"{value:.4g}",
            "noise": f"{noise:.4g}",
            "ratio": f"{value / noise:.3g}" if noise > 0 else "no noise",
            "bar": round(100 * math.log10(value / noise) / longest, 1) if value > noise > 0 else 0.0,
        }
        for name, value, noise in zip(release.schema.names, signals, noises, strict=True)
    ]
