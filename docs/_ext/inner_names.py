"""Names inside the library that have no page: shown as they are, if they exist. A name that does not is an error."""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.typing import ExtensionMetadata


def exists(name: str) -> bool:
    """Whether a dotted name of the library can be had: the longest module in it, and what is behind."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:cut]))
        except ImportError:
            continue
        for word in words[cut:]:
            if word not in getattr(found, "__dataclass_fields__", {}) and not hasattr(found, word):
                return False
            found = getattr(found, word, None)
        return True
    return False


def resolve(app: Sphinx, env: BuildEnvironment, node: nodes.Element, content: nodes.Element) -> nodes.Element | None:
    """The words of a reference without a link, where it is to something inside the library."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    homes = (None, node.get("py:module"), ".".join(filter(None, (node.get("py:module"), node.get("py:class")))))
    names = [target if home is None else f"{home}.{target}" for home in homes]
    return content if any(name.startswith("gaussmix.") and exists(name) for name in names) else None


def skip(app: Sphinx, kind: str, name: str, member: object, skipped: bool, options: object) -> bool | None:
    """Methods that scikit-learn puts into every estimator are its own to explain."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn.") else None


def setup(app: Sphinx) -> ExtensionMetadata:
    """Be asked about references that no page answers."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
