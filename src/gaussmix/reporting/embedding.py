"""The release as JSON values embedded in the page, from which its script computes models.

**Private**: a function of the release. Matrices are base64 of little-endian float64, lower triangles row by row, so
that the browser has the same bits. The embedded moment is the one that intervals are computed from, the last
pass, with the distribution of its noise (:mod:`gaussmix.models.noisy`).
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import columns_behind, is_marked, needed_parts, part_name, parts_without
from gaussmix.models.fits import number_response
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.problem import Response
from gaussmix.models.release import Release
from gaussmix.models.responses import two_classes
from gaussmix.tables.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.tables.parts import Part
from gaussmix.tables.releasing import name_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.terms import needs_of, parse_terms
from gaussmix.tables.units import half_range, half_span

__all__ = ["embedded_release", "first_response", "needs_of_part"]


def first_response(schema: Schema, response: str | None = None) -> str | None:
    """Return the response shown first: the named column, or the first numeric column.

    Without numeric columns it is the first Boolean, then the first category with two levels, and None if there is none.
    """
    plain = {name: part for name, part in schema.parts.items() if not is_marked(schema, name)}
    numbers = [name for name, part in plain.items() if isinstance(part, Numeric)]
    booleans = [name for name, part in plain.items() if isinstance(part, Boolean)]
    classes = [name for name, part in plain.items() if isinstance(part, Categorical) and len(part.labels) == 2]
    possible = [name for name in (*numbers, *booleans, *classes) if schema.intercept or parts_without(schema, [name])]
    if response is None:
        return possible[0] if possible else None
    name = part_name(schema, response)
    if name not in possible:
        raise ArgumentError(
            f"response must be a numeric or Boolean column without a missing-value indicator, or a category with two "
            f"levels, got {response!r}."
        )
    return name


def embedded_release(release: Release, n_rows: int | None = None) -> dict[str, Any]:
    """Return the release as values for the script of the page; ``n_rows`` is the number of rows, if it is public."""
    schema, noisy = release.schema, release.statistic.noisy
    units = schema.units
    return {
        "noisy": _noisy(noisy),
        "encoded": [
            {
                "name": column.name,
                "source": column.source,
                "centre": centre,
                "scale": scale,
                "span": half_span(schema, column),
                "levels": [list(level) for level in column.levels],
            }
            for column, centre, scale in zip(schema.encoded, units.centres.tolist(), units.scales.tolist(), strict=True)
        ],
        "parts": [_part(release, name, part) for name, part in schema.parts.items()],
        "raw": _raw(schema),
        "intercept": units.constant,
        "weighted": schema.weight is not None,
        "proposed": release.propose_merges(),
        "shortened": None if noisy.shortened is None else str(noisy.shortened),
        "sample_rows": _sample_rows(release, n_rows),
    }


def _noisy(noisy: NoisyMoment) -> dict[str, Any]:
    """Return the moment and the shape of its noise, which is one number if it is a multiple of the identity."""
    shape = noisy.shape
    isotropic = bool(np.array_equal(shape, shape[0, 0] * np.eye(len(shape))))
    return {
        "size": len(noisy.moment),
        "moment": _triangle(noisy.moment),
        "shape": float(shape[0, 0]) if isotropic else _triangle(shape),
        "independent": noisy.independent,
    }


def _triangle(matrix: Floats) -> str:
    lower = matrix[np.tril_indices(len(matrix))]
    return base64.b64encode(np.ascontiguousarray(lower, dtype="<f8").tobytes()).decode()


def _part(release: Release, name: str, part: Part) -> dict[str, Any]:
    schema, (kind, more) = release.schema, _kind(part)
    if isinstance(part, Numeric):
        more["typical"] = _typical(release, name, part)
    return {
        "name": name,
        "kind": kind,
        "indices": list(schema.groups[name]),
        "columns": list(columns_behind(schema, name)),
        "needs": needs_of_part(schema, name),
        "responses": _responses(schema, name, part),
        "typed": kind in ("numeric", "boolean", "categorical")
        and name in schema.columns
        and not is_marked(schema, name),
        **more,
    }


def _responses(schema: Schema, name: str, part: Part) -> dict[str, Any] | None:
    """Return a part as a response, by scale of the coefficients; None if it cannot be a response."""
    found: dict[str, Response] = {}
    if not is_marked(schema, name):
        if isinstance(part, Numeric | Boolean):
            found["linear"] = number_response(schema, name)
        if isinstance(part, Boolean) or (isinstance(part, Categorical) and len(part.labels) == 2):
            found["odds"] = two_classes(schema, name)[0]
    return {scale: _response(schema, response) for scale, response in found.items()} or None


def _response(schema: Schema, response: Response) -> dict[str, Any]:
    entries = np.flatnonzero(response.vector).tolist()
    return {
        "name": response.name,
        "vector": [[i, float(response.vector[i])] for i in entries],
        "centre": response.centre,
        "scale": response.scale,
        "half": half_range(schema, response.vector),
    }


def needs_of_part(schema: Schema, name: str) -> list[str]:
    """Return the parts that a model with a part must include: lower-order terms and missing-value indicators."""
    terms = parse_terms(name, ()) if name in schema.terms else ()
    lower = [own for term in terms for need in needs_of(term) for own in schema.resolve(name_of(need))]
    return [other for other in needed_parts(schema, list(dict.fromkeys([*lower, name]))) if other != name]


def _kind(part: Part) -> tuple[str, dict[str, Any]]:
    if isinstance(part, Numeric):
        return "numeric", {"lower": part.lower, "upper": part.upper, "origin": part.origin}
    if isinstance(part, Boolean):
        return "boolean", {}
    if isinstance(part, Categorical):
        return "categorical", {"labels": list(part.labels), "unknown": part.unknown}
    if isinstance(part, Vector):
        return "vector", {}
    return ("missing" if part.term is None else "term"), {}


def _raw(schema: Schema) -> dict[str, Any] | None:
    """Return b and the rows of A that differ from the identity; None without terms."""
    if schema.units.raw is None:
        return None
    A, b = schema.units.raw
    changed = np.flatnonzero((np.eye(len(A)) != A).any(axis=1)).tolist()
    rows = [[i, [[k, float(A[i, k])] for k in np.flatnonzero(A[i]).tolist()]] for i in changed]
    return {"rows": rows, "b": b.tolist()}


def _sample_rows(release: Release, n_rows: int | None) -> float | None:
    """Return the number of rows for population intervals, as in a summary; None if they are not available."""
    schema, noisy = release.schema, release.statistic.noisy
    if schema.weight is not None or not noisy.independent:
        return None
    if n_rows is not None or not schema.intercept:
        return n_rows
    rows, deviation = noisy.quadratic(schema.units.one)
    return rows if rows >= 2 * deviation else None


def _typical(release: Release, name: str, part: Numeric) -> float:
    """Return the estimated mean of a column to three digits, or the middle of its bounds."""
    schema, moment = release.schema, release.statistic.noisy.moment
    middle = (part.lower + part.upper) / 2
    if not schema.intercept or schema.weight is not None:
        return middle
    one, x = schema.units.one, schema.units.rows(schema.groups[name])[0]
    rows = float(one @ moment @ one)
    return float(f"{min(max(float(x @ moment @ one) / rows, part.lower), part.upper):.3g}") if rows > 0 else middle
