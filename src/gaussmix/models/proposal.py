"""What a proposal is: a schema whose bounds and levels were found privately, and what they cost."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gaussmix._text import plain
from gaussmix.data.schema import Schema
from gaussmix.models.certificate import Certificate

__all__ = ["Proposal"]


@dataclass(frozen=True)
class Proposal:
    """A schema with proposed bounds and levels, and its certificate. **Private**: both may be published.

    Attributes
    ----------
    schema : Schema
        Ready to be used in a release, which costs a budget of its own.
    certificate : Certificate
        What the proposal guarantees. Proposal and release together cost what a ledger says, or the sum of both.
    left_out : tuple of str
        Columns for which nothing stood out from the noise: a number whose bins, or a category whose levels, have too
        few rows each.
    """

    schema: Schema
    certificate: Certificate
    left_out: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The schema as a JSON file, which `Schema.of` and ``--schema`` read."""
        return (json.dumps(self.schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def __str__(self) -> str:
        names = plain(", ".join(self.left_out))
        left = f"\n  left out, for nothing stood out from the noise: {names}" if names else ""
        return f"{self.certificate}{left}"
