"""Sampling: a generator that nobody can repeat, and three ways to draw one law."""

import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest
import scipy.linalg
from randomgen import ChaCha
from scipy import stats

from gaussmix.mechanism.sampling import (
    SEEDED,
    describe,
    explicit_sketch,
    factor,
    generator,
    secure_generator,
    sketch_rows,
    wishart_factor,
)
from gaussmix.models.certificate import SECURE
from gaussmix.models.sketch import rows_from_factor

FALSE_ALARM = 1e-6  # chance that a correct sampler fails one case
SIGMA = 1.5

# Generators


def test_chacha_is_chacha20():
    """Zero key, zero nonce: test vector 1 of RFC 8439, appendix A.1 (first half of the block)."""
    known = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    words = ChaCha(key=0, rounds=20).random_raw(4)
    assert words.astype("<u8").tobytes().hex() == known


def test_secure_generators_share_no_stream():
    draws = {secure_generator().bytes(16) for _ in range(100)}
    assert len(draws) == 100
    assert "ChaCha" in type(secure_generator().bit_generator).__name__
    state = secure_generator().bit_generator.state
    assert state["state"]["rounds"] == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_its_parents_stream():
    rng = secure_generator()
    rng.standard_normal(3)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, rng.bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != rng.bytes(16)
    os.close(reader)
    os.close(writer)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_of_a_pool_do_not_repeat_each_other():
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with context.Pool(2) as pool:
        draws = pool.map(draw_bytes, range(8), chunksize=1)
    assert len(set(draws)) == 8


def draw_bytes(_):
    return secure_generator().bytes(16)


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secure_generator_is_never_copied(copier):
    rng = secure_generator()
    for secret in (rng, rng.bit_generator):
        with pytest.raises(TypeError, match="never pickled"):
            copier(secret)
    with pytest.raises(TypeError, match="never pickled"):
        rng.spawn(1)


def test_the_description_says_what_is_private():
    for secure in (generator(None), generator(), generator(secure_generator())):
        assert describe(secure) == SECURE == "chacha20-os"
    for seeded in (0, np.int64(7), np.random.default_rng(1)):
        assert describe(generator(seeded)) == SEEDED == "seeded (not private)"
    assert generator(5).random() == generator(5).random()
    for bad in (-1, 1.5, "0", True, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="random_state must be None"):
            generator(bad)


# Laws


def table(m, n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, m)) @ np.diag(rng.uniform(0.1, 2, m))


def bartlett(A, k, rng):
    return wishart_factor(factor(A.T @ A, SIGMA**2), k, rng)


def from_rows(A, k, rng):
    return triangular(sketch_rows(factor(A.T @ A, SIGMA**2), k, rng))


def explicit(A, k, rng):
    return triangular(explicit_sketch([A[:7], A[7:8], A[8:]], k, SIGMA, rng))


def rotated(A, k, rng):
    return triangular(rows_from_factor(bartlett(A, k, rng), k, rng))


def triangular(M):
    R = np.linalg.qr(M, mode="r")
    return R * np.where(np.diagonal(R) < 0, -1, 1)[:, np.newaxis]


def whitened(R, A):
    """R L⁻ᵀ with L the Cholesky factor of AᵀA + σ²I: the factor of k standard normal rows."""
    L = np.linalg.cholesky(A.T @ A + SIGMA**2 * np.eye(A.shape[1]))
    return scipy.linalg.solve_triangular(L, R.T, lower=True).T


def uniforms(B, k):
    """Entries of a whitened factor, each put through its distribution function.

    By Bartlett they are independent: squares on the diagonal chi-square with k - i degrees of freedom,
    standard normals above.
    """
    diagonal = stats.chi2.cdf(np.diagonal(B) ** 2, k - np.arange(len(B)))
    return np.concatenate([diagonal, stats.norm.cdf(B[np.triu_indices(len(B), 1, B.shape[1])])])


def chi2_pvalue(q, k):
    return 2 * min(stats.chi2.cdf(q, k), stats.chi2.sf(q, k))


@pytest.mark.parametrize(("m", "k"), [(1, 1), (1, 30), (4, 4), (4, 50), (6, 3), (5, 1)])
@pytest.mark.parametrize("way", [bartlett, from_rows, explicit, rotated])
def test_all_ways_have_one_law(way, m, k):
    rng = np.random.default_rng([m, k])
    A, repetitions = table(m), 3000
    factors = np.array([way(A, k, rng) for _ in range(repetitions)])
    assert factors.shape == (repetitions, min(k, m), m)
    assert np.array_equal(factors, np.triu(factors))
    factors = np.array([whitened(R, A) for R in factors])
    entries = np.array([uniforms(B, k) for B in factors])
    assert min(stats.kstest(entry, "uniform").pvalue for entry in entries.T) > FALSE_ALARM
    assert stats.kstest(entries.ravel(), "uniform").pvalue > FALSE_ALARM
    q = np.sum(factors**2)  # chi-square, km degrees of freedom a draw
    assert chi2_pvalue(q, repetitions * k * m) > FALSE_ALARM
    assert chi2_pvalue(q * 1.1**2, repetitions * k * m) < FALSE_ALARM  # a 10% error in the scale would be seen
    assert chi2_pvalue(q / 1.1**2, repetitions * k * m) < FALSE_ALARM


def test_degrees_of_freedom_off_by_one_would_be_seen():
    rng = np.random.default_rng(3)
    A, k = table(3), 6
    entries = np.array([uniforms(whitened(bartlett(A, k + 1, rng), A), k) for _ in range(3000)])
    assert min(stats.kstest(entry, "uniform").pvalue for entry in entries.T) < FALSE_ALARM


@pytest.mark.parametrize("way", [bartlett, from_rows, explicit, rotated])
def test_entries_of_the_factor_are_uncorrelated(way):
    A, k, repetitions = table(3), 9, 4000
    rng = np.random.default_rng(5)
    scores = stats.norm.ppf([uniforms(whitened(way(A, k, rng), A), k) for _ in range(repetitions)])
    correlations = np.corrcoef(scores.T)[np.triu_indices(6, 1)] * np.sqrt(repetitions)
    assert 2 * stats.norm.sf(np.abs(correlations).max()) * len(correlations) > FALSE_ALARM
    assert 2 * stats.norm.sf(0.1 * np.sqrt(repetitions)) * len(correlations) < FALSE_ALARM  # 0.1 would be seen


@pytest.mark.parametrize(("k", "m"), [(3, 3), (5, 2), (40, 3), (6, 1)])
def test_the_rotation_is_uniform(k, m):
    """uᵀQv is (2·Beta - 1), both parameters (k - 1)/2, for all unit vectors u, v."""
    rng = np.random.default_rng(k)
    rotations = np.array([rows_from_factor(np.eye(m), k, rng) for _ in range(4000)])
    assert np.allclose(np.einsum("rki,rkj->rij", rotations, rotations), np.eye(m), atol=1e-12)
    beta = stats.beta((k - 1) / 2, (k - 1) / 2)
    directions = [(np.eye(k)[0], np.eye(m)[0]), (np.eye(k)[0], np.eye(m)[-1]), (np.eye(k)[-1], np.eye(m)[0])]
    directions += [(np.ones(k) / np.sqrt(k), np.ones(m) / np.sqrt(m))]
    for u, v in directions:
        assert stats.kstest((u @ rotations @ v + 1) / 2, beta.cdf).pvalue > FALSE_ALARM
    unsigned = [np.linalg.qr(rng.standard_normal((k, m)))[0][0, 0] for _ in range(4000)]
    assert stats.kstest((np.array(unsigned) + 1) / 2, beta.cdf).pvalue < FALSE_ALARM  # QR alone would be seen


def test_rows_keep_their_factor():
    rng = np.random.default_rng(0)
    R = wishart_factor(factor(np.eye(4), 1.0), 20, rng)
    assert triangular(rows_from_factor(R, 20, rng)) == pytest.approx(R, rel=1e-10, abs=1e-12)
    with pytest.raises(ValueError, match="at least 4, got 3"):
        rows_from_factor(R, 3, rng)


def test_the_explicit_sketch_does_not_depend_on_blocks():
    A = table(3, n=3000)
    whole = explicit_sketch([A], 4, 0.5, np.random.default_rng(1))
    blocks = explicit_sketch(np.array_split(A, 7), 4, 0.5, np.random.default_rng(1))
    assert blocks == pytest.approx(whole, rel=1e-10, abs=1e-12)
    assert explicit_sketch([A[:0]], 4, 0.0, np.random.default_rng(1)) == pytest.approx(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="no blocks"):
        explicit_sketch([], 4, 0.5, np.random.default_rng(1))


# Factors


@pytest.mark.parametrize("sigma2", [0.0, 1e-3, 0.999, 1.0, 50.0])
@pytest.mark.parametrize("rank", [0, 1, 3, 6])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_factor_never_fails(sigma2, rank, size):
    rng = np.random.default_rng(rank)
    A = rng.standard_normal((rank, 6))
    gram = size * A.T @ A
    L = factor(gram, sigma2)
    assert np.array_equal(L, np.tril(L))
    assert np.all(np.diagonal(L) >= 0)
    exact = gram + sigma2 * np.eye(6)
    assert np.abs(L @ L.T - exact).max() <= 1e-13 * max(np.abs(exact).max(), 1e-300)
    assert np.isfinite(wishart_factor(L, 10, rng)).all()


def test_both_factors_agree():
    A = table(5)
    assert factor(A.T @ A + np.eye(5) * 0.5, 0.5) == pytest.approx(factor(A.T @ A, 1.0), rel=1e-12, abs=1e-13)


def test_the_state_of_a_secure_generator_cannot_be_set():
    rng = secure_generator()
    with pytest.raises(TypeError, match="cannot be set"):
        rng.bit_generator.state = rng.bit_generator.state
