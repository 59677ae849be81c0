r"""The Gaussian mixing mechanism: GaussMix and Algorithm 1, which turn rows into private sketches.

With Gaussian S and Ξ, M = SA + σΞ has independent rows N(0, G + σ²I), where G = AᵀA. M is drawn as written, or through
G: for LLᵀ = G + σ²I, MᵀM is Wishart(k, LLᵀ), whose triangular factor needs m²/2 normal and m chi-square draws for any
k. Least squares and inner products use only MᵀM, which has the same distribution in both cases.

All outputs are rounded to a public grid (:mod:`gaussmix.mechanism.noise`). Noise scales are computed from declared
parameters and from v, which is released. No draw is repeated or adjusted, and no message depends on the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.calibration import Calibration, eigenvalue_error_bound
from gaussmix.accounting.parameters import GAMMA_MAX
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.noise import describe, down_to_grid, generator, public_grid, to_grid
from gaussmix.paper.certificate import N_MAX, NORMS, Analysis, Certificate, Neighbours, lemma_gamma, noise_scale
from gaussmix.paper.rows import UNIT, Table
from gaussmix.paper.sketch import METHODS, Method, Sketch

__all__ = ["gauss_mix", "modified_gauss_mix"]

_EXPLICIT_ROWS = 2**10  # rows of the table for which S is in memory
_LARGEST_CHOLESKY = 2**12


def gauss_mix(
    A: Any,
    k: int,
    sigma: float,
    *,
    row_norm: float,
    scale_bound: float = 0.0,
    neighbours: Neighbours = "add-remove",
    columns: Sequence[str] | None = None,
    method: Method | None = None,
    rng: int | np.random.Generator | None = None,
) -> Sketch:
    r"""Release a noisy Gaussian sketch of a table (GaussMix, equation 1 and Lemma 1 of arXiv:2505.24603v2).

    .. math:: M(A) = S A + \sigma\,\Xi,\quad S \sim N(0, I_{k \times n}),\quad \Xi \sim N(0, I_{k \times m})

    Its privacy is determined by γ = (σ² + λ̄_min)/C²; the certificate has the exact curve.

    Parameters
    ----------
    A : array (n, m), data frame, or iterable of them
        The table; an iterable yields blocks of rows and is read once.
    k : int
        Number of sketch rows. It may be less than the number of columns; least squares needs one per predictor.
    sigma : float
        σ, in the units of the table.
    row_norm : float
        C, declared before looking at the data. Rows longer than C are scaled back to it as a whole, which keeps linear
        relations within a row; entries are rounded towards zero to multiples of C·2⁻²⁰.
    scale_bound : float
        λ̄_min, a public lower bound on the smallest eigenvalue of AᵀA, with rows clipped and rounded. The caller
        asserts that it holds for every table that could be passed. It must not be computed from A, software cannot
        verify it, and if it is false there is no guarantee. A neighbouring table need not satisfy it. A bound of at
        most C² has no effect.
    neighbours : {"add-remove", "replace-one"}
        How neighbouring tables differ.
    columns : sequence of str, optional
        Names of the columns of an array (x0, x1, … by default), or the columns of a data frame to read.
    method : {"gram", "explicit"}, optional
        Draw through the Gram matrix, or S A as written, for parties who sketch their own rows. "gram" by default if k
        is at least the number of columns.
    rng : None, int or numpy.random.Generator
        Default: the secure generator. A seed voids the guarantee, and the certificate states so.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.random.default_rng(1).uniform(-0.5, 0.5, (5_000, 3))
    >>> sketch = gauss_mix(A, 200, 7.0, row_norm=1.0)
    >>> round(sketch.epsilon(1e-6), 2), sketch.rows.shape
    (0.97, (3, 3))
    >>> gauss_mix(A, 2, 7.0, row_norm=1.0).rows.shape  # fewer rows than columns
    (2, 3)
    """
    k, C = check.sketch_rows(k=k), check.in_interval(*NORMS, closed=True, row_norm=row_norm)
    sigma, scale_bound = check.nonnegative(sigma=sigma), check.nonnegative(scale_bound=scale_bound)
    gamma = lemma_gamma(sigma, C, scale_bound)
    if sigma == 0 and not gamma > 1:
        raise ArgumentError(f"sigma must be > 0, unless scale_bound is greater than row_norm², got {sigma!r}.")
    if not 0 < gamma <= GAMMA_MAX:
        raise ArgumentError(f"(sigma² + scale_bound) / row_norm² must lie in (0, {GAMMA_MAX:g}], got {gamma!r}.")
    source = _generator(rng)
    certificate = Certificate(
        "GaussMix", k, gamma, sigma, C, scale_bound, neighbours=neighbours, generator=describe(source)
    )
    table = Table.open(A, columns)
    if method is None:
        method = "gram" if k >= len(table.names) else "explicit"
    check.choice(METHODS, method=method)
    gram = table.gram(C) if method == "gram" else None
    return _draw(table, gram, certificate, source)


def modified_gauss_mix(
    A: Any,
    C: float,
    k: int | None = None,
    gamma: float | None = None,
    tau: float | None = None,
    eta: float | None = None,
    *,
    analysis: Analysis = "exact",
    calibration: Calibration | None = None,
    n_max: int = N_MAX,
    columns: Sequence[str] | None = None,
    method: Method = "gram",
    rng: int | np.random.Generator | None = None,
) -> Sketch:
    r"""Release a sketch whose noise is lowered by a private bound on λ_min (Algorithm 1 of arXiv:2505.24603v2).

    .. math:: v = \lambda_{\min}(A^\top A)/C^2 - \eta(\tau - z),\quad z \sim N(0, 1),\qquad
        \sigma^2 = C^2 \max(\gamma - \max(v, 0), 0)

    and M = SA + σΞ; v is part of the release. If γ ≤ τ, then σ² = γC² and there is no v. Differences from the printed
    algorithm: λ_min is divided by C² before it is compared with γ, the noise of the first case is √γ·C instead of γ·C,
    a bound on the numerical error of λ_min is subtracted from it and charged to its sensitivity, and v is rounded down
    to a public grid before σ is computed from it. Neighbours are add-remove.

    Parameters
    ----------
    A, columns, rng
        As in :func:`gauss_mix`.
    C : float
        Bound on the norm of a row; longer rows are scaled back as a whole.
    k, gamma, tau, eta
        The paper's parameters: sketch rows, target of (σ² + λ_min)/C² (> 1, or > 5/2 for Theorem 1), margin and noise
        of the private λ_min in units of C².
    analysis : {"exact", "paper"}
        The joint account (:func:`gaussmix.accounting.private_scale_delta`), or Theorem 1, which covers
        δ ≥ 3 exp(-τ²/2) only. Taken from ``calibration`` if there is one.
    calibration : Calibration, optional
        The result of ``gaussmix.calibrate(epsilon, delta, sketch_size=k, scale="private", eigenvalue_error=e)``, in
        place of the four parameters and the analysis. e must be at least
        ``eigenvalue_error_bound(columns, n_max=n_max)`` of :mod:`gaussmix.accounting.calibration`.
    n_max : int
        A public bound on the number of rows, for the numerical error of λ_min.
    method : {"gram", "explicit"}
        As in :func:`gauss_mix`; "explicit" reads the table twice.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.random.default_rng(1).uniform(-0.5, 0.5, (5_000, 3))
    >>> sketch = modified_gauss_mix(A, 1.0, 250, 82.5, 0.0, 8.78, n_max=10_000, rng=0)
    >>> sketch.sigma, sketch.certificate.v > 82.5  # λ_min is so large that no noise is needed
    (0.0, True)
    """
    if calibration is not None:
        if not (k is None and gamma is None and tau is None and eta is None):
            raise ArgumentError(
                "calibration cannot be combined with k, gamma, tau or eta. Pass either the calibration or these "
                "parameters."
            )
        if calibration.scale != "private":
            raise ArgumentError(
                "calibration must be for scale='private'; for scale='none' use gauss_mix(A, k, C * sqrt(gamma), ...)."
            )
        analysis = "paper" if calibration.analysis == "paper" else "exact"
        k, gamma, tau, eta = calibration.sketch_size, calibration.gamma, calibration.tau, calibration.eta
    if k is None or gamma is None or tau is None or eta is None:
        raise ArgumentError("Pass either a calibration, or k, gamma, tau and eta.")
    k, C = check.sketch_rows(k=k), check.in_interval(*NORMS, closed=True, C=C)
    gamma, eta = check.in_interval(0, GAMMA_MAX, closed=True, gamma=gamma), check.positive(finite=True, eta=eta)
    tau = check.nonnegative(tau=tau)
    check.choice(("exact", "paper"), analysis=analysis)
    if gamma <= (least := 5 / 2 if analysis == "paper" else 1):
        raise ArgumentError(f"gamma must be a number > {least:g} with analysis={analysis!r}, got {gamma!r}.")
    check.choice(METHODS, method=method)
    source, table = _generator(rng), Table.open(A, columns)
    error = _eigenvalue_error(len(table.names), check.positive_integer(n_max=n_max), calibration)
    if method == "explicit" and table.once:
        raise ArgumentError(
            "method='explicit' reads the rows twice, but A is an iterator. Pass an array, a data frame or a list."
        )
    gram = table.gram(C, n_max=n_max)
    v = None if gamma <= tau else draw_eigenvalue(gram, gamma, eta, tau, error, source)
    certificate = Certificate(
        "ModifiedGaussMix",
        k,
        gamma,
        noise_scale(C, gamma, v),
        C,
        eta=eta,
        tau=tau,
        v=v,
        eigenvalue_error=error,
        n_max=n_max,
        analysis=analysis,
        generator=describe(source),
        budget=None if calibration is None else (calibration.epsilon, calibration.delta),
    )
    return _draw(table, gram if method == "gram" else None, certificate, source)


def _eigenvalue_error(columns: int, n_max: int, calibration: Calibration | None) -> float:
    """Return the bound on the numerical error of λ_min that the account charges."""
    needed = eigenvalue_error_bound(columns, n_max=n_max)
    if calibration is None:
        return needed
    if calibration.eigenvalue_error < needed:
        raise ArgumentError(
            f"eigenvalue_error of the calibration must be at least {needed:g} for {columns} columns and n_max={n_max}, "
            f"got {calibration.eigenvalue_error:g}. Use calibrate(..., eigenvalue_error={needed!r}) or a smaller n_max."
        )
    return calibration.eigenvalue_error


def _generator(rng: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return generator(rng)
    except ArgumentError:
        raise ArgumentError(
            f"rng must be None (secure), an integer ≥ 0 or a numpy.random.Generator, got {type(rng).__name__}. Use "
            "None for anything that is released."
        ) from None


# ----------------------------------------------------------------------------------------------------------------------
# Draws, in units of C
def _draw(table: Table, gram: Floats | None, certificate: Certificate, rng: np.random.Generator) -> Sketch:
    """Draw the sketch through its Gram matrix, or as written if ``gram`` is None, and round it to the public grid."""
    C, k = certificate.row_norm, certificate.k
    sigma = certificate.sigma / C
    if gram is None:
        M = draw_rows(table.rows(C, most=_EXPLICIT_ROWS), len(table.names), k, sigma, rng)
    else:
        M = draw_factor(covariance_factor(gram, sigma * sigma), k, rng)
    grid = public_grid(C * math.sqrt(certificate.gamma))
    return Sketch(to_grid(C * M, grid), table.names, certificate, "explicit" if gram is None else "gram")


def draw_eigenvalue(
    gram: Floats, gamma: float, eta: float, tau: float, error: float, rng: np.random.Generator
) -> float:
    """Draw v = λ̂ - η(τ - z), λ̂ = max(λ_min - e, 0), and round it down to a public grid."""
    lambda_min = float(scipy.linalg.eigvalsh(gram, check_finite=False)[0])
    v = max(lambda_min - error, 0.0) - eta * (tau - rng.standard_normal())
    return down_to_grid(v, public_grid(math.sqrt(gamma)))


def draw_rows(blocks: Iterator[Floats], m: int, k: int, sigma: float, rng: np.random.Generator) -> Floats:
    """Draw S A + σ Ξ as written, shape (k, m), over blocks of whole rows of A.

    S is drawn row by row of A, so that it does not depend on how A is cut into blocks.
    """
    M = np.zeros((k, m))
    for rows in blocks:
        M += rng.standard_normal((len(rows), k)).T @ rows
    return M / UNIT + sigma * rng.standard_normal((k, m))


def draw_factor(L: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw R, upper triangular (m, m), with RᵀR ~ Wishart(k, L Lᵀ), by Bartlett's decomposition.

    R = (L B)ᵀ, B lower triangular with B_ii² ~ χ²(k - i), i = 0, …, m - 1, and standard normals below the diagonal, for
    k ≥ m. For fewer rows, k rows Z Lᵀ are drawn instead.
    """
    m = len(L)
    if k < m:
        return rng.standard_normal((k, m)) @ L.T
    B = np.tril(rng.standard_normal((m, m)), -1)
    np.fill_diagonal(B, np.sqrt(rng.chisquare(k - np.arange(m))))
    return np.triu((L @ B).T)


def covariance_factor(gram: Floats, sigma2: float) -> Floats:
    """Return L with L Lᵀ = G + σ²I, in units where C = 1, lower triangular.

    The choice of algorithm depends on public numbers only, and neither algorithm fails, retries or adds jitter. For
    σ² ≥ 1 it is a Cholesky factorisation, whose rounding error, below (m + 1)·u·trace(G + σ²I), is less than σ² up to
    2⁴⁰ rows and 2¹² columns. Otherwise it is an eigendecomposition, with negative eigenvalues replaced by zero.
    """
    m = len(gram)
    shifted = gram + sigma2 * np.eye(m)
    if sigma2 >= 1 and m <= _LARGEST_CHOLESKY:
        return np.asarray(scipy.linalg.cholesky(shifted, lower=True, check_finite=False))
    values, vectors = scipy.linalg.eigh(shifted, check_finite=False)
    (R,) = scipy.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T, mode="r", check_finite=False)
    return np.asarray((R * np.where(np.diagonal(R) < 0, -1.0, 1.0)[:, np.newaxis]).T)
