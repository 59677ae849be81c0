"""Differentially private regression by the Gaussian mixing mechanism, with exact privacy accounting.

>>> import gaussmix as gm
>>> round(gm.accounting.epsilon(1e-6, sketch_size=250, gamma=52.9), 2)
1.0
>>> round(gm.calibrate(1.0, 1e-6, sketch_size=250).gamma, 2)
52.83
"""

from gaussmix import accounting
from gaussmix.calibration import Calibration, calibrate
from gaussmix.private_scale import private_scale_delta

__all__ = ["Calibration", "__version__", "accounting", "calibrate", "private_scale_delta"]

__version__ = "0.1.0"
