"""Format numbers as text, rounding up where that is the conservative direction."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Any

__all__ = ["number", "one_in", "plain_value", "up"]


def up(value: float) -> str:
    """Format a number with three significant digits, rounded up."""
    if not math.isfinite(value):
        return "∞"
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(value)):.3g}"


def number(value: float) -> str:
    """Format a declared number with all of its digits."""
    if not math.isfinite(value):
        return "∞ (infinite)"
    return repr(value).removesuffix(".0")


def one_in(probability: float) -> str:
    """Format a small probability as "one in N"."""
    if not 1e-15 <= probability <= 0.1:
        return number(probability)
    return f"one in {math.floor(1 / probability + 1e-6):,}"


def plain_value(value: Any) -> str:
    """Format a value, or a dictionary of values, with all digits."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain_value(part)}" for key, part in value.items())
    if value is None:
        return "none"
    return number(value) if isinstance(value, float) else str(value)
