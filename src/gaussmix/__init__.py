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
from gaussmix.estimators import LinearMixing, LogisticMixing
from gaussmix.moments import Moments
from gaussmix.private_scale import private_scale_delta
from gaussmix.releases import Certificate, Release

__all__ = [
    "Calibration",
    "Certificate",
    "LinearMixing",
    "LogisticMixing",
    "Moments",
    "Release",
    "__version__",
    "accounting",
    "baselines",
    "calibrate",
    "private_scale_delta",
]
