"""A table of results in the shapes people use: pandas, polars, Arrow, CSV, LaTeX, HTML, text, plain values."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix.errors import MissingPackageError
from gaussmix.models.rendering import guarantee_of, in_columns, in_csv, in_html, in_latex, void_mark

__all__ = ["FRAMES", "Frame", "ResultTable", "as_frame"]

Frame = Literal["pandas", "polars", "arrow"]
FRAMES: tuple[Frame, ...] = ("pandas", "polars", "arrow")


@dataclass(frozen=True)
class ResultTable:
    """Columns of text and of numbers, with a title and what to know about them.

    Attributes
    ----------
    title : str
    columns : dict of str to tuple
        Of equal lengths; a number that is not known is NaN.
    notes : tuple of str
        What the numbers are, and are not.
    """

    title: str
    columns: Mapping[str, tuple[Any, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def to_frame(self, frame: Frame | None = None) -> Any:
        """A data frame: of pandas, polars or Arrow; default: the first of them that is installed."""
        return as_frame(pa.table({name: list(values) for name, values in self.columns.items()}), frame)

    def as_csv(self) -> str:
        """Numbers in all their digits; the notes are left out. Text that looks like a formula is quoted."""
        rows = zip(*self.columns.values(), strict=True)
        return in_csv([self.columns, *(["" if _unknown(value) else value for value in row] for row in rows)])

    def as_plain(self) -> dict[str, Any]:
        """Plain values, for JSON: what is not finite is None."""
        rows = [
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in self.rows()
        ]
        return {**guarantee_of(self.notes), "title": self.title, "rows": rows, "notes": list(self.notes)}

    def as_text(self) -> str:
        """For a terminal."""
        return in_columns(self.title, [list(self.columns), *self._cells()], self.notes)

    def as_latex(self) -> str:
        """A LaTeX tabular."""
        return in_latex(list(self.columns), self._cells(), self.notes)

    def as_html(self) -> str:
        """A table for a page, with its notes."""
        return in_html(self.title, self.columns, self._cells(), self.notes)

    def _repr_html_(self) -> str:
        return self.as_html()

    def _cells(self) -> list[list[str]]:
        return [[_cell(value) for value in row] for row in zip(*self.columns.values(), strict=True)]

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return plain(
            f"ResultTable({void_mark(*self.notes)}{self.title!r}, {len(self)} rows: {', '.join(self.columns)})"
        )


def as_frame(table: pa.Table, frame: Frame | None = None) -> Any:
    """An Arrow table as a frame of another library; default: pandas, else polars, else as it is."""
    installed: list[Frame] = [name for name in FRAMES[:2] if importlib.util.find_spec(name)]
    chosen: Frame = frame or [*installed, FRAMES[2]][0]
    check.choice(FRAMES, frame=chosen)
    if chosen == "arrow":
        return table
    if not importlib.util.find_spec(chosen):
        raise MissingPackageError(f"frame={chosen!r} needs the package {chosen}: install it, or use frame='arrow'.")
    if chosen == "pandas":
        return table.to_pandas()
    polars: Any = importlib.import_module("polars")
    return polars.from_arrow(table)


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _cell(value: object) -> str:
    if _unknown(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """Columns from rows."""
    return {name: tuple(row[place] for row in rows) for place, name in enumerate(names)}
