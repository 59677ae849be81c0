"""What all tests share: one Hypothesis profile, the same examples in every run and on every machine.

Where every test must run, as in ``.ci/run``, a skipped one is a failure: GAUSSMIX_NO_SKIPS=1.

Simulations and sweeps have the marker ``slow``: ``make test`` leaves them out, ``make test-slow`` runs them.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("gaussmix", derandomize=True, deadline=None)
settings.load_profile("gaussmix")

ALLOWED = (
    "mounting is not allowed here",  # in containers without the right to
    "set GAUSSMIX_DATA",  # the data sets are no part of the repository
    "SCIPY_ARRAY_API is not set",  # scikit-learn's check of another library's arrays
    "no SIGKILL",  # Windows
    "modes of files",
    "no fork on this system",
    "this processor has no such kernel",
)


def _strict(report):
    if os.environ.get("GAUSSMIX_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(words in reason for words in ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} was not run, and GAUSSMIX_NO_SKIPS is set: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _strict((yield))
