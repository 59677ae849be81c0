"""Damaged and edited ledgers: none is accepted with other numbers than were written."""

from __future__ import annotations

import os
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gaussmix import Ledger, LedgerDamagedError, LedgerError
from gaussmix.ledger import store as ledger_store
from gaussmix.ledger.composition import account_holds

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "releases": 5}
FULL_SWEEP = os.environ.get("GAUSSMIX_FULL_SWEEP") == "1"


def small_ledger(path: Path) -> Ledger:
    ledger = Ledger(path, **BUDGET)
    plan = ledger.lattice_account(shares=["0.3", "0.7"], coordinates=[400, 400])
    ledger.spend_account(plan, note="first", file=path.with_name("a.parquet"))
    ledger.spend(mu=0.01)
    ledger.spend(mu=0.02, delta_slack=1e-12, note="third")
    return ledger


def state(path):
    ledger = Ledger.open(path)
    return ledger.reservation, ledger.entries(), ledger.remaining()


def written_bytes(content: bytes) -> tuple[list[int], list[int]]:
    """Places of SQLite's records and page headers; and of everything else that is not empty."""
    size = int.from_bytes(content[16:18], "big")
    records, others = [], []
    for start in range(0, len(content), size):
        header = start + (100 if start == 0 else 0)
        cells = int.from_bytes(content[header + 3 : header + 5], "big")
        first = int.from_bytes(content[header + 5 : header + 7], "big")
        place = [*range(start, header + 8 + 2 * cells), *range(start + first, start + size)]
        (others if start == 0 else records).extend(place)  # the first page holds SQL
    return records, others


@pytest.mark.slow
def test_no_flipped_bit_is_accepted_with_other_numbers(tmp_path):
    """Every bit of every record; of the rest (SQL text, header), a sample, or all with GAUSSMIX_FULL_SWEEP=1."""
    path = tmp_path / "rows.ledger"
    small_ledger(path)
    before, content = state(path), path.read_bytes()
    records, others = written_bytes(content)
    bits = [(place, bit) for place in records for bit in range(8)]
    rest = [(place, bit) for place in others for bit in range(8)]
    bits += rest if FULL_SWEEP else random.Random(0).sample(rest, 800)
    bits += [(place, bit) for place in range(60, 72) for bit in range(8)]  # of the header: format and application
    assert len(records) * 8 > 3000
    refused = 0
    for place, bit in bits:
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            after = state(path)
        except LedgerError:
            refused += 1
            continue
        assert after == before, f"bit {bit} of byte {place} was accepted with other numbers"
        assert list(map(type, vars(after[0]).values())) == list(map(type, vars(before[0]).values()))
    assert refused > 0.6 * len(bits)  # the test looks at bytes that matter


EDITS = {
    "delta": "UPDATE reservation SET delta = 2e-6",
    "budget": "UPDATE reservation SET epsilon = 2.0",
    "text": "UPDATE reservation SET mu = 'much'",
    "mu": "UPDATE reservation SET mu = mu * 1.01",
    "failure": "UPDATE reservation SET delta_slack = delta_slack / 2",
    "releases": "UPDATE reservation SET releases = 7",
    "releases as text": "UPDATE reservation SET releases = 'five'",
    "no releases": "UPDATE reservation SET releases = 0",
    "spent": "UPDATE entries SET mu = mu / 2 WHERE mu > 0",
    "column": "ALTER TABLE entries ADD COLUMN more TEXT",
    "entry": "UPDATE entries SET delta_slack = 0.0 WHERE id = 1",
    "file": "UPDATE entries SET file = 'elsewhere' WHERE id = 1",
    "note": "UPDATE entries SET note = 'another' WHERE id = 1",
    "first deleted": "DELETE FROM entries WHERE id = 1",
    "last deleted": "DELETE FROM entries WHERE id = 3",
    "all deleted": "DELETE FROM entries",
    "renumbered": "UPDATE entries SET id = 4 WHERE id = 3",
    "swapped": "UPDATE entries SET id = CASE id WHEN 1 THEN -2 ELSE -1 END WHERE id < 3;"
    "UPDATE entries SET id = -id WHERE id < 0",
    "head": "UPDATE head SET entries = 2",
    "no head": "DELETE FROM head",
}


def edit(path, statements):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.executescript(f"DROP TRIGGER IF EXISTS final; DROP TRIGGER IF EXISTS kept; {statements}")
    connection.commit()
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", EDITS)
def test_edits_are_found_when_opened_and_while_open(tmp_path, what):
    path = tmp_path / "rows.ledger"
    ledger = small_ledger(path)
    edit(path, EDITS[what])
    before = path.read_bytes()
    with pytest.raises(LedgerDamagedError, match=r"rows\.ledger is damaged"):
        Ledger.open(path)
    assert path.read_bytes() == before
    for use in (ledger.remaining, ledger.entries, lambda: ledger.spend(mu=1e-6)):
        with pytest.raises(LedgerDamagedError):
            use()


def test_an_account_that_is_not_private_is_refused_though_its_hashes_fit(tmp_path):
    path = tmp_path / "rows.ledger"
    true = Ledger(path, **BUDGET).reservation
    assert account_holds(true)
    for change in (
        {"mu": true.mu * (1 + 1e-6)},
        {"epsilon": 0.99},
        {"delta_reserved": true.delta_reserved * (1 - 1e-6)},
        {"delta_slack": true.delta_slack * 1.001},
    ):
        path.unlink()
        ledger_store.create(path, replace(true, **change))
        with pytest.raises(LedgerDamagedError):
            Ledger.open(path)
    for change in ({"delta_reserved": 2e-6}, {"delta": true.delta * (1 - 1e-6)}):
        assert not account_holds(replace(true, **change))


def test_the_head_shows_an_older_copy(tmp_path):
    path = tmp_path / "rows.ledger"
    ledger = small_ledger(path)
    old, head = path.read_bytes(), ledger.head
    assert len(head) == 64
    ledger.spend(mu=0.001)
    assert ledger.head != head
    newer = ledger.head
    assert ledger.contains_digest(head)
    assert ledger.contains_digest(newer)
    path.write_bytes(old)  # what remains: the file alone cannot know that it is old
    assert Ledger.open(path).head == head
    assert not Ledger.open(path).contains_digest(newer)
