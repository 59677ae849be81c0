"""The line between sensitive and private: the only module that reads :class:`gaussmix.moments.Moments`.

What goes in is sensitive, what comes out is noisy, certified and on a public grid. In here rows have norm at most 1
(C = 1). Parameters of the noise come from declared quantities or from earlier outputs; nothing is drawn twice, retried
or repaired; no message depends on the rows.

Why a grid: an unrounded double tells which products could have produced it, and between one in 40 and one in 7 of
them are impossible under the neighbouring table. Rounding is post-processing and removes that attack; the guarantee
stays one for real arithmetic (SECURITY.md).
"""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix._version import __version__
from gaussmix.calibration import Calibration, eigenvalue_error_bound
from gaussmix.encoding import RowEncoder
from gaussmix.moments import Moments
from gaussmix.releases import Certificate, Release
from gaussmix.sampling import SECURE, describe, factor, wishart_factor
from gaussmix.schema import Schema

__all__ = [
    "certify",
    "check_sketch_size",
    "draw_noisy_blocks",
    "draw_release",
    "draw_smallest_eigenvalue",
    "draw_tested_release",
    "largest_table",
    "open_release",
    "public_grid",
]

Floats = NDArray[np.float64]

GRID_BITS = 20


# ---------------------------------------------------------------------------------------------------------------
# Gaussian mixing
def draw_release(
    moments: Moments,
    calibration: Calibration,
    rng: np.random.Generator,
    *,
    mechanism: str = "GaussMix",
    n_rows: int | None = None,
    conditions: tuple[str, ...] = (),
) -> Release:
    """GaussMix, or ModifiedGaussMix if the calibration has a private scale bound.

    M = SA + σΞ is drawn through its Gram matrix, Wishart(k, G + σ²I). Without a scale bound σ² = γ. With one
    (Algorithm 1 of arXiv:2505.24603v2, its units corrected), v = λ̂ - η(τ - z) is part of the release and
    σ² = max(γ - max(v, 0), 0); as in Algorithm 1, Theorem 1's variant leaves v out where γ ≤ τ. ``n_rows`` is the
    number of rows, if it is public, for the error of the eigenvalue solver.
    """
    check_sketch_size(calibration.sketch_size, moments.n_columns)
    parameters: dict[str, Any] = {}
    sigma2 = calibration.gamma
    if calibration.eta is not None and not _leaves_eigenvalue_out(calibration):
        v = _private_eigenvalue(moments, calibration, rng, largest_table(n_rows))
        sigma2 = max(calibration.gamma - max(v, 0.0), 0.0)
        parameters["eigenvalue_bound"] = v
    parameters |= {
        name: value for name, value in asdict(calibration).items() if name not in ("epsilon", "delta", "relation")
    }
    parameters["delta_split"] = dict(calibration.delta_split)
    certificate = certify(
        moments.encoder,
        mechanism=mechanism,
        epsilon=calibration.epsilon,
        delta=calibration.delta,
        relation=calibration.relation,
        analysis=calibration.analysis,
        generator=describe(rng),
        parameters=parameters,
        schema=moments.schema,
        n_rows=n_rows,
        conditions=conditions,
    )
    return _sketch(moments, sigma2, calibration.gamma, calibration.sketch_size, rng, certificate)


def _leaves_eigenvalue_out(calibration: Calibration) -> bool:
    """Line 1 of Algorithm 1."""
    return calibration.analysis == "paper" and calibration.tau is not None and calibration.gamma <= calibration.tau


def _private_eigenvalue(moments: Moments, calibration: Calibration, rng: np.random.Generator, n_max: int) -> float:
    """The bound v, rounded down to the grid before anything is made of it."""
    assert calibration.eta is not None
    assert calibration.tau is not None
    error = eigenvalue_error_bound(moments.n_columns, n_max=n_max)
    if calibration.eigenvalue_error < error:
        raise ValueError(
            f"This calibration allows for an error of {calibration.eigenvalue_error:g} in the smallest eigenvalue; "
            f"a table of {moments.n_columns} columns needs {error:g}: calibrate(..., eigenvalue_error={error!r})."
        )
    lower = max(_smallest_eigenvalue(moments.gram()) - calibration.eigenvalue_error, 0.0)
    v = lower - calibration.eta * (calibration.tau - rng.standard_normal())
    return _down_to_grid(v, public_grid(math.sqrt(calibration.gamma)))


def _sketch(
    moments: Moments, sigma2: float, gamma: float, k: int, rng: np.random.Generator, certificate: Certificate
) -> Release:
    """The factor of a sketch with noise variance σ², back in the units of encoded rows and on the grid."""
    C = moments.row_norm
    R = wishart_factor(factor(moments.gram(), sigma2), k, rng)
    grid = public_grid(C * math.sqrt(gamma))
    return Release(
        factor=_to_grid(C * R, grid),
        sketch_size=k,
        noise_variance=sigma2 * C**2,
        encoder=moments.encoder,
        certificate=certificate,
        schema=moments.schema,
    )


def check_sketch_size(k: int, columns: int) -> int:
    """At least as many rows as encoded columns; to be checked before anything is drawn."""
    if k < columns:
        raise ValueError(
            f"sketch_size must be at least the number of encoded columns, {columns}, got {k}: "
            "fewer rows cannot identify a regression."
        )
    return k


def open_release(moments: Moments) -> Release:
    """The Gram matrix itself, for ``epsilon=inf``. **Not private**, and certified as such."""
    encoder = moments.encoder
    certificate = certify(
        encoder,
        mechanism="none",
        epsilon=math.inf,
        delta=1.0,
        relation="zero-out",
        analysis="none",
        generator=SECURE,
        parameters={},
        schema=moments.schema,
    )
    R = moments.row_norm * factor(moments.gram(), 0.0).T
    return Release(
        R, sketch_size=1, noise_variance=0.0, encoder=encoder, certificate=certificate, schema=moments.schema
    )


# ---------------------------------------------------------------------------------------------------------------
# Pieces of other published methods
def draw_tested_release(
    moments: Moments,
    *,
    gamma: float,
    margin: float,
    laplace_scale: float,
    sketch_size: int,
    rng: np.random.Generator,
    certificate: Certificate,
    n_max: int = 2**40,
) -> Release:
    """Sheffet's algorithm: no noise if a noisy test finds λ_min > γ + margin, else noise of variance γ (C = 1).

    The test is given λ_min less its error bound e, and Laplace noise for a sensitivity of 1 + 2e; the margin is a
    multiple of that noise, so it grows with it.
    """
    check_sketch_size(sketch_size, moments.n_columns)
    error = eigenvalue_error_bound(moments.n_columns, n_max=n_max)
    lower = max(_smallest_eigenvalue(moments.gram()) - error, 0.0)
    z = rng.laplace(scale=laplace_scale * (1 + 2 * error))
    sigma2 = 0.0 if lower > gamma + z + margin * (1 + 2 * error) else gamma
    return _sketch(moments, sigma2, gamma, sketch_size, rng, certificate)


def draw_smallest_eigenvalue(
    moments: Moments,
    columns: slice,
    *,
    sensitivity: float,
    noise: float,
    rng: np.random.Generator,
    n_max: int = 2**40,
) -> float:
    """λ_min of a block of the Gram matrix plus Gaussian noise, rounded down to the grid (C = 1).

    One row moves the exact value by at most ``sensitivity`` and the computed one by at most 2e more, e the error bound
    of the solver. ``noise`` is in units of that.
    """
    error = eigenvalue_error_bound(moments.n_columns, n_max=n_max)
    lower = max(_smallest_eigenvalue(moments.gram()[columns, columns]) - error, 0.0)
    std = noise * (sensitivity + 2 * error)
    return _down_to_grid(lower + std * rng.standard_normal(), public_grid(std))


def draw_noisy_blocks(
    moments: Moments,
    features: slice,
    targets: slice,
    *,
    feature_noise: float,
    target_noise: float,
    off_diagonal: Literal["as diagonal", "root half"],
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """XᵀX and XᵀY with Gaussian noise, on the grid (C = 1).

    (x_i², √2 x_i x_j) has norm ‖x‖², so that off-diagonal noise may be √2 smaller than diagonal noise at the same cost
    (``"root half"``); AdaSSP as printed uses the same on both.
    """
    gram = moments.gram()
    XX, XY = gram[features, features], gram[features, targets]
    noise = rng.standard_normal(XX.shape)
    upper = np.triu(noise, 1) * (1.0 if off_diagonal == "as diagonal" else math.sqrt(0.5))
    symmetric = upper + upper.T + np.diag(np.diagonal(noise))
    return (
        _to_grid(XX + feature_noise * symmetric, public_grid(feature_noise)),
        _to_grid(XY + target_noise * rng.standard_normal(XY.shape), public_grid(target_noise)),
    )


# ---------------------------------------------------------------------------------------------------------------
# Shared
def certify(
    encoder: RowEncoder,
    *,
    mechanism: str,
    epsilon: float,
    delta: float,
    relation: str,
    analysis: str,
    generator: str,
    parameters: dict[str, Any],
    schema: Schema | None = None,
    n_rows: int | None = None,
    conditions: tuple[str, ...] = (),
) -> Certificate:
    """A certificate, with what voids or conditions the guarantee spelled out."""
    found = [f"condition: {words}" for words in conditions]
    if n_rows is not None:
        found.append("condition: the number of rows was declared to be public; its being changed is not covered.")
    if math.isinf(epsilon):
        found.append("void: epsilon is infinite, nothing is protected.")
    if generator != SECURE:
        found.append("void: the noise came from a seed or a generator of the caller's; whoever knows it can remove it.")
    return Certificate(
        mechanism=mechanism,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        analysis=analysis,
        row_norm=encoder.row_norm if schema is None else schema.norm,
        bounds=encoder.declared() if schema is None else schema.to_dict(),
        generator=generator,
        conditions=tuple(found),
        parameters=parameters,
        version=__version__,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def largest_table(n_rows: int | None) -> int:
    """A public bound on the number of rows: what is declared, or more than anybody has."""
    return 2**40 if n_rows is None else check.positive_integer(n_rows=n_rows)


def public_grid(scale: float) -> float:
    """The power of two about a millionth of a public noise scale: 2^(⌈log₂ scale⌉ - 20)."""
    return 2.0 ** (math.ceil(math.log2(scale)) - GRID_BITS)


def _to_grid(values: Floats, grid: float) -> Floats:
    return np.asarray(np.round(values / grid) * grid + 0.0)  # + 0.0: no negative zero


def _down_to_grid(value: float, grid: float) -> float:
    return math.floor(value / grid) * grid


def _smallest_eigenvalue(gram: Floats) -> float:
    """From a symmetric solver; sensitive."""
    return float(scipy.linalg.eigvalsh(gram, check_finite=False)[0])
