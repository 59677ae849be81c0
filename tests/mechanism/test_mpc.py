"""Sites as processes on the loopback interface: secure sums, keys, killed sites, strangers, malformed messages."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.mechanism.mpc import LARGEST_INPUT, PRIME, Keys, certificate_file, key_file, make_keys
from gaussmix.mechanism.sites import common_environment, default_state, software
from site_meshes import RELEASE, fewer_values, garbage, hangs, honest, leaves, one_site, run_study, values_of
from site_processes import Processes, free_ports

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpyc") is None, reason="MPyC is not installed")
SCHEMA = {"age": [18, 95], "sex": ["f", "m"], "cost": [0, 20]}


def table(seed, n=1000):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 95, n)
    return {"age": age, "sex": rng.choice(["f", "m"], n), "cost": np.clip(2 + 0.1 * age + rng.normal(size=n), 0, 20)}


# ---------------------------------------------------------------------------------------------------------------
# The mesh
def run_mesh(folders, acts, ports=None, timeout=20.0):
    """Run sites, all but the first in processes of their own; return what each returned, or its message."""
    context = multiprocessing.get_context("spawn")
    results, ports = context.Queue(), free_ports(len(acts)) if ports is None else ports
    own, *others = [
        (site, ports, folder, act, results, timeout)
        for site, (folder, act) in enumerate(zip(folders, acts, strict=True), 1)
        if act is not None
    ]
    processes = [context.Process(target=one_site, args=arguments, daemon=True) for arguments in others]
    for process in processes:
        process.start()
    try:
        one_site(*own)  # the first is this process
        return dict(results.get(timeout=90) for _ in range(len(processes) + 1))
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()


@pytest.fixture
def keys(tmp_path):
    def made(number):
        for site in range(1, number + 1):
            make_keys(tmp_path / "keys", site, RELEASE)
        return [tmp_path / "keys"] * number

    return made


@pytest.mark.parametrize("number", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_sums_are_exact(keys, number):
    found = run_mesh(keys(number), [honest] * number)
    sites = range(1, number + 1)
    messages = [b"%d" % site for site in sites]
    total = [sum(column) for column in zip(*(values_of(site, 50) for site in sites), strict=True)]
    ends = [number * (LARGEST_INPUT - 1), -sum(sites)]
    assert found == dict.fromkeys(sites, (messages, total, ends))


def test_sums_cannot_wrap_around():
    """50 inputs at the limit are far from half of the field; and the field is prime."""
    assert 50 * LARGEST_INPUT < PRIME // 2
    assert LARGEST_INPUT > 2**100 * 2**62 + 2**64
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11))  # MPyC checks that it is prime


def test_a_site_that_leaves_is_named(keys):
    found = run_mesh(keys(3), [honest, leaves, honest])
    for site in (1, 3):  # one of them may see that the other has stopped too
        assert "2 (S2)" in found[site]
        assert "closed" in found[site]


@pytest.mark.slow
def test_a_site_that_hangs_is_waited_for_in_bounded_time(keys):
    found = run_mesh(keys(3), [honest, hangs, honest], timeout=12.0)
    for site in (1, 3):
        assert "did not answer within 12 seconds" in found[site] or "closed" in found[site]
    assert any("did not answer" in found[site] for site in (1, 3))


def test_a_missing_site_is_named(keys):
    found = run_mesh(keys(3), [honest, None, honest], timeout=4.0)
    for site in (1, 3):
        assert found[site].startswith("Site 2 (S2)")
        assert "did not connect within 4 seconds" in found[site]


@pytest.mark.parametrize("act", [fewer_values, garbage])
def test_messages_that_do_not_follow_the_protocol_end_the_run(keys, act):
    found = run_mesh(keys(3), [honest, act, honest], timeout=8.0)
    for site in (1, 3):
        assert isinstance(found[site], str), found[site]


def test_an_impostor_is_not_let_in(keys, tmp_path):
    """Site 2 has made a key of its own in place of the one whose certificate the others have."""
    folders = keys(3)
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    key_file(other, 2).unlink()
    certificate_file(other, 2).unlink()
    make_keys(other, 2, RELEASE)
    found = run_mesh([folders[0], other, folders[2]], [honest] * 3, timeout=5.0)
    for site in (1, 2, 3):
        assert "did not connect" in found[site]


def test_a_site_cannot_claim_to_be_another(keys, tmp_path):
    """Site 1 tells site 3 that it is site 2: the certificate of a connection says who it is."""
    folders, ports = keys(3), free_ports(3)
    context = Keys.read(folders[0], 1, number=3, release=RELEASE).context(ssl.Purpose.SERVER_AUTH, [3])
    process = multiprocessing.get_context("spawn")
    results = process.Queue()
    waiting = process.Process(target=one_site, args=(3, ports, folders[2], honest, results, 8.0), daemon=True)
    waiting.start()
    with contextlib.closing(connection_to(ports[2])) as raw, context.wrap_socket(raw) as claimed:
        claimed.sendall((1).to_bytes(2, "little"))  # 0 would be site 1
        claimed.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert claimed.recv(1) == b""
    assert "Site 1 (S1), 2 (S2) did not connect" in results.get(timeout=60)[1]
    waiting.join(10)


def connection_to(port):
    for _ in range(300):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        time.sleep(0.1)
    raise AssertionError("nobody listens")


def test_keys_of_another_study_are_refused(keys, tmp_path):
    folder = keys(3)[0]
    with pytest.raises(gm.ArgumentError, match="for this study"):
        Keys.read(folder, 1, number=3, release="cd" * 16)
    assert key_file(folder, 1).stat().st_mode & 0o777 == 0o600
    with pytest.raises(gm.OutputExistsError):
        make_keys(folder, 1, RELEASE)
    shutil.copy(certificate_file(folder, 1), certificate_file(folder, 2))
    with pytest.raises(gm.ArgumentError, match="site 2"):
        Keys.read(folder, 1, number=3, release=RELEASE)
    certificate_file(folder, 2).write_text("nothing")
    with pytest.raises(gm.ArgumentError, match="PEM"):
        Keys.read(folder, 1, number=3, release=RELEASE)
    certificate_file(folder, 2).unlink()
    with pytest.raises(gm.MissingFileError, match="site 2"):
        Keys.read(folder, 1, number=3, release=RELEASE)


# ---------------------------------------------------------------------------------------------------------------
# Whole runs
def same_files(processes):
    return len({processes.out(site).read_bytes() for site in range(1, processes.number + 1)}) == 1


def test_three_processes_make_one_release(tmp_path):
    processes = Processes(tmp_path, SCHEMA, [table(i) for i in range(3)])
    ended = processes.run()
    assert [one.code for one in ended] == [0, 0, 0], [one.words for one in ended]
    assert same_files(processes)
    private = gm.load(processes.out(1))
    assert private.certificate.sites.study == processes.study.hash
    for site in (1, 2, 3):
        (entry,) = processes.ledger(site).entries()
        assert entry.release == private.certificate.release


def test_a_site_in_this_process(tmp_path):
    """As in a notebook: this process is site 2, with its own event loop and logging left as they were."""
    processes = Processes(tmp_path, SCHEMA, [table(i) for i in range(3)], passes=2)
    context = multiprocessing.get_context("spawn")
    results, lines = context.Queue(), []
    ledgers = {site: tmp_path / f"site{site}.ledger" for site in (1, 2, 3)}
    others = [
        context.Process(
            target=run_study,
            args=(processes.file, str(tmp_path / f"rows{site}.parquet"), site, ledgers[site], results),
            daemon=True,
        )
        for site in (1, 3)
    ]
    for other in others:
        other.start()
    before = sys.argv, logging.getLogger().handlers[:], logging.getLogger().level
    private = gm.sites.run(
        processes.file, table(1), site=2, ledger=ledgers[2], out=processes.out(2), progress=lines.append
    )
    assert before == (sys.argv, logging.getLogger().handlers, logging.getLogger().level)
    found = dict(results.get(timeout=60) for _ in others)
    for other in others:
        other.join(20)
    assert found == {1: private.to_bytes(), 3: private.to_bytes()}
    assert processes.out(2).read_bytes() == private.to_bytes()
    assert lines[0] == "waiting for 2 other sites"
    assert lines[-1] == "Pass 2 of 2"


PHASES = [
    "waiting for",
    "all sites agree",
    "Marginals",
    "Pass 1",
    "Pass 2 of 4, row norms",
    "Pass 3 of 4",
    "Pass 4 of 4",
]


@pytest.mark.parametrize(
    "phase", [pytest.param(phase, marks=[] if phase == "Pass 3 of 4" else pytest.mark.slow) for phase in PHASES]
)
def test_a_site_killed_in_any_phase(tmp_path, phase):
    """The others stop with a clear message, each ledger is charged once, and a repeated run ends in one release."""
    timeout = 20.0 if phase == "waiting for" else 60.0
    processes = Processes(tmp_path, SCHEMA, [table(i) for i in range(3)], timeout=timeout)
    second = processes.start(2)
    others = []
    if phase == "waiting for":
        second.saw(phase)
        second.kill()
        others = [processes.start(site) for site in (1, 3)]
    else:
        others = [processes.start(site) for site in (1, 3)]
        second.saw(phase)
        second.kill()
    for other in others:
        other.ended()
        assert other.code == 6, other.words
        assert "2 (S2)" in other.words
    charged = [len(processes.ledger(site).entries()) for site in (1, 2, 3)]
    if phase == "waiting for":
        assert charged == [0, 0, 0]
    else:
        assert max(charged) <= 1
    ended = processes.run()
    assert [one.code for one in ended] == [0, 0, 0], [one.words for one in ended]
    assert same_files(processes)
    assert [len(processes.ledger(site).entries()) for site in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.slow
def test_sites_with_other_studies_and_other_tables(tmp_path):
    processes = Processes(tmp_path, SCHEMA, [table(i) for i in range(3)], timeout=8.0)
    other = tmp_path / "other.toml"
    other.write_text(processes.file.read_text().replace("epsilon = 1.0", "epsilon = 1.5"))
    started = [processes.start(1), processes.start(2, study=other), processes.start(3)]
    ended = [one.ended() for one in started]
    # The keys of site 2 are not those of the study it has.
    assert ended[1].code == 2
    assert "for this study" in ended[1].words
    assert [ended[0].code, ended[2].code] == [6, 6]
    assert all(not processes.ledger(site).entries() for site in (1, 2, 3))


@pytest.mark.skipif(not common_environment(), reason="no common environment for this processor")
def test_processors_that_compute_other_bits_are_told_apart():
    """Sites compare this before anything is spent; the command chooses the environment in which most are alike."""

    def found(**environment):
        code = "import json; from gaussmix.mechanism.sites import software; print(json.dumps(software()))"
        output = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, check=True
        )
        return json.loads(output.stdout)

    oldest, common = found(OPENBLAS_CORETYPE="Prescott"), found(**common_environment())
    assert oldest["BLAS"] != common["BLAS"]
    assert "Haswell" in common["BLAS"]
    assert "V4" not in common["processor"]
    assert "AVX512" not in common["processor"]
    assert oldest.keys() == common.keys() == software().keys()


@pytest.mark.slow
def test_sites_with_other_kernels_and_threads_compute_the_same_bits(tmp_path):
    """The command starts again with common kernels; the number of threads does not matter. 60 columns."""
    schema = {f"x{i}": [-3, 3] for i in range(60)}
    rng = np.random.default_rng(0)
    tables = [{name: rng.normal(size=3000) for name in schema} for _ in range(3)]
    processes = Processes(tmp_path, schema, tables, timeout=120.0)
    own = [{"OPENBLAS_CORETYPE": "Prescott"}, {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}, {}]
    started = [processes.start(site, environment=change) for site, change in enumerate(own, 1)]
    ended = [one.ended() for one in started]
    assert [one.code for one in ended] == [0, 0, 0], [one.words for one in ended]
    assert same_files(processes)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "colluding"), [(3, 1), (5, 2)])
def test_released_matrices_are_the_exact_sums_of_what_sites_stored(tmp_path, number, colluding):
    """20 columns and 4 passes, by MPyC between processes: every entry of every pass, bit for bit."""
    schema = {f"x{i}": [-3, 3] for i in range(20)}
    rng = np.random.default_rng(0)
    tables = [{name: rng.normal(size=2000) for name in schema} for _ in range(number)]
    processes = Processes(tmp_path, schema, tables, colluding=colluding, timeout=60.0)
    ended = processes.run()
    assert [one.code for one in ended] == [0] * number, [one.words for one in ended]
    assert same_files(processes)
    released = gm.load(processes.out(1))
    of_sites = []
    for site in range(1, number + 1):
        _, *lines = default_state(processes.ledger(site), processes.study).read_text().splitlines()
        of_sites.append([json.loads(line)["sum"] for line in lines])
    totals = [[sum(column) for column in zip(*sums, strict=True)] for sums in zip(*of_sites, strict=True)]
    matrices = [total for total in totals if len(total) == 21 * 22 // 2]
    assert len(matrices) == 4
    bits = released.certificate.account.bits
    for total, output in zip(matrices, released.statistic.passes, strict=True):
        assert [value / 2**bits for value in total] == output.matrix[np.triu_indices(21)].tolist()
