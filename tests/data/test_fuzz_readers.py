"""500 damaged files for every reader (tests/fuzz_readers.py reads 20,000); and the harness finds what it is for."""

import os
import signal
import time

import pytest

import fuzz_readers
from fuzz_readers import READERS, Reader, fuzz, mutated


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_accepted_or_refused(name):
    report = fuzz(name, 500)
    assert report.faults == {}
    assert sum(report.counts.values()) == 500
    assert report.counts["accepted"] > 0  # not everything is refused at the door
    assert report.counts["refused"] > 100


def test_inputs_are_remade_from_their_number():
    seeds = READERS["csv"].seeds()
    assert mutated(seeds, 3) == mutated(seeds, 3)
    assert mutated(seeds, 3) != mutated(seeds, 4)


def _die(content):
    if content != b"valid":
        os.kill(os.getpid(), signal.SIGKILL)


def _hang(content):
    if content != b"valid":
        time.sleep(60)


def _fail(content):
    if content != b"valid":
        raise KeyError("not in the library's words")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("read", "words"), [(_die, "code -9"), (_hang, "no answer"), (_fail, "KeyError")])
def test_dies_hangs_and_other_errors_are_found(read, words, monkeypatch):
    """In this process's own workers, which are forked so that they see the reader."""
    monkeypatch.setitem(READERS, "probe", Reader(lambda: [b"valid"], read))
    monkeypatch.setattr(fuzz_readers, "SECONDS", 0.5)
    monkeypatch.setattr(fuzz_readers, "_START", "fork")
    report = fuzz("probe", 3, processes=2)
    assert report.counts["fault"] >= 2
    assert all(words in fault for fault in report.faults.values())
