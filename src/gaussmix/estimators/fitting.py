"""Prepare, group and draw what an estimator fits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from gaussmix._types import Rows
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.estimators.base import FEATURES, rows_of_arrays, target_names
from gaussmix.ledger import Budget, Ledger
from gaussmix.mechanism.release import Passes, Prepared, prepare
from gaussmix.releases.certificate import Condition
from gaussmix.releases.preconditioning import Likelihood

__all__ = [
    "GROUPS",
    "check_groups",
    "group_unit",
    "grouped_rows",
    "prepare_estimator",
    "table_of",
    "warn_if_hopeless",
]


GROUPS = "groups"
"""What certificates and ledgers name the unit of an estimator."""


def group_unit(max_contributions: int | None) -> PrivacyUnit | None:
    """The unit that is declared, before a row is read; None is one row."""
    return None if max_contributions is None else PrivacyUnit(GROUPS, max_contributions)


def check_groups(groups: ArrayLike | None, max_contributions: int | None) -> None:
    """Refuse one without the other: nobody is protected as a row who was declared to be a person."""
    if groups is None and max_contributions is not None:
        raise ArgumentError("max_contributions requires groups in fit: the privacy unit of each row.")
    if groups is not None and max_contributions is None:
        raise DeclarationError(
            "max_contributions must be declared with groups: the largest number of rows of a unit. Fix it before "
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


def warn_if_hopeless(schema: Schema, account: LatticeAccount | None, n_rows: int | None) -> None:
    """Warn if a declared number of rows cannot stand out from the noise.

    n rows of norm at most C_X have an average eigenvalue of at most n C_X²/d; directions below the edge of the noise,
    2 s √m, cannot be told from it.
    """
    if n_rows is None or account is None:
        return
    features = len(schema.groups[FEATURES])
    columns = features + bool(schema.intercept)
    signal = n_rows * (schema.norm_of([FEATURES], intercept=True) / schema.row_norm) ** 2 / columns
    entry = 1 / math.sqrt(2 * sum(mu**2 for mu in account.noise_mu))  # the whole budget in one pass
    noise = 2 * entry * math.sqrt(schema.n_columns)
    if signal < noise:
        warnings.warn(
            f"n_rows={n_rows} is too small for {features} features at epsilon={account.epsilon:g}: the noise "
            "exceeds the largest signal that such a table can have in an average direction. Use more rows, fewer "
            "features or a larger epsilon.",
            UserWarning,
            stacklevel=4,
        )


class _Parameters(Protocol):
    epsilon: float
    delta: float
    passes: Passes
    n_rows: int | None
    max_contributions: int | None
    ledger: Ledger | None
    random_state: int | np.random.Generator | None


def prepare_estimator(
    estimator: _Parameters,
    schema: Schema,
    *,
    conditions: Sequence[Condition] = (),
    likelihood: Likelihood | None = None,
) -> Prepared:
    """The release behind an estimator; a ledger's budget takes the place of the estimator's own."""
    name = type(estimator).__name__
    if estimator.ledger is None:
        budget = Budget(estimator.epsilon, estimator.delta)
    else:
        budget = Budget(ledger=estimator.ledger, note=name)
    prepared = prepare(
        schema,
        budget,
        passes=estimator.passes,
        n_rows=estimator.n_rows,
        random_state=estimator.random_state,
        made_by=name,
        conditions=conditions,
        likelihood=likelihood,
        unit=group_unit(estimator.max_contributions),
    )
    warn_if_hopeless(schema, prepared.account, estimator.n_rows)
    return prepared
