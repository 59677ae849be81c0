"""What a release lost by shortening rows that are far out in its metric, as the release itself shows it.

>>> str(Shortened(weight=0.0042, deviation=0.0016, expected=0.0031))
'about 0.42 ± 0.16 % of the weight of all rows (by its histogram 0.31 %)'
>>> str(Shortened(weight=-0.001, deviation=0.0016, expected=0.0031))
'about 0 ± 0.16 % of the weight of all rows (by its histogram 0.31 %)'
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
    weight, deviation : float
        1 less the mean weight of a row, and the standard deviation of its noise, which may make it negative. NaN
        where no intercept's entry shows the weights.
    expected : float
        The same as the last histogram has it: less noise, but blind to rows too few for its bins.
    """

    weight: float
    deviation: float
    expected: float

    def __str__(self) -> str:
        expected = f"{100 * self.expected:.2g} %"
        if math.isnan(self.weight):
            return f"about {expected} of the weight of all rows"
        shown = f"{100 * max(self.weight, 0.0):.2g} ± {100 * self.deviation:.2g} %"
        return f"about {shown} of the weight of all rows (by its histogram {expected})"
