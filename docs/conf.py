"""The site: ``make docs``. Pages are those of this folder, which read as they are without it."""

from __future__ import annotations

import sys
from pathlib import Path

from gaussmix import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "gaussmix"
author = "The gaussmix developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "command_help",
    "formulas",
    "inner_names",
    "llms",
    "outer_pages",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
myst_heading_anchors = 3

autodoc_typehints = "none"  # types stand in the docstrings, in words
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = f"gaussmix {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"**": ["globaltoc.html"]}
html_show_sourcelink = False
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_center": [],  # the sidebar has all pages
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "default",
    "pygments_dark_style": "github-dark",
}
