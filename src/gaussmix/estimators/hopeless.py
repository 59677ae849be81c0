"""A warning, from public quantities and before anything is spent, that noise will exceed any possible signal."""

from __future__ import annotations

import math
import warnings

from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.estimators.declared import FEATURES
from gaussmix.tables.schema import Schema

__all__ = ["warn_if_hopeless"]


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
