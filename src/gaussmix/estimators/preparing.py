"""What both estimators settle before a row is read, from their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gaussmix.estimators.grouped import group_unit
from gaussmix.estimators.hopeless import warn_if_hopeless
from gaussmix.ledger import Ledger
from gaussmix.mechanism.budgeting import Passes
from gaussmix.mechanism.preparation import Prepared, prepare
from gaussmix.models.certificate import Condition
from gaussmix.models.steps import Likelihood
from gaussmix.tables.schema import Schema

__all__ = ["prepare_estimator"]


class _Parameters(Protocol):
    epsilon: float
    delta: float
    passes: Passes
    n_rows: int | None
    rows_per_group: int | None
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
    prepared = prepare(
        schema,
        epsilon=estimator.epsilon if estimator.ledger is None else None,
        delta=estimator.delta if estimator.ledger is None else None,
        passes=estimator.passes,
        ledger=estimator.ledger,
        note="" if estimator.ledger is None else name,
        n_rows=estimator.n_rows,
        random_state=estimator.random_state,
        made_by=name,
        conditions=conditions,
        likelihood=likelihood,
        unit=group_unit(estimator.rows_per_group),
    )
    warn_if_hopeless(schema, prepared.account, estimator.n_rows)
    return prepared
