"""The library's own mechanisms under attack: the limit in one pass and in several, and finite sketches."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from audit.likelihoods import TranscriptRatio, gaussian_ratio, wishart_ratio
from audit.subject import CORNER, OPPOSITE, Neighbours, Subject, repeated
from gaussmix import accounting
from gaussmix._types import Floats
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.calibration import Calibration, eigenvalue_error_bound
from gaussmix.accounting.lattice import LatticeAccount, lattice_delta
from gaussmix.accounting.least_noise import calibrate
from gaussmix.accounting.search import log_excess, smallest_or_infinity
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.mixing import draw_release, largest_table
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.preparation import prepare
from gaussmix.mechanism.sampling import secure_generator
from gaussmix.models.sketch import Sketch
from gaussmix.tables.columns import Numeric
from gaussmix.tables.rows import RowSource, rows_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.unit import Unit

__all__ = [
    "CLOUD",
    "Limit",
    "Modified",
    "OnePass",
    "Passes",
    "ReplaceInPasses",
    "ReplaceInSketch",
    "ReplaceOne",
    "Sketched",
    "Tails",
    "Weighted",
    "WeightedNeighbours",
    "YesAndNo",
    "limit_epsilon",
]

SKETCH_SIZE = 10


def _cloud(n: int) -> Floats:
    """Rows near a line in the middle of the bounds, far from their corners."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.1, 0.1, n)
    return np.column_stack([x, 0.5 * x + rng.uniform(-0.02, 0.02, n)])


CLOUD = Neighbours(_cloud(200), OPPOSITE, "200 rows near a line, and one more at a far corner", intercept=True)


def limit_epsilon(delta: float, *accounts: LatticeAccount) -> float:
    """Smallest ε at δ of all accounts together: the Gaussian curve and the lattices' slack."""
    mu, slack = math.hypot(*(account.mu for account in accounts)), sum(account.slack for account in accounts)
    return smallest_or_infinity(lambda epsilon: log_excess(lattice_delta(epsilon, mu=mu, total_slack=slack), delta))


# ---------------------------------------------------------------------------------------------------------------
# The limit
class Limit(Subject):
    """Passes of the limit, as the library prepares them."""

    passes: int = 1
    relation: Relation = "zero-out"
    unit: Unit | None = None
    keep_tails: bool = False

    @cached_property
    def account(self) -> LatticeAccount:
        """Every μ, from declared quantities."""
        found = prepare(
            self.neighbours.schema,
            epsilon=self.epsilon,
            delta=self.delta,
            passes=self.passes,
            relation=self.relation,
            unit=self.unit,
        ).account
        if not isinstance(found, LatticeAccount):
            raise ArgumentError("Only the limit has an account of passes.")
        return found

    def claimed(self, delta: float) -> float | None:
        """By the exact curve."""
        return limit_epsilon(delta, self.account)

    def observe(self, *, present: bool, runs: int) -> Floats:
        """The likelihood ratio of all matrices given what was asked, and what the release tells besides."""
        rows, rng = self.neighbours.rows(present=present), secure_generator()
        moments, ratio = rows.moments(), TranscriptRatio(self.neighbours, rows.schema)
        draws = (draw_passes(rows, moments, self.account, rng, keep_tails=self.keep_tails) for _ in range(runs))
        return np.array([ratio.seen(transcript) for transcript in draws])


class OnePass(Limit):
    """A Gram matrix with discrete Gaussian noise."""

    words = "the limit in one pass"
    neighbours = Neighbours(
        repeated(3, (0.0, 0.0)), CORNER, "three rows of zeros, and one more at a corner", intercept=True
    )


class ReplaceOne(Limit):
    """The same where one row is replaced."""

    words = "the limit in one pass, one row replaced"
    relation = "replace-one"
    neighbours = Neighbours(
        repeated(3, (0.0, 0.0)), CORNER, "a row at a corner, replaced by one at a right angle", instead=OPPOSITE
    )


class Passes(Limit):
    """Four passes: counts, histograms and clipping in a learned metric."""

    words = "the limit in four passes"
    passes = 4
    neighbours = CLOUD


class ReplaceInPasses(Passes):
    """Four passes where one row is replaced."""

    words = "the limit in four passes, one row replaced"
    relation = "replace-one"
    neighbours = replace(
        CLOUD, instead=CORNER, words="200 rows near a line and one at a far corner, or at another corner"
    )


class Tails(Passes):
    """The last pass shortens as few rows as it can."""

    words = "the limit in four passes, tails kept"
    keep_tails = True


class YesAndNo(Passes):
    """Four passes that stay in the declared metric, in which no row is shortened."""

    words = "the limit in four passes, yes and no"
    neighbours = Neighbours(
        repeated(100, *itertools.product((-1.0, 1.0), (-1.0, 1.0))),
        CORNER,
        "400 rows of yes and no, and one more",
        intercept=True,
    )


# ---------------------------------------------------------------------------------------------------------------
# Weights
@dataclass(frozen=True)
class WeightedNeighbours(Neighbours):
    """Two tables of which one has a row of the largest weight, 4, besides. All others have weight 1."""

    @property
    def schema(self) -> Schema:
        """Of both, with weights."""
        plain = super().schema
        return Schema({**plain.columns, "w": Numeric(0, 4)}, intercept=plain.intercept, weight="w")

    def rows(self, *, present: bool, schema: Schema | None = None) -> RowSource:
        """One of the two tables."""
        X, y = self.arrays(present=present)
        w = np.append(np.ones(len(self.common)), np.full(len(y) - len(self.common), 4.0))
        return rows_of({"X": X, "y": y, "w": w}, schema or self.schema)


class Weighted(Limit):
    """A Gram matrix of rows with weights."""

    words = "the limit in one pass, rows with weights"
    neighbours = WeightedNeighbours(
        repeated(3, (0.0, 0.0)),
        CORNER,
        "three rows of zeros, and one more at a corner with four times their weight",
        intercept=True,
    )


# ---------------------------------------------------------------------------------------------------------------
# Sketches
class Sketched(Subject):
    """The paper's mechanism with a finite sketch."""

    words = f"a finite sketch, k = {SKETCH_SIZE}"
    neighbours = Neighbours(repeated(3, (0.0, 0.0)), CORNER, "three rows of zeros, and one more at a corner")

    relation: Relation = "zero-out"

    @cached_property
    def calibration(self) -> Calibration:
        """The noise, from declared quantities."""
        return calibrate(self.epsilon, self.delta, sketch_size=SKETCH_SIZE, relation=self.relation)

    def claimed(self, delta: float) -> float | None:
        """By the exact curve."""
        gamma = self.calibration.gamma
        return float(accounting.epsilon(delta, sketch_size=SKETCH_SIZE, gamma=gamma, relation=self.relation))

    def observe(self, *, present: bool, runs: int) -> Floats:
        """Likelihood ratio of two Wishart laws."""
        moments, rng = self.neighbours.rows(present=present).moments(), secure_generator()
        grams = self.neighbours.grams()
        return np.array(
            [[sketch_ratio(draw_release(moments, self.calibration, rng).sketch, grams)] for _ in range(runs)]
        )


class ReplaceInSketch(Sketched):
    """The same where one row is replaced."""

    words = f"a finite sketch, k = {SKETCH_SIZE}, one row replaced"
    relation = "replace-one"
    neighbours = ReplaceOne.neighbours


class Modified(Sketched):
    """ModifiedGaussMix: less noise where a private bound of the smallest eigenvalue allows it."""

    words = f"ModifiedGaussMix, k = {SKETCH_SIZE}"

    @cached_property
    def calibration(self) -> Calibration:
        """γ, and the noise of the eigenvalue."""
        error = eigenvalue_error_bound(2, n_max=largest_table(None))
        return calibrate(self.epsilon, self.delta, sketch_size=SKETCH_SIZE, scale="private", eigenvalue_error=error)

    @cached_property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """The smallest eigenvalue is that of the row's direction, and about what is needed to leave the noise out."""
        weak = max(int(self.calibration.gamma), 1)
        common = np.concatenate([repeated(weak, CORNER), repeated(20 * weak, OPPOSITE)])
        return Neighbours(common, CORNER, "rows at two corners at a right angle, and one more at the rarer corner")

    def claimed(self, delta: float) -> float | None:
        """One point."""
        return None

    def observe(self, *, present: bool, runs: int) -> Floats:
        """Likelihood ratios of the eigenvalue's bound and, given it, of the sketch."""
        moments, rng = self.neighbours.rows(present=present).moments(), secure_generator()
        calibration, grams = self.calibration, self.neighbours.grams()
        if calibration.eta is None or calibration.tau is None:
            raise ArgumentError("This calibration has no bound of the eigenvalue.")
        means = [np.array([np.linalg.eigvalsh(gram)[0] - calibration.eta * calibration.tau]) for gram in grams]
        seen = []
        for _ in range(runs):
            release = draw_release(moments, calibration, rng)
            bound = np.array([release.certificate.eigenvalue_bound], dtype=float)
            ratio = gaussian_ratio(bound, *means, sigma=calibration.eta) + sketch_ratio(release.sketch, grams)
            seen.append([ratio, float(bound[0])])
        return np.array(seen)


def sketch_ratio(sketch: Sketch, grams: tuple[Floats, Floats]) -> float:
    """Likelihood ratio of a sketch, given its noise."""
    C2, noise = sketch.schema.row_norm**2, sketch.noise_variance * np.eye(len(sketch.factor))
    W = sketch.noisy_second_moment * sketch.size
    return wishart_ratio(W, *(C2 * gram + noise for gram in grams), k=sketch.size)
