"""Gaussian mixing: a sketch of the table plus noise, drawn through its Gram matrix.

What goes in is sensitive, what comes out is noisy, certified and on a public grid. In here rows have norm at most 1
(C = 1). Parameters of the noise come from declared quantities or from earlier outputs; nothing is drawn twice, retried
or repaired; no message depends on the rows.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix._version import __version__
from gaussmix.accounting.accounts import Account, Unprotected
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.calibration import Calibration, eigenvalue_error_bound
from gaussmix.errors import ArgumentError
from gaussmix.ledger import Entry, Ledger
from gaussmix.mechanism.grid import down_to_grid, public_grid, to_grid
from gaussmix.mechanism.sampling import describe, factor, secure_generator, wishart_factor
from gaussmix.models.certificate import LEDGER_BUDGET, PERSONS_APART, ROWS_PUBLIC, SECURE, Certificate, Condition
from gaussmix.models.release import Release
from gaussmix.models.sketch import Sketch
from gaussmix.tables.contributions import Unit
from gaussmix.tables.moments import Moments
from gaussmix.tables.schema import Schema

__all__ = ["certify", "check_sketch_size", "draw_release", "draw_sketch", "largest_table", "named_in", "open_release"]

NOT_PROTECTED = Condition(True, "epsilon is infinite, nothing is protected.")
SEED_KNOWN = Condition(
    True, "the noise came from a seed or a generator of the caller's; whoever knows it can remove it."
)


def draw_release(
    moments: Moments,
    calibration: Calibration,
    rng: np.random.Generator,
    *,
    made_by: str = "GaussMix",
    n_rows: int | None = None,
    conditions: Sequence[Condition] = (),
) -> Release:
    """GaussMix, or ModifiedGaussMix if the calibration has a private scale bound.

    M = SA + σΞ is drawn through its Gram matrix, Wishart(k, G + σ²I). Without a scale bound σ² = γ. With one
    (Algorithm 1 of arXiv:2505.24603v2, its units corrected), v = λ̂ - η(τ - z) is part of the release and
    σ² = max(γ - max(v, 0), 0); as in Algorithm 1, Theorem 1's variant leaves v out where γ ≤ τ. ``n_rows`` is the
    number of rows, if it is public, for the error of the eigenvalue solver.
    """
    calibration.verify()
    check_sketch_size(calibration.sketch_size, moments.schema.n_columns)
    bound, sigma2 = None, calibration.gamma
    if calibration.eta is not None and calibration.tau is not None and not _leaves_eigenvalue_out(calibration):
        bound = _private_eigenvalue(moments, calibration, calibration.eta, calibration.tau, rng, largest_table(n_rows))
        sigma2 = max(calibration.gamma - max(bound, 0.0), 0.0)
    certificate = certify(
        moments.schema,
        calibration,
        rng,
        made_by=made_by,
        budget=(calibration.epsilon, calibration.delta),
        relation=calibration.relation,
        n_rows=n_rows,
        conditions=conditions,
        eigenvalue_bound=bound,
    )
    return Release(draw_sketch(moments, sigma2, calibration.gamma, calibration.sketch_size, rng), certificate)


def _leaves_eigenvalue_out(calibration: Calibration) -> bool:
    """Line 1 of Algorithm 1."""
    return calibration.analysis == "paper" and calibration.tau is not None and calibration.gamma <= calibration.tau


def _private_eigenvalue(
    moments: Moments, calibration: Calibration, eta: float, tau: float, rng: np.random.Generator, n_max: int
) -> float:
    """The bound v, rounded down to the grid before anything is made of it."""
    error = eigenvalue_error_bound(moments.schema.n_columns, n_max=n_max)
    if calibration.eigenvalue_error < error:
        raise ArgumentError(
            f"This calibration allows for an error of {calibration.eigenvalue_error:g} in the smallest eigenvalue; "
            f"{moments.schema.n_columns} columns need {error:g}: calibrate(..., eigenvalue_error={error!r})."
        )
    lower = max(smallest_eigenvalue(moments.gram()) - calibration.eigenvalue_error, 0.0)
    v = lower - eta * (tau - rng.standard_normal())
    return down_to_grid(v, public_grid(math.sqrt(calibration.gamma)))


def draw_sketch(moments: Moments, sigma2: float, gamma: float, k: int, rng: np.random.Generator) -> Sketch:
    """A sketch with noise variance σ², back in the units of encoded rows and on the grid of a public γ."""
    C = moments.schema.row_norm
    R = wishart_factor(factor(moments.gram(), sigma2), k, rng)
    return Sketch(to_grid(C * R, public_grid(C * math.sqrt(gamma))), k, sigma2 * C**2, moments.schema)


def open_release(moments: Moments, *, made_by: str = "release") -> Release:
    """The Gram matrix itself, for ``epsilon=inf``. **Not private**, and certified as such."""
    certificate = certify(
        moments.schema, Unprotected(), secure_generator(), made_by=made_by, budget=(math.inf, 1.0), relation="zero-out"
    )
    R = moments.schema.row_norm * factor(moments.gram(), 0.0).T
    return Release(Sketch(R, 1, 0.0, moments.schema), certificate)


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
    eigenvalue_bound: float | None = None,
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
        eigenvalue_bound=eigenvalue_bound,
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


def check_sketch_size(k: int, columns: int) -> int:
    """At least as many rows as encoded columns; to be checked before anything is drawn."""
    if check.sketch_rows(sketch_size=k) < columns:
        raise ArgumentError(
            f"sketch_size must be at least the number of encoded columns, {columns}, got {k}: "
            "fewer rows cannot identify a regression."
        )
    return k


def largest_table(n_rows: int | None) -> int:
    """A public bound on the number of rows: what is declared, or more than anybody has."""
    return 2**40 if n_rows is None else check.positive_integer(n_rows=n_rows)


def smallest_eigenvalue(gram: Floats) -> float:
    """From a symmetric solver; sensitive."""
    return float(scipy.linalg.eigvalsh(gram, check_finite=False)[0])
