"""What is answered about a part of a table: **sensitive**. Answers of parts are added.

Gram matrices are :class:`gaussmix.tables.exact_sums.ExactSums`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gaussmix._types import Floats, Integers

__all__ = ["BinCounts", "KeptRows"]


@dataclass(frozen=True, repr=False)
class BinCounts:
    """**Sensitive**: rows by ‖z‖², for every transform, and the number of rows."""

    counts: list[Integers]
    n: int

    def __add__(self, other: BinCounts) -> BinCounts:
        return BinCounts([a + b for a, b in zip(self.counts, other.counts, strict=True)], self.n + other.n)


@dataclass(frozen=True, repr=False)
class KeptRows:
    """**Sensitive**: blocks of whole rows, in any order."""

    blocks: list[Floats]

    def __add__(self, other: KeptRows) -> KeptRows:
        return KeptRows(self.blocks + other.blocks)
