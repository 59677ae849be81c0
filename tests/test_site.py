"""What the site must have, told without building it: pages in contents, public names on API pages, links."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import gaussmix

DOCS = Path(gaussmix.__file__).parents[2] / "docs"
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*"))
    if path.suffix in (".md", ".rst") and "_build" not in path.parts
}
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
LINKING = [DOCS / f"{page}.md" for page in PAGES if (DOCS / f"{page}.md").exists() and not page.startswith("project/")]
LINKING += [DOCS.parent / f"{name}.md" for name in ("README", "CHANGELOG", "SECURITY", "CONTRIBUTING")]


def contents(page: str) -> set[str]:
    """Pages that the tables of contents of a page name."""
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", PAGES[page], re.DOTALL)
    folder = Path(page).parent
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return {(folder / line).as_posix() for line in lines if line and not line.startswith(":")}


def test_every_page_is_in_a_table_of_contents():
    named = set().union(*(contents(page) for page in PAGES))
    assert named == set(PAGES) - {"index"}


@pytest.mark.parametrize("module", ["", ".accounting", ".baselines", ".errors", ".estimators", ".ledger", ".paper"])
def test_every_public_name_has_a_place(module):
    """Named by a directive under its module, or all of the module is."""
    module = f"gaussmix{module}"
    described = set()
    for page, text in PAGES.items():
        here = "gaussmix"
        for kind, name in re.findall(
            r"^\.\. ([\w]+):: ([\w.]+)$", text if page.startswith("api/") else "", re.MULTILINE
        ):
            if kind in ("module", "currentmodule"):
                here = name
            elif kind == "automodule":
                described |= set(importlib.import_module(name).__all__)
            else:
                described.add(name if name.startswith("gaussmix.") else f"{here}.{name}")
    homes = ("gaussmix", module)
    rooms = {"accounting", "baselines", "errors", "paper", "sites", "__version__"}
    for name in set(importlib.import_module(module).__all__) - rooms:
        assert name in described or any(f"{home}.{name}" in described for home in homes), f"{module}.{name}"


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page):
    """Also on a forge, where nobody builds anything."""
    for target, anchor in LINK.findall(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)):
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), f"{target}#{anchor}"


def anchors(path: Path) -> set[str]:
    """Of the headings of a page, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
