"""What can go wrong, by whose business it is; the command ``gaussmix`` makes its exit codes of these types.

Every error that the library raises on purpose is a :class:`GaussmixError` and the built-in type that a caller would
expect, so that ``except ValueError`` goes on working. Whatever else comes out of the library is a fault of the library.
Messages name the argument, the rule and the cure, never a value of a row.

==========================  ================================================  ===================
type                        it is about                                       also a
==========================  ================================================  ===================
`ArgumentError`             a value that an argument may not have             `ValueError`
`ArgumentTypeError`         a type that an argument may not have              `TypeError`
`DeclarationError`          a schema, bounds or labels that are not declared  `ValueError`
`BudgetUnmetError`          a budget that no noise meets                      `ValueError`
`MissingPackageError`       an optional package that is not installed         `ImportError`
`MissingFileError`          a file to be read that does not exist             `FileNotFoundError`
`OutputError`               a file that cannot be written                     `OSError`
`OutputFolderError`         a folder for it that does not exist               `FileNotFoundError`
`OutputExistsError`         a file that would be replaced                     `FileExistsError`
`DataError`                 rows, and files of rows                           `ValueError`
`DataTypeError`             columns of a wrong type                           `ValueError`, `TypeError`
`BudgetExceededError`       a release that no longer fits into its ledger     `ValueError`
`LedgerError`               a file that cannot be used as a ledger            `RuntimeError`
`LedgerDamagedError`        a ledger that is damaged or was edited            `LedgerError`
`DamagedError`              a release, moments or ledger damaged or edited    `ValueError`
`NotPrivateError`           a certificate that claims less than is true       `ValueError`
==========================  ================================================  ===================
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
]


class GaussmixError(Exception):
    """Any error that the library raises on purpose. Its message holds no control character of a name or a path."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(plain(item, lines=True) if isinstance(item, str) else item for item in arguments))


# What was asked for ------------------------------------------------------------------------------------------------
class ArgumentError(GaussmixError, ValueError):
    """An argument has a value that it may not have."""


class ArgumentTypeError(GaussmixError, TypeError):
    """An argument has a type that it may not have."""


class DeclarationError(ArgumentError):
    """Bounds, levels or labels are not declared, or contradict each other."""


class BudgetUnmetError(ArgumentError):
    """No noise that the library draws meets the budget. Nothing was spent."""


class MissingPackageError(GaussmixError, ImportError):
    """An optional package is not installed."""


class MissingFileError(GaussmixError, FileNotFoundError):
    """There is no file of the name, or none that a folder or a pattern means."""


class OutputError(GaussmixError, OSError):
    """A file cannot be written."""


class OutputFolderError(OutputError, FileNotFoundError):
    """The folder of a file to be written does not exist."""


class OutputExistsError(OutputError, FileExistsError):
    """A file is there already and would be replaced."""


# What was read -----------------------------------------------------------------------------------------------------
class DataError(GaussmixError, ValueError):
    """Rows do not fit their declaration, or cannot be read. For the curator only: that it occurs is about rows."""


class DataTypeError(DataError, TypeError):
    """A column has a type that does not fit its declaration."""


# The guarantee -----------------------------------------------------------------------------------------------------
class BudgetExceededError(GaussmixError, ValueError):
    """A release does not fit into what is left. Nothing was recorded, and nothing may be released."""


class LedgerError(GaussmixError, RuntimeError):
    """A file cannot be used as a ledger. Nothing may be released on its account."""


class DamagedError(GaussmixError, ValueError):
    """A file of the library's own is damaged or was edited."""


class LedgerDamagedError(LedgerError, DamagedError):
    """A ledger is damaged or was edited: what it says is not what was recorded."""


class NotPrivateError(GaussmixError, ValueError):
    """A certificate claims less than is true."""


class BudgetWarning(UserWarning):
    """A budget that is allowed, and protects less than its numbers may suggest."""
