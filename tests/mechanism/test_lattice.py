"""Noise on the lattice: its law, with power, and exact arithmetic around it.

The exact sampler takes no seed: its statistical tests fail by chance with the stated rate, 1e-7 a case.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.accounting.discrete import diagonal_sigma, off_diagonal_sigma
from gaussmix.errors import MissingPackageError
from gaussmix.mechanism import noise
from gaussmix.mechanism.noise import (
    add_noise,
    discrete_gaussian,
    exact_integers,
    secure_generator,
    symmetric_noise,
    to_floats,
)

FALSE_ALARM = 1e-7  # chance that a correct sampler fails one case
DRAWS = 10_000
SOURCES = {"exact": lambda: None, "secure": secure_generator, "seeded": lambda: np.random.default_rng(5)}


def two_sided(q: float, degrees: int) -> float:
    return 2 * min(stats.chi2.cdf(q, degrees), stats.chi2.sf(q, degrees))


def law(sigma: float, reach: int) -> np.ndarray:
    """Discrete Gaussian on -reach … reach, both tails in the last cells."""
    z = np.arange(-reach - 50, reach + 51)
    weights = np.exp(-(z**2) / (2 * sigma**2))
    weights /= weights.sum()
    return np.concatenate([[weights[:51].sum()], weights[51:-51], [weights[-51:].sum()]])


def pearson(draws: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value of draws in -reach … reach, tails in the last cells."""
    reach = len(probabilities) // 2
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(probabilities))
    return float(stats.chisquare(counts, probabilities * len(draws)).pvalue)


# ---------------------------------------------------------------------------------------------------------------
# The law
@pytest.mark.parametrize("sigma", [0.74, 1.0, 2.5])
def test_small_scales_have_the_discrete_gaussian_law(sigma):
    """Cell by cell; the seeded sampler differs by 0.021/σ², too little to be seen here, and is left out."""
    reach = int(3 * sigma)
    draws = discrete_gaussian(DRAWS, sigma=sigma, rng=None)
    assert pearson(draws, law(sigma, reach)) > FALSE_ALARM
    for wrong in (1.1 * sigma, sigma / 1.1):
        assert pearson(draws, law(wrong, reach)) < FALSE_ALARM  # a 10 % error in σ would be seen


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sigma", [1e3, 2.0**40 / 0.07, 2.0**56])
def test_large_scales_have_the_right_variance_and_no_bias(sigma, source):
    draws = discrete_gaussian(DRAWS, sigma=sigma, rng=SOURCES[source]()).astype(float) / sigma
    q = float(np.sum(draws**2))  # chi-square up to 1/σ²
    assert two_sided(q, DRAWS) > FALSE_ALARM
    assert two_sided(q * 1.1**2, DRAWS) < FALSE_ALARM
    assert two_sided(q / 1.1**2, DRAWS) < FALSE_ALARM
    assert 2 * stats.norm.sf(abs(draws.sum()) / np.sqrt(DRAWS)) > FALSE_ALARM
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_matrices_are_symmetric_with_twice_the_variance_on_the_diagonal(source):
    mu, bits, m, repeats = 0.3, 40, 30, 60
    on, off = diagonal_sigma(mu, bits), off_diagonal_sigma(mu, bits)
    rng = SOURCES[source]()
    draws = [symmetric_noise(m, diagonal=on, off_diagonal=off, rng=rng) for _ in range(repeats)]
    assert all((N == N.T).all() for N in draws)
    N = np.array(draws, dtype=float) * mu / 2.0**bits
    diagonal = np.diagonal(N, axis1=1, axis2=2).ravel()
    above = N[:, *np.triu_indices(m, 1)].ravel()
    ratio = np.mean(diagonal**2) / np.mean(above**2)
    f = stats.f(len(diagonal), len(above))
    assert 2 * min(f.cdf(ratio / 2), f.sf(ratio / 2)) > FALSE_ALARM
    assert f.cdf(ratio / 2 / 1.1**4) < FALSE_ALARM  # 10 % less on the diagonal and 10 % more above it would be seen
    assert two_sided(2 * np.sum(above**2), len(above)) > FALSE_ALARM
    assert two_sided(2 * 1.05**2 * np.sum(above**2), len(above)) < FALSE_ALARM


def test_entries_are_independent():
    """Correlation of neighbouring draws, of the two triangles' rows, and of chunks."""
    draws = discrete_gaussian(3 * DRAWS, sigma=1e9, rng=None) / 1e9
    for lag in (1, 2, 4096):
        z = np.sum(draws[:-lag] * draws[lag:]) / np.sqrt(len(draws) - lag)
        assert 2 * stats.norm.sf(abs(z)) > FALSE_ALARM


# ---------------------------------------------------------------------------------------------------------------
# Sources of randomness
def test_exact_noise_does_not_repeat_and_seeded_noise_does():
    kw = {"sigma": 2.0**45}
    assert (discrete_gaussian(50, rng=None, **kw) != discrete_gaussian(50, rng=None, **kw)).all()
    first, second = (discrete_gaussian(50, rng=np.random.default_rng(3), **kw) for _ in range(2))
    assert (first == second).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_its_parents_noise():
    discrete_gaussian(5, sigma=2.0**50, rng=None)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, discrete_gaussian(8, sigma=2.0**50, rng=None).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 64) != discrete_gaussian(8, sigma=2.0**50, rng=None).tobytes()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("sigma", [0.739, 2.0**57, float("inf")])
def test_scales_outside_the_proof_are_refused(sigma):
    with pytest.raises(ValueError, match="sigma must lie in"):
        discrete_gaussian(1, sigma=sigma, rng=None)


def test_progress_ends_at_the_number_of_draws():
    seen = []
    symmetric_noise(101, diagonal=10.0, off_diagonal=8.0, rng=None, progress=seen.append)
    assert sum(seen) == 101 * 102 // 2
    assert len(seen) > 1


# ---------------------------------------------------------------------------------------------------------------
# Exact arithmetic
def test_limbs_and_noise_add_up_exactly():
    rng = np.random.default_rng(0)
    high = rng.integers(-(2**62), 2**62, (4, 4))
    low = rng.integers(0, 2**40, (4, 4))
    noise = rng.integers(-(2**62), 2**62, (4, 4))
    total = add_noise(exact_integers(high, low, refinement=7), noise)
    for i in range(4):
        for j in range(4):
            assert total[i, j] == (int(high[i, j]) * 2**40 + int(low[i, j])) * 2**7 + int(noise[i, j])


def test_floats_are_rounded_once():
    integers = np.array([[2**53 + 1, -(2**60) - 129], [3, 2**100 + 1]], dtype=object)
    expected = [[float(2**53), -(2.0**60) - 256], [3.0, 2.0**100]]
    assert (to_floats(integers, 40) == np.array(expected) / 2.0**40).all()


def test_shapes_and_coarse_lattices_are_refused():
    with pytest.raises(ValueError, match="shape"):
        add_noise(np.zeros((2, 2), dtype=np.int64), np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match="round the rows, not their sums"):
        exact_integers(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), refinement=-2)


def test_a_small_matrix_is_quick():
    """A guard against a sampler a hundred times slower; benchmarks measure the speed itself."""
    start = time.perf_counter()
    symmetric_noise(60, diagonal=2.0**42, off_diagonal=2.0**42, rng=None)
    assert time.perf_counter() - start < 4.0


@pytest.mark.parametrize("version", ["0.12.0", "0.14.1", "0.9"])
def test_samplers_of_another_law_are_refused(monkeypatch, version):
    noise._opendp_mechanism.cache_clear()
    monkeypatch.setattr(noise.metadata, "version", lambda _: version)
    with pytest.raises(gm.MissingPackageError, match=r"opendp>=0\.15"):
        discrete_gaussian(3, sigma=5.0, rng=None)


class _Unloadable:
    """As OpenDP fails where its library cannot be mapped into memory: with a plain Exception."""

    def find_spec(self, name, path=None, target=None):
        if name == "opendp.measurements":
            raise Exception("Unable to load OpenDP shared library")  # noqa: TRY002 - as it does


def test_opendp_that_cannot_be_loaded_is_an_error_in_our_words(monkeypatch):
    monkeypatch.delitem(sys.modules, "opendp.measurements")
    monkeypatch.setattr(sys, "meta_path", [_Unloadable(), *sys.meta_path])
    spec = importlib.util.find_spec("gaussmix.mechanism.noise")
    with pytest.raises(MissingPackageError, match="Give the process more memory"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
