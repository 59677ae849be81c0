"""Pooling and cleaning: right weights, a law that matches the simulation, and no failure in any metric."""

from __future__ import annotations

import numpy as np
import pytest

from gaussmix.releases.preconditioning import NoisyGram, Pool, clean, goe


def metric(m: int, rng: np.random.Generator, spread: float) -> np.ndarray:
    Q = np.linalg.qr(rng.standard_normal((m, m)))[0]
    return Q * np.geomspace(1, spread, m)[:, None]


def draw(G: np.ndarray, transform: np.ndarray, scale: float, rng: np.random.Generator) -> NoisyGram:
    """G + B·GOE·Bᵀ with B = √scale·E⁻¹: isotropic noise in the metric of a transform E."""
    B = np.sqrt(scale) * np.linalg.inv(transform)
    return NoisyGram(G + B @ goe(len(G), rng) @ B.T, B, transform / np.sqrt(scale))


def test_goe_has_its_law():
    rng, m, repeats = np.random.default_rng(0), 4, 20_000
    draws = np.array([goe(m, rng) for _ in range(repeats)])
    variance = draws.var(axis=0)
    assert np.allclose(variance, 1 + np.eye(m), atol=6 * 2 * np.sqrt(2 / repeats))


def test_factors_are_inverses_and_the_shape_is_that_of_the_noise():
    rng = np.random.default_rng(1)
    E = metric(5, rng, 100.0)
    release = draw(np.eye(5), E, 0.5, rng)
    assert np.allclose(release.factor @ release.inverse, np.eye(5))
    assert np.allclose(release.shape, 0.5 * np.linalg.inv(E.T @ E))
    doubled = release.times(2.0)
    assert np.allclose(doubled.shape, 2 * release.shape)
    assert np.allclose(doubled.factor @ doubled.inverse, np.eye(5))


def test_equal_releases_are_averaged_and_their_noise_falls_by_root_two():
    rng = np.random.default_rng(2)
    E, G = metric(6, rng, 30.0), np.diag(np.arange(1.0, 7.0))
    first, second = draw(G, E, 2.0, rng), draw(G, E, 2.0, rng)
    pool = Pool.of(first).add(second)
    assert np.allclose(pool.current.matrix, (first.matrix + second.matrix) / 2)
    assert np.allclose(pool.current.shape, first.shape / np.sqrt(2))


def test_a_much_better_release_takes_over():
    rng = np.random.default_rng(3)
    G = np.eye(4)
    rough = draw(G, np.eye(4), 1e3, rng)
    fine = draw(G, metric(4, rng, 3.0), 1e-3, rng)
    for pool in (Pool.of(rough).add(fine), Pool.of(fine).add(rough)):
        assert np.allclose(pool.current.matrix, fine.matrix, atol=1e-5)
        assert np.allclose(pool.current.shape, fine.shape, rtol=1e-4)


def test_pool_is_unbiased_no_worse_than_its_members_and_its_noise_is_that_of_its_draws():
    """Mean square error of quadratic forms over 2,000 pools, each within 5 standard errors (3 %) of what is claimed."""
    rng, m, repeats = np.random.default_rng(4), 5, 2_000
    B = rng.standard_normal((40, m))
    G, metrics = B.T @ B, [np.eye(m), metric(m, rng, 20.0)]
    forms = rng.standard_normal((8, m))
    values, claimed, member = np.empty((repeats, 8)), np.empty((repeats, 8)), np.empty((repeats, 2, 8))
    for i in range(repeats):
        members = [draw(G, E, s, rng) for E, s in zip(metrics, (1.0, 10.0), strict=True)]
        pool = Pool.of(members[0]).add(members[1])
        values[i] = np.einsum("ki,ij,kj->k", forms, pool.current.matrix - G, forms)
        claimed[i] = np.einsum("ki,ij,kj->k", forms, pool.noise(rng), forms)
        member[i] = [np.einsum("ki,ij,kj->k", forms, one.matrix - G, forms) for one in members]
    error = np.sqrt(np.mean(values**2, axis=0))
    assert np.all(np.abs(values.mean(axis=0)) < 5 * error / np.sqrt(repeats))
    assert np.allclose(error, np.sqrt(np.mean(claimed**2, axis=0)), rtol=5 * np.sqrt(1 / repeats))
    fitted = np.sqrt(2) * np.einsum("ki,ij,kj->k", forms, pool.current.shape, forms)
    assert np.all((error < 2 * fitted) & (error > fitted / 2))  # the fitted shape is a fit, good to a factor of 2 here
    assert np.all(error < 1.1 * np.sqrt(np.mean(member**2, axis=0)).min(axis=0))


@pytest.mark.parametrize("spread", [1.0, 1e6, 1e12, 1e15])
def test_no_metric_makes_pooling_fail(spread):
    """Where a generalised eigensolver finds an indefinite matrix: shapes whose ratio exceeds float64's digits."""
    rng = np.random.default_rng(5)
    pool = Pool.of(draw(np.eye(20), metric(20, rng, spread), 1.0, rng))
    for _ in range(4):
        pool = pool.add(draw(np.eye(20), metric(20, rng, spread), rng.uniform(1e-6, 1e6), rng))
        for array in (pool.current.matrix, pool.current.shape, pool.noise(rng)):
            assert np.isfinite(array).all()
            assert (array == array.T).all() or np.allclose(array, array.T)
        assert np.isfinite(clean(pool.current).matrix).all()


def test_cleaning_takes_noise_out_of_eigenvalues():
    """G of rank 3 in 40 dimensions: noise alone has eigenvalues up to 2√m; cleaned they are nearly zero."""
    rng, m = np.random.default_rng(6), 40
    V = np.linalg.qr(rng.standard_normal((m, 3)))[0]
    G = 200 * V @ V.T
    release = NoisyGram.isotropic(G + goe(m, rng), scale=1.0)
    found = clean(release)
    raw = np.linalg.norm(np.where(np.linalg.eigvalsh(release.matrix) > 0, np.linalg.eigvalsh(release.matrix), 0)[:-3])
    assert np.linalg.norm(found.values[:-3]) < 0.5 * raw
    assert np.allclose(found.values[-3:], 200, rtol=0.05)
    assert (np.diff(found.values) >= 0).all()
    assert (found.values >= 0).all()
    assert np.linalg.norm(found.matrix - G) < 0.8 * np.linalg.norm(release.matrix - G)


def test_cleaning_follows_the_metric():
    """Cleaning in another basis of rows gives the same matrix in that basis."""
    rng = np.random.default_rng(7)
    E = metric(8, rng, 50.0)
    release = draw(np.diag(np.arange(8.0)), E, 1.0, rng)
    A = rng.standard_normal((8, 8))
    moved = NoisyGram(A @ release.matrix @ A.T, A @ release.factor, release.inverse @ np.linalg.inv(A))
    assert np.allclose(clean(moved).matrix, A @ clean(release).matrix @ A.T)
