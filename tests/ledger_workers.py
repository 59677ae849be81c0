"""What other processes do to a ledger in tests/ledger/test_ledger.py; light to import, since each of them does."""

from __future__ import annotations

import os

from gaussmix import BudgetExceededError, Ledger


def compete(ledger, barrier, results, request):
    """Ask for room at the same moment as everyone else."""
    barrier.wait()
    try:
        results.put(("spent", ledger.spend(**request).id))
    except BudgetExceededError as error:
        results.put(("refused", str(error)))


def create(path, budget, barrier, results):
    barrier.wait()
    results.put(Ledger(path, **budget).reservation.identity)


def record_and_use(ledger, used, ready):
    """Record, then leave a mark: the mark stands for drawing the noise."""
    handle = os.open(used, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        ledger.spend(mu=1e-6)
        os.write(handle, b"x")
        ready.set()
