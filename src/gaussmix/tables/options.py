"""How a CSV file is written: declared by the caller, never found out from the file.

>>> CsvOptions(skip_initial_space=True).quoting_of(".csv")
True
"""

from __future__ import annotations

from dataclasses import dataclass

from gaussmix.errors import ArgumentError, ArgumentTypeError

__all__ = ["CsvOptions"]


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
