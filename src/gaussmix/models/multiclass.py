"""A model of a column with several classes, from a private second moment: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from scipy import special

from gaussmix._types import Floats, Rows
from gaussmix.data.columns import Categorical
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import Label
from gaussmix.models.fits import feature_indices, linear_values
from gaussmix.models.odds import Contrast, OddsRatios, contrast_family
from gaussmix.models.problem import Problem, Response
from gaussmix.models.responses import labels_of, place_of
from gaussmix.models.results import Asked, FittedClasses, Summary, summarise
from gaussmix.models.softmax import Softmax, estimate_softmax
from gaussmix.models.transcript import Transcript

__all__ = ["MulticlassModel", "fit_classes"]


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassModel(FittedClasses):
    """Log odds of every class against the first, linear in other columns, fitted from a release.

    :meth:`summary` has the coefficients of every class against one of them: the first, or the one that
    ``reference={"species": "setosa"}`` names. Intervals take the combination of indicators that belongs to two classes
    as known; those of intercepts also take the shares of the classes as known.

    Attributes
    ----------
    target : str
        The column that is explained.
    classes : tuple
        Its levels.
    coef : dict of class to dict of str to float
        Of every class but the first, in the user's units, as of :class:`gaussmix.models.fits.RegressionModel`.
    intercept : dict of class to float
    softmax : Softmax
        Shares and residual covariance behind them.
    certificate : Certificate or None
        What was spent on the release.
    """

    target: str
    classes: tuple[Label, ...]
    coef: dict[Label, dict[str, float]]
    intercept: dict[Label, float]
    softmax: Softmax
    statistic: Transcript
    certificate: Certificate | None = None

    def decision_function(self, data: Any) -> Floats:
        """Log odds of every class against the first, shape (rows, classes)."""
        schema = self.statistic.schema
        found = [linear_values(schema, self.coef[name], self.intercept[name], data) for name in self.classes[1:]]
        return np.column_stack([np.zeros(len(found[0])), *found])

    def predict_proba(self, data: Any) -> Floats:
        """Probabilities of all classes, shape (rows, classes)."""
        return np.asarray(special.softmax(self.decision_function(data), axis=1))

    def predict(self, data: Any) -> Rows:
        """The likeliest class."""
        return np.asarray(np.array(self.classes)[np.argmax(self.decision_function(data), axis=1)])

    def _summarise(self, **options: Unpack[Asked]) -> dict[Label, Summary]:
        schema, others = self.statistic.schema, dict(options["reference"] or {})
        r, _ = place_of(schema.columns[self.target], others.pop(self.target, self.classes[0]), self.target)
        indicators, found = indicators_of(schema, self.target), {}
        for k, name in enumerate(self.classes):
            if k == r:
                continue
            c = self.softmax.contrast(k, r)
            v = 1 / float(c[k] - c[r])
            words = f"{self.target} = {name} against {self.classes[r]}"
            moved = float(self.softmax.offsets[k] - self.softmax.offsets[r])
            family = contrast_family(Contrast(moved, float(np.ptp(v * c))))
            response = Response(words, 2 * v * indicators @ c, 0.5, 0.5, family)
            names = next(iter(self.coef.values()))
            problem = Problem.of(
                self.statistic.noisy, schema, response, names, merge=options["merge"], reference=others or None
            )
            found[name] = summarise(
                problem, estimand=options["estimand"], n_rows=options["n_rows"], largest=options["largest"]
            )
        return found

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> dict[Label, OddsRatios]:
        """Exp of the coefficients of every class against one of them, with intervals; options of :meth:`summary`."""
        return {name: OddsRatios.of(own, alpha) for name, own in self.summary(**options).items()}


def indicators_of(schema: Schema, target: str) -> Floats:
    """Which combination of encoded columns is 1 in rows of each class and 0 in others, shape (m, K)."""
    return np.eye(schema.n_columns)[:, list(schema.groups[target])] / schema.columns[target].weight


def fit_classes(statistic: Transcript, target: str, on: Sequence[str] | None) -> MulticlassModel:
    """Scores of the levels of a category on other columns, from least squares on their indicators."""
    schema = statistic.schema
    column = schema.columns[target]
    if not isinstance(column, Categorical) or not schema.intercept:
        raise ArgumentError(
            f"Several classes need a category and a release with an intercept: {target!r} has not both."
        )
    classes, indicators = labels_of(column), indicators_of(schema, target)
    features = feature_indices(schema, [target], on)
    coefficients = statistic.solve(features, indicators)
    softmax = estimate_softmax(statistic, schema.units.one, indicators, features, coefficients)
    coef, intercept = {}, {}
    for k, name in enumerate(classes[1:], 1):
        coef[name], shifted = schema.units.coefficients(features, coefficients @ softmax.contrast(k, 0))
        intercept[name] = shifted + float(softmax.offsets[k] - softmax.offsets[0])
    return MulticlassModel(target, classes, coef, intercept, softmax, statistic)
