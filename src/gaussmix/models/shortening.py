"""What a release lost by shortening rows that are far out in its metric, as the release itself shows it.

>>> str(Shortened(weight=0.0042, deviation=0.0016))
'about 0.42 ± 0.16 % of the weight of all rows'
>>> str(Shortened(weight=-0.001, deviation=0.0016))
'about 0 ± 0.16 % of the weight of all rows'
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Shortened"]


@dataclass(frozen=True)
class Shortened:
    """What was lost in the pass that intervals come from. A row z longer than the clip has the weight clip/‖z‖².

    Attributes
    ----------
    weight : float
        1 less the mean weight of a row: noisy, so that it may be negative.
    deviation : float
        Standard deviation of its noise; NaN where it is a guess from a histogram alone.
    """

    weight: float
    deviation: float

    def __str__(self) -> str:
        noise = "" if math.isnan(self.deviation) else f" ± {100 * self.deviation:.2g}"
        return f"about {100 * max(self.weight, 0.0):.2g}{noise} % of the weight of all rows"
