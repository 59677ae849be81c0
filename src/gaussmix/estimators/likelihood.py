"""How many private steps on the likelihood a classifier takes: a rule in declared quantities."""

from __future__ import annotations

import math
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.errors import ArgumentError
from gaussmix.models.newton import WORTH_STEPS
from gaussmix.models.schedules import STEPS

__all__ = ["Steps", "number_of_steps"]

Steps = int | Literal["auto"]

AUTOMATIC_STEPS = 4

LARGE_EPSILON = 1.0
"""Where the number of rows is not public, steps are taken above it."""


def number_of_steps(
    steps: Steps, *, columns: int, epsilon: float, delta: float, n_rows: int | None, alone: bool
) -> int:
    """None, or as many as are asked for; ``"auto"``: 4 where they are worth their budget.

    They are from x = nμ/d = 20 on, d the features and the intercept. Without a public number of rows they are taken for
    ε > 1; never of a ledger, where ``alone`` is false, or without noise.
    """
    if steps != "auto":
        if isinstance(steps, bool) or steps not in (0, *STEPS):
            raise ArgumentError(f'steps must be "auto", 0 or one of {", ".join(map(str, STEPS))}, got {steps!r}.')
        return int(steps)
    if not alone or math.isinf(check.positive(epsilon=epsilon)):
        return 0
    worth = epsilon > LARGE_EPSILON
    if n_rows is not None:
        worth = check.positive_integer(n_rows=n_rows) * gaussian_mu(epsilon, delta) / columns >= WORTH_STEPS
    return AUTOMATIC_STEPS if worth else 0
