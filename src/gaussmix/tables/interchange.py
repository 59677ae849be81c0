"""Schemas of others: Frictionless table schemas, CSVW-EO and SmartNoise's metadata, read and written.

Nothing here sees data. A column is a plain dictionary as in a file of ours, with None where a bound or the levels are
not known; what another format has no words for is said in ``losses``, or is an error where it cannot be left out.

>>> declared = Declaration({"age": {"type": "numeric", "lower": 0.0, "upper": 99.0}, "job": {"type": "categorical"}})
>>> as_frictionless(declared)["fields"][0]
{'name': 'age', 'type': 'number', 'constraints': {'minimum': 0.0, 'maximum': 99.0}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from gaussmix.errors import ArgumentTypeError, DeclarationError, MissingPackageError
from gaussmix.tables.csvw_eo import as_csvw_eo, from_csvw_eo
from gaussmix.tables.declaration import Declaration
from gaussmix.tables.declaring import declared_values, parse_column, read_declared
from gaussmix.tables.frictionless import as_frictionless, from_frictionless
from gaussmix.tables.smartnoise import as_smartnoise, from_smartnoise

__all__ = ["KINDS", "Declaration", "Kind", "as_frictionless", "read_schema", "written"]

Kind = Literal["gaussmix", "frictionless", "csvw-eo", "smartnoise"]
KINDS: tuple[Kind, ...] = ("gaussmix", "frictionless", "csvw-eo", "smartnoise")

_YAML = (".yaml", ".yml")


def read_schema(path: str | Path) -> Declaration:
    """A schema of any kind, told by what the file holds."""
    file = Path(path)
    if file.suffix.lower() in _YAML:
        return from_smartnoise(_yaml(file))
    content = read_declared(file)
    if "tableSchema" in content:
        return from_csvw_eo(content)
    if isinstance(content.get("fields"), list) or isinstance(content.get("resources"), list):
        return from_frictionless(content)
    return _from_ours(content)


def written(declared: Declaration, kind: Kind) -> tuple[str, tuple[str, ...]]:
    """The text of a file of another kind, and what it cannot say."""
    if kind == "gaussmix":
        return _json(_as_ours(declared)), declared.losses + declared.unit_words()
    writers: dict[str, Callable[[Declaration], dict[str, Any]]] = {
        "frictionless": as_frictionless,
        "csvw-eo": as_csvw_eo,
        "smartnoise": as_smartnoise,
    }
    content = writers[kind](declared)
    losses = declared.losses + declared.unsaid() + (declared.unit_words() if kind == "frictionless" else ())
    return (_yaml_text(content) if kind == "smartnoise" else _json(content)), losses


def _from_ours(content: Mapping[str, Any]) -> Declaration:
    columns = content.get("columns", content)
    if not isinstance(columns, Mapping):
        raise ArgumentTypeError("columns must map names to columns.")
    rest = {key: value for key, value in content.items() if key != "columns"} if "columns" in content else {}
    return Declaration({str(name): _plain(str(name), short) for name, short in columns.items()}, rest=rest)


def _plain(name: str, short: Any) -> dict[str, Any]:
    """One column in the long form; open ones stay open."""
    if isinstance(short, Mapping) and (None in short.values() or short.get("type") == "unsupported"):
        implied = "categorical" if "levels" in short else "vector" if "size" in short else "numeric"
        return {"type": implied, **short}
    return declared_values(parse_column(name, short))


def _as_ours(declared: Declaration) -> dict[str, Any]:
    return {"columns": declared.columns, **declared.rest}


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _module() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingPackageError('SmartNoise metadata needs PyYAML: pip install "gaussmix[yaml]".') from None
    return yaml


def _yaml(file: Path) -> Mapping[str, Any]:
    yaml = _module()
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DeclarationError(f"{file} is not a valid YAML file.") from None
    if not isinstance(content, Mapping):
        raise ArgumentTypeError(f"{file} must hold one object that maps names.")
    return content


def _yaml_text(content: Any) -> str:
    text: str = _module().safe_dump(content, sort_keys=False, allow_unicode=True)
    return text
