r"""Draw the passes of a release: the Gaussian mechanism on Gram matrices, with exact sums and discrete noise.

The rows are sensitive, and every output is noisy. The account fixes each μ before a row is read. The transform, edges
and clip of a later pass are functions of earlier *outputs* (`gaussmix.releases.preconditioning`), hence
post-processing. Each output is an integer sum over rows of norm at most 1, plus integers of known distribution
(docs/privacy.md). All outputs together are μ-Gaussian-DP up to the slack of the account, with μ² = Σμ_p² over all
releases.

**Order.** Marginals come first, if the release has them; they also determine the thresholds at which numbers are
top-coded in all passes. A noisy count of rows and the first pass follow, then a histogram before each further pass. A
release in one pass has neither count nor histograms. Declared models come last: for each a histogram of the norms of
its scores, sums of clipped scores and their Gram matrix (:mod:`gaussmix.data.scores`), planned from the passes and from
its own earlier outputs (:mod:`gaussmix.models.declared`).

**Privacy units.** If the squared norms of the rows of a unit add up to at most j, the first pass has j times the noise.
Units and rows are counted separately, histograms count units, and later passes clip all rows of a unit together, so
that their sensitivity is one again (docs/privacy.md).

**Large tables.** Passes between the first and the last only estimate a preconditioner, for which a Bernoulli sample of
the rows is enough: with at least πn = 200 m^1.5/μ rows no loss can be measured (docs/preconditioning.md), and
histograms need 20,000/μ rows. Tables of fewer than 200,000 rows are read whole. The sampling rates π are computed from
the noisy count, and each row has one secret sampling key for all of them. No amplification by sampling is claimed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.accounting.discrete import LatticeAccount, diagonal_sigma, off_diagonal_sigma, split_mu
from gaussmix.accounting.parameters import Neighbours
from gaussmix.data.gram import ExactSums
from gaussmix.data.marginals import MarginalSums
from gaussmix.data.rows import RowSource
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.data.scores import ScoreMap, ScoreNorms, ScoreSums, ScoreTotals, identity, score_map
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.journal import Journal
from gaussmix.mechanism.noise import (
    Exact,
    Parties,
    add_noise,
    discrete_gaussian,
    exact_integers,
    symmetric_noise,
    to_floats,
)
from gaussmix.models.declared import Plan, Scan
from gaussmix.releases.declared import DeclaredModel, ModelBudget, ModelOutput, mu_of_sum
from gaussmix.releases.marginals import MarginalPlan, Marginals
from gaussmix.releases.preconditioning import (
    PassRequest,
    Persons,
    State,
    bin_edges,
    budgets_of,
    plan_histogram,
    plan_pass,
    rates_of,
    run_passes,
)
from gaussmix.releases.transcript import PassOutput, Transcript, start

__all__ = ["cost_of", "draw_marginals", "draw_passes", "score_map_of"]


_MANY_COLUMNS = 300  # their noise takes half a second

# Measured with 500 to 3,000 columns on one processor, rounded up.
_SECONDS_PER_ENTRY = 7.0e-6  # of m² entries of a pass: noise, exact sums, conversion
_SECONDS_PER_CUBE = 3.0e-9  # of m³, for each preconditioner: eigenvalues and singular values
_BYTES_PER_ENTRY = (150, 110)  # of m² entries: in the first pass, and for each further one


def cost_of(columns: int, passes: int) -> tuple[float, int]:
    """Return estimates of processor seconds and bytes for all that does not depend on the rows: noise and transforms.

    >>> seconds, size = cost_of(5001, 4)
    >>> round(seconds / 60), round(size / 2**30)
    (30, 11)
    """
    first, further = _BYTES_PER_ENTRY
    seconds = _SECONDS_PER_ENTRY * passes * columns**2 + _SECONDS_PER_CUBE * (passes - 1) * columns**3
    return seconds, (first + further * (passes - 1)) * columns**2


def draw_passes(
    rows: RowSource,
    first: Callable[[], ExactSums],
    account: LatticeAccount,
    rng: np.random.Generator,
    *,
    models: ModelBudget | None = None,
    keys: Sample | None = None,
    marginals: Marginals | None = None,
    parties: Parties | None = None,
    journal: Journal | None = None,
    progress: bool = False,
) -> Transcript:
    """Draw all passes of a release, then the outputs of declared models.

    Parameters
    ----------
    rows : RowSource
        The table. It must be possible to read it once per pass.
    first : function
        Returns the exact Gram matrix of all rows; called once, unless the journal has all that needs it.
    account : LatticeAccount
        The account of the releases that `releases_of` lists for a schedule.
    rng : Generator
        The secure generator, or a seeded one, which voids the guarantee.
    models : ModelBudget, optional
        Declared models included in the account.
    keys : Sample, optional
        Sampling keys drawn for this release only, under which the first pass cached rows. Default: drawn from ``rng``.
    marginals : Marginals, optional
        Marginals drawn before the first pass was read (`draw_marginals`), under the same account.
    parties : Parties, optional
        Several sites that add up and draw together (:mod:`gaussmix.mechanism.sites`). Default: one curator.
    journal : Journal, optional
        Where outputs are stored as they are drawn, and found if they were drawn before an interruption
        (:mod:`gaussmix.mechanism.journal`). Rows are read only for outputs that are not there.
    progress : bool
        Show a progress bar on a terminal if the noise takes long to draw.
    """
    first = functools.cache(first)
    draw, schema = _Draw(account, rng, parties, journal, progress=progress), rows.schema
    budgets = budgets_of(account, models, marginals=marginals is not None)
    most = 1 if rows.unit is None else rows.unit.max_contributions
    if journal is not None:
        journal.ask(f"schema {schema.fingerprint}")
    draw.agree("Pass 1", *budgets.in_turn, most)
    output = PassOutput(draw.matrix(first, budgets.passes[0], most=most), budgets.passes[0])
    outputs = [output]
    if budgets.count is not None:
        number, persons = _counted(draw, rows, first, budgets.count)
        rates = rates_of(account, number, schema.n_columns, models=models, marginals=marginals is not None)
        keys = Sample(1.0, rng.bytes(32)) if keys is None else keys
        samples = [None if rate == 1.0 else keys.at(rate) for rate in rates]
        # Sampling keys have 16 bits, so that rates are rounded.
        rates = [1.0 if sample is None else sample.rate for sample in samples]
        mu = [part * rate for part, rate in zip(budgets.in_turn, rates, strict=True)]
        state, passes = start(schema, output.matrix, mu, rows.unit), len(budgets.passes)

        def request_of(number: int, known: State) -> PassRequest:
            q, histogram = 2 * number - 1, plan_histogram(known)
            transforms = [metric.transform for metric in histogram.metrics]
            words = f"Pass {number + 1} of {passes}, row norms"
            draw.agree(words, *transforms, *histogram.edges, rates[q])
            found = draw.histograms(
                lambda: rows.counts(transforms, histogram.edges, sample=samples[q], describe=words),
                [len(edges) + 1 for edges in histogram.edges],
                budgets.histograms[number - 1],
            )
            seen = tuple(count / rates[q] for count in found)
            return plan_pass(known, histogram, seen)

        def output_of(number: int, request: PassRequest) -> Floats:
            p, words = 2 * number, f"Pass {number + 1} of {passes}"
            draw.agree(words, request.metric.transform, request.clip, rates[p])
            matrix = draw.matrix(
                lambda: rows.mapped(request.metric.transform, request.clip, sample=samples[p], describe=words),
                budgets.passes[number],
            )
            output = PassOutput(matrix, budgets.passes[number], request, rates[p], rates[p - 1])
            outputs.append(output)
            return output.matrix / output.rate

        state = replace(state, persons=persons, for_inference=marginals is not None)
        run_passes(state, passes, request_of, output_of)
    transcript = Transcript(tuple(outputs), schema, unit=rows.unit, marginals=marginals)
    if models is None:
        return transcript
    outputs_of_models = tuple(
        _draw_model(transcript, rows, model, mu, draw, neighbours=account.neighbours)
        for model, mu in zip(models.models, budgets.models, strict=True)
    )
    return replace(transcript, models=outputs_of_models, model_share=models.share)


def draw_marginals(
    exact: Callable[[], MarginalSums],
    plan: MarginalPlan,
    account: LatticeAccount,
    rng: np.random.Generator,
    *,
    models: ModelBudget | None = None,
    parties: Parties | None = None,
    journal: Journal | None = None,
) -> Marginals:
    """Return noisy marginals of what ``exact`` returns. :mod:`gaussmix.data.marginals` proves the sensitivities."""
    mu = budgets_of(account, models, marginals=True).marginals
    if mu is None:
        raise ArgumentError("The privacy account contains no budget for marginals.")
    of_counts, of_sums = plan.noise_mu(mu)
    draw, most = _Draw(account, rng, parties, journal, progress=False), plan.max_contributions
    draw.agree("Marginals", of_counts, of_sums, most)
    counts = draw.vector(lambda: exact().counts, of_counts, most=most, unit_bits=FRACTION_BITS)
    sums = draw.vector(
        lambda: np.concatenate([exact().sums, exact().squares]), of_sums, most=most, unit_bits=2 * FRACTION_BITS
    )
    first = len(plan.cells.numbers) + 1
    return Marginals(plan, counts, sums[:first], sums[first:], mu)


def _counted(draw: _Draw, rows: RowSource, first: Callable[[], ExactSums], mu: float) -> tuple[float, Persons | None]:
    """Return the noisy number of rows; for privacy units, also that of units, each count with half of μ²."""
    if rows.unit is None:
        return float(draw.vector(lambda: np.array([first().n]), mu)[0]), None
    (part,) = split_mu(mu, [Fraction(1, 2)])

    def count(which: int) -> Integers:
        first()  # units are counted by the first pass
        return np.array([rows.unit_counts()[which]])

    number, total = (
        float(draw.vector(functools.partial(count, which), part, most=most)[0])
        for which, most in enumerate((1, rows.unit.max_contributions))
    )
    return number, Persons(number, total, rows.unit.max_contributions)


def score_map_of(schema: Schema, scan: Scan) -> ScoreMap:
    """Return the scores of rows of a schema."""
    return score_map(
        scan.metric,
        scan.linear,
        mean=identity if scan.mean is None else scan.mean,
        constant=schema.groups[INTERCEPT][0],
        entry=float(schema.in_units(schema.intercept)),
        response=scan.response,
        exposure=scan.exposure,
    )


def _total_of(read: Callable[[], ScoreTotals]) -> Callable[[], Integers]:
    return lambda: read().total


def _squares_of(read: Callable[[], ScoreTotals]) -> Callable[[], ExactSums]:
    return lambda: read().squares


def _draw_model(
    transcript: Transcript,
    rows: RowSource,
    model: DeclaredModel,
    mu: Sequence[float],
    draw: _Draw,
    *,
    neighbours: Neighbours,
) -> ModelOutput:
    """Return the outputs of one declared model: a histogram, the steps of a likelihood, and a Gram matrix."""
    plan, words = Plan.of(transcript, model), f"Model {model}"
    edges = bin_edges(plan.expected())
    scan = plan.scan()
    draw.agree(words, scan.metric, scan.linear, edges)
    of_sums = tuple(mu_of_sum(part, neighbours) for part in mu[1:-1])
    norms = ScoreNorms(score_map_of(rows.schema, scan), edges)
    counts = draw.vector(lambda: rows.aggregate(norms, None, words).counts[0], mu[0])
    clip, excess, lost = plan.clip(counts, edges, noise=1 / mu[0], mu=of_sums[-1] if of_sums else mu[-1])
    linear, totals, squares = [], list[Floats](), None
    for step in range(max(len(of_sums), 1)):
        scan = plan.scan()
        draw.agree(words, scan.metric, scan.linear, clip)
        sums = ScoreSums(score_map_of(rows.schema, scan), clip)
        read = functools.cache(functools.partial(rows.aggregate, sums, None, words))
        linear.append(scan.linear)
        if of_sums:
            totals.append(draw.vector(_total_of(read), of_sums[step], unit_bits=FRACTION_BITS))
        if step == len(of_sums) - 1 or not of_sums:
            squares = draw.matrix(_squares_of(read), mu[-1])
        else:
            plan = plan.advanced(totals[-1], clip, of_sums[step])
    if squares is None:
        raise ArgumentError("A declared model requires at least one scan of its scores.")
    return ModelOutput(
        model, plan.metric, tuple(linear), clip, excess, lost, tuple(totals), squares, tuple(mu), of_sums
    )


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback that advances a progress bar on a terminal; None if no bar is shown."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Drawing noise", total=total)
        yield lambda drawn: progress.update(task, advance=drawn)


class _Draw:
    """Add noise to exact sums on the lattice of an account. The results of its methods are private.

    Sums are functions without arguments, called unless the journal has the output already. σ is that of the released
    sum. Each party draws its share of it, and the parties add up their noisy sums.
    """

    def __init__(
        self,
        account: LatticeAccount,
        rng: np.random.Generator,
        parties: Parties | None,
        journal: Journal | None,
        *,
        progress: bool,
    ) -> None:
        self.bits, self.refinement, self.rng, self.progress = account.bits, account.refinement, rng, progress
        self.parties, self.journal = parties, journal

    def agree(self, question: str, *public: Transform | Floats | float) -> None:
        """Begin a question, with public parameters."""
        if self.parties is not None:
            self.parties.agree(question, *public)
        if self.journal is not None:
            self.journal.ask(question, *public)

    def matrix(self, sums: Callable[[], ExactSums], mu: float, *, most: int = 1) -> Floats:
        """Return a noisy Gram matrix of sensitivity ``most``: noise most/μ on the diagonal, most/(√2 μ) off it."""

        def drawn() -> Floats:
            found = sums()
            exact = exact_integers(found.high, found.low, refinement=self.refinement)
            sigmas = [diagonal_sigma(mu, self.bits, rows=most), off_diagonal_sigma(mu, self.bits, rows=most)]
            if self.parties is not None:
                sigmas = [self.parties.share(sigma) for sigma in sigmas]
            m = len(exact)
            with _bar(m * (m + 1) // 2, shown=self.progress and m > _MANY_COLUMNS) as bar:
                noise = symmetric_noise(m, diagonal=sigmas[0], off_diagonal=sigmas[1], rng=self.rng, progress=bar)
            return self._released(exact, noise)

        return drawn() if self.journal is None else self.journal.answer(drawn)

    def histograms(self, found: Callable[[], Sequence[Integers]], bins: Sequence[int], mu: float) -> list[Floats]:
        """Return counts with noise √J/μ: a row, or a privacy unit, is in one bin of each of J histograms."""
        (part,) = split_mu(mu, [Fraction(1, len(bins))])
        return np.split(self.vector(lambda: np.concatenate(found()), part), np.cumsum(bins)[:-1])

    def vector(self, sums: Callable[[], Integers], mu: float, *, most: int = 1, unit_bits: int = 0) -> Floats:
        """Return noisy counts, or sums in units of 2^-unit_bits, of sensitivity ``most`` in norm: noise most/μ."""

        def drawn() -> Floats:
            exact = np.asarray(sums().astype(object) << self.bits - unit_bits, dtype=object)
            sigma = diagonal_sigma(mu, self.bits, rows=most)
            if self.parties is not None:
                sigma = self.parties.share(sigma)
            return self._released(exact, discrete_gaussian(len(exact), sigma=sigma, rng=self.rng))

        return drawn() if self.journal is None else self.journal.answer(drawn)

    def _released(self, exact: Exact, noise: Integers) -> Floats:
        noisy = add_noise(exact, noise)
        return to_floats(noisy if self.parties is None else self.parties.total(noisy), self.bits)
