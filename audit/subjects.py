"""The subjects of the audit: mechanisms of the library, each with the budget it claims and two neighbouring tables.

Neighbours are chosen to spend as much of the claimed budget as possible. An attacker computes scores from each run.
The first is the log-likelihood ratio of what is published, or the part of it that is known; the others, such as
coefficients, are for a classifier.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import numpy as np
from scipy import special

from audit.neighbours import (
    CORNER,
    OPPOSITE,
    SCHEMA,
    Neighbours,
    NumericNeighbours,
    TranscriptRatio,
    gaussian_ratio,
    repeat,
    sketch_ratio,
    symmetric_ratio,
)
from gaussmix import Budget, Ledger, LinearRegression, LogisticRegression, accounting, calibrate, paper, propose_bounds
from gaussmix._types import Floats
from gaussmix.accounting.accounts import ObjectivePerturbationAccount
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.accounting.discrete import LatticeAccount, lattice_delta
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.accounting.numerics import log_excess, smallest_or_infinity
from gaussmix.accounting.sites import Sites
from gaussmix.accounting.thresholds import counts_account
from gaussmix.baselines import ObjectivePerturbation
from gaussmix.baselines.adassp import PreparedAdaSSP
from gaussmix.baselines.sheffet import PreparedSheffet
from gaussmix.data.columns import Categorical, Numeric
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.counts import COARSE_BINS, FINE_BINS
from gaussmix.mechanism.noise import discrete_gaussian, secure_generator, symmetric_noise
from gaussmix.mechanism.passes import draw_marginals, draw_passes
from gaussmix.mechanism.release import OneDraw, accounts_of, prepare
from gaussmix.models.bounds import coarse_bounds
from gaussmix.releases.declared import MODEL_SHARE, DeclaredModel
from gaussmix.releases.marginals import MarginalPlan
from gaussmix.releases.preconditioning import releases_of

_SKETCH_SIZE = 10


@dataclass
class Subject(ABC):
    """A mechanism under attack, with its claimed budget.

    If ``accounts`` are given, their composition is claimed at every δ.
    """

    description: str
    neighbours: Neighbours
    epsilon: float = field(kw_only=True)
    delta: float = field(kw_only=True)
    accounts: tuple[LatticeAccount, ...] = field(init=False, default=())

    @property
    def budget(self) -> dict[str, Any]:
        """The claimed budget as keyword arguments."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def claimed(self, delta: float) -> float | None:
        """Return the claimed ε at another δ, None if the claim is one pair (ε, δ) only."""
        return lattice_epsilon(delta, self.accounts) if self.accounts else None

    @abstractmethod
    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Run the mechanism without end on one of the tables, and yield the scores of each run."""

    def observe(self, *, present: bool, runs: int) -> Floats:
        """Return the scores of some runs on one of the tables, shape (runs, scores)."""
        return np.array(list(itertools.islice(self.scores(present=present), runs)))


def lattice_epsilon(delta: float, accounts: Sequence[LatticeAccount]) -> float:
    """Return the smallest ε at δ of the composition of all accounts: Gaussian curve plus discretisation."""
    mu, slack = math.hypot(*(account.mu for account in accounts)), sum(account.slack for account in accounts)
    return smallest_or_infinity(lambda epsilon: log_excess(lattice_delta(epsilon, mu=mu, slack=slack), delta))


# Gaussian mechanism on the Gram matrix
@dataclass
class GramRelease(Subject):
    """A release of the Gram matrix in one or several passes."""

    passes: int = 1

    def __post_init__(self) -> None:
        near = self.neighbours
        prepared = prepare(
            near.schema, Budget(**self.budget, neighbours=near.relation), passes=self.passes, unit=near.unit
        )
        self.accounts = (cast(LatticeAccount, prepared.account),)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of all matrices and what was requested in each pass."""
        rows, rng = self.neighbours.rows(present=present), secure_generator()
        sums, ratio = rows.gram(), TranscriptRatio(self.neighbours, rows.schema)
        while True:
            yield ratio.scores(draw_passes(rows, lambda: sums, self.accounts[0], rng))


class Coalition:
    """What the collector and t colluding sites see of a total: the noisy sums of all other sites.

    The attacked rows are at one of the honest sites, and all other rows are known; so are the sums and the noise of the
    colluding sites, which are subtracted. Every honest site draws its share of the noise.

    Parameters
    ----------
    sites : Sites
    honest : int
        Number of sites that keep their noise secret.
    """

    def __init__(self, sites: Sites, honest: int, rng: np.random.Generator) -> None:
        self.sites, self.honest, self.rng = sites, honest, rng
        self.sigmas: list[float] = []

    def agree(self, question: str, *public: Any) -> None:
        """Begin a question, the same for all."""

    def share(self, sigma: float) -> float:
        """Return the noise of one site."""
        self.sigmas.append(self.sites.share(sigma))
        return self.sigmas[-1]

    def total(self, noisy: Any) -> Any:
        """Add the noise of the other honest sites."""
        drawn, self.sigmas = self.sigmas, []
        for _ in range(self.honest - 1):
            if noisy.ndim == 2:
                on, off = drawn
                noise = symmetric_noise(len(noisy), diagonal=on, off_diagonal=off, rng=self.rng)
            else:
                noise = discrete_gaussian(len(noisy), sigma=drawn[0], rng=self.rng)
            noisy = noisy + noise.astype(object)
        return noisy


@dataclass
class JointRelease(Subject):
    """A joint release of several sites, as t of them see it together with the collector."""

    sites: Sites = field(default_factory=lambda: Sites(3, 1))
    passes: int = 1
    honest: int | None = None  # default: all but t

    def __post_init__(self) -> None:
        near = self.neighbours
        account, _ = accounts_of(
            Budget(**self.budget, neighbours=near.relation),
            self.passes,
            near.schema,
            unit=near.unit,
            sites=self.sites,
        )
        self.account = cast(LatticeAccount, account)

    def claimed(self, delta: float) -> float | None:
        """Return ε of the exact curve against t sites."""
        return gaussian_epsilon(delta, mu=self.sites.mu(self.account))

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of all matrices and what was requested in each pass."""
        near, rng = self.neighbours, secure_generator()
        rows = near.rows(present=present)
        sums, ratio = rows.gram(), TranscriptRatio(near, rows.schema)
        honest = self.sites.number - self.sites.colluding if self.honest is None else self.honest
        while True:
            view = Coalition(self.sites, honest, rng)
            yield ratio.scores(draw_passes(rows, lambda: sums, self.account, rng, parties=view))


@dataclass
class CodedRelease(Subject):
    """A release with marginals and top-coding: counts and sums first, then passes over coded rows."""

    def __post_init__(self) -> None:
        near = self.neighbours
        budget = Budget(**self.budget, neighbours=near.relation)
        prepared = prepare(near.schema, budget, unit=near.unit, topcode="auto", marginals=True)
        self.accounts, self.plan = (cast(LatticeAccount, prepared.account),), cast(MarginalPlan, prepared.marginals)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of marginals and matrices, what was requested in each pass, and the thresholds."""
        near, account, rng = self.neighbours, self.accounts[0], secure_generator()
        exact = [
            near.rows(present=there, schema=self.plan.schema).aggregate(self.plan.query) for there in (False, True)
        ]
        means = [(sums.counts / 2.0**20, np.concatenate([sums.sums, sums.squares]) / 2.0**40) for sums in exact]
        absent, there = (tuple(part.astype(float) for part in found) for found in means)
        while True:
            marginals = draw_marginals(lambda: exact[present], self.plan, account, rng)
            counts_se, sums_se = marginals.std_errors
            drawn = np.concatenate([marginals.sums, marginals.squares])
            ratio = gaussian_ratio(marginals.counts, absent[0], there[0], sigma=counts_se)
            ratio += gaussian_ratio(drawn, absent[1], there[1], sigma=sums_se)
            coded = near.schema.coded(marginals.thresholds())
            rows = near.rows(present=present, schema=coded)
            transcript = draw_passes(rows, rows.gram, account, rng, marginals=marginals)
            first, *others = TranscriptRatio(near, coded).scores(transcript)
            _, upper = coded.thresholds_within(near.schema).get("y", (-1.0, 1.0))
            yield [ratio + first, *others, upper]


@dataclass
class FittedEstimator(Subject):
    """An estimator, which publishes its release and its coefficients."""

    estimator: Callable[..., LinearRegression | LogisticRegression]
    models: tuple[DeclaredModel, ...] = ()

    def __post_init__(self) -> None:
        self.model = partial(self.estimator, **self.budget)
        self.schema = self.model().schema(1)
        prepared = prepare(
            self.schema,
            Budget(**self.budget),
            passes=self.model().passes,
            models=self.models,
            unit=self.neighbours.unit,
        )
        self.accounts = (cast(LatticeAccount, prepared.account),)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of the release, what was requested in each pass, and the coefficients."""
        ratio = TranscriptRatio(self.neighbours, self.schema)
        X, y = self.neighbours.arrays(present=present)
        groups = {"groups": self.neighbours.units(present=present)} if self.neighbours.unit else {}
        while True:
            model = self.model(random_state=secure_generator()).fit(X, y, **groups)
            yield [*ratio.scores(model.release_.statistic), *np.ravel(model.coef_), *np.ravel(model.intercept_)]


@dataclass
class LedgerReleases(Subject):
    """Releases in one pass that together spend the budget of one ledger."""

    shares: tuple[str, ...] = ("1/2", "1/4", "1/4")

    def __post_init__(self) -> None:
        shares, coordinates = releases_of(1, self.neighbours.schema.n_columns)
        accounts = []
        with TemporaryDirectory() as folder:
            ledger = Ledger(Path(folder) / "ledger", **self.budget)
            for share in self.shares:
                accounts.append(ledger.lattice_account(shares=shares, coordinates=coordinates, share=share))
                ledger.spend_account(accounts[-1])
        self.accounts = tuple(accounts)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of all releases."""
        rows, rng = self.neighbours.rows(present=present), secure_generator()
        sums, ratio = rows.gram(), TranscriptRatio(self.neighbours, rows.schema)
        while True:
            yield [sum(ratio.scores(draw_passes(rows, lambda: sums, account, rng))[0] for account in self.accounts)]


# The mechanisms of the paper
@dataclass
class SketchRelease(Subject):
    """GaussMix."""

    def __post_init__(self) -> None:
        relation = self.neighbours.relation
        self.calibration = calibrate(self.epsilon, self.delta, sketch_size=_SKETCH_SIZE, neighbours=relation)

    def claimed(self, delta: float) -> float | None:
        """Return ε of the exact curve."""
        gamma, relation = self.calibration.gamma, self.neighbours.relation
        return float(accounting.epsilon(delta, sketch_size=_SKETCH_SIZE, gamma=gamma, neighbours=relation))

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of two Wishart distributions."""
        A, grams, C = np.column_stack(self.neighbours.arrays(present=present)), self.neighbours.grams(), SCHEMA.row_norm
        neighbours: Any = self.neighbours.relation
        sigma = C * math.sqrt(self.calibration.gamma)
        while True:
            sketch = paper.gauss_mix(
                A, _SKETCH_SIZE, sigma, row_norm=C, neighbours=neighbours, rng=secure_generator(), method="gram"
            )
            yield [sketch_ratio(sketch.rows, grams, noise_variance=sigma**2, k=_SKETCH_SIZE)]


@dataclass
class FittedMixing(Subject):
    """Algorithm 2: least squares on a sketch by Algorithm 1, whose noise a private bound on λ_min lowers."""

    neighbours: Neighbours = field(init=False)
    analysis: Literal["exact", "paper"] = "exact"

    def __post_init__(self) -> None:
        self.calibration = calibrate(
            self.epsilon,
            self.delta,
            sketch_size=_SKETCH_SIZE,
            scale="private",
            analysis=self.analysis,
            eigenvalue_error=eigenvalue_error_bound(2),
        )
        # The eigenvalue in the direction of the row is about as large as it must be to leave the noise out.
        margin = cast(float, self.calibration.eta) * cast(float, self.calibration.tau)
        weak = max(int(self.calibration.gamma + margin), 1)
        self.neighbours = _two_corners(weak, 20 * weak)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of the eigenvalue bound and, given it, of the sketch; then the bound and the coefficient."""
        (X, y), grams = self.neighbours.arrays(present=present), self.neighbours.grams()
        eta, tau = cast(float, self.calibration.eta), cast(float, self.calibration.tau)
        means = [np.array([np.linalg.eigvalsh(gram)[0] - eta * tau]) for gram in grams]
        model = paper.LinearMixing(
            data_norm=1.0, bounds_y=(-1.0, 1.0), sketch_size=_SKETCH_SIZE, analysis=self.analysis, **self.budget
        )
        while True:
            sketch = model.set_params(random_state=secure_generator()).fit(X, y).sketch_
            ratio = sketch_ratio(sketch.rows, grams, noise_variance=sketch.sigma**2, k=_SKETCH_SIZE)
            bound = sketch.certificate.v
            if bound is not None:
                ratio += gaussian_ratio(np.array([bound]), *means, sigma=eta)
            yield [ratio, bound or 0.0, float(model.coef_[0])]


@dataclass
class Sheffet(Subject):
    """The algorithm of Sheffet: a noisy test of the smallest eigenvalue decides whether the sketch needs noise."""

    neighbours: Neighbours = field(init=False)
    analysis: Literal["sheffet", "renyi"] = "sheffet"

    def __post_init__(self) -> None:
        self.prepared = PreparedSheffet.of(
            SCHEMA,
            sketch_size=_SKETCH_SIZE,
            analysis=self.analysis,
            n_rows=None,
            rng=secure_generator(),
            **self.budget,
        )
        # The eigenvalue in the direction of the row is at the threshold of the test.
        weak = int(self.prepared.account.gamma + self.prepared.account.margin)
        self.neighbours = _two_corners(weak, 2 * weak)

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of the sketch given its noise, and whether it has noise."""
        rows, grams = self.neighbours.rows(present=present), self.neighbours.grams()
        while True:
            sketch = replace(self.prepared, _once=OneDraw()).draw(rows)
            variance = sketch.noise_variance
            yield [sketch_ratio(sketch.factor, grams, noise_variance=variance, k=_SKETCH_SIZE), float(variance > 0)]


def _two_corners(weak: int, strong: int) -> Neighbours:
    """Return neighbours in which the row is in the direction of the smallest eigenvalue."""
    return Neighbours(np.concatenate([repeat(weak, CORNER), repeat(strong, OPPOSITE)]), CORNER)


# Other baselines
@dataclass
class AdaSSP(Subject):
    """AdaSSP with its exact account or with the constants printed in its paper."""

    neighbours: Neighbours = field(init=False)
    analysis: Literal["exact", "printed"] = "exact"

    def __post_init__(self) -> None:
        self.prepared = PreparedAdaSSP.of(
            SCHEMA, rho=0.05, analysis=self.analysis, n_rows=None, rng=secure_generator(), **self.budget
        )
        # The ridge is cut off at 0: this many rows put it in the middle of the range in which it shows the eigenvalue.
        window = math.sqrt(math.log(6 / self.delta)) + math.sqrt(math.log(2 / self.prepared.rho)) / 2
        self.neighbours = Neighbours(repeat(int(self.prepared.noise * window), CORNER), CORNER)

    def claimed(self, delta: float) -> float | None:
        """Return ε of three Gaussian releases; with the printed constants the claim is one pair."""
        mu = math.sqrt(3) / self.prepared.noise
        return gaussian_epsilon(delta, mu=mu) if self.analysis == "exact" else None

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of XᵀX and XᵀY, then the ridge, which depends on the noisy eigenvalue, and both products."""
        rows, (absent, there) = self.neighbours.rows(present=present), self.neighbours.grams()
        x_norm, y_norm = (SCHEMA.norm_of([name]) / SCHEMA.row_norm for name in ("X", "y"))
        s = self.prepared.noise
        while True:
            blocks = replace(self.prepared, _once=OneDraw()).draw(rows)
            ratio = symmetric_ratio(blocks.XX, absent[:1, :1], there[:1, :1], mu=1 / (s * x_norm**2))
            ratio += gaussian_ratio(blocks.XY, absent[:1, 1:], there[:1, 1:], sigma=s * x_norm * y_norm)
            yield [ratio, blocks.ridge, float(blocks.XX[0, 0]), float(blocks.XY[0, 0])]


@dataclass
class PerturbedObjective(Subject):
    """Objective perturbation.

    The coefficients θ determine the random term b(θ) = -∇L(θ) - Δθ of the objective. Hence θ has, up to a constant, the
    density φ(b(θ)/σ)·det(∇²L(θ) + ΔI).
    """

    def log_density(self, theta: Floats, account: ObjectivePerturbationAccount, *, present: bool) -> float:
        """Return the log-density of the coefficients, up to a constant."""
        X, y = self.neighbours.arrays(present=present)
        A = np.column_stack([X, np.ones(len(X))])
        p = special.expit(-y * (A @ theta))
        b = A.T @ (y * p) - account.penalty * theta
        hessian = (A.T * (p * (1 - p))) @ A + account.penalty * np.eye(2)
        return float(-b @ b / (2 * account.noise**2) + np.linalg.slogdet(hessian)[1])

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield the ratio of the coefficients, and the coefficients."""
        arrays = self.neighbours.arrays(present=present)
        parameters = {"bounds_X": (-1, 1), "classes": (-1.0, 1.0), **self.budget}
        while True:
            model = ObjectivePerturbation(random_state=secure_generator(), **parameters).fit(*arrays)
            account = cast(ObjectivePerturbationAccount, model.privacy_.account)
            theta = np.array([*np.ravel(model.coef_), *np.ravel(model.intercept_)])
            logs = [self.log_density(theta, account, present=there) for there in (False, True)]
            yield [logs[1] - logs[0], *theta]


# Private bounds and levels
_FREQUENT, _RARE = 1.0, 1000.0  # far apart: the fine grid has to be wide to hold both, and its first bin shows that


@dataclass
class Proposal(Subject):
    """A proposal of the levels or of the bounds of one column, which publishes a schema but no noisy counts.

    A value shows if its noisy count, with noise σ, exceeds a public threshold t. If this release spends ε₁ at δ, "the
    value shows" is the best test where t lies ε₁σ² + ½ above the count without the row: the table has a rare value
    with that count.
    """

    neighbours: Neighbours = field(init=False)
    kind: Literal["codes", "number"]

    def __post_init__(self) -> None:
        if self.kind == "codes":
            self.account = counts_account(self.epsilon, self.delta, keys=1)
            threshold = self.account.threshold_in_rows
        else:
            self.account = counts_account(self.epsilon, self.delta, grids=[COARSE_BINS], refined=[FINE_BINS])
            counts, noise = np.zeros(COARSE_BINS), 1 / self.account.lattice.noise_mu[0]
            while coarse_bounds(counts, noise=noise, columns=1) is None:  # until one bin counts
                counts[-1] += noise / 100
            threshold = float(counts[-1])
        mu = self.account.lattice.noise_mu[0]
        rare = max(round(threshold - gaussian_epsilon(self.delta, mu=mu) / mu**2 - 0.5), 1)
        frequent = int(threshold + 40 / mu)  # 40 standard deviations above the threshold
        common = np.concatenate([repeat(frequent, (0.0, _FREQUENT)), repeat(rare, (0.0, _RARE))])
        self.neighbours = Neighbours(common, (0.0, _RARE))

    def claimed(self, delta: float) -> float | None:
        """Return ε of the exact curve at the part of δ that the threshold leaves."""
        left = delta - self.account.threshold_delta
        return lattice_epsilon(left, [self.account.lattice]) if left > 0 else None

    def scores(self, *, present: bool) -> Iterator[list[float]]:
        """Yield what the proposed column shows."""
        _, y = self.neighbours.arrays(present=present)
        table = {"y": y.astype(np.int64) if self.kind == "codes" else y}
        while True:
            proposed = propose_bounds(table, {"y": self.kind}, random_state=secure_generator(), **self.budget)
            column = proposed.schema.columns["y"]
            if isinstance(column, Categorical):
                yield [float(_RARE in column.levels)]
            elif isinstance(column, Numeric):  # bounds may be 10³⁰⁰: on a logarithmic scale
                yield [float(column.upper > 2 * _FREQUENT), *np.arcsinh([column.upper, column.lower])]


# Neighbours and the list of subjects
def _line(n: int) -> Floats:
    """Return rows near a line in the middle of the bounds, far from their corners."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.1, 0.1, n)
    return np.column_stack([x, 0.5 * x + rng.uniform(-0.02, 0.02, n)])


ZEROS = Neighbours(repeat(3, (0.0, 0.0)), CORNER, intercept=True)
ZEROS_NO_INTERCEPT = replace(ZEROS, intercept=False)
ORTHOGONAL = replace(ZEROS_NO_INTERCEPT, instead=OPPOSITE)
UNIT = PrivacyUnit("who", max_contributions=3)
LINE = Neighbours(_line(200), OPPOSITE, intercept=True)
BINARY = Neighbours(repeat(100, *itertools.product((-1.0, 1.0), (-1.0, 1.0))), CORNER, intercept=True)
# Skewed columns, which are top-coded, and a row beyond the thresholds.
TAIL = NumericNeighbours(np.repeat(-1 + np.geomspace(1e-3, 0.3, 1_000)[:, np.newaxis], 2, axis=1), OPPOSITE)
# Two classes that X separates near 0, and a row of the wrong class far from it.
CLASSES = replace(LINE, common=np.where(LINE.common[:, :1] > 0, [0.1, 1.0], [-0.1, -1.0]))

_LINEAR = partial(LinearRegression, bounds_X=(-1, 1), bounds_y=(-1, 1))
_LOGISTIC = partial(LogisticRegression, bounds_X=(-1, 1), classes=(-1.0, 1.0))

FAST: dict[str, Callable[..., Subject]] = {
    "release": partial(GramRelease, "Gram matrix, one pass", ZEROS),
    "replace-one": partial(GramRelease, "Gram matrix, one pass, replace-one", ORTHOGONAL),
    "weights": partial(GramRelease, "Gram matrix, one pass, weights", replace(ZEROS, weight=4.0)),
    "units": partial(GramRelease, "Gram matrix, one pass, privacy units", replace(ZEROS, unit=UNIT)),
    "units-truncated": partial(
        GramRelease,
        "Gram matrix, one pass, truncated units",
        replace(ZEROS, unit=replace(UNIT, contribution_bounding="sample")),
    ),
    "sites": partial(JointRelease, "joint release, one of three sites colludes", ZEROS),
    "two-sites": partial(JointRelease, "joint release of two sites, one colludes", ZEROS, sites=Sites(2, 1)),
    "ledger": partial(LedgerReleases, "three releases, one ledger", ZEROS),
    "sketch": partial(SketchRelease, "GaussMix, k = 10", ZEROS_NO_INTERCEPT),
    "sketch-replace-one": partial(SketchRelease, "GaussMix, k = 10, replace-one", ORTHOGONAL),
    "modified": partial(FittedMixing, "LinearMixing, joint account, k = 10"),
    "modified-paper": partial(FittedMixing, "LinearMixing, Theorem 1, k = 10", analysis="paper"),
    "proposed-levels": partial(Proposal, "propose, levels", "codes"),
    "adassp": partial(AdaSSP, "AdaSSP, exact"),
    "adassp-printed": partial(AdaSSP, "AdaSSP, as printed", analysis="printed"),
    "sheffet": partial(Sheffet, "SheffetMixing, k = 10"),
    "sheffet-renyi": partial(Sheffet, "SheffetMixing, Rényi, k = 10", analysis="renyi"),
    "objective-perturbation": partial(PerturbedObjective, "ObjectivePerturbation", CLASSES),
}
"""Subjects of which a run takes a few milliseconds at most."""

EXPENSIVE: dict[str, Callable[..., Subject]] = {
    "passes": partial(GramRelease, "Gram matrix, four passes", LINE, passes=4),
    "passes-replace-one": partial(
        GramRelease, "Gram matrix, four passes, replace-one", replace(LINE, instead=CORNER), passes=4
    ),
    "sites-passes": partial(
        JointRelease, "joint release, four passes, two of five sites collude", LINE, sites=Sites(5, 2), passes=4
    ),
    "top-coded": partial(CodedRelease, "marginals, top-coding and four passes", TAIL),
    "passes-binary": partial(GramRelease, "Gram matrix, four passes, binary columns", BINARY, passes=4),
    "units-passes": partial(GramRelease, "Gram matrix, four passes, privacy units", replace(LINE, unit=UNIT), passes=4),
    "linear": partial(FittedEstimator, "LinearRegression", LINE, _LINEAR),
    "linear-units": partial(
        FittedEstimator,
        "LinearRegression, privacy units",
        replace(LINE, unit=UNIT),
        partial(_LINEAR, max_contributions=3),
    ),
    "logistic": partial(FittedEstimator, "LogisticRegression", CLASSES, _LOGISTIC),
    # One pass before the model: the row is not clipped in it and counts in full.
    "declared-model": partial(
        FittedEstimator,
        "LogisticRegression, declared model",
        CLASSES,
        partial(_LOGISTIC, passes=1, model_share=MODEL_SHARE),
        models=(DeclaredModel("y ~ X", "logit"),),
    ),
    "proposed-bounds": partial(Proposal, "propose, bounds", "number"),
}
"""Subjects of which a run takes more than 10 ms."""

SUBJECTS = FAST | EXPENSIVE
"""All subjects by name. Each is called with ``epsilon`` and ``delta``."""
