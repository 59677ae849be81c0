r"""What to expect of a release, from public quantities and before any data is touched.

The table that is imagined: n rows, d numeric features spread evenly over their bounds and independent of each other, an
intercept, and a target whose standard deviation is a quarter of its range, of which the features explain a share R².
Real tables are less kind: correlated or concentrated features have weaker directions, and errors grow with them.

In encoded units a feature has G_xx = n/3, so with σ² = γC², C² = d + 2, the errors-in-variables formula of
:mod:`gaussmix.models.score` gives for each coefficient

.. math:: \mathrm{se}^2 = \frac1k\Bigl(\frac3n\Bigr)^2
          \Bigl[\Bigl(\frac n3 + \sigma^2\Bigr)\omega + \sigma^4\theta_j^2\Bigr],
          \quad \omega = n v (1 - R^2) + \sigma^2(1 + |\theta|^2) .

>>> expect(rows=100_000, features=20, epsilon=1.0, delta=1e-6).useful
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gaussmix import _validation as check
from gaussmix.accounting.least_noise import calibrate
from gaussmix.mechanism.preparation import automatic_sketch_size

__all__ = ["Expectation", "expect", "least_useful_epsilon"]

TARGET_VARIANCE = 0.25  # of a target in [-1, 1] with a standard deviation of a quarter of its range
USEFUL = 0.1  # share of the explained variance that noise may cost


@dataclass(frozen=True)
class Expectation:
    """What a release of such a table would be worth.

    Attributes
    ----------
    gamma, noise_per_entry : float
        Noise variance in units of C², and the standard deviation of one entry of the second moment.
    standard_error, sampling_error : float
        Of a coefficient, in units of (target's range)/(feature's range): from the noise, and from sampling n rows.
    interval : float
        Half width of a 95 % interval, both errors together.
    lost_r2 : float
        R² that the noise is expected to cost.
    useful : bool
        Whether that is less than a tenth of R².
    """

    rows: int
    features: int
    epsilon: float
    delta: float
    r2: float
    gamma: float
    noise_per_entry: float
    standard_error: float
    sampling_error: float
    interval: float
    lost_r2: float
    useful: bool


def expect(*, rows: int, features: int, epsilon: float, delta: float, r2: float = 0.4) -> Expectation:
    """Expected noise, standard errors and loss of R².

    Parameters
    ----------
    rows, features : int
        Size of the table, declared.
    epsilon, delta : float
        The budget.
    r2 : float
        Share of the target's variance that the features explain, as far as one can guess.
    """
    n, d = check.positive_integer(rows=rows), check.positive_integer(features=features)
    r2 = check.in_interval(0, 1, r2=r2)
    k = automatic_sketch_size(d + 2)
    calibration = calibrate(epsilon, delta, sketch_size=k)
    sigma2 = calibration.gamma * (d + 2)
    signal, v = n / 3, TARGET_VARIANCE
    theta2 = r2 * v * 3  # |θ|² n/3 = R² n v
    omega = n * v * (1 - r2) + sigma2 * (1 + theta2)
    variance = ((signal + sigma2) * omega + sigma2**2 * theta2 / d) / (k * signal**2)
    sampling = v * (1 - r2) / signal
    lost = d * variance * signal / (n * v)
    return Expectation(
        rows=n,
        features=d,
        epsilon=epsilon,
        delta=delta,
        r2=r2,
        gamma=calibration.gamma,
        noise_per_entry=sigma2 / math.sqrt(k),
        standard_error=math.sqrt(variance),
        sampling_error=math.sqrt(sampling),
        interval=1.96 * math.sqrt(variance + sampling),
        lost_r2=min(lost, 1.0),
        useful=lost < USEFUL * r2,
    )


def least_useful_epsilon(*, rows: int, features: int, delta: float, r2: float = 0.4) -> float:
    """Smallest ε, to 1 %, at which such a release is useful; infinite if none up to 1000 is."""
    low, high = 1e-3, 1e3
    if not expect(rows=rows, features=features, epsilon=high, delta=delta, r2=r2).useful:
        return math.inf
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        if expect(rows=rows, features=features, epsilon=middle, delta=delta, r2=r2).useful:
            high = middle
        else:
            low = middle
    return high
