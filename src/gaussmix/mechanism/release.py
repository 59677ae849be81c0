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
gaussmix.errors.ArgumentError: This preparation was already used for a release. Prepare another; it costs new budget.

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
from collections.abc import Iterator, Mapping, Sequence
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
from gaussmix.accounting.parameters import Neighbours, frames_to_the_caller, warn_if_weak
from gaussmix.accounting.sites import Sites, joint_account
from gaussmix.data.columns import Numeric
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.marginals import MarginalSums, has_marginals
from gaussmix.data.moments import Moments
from gaussmix.data.rows import RowSource, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import FRACTION_BITS, Schema, declared_schema
from gaussmix.data.source import FileOrigin, ReadOptions
from gaussmix.data.table import open_table
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    BudgetUnmetError,
    DeclarationError,
    GaussmixError,
    OutputError,
)
from gaussmix.ledger import Budget, Ledger
from gaussmix.ledger.budget import Charged
from gaussmix.ledger.store import refuse_as_output
from gaussmix.mechanism.noise import ALONE, Parties, describe, generator, secure_generator
from gaussmix.mechanism.passes import draw_marginals, draw_passes
from gaussmix.models.release import Release
from gaussmix.releases.certificate import (
    LEDGER_BUDGET,
    PERSONS_APART,
    ROW_BY_ROW,
    ROWS_PUBLIC,
    SECURE,
    Certificate,
    Condition,
    conditions_of_sites,
)
from gaussmix.releases.file import check_name
from gaussmix.releases.marginals import MarginalPlan
from gaussmix.releases.preconditioning import (
    AUTOMATIC_PASSES,
    Likelihood,
    budgets_of,
    label_of,
    releases_of,
    schedule_of,
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
    "interruptions_wait",
    "nonprivate_release",
    "prepare",
    "refuse_lone_force",
    "release",
    "remember",
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
    steps: int = 0,
    unit: PrivacyUnit | None = None,
    marginals: MarginalPlan | None = None,
    sites: Sites | None = None,
) -> Accounts:
    """Return the accounts with the least noise for a budget; None for an infinite ε. Nothing is spent.

    Marginals are drawn with several passes only. With ``sites``, the account is that of the total noise of all sites.
    """
    if budget.is_infinite:
        return None, None
    if budget.ledger is not None:
        budget.ledger.check_privacy_unit(None if unit is None else unit.column)

    found: list[LatticeAccount] = []
    for number in (1, AUTOMATIC_PASSES) if passes == "auto" else (check.positive_integer(passes=passes),):
        try:
            found.append(_account(budget, number, schema, steps, unit, marginals if number > 1 else None, sites))
        except BudgetUnmetError:  # the smallest parts of a very small or very large budget fit no lattice
            if not found or (marginals is not None and marginals.tables):
                raise
    return found[-1], found[0] if passes == "auto" else None


def _account(
    budget: Budget,
    passes: int,
    schema: Schema,
    steps: int,
    unit: PrivacyUnit | None,
    plan: MarginalPlan | None,
    sites: Sites | None,
) -> LatticeAccount:
    """Return the account of a number of passes.

    A budget so small that rows would have to be rounded further is rejected: the noise would dominate any table. With a
    privacy unit of at most j rows the noise is j times as large in the first pass and in marginals, and √2 j times in
    the count of rows.
    """
    cells = None if plan is None else plan.coordinates
    shares, coordinates = releases_of(
        schedule_of(passes), schema.n_columns, steps=steps, persons=unit is not None, marginals=cells
    )
    if sites is None:
        account = budget.lattice_account(shares=shares, coordinates=coordinates)
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
    if plan is not None and (mu := budgets_of(account, marginals=True).marginals) is not None:
        parts += plan.noise_mu(mu)
    if parts and diagonal_sigma(min(parts), account.bits, rows=most) >= LARGEST_SIGMA:
        raise BudgetUnmetError(
            f"epsilon={account.epsilon!r} is too small for max_contributions={most}: the noise "
            "would exceed the lattice. Decrease max_contributions or passes, or increase the budget."
        )
    return account


NOT_PROTECTED = Condition(True, "epsilon is infinite, so no noise was added and no row is protected.")
SEED_KNOWN = Condition(
    True, "the noise came from a seed or a generator supplied by the caller; anyone who knows it can remove the noise."
)


def nonprivate_release(moments: Moments, *, made_by: str = "release", declared: Schema | None = None) -> Release:
    """Return a release of the exact Gram matrix, for ``epsilon=inf``. **Not private**, and certified as such."""
    certificate = certify(
        moments.schema if declared is None else declared,
        NonPrivate(),
        secure_generator(),
        made_by=made_by,
        budget=(math.inf, 1.0),
        neighbours="add-remove",
    )
    return Release(Transcript((PassOutput(moments.gram(), math.inf),), moments.schema), certificate)


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
) -> Certificate:
    """Return the certificate of a release, with all conditions of its guarantee.

    ``charged`` is the ledger in which the release was recorded, whose budget covers all of its releases, and the entry.
    The certificate of a joint release is the same at every site: identifier and time are those of the agreement, and it
    names no ledger.
    """
    epsilon, delta = budget
    recorded: dict[str, Any] = {
        "release": uuid.uuid4().hex,
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


class OneDraw:
    """A guard that lets a preparation be drawn once, by one thread."""

    def __init__(self) -> None:
        self._unused = threading.Lock()

    def take(self) -> None:
        """Reject a second draw, which would be a second release."""
        if not self._unused.acquire(blocking=False):
            raise ArgumentError(
                "This preparation was already used for a release. Prepare another; it costs new budget."
            )


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
    likelihood : Likelihood or None
        Steps on the likelihood of one column, included in the account.
    marginals : MarginalPlan or None
        Marginals drawn before the first of several passes.
    thresholds : "auto" or dict
        Thresholds for top-coding: computed from the marginals, or declared.
    joint : Joint or None
        The other sites, if the release is of rows at several sites.
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
    likelihood: Likelihood | None = None
    unit: PrivacyUnit | None = None
    marginals: MarginalPlan | None = None
    thresholds: Literal["auto"] | dict[str, tuple[float, float]] = field(default_factory=dict)
    joint: Joint | None = None
    _once: OneDraw = field(default_factory=OneDraw, init=False, repr=False, compare=False)

    def rows(self, data: Any, options: ReadOptions | None = None) -> RowSource:
        """Return the rows of a table as this release reads them. The caller must close the result."""
        return rows_of(data, self.schema, options, unit=self.unit, new_key=functools.partial(self.rng.bytes, 32))

    def draw(self, rows: RowSource, *, origins: Sequence[Any] = (), progress: bool = False) -> Release:
        """Read the rows, charge the ledger, draw the noise and write the file. A second call raises an error.

        ``origins`` are the files, queries and objects that hold the rows, for a warning if they were released before.
        """
        check_rows(rows, self.schema, self.unit)
        protects = self.account is not None and describe(self.rng) == SECURE
        if protects and self.budget.ledger is None and self.joint is None:
            warn_if_released_before(origins)
        account = self._account_for(rows)
        several = account is not None and len(account.noise_mu) > 1
        keys = Sample(1.0, self.rng.bytes(32)) if several else None
        with ExitStack() as stack:
            # The first reading checks every value before anything is charged.
            exact, moments = None, None
            if several and self.marginals is not None:
                if self.schema.weight is not None:  # the base schema does not refuse negative weights
                    with closing(rows.recoded(self.schema)) as weighted:
                        weighted.moments()
                with closing(rows.recoded(self.marginals.schema)) as base:
                    exact = base.aggregate(self.marginals.query, describe="Counting")
            else:
                rows = self._coded(rows, {} if self.thresholds == "auto" else self.thresholds, stack)
                moments = rows.moments(cache=keys)
            self._once.take()
            if protects:
                remember(origins)
            if account is None:
                gram = rows.moments() if moments is None else moments
                return self._written(nonprivate_release(gram, made_by=self.made_by, declared=self.schema))
            with nullcontext() if several or self.joint is not None else interruptions_wait():
                # Several passes, and other sites, take long and can be interrupted; the budget is then lost.
                private = self._drawn(rows, moments, exact, account, stack, keys=keys, progress=progress)
                with interruptions_wait():
                    return self._written(private)

    def _coded(self, rows: RowSource, thresholds: dict[str, tuple[float, float]], stack: ExitStack) -> RowSource:
        """Return the rows with numbers coded to thresholds."""
        if not thresholds:
            return rows
        return stack.enter_context(closing(rows.recoded(self.schema.coded(thresholds))))

    def _drawn(
        self,
        rows: RowSource,
        moments: Moments | None,
        exact: MarginalSums | None,
        account: LatticeAccount,
        stack: ExitStack,
        *,
        keys: Sample | None = None,
        progress: bool,
    ) -> Release:
        """Record the release, then draw it: a crash costs budget, not privacy.

        ``moments`` are sums that were read already, and ``exact`` those of marginals; ``keys`` are sampling keys under
        which the first pass caches rows for later ones.
        """
        file, joint, charged = None if self.output is None else self.output.path, self.joint, None
        if joint is not None:
            joint.begin(account, file=file)
        else:
            unit = None if self.unit is None else self.unit.column
            charged = self.budget.charge(account, file=file, privacy_unit=unit)
        parties, marginals = ALONE if joint is None else joint, None
        if exact is not None and self.marginals is not None:
            marginals = draw_marginals(exact, self.marginals, account, self.rng, parties=parties)
            thresholds = marginals.thresholds() if self.thresholds == "auto" else self.thresholds
            rows = self._coded(rows, thresholds, stack)
        transcript = draw_passes(
            rows,
            rows.moments(cache=keys) if moments is None else moments,
            account,
            self.rng,
            likelihood=self.likelihood,
            keys=keys,
            marginals=marginals,
            parties=parties,
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
            conditions=(*self.conditions, *[ROW_BY_ROW] * (rows.is_computed and joint is None)),
            unit=rows.unit,
            charged=charged,
            joint=joint,
        )
        return Release(transcript, certificate)

    def _account_for(self, rows: RowSource) -> LatticeAccount | None:
        """Return the account, or that of one pass if the table can be read only once and this is allowed."""
        if self.account is None or len(self.account.noise_mu) == 1:
            return self.account
        try:
            rows.check_again()
        except GaussmixError:
            if self.single is None or self.likelihood is not None or (self.marginals and self.marginals.tables):
                raise
            return self.single
        return self.account

    def _written(self, private: Release) -> Release:
        if self.output is not None:
            found = self.output.commit(private.to_bytes(), mode=private.file_mode)
            if found != self.output.path:
                warnings.warn(
                    f"{self.output.path} was created by another process and was not replaced. The release is in "
                    f"{found}.",
                    UserWarning,
                    stacklevel=frames_to_the_caller(),
                )
        return private

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        if self.output is not None:
            self.output.abandon()


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
    likelihood: Likelihood | None = None,
    unit: PrivacyUnit | None = None,
    topcode: Topcode = None,
    tables: Sequence[tuple[str, str]] = (),
    marginals: bool = False,
    joint: Joint | None = None,
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
    likelihood : Likelihood, optional
        Steps on the likelihood of one boolean column, after the passes and within the same budget.
    unit : PrivacyUnit, optional
        Default: one row.
    topcode, tables
        As in :func:`gaussmix.release`.
    marginals : bool
        Whether marginals are released, if there are several passes and no column is a vector.
    joint : Joint, optional
        The other sites of a joint release. Its ledger is charged instead of the budget's.
    """
    refuse_lone_force(out, force=force)
    thresholds = _thresholds(topcode, schema)
    steps = 0 if likelihood is None else likelihood.steps
    if likelihood is not None:
        label_of(schema, likelihood.target)
        if budget.relation == "replace-one":
            raise ArgumentError(
                'steps require neighbours="add-remove": replacing a row can change a gradient by twice its bound, '
                "which the account does not cover."
            )
    if unit is not None:
        _refuse_for_persons(budget, likelihood)
    rng = generator(random_state)
    plan = None
    if marginals and has_marginals(schema):
        most = 1 if unit is None else unit.max_contributions
        plan = MarginalPlan(schema, _pairs(tables), most, budget.relation)
    if plan is not None and plan.cells.total > MOST_CELLS:
        raise DeclarationError(
            f"The marginals would have {plan.cells.total:,} cells; at most {MOST_CELLS:,} are allowed. Declare fewer "
            "levels or fewer tables."
        )
    if tables and (plan is None or passes == 1):
        raise ArgumentError("tables requires several passes and a schema without vector columns.")
    sites = None if joint is None else joint.sites
    account, single = accounts_of(budget, passes, schema, steps=steps, unit=unit, marginals=plan, sites=sites)
    if account is not None:
        warn_if_weak(account.epsilon, account.delta)
    output = None if out is None else _reserved(out, schema, account, budget.ledger, likelihood, plan, force=force)
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
        likelihood,
        unit,
        plan,
        thresholds,
        joint,
    )


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


def _refuse_for_persons(budget: Budget, likelihood: Likelihood | None) -> None:
    """Reject options that give row-level privacy only."""
    if budget.is_infinite:
        raise ArgumentError("privacy_unit requires a finite epsilon. Omit privacy_unit or choose a finite epsilon.")
    if likelihood is not None:
        raise ArgumentError(
            "steps cannot be combined with privacy_unit: the gradients of the rows of a unit add up, which the account "
            "does not cover. Omit one of them."
        )


def _reserved(
    out: str | os.PathLike[str],
    schema: Schema,
    account: LatticeAccount | None,
    ledger: Ledger | None,
    likelihood: Likelihood | None,
    plan: MarginalPlan | None,
    *,
    force: bool,
) -> Output:
    """Preallocate the file of a release. Its size does not depend on the rows."""
    if ledger is not None:
        refuse_as_output(out, ledger.path)
    try:
        check_name(out)
        return reserve(out, _most_bytes(schema, account, likelihood, plan), force=force)
    except OutputError as error:
        raise type(error)(f"{error} Nothing was spent.") from None


def _most_bytes(
    schema: Schema, account: LatticeAccount | None, likelihood: Likelihood | None, plan: MarginalPlan | None
) -> int:
    """Bound the size of a release's file by the number of its blocks of m × m numbers and of its column names."""
    m, steps = schema.n_columns, 0 if likelihood is None else likelihood.steps
    passes = 1 if account is None else len(account.noise_mu) // 2 + 1 - steps
    numbers = 0 if plan is None else sum(plan.coordinates) + 4 * len(schema.columns)
    blocks = 2 * passes + 1 + steps  # G, N, a matrix for each pass, a transform for each but the first
    names = len(json.dumps(schema.to_dict())) + 4 * sum(len(name) for name in schema.names)
    return (
        _BYTES_PER_NUMBER * blocks * m * m
        + _BYTES_PER_COLUMN * m * (passes + steps)
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
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
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
    out : path, optional
        Output file in Parquet format. A suffix of another format, such as ``.csv``, is an error. Disk space is
        allocated before the ledger is charged, so that a full disk costs no budget; :meth:`Release.save` cannot
        ensure this.
    force : bool
        Whether to replace an existing file. By default an existing file is an error.
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
        raise DeclarationError(
            "schema is required: bounds of numbers and levels of categories, declared without looking at the data. "
            "`gaussmix schema FILE` writes a template."
        )
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
    if out is not None:
        refuse_inputs(out, inputs)
    with (
        prepare(
            declared,
            spent,
            passes=passes,
            out=out,
            force=force,
            random_state=random_state,
            unit=unit,
            topcode=topcode,
            tables=tables,
            marginals=True,
        ) as prepared,
        closing(prepared.rows(data, options)) as rows,
    ):
        origins = [data] if isinstance(data, Moments) else data.origins
        return prepared.draw(rows, origins=origins, progress=options.progress)
