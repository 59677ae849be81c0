"""What the releases of a table in passes read, by a rule of public numbers."""

from __future__ import annotations

import math

import pytest

from gaussmix.accounting.discrete import lattice_account
from gaussmix.releases.preconditioning import (
    HISTOGRAM_ROWS,
    LARGEST_RATE,
    LEAST_ROWS,
    SAMPLE_ROWS,
    rates_of,
    releases_of,
)


def account_of(passes, m, epsilon=1.0):
    shares, coordinates = releases_of(passes, m)
    return lattice_account(epsilon, 1e-6, shares=shares, coordinates=coordinates)


@pytest.mark.parametrize("passes", [1, 2, 3, 4])
@pytest.mark.parametrize("m", [5, 22, 102])
@pytest.mark.parametrize("rows", [-3.0, 1e3, 2e5, 1e6, 1e8])
def test_rates(passes, m, rows):
    account = account_of(passes, m)
    rates = rates_of(account, rows, m)
    assert len(rates) == len(releases_of(passes, m)[0]) - (passes > 1)
    assert rates[0] == rates[-1] == 1.0
    histograms, early = rates[1::2], rates[2:-1:2]
    assert len(set(histograms)) <= 1
    assert len(set(early)) <= 1
    for found, needed in ((histograms, HISTOGRAM_ROWS), (early, max(SAMPLE_ROWS * m**1.5, HISTOGRAM_ROWS))):
        wanted = max(needed / account.mu, LEAST_ROWS)
        for rate in found:
            assert rate == (pytest.approx(wanted / rows) if wanted <= LARGEST_RATE * rows else 1.0)
    for histogram, between in zip(histograms, early, strict=False):
        assert histogram <= between  # else the table would be read for histograms alone


def test_noise_of_sampled_histograms_is_a_two_thousandth_of_the_rows():
    """Two metrics, 2 % of μ²: √2/(√.02 μ) = 10/μ of 20,000/μ rows that are read."""
    account = account_of(4, 102, epsilon=0.3)
    rows = 2.5 * HISTOGRAM_ROWS / account.mu
    assert rows > LEAST_ROWS
    rate = rates_of(account, rows, 102)[1]
    assert rate == pytest.approx(0.4)
    noise = math.sqrt(2) / account.noise_mu[2] / rate
    assert noise / rows == pytest.approx(5e-4, rel=0.01)
