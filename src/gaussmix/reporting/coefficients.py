"""Coefficients of every target, and noise against signal, as the page shows them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gaussmix.models.raw_units import is_marked
from gaussmix.models.release import Release
from gaussmix.models.rendering import NOT_IDENTIFIED, p_value
from gaussmix.models.summary import Summary
from gaussmix.reporting.numbers import number
from gaussmix.tables.columns import Boolean, Numeric, Vector
from gaussmix.tables.parts import Block, EncodedColumn
from gaussmix.tables.schema import Schema

__all__ = ["SIGNAL_WORDS", "model_of", "signals_of", "targets_of"]

SIGNAL_WORDS = (
    "Signal is the sum of squares of each encoded column (bounds mapped to plus and minus the column's weight), "
    "estimated from the release; noise is the standard deviation that privacy adds to an entry of the second moment "
    "where the table is empty. A column whose signal is near the noise says little."
)


def targets_of(schema: Schema) -> list[str]:
    """Columns that others may explain: numbers, true and false."""
    if len(schema.parts) == 1 and not schema.intercept:
        return []
    return [
        name
        for name, part in schema.parts.items()
        if isinstance(part, Numeric | Boolean) and not is_marked(schema, name)
    ]


def model_of(summary: Summary, schema: Schema, alpha: float) -> dict[str, Any]:
    """A model as the page shows it."""
    encoded = {column.name: column for column in schema.encoded}
    rows = [
        _coefficient(schema, encoded[name], summary.params[name], interval, summary.pvalues[name])
        for name, interval in summary.conf_int(alpha).items()
    ]
    missing = sum(row["low"] is None for row in rows)
    words = [f"{len(rows) - missing} of {len(rows)} coefficients are identified at this budget."]
    if not missing and not summary.noise_dominates:
        words.append(f"R² is about {summary.rsquared:.3f}.")
    if math.isfinite(summary.strength):
        side = "above" if summary.strength >= 0 else "below"
        words.append(f"The weakest direction is {abs(summary.strength):.1f} standard deviations {side} the noise.")
    return {"target": summary.response_name, "rows": rows, "words": " ".join(words)}


def _coefficient(
    schema: Schema, column: EncodedColumn, estimate: float, interval: tuple[float, float], p: float
) -> dict[str, Any]:
    meaning, span = _meaning(schema, column)
    row: dict[str, Any] = {"name": column.name, "meaning": meaning, "span": span, "p_text": p_value(p)}
    if not all(math.isfinite(value) for value in (estimate, *interval)):
        blank = {"estimate": None, "low": None, "high": None}
        return row | blank | {"estimate_text": "", "interval_text": NOT_IDENTIFIED, "range_text": ""}
    low, high = interval
    return row | {
        "estimate": estimate,
        "low": low,
        "high": high,
        "estimate_text": f"{estimate:.4g}",
        "interval_text": f"{low:.4g} to {high:.4g}",
        "range_text": _across(span, estimate, low, high),
    }


def _across(span: float | None, estimate: float, low: float, high: float) -> str:
    if span is None or span == 1:
        return "" if span is None else "the same"
    return f"{estimate * span:.4g} ({low * span:.4g} to {high * span:.4g})"


def _meaning(schema: Schema, column: EncodedColumn) -> tuple[str, float | None]:
    """What a coefficient is for, and the declared range of its column; no range for the intercept."""
    if column.source is None:
        return "where all else is 0, or at its first level", None
    declared = schema.parts[column.source]
    if isinstance(declared, Numeric):
        span = declared.upper - declared.lower
        return f"per unit, {number(declared.lower)} to {number(declared.upper)}", span
    if isinstance(declared, Boolean):
        return "true against false", 1.0
    if isinstance(declared, Vector):
        return "per unit", None
    if isinstance(declared, Block):
        return ("missing against the middle of its bounds" if declared.term is None else "per unit of the term"), None
    first = schema.encoded[schema.groups[column.source][0]].name
    return f"against {first}" if schema.intercept else "of this level", 1.0


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
