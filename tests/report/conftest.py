"""Releases that pages are made of: a sound one, one with hostile names and a seed, one without noise; and a browser."""

from __future__ import annotations

import math
import shutil

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
    from gaussmix.report.page import render

    return render(private, response="cost")


@pytest.fixture(scope="module")
def evil():
    rng = np.random.default_rng(0)
    rows = {EVIL: rng.uniform(0, 1, 5000), "y": rng.uniform(0, 1, 5000), "c": rng.choice([EVIL, "b"], 5000)}
    schema = {EVIL: [0, 1], "y": [0, 1], "c": {"levels": [EVIL, "b"]}}
    return gm.release(rows, schema=schema, epsilon=2.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def unprotected(table):
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1.0)


ARGUMENTS = [
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a release's page offline; afterwards there must have been one request and no error."""
    from gaussmix.report.page import render

    contexts, requests, errors = [], [], []

    def go(release, *, page=None, **options):
        (tmp_path / "report.html").write_text(page or render(release), encoding="utf-8")
        contexts.append(browser.new_context(offline=True, **options))
        tab = contexts[-1].new_page()
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text))
        tab.goto((tmp_path / "report.html").as_uri())
        return tab

    yield go
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith("blob:")] == [(tmp_path / "report.html").as_uri()]
