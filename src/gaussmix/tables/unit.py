"""The privacy unit, declared: one row, or all rows that have the same value in a column.

Public: the name of the column and the number of rows that count, never a value.

>>> print(Unit("patient_id", rows=12))
one person (all rows with the same patient_id, together counted as at most 12)
>>> print(Unit("patient_id", rows=12, bound="keep"))
one person (all rows with the same patient_id, at most 12 counted)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gaussmix import _validation as check
from gaussmix.errors import ArgumentError, ArgumentTypeError, DeclarationError
from gaussmix.tables.columns import check_text
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["BOUNDS", "MOST_ROWS", "ONE_ROW", "BoundRows", "Unit"]

BoundRows = Literal["keep", "shorten"]
BOUNDS: tuple[BoundRows, ...] = ("shorten", "keep")

ONE_ROW = "one row"
"""The unit where none is declared."""

MOST_ROWS = 2**12
"""So many rows of norm 2²⁰ have squares that float64 adds up exactly, whatever the order."""


@dataclass(frozen=True)
class Unit:
    """All rows that have the same value in a column, such as those of one person.

    Attributes
    ----------
    column : str
        Name of the column. It is read, and never released.
    rows : int
        The contribution bound j, from 1 to 4,096: a unit changes the Gram matrix by at most jC².
    bound : {"shorten", "keep"}
        How contributions are bounded. ``"shorten"``: all rows of a unit are multiplied by one factor, so that their
        squared norms add up to at most jC². ``"keep"``: at most j rows of a unit are read, chosen by a keyed hash.
    """

    column: str
    rows: int
    bound: BoundRows = "shorten"

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ArgumentTypeError(f"unit must be the name of a column, got {type(self.column).__name__}.")
        check_text("unit", self.column)
        rows = check.positive_integer(rows_per_unit=self.rows)
        object.__setattr__(self, "rows", rows)  # a small integer of NumPy's would overflow where it is squared
        if rows > MOST_ROWS:
            raise ArgumentError(f"rows_per_unit must be from 1 to {MOST_ROWS:,}, got {self.rows!r}.")
        check.choice(BOUNDS, bound_rows=self.bound)

    @classmethod
    def declared(
        cls, column: str | None, rows_per_unit: int | None, bound_rows: BoundRows | None, schema: Schema
    ) -> Unit | None:
        """From the arguments of a release; None if no unit is declared."""
        if column is None:
            if rows_per_unit is not None or bound_rows is not None:
                raise ArgumentError("rows_per_unit and bound_rows go with a unit: name its column, or leave them out.")
            return None
        if rows_per_unit is None:
            raise DeclarationError(
                "rows_per_unit must be declared with a unit: how many rows of one person count. It must be fixed "
                "before the data are seen."
            )
        unit = cls(column, rows_per_unit, "shorten" if bound_rows is None else bound_rows)
        if column in schema.columns or column == INTERCEPT:
            raise DeclarationError(
                f"Column {column!r} is the unit and cannot be released as well, nor weigh rows: take it out of the "
                "schema."
            )
        return unit

    @classmethod
    def of(cls, stored: object) -> Unit:
        """What :meth:`to_dict` gave."""
        if not isinstance(stored, Mapping):
            raise ArgumentTypeError("a stored unit must be an object.")
        return cls(**stored)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"column": self.column, "rows": self.rows, "bound": self.bound}

    def __str__(self) -> str:
        counted = f"at most {self.rows} counted"
        if self.bound == "shorten":
            counted = f"together counted as at most {self.rows}"
        return f"one person (all rows with the same {self.column}, {counted})"
