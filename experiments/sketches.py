"""The sketch that the recorded figures were drawn with."""

from __future__ import annotations

__all__ = ["LARGE_SKETCH"]

LARGE_SKETCH = 10**6
"""Rows of the exact variant's sketch: the default before the limit took its place, within 0.2 % of its noise."""
