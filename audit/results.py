"""What an audit found."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Audit", "Point"]


@dataclass(frozen=True)
class Point:
    """One δ: the ε that is claimed there, and the ε that the attack shows."""

    delta: float
    claimed: float
    shown: float

    @property
    def holds(self) -> bool:
        """Whether the attack stays within the claim."""
        return self.shown <= self.claimed


@dataclass(frozen=True)
class Audit:
    """One mechanism under attack.

    Attributes
    ----------
    subject, words, neighbours : str
        Its name, what it is, and the two tables that were told apart.
    epsilon, delta : float
        The budget that was asked for.
    runs : int
        With the row, and as many without it.
    confidence : float
        With which all points hold together.
    points : tuple of Point
        The claimed δ first, then others along the curve where one is claimed.
    curve : tuple of pairs
        δ and the ε that is claimed there, on a fine grid, to be drawn; empty where the claim is one point.
    """

    subject: str
    words: str
    neighbours: str
    epsilon: float
    delta: float
    runs: int
    confidence: float
    points: tuple[Point, ...]
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no point is beyond the claim."""
        return all(point.holds for point in self.points)

    @property
    def share(self) -> float:
        """How much of the claimed ε the attack shows at the claimed δ: 1 would be a tight claim and attack."""
        return self.points[0].shown / self.points[0].claimed

    def as_plain(self) -> dict[str, Any]:
        """For JSON, without what is there to be drawn."""
        plain = dataclasses.asdict(self) | {"holds": self.holds, "share": self.share}
        del plain["curve"]
        return plain

    def to_json(self) -> str:
        """One object."""
        return json.dumps(self.as_plain(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        first = self.points[0]
        verdict = "holds" if self.holds else "BROKEN"
        return (
            f"{self.subject}: {verdict}. ε ≥ {first.shown:.3f} of {first.claimed:.3f} claimed at δ = {first.delta:g} "
            f"({self.runs:,} runs each, {100 * self.confidence:.4g}% confidence)"
        )
