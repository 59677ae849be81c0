"""What costs a budget leaves a file: kills at any moment, full disks, long names, read-only folders."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.rows import rows_of
from gaussmix.errors import OutputError, OutputExistsError
from gaussmix.mechanism import release
from kills import count_kills


@pytest.fixture
def ledger(tmp_path):
    return gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=10)


def untouched():
    raise AssertionError("a row was read")
    yield


@pytest.mark.slow
def test_kills(tmp_path):
    found = count_kills(tmp_path, 40, seed=1)
    assert found.unrecorded == 0
    assert found.lost_unkilled == 0
    assert found.damaged == 0
    assert found.killed > 10
    assert found.entries - found.files == found.lost


@pytest.mark.parametrize(
    "name",
    ["n" * 256, "/dev/stdout", "/dev/full", "none/x.parquet", "folder", "fifo", "there.parquet", "l.ledger",
     "l.ledger-wal", "l.ledger-shm", "rows/x.parquet", "x.csv", "x.csv.gz", "x.JSON", "x.moments", "y.ledger"],
)  # fmt: skip
def test_outputs_that_cannot_be_cost_nothing(tmp_path, ledger, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "there.parquet").write_bytes(b"somebody's")
    (tmp_path / "rows").mkdir()
    patients(20).to_parquet(tmp_path / "rows" / "a.parquet")
    data = tmp_path / "rows" if name.startswith("rows") else untouched()
    with pytest.raises(OutputError):
        gm.release(data, schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=tmp_path / name, force=name == "l.ledger")
    assert ledger.entries() == []
    assert (tmp_path / "there.parquet").read_bytes() == b"somebody's"
    assert not list(tmp_path.glob(".gaussmix*"))


def test_a_full_disk_costs_nothing(tmp_path, ledger):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OutputError, match=r"No space left on device. Nothing was spent"):
            gm.release(untouched(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=small / "x.parquet")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert ledger.entries() == []


def test_a_disk_that_fills_up_while_rows_are_read_costs_nothing(tmp_path, ledger):
    """The room was taken before: others may fill the disk."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("mounting is not allowed here")

    def filling():
        with open(small / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        assert os.statvfs(small).f_bavail == 0
        yield patients(50)

    try:
        gm.release(filling(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=small / "x.parquet")
        assert gm.load(small / "x.parquet").statistic.passes[0].mu > 0
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert len(ledger.entries()) == 1


def test_bad_rows_cost_nothing_and_leave_nothing(tmp_path, ledger):
    rows = patients(50).assign(sex="?")
    with pytest.raises(ValueError, match="not among its declared levels"):
        gm.release(rows, schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=tmp_path / "x.parquet")
    assert ledger.entries() == []
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("l.ledger")] == []


def test_a_file_that_appears_meanwhile_is_kept_beside_the_release(tmp_path, ledger):
    out = tmp_path / "x.parquet"

    def slow():
        out.write_bytes(b"somebody's")
        yield patients(50)

    with pytest.warns(UserWarning, match="was not replaced. The release is in") as warned:
        private = gm.release(slow(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=out)
    assert warned[0].filename == __file__  # told of the line that asked
    assert out.read_bytes() == b"somebody's"
    (beside,) = tmp_path.glob("gaussmix-*.parquet")
    assert gm.load(beside).certificate == private.certificate
    with pytest.raises(OutputExistsError):
        gm.release(untouched(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=out)
    gm.release(patients(50), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=out, force=True)
    assert gm.load(out).statistic.passes[0].mu > 0


def test_ctrl_c_between_ledger_and_file_waits(tmp_path, ledger, monkeypatch):
    """Interrupted in the middle of the draw: the file is written first, and then it is an interruption."""
    draw = release.draw_passes

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return draw(*arguments, **options)

    monkeypatch.setattr(release, "draw_passes", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # runners in parallel ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            gm.release(
                patients(50), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=tmp_path / "x.parquet"
            )
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(ledger.entries()) == 1
    assert gm.load(tmp_path / "x.parquet").statistic.passes[0].mu > 0


def test_a_release_in_another_thread(tmp_path, ledger):
    worker = threading.Thread(
        target=lambda: gm.release(
            patients(50), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=tmp_path / "x"
        )
    )
    worker.start()
    worker.join()
    assert gm.load(tmp_path / "x").statistic.passes[0].mu > 0


@pytest.mark.slow
def test_the_room_fits_the_file(tmp_path):
    """What was preallocated is at least what is written; passes in the declared metric need less."""
    for columns in (1, 30, 200):
        schema = {f"column {i} with a long name {'x' * 50}": [0, 1] for i in range(columns)}
        with release.prepare(gm.Schema.of(schema), gm.Budget(1.0, 1e-6), out=tmp_path / str(columns)) as prepared:
            (temporary,) = tmp_path.glob(".gaussmix*")
            room = temporary.stat().st_size
            prepared.draw(rows_of({name: [0.1, 0.7] for name in schema}, schema))
        written = (tmp_path / str(columns)).stat().st_size
        assert written <= room <= 4 * written + 2**18


def test_the_room_fits_a_file_whose_every_metric_is_learned(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(200)]
    schema = gm.Schema.of({name: [0, 1] for name in names})
    prepared = release.prepare(schema, gm.Budget(3.0, 1e-6), passes=4, out=tmp_path / "x", random_state=0)
    with prepared:
        (temporary,) = tmp_path.glob(".gaussmix*")
        room = temporary.stat().st_size
        table = rng.uniform(0.4, 0.6, (3000, 1)) + 0.05 * rng.standard_normal((3000, 200))
        private = prepared.draw(rows_of(dict(zip(names, table.T, strict=True)), schema))
    assert not any(output.request.metric.declared for output in private.statistic.passes[1:])
    assert (tmp_path / "x").stat().st_size <= room
