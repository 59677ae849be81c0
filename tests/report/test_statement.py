"""The statement: all of the certificate, in plain words too, and nothing where nothing is guaranteed."""

from __future__ import annotations

import re
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA
from gaussmix.report import page as report
from gaussmix.report import statement
from report_pages import assert_nothing_is_promised, embedded, set_behind, unpickled, words

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")


def test_every_field_of_the_certificate_is_on_the_page(private, page):
    certificate, shown = private.certificate, words(page)
    for text in ("one row", certificate.neighbours, "one row added or removed", "3.3e-07", "Gaussian mechanism"):
        assert text in shown
    for text in (certificate.made_by, certificate.account.analysis, certificate.generator, certificate.version):
        assert text in shown
    assert certificate.time in shown
    assert repr(certificate.row_norm) in shown
    for text in ("Passes", "μ (Gaussian DP)", "Attack power", "discrete Gaussian integers", "Clipped"):
        assert text in shown
    assert str(private.statistic.clipping_loss) in shown
    for name, value in asdict(certificate.account).items():
        assert name in shown
        assert not isinstance(value, float) or repr(value).removesuffix(".0") in shown
    for text in ("trusted curator", "exact integers", "chosen without looking at the rows"):
        assert text in shown


def test_declared_bounds_are_on_the_page(page):
    shown = page.split('<table id="bounds">')[1].split("</table>")[0]
    for name, bound in [
        ("age", "0 to 100"),
        ("bmi", "10 to 50"),
        ("region", "north, south, west"),
        ("cost", "0 to 20"),
    ]:
        assert re.search(rf"<bdi>{name}</bdi></th>.*<bdi>{bound}</bdi>", shown)


def test_a_sound_release_has_no_banner(page):
    assert 'id="banner"' not in page
    assert "lists no condition that voids" in page


def test_plain_words_are_the_hypothesis_test_of_epsilon_and_delta(page):
    # exp(1) = 2.7183 rounded up; Φ(μ + Φ⁻¹(5 %)) = 7.7 % with μ = 0.2207, where e^ε 5 % + δ would be 13.6 %.
    assert "at most a factor of 2.72," in words(page)
    assert "true-positive rate of at most 7.8 %" in words(page)
    assert "one in 3,030,303" in words(page)


def test_a_seed_voids_the_guarantee_on_top_of_the_page(evil):
    page = report.render(evil)
    assert "The guarantee is void." in page.split("<h2")[0]
    assert re.search(r'<li class="bad"><strong>Void:</strong> the noise came from a seed', page)


def test_conditions_are_shown_voids_first(private):
    conditions = (gm.Condition(False, "a promise of the caller's"), gm.Condition(True, "a reason"))
    page = report.render(replace(private, certificate=replace(private.certificate, conditions=conditions)))
    shown = re.findall(r'<li class="(bad|caution)"><strong>\w+:</strong> (.*?)</li>', page)
    assert shown == [("bad", "a reason"), ("caution", "a promise of the caller&#39;s")]


def test_infinite_epsilon_is_called_not_private(unprotected):
    page = report.render(unprotected)
    assert "Not private." in page.split("<h2")[0]
    assert 'id="delta"' not in page
    assert "ε is infinite at every δ" in page
    assert "would look nearly the same" not in page
    assert embedded(page)["curve"] == []


@pytest.mark.parametrize("change", ["mu", "pass"])
def test_a_certificate_that_promises_too_much_is_found(private, change):
    wrong = unpickled(private)
    if change == "mu":
        set_behind(wrong.certificate.account, mu=wrong.certificate.account.mu * 0.9)
    else:
        set_behind(wrong.statistic.passes[0], mu=wrong.statistic.passes[0].mu * 0.9)
    page = report.render(wrong)
    assert "does not match the release" in page
    assert_nothing_is_promised(page)


def test_pages_about_void_releases_promise_nothing(evil, unprotected):
    for release in (evil, unprotected):
        assert not statement.is_valid(release)
        assert_nothing_is_promised(report.render(release))


def test_a_ledger_is_said_to_cover_all_releases(table, tmp_path):
    ledger = gm.Ledger(tmp_path / "l.sqlite", epsilon=1.0, delta=1e-6, releases=5)
    shown = words(report.render(gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))))
    assert "all releases through one ledger together" in shown
    assert "does not match" not in shown
    assert "the certified pair covers the whole ledger" in shown


def test_estimators_releases_have_statement_and_curve():
    """Like any other release's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    bounds = {"bounds_X": ([-1, -1, -2], [1, 1, 2]), "data_norm": 1.0, "bounds_y": (-1, 1)}
    model = gm.LinearRegression(epsilon=1.0, delta=1e-6, **bounds).fit(X, X[:, 0])
    page = report.render(model.release_)
    assert 'id="delta"' in page
    shown = words(page)
    assert "created by LinearRegression" in shown
    assert "vector of 3" in shown
    assert "bounds per entry, norm 1" in shown
    assert embedded(page)["response"] == "y"


def test_levels_beyond_forty_are_counted():
    schema = gm.Schema.of({"c": {"levels": [f"l{i}" for i in range(45)]}, "v": {"size": 2, "lower": 0, "upper": 1}})
    (levels, vector) = statement.bounds_of(schema)["rows"]
    assert levels[2].endswith("l39 and 5 more")
    assert vector[:3] == ["v", "vector of 2", "entries 0 to 1"]


@pytest.mark.parametrize(
    ("epsilon", "words_of_it"),
    [(1.0, "a factor of 2.72,"), (50.0, "a factor of 5.19e+21,"), (1e-3, "a factor of 1.01,")],
)
def test_plain_words_at_any_epsilon(private, epsilon, words_of_it):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.BudgetWarning)
        certificate = gm.release({"x": [0.5]}, schema={"x": [0, 1]}, epsilon=epsilon, delta=1e-6).certificate
    assert words_of_it in statement.in_plain_words(certificate)[0]
    assert "Adding or removing one row changes" in statement.in_plain_words(certificate)[0]
    other = gm.release({"x": [0.5]}, schema={"x": [0, 1]}, budget=gm.Budget(1.0, 1e-6, neighbours="replace-one"))
    assert "Replacing one row changes" in statement.in_plain_words(other.certificate)[0]
