"""The file of a release in passes: what it holds for other tools, and what no forger can change in it."""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.releases.file import _checked, _contents
from release_files import assert_no_mutated_file_is_believed, forged, metadata_of, remade, rewritten


@pytest.fixture(scope="module")
def private() -> gm.Release:
    return gm.release(patients(5_000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.fixture
def path(private, tmp_path) -> Path:
    private.save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_round_trip(private, path):
    back = gm.load(path)
    assert back.certificate == private.certificate
    assert back.fingerprint == private.fingerprint == metadata_of(path)["sha256"]
    assert back.to_bytes() == private.to_bytes() == path.read_bytes()
    assert back.second_moment.tolist() == private.second_moment.tolist()
    assert back.predictor("cost").coef == private.predictor("cost").coef
    for a, b in zip(back.statistic.passes, private.statistic.passes, strict=True):
        assert (a.mu, a.rate, a.matrix.tolist()) == (b.mu, b.rate, b.matrix.tolist())


def test_six_lines_of_pandas(private, path):
    """G, N and least squares, as docs/release.md has them."""
    frame = pd.read_parquet(path)
    names = [name for name in frame if name != "block"]
    G = frame.loc[frame["block"] == "G", names].to_numpy()
    N = frame.loc[frame["block"] == "N", names].to_numpy()
    x, y = [names.index(name) for name in ("age", "bmi", "(intercept)")], names.index("cost")
    theta = np.linalg.solve(G[np.ix_(x, x)], G[x, y])
    assert np.array_equal(G, private.second_moment)
    assert np.array_equal(N, private.statistic.pooled.shape)
    assert theta[0] * 10 / 50 == pytest.approx(0.05, rel=0.1)  # weights of one: from [-1, 1] to years and costs


def test_a_column_called_block(tmp_path):
    table = {"block": np.linspace(0, 1, 50), "y": np.linspace(0, 1, 50)}
    private = gm.release(table, schema={"block": [0, 1], "y": [0, 1]}, epsilon=5, delta=1e-6, random_state=0)
    private.save(tmp_path / "x.parquet")
    assert "block'" in pd.read_parquet(tmp_path / "x.parquet").columns
    assert gm.load(tmp_path / "x.parquet").fingerprint == private.fingerprint


def account(m):
    return m["certificate"]["account"]


def claimed(m, **values):
    m["certificate"].update(values)
    account(m).update(values)


def cheap_histograms(m):
    """The count and the histograms, which are not published, as if they had cost next to nothing: a smaller ε fits."""
    parts = [part if number % 2 else 1e-4 for number, part in enumerate(account(m)["noise_mu"])]
    mu = math.sqrt(sum(part**2 for part in parts)) * (1 + 1e-12)
    account(m).update(noise_mu=parts, mu=mu)
    claimed(m, epsilon=2.95)


def short_histograms(m):
    """Histograms of one bin: less slack."""
    counts = [count if number % 2 else 1 for number, count in enumerate(account(m)["coordinates"])]
    account(m).update(coordinates=counts)


CLAIMS = {
    "histograms that cost nothing": cheap_histograms,
    "histograms of one bin": short_histograms,
    "epsilon": lambda m: m["certificate"].update(epsilon=2.9),
    "epsilon, both": lambda m: claimed(m, epsilon=2.9),
    "delta, both": lambda m: claimed(m, delta=9e-7),
    "relation, both": lambda m: claimed(m, neighbours="replace-one"),
    "mu of the account": lambda m: account(m).update(mu=account(m)["mu"] * 0.9),
    "slack": lambda m: account(m).update(slack=account(m)["slack"] / 2),
    "a coarser lattice": lambda m: account(m).update(bits=account(m)["bits"] - 4),
    "fewer coordinates": lambda m: account(m).update(coordinates=[1] * len(account(m)["coordinates"])),
    "noise of a pass": lambda m: m["passes"][1].update(mu=m["passes"][1]["mu"] * 0.5),
    "noise of a pass in the account": lambda m: account(m)["noise_mu"].__setitem__(1, 1e-9),
    "a pass left out of the account": lambda m: account(m).update(
        noise_mu=account(m)["noise_mu"][:-1], coordinates=account(m)["coordinates"][:-1]
    ),
    "void taken out": lambda m: m["certificate"].update(conditions=[]),
    "account of a sketch": lambda m: m["certificate"].update(account={"mechanism": "none", "analysis": "none"}),
}
MALFORMED = {
    "a pass too few": lambda m: m["passes"].pop(),
    "rate": lambda m: m["passes"][1].update(rate=2.0),
    "no rate": lambda m: m["passes"][1].pop("rate"),
    "clip": lambda m: m["passes"][1].update(clip=-1.0),
    "another clip": lambda m: m["passes"][1].update(clip=m["passes"][1]["clip"] * 2),
    "scales": lambda m: m["passes"][2].update(scales=[1.0]),
    "scales in letters": lambda m: m["passes"][2].update(scales=["a"] * len(m["passes"][2]["scales"])),
    "rows in letters": lambda m: m["passes"][2].update(rows="many"),
    "passes": lambda m: m.update(passes={}),
    "no passes": lambda m: m.update(passes=[]),
    "no counted rate": lambda m: m["passes"][1].pop("counted_rate"),
    "unknown key of a pass": lambda m: m["passes"][1].update(added=1.0),
    "unknown key of the first pass": lambda m: m["passes"][0].update(counted_rate=1.0),
    "no steps": lambda m: m.pop("steps"),
    "accounts with no releases": lambda m: account(m).update(noise_mu=[], coordinates=[]),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_forged_claim_is_refused(path, what):
    forged(path, CLAIMS[what])
    with pytest.raises((gm.NotPrivateError, gm.DamagedError), match="was edited or is damaged"):
        gm.load(path)


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_file_is_refused(path, what):
    forged(path, MALFORMED[what])
    with pytest.raises(gm.GaussmixError, match="was edited or is damaged"):
        gm.load(path)


def test_other_numbers_are_refused(path, private):
    """Also with a checksum that fits: G and N are what the passes give."""
    stored, names, blocks = _contents(path.read_bytes(), path)
    for name in blocks:
        changed = {key: block.copy() for key, block in blocks.items()}
        changed[name][0, 0] = changed[name][0, 0] * 1.5 + 1000
        with pytest.raises((ValueError, gm.GaussmixError)):
            gm.Release(*_checked(remade(copy.deepcopy(stored), changed), names, changed))
    rewritten(path, lambda m: None, frame=lambda t: t.slice(1))
    with pytest.raises(gm.DamagedError):
        gm.load(path)


def test_five_hundred_forged_metadata(path):
    """Numbers changed at random, the checksum remade: what is accepted claims no more than its noise gives."""
    original, names, blocks = _contents(path.read_bytes(), path)
    rng, accepted = random.Random(1), 0
    for _ in range(500):
        stored = copy.deepcopy(original)
        for _ in range(rng.choice([1, 1, 2, 3])):
            _change(stored, rng)
        try:
            found = gm.Release(*_checked(remade(stored, blocks), names, blocks))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
        accepted += 1
        certificate = found.certificate
        used = math.sqrt(sum(mu**2 for mu in certificate.account.noise_mu))
        assert certificate.account.mu >= used * (1 - 1e-12)
        assert gm.accounting.gaussian_delta(float(certificate.epsilon), mu=used) <= certificate.delta * (1 + 1e-9)
        drawn = [output.mu for output in found.statistic.passes]
        assert drawn == [output["mu"] for output in original["passes"]]
    assert accepted < 250


def _change(stored, rng):
    parameters, output = account(stored), rng.choice(stored["passes"])
    places = [(stored["certificate"], key) for key in ("epsilon", "delta", "neighbours", "conditions", "schema")]
    places += [(parameters, key) for key in parameters] * 2 + [(output, key) for key in output]
    for name in ("noise_mu", "coordinates"):
        if isinstance(parameters[name], list) and parameters[name]:
            places += [(parameters[name], i) for i in range(len(parameters[name]))]
    holder, key = rng.choice(places)
    old = holder[key]
    values = [0, 1, -1, 0.5, 1e300, math.inf, math.nan, None, "x", [], {}, True, 2**70]
    if isinstance(old, int | float):
        values += [old * by for by in (0.5, 0.999999, 1.000001, 2)] * 3
    holder[key] = rng.choice(values)


@pytest.mark.slow
def test_five_hundred_mutated_files(path):
    assert_no_mutated_file_is_believed(path)
