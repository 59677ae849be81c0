"""Features of a regression as sums of encoded columns: levels are collapsed, and reference levels are left out.

>>> schema = Schema.of({"age": [0, 100], "job": ["none", "unpaid", "paid"]})
>>> collapse = {"job": {"other": ["none", "unpaid"]}}
>>> coding = Coding.of(schema, ["age", "job"], collapse=collapse, reference={"job": "paid"})
>>> coding.names
('(intercept)', 'age', 'job=other')
>>> coding.rows.tolist()
[[0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0, 0.0]]

`Problem` is one regression of a release: the second moment of features and response, and the map to original units.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.columns import Categorical, Numeric
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.terms import Block, EncodedColumn, Part, bases_of, missing_name, name_of, needs_of, parse_terms
from gaussmix.data.units import Units, half_range, half_span
from gaussmix.errors import ArgumentError
from gaussmix.models.families import LINEAR, Family
from gaussmix.releases.noisy import NoisyMoment

__all__ = [
    "ENOUGH",
    "FREQUENT",
    "Coding",
    "Collapse",
    "Label",
    "Problem",
    "Reference",
    "Response",
    "column_of",
    "columns_behind",
    "is_marked",
    "needed_parts",
    "part_name",
    "parts_without",
    "rows_where",
    "sources_of",
    "sub_schema",
]


Label = str | int | bool
"""Label of a class: a level of a category, or true or false."""

Collapse = Mapping[str, Mapping[str, Sequence[object]]]
Reference = Mapping[str, object]

ENOUGH = 5.0
"""A level is rare if its noisy count is less than this number of standard errors above 0."""

FREQUENT = 0.25
"""Share of the largest level's noisy count that the first level must have to be the reference level by default."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Features of a regression as sums of encoded columns.

    Attributes
    ----------
    names, sources : tuple of str, tuple of str or None
        Name and source of each feature, the intercept first; its source is None.
    rows : array (d, m)
        Indicators of the encoded columns whose sum is each feature.
    columns : tuple of EncodedColumn
        One encoded column of each feature; all of a feature have the same centre, scale and kind.
    units : Units
        Units of the features.
    references : dict of str to (str, array (m,))
        Name and encoded columns of the reference level of each category that has one.
    """

    names: tuple[str, ...]
    sources: tuple[str | None, ...]
    rows: Floats
    columns: tuple[EncodedColumn, ...]
    units: Units
    references: dict[str, tuple[str, Floats]]

    @classmethod
    def of(
        cls,
        schema: Schema,
        sources: Collection[str],
        *,
        collapse: Collapse | None = None,
        reference: Reference | None = None,
        noisy: NoisyMoment | None = None,
    ) -> Coding:
        """Return the features of some columns of the table.

        Parameters
        ----------
        schema : Schema
        sources : collection of str
            Columns of the table that are predictors, in the order of the features.
        collapse : mapping, optional
            For each category, new levels and the levels they replace: ``{"job": {"other": ["none", "unpaid"]}}``.
        reference : mapping, optional
            For each category, the reference level. Default: the first level, or the largest level if the noisy count
            of the first is below `FREQUENT` times that of the largest.
        noisy : NoisyMoment, optional
            Source of the noisy counts. Without it the default is the first level.
        """
        collapse, reference, each = collapse or {}, reference or {}, np.eye(schema.n_columns)
        for name in (*collapse, *reference):
            _check_category(schema, sources, name)
        found: list[tuple[str, str | None, EncodedColumn, list[int]]] = []
        references: dict[str, tuple[str, Floats]] = {}
        renamed: dict[tuple[str, str], str | None] = {}
        for source in (name for name in schema.parts if name in sources):
            column, indices = schema.parts[source], schema.groups[source]
            if not isinstance(column, Categorical):
                found += _features_of(schema, source, renamed)
                continue
            levels = _collapsed(source, column, dict(collapse.get(source, {})))
            own_rows = {label: each[[indices[i] for i in own]].sum(axis=0) for label, own in levels.items()}
            if source in reference:
                left_out = _label(reference[source])
            else:
                left_out = _default_level(noisy, schema, sources, source, own_rows)
            if left_out not in levels:
                raise ArgumentError(
                    f"reference: {left_out!r} is not a level of {source!r}; the levels are {', '.join(levels)}."
                )
            if not schema.intercept and source in reference:
                raise ArgumentError("reference requires a release with an intercept. Omit reference.")
            for label, members in levels.items():
                own = [indices[i] for i in members]
                new = None if label == left_out else label
                renamed |= {(source, name): new for name in (column.labels[i] for i in members)}
                if schema.intercept and label == left_out:
                    references[source] = (f"{source}={label}", own_rows[label])
                else:
                    found.append((f"{source}={label}", source, schema.encoded[own[0]], own))
        if schema.intercept:
            (constant,) = schema.groups[INTERCEPT]
            found.insert(0, (INTERCEPT, None, schema.encoded[constant], [constant]))
        # Categories come before their products above; coefficients have the order in which predictors were given.
        order = {source: place for place, source in enumerate(sources)}
        found.sort(key=lambda feature: -1 if feature[1] is None else order[feature[1]])
        rows = np.array([each[own].sum(axis=0) for *_, own in found])
        names, origins, columns, _ = zip(*found, strict=True)
        raw = schema.units.raw
        if raw is not None:  # the encoded columns of a feature share one map
            A, b = raw
            raw = (rows @ A)[:, [own[0] for *_, own in found]], rows @ b
        return cls(names, origins, rows, columns, Units.of(columns, raw, names), references)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Indices of the features of each column of the table, in the order of the features."""
        found: dict[str, tuple[int, ...]] = {}
        for index, source in enumerate(self.sources):
            if source is not None:
                found[source] = (*found.get(source, ()), index)
        return found


def _features_of(
    schema: Schema, source: str, renamed: Mapping[tuple[str, str], str | None]
) -> list[tuple[str, str | None, EncodedColumn, list[int]]]:
    """Return the features of a part that is not a category. Products with a reference level are omitted."""
    found: dict[str, list[int]] = {}
    for index in schema.groups[source]:
        column = schema.encoded[index]
        labels = [renamed[level] for level in column.levels]
        for category, _ in column.levels:
            _check_measured_from_first(schema, category, renamed)
        if None not in labels:
            name = column.name
            for (category, label), new in zip(column.levels, labels, strict=True):
                name = name.replace(f"{category}={label}", f"{category}={new}", 1)
            found.setdefault(name, []).append(index)
    return [(name, source, schema.encoded[own[0]], own) for name, own in found.items()]


def _check_measured_from_first(schema: Schema, category: str, renamed: Mapping[tuple[str, str], str | None]) -> None:
    """Reject a reference other than the first level: releases have no products with it unless ``unknown="zero"``."""
    declared = schema.columns[category]
    if isinstance(declared, Categorical) and declared.unknown != "zero":
        first = declared.labels[0]
        if renamed[category, first] is not None:
            raise ArgumentError(
                f"reference: the level must be {first!r}, the first level of {category!r}, because the model contains "
                "products with this column. Omit the reference or the products."
            )


def _default_level(
    noisy: NoisyMoment | None, schema: Schema, sources: Collection[str], source: str, rows: Mapping[str, Floats]
) -> str:
    """Return the default reference level of a category by noisy counts; the first level if it is in products."""
    first, column = next(iter(rows)), schema.parts[source]
    products = [own for own in schema.encoded if own.source != source and own.source in sources]
    in_products = any(category == source for own in products for category, _ in own.levels)
    if noisy is None or (in_products and not (isinstance(column, Categorical) and column.unknown == "zero")):
        return first
    counts = {label: rows_where(noisy, schema, row)[0] for label, row in rows.items()}
    largest = max(counts, key=lambda label: counts[label])
    return largest if counts[first] < FREQUENT * counts[largest] else first


def rows_where(noisy: NoisyMoment, schema: Schema, row: Floats) -> tuple[float, float]:
    """Return the noisy number of rows with one of several levels of a category, and its standard error.

    ``row`` is 1 at the encoded columns of the levels. The number is Σ (u·r)², where u is their sum in original units.
    If rows are weighted, it is the sum of their weights.
    """
    count, std_error = noisy.quadratic(schema.units.scales * row)
    return schema.weight_bound * count, schema.weight_bound * std_error


def _label(level: object) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


def _check_category(schema: Schema, sources: Collection[str], name: str) -> None:
    if name not in schema.parts or name not in sources:
        raise ArgumentError(
            f"collapse and reference must name predictors of the model, got {name!r}. The predictors are "
            f"{', '.join(sorted(sources)) or 'none'}."
        )
    if not isinstance(schema.parts[name], Categorical):
        raise ArgumentError(f"collapse and reference require a categorical column, got {name!r}.")


def _collapsed(source: str, column: Categorical, collapses: dict[str, Sequence[object]]) -> dict[str, list[int]]:
    """Return the labels after collapsing, in order of their first members, with the indices of the members."""
    new_name: dict[str, str] = {}
    for name, members in collapses.items():
        if isinstance(members, str) or not len(members):
            raise ArgumentError(
                f"collapse: the levels of {source!r} to be collapsed into {name!r} must be a nonempty list."
            )
        for level in map(_label, members):
            if level not in column.labels:
                raise ArgumentError(
                    f"collapse: {level!r} is not a level of {source!r}; the levels are {', '.join(column.labels)}."
                )
            if level in new_name:
                raise ArgumentError(f"collapse: level {level!r} of {source!r} is collapsed twice.")
            new_name[level] = name
    for name in collapses:
        if name in column.labels and name not in new_name:
            raise ArgumentError(
                f"collapse: {name!r} is already a level of {source!r}. Choose another name, or collapse this level too."
            )
    found: dict[str, list[int]] = {}
    for place, label in enumerate(column.labels):
        found.setdefault(new_name.get(label, label), []).append(place)
    return found


# ---------------------------------------------------------------------------------------------------------------
# Parts of a release by name, and which of them a model needs
def column_of(schema: Schema, name: str) -> Part:
    """Return a part of the release, a column or a term, by name."""
    return schema.parts[part_name(schema, name)]


def part_name(schema: Schema, text: str) -> str:
    """Return the name of the only part of the release that a column or term stands for."""
    found = schema.resolve(text)
    if len(found) > 1:
        raise ArgumentError(f"{text!r} stands for several columns of the release. Choose one of {', '.join(found)}.")
    return found[0]


def columns_behind(schema: Schema, part: str) -> tuple[str, ...]:
    """Return the columns of the table from which a part of a release is derived."""
    if part in schema.columns:
        return (part,)
    if isinstance(found := schema.parts[part], Block) and found.term is None:
        return (part.removesuffix(missing_name("")),)
    return tuple(name for term in parse_terms(part, ()) for name in bases_of(term))


def needed_parts(schema: Schema, chosen: Sequence[str]) -> list[str]:
    """Return the parts of a model with their missing-value indicators. Reject a term without its lower-order terms."""
    for part in chosen:
        for term in () if part in schema.columns else parse_terms(part, ()) if part in schema.terms else ():
            lacking = [name for need in needs_of(term) for name in schema.resolve(name_of(need)) if name not in chosen]
            if lacking:
                raise ArgumentError(
                    f"Term {part!r} requires {', '.join(map(repr, lacking))} in the model. "
                    "Write poly(…) for powers and a*b for products."
                )
    marks = [missing_name(name) for part in chosen for name in columns_behind(schema, part)]
    return list(dict.fromkeys([*chosen, *(mark for mark in marks if mark in schema.parts)]))


def parts_without(schema: Schema, responses: Collection[str]) -> list[str]:
    """Return all parts that share no column of the table with the responses."""
    taken = {name for response in responses for name in columns_behind(schema, response)}
    return [part for part in schema.parts if not taken & set(columns_behind(schema, part))]


def is_marked(schema: Schema, part: str) -> bool:
    """Return whether a part has a missing-value indicator."""
    columns = (schema.columns[name] for name in columns_behind(schema, part))
    return any(isinstance(column, Numeric) and column.missing == "indicator" for column in columns)


def sub_schema(schema: Schema, parts: Collection[str]) -> Schema:
    """Return the schema of some parts, without row weights, for predictions."""
    if not schema.terms and len(schema.parts) == len(schema.columns):
        return Schema({name: column for name, column in schema.columns.items() if name in parts}, intercept=0.0)
    behind = {name for part in parts for name in columns_behind(schema, part)}
    terms = {name: weight for name, weight in schema.terms.items() if name in parts}
    columns = {name: column for name, column in schema.columns.items() if name in behind}
    hidden = [name for name in columns if name not in parts]
    return Schema(columns, schema.intercept if terms else 0.0, None, terms, hidden)


@dataclass(frozen=True)
class Problem:
    """One regression in encoded units, and its map to original units.

    Attributes
    ----------
    noisy : NoisyMoment
        Second moment of the d features and, last, the response.
    names : tuple of str
        Names of the features.
    to_user : array (d, d), offset : array (d,)
        Coefficients in original units are ``to_user @ theta + offset``. The diagonal has no zero.
    groups : dict of str to tuple of int
        Indices of the features of each column, such as the levels of a category.
    reach : array (d,)
        The coefficient, in encoded units, for which the response changes by its declared range if the feature changes
        by its own.
    nobs, nobs_se : float
        Noisy number of rows in the table, and its standard error; NaN without an intercept. If rows are weighted, the
        sum of the weights.
    response_name : str
        Name of the response in headings.
    weighted : bool
        Whether rows have weights.
    scale, centre : float
        A response of 1 in encoded units is ``scale`` in original units, about ``centre``.
    family : Family
        How the coefficients of the model are computed from least squares.
    coding : Coding or None
        The features as sums of encoded columns, if the problem was built from a schema.
    counts : dict of str to (float, float)
        Noisy number of rows of every level among the features, and its standard error.
    """

    noisy: NoisyMoment
    names: tuple[str, ...]
    to_user: Floats
    offset: Floats
    groups: dict[str, tuple[int, ...]]
    reach: Floats
    nobs: float
    response_name: str
    nobs_se: float = math.nan
    weighted: bool = False
    scale: float = 1.0
    centre: float = 0.0
    family: Family = LINEAR
    coding: Coding | None = None
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        noisy: NoisyMoment,
        schema: Schema,
        response: Response,
        names: Collection[str],
        *,
        collapse: Collapse | None = None,
        reference: Reference | None = None,
    ) -> Problem:
        """Return the regression of a response on the encoded columns ``names``, the intercept first.

        ``collapse`` and ``reference`` are those of :meth:`Coding.of`.
        """
        coding = Coding.of(schema, sources_of(schema, names), collapse=collapse, reference=reference, noisy=noisy)
        offset, nobs, std_error = np.zeros(len(coding.names)), math.nan, math.nan
        if schema.intercept:
            offset[0] = response.centre
            nobs, std_error = rows_where(noisy, schema, coding.rows[0])
        spans = np.array([half_span(schema, column) for column in coding.columns])
        parts = {*coding.sources, *(schema.encoded[i].source for i in np.flatnonzero(response.vector))} - {None}
        read = {column for part in parts if part is not None for column in columns_behind(schema, part)}
        coded = {name: words for name, words in noisy.coded.items() if name in read}
        levels = [i for i, column in enumerate(coding.columns) if column.kind == "level"]
        return cls(
            noisy=replace(noisy.mapped(np.vstack([coding.rows, response.vector])), coded=coded),
            names=coding.names,
            to_user=coding.units.matrix(response.scale),
            offset=offset,
            groups=coding.groups,
            reach=half_range(schema, response.vector) / spans,
            nobs=nobs,
            nobs_se=std_error,
            response_name=response.name,
            weighted=schema.weight is not None,
            scale=response.scale,
            centre=response.centre,
            family=response.family,
            coding=coding,
            counts={coding.names[i]: rows_where(noisy, schema, coding.rows[i]) for i in levels},
        )

    @property
    def intercept(self) -> bool:
        """Whether the first feature is the intercept."""
        return self.names[0] == INTERCEPT

    @property
    def one(self) -> Floats:
        """The combination of features and response that is 1 in every row: a multiple of the intercept."""
        found = np.zeros(len(self.names) + 1)
        found[0] = self.scale / self.to_user[0, 0]
        return found


@dataclass(frozen=True)
class Response:
    """The response: a combination of encoded columns, and its units.

    Attributes
    ----------
    name : str
        Name in headings.
    vector : array (m,)
        Weights of the encoded columns.
    centre, scale : float
        A response of 1 in encoded units is ``scale`` in original units, about ``centre``.
    family : Family
        How coefficients are computed from least squares on the response.
    """

    name: str
    vector: Floats
    centre: float
    scale: float
    family: Family = LINEAR

    @classmethod
    def of(cls, schema: Schema, response: str, family: Family = LINEAR) -> Response:
        """Return a numeric or boolean part of the release as a response."""
        (index,) = schema.groups[response]
        vector = np.zeros(schema.n_columns)
        vector[index] = 1.0
        return cls(response, vector, float(schema.units.centres[index]), float(schema.units.scales[index]), family)


def sources_of(schema: Schema, names: Collection[str]) -> list[str]:
    """Return the parts of the schema that some encoded columns belong to, in the order of the columns."""
    source = {column.name: column.source for column in schema.encoded}
    return list(dict.fromkeys(found for name in names if (found := source.get(name)) is not None))
