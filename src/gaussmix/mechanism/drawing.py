"""Draw a release, and certify what it guarantees.

What goes in is sensitive, what comes out is noisy and certified. No message depends on the rows.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from gaussmix._version import __version__
from gaussmix.accounting.accounts import Account, Unprotected
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import Relation
from gaussmix.data.contributions import Unit
from gaussmix.data.moments import Moments
from gaussmix.data.rows import RowSource
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.ledger import Entry, Ledger
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.sampling import describe, secure_generator
from gaussmix.models.release import Release
from gaussmix.releases.certificate import LEDGER_BUDGET, PERSONS_APART, ROWS_PUBLIC, SECURE, Certificate, Condition
from gaussmix.releases.preconditioning import Likelihood
from gaussmix.releases.transcript import PassOutput, Transcript

__all__ = ["certify", "draw", "named_in", "open_release"]

NOT_PROTECTED = Condition(True, "epsilon is infinite, nothing is protected.")
SEED_KNOWN = Condition(
    True, "the noise came from a seed or a generator of the caller's; whoever knows it can remove it."
)


def draw(
    rows: RowSource,
    moments: Moments,
    account: LatticeAccount,
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
        For the certificate (`certify`).
    likelihood : Likelihood, optional
        Steps that the account has.
    keep_tails : bool
        Whether the last of several passes shortens as few rows as it can.
    coins : Sample, optional
        Under which the first pass kept rows for later ones.
    progress : bool
        Show on a terminal how far the noise is.
    """
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


def open_release(moments: Moments, *, made_by: str = "release") -> Release:
    """The Gram matrix itself, for ``epsilon=inf``. **Not private**, and certified as such."""
    certificate = certify(
        moments.schema, Unprotected(), secure_generator(), made_by=made_by, budget=(math.inf, 1.0), relation="zero-out"
    )
    return Release(Transcript((PassOutput(moments.gram(), math.inf),), moments.schema), certificate)


def certify(
    schema: Schema,
    account: Account,
    rng: np.random.Generator,
    *,
    made_by: str,
    budget: tuple[float, float],
    relation: Relation,
    n_rows: int | None = None,
    conditions: Sequence[Condition] = (),
    unit: Unit | None = None,
) -> Certificate:
    """A certificate, with what voids or conditions the guarantee spelled out."""
    epsilon, delta = budget
    generator = SECURE if math.isinf(epsilon) else describe(rng)
    found = [*conditions]
    found += [PERSONS_APART] * (unit is not None)
    found += [ROWS_PUBLIC] * (n_rows is not None)
    found += [NOT_PROTECTED] * math.isinf(epsilon)
    found += [SEED_KNOWN] * (generator != SECURE)
    return Certificate(
        made_by=made_by,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        account=account,
        schema=schema,
        generator=generator,
        conditions=tuple(found),
        version=__version__,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        release=uuid.uuid4().hex,
        unit=unit,
    )


def named_in(certificate: Certificate, ledger: Ledger, entry: Entry) -> Certificate:
    """Return the certificate of a release that was recorded in a ledger, whose budget covers all of its releases."""
    return replace(
        certificate,
        conditions=(LEDGER_BUDGET, *certificate.conditions),
        release=entry.release,
        ledger=ledger.fingerprint,
        entry=entry.id,
        reservation=ledger.reservation,
    )
