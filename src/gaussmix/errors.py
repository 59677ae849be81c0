"""Exceptions and warnings of the library.

Every exception raised on purpose is a :class:`GaussmixError` and a built-in type, so that ``except ValueError`` works.
Any other exception is a bug in the library. Messages state the argument, the rule and the remedy, and never contain a
value of a row. The command ``gaussmix`` derives its exit codes from these types.

==========================  ===================================================  =========================
exception                   raised for                                           also a
==========================  ===================================================  =========================
`ArgumentError`             an invalid value of an argument                      `ValueError`
`ArgumentTypeError`         an invalid type of an argument                       `TypeError`
`DeclarationError`          a missing or inconsistent schema, bounds or labels   `ValueError`
`BudgetUnmetError`          a budget that cannot be met by any supported noise   `ValueError`
`MissingPackageError`       an optional package that is not installed            `ImportError`
`MissingFileError`          an input file that does not exist                    `FileNotFoundError`
`OutputError`               an output file that cannot be written                `OSError`
`OutputFolderError`         an output folder that does not exist                 `FileNotFoundError`
`OutputExistsError`         an output file that exists already                   `FileExistsError`
`DataError`                 invalid rows, or files of rows                       `ValueError`
`DataTypeError`             a column of the wrong type                           `ValueError`, `TypeError`
`BudgetExceededError`       a release that exceeds a ledger's remaining budget   `ValueError`
`SiteError`                 another site that is missing, disagrees or stopped   `RuntimeError`
`LedgerError`               a file that cannot be used as a ledger               `RuntimeError`
`LedgerDamagedError`        a damaged or edited ledger                           `LedgerError`
`DamagedError`              a damaged or edited release, moments file or ledger  `ValueError`
`NotPrivateError`           a certificate that overstates the privacy guarantee  `ValueError`
==========================  ===================================================  =========================
"""

from __future__ import annotations

from gaussmix._text import plain

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BudgetExceededError",
    "BudgetUnmetError",
    "BudgetWarning",
    "DamagedError",
    "DataError",
    "DataTypeError",
    "DeclarationError",
    "GaussmixError",
    "LedgerDamagedError",
    "LedgerError",
    "MissingFileError",
    "MissingPackageError",
    "NotPrivateError",
    "OutputError",
    "OutputExistsError",
    "OutputFolderError",
    "SiteError",
]


class GaussmixError(Exception):
    """Base class of the library's exceptions. Control characters in the message are escaped."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(plain(item, lines=True) if isinstance(item, str) else item for item in arguments))


# Arguments and files -----------------------------------------------------------------------------------------------
class ArgumentError(GaussmixError, ValueError):
    """An argument has an invalid value."""


class ArgumentTypeError(GaussmixError, TypeError):
    """An argument has an invalid type."""


class DeclarationError(ArgumentError):
    """Bounds, levels or labels are not declared, or contradict each other."""


class BudgetUnmetError(ArgumentError):
    """No supported noise meets the budget. No budget was spent, unless `gaussmix.propose_bounds` found nothing."""


class MissingPackageError(GaussmixError, ImportError):
    """An optional package is not installed."""


class MissingFileError(GaussmixError, FileNotFoundError):
    """An input file does not exist, or a folder or pattern contains no file."""


class OutputError(GaussmixError, OSError):
    """A file cannot be written."""


class OutputFolderError(OutputError, FileNotFoundError):
    """The folder of a file to be written does not exist."""


class OutputExistsError(OutputError, FileExistsError):
    """An output file exists already."""


# Data --------------------------------------------------------------------------------------------------------------
class DataError(GaussmixError, ValueError):
    """Rows cannot be read or do not match the schema. For the curator only: its occurrence depends on the rows."""


class DataTypeError(DataError, TypeError):
    """The type of a column does not match the schema."""


# The guarantee -----------------------------------------------------------------------------------------------------
class BudgetExceededError(GaussmixError, ValueError):
    """A release exceeds the remaining budget. Nothing was recorded, and nothing may be released."""


class LedgerError(GaussmixError, RuntimeError):
    """A file cannot be used as a ledger. Nothing may be released through it."""


class SiteError(GaussmixError, RuntimeError):
    """Another site of a joint release is missing, disagrees, or stopped."""


class DamagedError(GaussmixError, ValueError):
    """A file written by the library is damaged or was edited."""


class LedgerDamagedError(LedgerError, DamagedError):
    """A ledger is damaged or was edited."""


class NotPrivateError(GaussmixError, ValueError):
    """A certificate overstates the privacy guarantee."""


class BudgetWarning(UserWarning):
    """A budget is allowed but gives a weak guarantee."""
