"""The report: all of the certificate, nothing but the release, nothing from elsewhere, and a page that works."""

from __future__ import annotations

import builtins
import html
import json
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix import accounting, report
from gaussmix.cli import main
from gaussmix.inference import NOT_IDENTIFIED
from gaussmix.releases import METADATA_KEY
from tables import SCHEMA, patients

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")

EVIL = '<!--<script></script><img src=x onerror="boom()">&\u2028{{ 7*7 }}'


@pytest.fixture(scope="module")
def table():
    return patients(20_000)


@pytest.fixture(scope="module")
def private(table):
    return gm.release(table, schema=SCHEMA, epsilon=1.0, delta=3.3e-7)


@pytest.fixture(scope="module")
def page(private):
    return report.render(private)


@pytest.fixture(scope="module")
def evil():
    rng = np.random.default_rng(0)
    rows = {EVIL: rng.uniform(0, 1, 5000), "y": rng.uniform(0, 1, 5000), "c": rng.choice([EVIL, "b"], 5000)}
    schema = {EVIL: [0, 1], "y": [0, 1], "c": {"levels": [EVIL, "b"]}}
    return gm.release(rows, schema=schema, epsilon=2.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def unprotected(table):
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1.0)


def embedded(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert not set(text) & set("<>&\u2028\u2029")
    return json.loads(text, parse_constant=pytest.fail)


def words(page):
    """Text that a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", page.split("<body>")[1].split("<script")[0]))


class Loads(HTMLParser):
    """Attributes by which a page loads or leaves, and ids."""

    def __init__(self, page):
        super().__init__()
        self.found, self.ids, self.tags, self.references = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href", "formaction"):
                self.found.append((tag, name, value))
            if name == "id":
                self.ids.append(value)
            if name in ("for", "aria-labelledby", "aria-describedby"):
                self.references.append(value)
            assert name not in ("style", "onclick", "onload", "onerror"), f"{tag} has {name}"


# ---------------------------------------------------------------------------------------------------------------
# What it says
def test_every_field_of_the_certificate_is_on_the_page(private, page):
    certificate, shown = private.certificate, words(page)
    for text in ("one row of the table", certificate.relation, "one row set to zero", "3.3e-07", "Gaussian mixing"):
        assert text in shown
    for text in (certificate.mechanism, certificate.analysis, certificate.generator, certificate.version):
        assert text in shown
    assert certificate.time in shown
    assert repr(certificate.row_norm) in shown
    assert f"{private.sketch_size:,} rows" in shown
    assert f"{private.noise_variance:.6g}" in shown
    for name, value in certificate.parameters.items():
        assert name in shown
        assert not isinstance(value, float) or repr(value).removesuffix(".0") in shown
    for text in ("trusted curator", "real numbers", "fixed without looking at the rows"):
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


def test_page_names_the_file_it_is_about(private, page, tmp_path):
    private.save(tmp_path / "r.parquet")
    stored = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[METADATA_KEY])
    assert stored["sha256"] in page
    assert report.render(gm.load(tmp_path / "r.parquet")) == page


def test_a_sound_release_has_no_banner(page):
    assert 'id="banner"' not in page
    assert "lists no condition that voids" in page


def test_plain_words_are_the_hypothesis_test_of_epsilon_and_delta(page):
    # exp(1) = 2.7183 rounded up; e^ε 5 % + δ = 13.59 % rounded up.
    assert "at most 2.72 times" in words(page)
    assert "finds at most 13.6 % of those who were" in words(page)
    assert "one in 3,030,303" in words(page)


def test_a_seed_voids_the_guarantee_on_top_of_the_page(evil):
    page = report.render(evil)
    assert "The guarantee is void." in page.split("<h2")[0]
    assert re.search(r'<li class="bad"><strong>Void:</strong> the noise came from a seed', page)


def test_conditions_are_shown_voids_first(private):
    conditions = ("condition: a promise of the caller's", "void: a reason", "something else")
    page = report.render(replace(private, certificate=replace(private.certificate, conditions=conditions)), targets=[])
    shown = re.findall(r'<li class="(bad|caution)"><strong>\w+:</strong> (.*?)</li>', page)
    assert shown == [("bad", "a reason"), ("caution", "a promise of the caller&#39;s"), ("caution", "something else")]


def test_infinite_epsilon_is_called_not_private(unprotected):
    page = report.render(unprotected)
    assert "Not private." in page.split("<h2")[0]
    assert 'id="delta"' not in page
    assert "ε is infinite at every δ" in page
    assert "would look nearly the same" not in page
    assert embedded(page)["curve"] == []


@pytest.mark.parametrize("change", ["gamma", "noise", "sketch"])
def test_a_certificate_that_promises_too_much_is_found(private, change):
    certificate = private.certificate
    if change == "gamma":
        lowered = certificate.parameters | {"gamma": certificate.parameters["gamma"] * 0.9}
        wrong = replace(private, certificate=replace(certificate, parameters=lowered))
    elif change == "noise":
        wrong = replace(private, noise_variance=private.noise_variance * 0.9)
    else:
        wrong = replace(private, sketch_size=private.sketch_size + 1)
    assert "does not fit the release" in report.render(wrong, targets=[])


def test_a_ledger_is_said_to_cover_all_releases(table, tmp_path):
    ledger = gm.Ledger(tmp_path / "l.sqlite", epsilon=1.0, delta=1e-6, sketch_rows=5000)
    shown = words(report.render(gm.release(table, schema=SCHEMA, ledger=ledger, sketch_size=1000), targets=[]))
    assert "all releases through one ledger together" in shown
    assert "does not fit" not in shown
    assert "the certified pair is of the whole ledger" in shown


def test_estimators_releases_have_statement_and_curve():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    model = gm.LinearMixing(epsilon=1.0, delta=1e-6, data_norm=1.0, bounds_y=(-1, 1)).fit(X, X[:, 0])
    page = report.render(model.release_)
    assert "no named columns" in page
    assert ('id="delta"' in page) == (model.release_.certificate.parameters["scale"] == "none")


# ---------------------------------------------------------------------------------------------------------------
# The curve
@pytest.mark.parametrize(
    ("relation", "k", "gamma"),
    [
        ("zero-out", 1_000_000, 3000.0),
        ("zero-out", 250, 53.0),
        ("zero-out", 250, 2.0),
        ("zero-out", 5, 0.1),
        ("replace-one", 250, 53.0),
    ],
)
def test_curve_is_never_below_the_exact_one_and_close_to_it(relation, k, gamma):
    deltas = np.array([1e-12, 1.7e-12, 3.3e-9, 1e-6, 2e-4, 0.03, 0.1])
    epsilon = accounting.epsilon(1e-6, sketch_size=k, gamma=gamma, relation=relation)
    curve = report.privacy_curve(deltas, epsilon=epsilon, sketch_size=k, gamma=gamma, relation=relation)
    exact = accounting.epsilon(deltas, sketch_size=k, gamma=gamma, relation=relation)
    slack = curve.epsilon - exact
    assert np.all(slack >= -1e-9 * (1 + exact))
    assert np.all(slack <= 0.02 * exact[0])
    assert curve.certified_delta <= 1e-6


def test_slider_shows_the_certified_pair_first(private, page):
    (start,) = re.findall(r'<input id="delta".*?value="(\d+)"', page)
    curve = embedded(page)["curve"]
    assert curve[int(start)]["words"] == "δ = 3.3e-07: ε = 1"
    assert len(curve) == 222


@pytest.mark.parametrize(("value", "text"), [(0.99991, "1"), (1.0, "1"), (1.001, "1.01"), (0.0, "0"), (math.inf, "∞")])
def test_epsilon_is_rounded_up(value, text):
    assert report._up(value) == text


# ---------------------------------------------------------------------------------------------------------------
# Coefficients
def test_models_are_those_of_the_summary(private, page):
    data = embedded(page)
    assert [model["target"] for model in data["models"]] == ["age", "bmi", "smoker", "cost"]
    summary = private.regress("cost").summary()
    rows = data["models"][-1]["rows"]
    assert [row["name"] for row in rows] == list(summary.names)
    np.testing.assert_allclose([row["estimate"] for row in rows], summary.params)
    np.testing.assert_allclose([[row["low"], row["high"]] for row in rows], summary.conf_int())
    age = next(row for row in rows if row["name"] == "age")
    assert age["span"] == 100
    assert age["interval_text"] == f"{age['low']:.4g} to {age['high']:.4g}"


def test_alpha_sets_the_level(private, page):
    other = report.render(private, alpha=0.2, targets=["cost"])
    assert "80 % interval" in other
    (model,) = embedded(other)["models"]
    wide = embedded(page)["models"][-1]["rows"]
    assert all(a["low"] > b["low"] and a["high"] < b["high"] for a, b in zip(model["rows"], wide, strict=True))


def test_what_is_not_identified_has_no_number(table):
    weak = gm.release(table, schema=SCHEMA, epsilon=0.02, delta=1e-6, random_state=1)
    (model,) = embedded(report.render(weak, targets=["cost"]))["models"]
    unknown = [row for row in model["rows"] if row["low"] is None]
    assert unknown
    for row in unknown:
        assert row["estimate"] is None
        assert (row["estimate_text"], row["interval_text"], row["range_text"]) == ("", NOT_IDENTIFIED, "")
    assert "R²" not in model["words"]


def test_signals_are_the_diagonal_of_the_second_moment(private, page):
    data = embedded(page)
    np.testing.assert_allclose([row["signal"] for row in data["signals"]], np.diagonal(private.second_moment()))
    assert data["noise"] == private.entry_noise


# ---------------------------------------------------------------------------------------------------------------
# The file
def test_names_are_escaped_everywhere(evil):
    page = report.render(evil)
    parsed = Loads(page)
    assert "img" not in parsed.tags
    assert page.count("</script>") == 2
    assert "{{ 7*7 }}" in words(page)  # text, no template
    assert EVIL in words(page)
    assert {model["target"] for model in embedded(page)["models"]} == {EVIL, "y"}


@pytest.mark.parametrize("which", ["private", "evil", "unprotected"])
def test_page_is_self_contained_and_labelled(which, request):
    page = report.render(request.getfixturevalue(which))
    parsed = Loads(page)
    assert all(value.startswith(("#", "data:,")) for _, _, value in parsed.found)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}  # a name
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert set(parsed.references) <= set(parsed.ids)
    embedded(page)


def test_same_release_same_page(private, page):
    assert report.render(private) == page


def test_missing_jinja2_is_explained(private, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'gaussmix\[plots\]'"):
        report.render(private)


def test_command_writes_the_page(private, tmp_path):
    private.save(tmp_path / "r.parquet")
    arguments = ["report", str(tmp_path / "r.parquet"), "-o", str(tmp_path / "r.html"), "--target", "cost"]
    result = CliRunner().invoke(main, [*arguments, "--alpha", "0.1"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == report.render(private, alpha=0.1, targets=["cost"])
    assert CliRunner().invoke(main, [*arguments, "--alpha", "2"]).exit_code == 2


# ---------------------------------------------------------------------------------------------------------------
# In a browser
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
    contexts, requests, errors = [], [], []

    def go(release, **options):
        report.write(release, tmp_path / "report.html")
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
    assert len(requests) == 1


def test_slider_moves_with_the_keyboard(visit, private):
    tab = visit(private)
    curve = embedded(report.render(private, targets=[]))["curve"]
    slider, shown = tab.locator("#delta"), tab.locator("#epsilon")
    assert shown.get_attribute("aria-live") == "polite"
    assert tab.get_by_label("Choose δ").count() == 1
    before, place = int(slider.input_value()), tab.locator("#marker").get_attribute("cx")
    slider.focus()
    tab.keyboard.press("ArrowRight")
    assert int(slider.input_value()) == before + 1
    assert shown.inner_text() == curve[before + 1]["words"] == slider.get_attribute("aria-valuetext")
    assert tab.locator("#marker").get_attribute("cx") != place
    tab.keyboard.press("Home")
    assert shown.inner_text() == curve[0]["words"]
    assert shown.inner_text().startswith("δ = 1e-12:")
    tab.keyboard.press("End")
    assert shown.inner_text().startswith("δ = 0.1:")


def test_target_and_scale_change(visit, private):
    tab = visit(private)
    rows = tab.locator("#coefficients tbody tr")
    assert rows.count() == 7
    assert "age explained" in tab.locator("#coefficients caption").inner_text()
    tab.get_by_label("Column to explain").focus()
    tab.keyboard.press("End")
    assert "cost explained" in tab.locator("#coefficients caption").inner_text()
    expected = embedded(report.render(private, targets=["cost"]))["models"][0]["rows"]
    assert [rows.nth(i).locator("td").nth(1).inner_text() for i in range(7)] == [r["interval_text"] for r in expected]
    assert tab.locator("#forest circle.estimate").count() == 6  # all but the intercept
    place = tab.locator("#forest circle.estimate").first.get_attribute("cx")
    tab.get_by_label("across the declared range").check()
    assert tab.locator("#forest circle.estimate").first.get_attribute("cx") != place


def test_names_do_no_harm_in_a_browser(visit, evil):
    tab = visit(evil)
    tab.select_option("#target", label="y")
    assert tab.locator("img").count() == 0
    assert EVIL in tab.locator("#coefficients tbody th").nth(1).text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1200])
def test_page_fits_every_width_and_text_has_contrast(visit, private, scheme, width):
    tab = visit(private, color_scheme=scheme, viewport={"width": width, "height": 700})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    colours = tab.evaluate(
        """["--text", "--muted", "--accent", "--second", "--page"].map((name) =>
            getComputedStyle(document.documentElement).getPropertyValue(name).trim())"""
    )
    assert all(contrast(colour, colours[-1]) >= 4.5 for colour in colours[:-1])  # WCAG 2.2, AA
    for kind in ("bad", "caution", "good"):
        pair = tab.evaluate(
            f"""["--{kind}", "--{kind}-soft"].map((name) =>
                getComputedStyle(document.documentElement).getPropertyValue(name).trim())"""
        )
        assert contrast(*pair) >= 4.5


def test_infinite_epsilon_and_printing(visit, unprotected):
    tab = visit(unprotected, color_scheme="dark")
    assert "Not private." in tab.locator("#banner").inner_text()
    assert tab.locator("#signals svg").count() == 0
    assert tab.pdf(format="A4").startswith(b"%PDF")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def contrast(one, other):
    """Ratio of relative luminances of two colours #rrggbb (WCAG 2.2)."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
