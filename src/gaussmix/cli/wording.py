r"""Messages of the library in the words of the command line: options for arguments.

>>> with_options("sketch_size must be at least 4, got 3.")
'--sketch-size must be at least 4, got 3.'
>>> with_options("The table has another number of rows than expect_rows=300. Column 'epsilon' is not in the table.")
"The table has another number of rows than --expect-rows 300. Column 'epsilon' is not in the table."

What stands in quotes is a name of a column, or a value, and stays as it is; so do names of files.
"""

from __future__ import annotations

import re

__all__ = ["with_options"]

_OPTIONS = {
    "bound_holds_for": "--bound-holds-for",
    "bound_rows": "--bound-rows",
    "delta": "--delta",
    "epsilon": "--epsilon",
    "estimand": "--estimand",
    "expect_rows": "--expect-rows",
    "gamma": "--gamma",
    "keep_tails": "--keep-tails",
    "most_levels": "--most-levels",
    "n_rows": "--rows",
    "na_values": "--na-value",
    "quoted_newlines": "--quoted-newlines",
    "relation": "--relation",
    "row_by_row": "--row-by-row",
    "rows_per_unit": "--rows-per-unit",
    "sketch_rows": "--sketch-rows",
    "sketch_size": "--sketch-size",
    "skip_initial_space": "--skip-initial-space",
    "unit_sorted": "--unit-sorted",
}
_FLAGS = {
    "force=True (--force)": "--force",
    "give mu as well": "give --mu as well",
    "keep_tails=True": "--keep-tails",
    "leave passes out": "leave --passes out",
    "leave releases out": "leave --releases out",
    "or passes=1": "or --passes 1",
    "quoted_newlines=True": "--quoted-newlines",
    "quoting=False": "--no-quoting",
    "quoting=True": "--quoting",
    "row_by_row=True": "--row-by-row",
    "set passes=1": "give --passes 1",
    "unit_sorted=True": "--unit-sorted",
}
_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_VALUE = r"""(?:=(?P<value>"[^"]*"|'[^']*'|(?:[^\s,;:)]*[^\s,;:).])?))?"""
_NAMES = re.compile(rf"{_QUOTED}|(?<![\w/.-])(?P<name>{'|'.join(_OPTIONS)})(?![\w/]|\.\w){_VALUE}")
_FIRST = re.compile(
    "(alpha|features|note|passes|r2|releases|rows|share|tail|unit) (must|is|are parts)"
)  # words that mean something else further on


def with_options(message: str) -> str:
    """The message with the command's options in the place of Python's arguments."""
    for flag, option in _FLAGS.items():
        message = message.replace(flag, option)
    if _FIRST.match(message):
        message = f"--{message}"
    return _NAMES.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    if found["name"] is None:
        return found[0]
    value = (found["value"] or "").strip("'\"")
    return f"{_OPTIONS[found['name']]} {value}".rstrip()
