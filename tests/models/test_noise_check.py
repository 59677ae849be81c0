"""Passes that agree better than their noise allows are refused, and no honest release is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import Transform
from gaussmix.mechanism import passes as mechanism
from gaussmix.releases.file import as_bytes
from gaussmix.releases.preconditioning import Metric, PassRequest, as_released, goe
from gaussmix.releases.transcript import FALSE_ALARM_RATE, PassOutput, Transcript, _statistics
from gaussmix.report.verify import verify

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def private():
    return gm.release(patients(2000), schema=SCHEMA, **BUDGET)


def drawn(rng, m, *, number=4, gram=None, noise=1.0, shift=0.0):
    """Passes over a table of a given Gram matrix, with so much of the noise that they say they have."""
    schema = Schema.of({f"x{i}": [0, 1] for i in range(m)}, intercept=0.0)
    gram = np.zeros((m, m)) if gram is None else gram
    outputs = []
    for p in range(number):
        mu, request, matrix = 0.2 + 0.1 * p, None, gram
        if p:
            rotation = np.linalg.qr(rng.standard_normal((m, m)))[0]
            transform = Transform.nearest(rng.uniform(0.5, 2, (m, 1)) * rotation)
            E, clip, rate = transform.matrix, 3.0, 0.5
            request = PassRequest(Metric(1.0, transform, 1.0, 1.0), clip, mu * rate, 100.0, 1.0, 0.0)
            matrix = rate * E @ gram @ E.T / clip + shift * goe(m, rng)
        matrix = matrix + noise * goe(m, rng) / (np.sqrt(2) * mu)
        outputs.append(PassOutput((matrix + matrix.T) / 2, mu, request, 1.0 if p == 0 else 0.5))
    return Transcript(tuple(outputs), schema)


# ---------------------------------------------------------------------------------------------------------------
# The p-value
def levels(rng, m, noise):
    """Where the statistics of passes of an empty table lie in their distributions: uniform, if the noise is right."""
    found = drawn(rng, m, noise=noise)
    pairs = zip(found.passes[1:], [state.pool for state in found._states[:-1]], strict=True)
    each = [_statistics(output, output.request, before) for output, before in pairs]
    return [stats.chi2.cdf(statistic, freedom) for both in each for statistic, freedom in both if freedom]


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 3, 8])
def test_the_statistics_have_the_distribution_they_say(m):
    """Passes that nothing but noise is in. False alarms of the test: 1e-6."""
    rng = np.random.default_rng(m)
    found = np.concatenate([rng.choice(levels(rng, m, 1.0), 1) for _ in range(500)])  # one each: independent
    assert stats.kstest(found, "uniform").pvalue > 1e-6
    less = np.concatenate([rng.choice(levels(rng, m, 0.7), 1) for _ in range(500)])
    assert stats.kstest(less, "uniform").pvalue < 1e-6  # the test has power


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("m", [2, 6])
def test_small_p_values_are_no_more_frequent_than_they_say(m, shift):
    """Several passes, rows, and differences of any size between passes. False alarms of the test: 1e-6 a level."""
    rng = np.random.default_rng(m)
    rows = rng.standard_normal((50, m))
    found = np.array([drawn(rng, m, gram=rows.T @ rows, shift=shift).noise_p_value for _ in range(1000)])
    for level in (0.001, 0.01, 0.1):
        assert np.sum(found <= level) <= stats.binom.isf(1e-6, len(found), level)


def test_what_cannot_be_compared_is_not_refuted():
    rng = np.random.default_rng(0)
    assert drawn(rng, 5, number=1).noise_p_value == 1.0
    assert drawn(rng, 1, noise=0.0).noise_p_value == 1.0  # one number a pass, and a free factor
    absurd = drawn(rng, 3)
    passes = tuple(replace(output, matrix=output.matrix * 1e200) for output in absurd.passes)
    assert not replace(absurd, passes=passes).noise_p_value < FALSE_ALARM_RATE


def test_scales_of_passes_do_not_matter():
    """A pass of a sample, or of clipped rows, is a multiple of what earlier passes predict."""
    rng = np.random.default_rng(0)
    found = drawn(rng, 6)
    first, *later = found.passes
    other = replace(found, passes=(replace(first, matrix=7 * first.matrix), *later))
    assert other.noise_p_value == pytest.approx(found.noise_p_value)


# ---------------------------------------------------------------------------------------------------------------
# Honest releases
def honest(seed):
    """A table, a schema and options of any kind."""
    rng = np.random.default_rng(seed)
    n, k = int(10 ** rng.uniform(0.5, 4)), int(rng.integers(1, 9))
    X = rng.standard_normal((n, k)) if seed % 2 else rng.standard_t(2, (n, k))
    data, schema = {f"x{i}": X[:, i] * (seed % 5) / 2 for i in range(k)}, {f"x{i}": [-5.0, 5.0] for i in range(k)}
    options = {"passes": 2 + seed % 3, "topcode": None if seed % 4 else "auto", "random_state": seed}
    kind, neighbours = seed % 6, None
    if kind == 1:
        data["who"] = rng.integers(0, n // 3 + 1, n)
        options |= {"privacy_unit": gm.PrivacyUnit("who", 3, "sample" if seed % 4 == 1 else "scale")}
    if kind == 2:
        neighbours = "replace-one"
    if kind == 3:
        data["w"], schema["w"] = rng.uniform(0, 1, n), [0, 1]
        options |= {"weight": "w"}
    if kind == 4:
        data["g"], schema["g"] = rng.choice(["a", "b"], n, p=[0.99, 0.01]), ["a", "b"]
    if kind == 5:
        schema = gm.Schema.of(schema, intercept=0.0)
    budget = gm.Budget(float(10 ** rng.uniform(-1, 1.5)), 1e-6, neighbours=neighbours)
    return data, {"schema": schema, "budget": budget, **options}


def test_honest_releases_are_far_from_being_refused():
    """Fixed seeds: the least of 120 p-values is below 1e-5 with a probability of about a thousandth."""
    found = [gm.release(data, **options).statistic.noise_p_value for data, options in map(honest, range(120))]
    assert min(found) > 1e-5


@pytest.mark.parametrize("options", [{}, {"privacy_unit": gm.PrivacyUnit("who", 2)}])
def test_passes_over_samples_are_not_refused(options):
    rng = np.random.default_rng(0)
    n = 450_000
    data = {"x": rng.normal(0, 1, n), "y": rng.normal(0, 1, n), "who": np.arange(n)}
    schema = {"x": [-5, 5], "y": [-5, 5]}
    private = gm.release(data, schema=schema, epsilon=8.0, delta=1e-6, random_state=0, **options)
    assert any(output.rate < 1 for output in private.statistic.passes)
    assert private.statistic.noise_p_value > 1e-5


def test_a_ledgers_release_is_not_refused(tmp_path):
    ledger = gm.Ledger(tmp_path / "x.ledger", **BUDGET, releases=2)
    found = gm.release(patients(500), schema=SCHEMA, budget=gm.Budget(ledger=ledger))
    assert found.statistic.noise_p_value > 1e-9


# ---------------------------------------------------------------------------------------------------------------
# Forgeries
def without_noise(private, gram):
    """Passes of one exact Gram matrix, as large as those of a release."""
    passes = []
    for output in private.statistic.passes:
        matrix = gram
        if output.request is not None:
            E = output.request.metric.transform.matrix
            matrix = E @ gram @ E.T * output.rate / output.request.clip
        passes.append(replace(output, matrix=(matrix + matrix.T) / 2))
    return replace(private.statistic, passes=tuple(passes))


def repeated(private, noise):
    """The second pass again and again, with a part of the noise that is claimed."""
    rng = np.random.default_rng(0)
    first, second, *later = private.statistic.passes
    gram = as_released(second.request, second.matrix).matrix
    passes = [first, second]
    for output in later:
        E = output.request.metric.transform.matrix
        matrix = E @ gram @ E.T / output.request.clip + noise * goe(len(E), rng) / (np.sqrt(2) * output.mu)
        passes.append(replace(output, matrix=(matrix + matrix.T) / 2))
    return replace(private.statistic, passes=tuple(passes))


def refused(statistic, certificate, path):
    """Whether a forged release is refused in memory, and as a file whose every part and checksum fit."""
    with pytest.raises(gm.NotPrivateError, match="less noise than the certificate states"):
        gm.Release(statistic, certificate)
    path.write_bytes(as_bytes(statistic, certificate))
    with pytest.raises(gm.NotPrivateError, match="less noise than the certificate states"):
        gm.load(path)
    return verify(path).state == "false"


def test_passes_without_noise_are_refused(private, tmp_path):
    true = rows_of(patients(2000), gm.Schema.of(SCHEMA)).gram().floats()
    rows = np.random.default_rng(0).uniform(-0.3, 0.3, (5000, len(true)))
    for gram in (true, rows.T @ rows, np.eye(len(true))):
        statistic = without_noise(private, gram)
        assert statistic.noise_p_value < 1e-100
        assert refused(statistic, private.certificate, tmp_path / "x.release.parquet")


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_one_pass_repeated_is_refused(private, tmp_path, noise):
    assert refused(repeated(private, noise), private.certificate, tmp_path / "x.release.parquet")


def test_one_pass_repeated_with_all_of_the_noise_is_not_refused(private):
    """That is invented data with noise of the right size, which only a signature can tell from a release."""
    gm.Release(repeated(private, 1.0), private.certificate)


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.2])
def test_a_mechanism_with_too_little_noise_is_refused(monkeypatch, factor):
    """On real rows, clipped, with samples and all: the release cannot even be made."""
    drawn = mechanism.symmetric_noise

    def less(*arguments, **options):
        return np.rint(drawn(*arguments, **options) * factor).astype(np.int64)

    monkeypatch.setattr(mechanism, "symmetric_noise", less)
    with pytest.raises(gm.NotPrivateError, match="less noise than the certificate states"):
        gm.release(patients(20_000), schema=SCHEMA, **BUDGET, random_state=0)
