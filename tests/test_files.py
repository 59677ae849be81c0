"""Outputs: room first, nothing replaced unasked, nothing left behind."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import tempfile

import pytest

from gaussmix import Ledger
from gaussmix._files import refuse_inputs, reserve, write_whole
from gaussmix.errors import OutputError, OutputExistsError, OutputFolderError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_room_is_taken_first_and_the_file_has_its_own_size(tmp_path):
    output = reserve(tmp_path / "x", 2**20)
    (temporary,) = tmp_path.iterdir()
    assert temporary.stat().st_blocks * 512 >= 2**20
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert output.commit(b"content", mode=0o640) == tmp_path / "x"
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_without_fallocate_zeros_are_written(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    with reserve(tmp_path / "x", 3 * 2**20 + 5) as output:
        (temporary,) = tmp_path.iterdir()
        assert temporary.stat().st_blocks * 512 >= 3 * 2**20
        output.commit(b"more than nothing")
    assert (tmp_path / "x").read_bytes() == b"more than nothing"


def test_what_is_abandoned_leaves_nothing(tmp_path):
    with reserve(tmp_path / "x", 100):
        pass
    assert names(tmp_path) == []
    with pytest.raises(KeyError), reserve(tmp_path / "x", 100):
        raise KeyError
    assert names(tmp_path) == []


def test_an_existing_file_is_refused_or_replaced(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(OutputExistsError, match="exists already"):
        reserve(path, 10)
    assert names(tmp_path) == ["x"]
    reserve(path, 10, force=True).commit(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_appears_meanwhile_is_kept_and_so_is_ours(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
    output = reserve(tmp_path / "x.parquet", 10)
    (tmp_path / "x.parquet").write_bytes(b"somebody's")
    written = output.commit(b"ours")
    assert (tmp_path / "x.parquet").read_bytes() == b"somebody's"
    assert written.read_bytes() == b"ours"
    assert written.suffix == ".parquet"
    assert len(names(tmp_path)) == 2


def test_a_temporary_file_that_somebody_removed_is_made_again(tmp_path):
    output = reserve(tmp_path / "x", 10)
    next(tmp_path.iterdir()).unlink()
    output.commit(b"content")
    assert (tmp_path / "x").read_bytes() == b"content"


def test_temporary_files_of_killed_processes_are_deleted_and_others_kept(tmp_path):
    code = (
        "import os, sys; from gaussmix._files import reserve; output = reserve(sys.argv[1], 100); print(1, flush=True)"
    )
    killed = f"{code}; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", killed, tmp_path / "x"], check=False, stdout=subprocess.DEVNULL)
    (left,) = names(tmp_path)
    (tmp_path / ".gaussmix-notes.txt").touch()
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdin.read(); output.commit(b'theirs')", tmp_path / "theirs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as living:
        living.stdout.readline()
        assert left not in names(tmp_path)
        (theirs,) = (name for name in names(tmp_path) if name.endswith(".tmp"))
        reserve(tmp_path / "x", 10).commit(b"ours")
        assert names(tmp_path) == sorted([theirs, ".gaussmix-notes.txt", "x"])
        living.communicate()
    assert names(tmp_path) == [".gaussmix-notes.txt", "theirs", "x"]


def test_longest_name_and_one_more(tmp_path):
    reserve(tmp_path / ("n" * 255), 10).commit(b"fits")
    with pytest.raises(OutputError, match="too long"):
        reserve(tmp_path / ("n" * 256), 10)
    assert names(tmp_path) == ["n" * 255]


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("/dev/stdout", "/dev/null", "/proc/self/fd/1", "fifo", "folder", "loop", "a\0b"):
        with pytest.raises(OutputError, match="cannot be written"):
            reserve(tmp_path / name, 10, force=True)
    with pytest.raises(OutputFolderError, match="Create it first"):
        reserve(tmp_path / "none" / "x", 10)
    assert names(tmp_path) == ["fifo", "folder", "loop"]


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    reserve(tmp_path / "link", 10).commit(b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"content"


def test_no_room_is_found_before_anything_is_written(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    try:
        with pytest.raises(OutputError, match="cannot be written: File too large"):
            reserve(tmp_path / "x", 2**17)
        reserve(tmp_path / "y", 2**15).abandon()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


def test_a_read_only_folder_is_refused():
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o555)
    user = os.geteuid()
    try:
        if user == 0:  # root writes everywhere
            os.seteuid(65534)
        with pytest.raises(OutputError, match="Permission denied"):
            reserve(f"{folder}/x", 10)
    finally:
        os.seteuid(user)
        os.rmdir(folder)


@pytest.mark.parametrize(("options", "words"), [("ro", "Read-only"), ("size=64k", "No space left")])
def test_a_full_or_read_only_file_system_is_refused(tmp_path, options, words):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OutputError, match=words):
            reserve(tmp_path / "x", 2**17)
        assert names(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_write_whole_replaces(tmp_path):
    write_whole(tmp_path / "x", b"one")
    with pytest.raises(OutputExistsError, match="exists already"):
        write_whole(tmp_path / "x", b"two")
    write_whole(tmp_path / "x", b"two", mode=0o600, force=True)
    assert (tmp_path / "x").read_bytes() == b"two"


def test_a_ledger_is_never_replaced(tmp_path):
    path = tmp_path / "rows.ledger"
    Ledger(path, epsilon=1.0, delta=1e-6)
    before = path.read_bytes()
    for write in (lambda: reserve(path, 10, force=True), lambda: write_whole(path, b"other", force=True)):
        with pytest.raises(OutputError, match="may be a ledger"):
            write()
    assert path.read_bytes() == before
    assert names(tmp_path) == ["rows.ledger"]


@pytest.mark.parametrize(
    "source",
    ["data", ".", "data/*.parquet", "**/*.parquet", "d*/out.*", "data/[o]ut.parquet", "data/out.parquet", "link/*"],
)
def test_an_output_among_the_inputs_is_refused_also_before_it_exists(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with pytest.raises(OutputError, match="lies in an input directory"):
        refuse_inputs("data/out.parquet", [source])
    refuse_inputs("out.csv", ["data", "data/*.parquet", "none/**/*"])


def test_replacing_a_hard_link_leaves_the_input_as_it_is(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"rows")
    os.link(tmp_path / "a.parquet", tmp_path / "b.parquet")
    write_whole(tmp_path / "b.parquet", b"other", force=True)
    assert (tmp_path / "a.parquet").read_bytes() == b"rows"
