"""Releases through one ledger under attack: all of them together may spend its budget, and no more."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from audit.likelihoods import TranscriptRatio
from audit.releases import OnePass, Sketched, limit_epsilon, sketch_ratio
from audit.subject import Subject
from gaussmix._types import Floats
from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.ledger import Ledger
from gaussmix.mechanism.drawing import Noise
from gaussmix.mechanism.mixing import draw_release
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.sampling import secure_generator
from gaussmix.models.schedules import releases_of, schedule_of

__all__ = ["Shares", "SketchesToo"]


class Shares(Subject):
    """Half of a ledger's budget for one release, and a quarter for each of two."""

    words = "three releases through one ledger"
    neighbours = OnePass.neighbours
    shares = ("1/2", "1/4", "1/4")

    @cached_property
    def accounts(self) -> tuple[Noise, ...]:
        """Of every release, planned and recorded one after the other."""
        with TemporaryDirectory() as folder:
            ledger = Ledger(Path(folder) / "ledger", epsilon=self.epsilon, delta=self.delta)
            return tuple(self._recorded(ledger, share) for share in self.shares)

    def _recorded(self, ledger: Ledger, share: str | None) -> LatticeAccount:
        """One release in the limit, in one pass."""
        shares, coordinates = releases_of(schedule_of(1), self.neighbours.schema.n_columns)
        account = ledger.lattice_account(shares=shares, coordinates=coordinates, share=share)
        ledger.spend_account(account)
        return account

    def claimed(self, delta: float) -> float | None:
        """By the exact curve of all together."""
        return limit_epsilon(delta, *(account for account in self.accounts if isinstance(account, LatticeAccount)))

    def observe(self, *, present: bool, runs: int) -> Floats:
        """The likelihood ratio of all releases."""
        rows, rng, grams = self.neighbours.rows(present=present), secure_generator(), self.neighbours.grams()
        moments, ratio = rows.moments(), TranscriptRatio(self.neighbours, rows.schema)

        def seen(account: Noise) -> float:
            if isinstance(account, Calibration):
                return sketch_ratio(draw_release(moments, account, rng).sketch, grams)
            return ratio.seen(draw_passes(rows, moments, account, rng))[0]

        return np.array([[sum(seen(account) for account in self.accounts)] for _ in range(runs)])


class SketchesToo(Shares):
    """Two sketches of five rows each, and a release in the limit."""

    words = "two sketches and a release through one ledger"
    neighbours = Sketched.neighbours

    @cached_property
    def accounts(self) -> tuple[Noise, ...]:
        """All that the ledger has room for."""
        with TemporaryDirectory() as folder:
            ledger = Ledger(
                Path(folder) / "ledger",
                epsilon=self.epsilon,
                delta=self.delta,
                sketch_rows=10,
                mu=gaussian_mu(self.epsilon, self.delta) / 2,
                failure_delta=self.delta / 1000,
            )
            sketch = ledger.calibration(5)
            ledger.spend_calibration(sketch)
            ledger.spend_calibration(sketch)
            return sketch, sketch, self._recorded(ledger, None)

    def claimed(self, delta: float) -> float | None:
        """One point."""
        return None
