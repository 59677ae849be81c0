"""Differentially private regression by the Gaussian mixing mechanism, with exact privacy accounting.

>>> import gaussmix as gm
>>> round(gm.accounting.epsilon(1e-6, sketch_size=250, gamma=52.9), 2)
1.0
>>> round(gm.calibrate(1.0, 1e-6, sketch_size=250).gamma, 2)
52.83
"""

from gaussmix import accounting, baselines
from gaussmix._version import __version__
from gaussmix.calibration import Calibration, calibrate
from gaussmix.curation import release
from gaussmix.estimators import LinearMixing, LogisticMixing
from gaussmix.ledger import BudgetExceeded, Ledger, LedgerError
from gaussmix.moments import Moments
from gaussmix.private_scale import private_scale_delta
from gaussmix.releases import Certificate, Release, load
from gaussmix.schema import Boolean, Categorical, Numeric, Schema

__all__ = [
    "Boolean",
    "BudgetExceeded",
    "Calibration",
    "Categorical",
    "Certificate",
    "Ledger",
    "LedgerError",
    "LinearMixing",
    "LogisticMixing",
    "Moments",
    "Numeric",
    "Release",
    "Schema",
    "__version__",
    "accounting",
    "baselines",
    "calibrate",
    "load",
    "private_scale_delta",
    "release",
]
