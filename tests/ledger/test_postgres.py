"""A ledger in PostgreSQL: the same contents, races and kills as in a file, on a real server."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import pickle
import random
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix import BudgetExceededError, Ledger, LedgerError
from gaussmix.cli import main
from gaussmix.errors import ArgumentError, LedgerDamagedError, MissingFileError
from gaussmix.ledger.postgres import Database
from ledger_workers import compete, create, record_and_use
from postgres_server import postgres, programs

psycopg = pytest.importorskip("psycopg")
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    if programs() is None:
        pytest.skip("install postgresql")
    with postgres() as address:
        yield address


@pytest.fixture
def place(server):
    return f"{server}?ledger=rows_{next(_numbers)}"


def processes():
    return multiprocessing.get_context("spawn")


def test_a_ledger_in_a_database_equals_one_in_a_file(place, tmp_path):
    ledgers = [Ledger(place, **BUDGET, releases=3), Ledger(tmp_path / "rows.ledger", **BUDGET, releases=3)]
    for ledger in ledgers:
        plan = ledger.lattice_account(shares=["1"], coordinates=[400])
        entry = ledger.spend_account(plan, note="first; ü")
        assert (entry.id, entry.mu) == (1, plan.mu)
    stored, filed = (ledger.entries()[0] for ledger in ledgers)
    assert (stored.mu, stored.delta_slack, stored.note) == (filed.mu, filed.delta_slack, filed.note)
    assert ledgers[0].remaining() == ledgers[1].remaining()
    again = Ledger.open(place)
    assert again.entries() == ledgers[0].entries()
    assert again.head == ledgers[0].head
    assert again.contains_digest(again.fingerprint)
    assert pickle.loads(pickle.dumps(again)).reservation == ledgers[0].reservation
    with pytest.raises(ArgumentError, match=r"was created with other arguments: epsilon is 1\.0, not 2\.0"):
        Ledger(place, epsilon=2.0, delta=1e-5, releases=3)
    for _ in range(2):
        again.spend_account(plan)
    with pytest.raises(BudgetExceededError, match="The release exceeds the remaining budget"):
        again.spend_account(plan)


def test_a_release_is_charged_to_a_database(place):
    Ledger(place, **BUDGET, releases=2)
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(0, 100, 3000), "cost": rng.uniform(0, 10, 3000)}
    budget = gm.Budget(ledger=place, note="costs")
    release = gm.release(table, {"age": [0, 100], "cost": [0, 10]}, budget=budget)
    assert release.certificate.ledger == Ledger.open(place).fingerprint
    assert [entry.note for entry in Ledger.open(place).entries()] == ["costs"]


def test_twenty_processes_race_for_room_for_37(place):
    ledger = Ledger(place, **BUDGET, mu=0.1)
    request = {"mu": 0.1 / math.sqrt(37) * (1 - 1e-9)}
    for _ in range(20):
        ledger.spend(**request)
    context = processes()
    barrier, results = context.Barrier(20), context.Queue()
    racers = [context.Process(target=compete, args=(ledger, barrier, results, request)) for _ in range(20)]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert sorted(value for word, value in outcomes if word == "spent") == list(range(21, 38))
    assert len(ledger.entries()) == 37


def test_processes_that_create_one_ledger_at_once_share_it(place):
    context = processes()
    barrier, results = context.Barrier(8), context.Queue()
    creators = [context.Process(target=create, args=(place, BUDGET, barrier, results)) for _ in range(8)]
    for creator in creators:
        creator.start()
    assert len({results.get(timeout=120) for _ in creators}) == 1
    for creator in creators:
        creator.join(60)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_any_moment_everything_used_is_recorded(place, tmp_path, kills):
    ledger = Ledger(place, **BUDGET, mu=0.1)
    used = tmp_path / "used"
    context, moments = processes(), random.Random(0)
    for _ in range(kills):
        ready = context.Event()
        workers = [context.Process(target=record_and_use, args=(ledger, used, ready)) for _ in range(2)]
        for worker in workers:
            worker.start()
        assert ready.wait(120)
        time.sleep(moments.uniform(0, 0.1))
        for worker in workers:
            worker.kill()
            worker.join(60)
    recorded, marks = len(Ledger.open(place).entries()), used.stat().st_size
    assert kills <= marks <= recorded <= marks + 2 * kills
    ledger.spend(mu=1e-6)


def test_edited_entries_are_found(place, server):
    ledger = Ledger(place, **BUDGET, mu=0.1)
    ledger.spend(mu=0.05)
    name = Database(place).name
    with psycopg.connect(server) as connection, pytest.raises(psycopg.errors.RaiseException, match="entries are final"):
        connection.execute(f"UPDATE {name}.entries SET mu = 0.01")
    with psycopg.connect(server) as connection:
        connection.execute(f"ALTER TABLE {name}.entries DISABLE TRIGGER final")
        connection.execute(f"UPDATE {name}.entries SET mu = 0.01")
    for use in (lambda: Ledger.open(place), ledger.entries, lambda: ledger.spend(mu=0.01)):
        with pytest.raises(LedgerDamagedError, match="is damaged"):
            use()


def test_a_lock_held_too_long_is_an_error(place, server, monkeypatch):
    ledger = Ledger(place, **BUDGET)
    monkeypatch.setattr("gaussmix.ledger.postgres.LOCK_SECONDS", 1)
    with psycopg.connect(server) as other:
        other.execute(f"LOCK TABLE {Database(place).name}.head IN EXCLUSIVE MODE")
        with pytest.raises(
            LedgerError, match=r"was locked by another process for 1 seconds\. Nothing was recorded\. Try again"
        ):
            ledger.spend(mu=0.01)
        assert ledger.entries() == []  # reading goes on
    assert ledger.spend(mu=0.01).id == 1


def test_a_lost_connection_stops_the_release(place, server, monkeypatch):
    """The server ends the connection between the entry and its commit."""
    ledger = Ledger(place, **BUDGET)
    from gaussmix.ledger import ledger as module

    append = module.append

    def interrupted(connection, *rest):
        append(connection, *rest)
        with psycopg.connect(server, autocommit=True) as other:
            ((process,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
            other.execute("SELECT pg_terminate_backend(%s)", (process,))

    monkeypatch.setattr(module, "append", interrupted)
    with pytest.raises(LedgerError, match="publish nothing until"):
        ledger.spend(mu=0.01)
    monkeypatch.undo()
    assert ledger.entries() == []


@pytest.mark.parametrize("name", ["", "?ledger=", "?ledger=Rows", "?ledger=a-b", '?ledger=a"b', "?ledger=" + "a" * 64])
def test_bad_names(server, name):
    with pytest.raises(ArgumentError, match=r"must end in \?ledger=NAME"):
        Ledger(f"{server}{name}", **BUDGET)


def test_absent_ledgers_servers_and_passwords(place, server):
    with pytest.raises(MissingFileError, match="does not exist"):
        Ledger.open(place)
    away = "postgresql://someone:hunter2@127.0.0.1:1/db?ledger=rows"
    with pytest.raises(LedgerError, match=r"The connection to postgresql://someone@127\.0\.0\.1:1/db") as caught:
        Ledger.open(away)
    assert "hunter2" not in str(caught.value)


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_commands(place):
    assert run("ledger", "create", place, "--epsilon", "1", "--delta", "1e-6").exit_code == 0
    again = run("ledger", "create", place, "--epsilon", "1", "--delta", "1e-6")
    assert again.exit_code != 0
    assert "already exists" in again.output
    assert "remaining budget" in run("ledger", "show", place).output
    assert "hash chain intact" in run("ledger", "verify", place).output
