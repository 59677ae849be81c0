"""How a table is read: declared by the caller, never found out from the rows.

>>> CsvOptions(skip_initial_space=True).quoting_of(".csv")
True
>>> ReadOptions(expected_rows=5000).expected_rows
5000
"""

from __future__ import annotations

from dataclasses import dataclass

from gaussmix._validation import positive_integer
from gaussmix.errors import ArgumentError, ArgumentTypeError

__all__ = ["CsvOptions", "ReadOptions"]


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    r"""What may be declared about CSV and TSV files.

    Parameters
    ----------
    skip_initial_space : bool
        Leave out spaces after a delimiter and at the beginning of a line, as in ``a, b``. Without it ``" b"`` is
        another text than ``"b"``.
    na_values : tuple of str, optional
        Fields that mean a missing value, in columns of every type; the empty field always does. Default: ``NA``,
        ``NaN``, ``null`` and the like in columns of numbers and booleans, the empty field alone in columns of text.
    quoted_newlines : bool
        Allow line breaks within quotes. A stray quote can then swallow other rows up to the next one: without it,
        every such line is an error.
    quoting : bool, optional
        Whether ``"`` encloses fields. Default: in CSV files it does, in TSV files it is an ordinary character.
    """

    skip_initial_space: bool = False
    na_values: tuple[str, ...] | None = None
    quoted_newlines: bool = False
    quoting: bool | None = None

    def __post_init__(self) -> None:
        for name in ("skip_initial_space", "quoted_newlines"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be True or False.")
        if self.quoting not in (None, True, False):
            raise ArgumentTypeError("quoting must be True, False or None.")
        if self.na_values is not None:
            values = (self.na_values,) if isinstance(self.na_values, str) else tuple(self.na_values)
            if not all(isinstance(value, str) for value in values):
                raise ArgumentTypeError("na_values must be strings, as they stand in the file.")
            object.__setattr__(self, "na_values", values)
        if self.quoted_newlines and self.skip_initial_space:
            raise ArgumentError(
                "skip_initial_space and quoted_newlines cannot be declared together: remove the spaces."
            )
        if self.quoted_newlines and self.quoting is False:
            raise ArgumentError("quoted_newlines needs quotes: leave out quoting=False.")

    def quoting_of(self, suffix: str) -> bool:
        """Whether quotes enclose fields in a file with this suffix."""
        if self.quoting is not None:
            return self.quoting
        return self.quoted_newlines or ".tsv" not in suffix


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a table is read.

    Parameters
    ----------
    csv : CsvOptions, optional
        How CSV files are written.
    expected_rows : int, optional
        Raise an error if the table has another number of rows.
    progress : bool
        Show a progress bar on a terminal. It shows row counts, which are for the curator.
    row_by_row : bool
        Declare that each stored row affects at most one row of a query's result. By default a DuckDB query or relation
        whose plan has other operators than scans, filters, projections and UNION ALL is an error.
    sorted_by_unit : bool
        Declare that the rows of each privacy unit are adjacent, which is checked.
    """

    csv: CsvOptions | None = None
    expected_rows: int | None = None
    progress: bool = False
    row_by_row: bool = False
    sorted_by_unit: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.csv, CsvOptions | None):
            raise ArgumentTypeError(f"csv must be CsvOptions or None, got {type(self.csv).__name__}.")
        if self.expected_rows is not None:
            positive_integer(expected_rows=self.expected_rows)
        for name in ("progress", "row_by_row", "sorted_by_unit"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be True or False.")
