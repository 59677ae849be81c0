"""Rows of persons, for estimators: ``fit(X, y, groups=...)`` says whose each row is.

>>> import numpy as np
>>> from gaussmix import LinearRegression
>>> rng = np.random.default_rng(0)
>>> X, who = rng.uniform(-1, 1, (4_000, 1)), np.repeat(np.arange(1_000), 4)
>>> model = LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), rows_per_group=4, random_state=0)
>>> print(model.fit(X, X[:, 0] / 2, groups=who).privacy_.unit)
one person (all rows with the same groups, together counted as at most 4)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from numpy.typing import ArrayLike

from gaussmix._types import Rows
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.estimators.base import rows_of_arrays
from gaussmix.estimators.declared import FEATURES, target_names
from gaussmix.mechanism.preparation import Prepared
from gaussmix.tables.contributions import Unit
from gaussmix.tables.rows import RowSource

__all__ = ["GROUPS", "NOT_A_UNIT", "check_groups", "group_unit", "grouped_rows", "table_of"]

GROUPS = "groups"
"""What certificates and ledgers name the unit of an estimator."""

NOT_A_UNIT = "it is for releases of tables with a unit. An estimator takes rows_per_group, and fit is told groups."
"""What is said of ``rows_per_unit``."""


def group_unit(rows_per_group: int | None) -> Unit | None:
    """The unit that is declared, before a row is read; None is one row."""
    return None if rows_per_group is None else Unit(GROUPS, rows_per_group)


def check_groups(groups: ArrayLike | None, rows_per_group: int | None) -> None:
    """Refuse one without the other: nobody is protected as a row who was declared to be a person."""
    if groups is None and rows_per_group is not None:
        raise ArgumentError("rows_per_group is declared: pass groups to fit, which say whose each row is.")
    if groups is not None and rows_per_group is None:
        raise DeclarationError(
            "rows_per_group must be declared with groups: as how many rows one person counts. It must be fixed before "
            "the data are seen."
        )


def table_of(X: ArrayLike) -> Any:
    """Return features by which a second fit to the same rows is recognised; lists of numbers are not."""
    return None if isinstance(X, list | tuple) else X


@contextmanager
def grouped_rows(
    X: Rows, y: Rows, groups: ArrayLike | None, prepared: Prepared, *, n_rows: int | None
) -> Iterator[RowSource]:
    """The rows of a table in memory, by person where there are groups."""
    rows = rows_of_arrays(X, y, prepared.schema, n_rows=n_rows)
    if groups is None or prepared.unit is None:
        yield rows
        return
    names = target_names(1 if y.ndim == 1 else y.shape[1])
    targets = zip(names, y.reshape(len(y), -1).T, strict=True)
    table = {FEATURES: X, **dict(targets), GROUPS: groups}
    if len(groups) != len(X):  # type: ignore[arg-type]
        raise DataError("groups must have as many values as X has rows.")
    with closing(prepared.rows(table)) as persons:
        yield persons
