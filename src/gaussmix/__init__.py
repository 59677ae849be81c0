"""Differentially private regression by the Gaussian mixing mechanism, with exact privacy accounting.

>>> import gaussmix as gm
>>> round(gm.accounting.epsilon(1e-6, sketch_size=250, gamma=52.9), 2)
1.0
>>> round(gm.calibrate(1.0, 1e-6, sketch_size=250).gamma, 2)
52.83

Submodules are imported when one of their names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gaussmix._version import __version__

if TYPE_CHECKING:
    from gaussmix import accounting, baselines, errors, paper
    from gaussmix.accounting.calibration import Calibration, calibrate
    from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
    from gaussmix.data.contributions import PrivacyUnit
    from gaussmix.data.engines import Query
    from gaussmix.data.moments import Moments
    from gaussmix.data.per_unit import all, any, count, first, last, max, mean, min, per_unit, sum, within
    from gaussmix.data.schema import Date, Schema
    from gaussmix.data.source import CsvOptions, ReadOptions
    from gaussmix.errors import (
        ArgumentError,
        ArgumentTypeError,
        BudgetExceededError,
        BudgetUnmetError,
        BudgetWarning,
        DamagedError,
        DataError,
        DataTypeError,
        DeclarationError,
        GaussmixError,
        LedgerDamagedError,
        LedgerError,
        MissingFileError,
        MissingPackageError,
        NotPrivateError,
        OutputError,
        OutputExistsError,
        OutputFolderError,
        SiteError,
    )
    from gaussmix.estimators.linear import LinearRegression
    from gaussmix.estimators.logistic import LogisticRegression
    from gaussmix.estimators.poisson import PoissonRegressor
    from gaussmix.ledger.budget import Budget
    from gaussmix.ledger.ledger import Ledger
    from gaussmix.mechanism import sites
    from gaussmix.mechanism.bounds import propose_bounds
    from gaussmix.mechanism.release import release
    from gaussmix.models.bounds import Proposal
    from gaussmix.models.comparison import compare
    from gaussmix.models.release import Release, load
    from gaussmix.releases.certificate import Certificate, Condition
    from gaussmix.releases.declared import DeclaredModel

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Boolean",
    "Budget",
    "BudgetExceededError",
    "BudgetUnmetError",
    "BudgetWarning",
    "Calibration",
    "Categorical",
    "Certificate",
    "Condition",
    "CsvOptions",
    "DamagedError",
    "DataError",
    "DataTypeError",
    "Date",
    "DeclarationError",
    "DeclaredModel",
    "GaussmixError",
    "Ledger",
    "LedgerDamagedError",
    "LedgerError",
    "LinearRegression",
    "LogisticRegression",
    "MissingFileError",
    "MissingPackageError",
    "Moments",
    "NotPrivateError",
    "Numeric",
    "OutputError",
    "OutputExistsError",
    "OutputFolderError",
    "PoissonRegressor",
    "PrivacyUnit",
    "Proposal",
    "Query",
    "ReadOptions",
    "Release",
    "Schema",
    "SiteError",
    "Vector",
    "__version__",
    "accounting",
    "all",
    "any",
    "baselines",
    "calibrate",
    "compare",
    "count",
    "errors",
    "first",
    "last",
    "load",
    "max",
    "mean",
    "min",
    "paper",
    "per_unit",
    "propose_bounds",
    "release",
    "sites",
    "sum",
    "within",
]

_ROOMS = {name: name for name in ("accounting", "baselines", "errors", "paper")} | {"sites": "mechanism.sites"}
_HOMES = {
    "Boolean": "data.columns",
    "Budget": "ledger.budget",
    "Calibration": "accounting.calibration",
    "Categorical": "data.columns",
    "Certificate": "releases.certificate",
    "Condition": "releases.certificate",
    "CsvOptions": "data.source",
    "Date": "data.schema",
    "DeclaredModel": "releases.declared",
    "Ledger": "ledger.ledger",
    "LinearRegression": "estimators.linear",
    "LogisticRegression": "estimators.logistic",
    "Moments": "data.moments",
    "Numeric": "data.columns",
    "PoissonRegressor": "estimators.poisson",
    "PrivacyUnit": "data.contributions",
    "Proposal": "models.bounds",
    "Query": "data.engines",
    "ReadOptions": "data.source",
    "Release": "models.release",
    "Schema": "data.schema",
    "Vector": "data.columns",
    "all": "data.per_unit",
    "any": "data.per_unit",
    "calibrate": "accounting.calibration",
    "compare": "models.comparison",
    "count": "data.per_unit",
    "first": "data.per_unit",
    "last": "data.per_unit",
    "load": "models.release",
    "max": "data.per_unit",
    "mean": "data.per_unit",
    "min": "data.per_unit",
    "per_unit": "data.per_unit",
    "propose_bounds": "mechanism.bounds",
    "release": "mechanism.release",
    "sum": "data.per_unit",
    "within": "data.per_unit",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first access."""
    if name in _ROOMS:
        return importlib.import_module(f"gaussmix.{_ROOMS[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'gaussmix' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"gaussmix.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
