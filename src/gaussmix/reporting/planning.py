r"""Expected accuracy of a release, simulated from public quantities before any data is read.

Tables that match the declared schema are simulated in three scenarios (:mod:`gaussmix.reporting.imagined`) and released
in passes with simulated noise of the scale required by the budget. Models from these releases are compared with least
squares on the same rows. The results are functions of the schema, a declared number of rows and the budget. Seeds are
fixed, but rounding differs between processors and changes simulated losses by up to a fifth.

At most 20,000 rows are simulated; they represent larger tables by weighting (:mod:`gaussmix.reporting.trial`).

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
from gaussmix.accounting.discrete import LatticeAccount, lattice_account
from gaussmix.accounting.parameters import LARGEST_EPSILON, Relation, warn_if_weak
from gaussmix.errors import ArgumentError, BudgetUnmetError
from gaussmix.models.schedules import AUTOMATIC_PASSES, rates_of, releases_of, schedule_of
from gaussmix.reporting.imagined import KINDS, Imagined, imagine, target_of
from gaussmix.reporting.trial import Trial
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = ["Expectation", "Plan", "expect", "least_useful_epsilon", "numbers_only", "rows_needed"]

USEFUL = 0.1
"""Largest relative loss of R² of a useful release."""

IMAGINED_ROWS = 20_000
DRAWS = 3
"""Number of simulated releases of every simulated table."""

MOST_COLUMNS = 500
"""Maximum number of encoded columns, for which planning takes up to a minute."""

MOST_ROWS, MOST_EPSILON, LEAST_EPSILON = 10**12, LARGEST_EPSILON, 1e-3
"""Limits of the searches."""

_PRECISION = 1.1
_SIGNAL = 5.0  # μn/m^1.5 at which a release becomes useful (docs/passes.md): start of the searches

Passes = int | Literal["auto"]
SchemaLike = Schema | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Expectation:
    """Expected accuracy of a release of one simulated table.

    Attributes
    ----------
    name : {"even", "usual", "hard"}
        Scenario.
    lost_r2 : float
        Loss of R² on new rows due to privacy: R² of least squares minus R² of the release. If it exceeds the R² of
        least squares, the release predicts worse than the mean.
    r2 : float
        R² on new rows of a model from the release.
    error_ratio : float
        Median over coefficients of the standard error (privacy and sampling) divided by the sampling standard error.
        Infinite if half of the coefficients are not identified. Clipping bias is not included.
    interval : float
        Median over coefficients of the half width of a 95 % interval (privacy and sampling) for the effect of a column
        across its declared range, or of a level against the first, in units of the range of the response. Clipping bias
        is not included, so a scenario with more clipping may have a narrower interval.
    useful : bool
        Whether privacy and sampling together lose less than a tenth of the R² with unlimited rows.
    """

    name: str
    lost_r2: float
    r2: float
    error_ratio: float
    interval: float
    useful: bool


@dataclass(frozen=True)
class Plan:
    """Expected accuracy of a release: one `Expectation` for each scenario, from favourable to adverse."""

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
        """Whether the release is useful in the usual scenario."""
        return self["usual"].useful

    def __getitem__(self, name: str) -> Expectation:
        """Return the `Expectation` of a scenario by its name."""
        check.choice([table.name for table in self.tables], name=name)
        return next(table for table in self.tables if table.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with tables by name and None for infinity."""
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
    """Return the expected loss of R², standard errors and intervals of a release.

    Parameters
    ----------
    schema : Schema, mapping or path
        As in :func:`gaussmix.release`.
    n_rows : int
        Declared number of rows.
    epsilon, delta, passes, relation
        As in :func:`gaussmix.release`.
    target : str, optional
        Numeric or Boolean response; all other columns are predictors. Default: the last numeric column, or else the
        last Boolean.
    r2 : float
        Assumed R² of the regression without privacy.
    rows_per_unit : int
        Contribution bound j. Every privacy unit is assumed to have j identical rows, the worst case: n rows are then
        worth n/j.
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
    """Return the number of rows, to 10 %, from which a release is useful in the usual scenario; None above 10¹².

    Parameters are as in :func:`expect`.
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
    """Return the smallest ε, to 10 %, at which a release is useful in the usual scenario; None above 20.

    Parameters are as in :func:`expect`.
    """
    task, n = _Task.of(schema, target, r2, rows_per_unit), check.positive_integer(n_rows=n_rows)
    task.account(1.0, delta, passes, relation)  # reject invalid arguments before the search

    def useful(epsilon: float) -> bool:
        return task.is_useful(n, task.account(epsilon, delta, passes, relation))

    guess = rows_per_unit * _SIGNAL * task.schema.n_columns**1.5 / n * math.sqrt(2 * math.log(1 / delta))
    return _least(useful, guess, low=LEAST_EPSILON, high=MOST_EPSILON)


def numbers_only(features: int) -> Schema:
    """Return a schema of ``features`` numeric columns and a numeric response "y"."""
    d = check.positive_integer(features=features)
    _check_columns(d + 2)
    return Schema.of({**{f"x{i + 1}": [-1, 1] for i in range(d)}, "y": [-1, 1]})


def _least(useful: Callable[[float], bool], guess: float, *, low: float, high: float) -> float | None:
    """Return the smallest argument, to 10 %, that passes a monotone test between two limits; it was itself tested."""
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
# Simulated releases
def _number_of_passes(passes: Passes) -> int:
    return AUTOMATIC_PASSES if passes == "auto" else check.positive_integer(passes=passes)


def _check_columns(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise ArgumentError(
            f"Planning supports at most {MOST_COLUMNS:,} encoded columns, got {columns:,}. Declare only the columns of "
            "one model, or fewer levels."
        )


def _budgets(account: LatticeAccount, m: int, n: int) -> list[float]:
    """Return μ of all releases except the count, multiplied by the sampling rate of the rows.

    The Gram matrix of a share π of the rows, divided by π, has noise 1/π times as large.
    """
    mu = account.noise_mu if len(account.noise_mu) == 1 else account.noise_mu[1:]
    return [part * rate for part, rate in zip(mu, rates_of(account, n, m), strict=True)]


@dataclass(frozen=True)
class _Task:
    """A regression to plan: schema, response, R² and contribution bound."""

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
        """Return the account of a release."""
        shares, coordinates = releases_of(schedule_of(_number_of_passes(passes)), self.schema.n_columns)
        account = lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, relation=relation)
        if account.row_bits < FRACTION_BITS:
            raise BudgetUnmetError(f"epsilon={epsilon!r} is too small for a release. Increase epsilon or delta.")
        return account

    def table(self, kind: int) -> Imagined:
        """Return a simulated table of 20,000 rows, or fewer if it has many columns."""
        m = self.schema.n_columns
        rows = max(min(IMAGINED_ROWS, 500_000 // m), 8 * m)
        return imagine(self.schema, KINDS[kind], target=self.target, r2=self.r2, rows=rows)

    def is_useful(self, n: int, account: LatticeAccount) -> bool:
        """Return whether a release is useful in the usual scenario."""
        (usual,) = (index for index, kind in enumerate(KINDS) if kind.name == "usual")
        return self.expectation(usual, n, account).useful

    def expectation(self, kind: int, n: int, account: LatticeAccount) -> Expectation:
        """Return the mean R² and median errors over several draws; n rows belong to n/j privacy units."""
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
