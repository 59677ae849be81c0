r"""Rows, means, standard deviations and shares of levels, each with its interval: entries of the released matrix.

All are for the table as it was read, values clipped to their bounds; releases in passes also shorten a few rows that
are far out (docs/passes.md). In the user's units (:mod:`gaussmix.data.units`), with 1 the constant:

- a mean is M_1j/M_11: Fieller's interval for a ratio of normal numbers of known covariance;
- a standard deviation is that of (M_jj - M_1j²/M_11)/M_11, C in :mod:`gaussmix.models.residuals`: a ratio again;
- shares of levels are counts over their sum, counts by generalised least squares (:mod:`gaussmix.models.structured`),
  in the latest pass that has rows of all levels whole (:mod:`gaussmix.models.whole_rows`);
- rows: :mod:`gaussmix.models.row_counts`; not where the unit is a person.

Other intervals come from the last pass, whose law is exact given those before it; a ratio does not change with the
factor that brings its clip weights to mean one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical
from gaussmix.data.schema import Schema
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import column_of, is_marked, kinds_of
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.residuals import residuals
from gaussmix.models.results import ResultTable, columns_of
from gaussmix.models.row_counts import row_count
from gaussmix.models.structured import Fitted, fit_structure, level_designs, ratio_interval
from gaussmix.models.whole_rows import counted_early, counted_in

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = [
    "AS_SHORTENED",
    "chosen_columns",
    "counted_early_words",
    "describe",
    "level_counts",
    "mean_and_deviation",
    "notes_of",
    "shares_of",
]

Row = tuple[str, str, float, float, float, float]
NOTE = "Of the table as it was read, values clipped to their declared bounds; intervals know the privacy noise."
AS_SHORTENED = (
    "Means, deviations and correlations are of the rows as shortened: those of skewed columns can be further from the "
    "table's than their intervals say."
)
PERSONS = "Rows of one person are bounded together, and weigh less where they are many."


def describe(release: Release, on: Sequence[str] | None = None, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.describe`."""
    z = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))
    schema, noisy = release.schema, release.statistic.noisy
    rows: list[Row] = []
    if release.certificate.unit is None:
        counted = row_count(release)
        half = z * counted.deviation
        rows.append(
            ("(rows)", "count", counted.rows, counted.deviation, max(counted.rows - half, 0.0), counted.rows + half)
        )
    chosen = chosen_columns(schema, on)
    for name in chosen:
        column = schema.columns[name]
        if isinstance(column, Categorical | Boolean):
            rows += _share_rows(counted_in(release.statistic, [name]), schema, name, z)
        else:
            for index in schema.groups[name]:
                rows += mean_and_deviation(noisy, schema, index, z)
    names = ("term", "statistic", "estimate", "std.error", "conf.low", "conf.high")
    notes = notes_of(release, [[name] for name in chosen if isinstance(schema.columns[name], Categorical | Boolean)])
    return ResultTable(f"{len(chosen)} columns, {100 * (1 - alpha):g} % intervals", columns_of(names, rows), notes)


def notes_of(release: Release, counted: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """What a table is about, and which of the columns that were counted together come from an earlier pass."""
    notes = [NOTE if release.certificate.unit is None else f"{NOTE} {PERSONS}"]
    shortened = release.statistic.noisy.shortened
    notes += [f"Rows far out are shortened, by {shortened}. {AS_SHORTENED}"] * (shortened is not None)
    early = [name for names in counted for name in names if counted_early(release.statistic, names)]
    notes += [counted_early_words(early)] * bool(early)
    void = release.certificate.void_words
    return (void, *notes) if void else tuple(notes)


def counted_early_words(names: Sequence[str]) -> str:
    """That levels of some columns are counted in an earlier pass."""
    return (
        f"Levels of {', '.join(dict.fromkeys(names))} are counted in an earlier pass, with more noise: in the last one "
        "rows of the rarest are shortened."
    )


def chosen_columns(schema: Schema, on: Sequence[str] | None) -> list[str]:
    """Columns of the release by name; all of them unless said."""
    if isinstance(on, str):
        raise ArgumentError(f"on must be a list of columns, got {on!r}: write on=[{on!r}].")
    plain = [name for name in schema.columns if name in schema.groups and not is_marked(schema, name)]
    chosen = plain if on is None else list(on)
    for name in chosen:
        column_of(schema, name)
        if name not in plain:
            raise ArgumentError(f"Column {name!r} is in terms only, or is 0 where it is missing.")
    if len(set(chosen)) < len(chosen):
        raise ArgumentError("on names a column twice.")
    return chosen


def mean_and_deviation(noisy: NoisyMoment, schema: Schema, index: int, z: float) -> list[Row]:
    """Mean and standard deviation of one encoded column, with standard errors and intervals."""
    units = unweighted_units(schema)
    constant, x = units.one, units.rows([index])[0]
    own, name = noisy.mapped(np.vstack([constant, x])), schema.names[index]
    M, Q = own.moment, own.shape
    covariance = np.array(
        [[Q[0, 0] * Q[1, 1] + Q[0, 1] ** 2, 2 * Q[0, 0] * Q[0, 1]], [2 * Q[0, 0] * Q[0, 1], 2 * Q[0, 0] ** 2]]
    )
    mean = _ratio_row(name, "mean", M[0, 1], M[0, 0], covariance, z)
    left = residuals(noisy, x[np.newaxis], constant[np.newaxis])
    u = left.vectors[0]
    with_rows = float(u @ noisy.shape @ constant)
    covariance = 2 * np.array([[left.shape[0, 0] ** 2, with_rows**2], [with_rows**2, Q[0, 0] ** 2]])
    rows = max(float(M[0, 0]), 2.0)
    _, _, square, error, low, high = _ratio_row(name, "std", float(left.moment[0, 0]), M[0, 0], covariance, z)
    stretch = rows / (rows - 1)
    value, low, high = (math.sqrt(max(stretch * number, 0.0)) for number in (square, low, high))
    return [mean, (name, "std", value, stretch * error / (2 * value) if value else math.nan, low, high)]


def _ratio_row(name: str, statistic: str, over: float, under: float, covariance: Floats, z: float) -> Row:
    value = float(over / under) if under > 0 else math.nan
    gradient = np.array([1.0, -value])
    error = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0)) / abs(float(under))
    low, high = ratio_interval(
        np.asarray(over), np.asarray(under), covariance[0, 0], covariance[1, 1], covariance[0, 1], z
    )
    return name, statistic, value, error, float(low), float(high)


def level_counts(noisy: NoisyMoment, schema: Schema, name: str) -> tuple[tuple[str, ...], Fitted]:
    """Levels of a category, or false and true, with their counts in the units of the matrix."""
    labels, kinds = kinds_of(schema, name)
    units = unweighted_units(schema)
    own = noisy.mapped(np.vstack([units.one, units.rows(schema.groups[name])]))
    u = np.column_stack([np.ones(len(kinds)), kinds])
    return labels, fit_structure(own, level_designs(u))


def shares_of(counts: Fitted) -> Fitted:
    """Counts over their sum, to first order."""
    total = float(counts.values.sum())
    if not total > 0:
        nothing = np.full(len(counts.values), math.nan)
        return Fitted(nothing, np.full(counts.covariance.shape, math.nan))
    shares = counts.values / total
    J = (np.eye(len(shares)) - shares[:, np.newaxis]) / total
    return Fitted(shares, J @ counts.covariance @ J.T)


def _share_rows(noisy: NoisyMoment, schema: Schema, name: str, z: float) -> list[Row]:
    """Shares of levels; of true alone for a boolean."""
    labels, counts = level_counts(noisy, schema, name)
    V, n = counts.covariance, len(labels)
    rows = []
    for place in range(1 if isinstance(schema.columns[name], Boolean) else 0, n):
        pick = np.vstack([np.eye(n)[place], np.ones(n)])
        over, under = pick @ counts.values
        _, _, value, error, low, high = _ratio_row("", "", over, under, pick @ V @ pick.T, z)
        rows.append((f"{name}={labels[place]}", "share", value, error, max(low, 0.0), min(high, 1.0)))
    return rows
