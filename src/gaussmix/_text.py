"""Text that is safe to hand on, whatever characters the names of columns, levels and files have."""

from __future__ import annotations

import re

__all__ = ["csv_cell"]

_FORMULA = re.compile(r"[=+\-@\t\r\n]")  # with these a spreadsheet takes a cell for a formula
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def csv_cell(value: object) -> object:
    r"""Return a cell for a CSV file that no spreadsheet takes for a formula: text gets a single quote in front.

    >>> csv_cell("=1+1"), csv_cell("@sum"), csv_cell("age"), csv_cell("-1.5"), csv_cell(-1.5)
    ("'=1+1", "'@sum", 'age', '-1.5', -1.5)
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
