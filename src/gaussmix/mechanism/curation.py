"""From any table to one private release: what the curator calls.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> age = rng.uniform(18, 95, 50_000)
>>> table = {"age": age, "cost": 2 + 0.1 * age + rng.uniform(-1, 1, 50_000)}
>>> private = release(table, schema={"age": [18, 95], "cost": [0, 20]}, epsilon=1.0, delta=1e-6, random_state=0)
>>> abs(private.regress("cost").coef["age"] - 0.1) < 0.01
True
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from gaussmix import _validation as check
from gaussmix.accounting import Relation
from gaussmix.calibration import calibrate
from gaussmix.cluster import is_clustered, moments_on_cluster
from gaussmix.ledger import Ledger
from gaussmix.mechanism import check_sketch_size, draw_release, open_release
from gaussmix.moments import Moments
from gaussmix.releases import Release
from gaussmix.sampling import generator
from gaussmix.schema import Schema

__all__ = ["LARGE_SKETCH", "LEDGER_BUDGET", "automatic_sketch_size", "release"]

LEDGER_BUDGET = "the budget is the ledger's, and covers all of its releases together."

LARGE_SKETCH = 10**6
"""Rows of the default sketch. Noise per entry, γ/√k, is within 0.2 % of its limit; the cost does not depend on k."""


def automatic_sketch_size(columns: int) -> int:
    """Rows of the default sketch of a table with so many encoded columns."""
    return max(LARGE_SKETCH, 500 * columns)


def release(
    data: Any,
    *,
    schema: Schema | dict[str, Any] | str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    sketch_size: int | Literal["auto"] = "auto",
    relation: Relation | None = None,
    ledger: Ledger | str | Path | None = None,
    note: str = "",
    random_state: Any = None,
    progress: bool = False,
) -> Release:
    """Release a private sketch of a table, which serves any number of models.

    Parameters
    ----------
    data : table or Moments
        Anything that :func:`gaussmix.sources.batches` reads, a Dask or Spark table, or moments that were built before.
    schema : Schema, dict or path
        Columns with declared bounds and levels; not needed with moments.
    epsilon, delta : float
        The privacy budget; left out with a ledger, whose budget covers all of its releases together.
    sketch_size : int or "auto"
        Rows of the sketch; ``"auto"`` is 10⁶, or 500 per encoded column, or what is left in the ledger if that is less.
    relation : {"zero-out", "replace-one"}, optional
        Neighbouring relation; default: zero-out, or the ledger's.
    ledger : Ledger or path, optional
        Where the release is recorded before its noise is drawn. With ``sketch_size="auto"`` it takes up to 10⁶ rows, or
        all that are left.
    note : str
        Kept in the ledger.
    random_state : optional
        None is the secure generator; a seed is for tests.
    progress : bool
        Show a progress bar on a terminal.
    """
    if isinstance(ledger, str | Path):
        ledger = Ledger.open(ledger)
    if ledger is None and (epsilon is None or delta is None):
        raise ValueError("Give epsilon and delta, or a ledger that holds the budget.")
    if ledger is not None and not (epsilon is None and delta is None):
        raise ValueError("The ledger holds the budget: leave epsilon and delta out.")
    if ledger is not None and relation not in (None, ledger.reservation.relation):
        raise ValueError(
            f"The ledger is for relation={ledger.reservation.relation!r}, got {relation!r}: leave relation out."
        )
    declared = data.schema if isinstance(data, Moments) else None if schema is None else Schema.from_(schema)
    if declared is None:
        raise ValueError(
            "schema must be declared: bounds of numbers and levels of categories, fixed before the data are seen. "
            "`gaussmix schema FILE` writes a template."
        )
    k = _sketch_size(sketch_size, declared, ledger)
    if ledger is not None:
        calibration = ledger.calibration(k)
    elif epsilon == math.inf:
        calibration = None
    else:
        assert epsilon is not None
        assert delta is not None
        calibration = calibrate(epsilon, delta, sketch_size=k, relation=relation or "zero-out")
    rng, _ = generator(random_state)
    moments = _moments(data, declared, progress=progress)
    if calibration is None:
        return open_release(moments)
    if ledger is not None:
        ledger.spend_calibration(calibration, note=note)  # recorded first: a crash loses budget, not privacy
    conditions = () if ledger is None else (LEDGER_BUDGET,)
    return draw_release(moments, calibration, rng, mechanism="release", conditions=conditions)


def _moments(data: Any, schema: Schema, *, progress: bool) -> Moments:
    if isinstance(data, Moments):
        return data
    if is_clustered(data):
        return moments_on_cluster(data, schema)
    return Moments.from_(data, schema, progress=progress)


def _sketch_size(sketch_size: int | Literal["auto"], schema: Schema, ledger: Ledger | None) -> int:
    m = schema.n_columns
    if isinstance(sketch_size, str):
        check.choice(("auto",), sketch_size=sketch_size)
        k = automatic_sketch_size(m)
        return k if ledger is None else max(min(k, ledger.remaining().sketch_rows), m)
    return check_sketch_size(check.positive_integer(sketch_size=sketch_size), m)
