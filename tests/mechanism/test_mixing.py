"""Gaussian mixing: laws with power, the public grid, and nothing of the rows beside the release."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gaussmix import Moments, Numeric, Schema, Vector, accounting, calibrate
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.mechanism.grid import public_grid
from gaussmix.mechanism.mixing import draw_release
from gaussmix.tables.encoder import encode_arrays

FALSE_ALARM = 1e-6  # chance that a correct mechanism fails one comparison
SCHEMA = Schema({"X": Vector(2, norm=2.0), "y": Numeric(-1, 1, weight=0.5)}, intercept=0.0)


def two_sided(value: float, law) -> float:
    return 2 * min(law.cdf(value), law.sf(value))


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.clip(X @ [0.5, -0.2] + rng.uniform(-0.1, 0.1, n), -1, 1)


def moments_of(X, y):
    return Moments.of_arrays([(X, y)], SCHEMA)


def encoded_gram(X, y):
    rows = encode_arrays(SCHEMA, X, y) * SCHEMA.row_norm
    return rows.T @ rows


@pytest.mark.parametrize("seed", range(4))
def test_release_has_covariance_gram_plus_noise_in_encoded_units(seed):
    X, y = table()
    calibration = calibrate(1.0, 1e-6, sketch_size=4000)
    release = draw_release(moments_of(X, y), calibration, np.random.default_rng(seed))
    assert release.sketch.noise_variance == pytest.approx(calibration.gamma * SCHEMA.row_norm**2)
    u = np.random.default_rng(seed + 100).standard_normal(3)
    variance = u @ encoded_gram(X, y) @ u + release.sketch.noise_variance * u @ u
    energy = np.sum((release.sketch.factor @ u) ** 2) / variance  # chi-square, k degrees of freedom
    assert two_sided(energy, stats.chi2(4000)) > FALSE_ALARM
    assert two_sided(energy * 1.1**2, stats.chi2(4000)) < FALSE_ALARM  # 10 % in the scale would be seen
    rows = release.sketch.rows(seed)
    assert rows.T @ rows == pytest.approx(release.sketch.factor.T @ release.sketch.factor, rel=1e-9)


def test_everything_that_leaves_lies_on_the_public_grid():
    X, y = table()
    moments = moments_of(X, y)
    rng = np.random.default_rng(0)
    error = eigenvalue_error_bound(3)
    for calibration in (
        calibrate(1.0, 1e-6, sketch_size=50),
        calibrate(5.0, 1e-3, sketch_size=50, scale="private", eigenvalue_error=error),
        calibrate(5.0, 1e-3, sketch_size=50, scale="private", analysis="paper", eigenvalue_error=error),
    ):
        release = draw_release(moments, calibration, rng)
        grid = public_grid(SCHEMA.row_norm * math.sqrt(calibration.gamma))
        assert np.all(release.sketch.factor / grid == np.round(release.sketch.factor / grid))
        if release.certificate.eigenvalue_bound is not None:
            steps = release.certificate.eigenvalue_bound / public_grid(math.sqrt(calibration.gamma))
            assert steps == round(steps)


def possible(output: float, scale: float) -> bool:
    """Whether some double z near output / scale gives fl(z · scale) = output."""
    z = output / scale
    for _ in range(4):
        z = np.nextafter(z, -np.inf)
    for _ in range(9):
        if z * scale == output:
            return True
        z = np.nextafter(z, np.inf)
    return False


def test_unrounded_outputs_would_tell_neighbours_apart_and_rounded_ones_do_not():
    """m = 1: z·L in doubles. Some products have no preimage under the neighbouring table's L; grid points always do."""
    rng = np.random.default_rng(0)
    gamma = 3.7
    scales = [math.sqrt(1.0 + gamma), math.sqrt(gamma)]  # with and without one row
    outputs = rng.standard_normal(4000) * scales[0]
    impossible = sum(not possible(x, scales[1]) for x in outputs)
    assert impossible > 20  # each of them betrays the row
    grid = public_grid(math.sqrt(gamma))
    cells = np.round(outputs / grid)
    for cell in cells[:500]:  # each cell of the grid has preimages under both
        for scale in scales:
            low, high = (cell - 0.5) * grid / scale, (cell + 0.5) * grid / scale
            assert high > low
            assert np.round((low + high) / 2 * scale / grid) == cell


@pytest.mark.parametrize("seed", range(3))
def test_private_eigenvalue_has_its_law_and_sets_the_noise(seed):
    rows = np.repeat(np.array([[2.0, 0.0], [0.0, 2.0]]), 4000, axis=0)
    y = np.tile([1.0, -1.0], 4000)
    moments = moments_of(rows, y)
    error = eigenvalue_error_bound(3, n_max=8000)
    calibration = calibrate(1.0, 1e-4, sketch_size=60, scale="private", eigenvalue_error=error)
    lambda_min = np.linalg.eigvalsh(moments.gram())[0]
    assert lambda_min > 3 * calibration.gamma  # so that noise disappears
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(4000):
        release = draw_release(moments, calibration, rng, n_rows=8000)
        draws.append(release.certificate.eigenvalue_bound)
        assert release.sketch.noise_variance == 0.0
    z = (np.array(draws) - lambda_min) / calibration.eta + calibration.tau
    assert stats.kstest(z, "norm").pvalue > FALSE_ALARM
    energy = np.sum((z - z.mean()) ** 2)
    assert two_sided(energy, stats.chi2(3999)) > FALSE_ALARM
    assert two_sided(energy * 1.1**2, stats.chi2(3999)) < FALSE_ALARM  # 10 % in the scale would be seen


def test_noise_is_full_where_the_smallest_eigenvalue_is_zero():
    X, y = table()
    y = X @ [0.5, -0.2]  # exactly collinear
    error = eigenvalue_error_bound(3, n_max=300)
    for analysis in ("exact", "paper"):
        calibration = calibrate(1.0, 1e-6, sketch_size=60, scale="private", analysis=analysis, eigenvalue_error=error)
        rng = np.random.default_rng(0)
        variances = [
            draw_release(moments_of(X, y), calibration, rng, n_rows=300).sketch.noise_variance for _ in range(50)
        ]
        full = calibration.gamma * SCHEMA.row_norm**2
        assert max(variances) == pytest.approx(full)
        if analysis == "paper":  # τ is large: λ̃ > 0 happens with probability δ/3
            assert min(variances) == pytest.approx(full)


def test_units_of_algorithm_1_are_corrected():
    """σ² + λ_min C⁰ ≥ γC² whatever C is: the printed rule subtracts C²λ̃ and is not private for C > 1."""
    schema = Schema({"X": Vector(1, lower=-1, upper=1), "y": Numeric(-1, 1, weight=3.0)}, intercept=0.0)  # C² = 10
    X = np.repeat([[1.0], [-1.0], [0.0], [0.0]], 60, axis=0)
    y = np.repeat([0.0, 0.0, 1.0, -1.0], 60)
    moments = Moments.of_arrays([(X, y)], schema)
    error = eigenvalue_error_bound(2, n_max=240)
    calibration = calibrate(3.0, 1e-3, sketch_size=20, scale="private", analysis="paper", eigenvalue_error=error)
    lambda_min = np.linalg.eigvalsh(moments.gram())[0] * schema.row_norm**2
    rng = np.random.default_rng(1)
    for _ in range(300):
        release = draw_release(moments, calibration, rng, n_rows=240)
        assert lambda_min + release.sketch.noise_variance >= calibration.gamma * schema.row_norm**2 * (1 - 1e-9)


def test_a_calibration_that_ignores_rounding_of_the_eigenvalue_is_refused():
    calibration = calibrate(1.0, 1e-6, sketch_size=60, scale="private")
    with pytest.raises(ValueError, match=r"calibrate\(\.\.\., eigenvalue_error="):
        draw_release(moments_of(*table()), calibration, np.random.default_rng(0))


def test_sketches_with_fewer_rows_than_columns_are_refused():
    with pytest.raises(ValueError, match="at least the number of encoded columns, 3, got 2"):
        draw_release(moments_of(*table()), calibrate(1.0, 1e-6, sketch_size=2), np.random.default_rng(0))


def test_end_to_end_law_matches_the_certificate_by_simulation():
    """Releases of two neighbouring tables, their loss computed from the factor: δ as accounted, with power."""
    X, y = np.array([[2.0, 0.0]]), np.array([1.0])
    X_zero, y_zero = np.array([[0.0, 0.0]]), np.array([0.0])
    calibration = calibrate(1.0, 0.02, sketch_size=6)
    rng = np.random.default_rng(0)
    draws = 30_000
    with_row, without = moments_of(X, y), moments_of(X_zero, y_zero)
    covariance = [m.gram() + calibration.gamma * np.eye(3) for m in (with_row, without)]
    inverse = [np.linalg.inv(c) for c in covariance]
    log_det = [np.linalg.slogdet(c)[1] for c in covariance]
    losses = np.empty(draws)
    for i in range(draws):
        R = draw_release(with_row, calibration, rng).sketch.factor / SCHEMA.row_norm
        W = R.T @ R
        losses[i] = 0.5 * (np.sum((inverse[1] - inverse[0]) * W) + 6 * (log_det[1] - log_det[0]))
    hits = np.maximum(-np.expm1(1.0 - losses), 0)
    error = hits.std() / math.sqrt(draws)
    assert abs(hits.mean() - 0.02) < 5.5 * error
    assert abs(hits.mean() - accounting.delta(1.0, sketch_size=6, gamma=1.25 * calibration.gamma)) > 5.5 * error
