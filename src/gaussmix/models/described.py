"""Methods of :class:`gaussmix.Release` that describe the table, and that fit a family of models by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gaussmix.data.schema import response_and_predictors
from gaussmix.models.correlations import Correlations, correlations
from gaussmix.models.crosstab import Crosstab, crosstab
from gaussmix.models.describe import describe
from gaussmix.models.families import registration
from gaussmix.models.groups import Anova, anova, group_means
from gaussmix.models.results import FittedModel, Frame, ResultTable, as_frame
from gaussmix.models.synthetic import MARK, synthetic_rows

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["Described"]


class Described:
    """Tables and synthetic rows of a release: post-processing, free of budget."""

    def fit(self, family: str, target: str, on: Sequence[str] | None = None) -> FittedModel:
        """Fit a model of a family by its name: ``release.fit("rates", "visits", on=["age"])``.

        Parameters
        ----------
        family : str
            One of ``gaussmix.models.FAMILIES``.
        target : str
            The response; or a formula of columns.
        on : list of str, optional
            The predictors; default: all other columns.
        """
        release = _release(self)
        found = registration(family).fit(release.statistic, *response_and_predictors(target, on))
        return replace(found, certificate=release.certificate)  # type: ignore[type-var]

    def describe(self, on: Sequence[str] | None = None, *, alpha: float = 0.05) -> ResultTable:
        """Rows, means, standard deviations and shares of levels, each with its interval of level 1 - alpha.

        Parameters
        ----------
        on : list of str, optional
            Columns; default: all.
        alpha : float
        """
        return describe(_release(self), on, alpha=alpha)

    def corr(self, on: Sequence[str] | None = None, *, given: Sequence[str] = ()) -> Correlations:
        """Correlations of columns, levels as 0 and 1; partial ones, with the columns ``given`` held fixed.

        ``conf_int()`` of what is returned has their intervals.
        """
        return correlations(_release(self), on, given)

    def crosstab(self, rows: str, columns: str) -> Crosstab:
        """Counts of two categorical or boolean columns against each other, with intervals, shares and a test."""
        return crosstab(_release(self), rows, columns)

    def means(self, target: str, by: str, *, alpha: float = 0.05) -> ResultTable:
        """Means of a number, or shares of true, within the levels of ``by``, with intervals of level 1 - alpha."""
        return group_means(_release(self), target, by, alpha=alpha)

    def anova(self, target: str, by: str) -> Anova:
        """Whether the means of ``target`` differ between the levels of ``by``: analysis of variance with the noise."""
        return anova(_release(self), target, by)

    def synthetic(self, n_rows: int, *, seed: int | np.random.Generator | None = None, frame: Frame = "arrow") -> Any:
        """Made-up rows within bounds and levels, whose second moments are the release's: **only these are right**.

        Parameters
        ----------
        n_rows : int
            How many.
        seed : int or Generator, optional
        frame : {"arrow", "pandas", "polars"}
            Arrow tables carry the mark ``gaussmix.synthetic`` in their metadata, frames of pandas in ``attrs``;
            frames of polars have room for none.
        """
        table = synthetic_rows(_release(self), n_rows, seed)
        found = as_frame(table, frame)
        if frame == "pandas":
            found.attrs[MARK] = table.schema.metadata[MARK.encode()].decode()
        return found


def _release(own: Described) -> Release:
    return cast("Release", own)
