"""What can be seen of a run: all that can be reached from what it returns, and all that it says meanwhile.

`watched` runs a subject on one table, `assert_alike` compares what was seen of two runs and says where they differ.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cached_property
from typing import Any

import numpy as np


def watched(subject: Callable[[Any], Any], table: Any) -> Any:
    """Everything that can be seen of a run."""
    records: list[Any] = []
    handler = logging.Handler(level=0)
    handler.emit = lambda record: records.append(_recorded(record))  # type: ignore[method-assign]
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(0)
    try:
        with warnings.catch_warnings(record=True) as warned, _printed() as printed:
            warnings.simplefilter("always")
            found = everything(subject(table))
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    return {"seen": found, "warned": [str(one.message) for one in warned], "logged": records, "printed": printed}


_RECORD = frozenset(vars(logging.makeLogRecord({})))


def _recorded(record: logging.LogRecord) -> Any:
    """What a log record says, and what it carries besides: an error, and whatever was given as ``extra``."""
    extra = {name: value for name, value in vars(record).items() if name not in _RECORD}
    return everything([record.name, record.getMessage(), record.exc_info and repr(record.exc_info[1]), extra])


@contextmanager
def _printed() -> Iterator[list[str]]:
    out, texts = io.StringIO(), list[str]()
    with redirect_stdout(out), redirect_stderr(out):
        yield texts
    texts.append(out.getvalue())


# ---------------------------------------------------------------------------------------------------------------
# All that can be reached
_CHANCE = re.compile(r" at 0x[0-9a-f]+|sk-container-id-\d+|sk-estimator-id-\d+")
"""Addresses in memory, and scikit-learn's numbers of what it has shown."""


def everything(thing: Any, known: dict[int, Any] | None = None) -> Any:
    """A value that is equal for equal things: attributes, properties, representations and pickles, all the way down.

    ``known`` has what was met before, kept alive, and what was found: a thing is walked once.
    """
    known = {} if known is None else known
    if thing is None or isinstance(thing, str | bytes | bool | int | float | complex | np.generic | type):
        return repr(thing)
    if id(thing) not in known:
        known[id(thing)] = thing, "above"
        known[id(thing)] = thing, _inside(thing, known)
    return known[id(thing)][1]


def _inside(thing: Any, known: dict[int, Any]) -> Any:
    if isinstance(thing, np.ndarray):
        content = thing.tobytes() if thing.dtype != object else [everything(value, known) for value in thing.flat]
        return (thing.dtype.str, thing.shape, content)
    if isinstance(thing, Mapping):
        return [(everything(key, known), everything(value, known)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset):
        ordered = sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing
        return [everything(value, known) for value in ordered]
    if isinstance(thing, np.random.Generator):
        return everything(thing.bit_generator.state, known)
    if callable(thing) and not type(thing).__module__.startswith("gaussmix"):
        parts = ("__module__", "__qualname__", "__self__", "__defaults__", "__kwdefaults__", "func", "args", "keywords")
        cells = [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
        return [everything(getattr(thing, part, None), known) for part in parts] + [everything(cells, known)]
    return (type(thing).__name__, sorted(_attributes(thing, known).items()), _shown(thing))


def _attributes(thing: Any, known: dict[int, Any]) -> dict[str, Any]:
    """Of a thing of ours, properties too; of others what they keep, or the pickle of those that keep it elsewhere."""
    kind = type(thing)
    found = {name: everything(value, known) for name, value in getattr(thing, "__dict__", {}).items()}
    if not kind.__module__.startswith("gaussmix"):
        try:
            return found or {"pickle": pickle.dumps(thing)}
        except (TypeError, pickle.PicklingError):  # locks
            return {}
    found["(class)"] = _of_class(kind, known)
    slots = {name for above in kind.__mro__ for name in getattr(above, "__slots__", ())}
    for name in dir(kind):
        if name in slots or isinstance(getattr(kind, name, None), property | cached_property):
            try:
                found[name] = everything(getattr(thing, name), known)
            except Exception as error:
                found[name] = (type(error).__name__, str(error))
    return found


def _of_class(kind: type, known: dict[int, Any]) -> Any:
    """What classes of ours keep for all of their kind."""
    if id(kind) not in known:
        known[id(kind)] = kind, "above"
        kept = {
            f"{above.__name__}.{name}": everything(value, known)
            for above in kind.__mro__
            if above.__module__.startswith("gaussmix")
            for name, value in vars(above).items()
            if not name.startswith("__") and not hasattr(value, "__get__")
        }
        known[id(kind)] = kind, sorted(kept.items())
    return known[id(kind)][1]


def _shown(thing: Any) -> list[str]:
    """What it looks like, to programs, readers and notebooks; or what the error says that keeps it from being shown."""
    return [_CHANCE.sub("", _text(way, thing)) for way in (repr, str, _html)]


def _html(thing: Any) -> str:
    return thing._repr_html_() if hasattr(thing, "_repr_html_") else ""


def _text(way: Callable[[Any], str], thing: Any) -> str:
    try:
        return way(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def assert_alike(one: Any, other: Any, where: str = "", met: set[tuple[int, int]] | None = None) -> None:
    """Equal, or an error that says where they are not."""
    met = set() if met is None else met
    if (id(one), id(other)) in met:
        return
    met.add((id(one), id(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_alike(one[key], other[key], f"{where}.{key}", met)
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), f"{where} depends on the rows"
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            name = a[0] if isinstance(a, tuple) and a and isinstance(a[0], str) else i
            assert_alike(a, b, f"{where}.{name}", met)
    else:
        assert one == other, f"{where} depends on the rows"
