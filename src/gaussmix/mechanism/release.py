"""Make one private release from a table of any kind: :func:`gaussmix.release`.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> age = rng.uniform(18, 95, 50_000)
>>> table = {"age": age, "cost": 2 + 0.1 * age + rng.uniform(-1, 1, 50_000)}
>>> private = release(table, schema={"age": [18, 95], "cost": [0, 20]}, epsilon=1.0, delta=1e-6, random_state=0)
>>> abs(private.ols("cost").params["age"] - 0.1) < 0.01
True

A release is always made in the same order: all declarations are checked, the rows are read, the ledger is charged, and
the noise is drawn. `prepare` fixes schema, account, generator, ledger and output without reading a row or spending
budget. The `draw` method of its result reads the rows, charges the ledger, draws (reading again if there are several
passes) and writes the file; it can be called once. No message depends on the rows.

>>> once = OneDraw()
>>> once.take()
>>> once.take()
Traceback (most recent call last):
    ...
gaussmix.errors.ArgumentError: This prepared release was already drawn. Prepare another one, which costs new budget.

A second release of the same rows in one process without a ledger gives a warning. Tables are recognised by the resolved
paths of their files, or as the same objects; their content is never compared.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import Output, refuse_inputs, reserve
from gaussmix._version import __version__
from gaussmix.accounting.accounts import Account, NonPrivate
from gaussmix.accounting.discrete import LARGEST_SIGMA, LatticeAccount, diagonal_sigma
from gaussmix.accounting.parameters import Neighbours, frames_to_the_caller
from gaussmix.accounting.sites import Sites, joint_account
from gaussmix.data.columns import Numeric
from gaussmix.data.contributions import UNIQUE, PrivacyUnit
from gaussmix.data.gram import ExactSums
from gaussmix.data.marginals import MarginalSums, has_marginals
from gaussmix.data.moments import Moments
from gaussmix.data.rows import ONLY_PER_UNIT, SCHEMA_REQUIRED, RowSource, rows_of
from gaussmix.data.sampling import Sample, cached_rows
from gaussmix.data.schema import FRACTION_BITS, Schema, declared_schema
from gaussmix.data.source import FileOrigin, ReadOptions, Table
from gaussmix.data.table import open_table
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    BudgetExceededError,
    BudgetUnmetError,
    BudgetWarning,
    DeclarationError,
    GaussmixError,
    OutputError,
)
from gaussmix.ledger import Budget, Ledger
from gaussmix.ledger.budget import LARGEST_DELTA, Charged, warn_if_weak
from gaussmix.ledger.store import refuse_as_output
from gaussmix.mechanism.journal import Journal, refuse_unfinished
from gaussmix.mechanism.noise import Parties, describe, generator, secure_generator
from gaussmix.mechanism.passes import cost_of, draw_marginals, draw_passes
from gaussmix.models.declared import model_budget
from gaussmix.models.release import Release, load
from gaussmix.releases.certificate import (
    LEDGER_BUDGET,
    PERSONS_APART,
    RESUMED,
    ROW_BY_ROW,
    ROWS_PUBLIC,
    SECURE,
    Certificate,
    Condition,
    conditions_of_sites,
    models_public,
)
from gaussmix.releases.counts import large_delta
from gaussmix.releases.declared import MODEL_SHARE, DeclaredModel, ModelBudget
from gaussmix.releases.file import check_name, partial_path, release_id
from gaussmix.releases.marginals import MarginalPlan, Marginals
from gaussmix.releases.preconditioning import (
    AUTOMATIC_PASSES,
    accounts_for,
    budgets_of,
    has_several_passes,
    rates_of,
    releases_of,
)
from gaussmix.releases.transcript import PassOutput, Transcript

__all__ = [
    "Joint",
    "OneDraw",
    "Passes",
    "Prepared",
    "accounts_of",
    "certify",
    "check_rows",
    "commit",
    "interruptions_wait",
    "nonprivate_release",
    "prepare",
    "refuse_lone_force",
    "release",
    "remember",
    "unit_of",
    "warn_if_released_before",
]


Passes = int | Literal["auto"]
Topcode = Literal["auto"] | Mapping[str, tuple[float | None, float | None]] | None

Accounts = tuple[LatticeAccount | None, LatticeAccount | None]
"""The account of a release, and that of one pass if the caller did not choose the number of passes."""


def refuse_lone_force(out: str | os.PathLike[str] | None, *, force: bool) -> None:
    """Reject ``force`` where no file is written."""
    if force and out is None:
        raise ArgumentError("force requires out, the file to replace.")


def accounts_of(
    budget: Budget,
    passes: Passes,
    schema: Schema,
    *,
    models: ModelBudget | None = None,
    unit: PrivacyUnit | None = None,
    marginals: MarginalPlan | None = None,
    sites: Sites | None = None,
    release: str | None = None,
) -> Accounts:
    """Return the accounts with the least noise for a budget; None for an infinite ε. Nothing is spent.

    Marginals are drawn with several passes only. With ``sites``, the account is that of the total noise of all sites.
    ``release`` identifies a release that is resumed, whose accounts are those it had before the ledger was charged.
    """
    if budget.is_infinite:
        return None, None
    if budget.ledger is not None:
        budget.ledger.check_privacy_unit(None if unit is None else unit.column)
    unit = unit and unit.bounded

    found: list[LatticeAccount] = []
    for number in (1, AUTOMATIC_PASSES) if passes == "auto" else (check.positive_integer(passes=passes),):
        try:
            found.append(
                _account(budget, number, schema, models, unit, marginals if number > 1 else None, sites, release)
            )
        except BudgetUnmetError:  # the smallest parts of a very small or very large budget fit no lattice
            if not found or (marginals is not None and marginals.tables):
                raise
    return found[-1], found[0] if passes == "auto" else None


def _account(
    budget: Budget,
    passes: int,
    schema: Schema,
    models: ModelBudget | None,
    unit: PrivacyUnit | None,
    plan: MarginalPlan | None,
    sites: Sites | None,
    release: str | None,
) -> LatticeAccount:
    """Return the account of a number of passes.

    A budget so small that rows would have to be rounded further is rejected: the noise would dominate any table. With a
    privacy unit of at most j rows the noise is j times as large in the first pass and in marginals, and √2 j times in
    the count of rows.
    """
    cells = None if plan is None else plan.coordinates
    shares, coordinates = releases_of(
        passes, schema.n_columns, models=models, persons=unit is not None, marginals=cells
    )
    if sites is None:
        account = budget.lattice_account(shares=shares, coordinates=coordinates, release=release)
    else:
        pair = cast(float, budget.epsilon), cast(float, budget.delta)
        account = joint_account(*pair, sites, shares=shares, coordinates=coordinates, neighbours=budget.relation)
    if account.row_bits < FRACTION_BITS:
        raise BudgetUnmetError(
            f"epsilon={account.epsilon!r} is too small for a release: the noise would dominate any table. Increase "
            "the budget, or decrease passes."
        )
    most = 1 if unit is None else unit.max_contributions
    parts = [] if unit is None else [part / 2 for part in account.noise_mu[:2]]
    if plan is not None and (mu := budgets_of(account, models, marginals=True).marginals) is not None:
        parts += plan.noise_mu(mu)
    if parts and diagonal_sigma(min(parts), account.bits, rows=most) >= LARGEST_SIGMA:
        raise BudgetUnmetError(
            f"epsilon={account.epsilon!r} is too small for max_contributions={most}: the noise would exceed the range "
            "of integer arithmetic. Decrease max_contributions or passes, or increase the budget."
        )
    return account


NOT_PROTECTED = Condition(True, "epsilon is infinite, so no noise was added and no row is protected.")
SEED_KNOWN = Condition(
    True, "the noise came from a seed or a generator supplied by the caller; anyone who knows it can remove the noise."
)


def nonprivate_release(
    sums: ExactSums, schema: Schema, *, made_by: str = "release", declared: Schema | None = None
) -> Release:
    """Return a release of the exact Gram matrix, for ``epsilon=inf``. **Not private**, and certified as such."""
    certificate = certify(
        schema if declared is None else declared,
        NonPrivate(),
        secure_generator(),
        made_by=made_by,
        budget=(math.inf, 1.0),
        neighbours="add-remove",
    )
    return Release(Transcript((PassOutput(sums.floats(), math.inf),), schema), certificate)


def certify(
    schema: Schema,
    account: Account,
    rng: np.random.Generator,
    *,
    made_by: str,
    budget: tuple[float, float],
    neighbours: Neighbours,
    n_rows: int | None = None,
    conditions: Sequence[Condition] = (),
    unit: PrivacyUnit | None = None,
    charged: Charged | None = None,
    joint: Joint | None = None,
    release: str | None = None,
) -> Certificate:
    """Return the certificate of a release, with all conditions of its guarantee.

    ``charged`` is the ledger in which the release was recorded, whose budget covers all of its releases, and the entry.
    ``release`` is the identifier of the release, if it has one already.
    The certificate of a joint release is the same at every site: identifier and time are those of the agreement, and it
    names no ledger.
    """
    epsilon, delta = budget
    recorded: dict[str, Any] = {
        "release": uuid.uuid4().hex if release is None else release,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "sites": None,
    }
    if charged is not None:
        ledger, entry = charged
        recorded |= {"release": entry.release, "ledger": ledger.fingerprint, "entry": entry.id}
        recorded["reservation"] = ledger.reservation
    if joint is not None:
        recorded |= {"release": joint.release, "time": joint.time, "sites": joint.sites}
    generator = SECURE if math.isinf(epsilon) else describe(rng)
    found = [*[LEDGER_BUDGET] * (charged is not None), *conditions]
    sites = recorded["sites"]
    found += [PERSONS_APART] * (unit is not None) if sites is None else conditions_of_sites(sites, unit)
    found += [ROWS_PUBLIC] * (n_rows is not None)
    found += [NOT_PROTECTED] * math.isinf(epsilon)
    found += [SEED_KNOWN] * (generator != SECURE)
    return Certificate(
        made_by=made_by,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        account=account,
        schema=schema,
        generator=generator,
        conditions=tuple(found),
        version=__version__,
        privacy_unit=unit,
        **recorded,
    )


@contextlib.contextmanager
def interruptions_wait() -> Iterator[None]:
    """Defer SIGINT (Ctrl-C) and SIGTERM until the block ends. Has no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler is not None}
    for number in before:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signalled in dict.fromkeys(received):
            os.kill(os.getpid(), signalled)


class Joint(Parties, Protocol):
    """One of several sites, or their curator (:mod:`gaussmix.mechanism.sites`, :mod:`gaussmix.mechanism.exchange`)."""

    @property
    def sites(self) -> Sites | None:
        """The number of sites and what they assume; None if they trust a curator."""

    @property
    def release(self) -> str:
        """Identifier of the joint release, the same at every site."""

    @property
    def time(self) -> str:
        """Time of the agreement."""

    def begin(self, account: LatticeAccount, *, file: Path | None) -> None:
        """Meet the other sites and charge this site's ledger. Nothing computed from rows is sent before."""


def commit(output: Output, content: bytes, what: str, *, mode: int = 0o644) -> Path:
    """Write what was released and return its path, with a warning if it is not the one that was asked for."""
    found = output.commit(content, mode=mode)
    if found != output.path:
        warnings.warn(
            f"{output.path} was created by another process and was not replaced. {what} is in {found}.",
            UserWarning,
            stacklevel=frames_to_the_caller(),
        )
    return found


class OneDraw:
    """A guard that lets a preparation be drawn once, by one thread."""

    def __init__(self) -> None:
        self._unused = threading.Lock()

    def take(self) -> None:
        """Reject a second draw, which would be a second release."""
        if not self._unused.acquire(blocking=False):
            raise ArgumentError("This prepared release was already drawn. Prepare another one, which costs new budget.")


def unit_of(table: Table) -> PrivacyUnit | None:
    """Return the privacy unit of a table that has one row for each unit by construction."""
    return None if table.unit_column is None else PrivacyUnit(table.unit_column, 1, UNIQUE)


def check_rows(rows: RowSource, schema: Schema, unit: PrivacyUnit | None = None) -> None:
    """Reject rows with another schema or privacy unit, before they are read."""
    if rows.schema != schema:
        raise DeclarationError(
            "The moments were built with a different schema from the one that was passed. Omit schema, or rebuild the "
            "moments with it."
        )
    if rows.unit != unit:
        raise DeclarationError(
            "The moments were built with a different privacy unit from the one that was passed. Omit privacy_unit, or "
            "rebuild the moments with it."
        )


ADD_UP = (
    "These rows were already released in this process. Privacy losses of several releases of the same rows add up. Use "
    'a ledger to account for all of them: ledger = gm.Ledger("rows.ledger", epsilon=..., delta=..., releases=...), '
    "then release(..., budget=gm.Budget(ledger=ledger))."
)


_places: set[FileOrigin] = set()
_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def warn_if_released_before(origins: Sequence[Any]) -> None:
    """Issue one :class:`UserWarning` if one of several files, queries or objects was released before."""
    if any(
        _resolved(own) in _places if isinstance(own, FileOrigin) else _objects.get(id(own)) is own for own in origins
    ):
        warnings.warn(ADD_UP, UserWarning, stacklevel=frames_to_the_caller())


def remember(origins: Sequence[Any]) -> None:
    """Record that files, queries or objects were released, by weak references that keep nothing alive."""
    for own in origins:
        if isinstance(own, FileOrigin):
            _places.add(_resolved(own))
            continue
        with contextlib.suppress(TypeError):  # a list of values could only be recognised if it were kept alive
            _objects[id(own)] = own


def _resolved(origin: FileOrigin) -> FileOrigin:
    return FileOrigin(origin.path.resolve(), origin.query.strip())


_MARGIN = 1.1  # of cached rows over those that are expected to be needed
_BYTES_PER_NUMBER = 9  # a double and Parquet's own, generously
_BYTES_PER_COLUMN = 512  # in the footer, and in the JSON of each pass
MOST_CELLS = 10**6
"""Largest number of cells of all columns and tables: a file with more could not be read."""

_BYTES_PER_MARGINAL = 64  # as JSON, which Parquet's footer holds twice
_SPARE_BYTES = 2**16  # for the rest of the certificate


@dataclass(frozen=True)
class Prepared:
    """A release that is ready except for the rows. As a context manager it frees unused disk space of the output.

    Attributes
    ----------
    account : LatticeAccount or None
        The account; None for an infinite ε.
    single : LatticeAccount or None
        The account of one pass with the same budget, for tables that can be read only once, if the caller did not
        choose the number of passes.
    models : ModelBudget or None
        Declared models, included in the account.
    marginals : MarginalPlan or None
        Marginals drawn before the first of several passes.
    thresholds : "auto" or dict
        Thresholds for top-coding: computed from the marginals, or declared.
    joint : Joint or None
        The other sites, if the release is of rows at several sites.
    journal : Journal or None
        File of the outputs of a release that can be resumed: one with an output file, drawn from the secure generator.
    """

    schema: Schema
    account: LatticeAccount | None
    single: LatticeAccount | None
    made_by: str
    n_rows: int | None
    conditions: tuple[Condition, ...]
    budget: Budget
    output: Output | None
    rng: np.random.Generator
    models: ModelBudget | None = None
    unit: PrivacyUnit | None = None
    marginals: MarginalPlan | None = None
    thresholds: Literal["auto"] | dict[str, tuple[float, float]] = field(default_factory=dict)
    joint: Joint | None = None
    journal: Journal | None = None
    _once: OneDraw = field(default_factory=OneDraw, repr=False, compare=False)

    def rows(self, data: Any, options: ReadOptions | None = None) -> RowSource:
        """Return the rows of a table as this release reads them. The caller must close the result."""
        return rows_of(
            data,
            self.schema,
            options,
            unit=self.unit and self.unit.bounded,
            new_key=functools.partial(self.rng.bytes, 32),
        )

    def draw(self, rows: RowSource, *, origins: Sequence[Any] = (), progress: bool = False) -> Release:
        """Read the rows, charge the ledger, draw the noise and write the file. A second call raises an error.

        ``origins`` are the files, queries and objects that hold the rows, for a warning if they were released before.
        """
        check_rows(rows, self.schema, self.unit and self.unit.bounded)
        protects, journal = self.account is not None and describe(self.rng) == SECURE, self.journal
        resumes = journal is not None and journal.has_begun
        if protects and self.budget.ledger is None and self.joint is None and not resumes:
            warn_if_released_before(origins)
        account = self._account_for(rows)
        several = account is not None and has_several_passes(account, self.models)
        keys = Sample(1.0, self.rng.bytes(32)) if several else None
        plan = self.marginals if several else None
        with ExitStack() as stack:
            first: Callable[[], Any]  # exact sums of the first reading: of marginals, or else of the first pass
            if plan is None:
                rows = self._coded(rows, {} if self.thresholds == "auto" else self.thresholds, stack)
                first = functools.cache(functools.partial(rows.gram, cache=keys))
            else:
                first = functools.cache(functools.partial(self._marginal_sums, rows, plan))
            # The first reading checks every value before anything is charged.
            if journal is None or not journal.drawn:
                first()
            self._once.take()
            if protects:
                remember(origins)
            if account is None:
                sums = cast(ExactSums, first())
                return self._written(nonprivate_release(sums, rows.schema, made_by=self.made_by, declared=self.schema))
            long = several or self.models is not None or self.joint is not None
            with nullcontext() if long else interruptions_wait():
                # Several passes, declared models and other sites take long and can be interrupted.
                try:
                    private = self._drawn(rows, first, plan, account, stack, keys=keys, progress=progress)
                    with interruptions_wait():
                        return self._written(private)
                except BaseException as error:
                    if journal is not None and journal.has_begun:
                        error.add_note(journal.words(_spent(self.budget, account)))
                    raise

    def _marginal_sums(self, rows: RowSource, plan: MarginalPlan) -> MarginalSums:
        """Return exact sums for the marginals."""
        if self.schema.weight is not None:  # the base schema does not refuse negative weights
            with closing(rows.recoded(self.schema)) as weighted:
                weighted.gram()
        with closing(rows.recoded(plan.schema)) as base:
            return base.aggregate(plan.query, describe="Counting")

    def _coded(self, rows: RowSource, thresholds: dict[str, tuple[float, float]], stack: ExitStack) -> RowSource:
        """Return the rows with numbers coded to thresholds."""
        if not thresholds:
            return rows
        return stack.enter_context(closing(rows.recoded(self.schema.coded(thresholds))))

    def _drawn(
        self,
        rows: RowSource,
        first: Callable[[], Any],
        plan: MarginalPlan | None,
        account: LatticeAccount,
        stack: ExitStack,
        *,
        keys: Sample | None = None,
        progress: bool,
    ) -> Release:
        """Record the release, then draw it: a crash costs budget, not privacy.

        ``first`` returns the sums of the marginals of ``plan``, or of the first pass if there are none; ``keys`` are
        sampling keys under which the first pass caches rows for later ones.
        """
        file, joint, charged = None if self.output is None else self.output.path, self.joint, None
        resumed = self.journal is not None and self.journal.has_begun
        if joint is not None:
            joint.begin(account, file=file)
        else:
            charged = self._charged(account, file)
        marginals = None
        if plan is not None:
            marginals = draw_marginals(
                first, plan, account, self.rng, models=self.models, parties=joint, journal=self.journal
            )
            thresholds = marginals.thresholds() if self.thresholds == "auto" else self.thresholds
            rows = self._coded(rows, thresholds, stack)
            first = functools.partial(rows.gram, cache=keys, limit=self._cached_rate(account, marginals))
        transcript = draw_passes(
            rows,
            first,
            account,
            self.rng,
            models=self.models,
            keys=keys,
            marginals=marginals,
            parties=joint,
            journal=self.journal,
            progress=progress,
        )
        certificate = certify(
            self.schema,
            account,
            self.rng,
            made_by=self.made_by,
            budget=(account.epsilon, account.delta),
            neighbours=account.neighbours,
            n_rows=self.n_rows,
            conditions=(
                *self.conditions,
                *models_public(self.models),
                *[ROW_BY_ROW] * (rows.is_computed and joint is None),
                *[RESUMED] * resumed,
            ),
            unit=self.unit,
            charged=charged,
            joint=joint,
            release=None if self.journal is None else self.journal.release,
        )
        return Release(transcript, certificate)

    def _cached_rate(self, account: LatticeAccount, marginals: Marginals) -> float | None:
        """Return the rate of the largest sample that later passes need and the cache holds, from noisy counts.

        None if there is none; sums of weights do not count rows.
        """
        if self.schema.weight is not None:
            return None
        rows, m, most = max(marginals.rows[0], 1.0), self.schema.n_columns, marginals.plan.max_contributions
        # There may be as few units as rows/j. The count from which rates are computed later has other noise.
        rates = rates_of(account, rows / most, m, models=self.models, marginals=True)[1:-1]
        wanted = [min(_MARGIN * rate, 1.0) for rate in sorted(set(rates), reverse=True)]
        return next((rate for rate in wanted if rate * rows <= cached_rows(m)), None)

    def _charged(self, account: LatticeAccount, file: Path | None) -> Charged | None:
        """Charge the ledger, once for a release that is resumed."""
        unit, release = None if self.unit is None else self.unit.column, None
        if self.journal is not None:
            self.journal.begin(account)
            release = self.journal.release
        try:
            charged = self.budget.charge(account, file=file, privacy_unit=unit, release=release)
        except BudgetExceededError:  # another process was first
            if self.journal is not None:
                self.journal.discard()
            raise
        if self.journal is not None:
            self.journal.is_charged = True
        return charged

    def _account_for(self, rows: RowSource) -> LatticeAccount | None:
        """Return the account, or that of one pass if the table can be read only once and this is allowed."""
        if self.account is None or len(self.account.noise_mu) == 1:
            return self.account
        try:
            rows.check_again()
        except GaussmixError:
            if self.single is None or self.models is not None or (self.marginals and self.marginals.tables):
                raise
            return self.single
        return self.account

    def _written(self, private: Release) -> Release:
        if self.output is not None:
            path = commit(self.output, private.to_bytes(), "The release", mode=private.file_mode)
            object.__setattr__(private, "path", path)
        if self.journal is not None:
            self.journal.discard()
        delta = private.certificate.delta
        if delta < LARGEST_DELTA and (weak := large_delta(private.statistic, delta)):
            # The budget is spent: a filter that turns warnings into errors must not lose the release.
            with contextlib.suppress(BudgetWarning):
                warnings.warn(weak, BudgetWarning, stacklevel=frames_to_the_caller())
        return private

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        if self.output is not None:
            self.output.abandon()
        if self.journal is not None:
            self.journal.close()


def _spent(budget: Budget, account: LatticeAccount) -> str:
    """Return what a release costs, in words."""
    if budget.ledger is not None:
        return f"μ = {account.mu:.4g} of {budget.ledger.path}"
    return f"ε = {account.epsilon:g}, δ = {account.delta:g}"


def prepare(
    schema: Schema,
    budget: Budget,
    *,
    passes: Passes = "auto",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    n_rows: int | None = None,
    random_state: int | np.random.Generator | None = None,
    made_by: str = "release",
    conditions: Sequence[Condition] = (),
    models: Sequence[DeclaredModel | str] = (),
    model_share: float = MODEL_SHARE,
    unit: PrivacyUnit | None = None,
    topcode: Topcode = None,
    tables: Sequence[tuple[str, str]] = (),
    marginals: bool = False,
    joint: Joint | None = None,
    resume: bool | None = None,
    source: Sequence[str] = (),
) -> Prepared:
    """Check all declarations and return a release that is ready except for the rows.

    Parameters
    ----------
    schema : Schema
        Declared columns.
    budget : Budget
        The budget of the release.
    passes, out, force, random_state
        As in :func:`gaussmix.release`.
    n_rows : int, optional
        The number of rows, if it is public.
    made_by : str
        Name of the method in the certificate.
    conditions : sequence of Condition
        Further conditions of the guarantee.
    models, model_share
        As in :func:`gaussmix.release`.
    unit : PrivacyUnit, optional
        Default: one row.
    topcode, tables
        As in :func:`gaussmix.release`.
    marginals : bool
        Whether marginals are released, if there are several passes and no column is a vector.
    joint : Joint, optional
        The other sites of a joint release. Its ledger is charged instead of the budget's.
    resume : bool, optional
        Whether to resume an unfinished release. With False outputs are stored next to ``out`` as they are drawn, so
        that the release can be resumed; with None, the default, they are not.
    source : sequence of str
        Files and kinds of tables that are read: those of a release that is resumed must be the same.
    """
    refuse_lone_force(out, force=force)
    if resume is False and out is not None:
        refuse_unfinished(partial_path(out))
    thresholds = _thresholds(topcode, schema)
    asked = None if models == () else model_budget(schema, models, model_share)
    if asked is not None:
        _check_models(budget, joint)
    bounded = unit and unit.bounded
    if bounded is not None and budget.is_infinite:
        raise ArgumentError("privacy_unit requires a finite epsilon. Omit privacy_unit or choose a finite epsilon.")
    rng = generator(random_state)
    plan = None
    if marginals and has_marginals(schema):
        most = 1 if unit is None else unit.max_contributions
        plan = MarginalPlan(schema, _pairs(tables), most, budget.relation)
    if plan is not None and plan.cells.total > MOST_CELLS:
        raise DeclarationError(
            f"The counts of columns and tables would have {plan.cells.total:,} cells, but at most {MOST_CELLS:,} are "
            "allowed. Declare fewer levels or fewer tables."
        )
    if tables and (plan is None or passes == 1):
        raise ArgumentError("tables requires passes > 1 and a schema without vector columns.")
    sites = None if joint is None else joint.sites
    declared = {
        "version": __version__,
        "source": list(source),
        "out": None if out is None else str(Path(out).resolve()),
        "schema": schema.to_dict(),
        "budget": [budget.epsilon, budget.delta, budget.relation, None if budget.share is None else str(budget.share)],
        "ledger": "" if budget.ledger is None else budget.ledger.fingerprint,
        "passes": passes,
        "topcode": thresholds,
        "tables": [list(pair) for pair in tables],
        "privacy_unit": None if unit is None else unit.to_dict(),
        **({} if asked is None else {"models": [*map(str, asked.models)], "model_share": asked.share}),
    }
    journal = None
    accounts = functools.partial(
        accounts_of, budget, passes, schema, models=asked, unit=unit, marginals=plan, sites=sites
    )
    if resume:
        journal = _resumed(out, declared, rng, budget, accounts)
        account, single = journal.account, None
    else:
        account, single = accounts()
    try:
        if account is not None:
            if not has_several_passes(account, asked):
                plan = None
            passes_drawn = len(budgets_of(account, asked, marginals=plan is not None).passes)
            cells = None if plan is None else plan.coordinates
            m = schema.n_columns
            if not accounts_for(account, passes_drawn, m, models=asked, persons=bounded is not None, marginals=cells):
                raise BudgetUnmetError(
                    "The privacy account does not cover every output of the release. Nothing was spent."
                )
            _refuse_wide(m, passes_drawn)
            warn_if_weak(account.epsilon, account.delta)
        output = None
        if out is not None and (journal is None or not _is_written(out, journal)):
            output = _reserved(out, schema, account, budget.ledger, asked, plan, force=force)
        if resume is False and output is not None and account is not None and describe(rng) == SECURE:
            journal = _journal(output, declared, account)
    except BaseException:
        if journal is not None:
            journal.close()
        raise
    return Prepared(
        schema,
        account,
        single,
        made_by,
        n_rows,
        tuple(conditions),
        budget,
        output,
        rng,
        asked,
        unit,
        plan,
        thresholds,
        joint,
        journal,
    )


def _journal(output: Output, declared: Mapping[str, Any], account: LatticeAccount) -> Journal:
    """Allocate the file of a release that can be resumed."""
    try:
        return Journal.new(partial_path(output.path), declared, account)
    except OutputError as error:
        output.abandon()
        raise type(error)(f"{error} Nothing was spent.") from None


def _resumed(
    out: str | os.PathLike[str] | None,
    declared: Mapping[str, Any],
    rng: np.random.Generator,
    budget: Budget,
    accounts: Callable[..., Accounts],
) -> Journal:
    """Open the file of an unfinished release. Its account must be one of this call, and that of the ledger's entry."""
    if out is None:
        raise ArgumentError("resume requires out, the file that the release was to be written to.")
    if describe(rng) != SECURE:
        raise ArgumentError("resume requires the secure generator. Omit random_state.")
    journal = Journal.resumed(partial_path(out), declared)
    try:
        if journal.account is None or journal.account not in accounts(release=journal.release):
            raise ArgumentError(
                f"The noise recorded in {journal.path} differs from that of this call: the file was edited. "
                "Delete it to abandon the release. Nothing was drawn."
            )
        if budget.ledger is not None:
            budget.ledger.recorded(journal.account, journal.release, file=out)
    except BaseException:
        journal.close()
        raise
    return journal


MOST_SECONDS = 600.0
"""Largest estimate of the processor time of a release without that of reading rows."""


def _refuse_wide(m: int, passes: int) -> None:
    """Reject schemas whose releases would take too long or too much memory, whatever the rows are."""
    seconds, size = cost_of(m, passes)
    if seconds > MOST_SECONDS or size > _memory():
        fewer = "" if passes == 1 else ", or set passes=1"
        raise DeclarationError(
            f"The schema has {m:,} columns, levels included, and a release in {passes} "
            f"{'pass' if passes == 1 else 'passes'} would draw {passes * m * (m + 1) // 2:,} noisy sums: about "
            f"{seconds / 60:.0f} minutes and {size / 2**30:.1f} GiB before any row is counted. Merge levels or drop "
            f"columns{fewer}. Nothing was spent."
        )


def _memory() -> int:
    """Return the number of bytes of memory of this computer, or of the container."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return found


def _thresholds(topcode: Topcode, schema: Schema) -> Literal["auto"] | dict[str, tuple[float, float]]:
    """Return declared thresholds, with None replaced by the declared bound."""
    # Without an intercept, narrower bounds would move the origin of the regression.
    if topcode is None or topcode == "auto":
        return "auto" if topcode == "auto" and schema.intercept else {}
    if not isinstance(topcode, Mapping):
        raise ArgumentTypeError(
            f'topcode must be "auto", None or a mapping of columns to (lower, upper), got {type(topcode).__name__}.'
        )
    if not schema.intercept:
        raise DeclarationError("topcode requires a schema with an intercept. Declare narrower bounds instead.")
    found = {}
    for name, ends in topcode.items():
        column = schema.columns.get(name)
        if not isinstance(column, Numeric):
            raise DeclarationError(f"topcode: {name!r} must be a numeric column of the schema.")
        if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
            raise ArgumentError(f"topcode: the thresholds of {name!r} must be a pair (lower, upper), got {ends!r}.")
        declared = (column.lower, column.upper)
        lower, upper = (
            bound if end is None else check.real(topcode=end) for end, bound in zip(ends, declared, strict=True)
        )
        found[name] = (lower, upper)
    schema.coded(found)
    return found


def _pairs(tables: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    is_list = isinstance(tables, Sequence) and not isinstance(tables, str)
    if not is_list or not all(isinstance(pair, list | tuple) and [*map(type, pair)] == [str, str] for pair in tables):
        raise ArgumentTypeError('tables must be a list of pairs of columns, such as [("sex", "region")].')
    return tuple((rows, columns) for rows, columns in tables)


def _check_models(budget: Budget, joint: Joint | None) -> None:
    """Reject declared models where their scores cannot be released."""
    if budget.is_infinite:
        raise ArgumentError("models require a finite epsilon, because they have a share of the budget. Omit models.")
    if joint is not None:
        raise ArgumentError("models cannot be declared for a release of several sites. Omit models.")


def _reserved(
    out: str | os.PathLike[str],
    schema: Schema,
    account: LatticeAccount | None,
    ledger: Ledger | None,
    models: ModelBudget | None,
    plan: MarginalPlan | None,
    *,
    force: bool,
) -> Output:
    """Preallocate the file of a release. Its size does not depend on the rows."""
    if ledger is not None:
        refuse_as_output(out, ledger.path)
    try:
        check_name(out)
        return reserve(out, _most_bytes(schema, account, models, plan), force=force)
    except OutputError as error:
        raise type(error)(f"{error} Nothing was spent.") from None


def _most_bytes(
    schema: Schema, account: LatticeAccount | None, models: ModelBudget | None, plan: MarginalPlan | None
) -> int:
    """Bound the size of a release's file by the number of its blocks of m × m numbers and of its column names."""
    m, declared = schema.n_columns, 0 if models is None else len(models.models)
    passes = 1 if account is None else len(budgets_of(account, models, marginals=plan is not None).passes)
    numbers = 0 if plan is None else sum(plan.coordinates) + 4 * len(schema.columns)
    # G, N, a matrix for each pass, a transform for each but the first; two matrices for each model
    blocks = 2 * passes + 1 + 2 * declared
    names = len(json.dumps(schema.to_dict())) + 4 * sum(len(name) for name in schema.names)
    return (
        _BYTES_PER_NUMBER * blocks * m * m
        + _BYTES_PER_COLUMN * m * (passes + declared)
        + _BYTES_PER_MARGINAL * numbers
        + 4 * names
        + _SPARE_BYTES
    )


def release(
    data: Any,
    schema: Schema | dict[str, Any] | str | Path | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    reading: ReadOptions | None = None,
    privacy_unit: PrivacyUnit | None = None,
    formula: str | None = None,
    weight: str | None = None,
    passes: Passes = "auto",
    topcode: Topcode = "auto",
    tables: Sequence[tuple[str, str]] = (),
    models: Sequence[DeclaredModel | str] = (),
    model_share: float = MODEL_SHARE,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    resume: bool = False,
    random_state: int | np.random.Generator | None = None,
) -> Release:
    """Release private second moments of a table, from which any number of models can be computed.

    The budget, the remaining budget of the ledger, the schema and the output are checked before a row is read. The
    ledger is charged after the rows were read and before noise is drawn.

    Parameters
    ----------
    data : table or Moments
        A table of any kind that :func:`gaussmix.data.table.open_table` supports, or existing moments.
    schema : Schema, dict or path
        Columns with declared bounds and levels. It may be omitted for moments, which have a schema.
    epsilon, delta : float
        The privacy budget: short for ``budget=Budget(epsilon, delta)``.
    budget : Budget, optional
        The privacy budget with its neighbouring relation, or the ledger that holds it. Without a ledger, a second
        release of the same files or objects in one process gives a warning, because privacy losses add up.
    reading : ReadOptions, optional
        How the table is read: CSV options, an expected number of rows, a progress bar, declarations about queries.
    privacy_unit : PrivacyUnit, optional
        The column that identifies a person or other unit, and the contribution bound. The guarantee then covers **all
        rows of one unit** (docs/units.md). Default: row-level privacy.
    formula : str, optional
        Columns and terms to release, derived from the declared columns (docs/schema.md):
        ``"log(wage) ~ poly(experience, 2) + ethnicity*smsa"``. Other columns are omitted.
    weight : str, optional
        A numeric column of row weights with declared bounds [0, w_max]. The weights are not released.
    passes : int or "auto"
        Number of passes over the table, 1 to 4. Later passes are preconditioned by the earlier ones, with far less
        noise on real tables (docs/preconditioning.md). ``"auto"`` is four, or one if the table can be read only once,
        as an iterator or moments.
    topcode : "auto", None or mapping
        Thresholds beyond which numbers are replaced by the threshold, as statistical offices publish skewed variables.
        ``"auto"`` finds them from noisy counts within the same budget, for heavy-tailed columns only: about 0.5 % of
        the rows of such a column are coded. The thresholds are part of the release and are printed with every model;
        :meth:`Release.topcode` applies them to a data frame. A mapping such as ``{"wage": (None, 2000)}`` declares
        thresholds, chosen without looking at the data. With None no value is coded: intervals are then longer and
        rely on an assumption about the tails (docs/inference.md).
    tables : list of (str, str)
        Pairs of categorical or boolean columns whose cross-tables are counted directly, which is far more accurate
        than a cross-table from second moments. Each costs as much of the share for counts as one column.
    models : list of str or DeclaredModel
        Models known beforehand, such as ``["dead ~ airbag + age", "wage ~ age + education"]``: logit for a boolean
        response, least squares for a number, other families as :class:`DeclaredModel`. A share of the budget gives
        generalised linear models private Newton steps on their likelihood, and all of them heteroskedasticity-robust
        standard errors for the population, cluster-robust with a privacy unit (docs/glm.md). ``Release.logit`` and the
        other methods use these outputs when they are called with the same formula. Choose models without looking at the
        data.
    model_share : float
        Share of μ² for all declared models together, between 0 and 1. It is public, and has no effect without
        declared models.
    out : path, optional
        Output file in Parquet format. A suffix of another format, such as ``.csv``, is an error. Disk space is
        allocated before the ledger is charged, so that a full disk costs no budget; :meth:`Release.save` cannot
        ensure this.
    force : bool
        Whether to replace an existing file. By default an existing file is an error.
    resume : bool
        Continue a release with the same arguments that was interrupted after its budget was spent, at no further cost.
        Its outputs so far are in ``out`` + ``.partial``, and none of them is drawn again. Use the same table: the rows
        of the two runs are not compared.
    random_state : optional
        None is the secure generator; a seed is for tests.
    """
    if isinstance(data, Moments):
        if formula is not None or weight is not None:
            raise DeclarationError(
                "formula and weight have no effect on moments, which contain no rows. Omit them, or pass the table."
            )
        declared = data.schema if schema is None else Schema.of(schema)
    elif schema is not None:
        declared = declared_schema(schema, formula=formula, weight=weight)
    else:
        raise DeclarationError(SCHEMA_REQUIRED)
    spent = Budget.of(epsilon, delta, budget)
    options = ReadOptions() if reading is None else check.instance(ReadOptions, reading=reading)
    unit = privacy_unit
    if unit is not None:
        check.instance(PrivacyUnit, privacy_unit=unit).check_schema(declared)
    inputs = [schema] if isinstance(schema, str | os.PathLike) else []
    if isinstance(data, Moments):
        unit = data.unit if unit is None else unit
    else:
        data = open_table(data, options)
        inputs += data.paths
        unit = unit_of(data) if unit is None else unit
    if unit is not None and unit.bounded is None:
        if isinstance(data, Moments) or data.unit_column != unit.column:
            raise ArgumentError(ONLY_PER_UNIT)
        unit.check_schema(declared)
    if out is not None:
        refuse_inputs(out, inputs)
    origins = [data] if isinstance(data, Moments) else data.origins
    with prepare(
        declared,
        spent,
        passes=passes,
        out=out,
        force=force,
        random_state=random_state,
        unit=unit,
        topcode=topcode,
        tables=tables,
        models=models,
        model_share=model_share,
        marginals=True,
        resume=resume,
        source=[type(data).__name__] if isinstance(data, Moments) else data.described,
    ) as prepared:
        if out is not None and prepared.journal is not None and _is_written(out, prepared.journal):
            prepared.journal.discard()
            return load(Path(out))
        with closing(prepared.rows(data, options)) as rows:
            return prepared.draw(rows, origins=origins, progress=options.progress)


def _is_written(out: str | os.PathLike[str], journal: Journal) -> bool:
    """Return whether the release was written before the interruption, so that only its outputs are left to delete."""
    return journal.has_begun and Path(out).exists() and release_id(Path(out)) == journal.release
