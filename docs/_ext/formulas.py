"""Formulas as MathML, by what docutils has for it: pages need no script and nothing from another host."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own; several stand in paragraphs of their own."""
    self.body.append('<div class="formula">')
    self.body += [tex2mathml(part, as_block=True) for part in node.astext().split("\n\n") if part.strip()]
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Name the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
