"""Two neighbouring tables, and the log-likelihood ratio between them of what a mechanism releases.

The ratio is log P(output | row present) - log P(output | row absent). By the Neyman-Pearson lemma no test of the two
tables is more powerful than a threshold on it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.accounting.parameters import Neighbours as Relation
from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.rows import ArrayRows, RowSource, UnitRows, rows_of
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.scores import ScoreSums
from gaussmix.mechanism.passes import score_map_of
from gaussmix.models.declared import scans_of
from gaussmix.releases.transcript import Transcript

CORNER, OPPOSITE = (1.0, 1.0), (1.0, -1.0)
"""Rows at corners of the bounds: of the largest norm and, without an intercept, orthogonal to each other."""

SCHEMA = Schema({"X": Vector(1, lower=-1, upper=1), "y": Numeric(-1, 1)}, intercept=0.0)
"""One feature and one response, without an intercept."""

_UNIT_ROWS = 20  # rows of the differing privacy unit: more than any contribution bound used here


@dataclass(frozen=True)
class Neighbours:
    """Two neighbouring tables of one feature X and one response y, both bounded by [-1, 1].

    Attributes
    ----------
    common : array (n, 2)
        Rows (X, y) of both tables.
    row : tuple of float
        The differing row, which only one table has.
    instead : tuple of float, optional
        Row of the other table in its place (replace-one neighbours). Default: none (add-remove neighbours).
    intercept : bool
    weight : float, optional
        Weight of the differing row and upper bound of all weights. The common rows have weight 1.
    unit : PrivacyUnit, optional
        Privacy unit. The differing unit has 20 copies of ``row``, every other unit has one row.
    """

    common: Floats
    row: tuple[float, float]
    instead: tuple[float, float] | None = None
    intercept: bool = False
    weight: float | None = None
    unit: PrivacyUnit | None = None

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return "add-remove" if self.instead is None else "replace-one"

    @property
    def schema(self) -> Schema:
        """The declared schema of both tables."""
        intercept = 1.0 if self.intercept else 0.0
        if self.weight is None:
            return Schema(SCHEMA.columns, intercept=intercept)
        return Schema({**SCHEMA.columns, "w": Numeric(0, self.weight)}, intercept=intercept, weight="w")

    def arrays(self, *, present: bool) -> tuple[Floats, Floats]:
        """Return X and y of one table."""
        differing = [self.row] * (_UNIT_ROWS if self.unit else 1) if present else [self.instead] if self.instead else []
        rows = np.concatenate([self.common, np.reshape(differing, (-1, 2))])
        return rows[:, :1], rows[:, 1]

    def units(self, *, present: bool) -> Integers:
        """Return the privacy unit of each row of one table."""
        n = len(self.arrays(present=present)[1])
        return np.minimum(np.arange(n), len(self.common))

    def rows(self, *, present: bool, schema: Schema | None = None) -> RowSource:
        """Return one table as a source of rows."""
        schema = schema or self.schema
        X, y = self.arrays(present=present)
        if self.unit is not None:
            table = {self.unit.column: self.units(present=present), "X": X, "y": y}
            return UnitRows(table, schema, self.unit, key=os.urandom(32))
        if self.weight is not None:
            w = np.where(np.arange(len(y)) < len(self.common), 1.0, self.weight)
            return rows_of({"X": X, "y": y, "w": w}, schema)
        return ArrayRows(X, y, schema, threads=1)

    def grams(self, schema: Schema | None = None) -> tuple[Floats, Floats]:
        """Return the exact Gram matrices with the row absent and present, for rows of norm at most 1."""
        absent, present = (self.rows(present=there, schema=schema).gram().floats() for there in (False, True))
        return absent, present


class NumericNeighbours(Neighbours):
    """The same tables with X as a number, as releases with marginals need."""

    @property
    def schema(self) -> Schema:
        """The declared schema of both tables."""
        return Schema({"x": Numeric(-1, 1), "y": Numeric(-1, 1)})

    def rows(self, *, present: bool, schema: Schema | None = None) -> RowSource:
        """Return one table as a source of rows."""
        X, y = self.arrays(present=present)
        return rows_of({"x": X[:, 0], "y": y}, schema or self.schema)


def repeat(count: int, *rows: tuple[float, float]) -> Floats:
    """Return each of some rows ``count`` times, shape (n, 2)."""
    return np.repeat(np.array(rows, dtype=float).reshape(-1, 2), count, axis=0)


def gaussian_ratio(output: Floats, absent: Floats, present: Floats, *, sigma: float | Floats) -> float:
    r"""Return the ratio for independent normals of mean a (row absent) or p (row present).

    .. math:: \sum \frac{(x - a)^2 - (x - p)^2}{2\sigma^2}
    """
    step = (present - absent) / sigma
    return float(np.sum(((output - absent) / sigma) * step - step**2 / 2))


def symmetric_ratio(output: Floats, absent: Floats, present: Floats, *, mu: float) -> float:
    """Return the ratio for a symmetric matrix with noise 1/μ on the diagonal and 1/(√2 μ) off the diagonal."""
    upper = np.triu_indices(len(output))  # each entry counts once
    sigma = np.where(upper[0] == upper[1], 1 / mu, 1 / (math.sqrt(2) * mu))
    return gaussian_ratio(output[upper], absent[upper], present[upper], sigma=sigma)


def wishart_ratio(output: Floats, absent: Floats, present: Floats, *, k: int) -> float:
    r"""Return the ratio for Wishart matrices W with k degrees of freedom and scale A (row absent) or P (row present).

    .. math:: \frac k2 (\log\det A - \log\det P) + \frac12 \mathrm{tr}\bigl((A^{-1} - P^{-1}) W\bigr)
    """
    determinants = np.linalg.slogdet(absent)[1] - np.linalg.slogdet(present)[1]
    inverse = np.linalg.inv(absent) - np.linalg.inv(present)
    return float(k / 2 * determinants + np.sum(inverse * output) / 2)


def sketch_ratio(rows: Floats, grams: tuple[Floats, Floats], *, noise_variance: float, k: int) -> float:
    """Return the ratio for k sketch rows of a table of `SCHEMA`, or a factor of them, given their noise variance."""
    noise = noise_variance * np.eye(rows.shape[1])
    return wishart_ratio(rows.T @ rows, *(SCHEMA.row_norm**2 * gram + noise for gram in grams), k=k)


class TranscriptRatio:
    """The ratio for a release in passes and of declared models.

    Given the request of a pass or model, which earlier outputs determine, its output is an exact sum plus independent
    noise: the ratio of the whole release is the sum of the ratios of its outputs.
    """

    def __init__(self, neighbours: Neighbours, schema: Schema) -> None:
        self.grams = neighbours.grams(schema)
        self.tables = [neighbours.rows(present=present, schema=schema) for present in (False, True)]

    def scores(self, transcript: Transcript) -> list[float]:
        """Return the ratio, then estimated rows and clipping norm of each pass, which depend on private histograms."""
        first, *later = transcript.passes
        bound = 1 if transcript.unit is None else transcript.unit.max_contributions
        ratio, requested = symmetric_ratio(first.matrix, *self.grams, mu=first.mu / bound), list[float]()
        for output in later:
            if output.request is not None:
                transform, clip = output.request.metric.transform, output.request.clip
                sums = [rows.mapped(transform, clip) for rows in self.tables]
                matrices = [exact.high + exact.low / 2.0**40 for exact in sums]
                ratio += symmetric_ratio(output.matrix, *matrices, mu=output.mu)
                requested += [output.request.rows, clip]
        for model in transcript.models:
            for scan in scans_of(transcript, model):
                maps = score_map_of(transcript.schema, scan)
                found = [rows.aggregate(ScoreSums(maps, model.clip)) for rows in self.tables]
                place = list(model.linear).index(scan.linear)
                if model.totals:
                    totals = [sums.total / 2.0**FRACTION_BITS for sums in found]
                    ratio += gaussian_ratio(model.totals[place], *totals, sigma=1 / model.vector_mu[place])
            squares = [sums.squares.high + sums.squares.low / 2.0**40 for sums in found]
            ratio += symmetric_ratio(model.squares, *squares, mu=model.squares_mu)
            requested += [model.clip, model.excess]
        return [ratio, *requested]
