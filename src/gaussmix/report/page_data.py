"""Embedded data of a page: matrices from which the browser computes models, and tables rendered by Python."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import Schema
from gaussmix.data.terms import (
    Base,
    Block,
    EncodedColumn,
    Hour,
    Log,
    Part,
    Power,
    Product,
    Spline,
    bases_of,
    interval_of,
    name_of,
    needs_of,
    parse_terms,
)
from gaussmix.data.units import half_range, half_span
from gaussmix.errors import ArgumentError
from gaussmix.models.descriptive import NOISY, chosen_columns
from gaussmix.models.design import Response, columns_behind, is_marked, needed_parts, part_name, parts_without
from gaussmix.models.families import LOGIT, POISSON
from gaussmix.models.glm import class_response, count_response, mean_of_response, released_share
from gaussmix.models.likelihood import FEWER_POINTS
from gaussmix.models.linear import number_response
from gaussmix.models.predictor_distribution import (
    POINTS,
    bases_in_release,
    directions,
    number_behind,
    quantiles_of,
    unequal_shares,
)
from gaussmix.models.release import Release
from gaussmix.models.rendering import allowance, estimated_on
from gaussmix.releases.counts import RowCounts, kinds_of
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "CorrelationTable",
    "StaticTable",
    "StaticTables",
    "embedded_release",
    "first_predictors",
    "first_response",
    "needs_of_part",
    "static_tables",
]


def possible_responses(schema: Schema) -> list[str]:
    """Return the columns that can be responses of models: numbers, then booleans, then categories with two levels.

    Categories need an intercept.
    """
    plain = {name: part for name, part in schema.parts.items() if not is_marked(schema, name)}
    numbers = [name for name, part in plain.items() if isinstance(part, Numeric)]
    booleans = [name for name, part in plain.items() if isinstance(part, Boolean)]
    classes = [name for name, part in plain.items() if isinstance(part, Categorical) and len(part.labels) == 2]
    if schema.intercept:
        return [*numbers, *booleans, *classes]
    return [name for name in (*numbers, *booleans) if parts_without(schema, [name])]


def first_response(schema: Schema, response: str | None = None) -> str | None:
    """Return the response shown first: the named column, or the only possible one. None leaves it to the reader."""
    possible = possible_responses(schema)
    if response is None:
        return possible[0] if len(possible) == 1 else None
    name = part_name(schema, response)
    if name not in possible:
        raise ArgumentError(
            "response must be a numeric or boolean column without a missing-value indicator, or a category with two "
            f"levels, got {response!r}."
        )
    return name


def first_predictors(schema: Schema, response: str | None, predictors: Sequence[str]) -> list[str]:
    """Return the parts of the release that are the predictors shown first, without the response."""
    if response is None:
        raise ArgumentError("predictors requires response (--predictors requires --response).")
    found = list(dict.fromkeys(name for text in predictors for name in schema.resolve(text)))
    if response in found:
        raise ArgumentError(f"predictors must not contain the response {response!r}.")
    return found


def embedded_release(release: Release, n_rows: int | None = None) -> dict[str, Any]:
    """Return the release as values for the script of the page; ``n_rows`` is the number of rows, if it is public."""
    schema, noisy = release.schema, release.statistic.noisy
    units = schema.units
    return {
        "noisy": _noisy(noisy),
        "pool": _noisy(release.statistic.predictive) if schema.intercept else None,
        "sobol": _sobol(schema),
        "shaped": release.statistic.marginals is not None,
        "encoded": [
            {
                "name": column.name,
                "source": column.source,
                "centre": centre,
                "scale": scale,
                "kind": column.kind,
                "span": half_span(schema, column),
                "levels": [list(level) for level in column.levels],
                "quantiles": _quantiles(release, index),
                "factors": _factors(schema, column),
            }
            for index, (column, centre, scale) in enumerate(
                zip(schema.encoded, units.centres.tolist(), units.scales.tolist(), strict=True)
            )
        ],
        "parts": [_part(release, name, part) for name, part in schema.parts.items()],
        "raw": _raw(schema),
        "intercept": units.constant,
        "weighted": schema.weight is not None,
        "weight_bound": schema.weight_bound,
        "estimated_on": estimated_on(noisy),
        "allowance": "" if noisy.clipping_loss is None else allowance(noisy),
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
        "clipping_bias": noisy.clipping_bias,
    }


def _triangle(matrix: Floats) -> str:
    return _packed(matrix[np.tril_indices(len(matrix))])


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def _sobol(schema: Schema) -> dict[str, Any]:
    """Return direction numbers and shifts for every part that may be drawn, and one for the response."""
    dimensions = 1 + sum(
        1 if column.kind in ("level", "boolean") else len(own)
        for own in schema.groups.values()
        for column in [schema.encoded[own[0]]]
    )
    own, shifts = directions(dimensions)
    return {"points": POINTS, "fewer": FEWER_POINTS, "directions": own.tolist(), "shifts": shifts.tolist()}


def _quantiles(release: Release, index: int) -> dict[str, Any] | None:
    """Return the quantile function of a number; None for other columns."""
    part = release.schema.parts.get(release.schema.encoded[index].source or "")
    if not release.schema.intercept or not isinstance(part, Numeric | Vector):
        return None
    own = quantiles_of(release.statistic, index)
    known = np.array_equal(own.below, unequal_shares(len(own.low)))
    ends = np.append(own.low, own.high if own.whole else own.high[-1:])  # other cells touch
    return {"below": None if known else _packed(own.below), "ends": _packed(ends), "whole": own.whole}


def _factors(schema: Schema, column: EncodedColumn) -> list[dict[str, Any]] | None:
    """Return the factors of an entry of a term, as functions of parts of the release; None if they are not known."""
    part = schema.parts.get(column.source or "")
    if not isinstance(part, Block) or part.term is None or not bases_in_release(schema, column.source or ""):
        return None
    terms = part.term.factors if isinstance(part.term, Product) else (part.term,)
    found = []
    for term in terms:
        base = next(own for own in bases_in_release(schema, column.source or "") if bases_of(term)[0] in
                    columns_behind(schema, own))  # fmt: skip
        (place,) = [i for text, i in column.key if text == term.text]
        of = term.of if isinstance(term, Power | Spline) else term
        centre, half = (0.0, 1.0) if isinstance(schema.parts[base], Categorical) else interval_of(of, schema.columns)
        found.append(
            {
                "part": base,
                "log": isinstance(of, Log) and base in schema.columns,
                "exp": isinstance(of, Base) and base not in schema.columns,
                "hour": isinstance(of, Hour) and base in schema.columns,
                "centre": centre,
                "half": half,
                "degree": term.degree if isinstance(term, Power) else 1,
                "spline": term.size if isinstance(term, Spline) else 0,
                "place": place,
            }
        )
    return found


def _part(release: Release, name: str, part: Part) -> dict[str, Any]:
    schema, (kind, more) = release.schema, _kind(part)
    if isinstance(part, Numeric):
        more["typical"] = _typical(release, name, part)
    return {
        "name": name,
        "kind": kind,
        "weight": part.weight,
        "computed": list(bases_in_release(schema, name)),
        "base": number_behind(schema, name),
        "indices": list(schema.groups[name]),
        "columns": list(columns_behind(schema, name)),
        "needs": needs_of_part(schema, name),
        "responses": _responses(release.statistic, name, part),
        "typed": kind in ("numeric", "boolean", "categorical")
        and name in schema.columns
        and not is_marked(schema, name),
        **more,
    }


def _responses(statistic: Transcript, name: str, part: Part) -> dict[str, Any] | None:
    """Return a part as a response, by scale of the coefficients; None if it cannot be a response."""
    schema, found = statistic.schema, dict[str, Response]()
    if not is_marked(schema, name):
        if schema.intercept and (
            isinstance(part, Boolean) or (isinstance(part, Categorical) and len(part.labels) == 2)
        ):
            found["logit"] = class_response(schema, name, None, LOGIT)[0]
        if isinstance(part, Numeric | Boolean):
            found["linear"] = number_response(schema, name)
        if schema.intercept and isinstance(part, Numeric) and part.lower >= 0:
            found["poisson"] = count_response(schema, name, POISSON)
    means = {"logit": released_share, "poisson": mean_of_response}
    return {
        scale: _response(schema, response) | ({"mean": means[scale](statistic, response)} if scale in means else {})
        for scale, response in found.items()
    } or None


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
    counts = RowCounts(release.statistic)
    middle = (part.lower + part.upper) / 2
    if not release.schema.intercept or name not in release.schema.columns:
        return middle
    rows, total = float(counts.sums(name).values[0]), float(counts.totals([name]).values[0])
    return float(f"{min(max(total / rows, part.lower), part.upper):.3g}") if rows > 0 else middle


MOST_LEVELS = 100
"""Maximum number of levels of a category, or entries of a vector, shown in tables."""

MOST_CORRELATED = 60
"""Maximum number of encoded columns in the table of correlations."""

MOST_PAIRS = 12
MOST_CELLS = 400
"""Maximum number of cross-tables, and of cells in each."""

_SHADES = 9  # colour steps between correlations of 0 and 1


@dataclass(frozen=True)
class StaticTable:
    """A table as text.

    Attributes
    ----------
    caption : str
    head : tuple of str
    rows : tuple of tuples of str
        The first entry of a row is its label.
    notes : tuple of str
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CorrelationTable:
    """The lower triangle of a matrix of correlations, each with a class for its colour.

    Attributes
    ----------
    names : tuple of str
    rows : tuple of tuples of (str, str)
        Text and class: ``above`` or ``below`` 0 with a step from 0 to 9.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class StaticTables:
    """All static tables of a page.

    Attributes
    ----------
    description : StaticTable
    means : StaticTable or None
        Means of the response within the levels of every category, if the response is numeric or Boolean.
    correlations : CorrelationTable or None
        None if there are more than :data:`MOST_CORRELATED` encoded columns.
    crosstabs : tuple of StaticTable
    notes : tuple of str
        Tables that were omitted, with reasons.
    """

    description: StaticTable
    means: StaticTable | None
    correlations: CorrelationTable | None
    crosstabs: tuple[StaticTable, ...]
    notes: tuple[str, ...]


def static_tables(release: Release, response: str | None, *, alpha: float) -> StaticTables:
    """Compute the tables, with intervals of level 1 - alpha.

    Raise :class:`~gaussmix.errors.ArgumentError` if the release has no intercept.
    """
    schema, notes = release.schema, []
    schema.units.one  # noqa: B018 - an error without an intercept
    every = chosen_columns(schema, None)
    shown = [name for name in every if len(schema.groups[name]) <= MOST_LEVELS]
    if len(shown) < len(every):
        large = ", ".join(name for name in every if name not in shown)
        notes.append(f"Columns with more than {MOST_LEVELS} levels or entries are omitted: {large}.")
    classes = [name for name in shown if isinstance(schema.columns[name], Categorical | Boolean)]
    correlations = None
    if sum(len(schema.groups[name]) for name in shown) <= MOST_CORRELATED:
        correlations = _correlations(release, shown)
    else:
        notes.append(f"Correlations of more than {MOST_CORRELATED} encoded columns are printed by gaussmix corr.")
    crosstabs, words = _crosstabs(release, classes, alpha)
    return StaticTables(
        _description(release, shown, alpha), _means(release, response, classes, alpha), correlations, crosstabs,
        (*notes, *words),
    )  # fmt: skip


def _description(release: Release, shown: Sequence[str], alpha: float) -> StaticTable:
    found = release.describe(shown, alpha=alpha)
    rows = []
    for row, (_, _, shown, _, *ends) in zip(found.rows(), found.cells(), strict=True):
        term, statistic, estimate, error, low, high, *_ = row.values()
        if statistic == "count":
            shown, ends = f"{estimate:,.0f}", [f"{low:,.0f}", f"{high:,.0f}"]
        rows.append((term, statistic, shown, _digits(error, 3), _range(low, high, ends)))
    head = ("Column", "Statistic", "Estimate", "Std. error", _level(alpha))
    return StaticTable("Columns of the declared table", head, tuple(rows), found.notes)


def _means(release: Release, response: str | None, classes: Sequence[str], alpha: float) -> StaticTable | None:
    """Return means of a numeric column, or shares of true of a Boolean, by category."""
    by = [name for name in classes if name != response]
    if not by or response is None or not isinstance(release.schema.columns.get(response), Numeric | Boolean):
        return None
    rows, unbounded = [], False
    for name in by:
        found = release.means(response, name, alpha=alpha)
        for row, (label, mean, _, *ends) in zip(found.rows(), found.cells(), strict=True):
            low, high = row["conf.low"], row["conf.high"]
            rows.append((f"{name}={label}", mean, _digits(row["std.error"], 3), _range(low, high, ends)))
            unbounded |= not math.isfinite(low)
    words = ("An interval is unbounded where the number of rows of a level cannot be distinguished from 0.",)
    head = ("Level", f"Mean of {response}", "Std. error", _level(alpha))
    return StaticTable(f"Means of {response} within levels", head, tuple(rows), words if unbounded else ())


def _correlations(release: Release, shown: Sequence[str]) -> CorrelationTable:
    found = release.corr(shown)
    return CorrelationTable(
        found.names,
        tuple(tuple(_shaded(r) for r in row[: place + 1]) for place, row in enumerate(found.values.tolist())),
    )


def _shaded(r: float) -> tuple[str, str]:
    if not math.isfinite(r):
        return "–", ""
    return f"{r:z.2f}", f"{'below' if r < 0 else 'above'} shade-{round(_SHADES * abs(r))}"


def _crosstabs(
    release: Release, classes: Sequence[str], alpha: float
) -> tuple[tuple[StaticTable, ...], tuple[str, ...]]:
    """Return cross-tables of the first pairs of categories, and notes about them."""
    every = list(itertools.combinations(classes, 2))
    if not every:
        return (), ()
    levels = {name: len(kinds_of(release.schema, name)[0]) for name in classes}
    pairs = [pair for pair in every if levels[pair[0]] * levels[pair[1]] <= MOST_CELLS][:MOST_PAIRS]
    notes = [NOISY]
    if len(pairs) < len(every):
        notes.append(
            f"Cross-tables are shown for the first {len(pairs)} of {len(every)} pairs of categorical columns, in the "
            f"order of declaration and with at most {MOST_CELLS} cells; gaussmix crosstab prints the others."
        )
    found = []
    for one, two in pairs:
        table = release.crosstab(one, two)
        head, *rows = table.cells(alpha)
        caption = f"{one} by {two}: noisy counts, ± half the {_level(alpha)}"
        found.append(StaticTable(caption, tuple(head), tuple(map(tuple, rows)), (str(table.independence),)))
    return tuple(found), tuple(notes)


def _level(alpha: float) -> str:
    return f"{100 * (1 - alpha):g} % interval"


def _digits(value: float, many: int = 4) -> str:
    return "" if math.isnan(value) else f"{value:.{many}g}"


def _range(low: float, high: float, ends: Sequence[str]) -> str:
    """Return the formatted ends of an interval, if both are finite."""
    return " to ".join(ends) if math.isfinite(low) and math.isfinite(high) else "unbounded"
