"""Links from a page to a file above this folder lead to the page of the site that includes it."""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "experiments/README.md": "project/experiments.md",
}


def lead_inside(app: Sphinx, name: str, source: list[str]) -> None:
    """Rewrite such links when a page is read; on the disk they stay as they are."""
    up = "../" * name.count("/")
    for outside, page in PAGES.items():
        for end in (")", "#"):  # the link ends here, or goes on with a heading
            source[0] = source[0].replace(f"](../{up}{outside}{end}", f"]({up}{page}{end}")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Look at every page as it is read."""
    app.connect("source-read", lead_inside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
