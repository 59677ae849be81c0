r"""Find bounds and levels from noisy counts: ``gaussmix.propose_bounds``.

This module is part of the mechanism, the boundary between sensitive and private values. Declarations are checked first,
then the rows are counted, the ledger is charged, and noise is drawn. Numbers are counted on a public grid, and every
bin gets noise. If the table can be read again, they are counted once more on a finer public grid between the bounds
found. Categories are counted by key; only keys that occur get noise, and only those above a threshold are released.
:mod:`gaussmix.accounting.thresholds` has the proof.

**Privacy units.** One row of each unit is counted, chosen uniformly at random in every reading (`one_row_each`). Given
the choices, tables that differ by one unit, whatever the number of its rows, differ by one counted row, and the choices
in other units have the same distribution under both: the row-level account holds for units, by joint convexity. More
rows of a unit would not help: j of them would multiply counts and sensitivity alike.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import Output, refuse_inputs, refuse_suffix, reserve
from gaussmix._types import Floats, Integers
from gaussmix.accounting.discrete import diagonal_sigma
from gaussmix.accounting.thresholds import CountsAccount, counts_account, releases_of_counts, with_threshold
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.counts import COARSE_BINS, FINE_BINS, ColumnCounts, FineGrid, OneRowEach, count_columns, count_finely
from gaussmix.data.schema import PartialSchema
from gaussmix.data.source import ReadOptions, Table
from gaussmix.data.table import open_table
from gaussmix.errors import BudgetUnmetError, DeclarationError
from gaussmix.ledger import Budget, Ledger
from gaussmix.ledger.budget import Charged, warn_if_weak
from gaussmix.ledger.store import refuse_as_output
from gaussmix.mechanism.noise import add_noise, describe, discrete_gaussian, generator, to_floats
from gaussmix.mechanism.release import (
    certify,
    commit,
    interruptions_wait,
    refuse_lone_force,
    remember,
    unit_of,
    warn_if_released_before,
)
from gaussmix.models.bounds import TAIL, Proposal, coarse_bounds, distinct_levels, fine_bounds, usable
from gaussmix.releases.certificate import ROW_BY_ROW, SECURE, Condition

__all__ = ["MOST_LEVELS", "propose_bounds"]

MOST_LEVELS = 64
"""Maximum number of levels of a proposed category: those with the largest noisy counts."""

_SCHEMA_BYTES = 2**20


def propose_bounds(
    data: Any,
    schema: PartialSchema | Mapping[str, Any] | str | os.PathLike[str],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    reading: ReadOptions | None = None,
    privacy_unit: str | None = None,
    tail: float = TAIL,
    most_levels: int = MOST_LEVELS,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    random_state: int | np.random.Generator | None = None,
) -> Proposal:
    """Find bounds of numbers and levels of categories by a separate private release.

    Parameters
    ----------
    data : table, path, glob, query or iterable of batches
        As for :func:`gaussmix.release`, except tables on a cluster and moments. A table that can be read only once
        gives bounds that are powers of two; a table that can be read twice gives finer bounds.
    schema : mapping or path
        Names and kinds of columns: ``"number"``, ``"category"`` (text), ``"codes"`` (integers that are levels), or a
        template with open bounds and levels. Fully declared columns are copied and not read.
    epsilon, delta, budget, reading, out, force, random_state
        As for :func:`gaussmix.release`; ``out`` is a JSON file for the schema.
    privacy_unit : str, optional
        The column that identifies a person or other unit. The guarantee then covers all rows of one unit; one row of
        each, chosen at random, is counted. Default: row-level privacy.
    tail : float
        Share of the rows that may lie beyond either bound of a number.
    most_levels : int
        Maximum number of levels of a category.

    Returns
    -------
    Proposal

    Raises
    ------
    BudgetUnmetError
        If no column has counts above the noise. The budget is spent.

    Examples
    --------
    >>> table = {"age": np.arange(20000.0) % 70 + 20, "sex": ["f", "m"] * 10000}
    >>> found = propose_bounds(table, {"age": "number", "sex": "category"}, epsilon=1.0, delta=1e-6)
    >>> age, sex = found.schema.columns.values()
    >>> 16 <= age.lower <= 20, 90 <= age.upper <= 128, sex.levels
    (True, True, ('f', 'm'))
    """
    columns = PartialSchema.of(schema)
    tail, most = check.in_interval(0, 0.5, tail=tail), check.positive_integer(most_levels=most_levels)
    rng = generator(random_state)
    unit, counted = None, None
    if privacy_unit is not None:
        unit, counted = (
            PrivacyUnit(privacy_unit, 1, "sample"),
            OneRowEach(privacy_unit, functools.partial(rng.bytes, 32)),
        )
        if privacy_unit in {*columns.names, *columns.declared}:
            raise DeclarationError(
                f"Column {privacy_unit!r} is the privacy unit and cannot be released. Remove it from the schema."
            )
    spent = Budget.of(epsilon, delta, budget)
    ledger = spent.ledger
    table = open_table(data, None if reading is None else check.instance(ReadOptions, reading=reading))
    refuse_lone_force(out, force=force)
    table.check_unit(privacy_unit)
    if unit is None and (unit := unit_of(table)) is not None:  # whose rows count one by one
        privacy_unit = unit.column
    account = _account(columns, table.single_use is None, spent, privacy_unit)
    warn_if_weak(account.epsilon, account.delta)
    protects = describe(rng) == SECURE
    with _reserved(out, table.paths, schema, ledger, force=force) as output:
        if protects and ledger is None:
            warn_if_released_before(table.origins)
        counts = count_columns(table, columns, counted)
        if protects:
            remember(table.origins)
        with interruptions_wait():
            charged = spent.charge(account.lattice, failures=account.threshold_delta, privacy_unit=privacy_unit)
            draw = _Draw(account, columns, rng, tail, most)
            bounds, levels = draw.coarse(counts), draw.levels(counts)
        bounds = draw.refined(table, bounds, counted)
        with interruptions_wait():
            conditions = [ROW_BY_ROW] * table.computed
            return _written(output, _proposal(columns, bounds, levels, account, rng, conditions, charged, unit))


def _account(columns: PartialSchema, twice: bool, budget: Budget, privacy_unit: str | None) -> CountsAccount:
    """Return noise and threshold, computed from declared quantities only."""
    grids, keys = [COARSE_BINS] * len(columns.numbers), len(columns.keys)
    refined = [FINE_BINS] * len(grids) if twice else []
    if budget.ledger is None:
        epsilon, delta = check.positive(epsilon=budget.epsilon), check.real(delta=budget.delta)
        return counts_account(epsilon, delta, grids=grids, keys=keys, refined=refined, neighbours=budget.relation)
    budget.ledger.check_privacy_unit(privacy_unit)
    shares, coordinates = releases_of_counts(grids, keys, refined)
    lattice = budget.lattice_account(shares=shares, coordinates=coordinates)
    keyed = tuple(range(len(grids), len(grids) + keys))
    allowed, reserved = budget.ledger.failures_left(lattice, share=budget.share), budget.ledger.reservation
    return with_threshold(lattice, keyed, allowed=allowed, epsilon=reserved.epsilon, delta=reserved.delta)


class _Draw:
    """Add noise to counts. The results of its methods are private."""

    def __init__(
        self, account: CountsAccount, columns: PartialSchema, rng: np.random.Generator, tail: float, most: int
    ) -> None:
        self.account, self.columns, self.rng, self.tail, self.most = account, columns, rng, tail, most
        self.bits, mu = account.lattice.bits, account.lattice.noise_mu
        first, second = len(columns.numbers), len(columns.numbers) + len(columns.keys)
        self.coarse_mu, self.key_mu, self.fine_mu = mu[:first], mu[first:second], mu[second:]

    def coarse(self, counts: ColumnCounts) -> dict[str, tuple[float, float]]:
        """Return bounds on the coarse grid for the columns where any were found."""
        found = {}
        for name, mu in zip(self.columns.numbers, self.coarse_mu, strict=True):
            noisy = self._noisy(counts.bins[name], mu)
            bounds = coarse_bounds(noisy, noise=1 / mu, columns=len(self.coarse_mu), tail=self.tail)
            if bounds is not None:
                found[name] = bounds
        return found

    def levels(self, counts: ColumnCounts) -> dict[str, tuple[Any, ...]]:
        """Return keys above the threshold for the columns where any were found."""
        names: set[str] = set(self.columns.taken)
        found = {}
        for name, mu in zip(self.columns.keys, self.key_mu, strict=True):
            keys = sorted(counts.keys[name])  # by the key: the order of the rows is not kept
            noisy = self._on_lattice(np.array([counts.keys[name][key] for key in keys], dtype=np.int64), mu)
            shown = {key: float(y) for key, y in zip(keys, noisy, strict=True) if y >= self.account.threshold}
            levels, names = distinct_levels(name, shown, taken=names, most=self.most)
            if levels:
                found[name] = levels
        return found

    def refined(
        self, table: Table, bounds: dict[str, tuple[float, float]], unit: OneRowEach | None
    ) -> dict[str, tuple[float, float]]:
        """Refine bounds on fine grids, if the table can be read again."""
        if not self.fine_mu or not bounds:
            return bounds
        grids = {name: FineGrid.between(*pair) for name, pair in bounds.items()}
        counts = count_finely(table, self.columns, grids, unit)
        mus = dict(zip(self.columns.numbers, self.fine_mu, strict=True))
        return {
            name: fine_bounds(self._noisy(counts[name], mus[name]), grid, noise=1 / mus[name], tail=self.tail)
            for name, grid in grids.items()
        }

    def _noisy(self, counts: Integers, mu: float) -> Floats:
        return to_floats(self._on_lattice(counts, mu), self.bits)

    def _on_lattice(self, counts: Integers, mu: float) -> Any:
        exact = np.asarray(counts.astype(object) << self.bits, dtype=object)
        return add_noise(exact, discrete_gaussian(len(counts), sigma=diagonal_sigma(mu, self.bits), rng=self.rng))


def _proposal(
    columns: PartialSchema,
    bounds: dict[str, tuple[float, float]],
    levels: dict[str, tuple[Any, ...]],
    account: CountsAccount,
    rng: np.random.Generator,
    conditions: Sequence[Condition],
    charged: Charged | None,
    unit: PrivacyUnit | None,
) -> Proposal:
    """Return the schema and its certificate from the noisy counts."""
    ranges = {name: usable(pair, columns.numbers[name]) for name, pair in bounds.items()}
    proposed = {name: pair for name, pair in ranges.items() if pair is not None}
    left_out = tuple(name for name in columns.names if name not in proposed and name not in levels)
    if not (proposed or levels or columns.declared):
        raise BudgetUnmetError(
            "No count exceeded the noise threshold, so no bounds or levels were found. The budget is spent. Use fewer "
            "columns or a larger budget, or declare bounds and levels."
        )
    found = columns.schema(proposed, levels)
    certificate = certify(
        found,
        account,
        rng,
        made_by="propose_bounds",
        budget=(account.epsilon, account.delta),
        neighbours=account.neighbours,
        conditions=conditions,
        unit=unit,
        charged=charged,
    )
    return Proposal(found, certificate, left_out)


def _reserved(
    out: str | os.PathLike[str] | None,
    paths: Sequence[str | os.PathLike[str]],
    schema: Any,
    ledger: Ledger | None,
    *,
    force: bool,
) -> Any:
    """Preallocate the schema's file before anything is spent."""
    if out is None:
        return nullcontext()
    if ledger is not None:
        refuse_as_output(out, ledger.path)
    refuse_suffix(out, own=(".json",), kind="a JSON schema")
    refuse_inputs(out, [*paths, schema] if isinstance(schema, str | os.PathLike) else paths)
    return reserve(out, _SCHEMA_BYTES, force=force)


def _written(output: Output | None, proposal: Proposal) -> Proposal:
    if output is None:
        return proposal
    return replace(proposal, path=commit(output, proposal.to_bytes(), "The schema"))
