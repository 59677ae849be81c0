"""The walk of `walker` sees what hides: one secret, in one place, planted in every kind of place."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from walker import assert_alike, watched


class Leaky:
    """One secret, in one place."""

    __module__ = "gaussmix.leaky"


def in_an_attribute(secret):
    found = Leaky()
    found._rows = secret
    return found


def in_a_slot(secret):
    found = type("Slotted", (type("Above", (), {"__slots__": ("_rows",)}),), {"__module__": "gaussmix.leaky"})()
    found._rows = secret
    return found


def in_a_class(secret, **members):
    return type("Leaky", (Leaky,), {"__module__": "gaussmix.leaky", **members})()


def in_a_class_above(secret):
    above = type("Above", (), {"__module__": "gaussmix.leaky", "_rows": secret})
    return type("Leaky", (above,), {"__module__": "gaussmix.leaky"})()


def said_aloud(secret, say):
    say(f"{secret} rows")


LEAKS: dict[str, Callable[[int], Any]] = {
    "_rows": in_an_attribute,
    "_rows in a slot": in_a_slot,
    "a property": lambda secret: in_a_class(secret, rows=property(lambda self: secret)),
    "a cached property": lambda secret: in_a_class(secret, rows=cached_property(lambda self: secret)),
    "an error of a property": lambda secret: in_a_class(secret, rows=property(lambda self: {}[secret])),
    "a representation": lambda secret: in_a_class(
        secret, __repr__=lambda self: f"Leaky({secret})", __str__=lambda self: ""
    ),
    "a text": lambda secret: in_a_class(secret, __str__=lambda self: f"{secret} rows"),
    "a notebook": lambda secret: in_a_class(secret, _repr_html_=lambda self: f"<b>{secret}</b>"),
    "an error of a picture": lambda secret: in_a_class(secret, _repr_html_=lambda self: {}[secret]),
    "a class": lambda secret: in_a_class(secret, _rows=secret),
    "a class above": in_a_class_above,
    "a closure": lambda secret: lambda: secret,
    "a default": lambda secret: lambda rows=secret: rows,
    "a path": lambda secret: Path(f"{secret}.csv"),
    "a foreign object": lambda secret: pa.table({"x": [0] * 50 + [secret] + [0] * 50}),
    "a generator": lambda secret: np.random.default_rng(secret),
    "a deep place": lambda secret: {"x": [(in_an_attribute([secret]),)]},
    "a debug record": lambda secret: said_aloud(secret, logging.getLogger("gaussmix.x").debug),
    "a record's extra": lambda secret: logging.getLogger("gaussmix.x").debug("rows", extra={"rows": secret}),
    "an error in a record": lambda secret: logging.getLogger("gaussmix.x").debug("rows", exc_info=KeyError(secret)),
    "a warning": lambda secret: said_aloud(secret, warnings.warn),
    "a print": lambda secret: said_aloud(secret, print),
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
def test_the_walk_has_eyes(leak):
    """It sees what hides in a private attribute, a property, a representation, a record that nobody prints."""
    assert_alike(watched(leak, 1), watched(leak, 1))
    with pytest.raises(AssertionError, match="depends on the rows"):
        assert_alike(watched(leak, 1), watched(leak, 2))
