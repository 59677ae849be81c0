"""One door to the noise: a finite sketch, or passes of its limit, as the account says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.mechanism.mixing import certify, draw_release
from gaussmix.mechanism.passes import draw_passes
from gaussmix.models.certificate import Condition
from gaussmix.models.release import Release
from gaussmix.models.steps import Likelihood
from gaussmix.tables.moments import Moments
from gaussmix.tables.rows import RowSource
from gaussmix.tables.sampling import Sample

__all__ = ["Noise", "draw"]

Noise = Calibration | LatticeAccount
"""What the noise of a release was chosen for."""


def draw(
    rows: RowSource,
    moments: Moments,
    account: Noise,
    rng: np.random.Generator,
    *,
    made_by: str,
    n_rows: int | None = None,
    conditions: Sequence[Condition] = (),
    likelihood: Likelihood | None = None,
    keep_tails: bool = False,
    coins: Sample | None = None,
    progress: bool = False,
) -> Release:
    """A release of the rows, whose first pass, ``moments``, was read already.

    Parameters
    ----------
    rows : RowSource
        For the passes after the first.
    moments : Moments
        Exact sums over all of them.
    account, rng
        Noise and where it comes from.
    made_by, n_rows, conditions
        For the certificate (:func:`gaussmix.mechanism.mixing.certify`).
    likelihood : Likelihood, optional
        Steps that the account has; none of a finite sketch.
    keep_tails : bool
        Whether the last of several passes shortens as few rows as it can.
    coins : Sample, optional
        Under which the first pass kept rows for later ones.
    progress : bool
        Show on a terminal how far the noise is.
    """
    if isinstance(account, Calibration):
        return draw_release(moments, account, rng, made_by=made_by, n_rows=n_rows, conditions=conditions)
    transcript = draw_passes(
        rows, moments, account, rng, likelihood=likelihood, keep_tails=keep_tails, coins=coins, progress=progress
    )
    certificate = certify(
        rows.schema,
        account,
        rng,
        made_by=made_by,
        budget=(account.epsilon, account.delta),
        relation=account.relation,
        n_rows=n_rows,
        conditions=conditions,
        unit=rows.unit,
    )
    return Release(transcript, certificate)
