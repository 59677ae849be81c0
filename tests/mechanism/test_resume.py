"""A release that stops after its first draw is resumed: one entry, nothing drawn twice, no other release."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main
from gaussmix.errors import ArgumentError, DamagedError, LedgerError, MissingFileError, OutputError, OutputExistsError
from gaussmix.mechanism import noise, passes
from gaussmix.mechanism.journal import Journal
from gaussmix.mechanism.release import Prepared
from gaussmix.releases.certificate import RESUMED
from gaussmix.releases.file import partial_path, unfinished_id

OUTPUTS = 10  # two of marginals, first pass, count, and a histogram and a matrix for each of three passes
UNIT = gm.PrivacyUnit("who", 3)


class Stopped(Exception):  # noqa: N818 - not an error of the library: the process ends here
    pass


@pytest.fixture
def table():
    return patients(3000)


@pytest.fixture
def ledger(tmp_path):
    return gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=1)


@pytest.fixture
def draws(monkeypatch):
    """The sizes of all exact draws of noise, in their order."""
    sizes: list[int] = []
    exact = noise._opendp_draws

    def counted(count, sigma):
        sizes.append(count)
        return exact(count, sigma)

    monkeypatch.setattr(noise, "_opendp_draws", counted)
    return sizes


def stop_at(monkeypatch, number, when):
    """Stop before output ``number``, from 0, is drawn; between draw and record; or when it was recorded."""
    answer, append = Journal.answer, Journal._append
    state = {"number": 0}

    def stopping(self, draw):
        if when == "before" and state["number"] == number:
            raise Stopped
        found = answer(self, draw)
        if when == "after" and state["number"] == number:
            raise Stopped
        state["number"] += 1
        return found

    def unwritten(self, question, output):
        if when == "between" and state["number"] == number:
            raise Stopped
        append(self, question, output)

    monkeypatch.setattr(Journal, "answer", stopping)
    monkeypatch.setattr(Journal, "_append", unwritten)
    return lambda: (monkeypatch.setattr(Journal, "answer", answer), monkeypatch.setattr(Journal, "_append", append))


def stored(path):
    """The outputs in the file of an unfinished release, read without checking declarations."""
    declared = json.loads(path.read_bytes().split(b"\n", 3)[2])["declared"]
    journal = Journal(path, declared)
    with open(path, "rb") as journal._file:
        journal._load()
    return [output for _, output in journal._stored]


def outputs_of(private):
    """The outputs of a release that its file holds: marginals and matrices."""
    transcript = private.statistic
    marginals = transcript.marginals
    return [
        marginals.counts,
        np.concatenate([marginals.sums, marginals.squares]),
        *(p.matrix for p in transcript.passes),
    ]


@pytest.mark.parametrize("when", ["before", "between", "after"])
@pytest.mark.parametrize("number", range(OUTPUTS))
def test_a_failure_in_every_phase(tmp_path, table, ledger, draws, monkeypatch, number, when):
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)
    undo = stop_at(monkeypatch, number, when)
    with pytest.raises(Stopped) as caught:
        gm.release(table, SCHEMA, budget=budget, out=out)
    undo()
    assert "resume=True" in caught.value.__notes__[0]
    assert not out.exists()
    kept = stored(partial_path(out))
    assert len(kept) == number + (when == "after")
    (entry,) = ledger.entries()
    first = len(draws)
    private = gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    assert ledger.entries() == [entry]
    assert (private.certificate.release, private.certificate.entry) == (entry.release, 1)
    assert private.certificate.account.mu == entry.mu
    assert RESUMED in private.certificate.conditions
    assert gm.load(out).statistic.noise_p_value == private.statistic.noise_p_value
    final = outputs_of(private)
    for output in kept:
        if len(output) in {len(found) for found in final} and output.ndim == 2:
            assert any(np.array_equal(output, found) for found in final)
    for output, found in zip(kept[:2], final[:2], strict=False):
        assert np.array_equal(output, found)
    # A matrix is two draws; an output drawn but not recorded is the only one that is drawn again.
    whole = [1, 1, 2, 1, 1, 2, 1, 2, 1, 2]
    assert len(draws) - first == sum(whole[len(kept) :])
    assert first == sum(whole[: number + (when != "before")])
    assert not partial_path(out).exists()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("l.ledger")) == ["x.parquet"]


@pytest.mark.parametrize("unit", [None, UNIT], ids=["rows", "units"])
def test_every_output_is_followed_by_the_same_computations(tmp_path, table, monkeypatch, unit):
    """Stopped after every output in turn, a release is the one that its outputs determine, without a ledger too."""
    rows = table.assign(who=np.arange(len(table)) // 2)
    out, options = tmp_path / "x.parquet", {"epsilon": 2.0, "delta": 1e-6, "privacy_unit": unit}
    undo, kept, number = stop_at(monkeypatch, 0, "after"), [], 0
    while True:
        try:
            private = gm.release(rows, SCHEMA, **options, out=out, resume=number > 0)
            break
        except Stopped:
            undo()
            now = stored(partial_path(out))
            assert len(now) == number + 1
            for before, same in zip(kept, now, strict=False):
                assert np.array_equal(before, same)
            kept, number = now, number + 1
            undo = stop_at(monkeypatch, number, "after")
    undo()
    assert number == OUTPUTS + (unit is not None)
    assert private.statistic.noise_p_value > 1e-6
    matrices = [output for output in kept if output.ndim == 2]
    assert [np.array_equal(a, b.matrix) for a, b in zip(matrices, private.statistic.passes, strict=True)] == [True] * 4


def test_a_release_in_one_pass_and_a_failure_to_write(tmp_path, table, monkeypatch):
    out, written = tmp_path / "x.parquet", Prepared._written

    def fail(self, private):
        raise OutputError("No space left on device.")

    for passes_ in (1, 4):
        own = gm.Ledger(tmp_path / f"{passes_}.ledger", epsilon=1.0, delta=1e-6)
        budget = gm.Budget(ledger=own)
        monkeypatch.setattr(Prepared, "_written", fail)
        with pytest.raises(OutputError):
            gm.release(table, SCHEMA, budget=budget, passes=passes_, out=out)
        monkeypatch.setattr(Prepared, "_written", written)
        kept = stored(partial_path(out))
        monkeypatch.setattr(passes, "discrete_gaussian", None)  # nothing is drawn any more
        monkeypatch.setattr(passes, "symmetric_noise", None)
        private = gm.release(table, SCHEMA, budget=budget, passes=passes_, out=out, resume=True)
        monkeypatch.undo()
        assert np.array_equal(kept[-1], private.statistic.passes[-1].matrix)
        assert len(own.entries()) == 1
        out.unlink()


def test_other_declarations_are_refused(tmp_path, table, monkeypatch, draws):
    file, other = tmp_path / "rows.parquet", tmp_path / "other.parquet"
    rows = table.assign(who=np.arange(len(table)) // 2)
    for path in (file, other):
        rows.to_parquet(path)
    out, options = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6, "passes": 3}
    undo = stop_at(monkeypatch, 4, "after")
    with pytest.raises(Stopped):
        gm.release(file, SCHEMA, **options, out=out)
    undo()
    before, drawn = partial_path(out).read_bytes(), len(draws)
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6)
    for data, schema, changed, what in (
        (other, SCHEMA, {}, "table"),
        (rows, SCHEMA, {}, "table"),
        (file, {**SCHEMA, "age": [0, 121]}, {}, "schema"),
        (file, SCHEMA, {"epsilon": 1.1}, "budget"),
        (file, SCHEMA, {"delta": 1e-7}, "budget"),
        (file, SCHEMA, {"passes": 4}, "passes"),
        (file, SCHEMA, {"topcode": None}, "topcode"),
        (file, SCHEMA, {"privacy_unit": UNIT}, "privacy_unit"),
        (file, SCHEMA, {"epsilon": None, "delta": None, "budget": gm.Budget(ledger=ledger)}, "budget, ledger"),
        (
            file,
            SCHEMA,
            {"epsilon": None, "delta": None, "budget": gm.Budget(1.0, 1e-6, neighbours="replace-one")},
            "budget",
        ),
    ):
        with pytest.raises(ArgumentError, match=rf"different declarations \({what}\).*Nothing was drawn"):
            gm.release(data, schema, **{**options, **changed}, out=out, resume=True)
    assert partial_path(out).read_bytes() == before
    assert len(draws) == drawn
    assert ledger.entries() == []
    with pytest.raises(OutputExistsError, match=r"resume=True .* Nothing was spent"):
        gm.release(file, SCHEMA, **options, out=out, force=True)
    for wrong, error in (({"out": tmp_path / "y.parquet"}, MissingFileError), ({"out": None}, ArgumentError)):
        with pytest.raises(error):
            gm.release(file, SCHEMA, **options, **wrong, resume=True)
    with pytest.raises(ArgumentError, match="Omit random_state"):
        gm.release(file, SCHEMA, **options, out=out, resume=True, random_state=0)
    assert gm.release(file, SCHEMA, **options, out=out, resume=True).certificate.epsilon == 1.0


def test_another_preconditioner_is_refused(tmp_path, table, monkeypatch):
    """A processor that rounds otherwise would pair the stored outputs with other public parameters."""
    out, options = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6}
    undo = stop_at(monkeypatch, 5, "after")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, **options, out=out)
    undo()
    plan = passes.plan_pass

    def nudged(*arguments):
        request = plan(*arguments)
        return passes.replace(request, clip=np.nextafter(request.clip, 9))

    with monkeypatch.context() as patch:
        patch.setattr(passes, "plan_pass", nudged)
        with pytest.raises(ArgumentError, match="different preconditioner"):
            gm.release(table, SCHEMA, **options, out=out, resume=True)
    assert gm.release(table, SCHEMA, **options, out=out, resume=True).certificate.is_private


def test_incomplete_records_are_drawn_again_and_damage_is_found(tmp_path, table, monkeypatch):
    out, options = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6}
    undo = stop_at(monkeypatch, 3, "after")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, **options, out=out)
    undo()
    partial = partial_path(out)
    whole, kept = partial.read_bytes(), stored(partial)
    end = len(whole.rstrip(b"\0"))
    partial.write_bytes(whole[: end - 5] + bytes(len(whole) - end + 5))
    assert len(stored(partial)) == 3
    partial.write_bytes(b"something else\n" + whole)
    with pytest.raises(DamagedError):
        gm.release(table, SCHEMA, **options, out=out, resume=True)
    partial.write_bytes(whole.replace(b"release\n1\n", b"release\n7\n", 1))
    with pytest.raises(DamagedError, match="has format 7"):
        gm.release(table, SCHEMA, **options, out=out, resume=True)
    partial.write_bytes(whole[: end - 5] + bytes(len(whole) - end + 5))
    private = gm.release(table, SCHEMA, **options, out=out, resume=True)
    assert np.array_equal(private.statistic.passes[0].matrix, kept[2])


@pytest.mark.parametrize("place", [b"{", b"shape", b"\n"], ids=["begin", "line", "numbers"])
def test_a_damaged_output_that_others_follow_is_refused(tmp_path, table, monkeypatch, draws, place):
    """The outputs after it were drawn from it: drawing them again would release them twice."""
    out, options = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6}
    partial = interrupted(monkeypatch, table, out, after=5, **options)
    whole, drawn = partial.read_bytes(), len(draws)
    starts = [start for start in range(len(whole)) if whole.startswith(b'{"question": ', start)]
    assert len(starts) == 6
    for number, start in enumerate(starts):
        damaged = bytearray(whole)
        damaged[whole.index(place, start) + len(place)] ^= 1
        partial.write_bytes(damaged)
        if number == 5:
            assert len(stored(partial)) == 5
            continue
        with pytest.raises(DamagedError, match=r"is damaged.*Nothing was drawn"):
            gm.release(table, SCHEMA, **options, out=out, resume=True)
        partial.write_bytes(damaged.replace(b'{"question": ', b"?"))  # no record can be recognised
        if number == 0:
            with pytest.raises(DamagedError, match=r"is damaged.*Nothing was drawn"):
                gm.release(table, SCHEMA, **options, out=out, resume=True)
    assert len(draws) == drawn


@pytest.mark.parametrize("kind", ["per_unit", "within"])
def test_tables_of_features_and_of_deviations_are_resumed(tmp_path, table, monkeypatch, kind):
    """They are computed again, in another temporary file."""
    pytest.importorskip("duckdb")
    rows, out = table.assign(who=np.arange(len(table)) // 2), tmp_path / "x.parquet"

    def computed():
        if kind == "per_unit":
            return gm.per_unit(rows, unit="who", age=gm.mean("age", bounds=(0, 120))), {"age": [0, 120]}, None
        found = gm.within(rows, unit="who", columns={"age": (0, 120)})
        return found, {name: list(pair) for name, pair in found.bounds.items()}, UNIT

    def released(*, resume):
        data, schema, unit = computed()
        return gm.release(data, schema, epsilon=1.0, delta=1e-6, privacy_unit=unit, out=out, resume=resume)

    undo = stop_at(monkeypatch, 3, "after")
    with pytest.raises(Stopped):
        released(resume=False)
    undo()
    kept = stored(partial_path(out))
    private = released(resume=True)
    assert RESUMED in private.certificate.conditions
    assert np.array_equal(private.statistic.marginals.counts, kept[0])


def test_a_query_is_resumed_through_another_function(tmp_path, monkeypatch):
    """As in another process: only the text of the query stays the same."""
    database, out = tmp_path / "rows.db", tmp_path / "x.parquet"
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create table rows (x real)")
        connection.executemany("insert into rows values (?)", [(i % 50,) for i in range(2000)])

    functions = []  # kept, so that each has an address of its own

    def released(sql, *, resume):
        functions.append(lambda: sqlite3.connect(database))
        query = gm.Query(functions[-1], sql)
        reading = gm.ReadOptions(row_by_row=True)
        return gm.release([query], {"x": [0, 50]}, epsilon=1.0, delta=1e-6, reading=reading, out=out, resume=resume)

    undo = stop_at(monkeypatch, 3, "after")
    with pytest.raises(Stopped):
        released("select x from rows", resume=False)
    undo()
    kept = stored(partial_path(out))
    with pytest.raises(ArgumentError, match=r"different declarations \(table\)"):
        released("select x from rows where x > 1", resume=True)
    private = released("select x from rows", resume=True)
    assert np.array_equal(private.statistic.marginals.counts, kept[0])


def test_standard_input_is_resumed(tmp_path, table, monkeypatch):
    """Its copy is in another folder in each run."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    out = tmp_path / "x.parquet"
    arguments = ["release", "-", "-s", tmp_path / "schema.json", "--epsilon", "1", "--delta", "1e-6", "-o", out]

    def run(*more):
        return CliRunner().invoke(main, [*map(str, arguments), *more], input=table.to_csv(index=False))

    undo = stop_at(monkeypatch, 3, "after")
    assert run().exit_code
    undo()
    assert len(stored(partial_path(out))) == 4
    resumed = run("--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert RESUMED in gm.load(out).certificate.conditions


def test_one_process_at_a_time(tmp_path, table, monkeypatch):
    out, options = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6}
    undo = stop_at(monkeypatch, 3, "after")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, **options, out=out)
    undo()
    seen = []

    def second(*arguments, **named):
        with pytest.raises(OutputError, match="in use"):
            gm.release(table, SCHEMA, **options, out=out, resume=True)
        seen.append(True)
        return draw(*arguments, **named)

    draw = passes.symmetric_noise
    monkeypatch.setattr(passes, "symmetric_noise", second)
    gm.release(table, SCHEMA, **options, out=out, resume=True)
    assert seen


@pytest.mark.parametrize("error", [None, OSError(errno.ENOLCK, "No locks available")], ids=["nothing", "error"])
def test_a_folder_without_working_locks_is_refused(tmp_path, table, ledger, monkeypatch, draws, error):
    """Two processes that resume one release there would answer one question with different noise."""
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)

    def unlocked(*_):
        if error is not None:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", unlocked)
        with pytest.raises(OutputError, match="File locks do not work in"):
            gm.release(table, SCHEMA, budget=budget, out=out)
        assert (ledger.entries(), draws) == ([], [])
        assert not [path for path in tmp_path.iterdir() if not path.name.startswith("l.ledger")]
    undo = stop_at(monkeypatch, 3, "after")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, budget=budget, out=out)
    undo()
    drawn = len(draws)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", unlocked)
        with pytest.raises(OutputError, match="File locks do not work in"):
            gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    assert len(draws) == drawn
    assert RESUMED in gm.release(table, SCHEMA, budget=budget, out=out, resume=True).certificate.conditions


def test_a_release_that_was_written_is_not_drawn_again(tmp_path, table, ledger, monkeypatch, draws):
    """The process ends between the file of the release and the deletion of its outputs."""
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "discard", lambda self: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            gm.release(table, SCHEMA, budget=budget, out=out)
    assert unfinished_id(partial_path(out)) == gm.load(out).certificate.release
    drawn = len(draws)
    with pytest.raises(ArgumentError, match=r"different declarations \(passes\)"):
        gm.release(table, SCHEMA, budget=budget, passes=2, out=out, resume=True)
    assert partial_path(out).exists()
    private = gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    assert private.to_bytes() == gm.load(out).to_bytes()
    assert len(draws) == drawn
    assert not partial_path(out).exists()


def test_what_is_stored_does_not_depend_on_the_rows(tmp_path, table, monkeypatch):
    """Declarations and noisy outputs: nothing else differs between tables, not even a length."""
    contents = []
    for number, rows in enumerate((table, table[:1500])):
        folder = tmp_path / str(number)
        folder.mkdir()
        undo = stop_at(monkeypatch, 7, "after")
        with pytest.raises(Stopped):
            gm.release(rows, SCHEMA, epsilon=1.0, delta=1e-6, out=folder / "x.parquet")
        undo()
        partial = partial_path(folder / "x.parquet")
        assert partial.stat().st_mode & 0o777 == 0o600
        header = partial.read_bytes().split(b"\n", 3)[2].replace(unfinished_id(partial).encode(), b"")
        header = header.replace(str(folder.resolve()).encode(), b"")
        contents.append((len(partial.read_bytes()), header, [output.shape for output in stored(partial)]))
    assert contents[0] == contents[1]


def test_nothing_is_left_of_a_release_that_costs_nothing(tmp_path, table, ledger, monkeypatch):
    out = tmp_path / "x.parquet"
    with pytest.raises(ValueError, match="not among its declared levels"):
        gm.release(table.assign(sex="?"), SCHEMA, epsilon=1.0, delta=1e-6, out=out)
    charge = gm.Budget.charge

    def late(self, *arguments, **options):  # another process spends the rest first
        gm.Ledger.open(ledger.path).spend(mu=ledger.reservation.mu)
        return charge(self, *arguments, **options)

    monkeypatch.setattr(gm.Budget, "charge", late)
    with pytest.raises(gm.errors.BudgetExceededError) as caught:
        gm.release(table, SCHEMA, budget=gm.Budget(ledger=ledger), out=out)
    assert not hasattr(caught.value, "__notes__")
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("l.ledger")] == []


def test_a_release_charged_twice_in_no_case(tmp_path, table, ledger, monkeypatch):
    """Stopped after the file has its name and before the ledger is charged: resuming charges it, once."""
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)
    with monkeypatch.context() as patch:
        patch.setattr(gm.Budget, "charge", lambda *_, **__: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            gm.release(table, SCHEMA, budget=budget, out=out)
    assert ledger.entries() == []
    undo = stop_at(monkeypatch, 0, "before")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    undo()
    assert len(ledger.entries()) == 1
    assert gm.release(table, SCHEMA, budget=budget, out=out, resume=True).certificate.entry == 1
    assert len(ledger.entries()) == 1


def edit_header(path, change):
    """Change the header of an unfinished release, and drop its records."""
    magic, version, header, _ = path.read_bytes().split(b"\n", 3)
    content = json.loads(header)
    change(content)
    path.write_bytes(b"\n".join((magic, version, json.dumps(content).encode(), b"")))


def header_of(path):
    return json.loads(path.read_bytes().split(b"\n", 3)[2])


def interrupted(monkeypatch, table, out, *, after=0, **options):
    undo = stop_at(monkeypatch, after, "after")
    with pytest.raises(Stopped):
        gm.release(table, SCHEMA, out=out, **options)
    undo()
    return partial_path(out)


def test_an_account_that_the_call_could_not_have_chosen_is_refused(tmp_path, table, monkeypatch, draws):
    """The stored account is compared with the budget of the call and with the ledger's entry: an edit buys nothing."""
    pair = {"epsilon": 1.0, "delta": 1e-6}
    partial = interrupted(monkeypatch, table, tmp_path / "x.parquet", **pair)
    larger = interrupted(monkeypatch, table, tmp_path / "y.parquet", epsilon=50.0, delta=1e-6)
    edit_header(partial, lambda header: header.update(account=header_of(larger)["account"]))
    drawn = len(draws)
    with pytest.raises(
        ArgumentError, match=r"The noise recorded in .* differs from that of this call.*Nothing was drawn"
    ):
        gm.release(table, SCHEMA, **pair, out=tmp_path / "x.parquet", resume=True)
    assert len(draws) == drawn


@pytest.mark.parametrize("is_charged", [True, False])
def test_an_account_with_more_than_the_share_of_the_ledger_is_refused(tmp_path, table, monkeypatch, draws, is_charged):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=100)
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)
    with monkeypatch.context() as patch:
        if not is_charged:
            patch.setattr(gm.Budget, "charge", lambda *_, **__: (_ for _ in ()).throw(Stopped))
        partial = interrupted(monkeypatch, table, out, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(gm.Budget, "charge", lambda *_, **__: (_ for _ in ()).throw(Stopped))
        larger = gm.Budget(ledger=ledger, share=0.9)
        with pytest.raises(Stopped):
            gm.release(table, SCHEMA, budget=larger, out=tmp_path / "y.parquet")
    own, other = header_of(partial)["account"], header_of(partial_path(tmp_path / "y.parquet"))["account"]
    edit_header(partial, lambda header: header.update(account=other))
    drawn, before = len(draws), ledger.entries()
    with pytest.raises(
        ArgumentError, match=r"The noise recorded in .* differs from that of this call.*Nothing was drawn"
    ):
        gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    assert (len(draws), ledger.entries(), len(before)) == (drawn, before, int(is_charged))
    edit_header(partial, lambda header: header.update(account=own))
    assert gm.release(table, SCHEMA, budget=budget, out=out, resume=True).certificate.account.mu == own["mu"]


def test_a_renamed_or_copied_file_is_refused(tmp_path, table, ledger, monkeypatch, draws):
    """Two copies would be answered with two noises under one entry."""
    out, copy, budget = tmp_path / "x.parquet", tmp_path / "y.parquet", gm.Budget(ledger=ledger)
    partial, drawn = interrupted(monkeypatch, table, out, budget=budget), len(draws)
    partial_path(copy).write_bytes(partial.read_bytes())
    with pytest.raises(ArgumentError, match=r"different declarations \(output file\).*Nothing was drawn"):
        gm.release(table, SCHEMA, budget=budget, out=copy, resume=True)
    edit_header(partial_path(copy), lambda header: header["declared"].update(out=str(copy.resolve())))
    with pytest.raises(LedgerError, match=r"Entry 1 of .* with a different output file.*Nothing was drawn"):
        gm.release(table, SCHEMA, budget=budget, out=copy, resume=True)
    assert len(draws) == drawn
    monkeypatch.chdir(tmp_path)
    assert gm.release(table, SCHEMA, budget=budget, out="x.parquet", resume=True).certificate.entry == 1


def test_an_entry_with_another_cost_is_refused(tmp_path, table, monkeypatch, draws):
    """The file names the entry of another, cheaper release."""
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=100)
    out, budget = tmp_path / "x.parquet", gm.Budget(ledger=ledger)
    partial = interrupted(monkeypatch, table, out, budget=budget)
    cheap = ledger.spend(mu=1e-3)
    edit_header(partial, lambda header: header.update(release=cheap.release))
    drawn = len(draws)
    with pytest.raises(LedgerError, match=r"Entry 2 of .* with a different cost\. Nothing was drawn"):
        gm.release(table, SCHEMA, budget=budget, out=out, resume=True)
    assert len(draws) == drawn


def test_a_release_of_a_table_that_is_read_once_is_resumed_with_the_account_of_one_pass(tmp_path, table, monkeypatch):
    out, pair = tmp_path / "x.parquet", {"epsilon": 1.0, "delta": 1e-6}
    interrupted(monkeypatch, iter([table]), out, **pair)
    private = gm.release(iter([table]), SCHEMA, **pair, out=out, resume=True)
    assert len(private.certificate.account.noise_mu) == 1


def test_the_command_says_how_to_resume_and_does(tmp_path, table, monkeypatch):
    table.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=2)
    arguments = ["release", tmp_path / "rows.parquet", "-s", tmp_path / "schema.json"]
    arguments += ["--ledger", tmp_path / "l.ledger", "-o", tmp_path / "x.parquet"]

    def run(*more):
        return CliRunner().invoke(main, [*map(str, arguments), *more])

    for number, error in enumerate((OutputError("The disk is gone."), KeyboardInterrupt())):
        append = Journal._append

        def fail(self, question, output, error=error, append=append):
            if self.drawn == 5:
                raise error
            append(self, question, output)

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_append", fail)
            failed = run()
        assert failed.exit_code
        assert "is spent" in failed.stderr
        assert f"{tmp_path / 'x.parquet.partial'} holds its outputs so far (5)" in failed.stderr
        assert "--resume" in failed.stderr
        shown = CliRunner().invoke(main, ["ledger", "show", str(tmp_path / "l.ledger")]).stdout
        assert "interrupted: gaussmix release --resume continues it" in shown
        assert run().exit_code == 2
        assert "condition: the release was interrupted and resumed" in run("--resume").stdout
        assert len(gm.Ledger.open(tmp_path / "l.ledger").entries()) == number + 1
        (tmp_path / "x.parquet").unlink()


KILLED = """
import json, sys, time
import gaussmix as gm
from gaussmix.mechanism.journal import Journal

append = Journal._append
Journal._append = lambda *arguments: (append(*arguments), time.sleep(0.1))
rows, ledger, out, resume, schema = sys.argv[1:]
print("ready", flush=True)
gm.release(rows, json.loads(schema), budget=gm.Budget(ledger=ledger), out=out, resume=resume == "1")
"""


def begin(rows, ledger, out, *, resume):
    """Start a release in another process, and wait until it has imported what it needs."""
    arguments = [str(rows), str(ledger.path), str(out), str(int(resume)), json.dumps(SCHEMA)]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_kills_at_any_moment(tmp_path):
    """Killed at random moments and resumed until it ends: one file, one entry, and outputs that never change."""
    rows, rng, killed, resumed = tmp_path / "rows.parquet", np.random.default_rng(0), 0, 0
    patients(3000).to_parquet(rows)
    for number in range(4):
        ledger = gm.Ledger(tmp_path / f"{number}.ledger", epsilon=1.0, delta=1e-6)
        out, kept = tmp_path / f"{number}.parquet", []
        partial, longest = partial_path(out), 1.0
        while not out.exists():
            resumed += partial.exists()
            process = begin(rows, ledger, out, resume=partial.exists())
            while not partial.exists() and process.poll() is None:
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, longest))
            process.kill()
            assert process.wait() in (0, -signal.SIGKILL)
            killed += process.returncode == -signal.SIGKILL
            longest *= 1.3  # it ends some time on a busy computer too
            if partial.exists() and not out.exists():
                now = stored(partial)
                assert len(now) >= len(kept)
                assert all(np.array_equal(a, b) for a, b in zip(kept, now, strict=False))
                kept = now
        assert len(ledger.entries()) == 1
        assert gm.load(out).certificate.release == ledger.entries()[0].release
    assert killed > 0
    assert resumed > 0
