"""What all tests share: one Hypothesis profile, the same examples in every run and on every machine.

Where every test must run, as in ``.ci/run``, a skipped one is a failure: GAUSSMIX_NO_SKIPS=1.

Tests named in ``uncovered.txt`` run without being watched for coverage, which would double their time: simulations and
sweeps, behind functions that quick tests reach too.
"""

from __future__ import annotations

import os
from pathlib import Path

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
    "R is not installed",
    "this processor has no such kernel",
)


UNCOVERED = frozenset((Path(__file__).parent / "uncovered.txt").read_text().split())


def pytest_itemcollected(item):
    if item.nodeid.partition("[")[0] in UNCOVERED:
        item.add_marker("no_cover")


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
