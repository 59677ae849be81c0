r"""Escape control characters and spreadsheet formulas in names of columns, levels and files.

>>> print(plain("cost\x1b[2J \u202eevil"))
cost\x1b[2J \u202eevil
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["csv_cell", "json_text", "plain", "six_digits"]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 controls, DEL, line and paragraph separators, and bidirectional formatting characters."""

_FORMULA = re.compile(r"[=+\-@\t\r\n]")  # a spreadsheet evaluates cells that begin with one of these
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def plain(text: str, *, lines: bool = False) -> str:
    r"""Return text with control characters escaped, as in ``\x1b``. With ``lines``, keep line breaks."""

    def escape(found: re.Match[str]) -> str:
        return "\n" if lines and found[0] == "\n" else found[0].encode("unicode_escape").decode()

    return _CONTROL.sub(escape, text)


def json_text(content: Any) -> str:
    """Return indented JSON in which control characters within strings are escaped."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    return _CONTROL.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def six_digits(value: float) -> str:
    """Format a number with six significant digits and separated thousands, without an exponent if it has one below 15.

    >>> six_digits(3300000.0), six_digits(12345.67), six_digits(16.6), six_digits(0.25)
    ('3,300,000', '12,345.7', '16.6', '0.25')
    """
    return f"{float(f'{value:.6g}'):,.15g}"


def csv_cell(value: object) -> object:
    r"""Return a CSV cell that spreadsheets do not evaluate: prefix text that looks like a formula with a single quote.

    >>> csv_cell("=1+1"), csv_cell("@sum"), csv_cell("age"), csv_cell("-1.5"), csv_cell(-1.5)
    ("'=1+1", "'@sum", 'age', '-1.5', -1.5)
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
