"""Certificates of format 1, which had no types: read as those of today, which compute their claim anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaussmix.errors import ArgumentError, NotPrivateError
from gaussmix.tables.schema import stored_schema

__all__ = ["from_format_1"]

_NEVER_IN_FORMAT_1 = ("AdaSSP", "SheffetMixing", "ObjectivePerturbation")


def from_format_1(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate of format 1, whose conditions were texts and whose parameters had no type."""
    parameters = dict(stored["parameters"])
    if stored["row_norm"] != stored_schema(stored["bounds"]).row_norm:
        raise ArgumentError("the bound on a row is not that of the declared columns")
    if stored["analysis"] != parameters.get("analysis", "none"):
        raise NotPrivateError("The certificate names another analysis than its parameters were computed with.")
    if stored["mechanism"] in _NEVER_IN_FORMAT_1:
        raise ArgumentError("format 1 has no releases of this mechanism")
    eigenvalue_bound = parameters.pop("eigenvalue_bound", None)
    if stored["mechanism"] == "none":
        account: dict[str, Any] = {"mechanism": "none"}
    else:
        budget = {key: stored[key] for key in ("epsilon", "delta", "relation")}
        split = list(dict(parameters.pop("delta_split")).items())
        account = {"mechanism": "Gaussian mixing", **budget, **parameters, "delta_split": split}
    conditions = [_condition(text) for text in stored["conditions"]]
    return {
        **{key: stored[key] for key in ("epsilon", "delta", "relation", "generator", "version", "time")},
        "release": stored.get("release", ""),
        "made_by": stored["mechanism"],
        "account": account,
        "schema": stored["bounds"],
        "conditions": conditions,
        "eigenvalue_bound": eigenvalue_bound,
    }


def _condition(text: str) -> dict[str, Any]:
    kind, _, words = text.partition(":")
    return {"void": kind == "void", "text": words.strip() if kind in ("void", "condition") else text}
