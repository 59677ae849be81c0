r"""Draw the passes of a release: the Gaussian mechanism on Gram matrices, with exact sums and discrete noise.

The rows are sensitive, and every output is noisy. The account fixes each μ before a row is read. The transform, edges
and clip of a later pass are functions of earlier *outputs* (`gaussmix.releases.preconditioning`), hence
post-processing. Each output is an integer sum over rows of norm at most 1, plus integers of known distribution
(docs/lattice.md). All outputs together are μ-Gaussian-DP up to the slack of the account, with μ² = Σμ_p² over all
releases.

**Order.** Marginals come first, if the release has them; they also determine the thresholds at which numbers are
top-coded in all passes. A noisy count of rows and the first pass follow, then a histogram before each further pass. A
release in one pass has neither count nor histograms. Steps on a likelihood come last. Each releases a sum of clipped
gradients and a sum of weights (:mod:`gaussmix.data.gram`), and is planned from the passes and the earlier steps
(:mod:`gaussmix.models.newton_steps`).

**Privacy units.** If the squared norms of the rows of a unit add up to at most j, the first pass has j times the noise.
Units and rows are counted separately, histograms count units, and later passes clip all rows of a unit together, so
that their sensitivity is one again (docs/privacy.md).

**Large tables.** Passes between the first and the last only estimate a preconditioner, for which a Bernoulli sample of
the rows is enough: with at least πn = 200 m^1.5/μ rows no loss can be measured (docs/preconditioning.md), and
histograms need 20,000/μ rows. Tables of fewer than 200,000 rows are read whole. The sampling rates π are computed from
the noisy count, and each row has one secret sampling key for all of them. No amplification by sampling is claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.accounting.discrete import LatticeAccount, diagonal_sigma, off_diagonal_sigma, split_mu
from gaussmix.data.gram import ExactSums
from gaussmix.data.marginals import MarginalSums
from gaussmix.data.moments import Moments
from gaussmix.data.rows import RowSource
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import FRACTION_BITS
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.noise import (
    ALONE,
    Exact,
    Parties,
    add_noise,
    discrete_gaussian,
    exact_integers,
    symmetric_noise,
    to_floats,
)
from gaussmix.models.newton_steps import plan_step
from gaussmix.releases.marginals import MarginalPlan, Marginals
from gaussmix.releases.preconditioning import (
    Likelihood,
    PassRequest,
    Persons,
    State,
    StepOutput,
    budgets_of,
    label_of,
    plan_histogram,
    plan_pass,
    rates_of,
    run_passes,
)
from gaussmix.releases.transcript import PassOutput, Transcript, start

__all__ = ["draw_marginals", "draw_passes"]

_MANY_COLUMNS = 300  # their noise takes a second


def draw_passes(
    rows: RowSource,
    first: Moments,
    account: LatticeAccount,
    rng: np.random.Generator,
    *,
    likelihood: Likelihood | None = None,
    keys: Sample | None = None,
    marginals: Marginals | None = None,
    parties: Parties = ALONE,
    progress: bool = False,
) -> Transcript:
    """Draw all passes of a release, then all steps on a likelihood.

    Parameters
    ----------
    rows : RowSource
        The table. It must be possible to read it once per pass.
    first : Moments
        Exact sums over all rows for the first pass.
    account : LatticeAccount
        The account of the releases that `releases_of` lists for a schedule.
    rng : Generator
        The secure generator, or a seeded one, which voids the guarantee.
    likelihood : Likelihood, optional
        Number of steps included in the account, and their target.
    keys : Sample, optional
        Sampling keys drawn for this release only, under which the first pass cached rows. Default: drawn from ``rng``.
    marginals : Marginals, optional
        Marginals drawn before the first pass was read (`draw_marginals`), under the same account.
    parties : Parties
        Who adds up and who draws: one curator, or one of several sites (:mod:`gaussmix.mechanism.sites`).
    progress : bool
        Show a progress bar on a terminal if the noise takes long to draw.
    """
    draw, schema = _Draw(account, rng, parties, progress=progress), rows.schema
    steps = 0 if likelihood is None else likelihood.steps
    budgets = budgets_of(account, steps, marginals=marginals is not None)
    mu = budgets.passes if len(budgets.passes) == 1 else budgets.passes[1:]
    most = 1 if rows.unit is None else rows.unit.max_contributions
    parties.agree("Pass 1", *mu, most)
    output = PassOutput(draw.matrix(first.sums(), mu[0], most=most), mu[0])
    outputs = [output]
    if len(mu) > 1:
        number, persons = _counted(draw, rows, first, budgets.passes[0])
        rates = rates_of(account, number, schema.n_columns, steps=steps, marginals=marginals is not None)
        keys = Sample(1.0, rng.bytes(32)) if keys is None else keys
        samples = [None if rate == 1.0 else keys.at(rate) for rate in rates]
        # Sampling keys have 16 bits, so that rates are rounded.
        rates = [1.0 if sample is None else sample.rate for sample in samples]
        state = start(schema, output.matrix, [part * share for part, share in zip(mu, rates, strict=True)], rows.unit)
        passes = len(mu) // 2 + 1

        def request_of(number: int, known: State) -> PassRequest:
            q, histogram = 2 * number - 1, plan_histogram(known)
            transforms = [metric.transform for metric in histogram.metrics]
            words = f"Pass {number + 1} of {passes}, row norms"
            parties.agree(words, *transforms, *histogram.edges, rates[q])
            found = rows.counts(transforms, histogram.edges, sample=samples[q], describe=words)
            seen = tuple(count / rates[q] for count in draw.histograms(found, mu[q]))
            return plan_pass(known, histogram, seen)

        def output_of(number: int, request: PassRequest) -> Floats:
            p, words = 2 * number, f"Pass {number + 1} of {passes}"
            parties.agree(words, request.metric.transform, request.clip, rates[p])
            sums = rows.mapped(request.metric.transform, request.clip, sample=samples[p], describe=words)
            output = PassOutput(draw.matrix(sums, mu[p]), mu[p], request, rates[p], rates[p - 1])
            outputs.append(output)
            return output.matrix / output.rate

        state = replace(state, persons=persons, for_inference=marginals is not None)
        run_passes(state, passes, request_of, output_of)
    transcript = Transcript(tuple(outputs), schema, unit=rows.unit, marginals=marginals)
    return transcript if likelihood is None else _with_steps(transcript, rows, likelihood.target, budgets.steps, draw)


def draw_marginals(
    exact: MarginalSums,
    plan: MarginalPlan,
    account: LatticeAccount,
    rng: np.random.Generator,
    *,
    parties: Parties = ALONE,
) -> Marginals:
    """Return noisy marginals. :mod:`gaussmix.data.marginals` proves the sensitivities."""
    mu = budgets_of(account, marginals=True).marginals
    if mu is None:
        raise ArgumentError("The account has no budget for marginals.")
    of_counts, of_sums = plan.noise_mu(mu)
    draw, most = _Draw(account, rng, parties, progress=False), plan.max_contributions
    parties.agree("Marginals", of_counts, of_sums, most)
    counts = draw.vector(exact.counts, of_counts, most=most)
    sums = draw.vector(np.concatenate([exact.sums, exact.squares]), of_sums, most=most, unit_bits=2 * FRACTION_BITS)
    first = len(exact.sums)
    return Marginals(plan, counts, sums[:first], sums[first:], mu)


def _counted(draw: _Draw, rows: RowSource, first: Moments, mu: float) -> tuple[float, Persons | None]:
    """Return the noisy number of rows; for privacy units, also that of units, each count with half of μ²."""
    if rows.unit is None:
        return float(draw.counts(np.array([first.sums().n]), mu)[0]), None
    (part,) = split_mu(mu, [Fraction(1, 2)])
    number, total = (
        float(draw.counts(np.array([count]), part, most=most)[0])
        for count, most in zip(rows.unit_counts(), (1, rows.unit.max_contributions), strict=True)
    )
    return number, Persons(number, total, rows.unit.max_contributions)


def _with_steps(
    transcript: Transcript, rows: RowSource, target: str, budgets: Sequence[tuple[float, float]], draw: _Draw
) -> Transcript:
    """Return the transcript with one step for each pair of budgets."""
    label = label_of(transcript.schema, target)
    for number, (mu, weight_mu) in enumerate(budgets, 1):
        request = plan_step(transcript, target, mu)
        words = f"Step {number} of {len(budgets)}"
        draw.parties.agree(words, request.transform, request.clip)
        found = rows.gradient(request.transform, label, request.clip, describe=words)
        (weight,) = draw.vector(np.array([found.weight]), weight_mu)
        step = StepOutput(request, draw.vector(found.gradient, mu), float(weight), mu, weight_mu)
        transcript = replace(transcript, steps=(*transcript.steps, step))
    return transcript


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback that updates a progress bar on a terminal; None if no bar is shown."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Drawing noise", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _Draw:
    """Add noise to exact sums on the lattice of an account. The results of its methods are private.

    σ is that of the released sum. Each party draws its share of it, and the parties add up their noisy sums.
    """

    def __init__(
        self, account: LatticeAccount, rng: np.random.Generator, parties: Parties = ALONE, *, progress: bool
    ) -> None:
        self.bits, self.refinement, self.rng, self.progress = account.bits, account.refinement, rng, progress
        self.parties = parties

    def matrix(self, sums: ExactSums, mu: float, *, most: int = 1) -> Floats:
        """Return a noisy Gram matrix of sensitivity ``most``: noise most/μ on the diagonal, most/(√2 μ) off it."""
        exact = exact_integers(sums.high, sums.low, refinement=self.refinement)
        with _bar(shown=self.progress and len(exact) > _MANY_COLUMNS) as bar:
            noise = symmetric_noise(
                len(exact),
                diagonal=self.parties.share(diagonal_sigma(mu, self.bits, rows=most)),
                off_diagonal=self.parties.share(off_diagonal_sigma(mu, self.bits, rows=most)),
                rng=self.rng,
                progress=bar,
            )
        return self._released(exact, noise)

    def histograms(self, found: Sequence[Integers], mu: float) -> list[Floats]:
        """Return counts with noise √J/μ: a row, or a privacy unit, is in one bin of each of J histograms."""
        (part,) = split_mu(mu, [Fraction(1, len(found))])
        return np.split(self.counts(np.concatenate(found), part), np.cumsum([len(counts) for counts in found])[:-1])

    def vector(self, sums: Integers, mu: float, *, most: int = 1, unit_bits: int = FRACTION_BITS) -> Floats:
        """Return noisy sums, in units of 2^-unit_bits, with sensitivity ``most`` in norm: noise most/μ."""
        exact = np.asarray(sums.astype(object) << (self.bits - unit_bits), dtype=object)
        return self._released(exact, self._noise(len(sums), mu, most))

    def counts(self, counts: Integers, mu: float, *, most: int = 1) -> Floats:
        """Return noisy counts of sensitivity ``most``: noise most/μ."""
        exact = np.asarray(counts.astype(object) << self.bits, dtype=object)
        return self._released(exact, self._noise(len(counts), mu, most))

    def _noise(self, count: int, mu: float, most: int) -> Integers:
        sigma = self.parties.share(diagonal_sigma(mu, self.bits, rows=most))
        return discrete_gaussian(count, sigma=sigma, rng=self.rng)

    def _released(self, exact: Exact, noise: Integers) -> Floats:
        return to_floats(self.parties.total(add_noise(exact, noise)), self.bits)
