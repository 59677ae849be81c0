"""Numbers as text, rounded towards caution."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Any

__all__ = ["number", "one_in", "plain_value", "up"]


def up(value: float) -> str:
    """Three digits, rounded up."""
    if not math.isfinite(value):
        return "∞"
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(value)):.3g}"


def number(value: float) -> str:
    """A declared number with all of its digits."""
    if not math.isfinite(value):
        return "∞ (infinite)"
    return repr(value).removesuffix(".0")


def one_in(probability: float) -> str:
    """A small probability as one in so many."""
    if not 1e-15 <= probability <= 0.1:
        return number(probability)
    return f"one in {math.floor(1 / probability + 1e-6):,}"


def plain_value(value: Any) -> str:
    """A value, or a dictionary of them, with all digits."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain_value(part)}" for key, part in value.items())
    if value is None:
        return "none"
    return number(value) if isinstance(value, float) else str(value)
