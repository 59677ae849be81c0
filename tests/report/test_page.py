"""The page: nothing but the release, nothing from elsewhere, and it works in a browser."""

from __future__ import annotations

import builtins
import hashlib
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix._text import plain
from gaussmix.cli import main
from gaussmix.releases.file import METADATA_KEY
from gaussmix.report import page as report
from gaussmix.report.page import signals_of
from gaussmix.report.statement import subject
from report_pages import EVIL, Loads, assert_nothing_is_promised, embedded, words

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")


def test_page_names_the_file_it_is_about(private, page, tmp_path):
    private.save(tmp_path / "r.parquet")
    stored = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[METADATA_KEY])
    assert stored["sha256"] in page
    assert report.render(gm.load(tmp_path / "r.parquet"), response="cost") == page


@pytest.mark.parametrize("which", ["evil", "unprotected"])
def test_command_for_a_void_release_exits_with_5(which, request, tmp_path):
    request.getfixturevalue(which).save(tmp_path / "r.parquet")
    arguments = ["report", str(tmp_path / "r.parquet"), "-o", str(tmp_path / "r.html"), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 5
    assert json.loads(result.stdout)["private"] is False
    assert "has no privacy guarantee. Do not publish it" in result.stderr
    assert_nothing_is_promised((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_command_for_a_damaged_release_exits_with_5_and_writes_nothing(tmp_path):
    (tmp_path / "r.parquet").write_bytes(b"PAR1 damaged")
    result = CliRunner().invoke(main, ["report", str(tmp_path / "r.parquet"), "-o", str(tmp_path / "r.html")])
    assert result.exit_code == 5
    assert "is not a gaussmix release, or it is damaged" in result.stderr
    assert not (tmp_path / "r.html").exists()


# ---------------------------------------------------------------------------------------------------------------
# The file
def test_names_are_escaped_everywhere(evil):
    page = report.render(evil)
    parsed = Loads(page)
    assert "img" not in parsed.tags
    assert page.count("</script>") == 2
    assert "{{ 7*7 }}" in words(page)  # text, no template
    assert plain(EVIL) in words(page)  # its line separator is written as an escape
    assert [part["name"] for part in embedded(page)["release"]["parts"]] == [plain(EVIL), "y", "c"]


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


def test_signals_are_the_diagonal_of_the_second_moment(private, page):
    signals, diagonal, noise = signals_of(private), np.diagonal(private.second_moment), private.statistic.column_noise
    np.testing.assert_allclose([float(row["signal"]) for row in signals], diagonal, rtol=1e-3)
    np.testing.assert_allclose([float(row["noise"]) for row in signals], noise, rtol=1e-3)
    bars = np.maximum(np.log10(diagonal / noise), 0)
    np.testing.assert_allclose([row["bar"] for row in signals], 100 * bars / bars.max(), atol=0.051)
    assert all(f'<rect class="signal" width="{row["bar"]}"' in page for row in signals)


def test_same_release_same_page(private, page):
    assert report.render(private, response="cost") == page


def test_missing_jinja2_is_explained(private, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "gaussmix\[plots\]"'):
        report.render(private)


def test_command_writes_the_page(private, tmp_path):
    private.save(tmp_path / "r.parquet")
    arguments = ["report", str(tmp_path / "r.parquet"), "-o", str(tmp_path / "r.html"), "--response", "bmi"]
    said = [
        "--predictors",
        "sex,age",
        "--alpha",
        "0.1",
        "--title",
        "<Costs>",
        "--description",
        "Of patients & others",
        "--rows",
        "20000",
    ]
    result = CliRunner().invoke(main, [*arguments, *said])
    assert result.exit_code == 0, result.output
    digest = hashlib.sha256((tmp_path / "r.parquet").read_bytes()).hexdigest()
    more = {"predictors": ["sex", "age"], "title": "<Costs>", "description": "Of patients & others", "n_rows": 20_000}
    page = report.render(private, alpha=0.1, response="bmi", file_sha256=digest, **more)
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == page
    shown = words(page)
    assert all(text in shown for text in ("<Costs>", "Of patients & others", "20,000 rows, as its publisher states"))
    assert (embedded(page)["response"], embedded(page)["predictors"]) == ("bmi", ["sex", "age"])
    assert (embedded(page)["alpha"], embedded(page)["rows"]) == (0.1, 20_000)
    assert CliRunner().invoke(main, [*arguments, "--rows", "0"]).exit_code == 2
    assert CliRunner().invoke(main, [*arguments, "--alpha", "2"]).exit_code == 2


def test_the_table_is_described_once(private, page):
    own = subject(private)
    assert words(page.partition("</title>")[2]).count(own) == 1  # as the title, if there is no other
    titled = report.render(private, title="Costs").partition("</title>")[2]
    assert words(titled).count(own) == 1
    alone = words(report.render(private, n_rows=20_000).partition("</title>")[2])
    assert f"{own} 20,000 rows, as its publisher states." in " ".join(alone.split())


# ---------------------------------------------------------------------------------------------------------------
# In a browser
@pytest.mark.slow
def test_slider_moves_with_the_keyboard(visit, private, page):
    tab = visit(private, page=page)
    curve = embedded(page)["curve"]
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


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1400])
def test_page_fits_every_width_and_text_has_contrast(visit, private, page, scheme, width):
    tab = visit(private, page=page, color_scheme=scheme, viewport={"width": width, "height": 700})
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
    assert contrast(colours[0], mixed(colours[2], colours[-1])) >= 4.5  # the darkest squares of the heat map
    assert contrast(colours[0], mixed(colours[3], colours[-1])) >= 4.5


@pytest.mark.slow
def test_infinite_epsilon_and_printing(visit, unprotected):
    tab = visit(unprotected, color_scheme="dark")
    assert "Not private." in tab.locator("#banner").inner_text()
    assert tab.locator('#signals rect:not([width="0.0"])').count() == 0
    assert "it is not embedded in the page" in tab.locator("#no-models").inner_text()
    assert embedded(tab.content())["release"] is None
    assert tab.pdf(format="A4").startswith(b"%PDF")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def mixed(one, other):
    """45 % of one colour in another, as the heat map mixes them at most."""
    parts = [round(0.45 * int(one[i : i + 2], 16) + 0.55 * int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def contrast(one, other):
    """Ratio of relative luminances of two colours #rrggbb (WCAG 2.2)."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
