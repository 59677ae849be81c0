"""The ledger: exact arithmetic at the boundary, adversaries who choose on the way, crashes, races, damaged files."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import pickle
import random
import shutil
import sqlite3
import stat
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import interpolate, stats

from gaussmix import BudgetExceededError, Ledger, LedgerError, accounting
from gaussmix.accounting.divergence import ChiSquareLoss, composite_rule, gaussian_hockey_stick, hockey_stick_composed
from gaussmix.accounting.least_noise import calibrate
from gaussmix.accounting.search import log_excess, smallest_safe
from gaussmix.errors import MissingFileError
from gaussmix.ledger import Entry, Reservation
from gaussmix.ledger import store as ledger_store
from gaussmix.ledger.records import append, contents
from gaussmix.ledger.reservation import reserved_gamma, room_left
from ledger_workers import compete, create, record_and_use

BUDGET = {"epsilon": 1.0, "delta": 1e-5, "sketch_rows": 500}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.ledger"


# ---------------------------------------------------------------------------------------------------------------
# What is reserved
@pytest.mark.parametrize(
    ("mu", "failure_delta", "relation"),
    [(0.0, 0.0, "zero-out"), (0.1, 0.0, "zero-out"), (0.1, 4e-6, "zero-out"), (0.0, 4e-6, "replace-one")],
)
def test_reserved_gamma_is_the_least_that_meets_the_budget(path, mu, failure_delta, relation):
    reserved = Ledger(path, **BUDGET, mu=mu, failure_delta=failure_delta, relation=relation).reservation

    def spent(gamma):
        return accounting.delta(1.0, sketch_size=500, gamma=gamma, mu=mu, relation=relation)

    assert Fraction(spent(reserved.gamma)) + Fraction(failure_delta) <= Fraction(1e-5)
    assert spent(reserved.gamma * (1 - 1e-6)) > 1e-5 - failure_delta
    assert spent(reserved.gamma) + failure_delta <= reserved.delta_reserved <= 1e-5


def test_replace_one_beside_gaussians_is_private():  # ten seconds: double integrals
    gamma, spent = reserved_gamma(2.0, 1e-3, sketch_rows=2, mu=0.2, relation="replace-one")
    assert 1e-3 * (1 - 1e-6) < spent <= 1e-3
    assert gamma > reserved_gamma(2.0, 1e-3, sketch_rows=2, mu=0.0, relation="replace-one")[0]


def test_calibration_has_the_noise_and_the_budget_of_the_ledger(path):
    ledger = Ledger(path, **BUDGET, mu=0.1, failure_delta=1e-6)
    found = ledger.calibration(200)
    assert (found.gamma, found.sketch_size, found.scale) == (ledger.remaining().gamma, 200, "none")
    assert (found.epsilon, found.delta, found.relation) == (1.0, 1e-5, "zero-out")
    assert found.delta_spent <= 1e-5
    assert math.fsum(part for _, part in found.delta_split) == pytest.approx(found.delta_spent, rel=1e-12)
    assert accounting.delta(1.0, sketch_size=200, gamma=found.gamma) < found.delta_spent
    assert ledger.entries() == []  # spends nothing by itself
    with pytest.raises(BudgetExceededError, match="sketch_size=501 exceeds the 500 sketch rows of the whole ledger"):
        ledger.calibration(501)


# ---------------------------------------------------------------------------------------------------------------
# What fits
def test_entries_record_what_was_asked(path):
    ledger = Ledger(path, **BUDGET, mu=0.1, failure_delta=1e-6)
    first = ledger.spend(sketch_size=100, gamma=1e3, note="costs by région")
    second = ledger.spend(mu=0.05, failure_delta=1e-7)
    assert ledger.entries() == [first, second] == Ledger.open(path).entries()
    assert (first.id, first.sketch_size, first.gamma, first.mu, first.note) == (1, 100, 1e3, 0.0, "costs by région")
    assert (second.id, second.gamma, second.mu, second.failure_delta) == (2, None, 0.05, 1e-7)
    assert first.time <= second.time
    with pytest.raises(AttributeError):
        first.mu = 0.0
    room = ledger.remaining()
    assert room.sketch_rows == 400
    assert room.mu == pytest.approx(math.sqrt(0.1**2 - 0.05**2), rel=1e-15)
    assert room.failure_delta == pytest.approx(9e-7, rel=1e-15)


def test_refusals_say_what_is_left_and_record_nothing(path):
    ledger = Ledger(path, **BUDGET, mu=0.1, failure_delta=1e-6)
    gamma = ledger.remaining().gamma
    ledger.spend(sketch_size=300, gamma=gamma)
    left = rf"Left in the ledger: 200 sketch rows at gamma ≥ {gamma!r}, mu ≤ 0\.1, failure_delta ≤ 1e-06\. Nothing was"
    below = math.nextafter(gamma, 0)
    for words, request in {
        "it asks for 201 sketch rows, 200 are left": {"sketch_size": 201, "gamma": gamma},
        f"its sketch has gamma={below!r}, the least is {gamma!r}": {"sketch_size": 1, "gamma": below},
        r"it asks for mu=0\.10000000000000002, 0\.1 is left": {"mu": math.nextafter(0.1, 1)},
        "it asks for failure_delta=2e-06, 1e-06 is left": {"failure_delta": 2e-6},
        "201 sketch rows, 200 are left; its sketch has .*; it asks for mu=1.0": {
            "sketch_size": 201,
            "gamma": below,
            "mu": 1.0,
        },
    }.items():
        with pytest.raises(BudgetExceededError, match=f"The release does not fit: .*{words}.*{left}"):
            ledger.spend(**request)
    assert len(ledger.entries()) == 1
    ledger.spend(sketch_size=200, gamma=gamma, mu=0.1, failure_delta=1e-6)  # all of it
    assert ledger.remaining() == type(ledger.remaining())(0, gamma, 0.0, 0.0, releases_left=0)
    for request in ({"sketch_size": 1, "gamma": gamma}, {"mu": 5e-324}, {"failure_delta": 5e-324}):
        with pytest.raises(BudgetExceededError):
            ledger.spend(**request)


RESERVED = Reservation("", 1.0, 1e-5, 500, 0.1, 1e-6, "zero-out", 50.0, 1e-5)


def gaussian(mu, failure_delta=0.0):
    return Entry(1, None, 0, None, mu, failure_delta, "")


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
    with pytest.raises(ValueError, match="more is recorded than was reserved"):
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
        entries.append(gaussian(min(mu, room.mu), min(failure, room.failure_delta)))
    room = room_left(RESERVED, entries)
    room_left(RESERVED, [*entries, gaussian(room.mu, room.failure_delta)])
    for beyond in (gaussian(math.nextafter(room.mu, 1)), gaussian(0.0, math.nextafter(room.failure_delta, 1))):
        with pytest.raises(ValueError):
            room_left(RESERVED, [*entries, beyond])


def fill(path, count, mu, note=""):
    """The rows that so many calls of spend would write, at once."""
    when = datetime(2026, 1, 1, tzinfo=UTC)

    def write(connection):
        _, entries, last = contents(connection)
        numbers = range(len(entries) + 1, len(entries) + 1 + count)
        append(connection, last, [Entry(i, when, 0, None, mu, 0.0, note) for i in numbers])

    ledger_store.transaction(path, write, begin="BEGIN IMMEDIATE")


def test_ten_thousand_small_releases_never_exceed_mu(path):
    ledger = Ledger(path, **BUDGET, mu=0.15)
    fill(path, 9_999, 0.0015)
    assert 10_000 * Fraction(0.0015) ** 2 > Fraction(0.15) ** 2  # by 1e-16 of it
    with pytest.raises(BudgetExceededError):
        ledger.spend(mu=0.0015)
    ledger.spend(mu=ledger.remaining().mu)
    assert sum(Fraction(entry.mu) ** 2 for entry in ledger.entries()) <= Fraction(0.15) ** 2


# ---------------------------------------------------------------------------------------------------------------
# Calibrations
def test_a_calibration_without_scale_bound_costs_its_rows(path):
    ledger = Ledger(path, **BUDGET)
    entry = ledger.spend_calibration(calibrate(0.5, 1e-6, sketch_size=300), note="n")
    assert (entry.sketch_size, entry.mu, entry.failure_delta, entry.note) == (300, 0.0, 0.0, "n")
    with pytest.raises(BudgetExceededError, match="its sketch has gamma"):  # exact for one release, too little for many
        ledger.spend_calibration(calibrate(1.0, 1e-5, sketch_size=100))
    ledger.spend_calibration(ledger.calibration(200))
    assert ledger.remaining().sketch_rows == 0


def test_a_private_scale_bound_costs_leverage_mu_and_failure(path):
    ledger = Ledger(path, epsilon=3.0, delta=1e-5, sketch_rows=500, mu=0.4, failure_delta=1e-6)
    paper = calibrate(1.0, 1e-6, sketch_size=250, scale="private", analysis="paper", eigenvalue_error=0.01)
    entry = ledger.spend_calibration(paper)
    assert entry.gamma == paper.gamma - 1
    assert entry.mu == pytest.approx(1.02 / paper.eta, rel=1e-15)
    assert Fraction(entry.mu) >= (1 + 2 * Fraction(0.01)) / Fraction(paper.eta)
    assert stats.norm.sf(paper.tau) < entry.failure_delta < stats.norm.sf(paper.tau) * (1 + 1e-9)
    with pytest.raises(BudgetExceededError, match=r"it asks for failure_delta=0\.\d+, 9.*e-07 is left"):
        ledger.spend_calibration(calibrate(1.0, 1e-6, sketch_size=250, scale="private"))
    assert len(ledger.entries()) == 1


def test_a_private_scale_bound_needs_gamma_one_above_the_least(path):
    ledger = Ledger(path, epsilon=3.0, delta=1e-5, sketch_rows=500, mu=0.4, failure_delta=1e-6)
    paper = calibrate(1.0, 1e-6, sketch_size=250, scale="private", analysis="paper")
    least = ledger.remaining().gamma

    def with_gamma(gamma):  # a true claim, if a large one
        return replace(paper, gamma=gamma, epsilon=9.0, epsilon_spent=9.0)

    with pytest.raises(BudgetExceededError, match="its sketch has gamma"):
        ledger.spend_calibration(with_gamma(least + 0.999))
    ledger.spend_calibration(with_gamma(math.nextafter(least + 1, math.inf)))


def test_a_calibration_for_other_neighbours_is_refused(path):
    ledger = Ledger(path, **BUDGET)
    with pytest.raises(ValueError, match="ledger is for relation='zero-out', the calibration for 'replace-one'"):
        ledger.spend_calibration(calibrate(0.5, 1e-6, sketch_size=10, relation="replace-one"))


# ---------------------------------------------------------------------------------------------------------------
# Adversaries who choose on the way. For a pair of tables that attains every leverage, δ after a sequence of choices is
# an expectation over the losses of the releases made; the best choice at each point is a maximum over what is allowed.
class Move(NamedTuple):
    k: int = 0
    gamma: float | None = None
    mu: float = 0.0


GRID = np.union1d(np.arange(-400, 501) / 100, np.arange(-75, 76) / 500)  # ε left; finer where small releases turn
CRUMB = 1e-6  # a μ that rounding leaves over, too small for the grid and for any effect


def sketch_loss(move, direction):
    make = ChiSquareLoss.removal if direction == "remove" else ChiSquareLoss.addition
    return make(move.k, odds=1 / move.gamma)


def last(move, direction, epsilon=GRID):
    """δ at each ε if ``move`` is all that follows."""
    if move.k == 0:
        return gaussian_hockey_stick(epsilon, move.mu)
    return hockey_stick_composed(epsilon, (sketch_loss(move, direction),), mu=move.mu).value


def then(move, value, direction, epsilon=GRID):
    """E[value(ε - L)] over the loss L of a move, ``value`` given on the grid; interpolated in its logarithm."""
    if move.k and move.mu:  # side by side: one after the other
        return then(Move(mu=move.mu), then(move._replace(mu=0.0), value, direction), direction, epsilon)
    if move.k:
        y, weights = composite_rule(np.linspace(0, math.sqrt(move.k) + 9, 120), 4)
        loss = sketch_loss(move, direction)
        losses, weights = loss.mean + loss.slope * (y * y - move.k), weights * stats.chi.pdf(y, move.k)
    else:
        z, weights = composite_rule(np.linspace(-9, 9, 80), 4)
        losses, weights = move.mu**2 / 2 + move.mu * z, weights * stats.norm.pdf(z)
    log_value = interpolate.PchipInterpolator(GRID, np.log(np.maximum(value, 1e-300)))
    return np.exp(log_value(np.clip(np.subtract.outer(epsilon, losses), GRID[0], GRID[-1]))) @ weights


def spend(ledger, move):
    return ledger.spend(sketch_size=move.k, gamma=move.gamma, mu=move.mu)


def allowed(path, move):
    """The file of the ledger after a move, or None where it is refused."""
    after = path.with_name(f"{path.name}+")
    shutil.copy(path, after)
    try:
        spend(Ledger.open(after), move)
    except BudgetExceededError:
        return None
    return after


def worst(path, menu, rounds, direction, known):
    """Largest δ at each ε that an adversary reaches in some rounds through the ledger; depends on the room alone."""
    room = Ledger.open(path).remaining()
    if (room, rounds) not in known:
        values = [np.maximum(-np.expm1(np.minimum(GRID, 0)), 1e-300)]  # no release
        for move in menu(room):
            after = allowed(path, move)
            if after is None:
                continue
            left = Ledger.open(after).remaining()
            if rounds == 1 or (left.sketch_rows == 0 and left.mu < CRUMB):
                values.append(last(move, direction))
            else:
                values.append(then(move, worst(after, menu, rounds - 1, direction, known), direction))
        known[room, rounds] = np.max(values, axis=0)
    return known[room, rounds]


def naive_choices(epsilon, delta, k, share):
    """A first sketch that takes a share of δ, and three second releases each of which exhausts (ε, δ) beside it."""

    def least(spent):
        return smallest_safe(lambda x: log_excess(spent(x), delta), 1e-3, 2.0, limit=1e9, log=True, rtol=1e-9)

    first = Move(k, calibrate(epsilon, share * delta, sketch_size=k).gamma)
    loss = sketch_loss(first, "remove")

    def beside(k, gamma):
        other = ChiSquareLoss.removal(k, odds=1 / gamma)
        return float(hockey_stick_composed(epsilon, (loss, other)).upper)

    mu = 1 / least(lambda noise: float(hockey_stick_composed(epsilon, (loss,), mu=1 / noise).upper))
    sketches = [Move(k, least(lambda gamma, k=k: beside(k, gamma))) for k in (1, 1000)]
    return first, [Move(mu=mu), *sketches]


@pytest.mark.parametrize(("epsilon", "delta", "k", "exceeded"), [(1.0, 1e-5, 57, 1.5), (3.0, 1e-6, 57, 1.6)])
def test_composing_what_was_spent_is_not_private(epsilon, delta, k, exceeded):
    """Each choice alone meets δ; choosing by the loss of the first release exceeds it."""
    first, choices = naive_choices(epsilon, delta, k, share=0.02)
    curves = [last(choice, "remove") for choice in choices]
    at = np.array([epsilon])
    for curve in curves:
        assert then(first, curve, "remove", at)[0] == pytest.approx(delta, rel=1e-4)
    assert then(first, np.max(curves, axis=0), "remove", at)[0] > exceeded * delta


def test_the_ledger_refuses_the_counterexample(tmp_path):
    """No ledger of this budget lets the first sketch pass and then leaves more than one of the three choices open."""
    epsilon, delta = 1.0, 1e-5
    first, choices = naive_choices(epsilon, delta, 57, share=0.02)
    reservations = [(57, choices[0].mu), (58, 0.0), (1057, 0.0), (1057, choices[0].mu), (57, 0.05), (58, choices[0].mu)]
    open_choices = []
    for number, (rows, mu) in enumerate(reservations):
        path = tmp_path / str(number)
        Ledger(path, epsilon=epsilon, delta=delta, sketch_rows=rows, mu=mu * (1 - 1e-6))
        after = allowed(path, first)
        open_choices.append(
            [] if after is None else [c for c in choices if allowed(after, c._replace(mu=c.mu * (1 - 1e-6)))]
        )
    assert open_choices[0] == choices[:1]  # reserved for the Gaussian: that one and no other
    assert all(len(left) <= 1 for left in open_choices)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_no_adversary_exceeds_delta_through_the_ledger(path, direction):
    """Three rounds; in each the adversary sees all losses so far and takes the best of the moves that fit."""
    epsilon, delta = 1.0, 1e-5
    first, choices = naive_choices(epsilon, delta, 57, share=0.02)
    reserved = Ledger(path, epsilon=epsilon, delta=delta, sketch_rows=257, mu=0.08).reservation

    def menu(room):
        moves = [first, *choices]
        if room.mu > CRUMB:
            moves += [Move(mu=room.mu), Move(mu=room.mu / 2)]
        if room.sketch_rows > 0:
            half = math.ceil(room.sketch_rows / 2)
            moves += [Move(half, room.gamma), Move(half, 1.5 * room.gamma), Move(room.sketch_rows, room.gamma)]
            moves += [Move(room.sketch_rows, room.gamma, room.mu)]  # everything that is left
        return moves

    at = np.array([epsilon])
    everything = last(Move(257, reserved.gamma, 0.08), direction, at)[0]
    known = {}
    for rounds in (1, 2, 3):
        (reached,) = worst(path, menu, rounds, direction, known)[epsilon == GRID]
        assert reached <= delta * (1 + 1e-6)  # interpolation
        assert reached == pytest.approx(everything, rel=1e-6)  # nothing is worse than the reserved pair itself
    if direction == "remove":
        assert everything == pytest.approx(delta, rel=1e-6)


# ---------------------------------------------------------------------------------------------------------------
# Processes
def processes():
    """Fresh processes that inherit no connection; forked from a clean server where there is one, for speed."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "gaussmix.ledger"])
    return context


@pytest.mark.parametrize("kind", ["sketch", "gaussian"])
def test_twenty_processes_race_for_room_for_seven(path, kind):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5, sketch_rows=79, mu=0.1)
    gamma, seventh = ledger.remaining().gamma, 0.1 / math.sqrt(7) * (1 - 1e-9)
    request = {"sketch_size": 11, "gamma": gamma} if kind == "sketch" else {"mu": seventh}
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
    ledger = Ledger(path, epsilon=1.0, delta=1e-5, sketch_rows=100_000, mu=0.01)
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
    assert ledger.remaining().sketch_rows == 100_000 - recorded
    ledger.spend(mu=1e-6)  # and it goes on


# ---------------------------------------------------------------------------------------------------------------
# The file
def test_reopening_goes_on_where_it_was(path):
    ledger = Ledger(path, **BUDGET, mu=0.1)
    ledger.spend(sketch_size=100, gamma=1e3)
    for again in (Ledger(path, **BUDGET, mu=0.1), Ledger.open(str(path)), pickle.loads(pickle.dumps(ledger))):
        assert again.reservation == ledger.reservation
        assert again.remaining() == ledger.remaining()
        assert again.path == path
    assert repr(ledger) == (
        f"Ledger({str(path)!r}, epsilon=1.0, delta=1e-05, sketch_rows=500, mu=0.1, failure_delta=0.0, "
        "relation='zero-out', releases=1)"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 2.0}, r"epsilon is 1\.0, not 2\.0"),
        ({"delta": 1e-6}, "delta is 1e-05, not 1e-06"),
        ({"sketch_rows": 501}, "sketch_rows is 500, not 501"),
        ({"mu": 0.0}, r"mu is 0\.1, not 0\.0"),
        ({"failure_delta": 1e-9}, r"failure_delta is 0\.0, not 1e-09"),
        ({"relation": "replace-one"}, "relation is 'zero-out', not 'replace-one'"),
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
        Ledger(path, **BUDGET).spend(sketch_size=1, gamma=1e3)
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
    Ledger(name, **BUDGET).spend(sketch_size=1, gamma=1e3)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert len(Ledger.open(tmp_path / name).entries()) == 1


def test_missing_directory_and_missing_file(tmp_path, path):
    with pytest.raises(MissingFileError, match=r"There is no directory .*nowhere for the ledger; create it first"):
        Ledger(tmp_path / "nowhere" / "x.ledger", **BUDGET)
    with pytest.raises(MissingFileError, match=r"There is no ledger .*rows\.ledger; create it with Ledger\(path"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="is a directory, not a ledger"):
        Ledger.open(tmp_path)
    ledger = Ledger(path, **BUDGET)
    path.unlink()
    with pytest.raises(MissingFileError, match=r"The ledger .* is gone\. Nothing was recorded"):
        ledger.spend(sketch_size=1, gamma=1e3)
    assert not path.exists()  # never made anew by a release


def test_a_ledger_put_in_its_place_is_noticed(path):
    ledger = Ledger(path, **BUDGET)
    path.unlink()
    Ledger(path, **BUDGET)
    with pytest.raises(LedgerError, match="has been replaced by another ledger since it was opened"):
        ledger.spend(sketch_size=1, gamma=1e3)


@pytest.mark.parametrize("suffix", ["wal", "journal"])
def test_remains_of_a_deleted_ledger_are_not_ignored(path, suffix):
    path.with_name(f"{path.name}-{suffix}").write_bytes(b"spent")
    with pytest.raises(
        LedgerError, match=rf"is missing but rows\.ledger-{suffix}, which may hold what was spent, is there"
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
    with pytest.raises(LedgerError, match=r"rows\.ledger is damaged\. Restore it from a copy that has every release"):
        Ledger.open(path)
    with pytest.raises(LedgerError):
        Ledger(path, **BUDGET, mu=0.1)


def test_a_ledger_held_by_another_process_is_an_error_in_the_end(path, monkeypatch):
    ledger = Ledger(path, **BUDGET)
    monkeypatch.setattr("gaussmix.ledger.store.BUSY_SECONDS", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match=r"held by another process for 0\.2 seconds\. Nothing was recorded"):
        ledger.spend(sketch_size=1, gamma=1e3)
    assert ledger.remaining().sketch_rows == 500  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    ledger.spend(sketch_size=1, gamma=1e3)


# ---------------------------------------------------------------------------------------------------------------
# Bad arguments
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, r"epsilon must be a finite number > 0, got 0\.0\."),
        ({"epsilon": math.inf}, ValueError, r"epsilon must be a finite number > 0, got inf\."),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number, got '1'"),
        ({"delta": 0.0}, ValueError, r"delta must lie in \(0, 1\), got 0\.0\."),
        ({"sketch_rows": 0}, ValueError, "sketch_rows must be an integer ≥ 1, got 0"),
        ({"sketch_rows": 2.5}, TypeError, r"sketch_rows must be an integer ≥ 1, got 2\.5"),
        ({"mu": -0.1}, ValueError, r"mu must be a finite number ≥ 0, got -0\.1\."),
        ({"mu": math.nan}, ValueError, "mu must be a real number, got nan"),
        ({"failure_delta": 1e-5}, ValueError, "failure_delta is a part of delta=1e-05 and must be less, got 1e-05"),
        ({"failure_delta": -1.0}, ValueError, "failure_delta must be a finite number ≥ 0"),
        ({"releases": 0}, ValueError, "releases must be an integer ≥ 1, got 0"),
        ({"releases": 1.5}, TypeError, r"releases must be an integer ≥ 1, got 1\.5"),
        ({"relation": "swap"}, ValueError, "relation must be one of 'zero-out', 'replace-one', got 'swap'"),
        (
            {"mu": 1.0},
            ValueError,
            r"mu=1\.0 share epsilon=1\.0 and delta=1e-05 .* Without any sketch mu could be 0\.26",
        ),
    ],
)
def test_bad_budget(path, change, error, words):
    with pytest.raises(error, match=words):
        Ledger(path, **{**BUDGET, **change})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({}, ValueError, "A release spends something: give sketch_size and gamma, or mu, or failure_delta"),
        (
            {"sketch_size": 5},
            ValueError,
            "gamma goes with a sketch: give both or neither, got sketch_size=5, gamma=None",
        ),
        ({"gamma": 5.0}, ValueError, "gamma goes with a sketch"),
        ({"sketch_size": -1, "gamma": 90.0}, ValueError, "sketch_size must be an integer ≥ 1, got -1"),
        ({"sketch_size": False, "mu": 0.1}, TypeError, "sketch_size must be an integer ≥ 1, got False"),
        ({"sketch_size": 1.5, "gamma": 90.0}, TypeError, r"sketch_size must be an integer ≥ 1, got 1\.5"),
        ({"sketch_size": 1, "gamma": math.inf}, ValueError, "gamma must be a finite number > 0, got inf"),
        ({"sketch_size": 1, "gamma": math.nan}, ValueError, "gamma must be a real number, got nan"),
        ({"mu": -0.01}, ValueError, r"mu must be a finite number ≥ 0, got -0\.01"),
        ({"mu": math.inf}, ValueError, "mu must be a finite number ≥ 0, got inf"),
        ({"failure_delta": math.nan}, ValueError, "failure_delta must be a real number, got nan"),
        ({"mu": 0.01, "note": 7}, TypeError, "note must be a string, got int"),
    ],
)
def test_bad_request(path, request_, error, words):
    ledger = Ledger(path, **BUDGET, mu=0.1)
    with pytest.raises(error, match=words):
        ledger.spend(**request_)
    assert ledger.entries() == []
