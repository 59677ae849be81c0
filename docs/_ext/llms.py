"""Copy llms.txt of the repository into the site, with links to the site's pages."""

from __future__ import annotations

import re
from pathlib import Path

from outer_pages import PAGES
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


def copy(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt beside the pages."""
    if error is not None:
        return
    text = Path(app.srcdir).parent.joinpath("llms.txt").read_text(encoding="utf-8")
    for outside, page in PAGES.items():
        text = text.replace(f"]({outside})", f"](docs/{page})")
    text = re.sub(r"\]\(docs/([\w/]+)\.md\)", r"](\1.html)", text)
    Path(app.outdir).joinpath("llms.txt").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Copy when the site is complete."""
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
