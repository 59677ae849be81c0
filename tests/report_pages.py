"""What the tests of pages share: a hostile name, and ways to read a page."""

from __future__ import annotations

import html
import json
import pickle
import re
from html.parser import HTMLParser

import pytest

EVIL = '<!--<script></script><img src=x onerror="boom()">&\u2028{{ 7*7 }}'


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


def assert_nothing_is_promised(page):
    shown = words(page)
    assert 'class="banner good"' not in page
    assert "There is no privacy guarantee" in shown
    assert not re.search(r"changes the probability of|true-positive rate of at most|covered at no", shown)
    assert 'id="delta"' not in page  # no curve
    assert "no guarantee" in shown


def unpickled(release):
    """A copy that went round the checks, as one from elsewhere may have."""
    return pickle.loads(pickle.dumps(release))


def set_behind(part, **values):
    """Change a part of a release behind its own checks."""
    for name, value in values.items():
        object.__setattr__(part, name, value)
