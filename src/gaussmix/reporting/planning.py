r"""What to expect of a release, from public quantities and before any data is touched.

Tables that fit the declared schema are imagined (:mod:`gaussmix.reporting.imagined`), from kind to hard, and the rule
of a release in passes is run on them, with simulated noise of the size that the budget asks for. What comes out is held
against least squares on the same rows. Everything is a function of the schema, a declared number of rows and the
budget. Seeds are fixed; between processors, whose last digits differ, simulated losses differ by up to a fifth.

At most 20,000 rows are imagined; more are stood for by them (:mod:`gaussmix.reporting.trial`).

>>> schema = {"age": [0, 100], "income": [0, 500], "smoker": "boolean", "cost": [0, 30]}
>>> plan = expect(schema, n_rows=20_000, epsilon=1.0, delta=1e-6)
>>> plan.target, plan.useful, [table.name for table in plan.tables]
('cost', True, ['even', 'usual', 'hard'])
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from gaussmix import _validation as check
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.budgets import LARGEST_EPSILON, warn_if_weak
from gaussmix.accounting.lattice import LatticeAccount, lattice_account
from gaussmix.errors import ArgumentError, BudgetUnmetError
from gaussmix.models.schedules import AUTOMATIC_PASSES, rates_of, releases_of, schedule_of
from gaussmix.reporting.imagined import KINDS, Imagined, imagine, target_of
from gaussmix.reporting.trial import Trial
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = ["Expectation", "Plan", "expect", "least_useful_epsilon", "numbers_only", "rows_needed"]

USEFUL = 0.1
"""Share of R² that may be lost."""

IMAGINED_ROWS = 20_000
DRAWS = 3
"""Simulated releases of every imagined table."""

MOST_COLUMNS = 500
"""Encoded columns of a schema that can be planned for within a minute."""

MOST_ROWS, MOST_EPSILON, LEAST_EPSILON = 10**12, LARGEST_EPSILON, 1e-3
"""Where searches end."""

_PRECISION = 1.1
_SIGNAL = 5.0  # μn/m^1.5 at which a release is about useful (docs/passes.md): where searches begin

Passes = int | Literal["auto"]
SchemaLike = Schema | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Expectation:
    """What a release of one imagined table would be worth.

    Attributes
    ----------
    name : {"even", "usual", "hard"}
        Which table.
    lost_r2 : float
        R² on new rows that privacy costs: that of least squares less that of the release. Above the R² there is, the
        release is worse than the mean.
    r2 : float
        R² on new rows of a model from the release.
    error_ratio : float
        Median over coefficients of the standard error, privacy and sampling, over that of sampling alone. Infinite if
        half of them cannot be told from noise. What clipping shifts is left out: where R² is lost, it says little.
    interval : float
        Median over coefficients of the half width of a 95 % interval, privacy and sampling, for the effect of a column
        across its declared range (or of a level against the first), in units of the target's range. What clipping
        shifts is left out here too: a harder table, clipped more, may have a narrower interval than an even one.
    useful : bool
        Whether privacy and sampling together lose less than a tenth of the R² that unlimited rows would have.
    """

    name: str
    lost_r2: float
    r2: float
    error_ratio: float
    interval: float
    useful: bool


@dataclass(frozen=True)
class Plan:
    """What to expect of a release: one `Expectation` for each imagined table, from kind to hard."""

    n_rows: int
    columns: int
    target: str
    epsilon: float
    delta: float
    relation: Relation
    passes: int
    r2: float
    tables: tuple[Expectation, ...]
    rows_per_unit: int = 1

    @property
    def useful(self) -> bool:
        """Whether the usual table's release is useful."""
        return self["usual"].useful

    def __getitem__(self, name: str) -> Expectation:
        """By the name of the table."""
        check.choice([table.name for table in self.tables], name=name)
        return next(table for table in self.tables if table.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; tables by name, and None for what is infinite."""
        tables = {
            table.name: {key: None if value == math.inf else value for key, value in asdict(table).items()}
            for table in self.tables
        }
        return {**asdict(self), "tables": tables}


def expect(
    schema: SchemaLike,
    *,
    n_rows: int,
    epsilon: float,
    delta: float,
    target: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    relation: Relation = "zero-out",
    rows_per_unit: int = 1,
) -> Plan:
    """Expected loss of R², standard errors and intervals.

    Parameters
    ----------
    schema : Schema, mapping or path
        As in :func:`gaussmix.release`.
    n_rows : int
        Of the table, declared.
    epsilon, delta, passes, relation
        As in :func:`gaussmix.release`.
    target : str, optional
        The number or Boolean that is explained, by all other columns. Default: the last number, or else Boolean.
    r2 : float
        Share of the target's variance that the others explain, as far as one can guess.
    rows_per_unit : int
        j, where the unit is a person: everybody is imagined to have j rows, all alike, which is the worst case. A table
        of n rows is then worth one of n/j.
    """
    task = _Task.of(schema, target, r2, rows_per_unit)
    n, account = check.positive_integer(n_rows=n_rows), task.account(epsilon, delta, passes, relation)
    warn_if_weak(account.epsilon, account.delta)
    tables = tuple(task.expectation(kind, n, account) for kind in range(len(KINDS)))
    return Plan(
        n_rows=n,
        columns=task.schema.n_columns,
        target=task.target,
        epsilon=account.epsilon,
        delta=account.delta,
        relation=relation,
        passes=_number_of_passes(passes),
        r2=task.r2,
        tables=tables,
        rows_per_unit=task.rows_per_unit,
    )


def rows_needed(
    schema: SchemaLike,
    *,
    epsilon: float,
    delta: float,
    target: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    relation: Relation = "zero-out",
    rows_per_unit: int = 1,
) -> int | None:
    """Least number of rows, to 10 %, at which the release of a usual table is useful; None if 10¹² are not enough.

    Parameters are those of :func:`expect`.
    """
    task = _Task.of(schema, target, r2, rows_per_unit)
    account = task.account(epsilon, delta, passes, relation)
    warn_if_weak(account.epsilon, account.delta)
    guess = rows_per_unit * _SIGNAL * task.schema.n_columns**1.5 / account.mu
    found = _least(lambda n: task.is_useful(math.ceil(n), account), guess, low=2.0, high=MOST_ROWS)
    return None if found is None else math.ceil(found)


def least_useful_epsilon(
    schema: SchemaLike,
    *,
    n_rows: int,
    delta: float,
    target: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    relation: Relation = "zero-out",
    rows_per_unit: int = 1,
) -> float | None:
    """Smallest ε, to 10 %, at which the release of a usual table is useful; None if 20 is not enough.

    Parameters are those of :func:`expect`.
    """
    task, n = _Task.of(schema, target, r2, rows_per_unit), check.positive_integer(n_rows=n_rows)
    task.account(1.0, delta, passes, relation)  # refuses what is wrong before the search

    def useful(epsilon: float) -> bool:
        return task.is_useful(n, task.account(epsilon, delta, passes, relation))

    guess = rows_per_unit * _SIGNAL * task.schema.n_columns**1.5 / n * math.sqrt(2 * math.log(1 / delta))
    return _least(useful, guess, low=LEAST_EPSILON, high=MOST_EPSILON)


def numbers_only(features: int) -> Schema:
    """A schema of so many numbers and a target "y", where none is written yet."""
    d = check.positive_integer(features=features)
    _check_columns(d + 2)
    return Schema.of({**{f"x{i + 1}": [-1, 1] for i in range(d)}, "y": [-1, 1]})


def _least(useful: Callable[[float], bool], guess: float, *, low: float, high: float) -> float | None:
    """Smallest argument, to 10 %, of a test that larger ones pass, between two limits; ends on one that was tried."""
    top = min(max(guess, low), high)
    while not useful(top):
        if top >= high:
            return None
        low, top = top, min(2 * top, high)
    bottom = max(low, top / 2)
    while bottom > low and useful(bottom):
        top, bottom = bottom, max(low, bottom / 2)
    while top / bottom > _PRECISION:
        middle = math.sqrt(top * bottom)
        top, bottom = (middle, bottom) if useful(middle) else (top, middle)
    return top


# ---------------------------------------------------------------------------------------------------------------
# Imagined releases
def _number_of_passes(passes: Passes) -> int:
    return AUTOMATIC_PASSES if passes == "auto" else check.positive_integer(passes=passes)


def _check_columns(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise ArgumentError(
            f"Planning is for at most {MOST_COLUMNS:,} encoded columns, got {columns:,}: plan for the columns of one "
            "model, or for fewer levels."
        )


def _budgets(account: LatticeAccount, m: int, n: int) -> list[float]:
    """Of all releases but the count; of those that read a sample of the rows, times its rate.

    A matrix of a share π of the rows, divided by π, has noise 1/π times as large.
    """
    mu = account.noise_mu if len(account.noise_mu) == 1 else account.noise_mu[1:]
    return [part * rate for part, rate in zip(mu, rates_of(account, n, m), strict=True)]


@dataclass(frozen=True)
class _Task:
    """What is to be explained, in tables of which schema."""

    schema: Schema
    target: str
    r2: float
    rows_per_unit: int = 1

    @classmethod
    def of(cls, schema: SchemaLike, target: str | None, r2: float, rows_per_unit: int = 1) -> _Task:
        found = Schema.of(schema)
        _check_columns(found.n_columns)
        most = check.positive_integer(rows_per_unit=rows_per_unit)
        return cls(found, target_of(found, target), check.in_interval(0, 1, r2=r2), most)

    def account(self, epsilon: float, delta: float, passes: Passes, relation: Relation) -> LatticeAccount:
        """What a release would have."""
        shares, coordinates = releases_of(schedule_of(_number_of_passes(passes)), self.schema.n_columns)
        account = lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, relation=relation)
        if account.row_bits < FRACTION_BITS:
            raise BudgetUnmetError(f"epsilon={epsilon!r} is too small for a release: ask for a larger budget.")
        return account

    def table(self, kind: int) -> Imagined:
        """20,000 rows, or fewer if they are long."""
        m = self.schema.n_columns
        rows = max(min(IMAGINED_ROWS, 500_000 // m), 8 * m)
        return imagine(self.schema, KINDS[kind], target=self.target, r2=self.r2, rows=rows)

    def is_useful(self, n: int, account: LatticeAccount) -> bool:
        """For the usual table."""
        (usual,) = (index for index, kind in enumerate(KINDS) if kind.name == "usual")
        return self.expectation(usual, n, account).useful

    def expectation(self, kind: int, n: int, account: LatticeAccount) -> Expectation:
        """Mean R² and median errors over a few draws; n rows are those of n/j persons."""
        n = max(n // self.rows_per_unit, 1)
        trial = Trial.of(self.schema, self.table(kind), n)
        found, mu = [], _budgets(account, self.schema.n_columns, n)
        for draw in range(DRAWS):
            drawn = trial.draw(mu, np.random.default_rng(draw))
            found.append((trial.r2_of(drawn), *trial.errors(drawn.pool.current)))
        r2 = float(np.mean([draw[0] for draw in found]))
        _, error_ratio, interval = np.median(found, axis=0).tolist()
        lost = max(trial.least_squares_r2 - r2, 0.0)
        useful = trial.table.r2 - r2 < USEFUL * trial.table.r2
        return Expectation(KINDS[kind].name, lost, r2, error_ratio, interval, useful)
