"""The curve as a figure: its slider, its ticks, numbers rounded towards caution."""

from __future__ import annotations

import math
import re

import pytest

import gaussmix as gm
from gaussmix.accounting.curve import curve_of
from gaussmix.report.page import picture, why_no_curve
from gaussmix.report.statement import number, one_in, plain_value, up
from report_pages import embedded


def test_slider_shows_the_certified_pair_first(private, page):
    (start,) = re.findall(r'<input id="delta".*?value="(\d+)"', page)
    curve = embedded(page)["curve"]
    assert curve[int(start)]["words"] == "δ = 3.3e-07: ε = 1"
    assert len(curve) == 222


@pytest.mark.parametrize(("value", "text"), [(0.99991, "1"), (1.0, "1"), (1.001, "1.01"), (0.0, "0"), (math.inf, "∞")])
def test_epsilon_is_rounded_up(value, text):
    assert up(value) == text


@pytest.mark.parametrize("budget", [{"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.05, "delta": 0.009}])
def test_coordinates_stay_within_the_figure(budget):
    release = gm.release({"x": [0.5]}, schema={"x": [0, 1]}, **budget)
    drawn = picture(curve_of(release.certificate.account), release.certificate)
    points = [tuple(map(float, pair.split(","))) for pair in drawn["points"].split()]
    assert all(drawn["left"] <= x <= drawn["right"] and drawn["top"] <= y <= drawn["bottom"] for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)  # ε falls: downwards in a picture
    assert drawn["certified"]["title"] == f"ε = {number(budget['epsilon'])} at δ = {number(budget['delta'])}"
    assert drawn["start_words"].startswith(f"δ = {budget['delta']:.6g}: ε = ")
    labels = [float(tick["label"]) for tick in drawn["y_ticks"]]
    assert labels[0] == 0
    assert len(labels) <= 7


def test_no_curve_says_why():
    table, schema = {"x": [0.5]}, {"x": [0, 1]}
    nothing = gm.release(table, schema=schema, epsilon=math.inf, delta=1e-6).certificate
    assert "ε is infinite at every δ" in why_no_curve(nothing, valid=False)
    seeded = gm.release(table, schema=schema, epsilon=1.0, delta=1e-6, random_state=0).certificate
    assert "no privacy guarantee" in why_no_curve(seeded, valid=False)
    assert "No curve is available" in why_no_curve(seeded, valid=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.3e-7, "3.3e-07"), (1.0, "1"), (math.inf, "∞ (infinite)"), (2.6457513110645907, "2.6457513110645907")],
)
def test_numbers_keep_all_of_their_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(1e-6, "one in 1,000,000"), (3.3e-7, "one in 3,030,303"), (0.5, "0.5")])
def test_probabilities_as_one_in_so_many(value, text):
    assert one_in(value) == text


def test_plain_values():
    assert plain_value({"a": 1.0, "b": {"c": None}}) == "a: 1; b: c: none"
