"""The ledger: exact arithmetic at the boundary, adversaries who choose on the way, crashes, races, damaged files."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import pickle
import random
import sqlite3
import stat
import sys
import time
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gaussmix import BudgetExceededError, Ledger, LedgerError
from gaussmix.errors import MissingFileError
from gaussmix.ledger import BudgetCap, Entry
from gaussmix.ledger import store as ledger_store
from gaussmix.ledger.composition import room_left
from gaussmix.ledger.store import append, contents
from ledger_workers import compete, create, record_and_use

BUDGET = {"epsilon": 1.0, "delta": 1e-5}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.ledger"


# ---------------------------------------------------------------------------------------------------------------
# What fits
def test_entries_record_what_was_asked(path):
    ledger = Ledger(path, **BUDGET, mu=0.1, delta_slack=1e-6)
    first = ledger.spend(mu=0.02, note="costs by région")
    second = ledger.spend(mu=0.05, delta_slack=1e-7)
    assert ledger.entries() == [first, second] == Ledger.open(path).entries()
    assert (first.id, first.mu, first.delta_slack, first.note) == (1, 0.02, 0.0, "costs by région")
    assert (second.id, second.mu, second.delta_slack) == (2, 0.05, 1e-7)
    assert first.time <= second.time
    with pytest.raises(AttributeError):
        first.mu = 0.0
    room = ledger.remaining()
    assert room.mu == pytest.approx(math.sqrt(0.1**2 - 0.02**2 - 0.05**2), rel=1e-15)
    assert room.delta_slack == pytest.approx(9e-7, rel=1e-15)


def test_refusals_say_what_is_left_and_record_nothing(path):
    ledger = Ledger(path, **BUDGET, mu=0.1, delta_slack=1e-6)
    ledger.spend(delta_slack=5e-7)
    left = r"Remaining budget: mu ≤ 0\.1, delta_slack ≤ 5e-07: 0 more releases of the planned size\. Nothing was"
    for words, request in {
        r"it needs mu=0\.1001, but 0\.1 remains": {"mu": math.nextafter(0.1, 1)},
        "it needs delta_slack=2e-06, but 5e-07 remains": {"delta_slack": 2e-6},
        r"it needs mu=1, but 0\.1 remains; it needs delta_slack=2e-06": {"mu": 1.0, "delta_slack": 2e-6},
    }.items():
        with pytest.raises(BudgetExceededError, match=f"The release exceeds the remaining budget: .*{words}.*{left}"):
            ledger.spend(**request)
    assert len(ledger.entries()) == 1
    ledger.spend(mu=0.1, delta_slack=5e-7)  # all of it
    assert ledger.remaining() == type(ledger.remaining())(0.0, 0.0, releases_left=0)
    for request in ({"mu": 5e-324}, {"delta_slack": 5e-324}):
        with pytest.raises(
            BudgetExceededError, match=r"The budget is spent\. Further models can be fitted from existing"
        ):
            ledger.spend(**request)


RESERVED = BudgetCap("", 1.0, 1e-5, 0.1, 1e-6, "add-remove", 1e-5)


def gaussian(mu, delta_slack=0.0):
    return Entry(1, None, mu, delta_slack, "")


@pytest.mark.parametrize("parts", [2, 3, 7, 49, 1000])
def test_equal_parts_fit_exactly_as_often_as_they_should(parts):
    """√(μ²/n) rounded down fits n times; rounded up, n - 1 times, though rounded sums of squares would not see it."""
    total = Fraction(RESERVED.mu) ** 2
    down = RESERVED.mu / math.sqrt(parts)
    while parts * Fraction(down) ** 2 > total:
        down = math.nextafter(down, 0)
    while parts * Fraction(math.nextafter(down, 1)) ** 2 <= total:
        down = math.nextafter(down, 1)
    up = math.nextafter(down, 1)
    assert room_left(RESERVED, [gaussian(down)] * (parts - 1)).mu >= down
    assert up > room_left(RESERVED, [gaussian(up)] * (parts - 1)).mu
    with pytest.raises(ValueError, match="the recorded releases exceed the budget"):
        room_left(RESERVED, [gaussian(up)] * parts)


@settings(max_examples=200)
@given(st.lists(st.floats(0, 0.1), max_size=30), st.lists(st.floats(0, 1e-6), max_size=30))
@example([5e-324] * 5, [5e-324] * 5)
@example([1e-170, 1e-200], [1e-300])
@example([math.nextafter(0.1, 0)], [math.nextafter(1e-6, 0)])
def test_room_is_the_largest_that_fits(mus, failures):
    """Whatever is spent, the room left fits to the last digit and the next double does not."""
    entries = []
    for mu, failure in itertools.zip_longest(mus, failures, fillvalue=0.0):
        room = room_left(RESERVED, entries)
        entries.append(gaussian(min(mu, room.mu), min(failure, room.delta_slack)))
    room = room_left(RESERVED, entries)
    room_left(RESERVED, [*entries, gaussian(room.mu, room.delta_slack)])
    for beyond in (gaussian(math.nextafter(room.mu, 1)), gaussian(0.0, math.nextafter(room.delta_slack, 1))):
        with pytest.raises(ValueError):
            room_left(RESERVED, [*entries, beyond])


def fill(path, count, mu, note=""):
    """The rows that so many calls of spend would write, at once."""
    when = datetime(2026, 1, 1, tzinfo=UTC)

    def write(connection):
        _, entries, last = contents(connection)
        numbers = range(len(entries) + 1, len(entries) + 1 + count)
        append(connection, last, [Entry(i, when, mu, 0.0, note) for i in numbers])

    ledger_store.transaction(path, write, write=True)


@pytest.mark.slow
def test_ten_thousand_small_releases_never_exceed_mu(path):
    ledger = Ledger(path, **BUDGET, mu=0.15)
    fill(path, 9_999, 0.0015)
    assert 10_000 * Fraction(0.0015) ** 2 > Fraction(0.15) ** 2  # by 1e-16 of it
    with pytest.raises(BudgetExceededError):
        ledger.spend(mu=0.0015)
    ledger.spend(mu=ledger.remaining().mu)
    assert sum(Fraction(entry.mu) ** 2 for entry in ledger.entries()) <= Fraction(0.15) ** 2


# ---------------------------------------------------------------------------------------------------------------
# Processes
def processes():
    """Fresh processes that inherit no connection; forked from a clean server where there is one, for speed."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "gaussmix.ledger"])
    return context


def test_twenty_processes_race_for_room_for_seven(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5, mu=0.1)
    request = {"mu": 0.1 / math.sqrt(7) * (1 - 1e-9)}
    context = processes()
    barrier, results = context.Barrier(20), context.Queue()
    racers = [context.Process(target=compete, args=(ledger, barrier, results, request)) for _ in range(20)]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert sorted(value for word, value in outcomes if word == "spent") == [1, 2, 3, 4, 5, 6, 7]
    assert sum(word == "refused" for word, _ in outcomes) == 13
    assert len(ledger.entries()) == 7


def test_processes_that_create_one_ledger_at_once_share_it(path):
    context = processes()
    barrier, results = context.Barrier(8), context.Queue()
    creators = [context.Process(target=create, args=(path, BUDGET, barrier, results)) for _ in range(8)]
    for creator in creators:
        creator.start()
    assert len({results.get(timeout=120) for _ in creators}) == 1
    for creator in creators:
        creator.join(60)
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing left behind


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_killed_at_any_moment_everything_used_is_recorded(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5, mu=0.1)
    used = path.with_name("used")
    context, moments = processes(), random.Random(0)
    kills = 15
    for _ in range(kills):
        ready = context.Event()
        workers = [context.Process(target=record_and_use, args=(ledger, used, ready)) for _ in range(2)]
        for worker in workers:
            worker.start()
        assert ready.wait(120)
        time.sleep(moments.uniform(0, 0.1))
        for worker in workers:
            worker.kill()  # SIGKILL
            worker.join(60)
            assert worker.exitcode == -9
    recorded, marks = len(Ledger.open(path).entries()), used.stat().st_size
    assert marks >= kills  # releases were made at all
    assert marks <= recorded <= marks + 2 * kills  # at most one recorded for nothing by each that was killed
    assert ledger.remaining().mu < 0.1
    ledger.spend(mu=1e-6)  # and it goes on


# ---------------------------------------------------------------------------------------------------------------
# The file
def test_reopening_goes_on_where_it_was(path):
    ledger = Ledger(path, **BUDGET, mu=0.1)
    ledger.spend(mu=0.01)
    for again in (Ledger(path, **BUDGET, mu=0.1), Ledger.open(str(path)), pickle.loads(pickle.dumps(ledger))):
        assert again.reservation == ledger.reservation
        assert again.remaining() == ledger.remaining()
        assert again.path == path
    assert repr(ledger) == (
        f"Ledger({str(path)!r}, epsilon=1.0, delta=1e-05, mu=0.1, delta_slack=1e-08, "
        "neighbours='add-remove', releases=1)"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 2.0}, r"epsilon is 1\.0, not 2\.0"),
        ({"delta": 1e-6}, "delta is 1e-05, not 1e-06; delta_slack is 1e-08, not .*"),
        ({"mu": 0.05}, r"mu is 0\.1, not 0\.05"),
        ({"delta_slack": 1e-9}, "delta_slack is 1e-08, not 1e-09"),
        ({"neighbours": "replace-one"}, "neighbours is 'add-remove', not 'replace-one'"),
        ({"releases": 2}, "releases is 1, not 2"),
    ],
)
def test_reopening_with_other_arguments_is_an_error(path, change, words):
    Ledger(path, **BUDGET, mu=0.1)
    with pytest.raises(ValueError, match=rf"was created with other arguments: {words}\..*Ledger\.open\(path\)"):
        Ledger(path, **{**BUDGET, "mu": 0.1, **change})


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_file_is_the_owners_alone(path):
    old = os.umask(0)
    try:
        Ledger(path, **BUDGET).spend(mu=0.01)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_everything_recorded_is_in_the_one_file_and_entries_are_final(path):
    Ledger(path, **BUDGET, mu=0.1).spend(mu=0.05)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    for statement in ("DELETE FROM entries", "UPDATE entries SET mu = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="entries are final"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("name", ["a b#c?d=%41&e.ledger", ":memory:", "région", "file:x?mode=memory"])
def test_any_name_is_a_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Ledger(name, **BUDGET).spend(mu=0.01)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert len(Ledger.open(tmp_path / name).entries()) == 1


def test_missing_directory_and_missing_file(tmp_path, path):
    with pytest.raises(MissingFileError, match=r"directory .*nowhere does not exist\. Create it first"):
        Ledger(tmp_path / "nowhere" / "x.ledger", **BUDGET)
    with pytest.raises(
        MissingFileError, match=r"The ledger .*rows\.ledger does not exist\. Create it with Ledger\(path"
    ):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="is a directory, not a ledger"):
        Ledger.open(tmp_path)
    ledger = Ledger(path, **BUDGET)
    path.unlink()
    with pytest.raises(MissingFileError, match=r"The ledger .* no longer exists\. Nothing was recorded"):
        ledger.spend(mu=0.01)
    assert not path.exists()  # never made anew by a release


def test_a_ledger_put_in_its_place_is_noticed(path):
    ledger = Ledger(path, **BUDGET)
    path.unlink()
    Ledger(path, **BUDGET)
    with pytest.raises(LedgerError, match="was replaced by another ledger after this process opened it"):
        ledger.spend(mu=0.01)


@pytest.mark.parametrize("suffix", ["wal", "journal"])
def test_remains_of_a_deleted_ledger_are_not_ignored(path, suffix):
    path.with_name(f"{path.name}-{suffix}").write_bytes(b"spent")
    with pytest.raises(
        LedgerError, match=rf"is missing, but rows\.ledger-{suffix} exists and may contain recorded releases"
    ):
        Ledger(path, **BUDGET)
    assert not path.exists()


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()


def test_files_that_are_no_ledgers(path):
    for make in (other_database, lambda p: p.write_text("name,age\n" * 999), lambda p: p.write_bytes(b"")):
        make(path)
        before = path.read_bytes()
        for attempt in (Ledger.open, lambda p: Ledger(p, **BUDGET)):
            with pytest.raises(LedgerError, match=r"rows\.ledger is not a gaussmix ledger"):
                attempt(path)
        assert path.read_bytes() == before
        path.unlink()


@pytest.mark.parametrize("version", [-1, 0, 2, 4])
def test_another_format_is_refused_and_left_alone(path, version):
    Ledger(path, **BUDGET)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=f"has format {version}, and this version of gaussmix reads format 1. Use"):
        Ledger.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage", ["truncated", "overwritten", "table dropped", "row missing", "overspent", "wrong type"]
)
def test_damaged_ledger(path, damage):
    Ledger(path, **BUDGET, mu=0.1)
    fill(path, 200, 1e-3, "a note that takes some room in the file" * 5)
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "overwritten":
        path.write_bytes(content[:9000] + b"\xa5" * 8000 + content[17000:])
    else:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("DROP TRIGGER final")
        statement = {
            "table dropped": "DROP TABLE entries",
            "row missing": "DELETE FROM reservation",
            "overspent": "UPDATE entries SET mu = 0.09",
            "wrong type": "UPDATE entries SET mu = 'x' WHERE id = 7",
        }[damage]
        connection.execute(statement)
        connection.commit()
        connection.close()
    with pytest.raises(
        LedgerError, match=r"rows\.ledger is damaged\. Restore it from a copy that contains every release"
    ):
        Ledger.open(path)
    with pytest.raises(LedgerError):
        Ledger(path, **BUDGET, mu=0.1)


def test_a_ledger_held_by_another_process_is_an_error_in_the_end(path, monkeypatch):
    ledger = Ledger(path, **BUDGET)
    monkeypatch.setattr("gaussmix.ledger.store.BUSY_SECONDS", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match=r"locked by another process for 0\.2 seconds\. Nothing was recorded"):
        ledger.spend(mu=0.01)
    assert ledger.entries() == []  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    ledger.spend(mu=0.01)


# ---------------------------------------------------------------------------------------------------------------
# Bad arguments
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, r"epsilon must be a finite number > 0, got 0\.0\."),
        ({"epsilon": math.inf}, ValueError, r"epsilon must be a finite number > 0, got inf\."),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number, got '1'"),
        ({"delta": 0.0}, ValueError, r"delta must lie in \(0, 1\), got 0\.0\."),
        ({"mu": -0.1}, ValueError, r"mu must be a finite number > 0, got -0\.1\."),
        ({"mu": math.nan}, ValueError, "mu must be a real number, got nan"),
        ({"delta_slack": 1e-5}, ValueError, "delta_slack must be less than delta=1e-05, got 1e-05"),
        ({"delta_slack": -1.0}, ValueError, "delta_slack must be a finite number ≥ 0"),
        ({"releases": 0}, ValueError, "releases must be an integer ≥ 1, got 0"),
        ({"releases": 1.5}, TypeError, r"releases must be an integer ≥ 1, got 1\.5"),
        ({"neighbours": "swap"}, ValueError, "neighbours must be one of 'add-remove', 'replace-one', got 'swap'"),
        ({"mu": 1.0}, ValueError, r"mu must be at most 0\.26.* epsilon=1\.0 and delta=1e-05 .* got 1\.0"),
    ],
)
def test_bad_budget(path, change, error, words):
    with pytest.raises(error, match=words):
        Ledger(path, **{**BUDGET, **change})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({}, ValueError, "mu or delta_slack must be positive, got 0 for both"),
        ({"mu": -0.01}, ValueError, r"mu must be a finite number ≥ 0, got -0\.01"),
        ({"mu": math.inf}, ValueError, "mu must be a finite number ≥ 0, got inf"),
        ({"delta_slack": math.nan}, ValueError, "delta_slack must be a real number, got nan"),
        ({"mu": 0.01, "note": 7}, TypeError, "note must be a string, got int"),
    ],
)
def test_bad_request(path, request_, error, words):
    ledger = Ledger(path, **BUDGET, mu=0.1)
    with pytest.raises(error, match=words):
        ledger.spend(**request_)
    assert ledger.entries() == []


# -------------------------------------------------------------------------------------------------------------- locks
def test_a_folder_whose_locks_do_nothing_is_refused(tmp_path, monkeypatch):
    """SQLite's file system without locks stands for a network folder."""
    path = tmp_path / "rows.ledger"
    Ledger(path, epsilon=1.0, delta=1e-6)
    monkeypatch.setattr(ledger_store, "_locking", set())
    monkeypatch.setattr(ledger_store, "_OPTIONS", "&vfs=unix-none")
    for start in (lambda: Ledger.open(path), lambda: Ledger(path, epsilon=1.0, delta=1e-6)):
        with pytest.raises(LedgerError, match=r"File locks do not work in .*Put the ledger on a local disk"):
            start()


def test_locks_are_tested_once_for_a_file_system(tmp_path, monkeypatch):
    started = []
    run = ledger_store.subprocess.run
    monkeypatch.setattr(
        ledger_store.subprocess, "run", lambda *words, **options: started.append(1) or run(*words, **options)
    )
    monkeypatch.setattr(ledger_store, "_locking", set())
    for name in ("a.ledger", "b.ledger"):
        assert Ledger(tmp_path / name, epsilon=1.0, delta=1e-6).spend(mu=0.01).id == 1
    assert len(started) == 1


def test_an_identifier_is_recorded_once(path):
    """The ledger is not called damaged, and nothing more is spent."""
    ledger = Ledger(path, **BUDGET)
    ledger.spend(mu=0.01, release="a" * 32)
    with pytest.raises(LedgerError, match="already recorded"):
        ledger.spend(mu=0.01, release="a" * 32)
    assert len(ledger.entries()) == 1
