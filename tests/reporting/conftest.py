"""Releases that pages are made of: a sound one, one with hostile names and a seed, one without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from report_pages import EVIL


@pytest.fixture(scope="module")
def table():
    return patients(20_000)


@pytest.fixture(scope="module")
def private(table):
    return gm.release(table, schema=SCHEMA, epsilon=1.0, delta=3.3e-7)


@pytest.fixture(scope="module")
def page(private):
    pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")
    from gaussmix.reporting.page import render

    return render(private)


@pytest.fixture(scope="module")
def evil():
    rng = np.random.default_rng(0)
    rows = {EVIL: rng.uniform(0, 1, 5000), "y": rng.uniform(0, 1, 5000), "c": rng.choice([EVIL, "b"], 5000)}
    schema = {EVIL: [0, 1], "y": [0, 1], "c": {"levels": [EVIL, "b"]}}
    return gm.release(rows, schema=schema, epsilon=2.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def unprotected(table):
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1.0)
