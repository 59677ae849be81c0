"""A release in the limit beside other libraries' mechanisms: a plain Gaussian event of dp_accounting."""

from __future__ import annotations

import pytest

from gaussmix.accounting.discrete import lattice_account
from gaussmix.accounting.gaussian import gaussian_epsilon


def test_a_release_is_a_gaussian_event():
    """Its noise multiplier is 1/μ; two of them, composed by dp_accounting, are what μ² adding up says."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    account = lattice_account(1.0, 1e-6, shares=["0.3", "0.7"], coordinates=[25, 25])
    event = dp_accounting.GaussianDpEvent(1 / account.mu)
    one = PLDAccountant().compose(event).get_epsilon(1e-6)
    assert one == pytest.approx(1.0, rel=2e-3)
    two = PLDAccountant().compose(event, 2).get_epsilon(1e-6)
    assert two == pytest.approx(gaussian_epsilon(1e-6, mu=2**0.5 * account.mu), rel=2e-3)
