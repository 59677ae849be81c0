r"""Means that a model predicts for given rows, with intervals from a release alone.

The mean at features x is the intercept of the same regression with its columns measured from x: one functional
ψ = (1, x)ᵀβ of the coefficients, tested as any coefficient is (:mod:`gaussmix.models.score`). Nothing is divided by a
noisy number, and intervals have the coverage of the coefficients' own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError, DataError
from gaussmix.models.coding import Coding, is_marked
from gaussmix.models.results import Frame, ResultTable, Summary
from gaussmix.models.score import Score
from gaussmix.models.weights import weights_of

__all__ = ["Prediction", "decoded_values", "features_of", "predicted"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted means under the names that statsmodels gives them.

    Attributes
    ----------
    predicted_mean, se_mean : arrays (rows,)
        From the coefficients in ``params``, without the ridge that makes ``predict`` shrink; Wald standard errors.
    """

    predicted_mean: Floats
    se_mean: Floats
    _tests: tuple[Score, ...] = field(repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals of level 1 - alpha for the means, shape (rows, 2); infinite where one is not identified."""
        alpha = check.in_interval(0, 1, alpha=alpha)
        if self._tests:
            return np.array([test.intervals(alpha)[0] for test in self._tests])
        half = float(stats.norm.isf(alpha / 2)) * self.se_mean
        return np.column_stack([self.predicted_mean - half, self.predicted_mean + half])

    def to_frame(self, frame: Frame | None = None, *, alpha: float = 0.05) -> Any:
        """One row a prediction: mean, standard error and both ends of the interval."""
        low, high = self.conf_int(alpha).T
        numbers = {"mean": self.predicted_mean, "mean_se": self.se_mean, "mean_ci_lower": low, "mean_ci_upper": high}
        columns = {name: tuple(map(float, values)) for name, values in numbers.items()}
        return ResultTable("predicted means", columns).to_frame(frame)


def predicted(summary: Summary, features: Floats) -> Prediction:
    """Predictions at rows of features in the user's units, shape (rows, d), in the order of ``summary.params``."""
    found = np.asarray(features @ np.array(list(summary.params.values())))
    error = np.sqrt(np.maximum(np.sum((features @ summary._covariance) * features, axis=1), 0.0))
    score, names = summary._score, list(summary.params)
    if not isinstance(score, Score):
        return Prediction(found, error, ())
    if names[0] != INTERCEPT:
        raise ArgumentError("Intervals of predicted means need a release with an intercept column.")
    tests = tuple(_at(score, row) for row in features)
    return Prediction(np.array([test.estimate[0] for test in tests]), error, tests)


def _at(score: Score, row: Floats) -> Score:
    """The tests with the mean at a row in the place of the intercept."""
    functionals, offset = score.functionals.copy(), score.offset.copy()
    functionals[0], offset[0] = row @ score.functionals, row @ score.offset
    weights = weights_of(score.pilot, score.noisy.moment[:-1, :-1], functionals)
    return replace(score, functionals=functionals, offset=offset, weights=weights)


def features_of(schema: Schema, coding: Coding, data: Any) -> Floats:
    """Rows of a table as the features of a model in the user's units, clipped as in the release: shape (rows, d)."""
    if schema.terms or any(is_marked(schema, name) for name in schema.columns):
        raise ArgumentError("Intervals of predicted means are for schemas without terms and missing-indicators.")
    part = Schema({name: column for name, column in schema.columns.items() if name in coding.sources}, intercept=0.0)
    values = np.concatenate([np.empty((0, len(part.names))), *decoded_values(part, data)])
    place = {name: index for index, name in enumerate(part.names)}
    members = [
        [place[schema.names[i]] for i in np.flatnonzero(row)] if source else []
        for source, row in zip(coding.sources, coding.rows, strict=True)
    ]
    return np.column_stack([values[:, own].sum(axis=1) if own else np.ones(len(values)) for own in members])


def decoded_values(part: Schema, data: Any) -> Iterator[Floats]:
    """Yield the rows of a table block by block in the user's units, values clipped as in a release of ``part``."""
    plan = BlockEncoder.plain(part)
    with closing(open_table(data).batches(list(part.columns), types=part.text_types)) as stream:
        for batch in stream:
            rows = encode_batch(batch, part, plan)
            if len(rows) < batch.num_rows:
                raise DataError(
                    "Rows with missing values cannot be predicted: drop them from the table, or fill them in."
                )
            yield part.units.decode(rows)
