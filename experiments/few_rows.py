"""Lower bounds on the length of any private interval for unweighted least squares (docs/inference.md).

    GAUSSMIX_DATA=... python -m experiments.few_rows --out experiments/results/few_rows.csv

Let θ and θ′ be a coefficient with and without j of the rows, and let 95 % intervals of a μ-Gaussian-DP mechanism cover
the coefficient of both tables. With probability .95 the interval of the whole table contains θ. The two tables are at
distance j, so that it contains θ′ with probability at least Φ(Φ⁻¹(.95) − jμ), and both with probability at least

    Φ(Φ⁻¹(.95) − jμ) − .05.

If this is ½ or more, the median length on the whole table is at least abs(θ − θ′). The thresholds of top-coding are
outputs of the mechanism, so that the argument holds with the coefficients of the table coded by them.

The rows that are left out are the j with the largest influence on the coefficient, in either direction. The change
when a set S is left out is exact: -(XᵀX)⁻¹ X_Sᵀ (I - H_SS)⁻¹ e_S, with residuals e and hat matrix H (Cook and Weisberg,
1982, section 3.6). Lengths are relative to the least-squares interval of the whole table.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import gaussmix as gm
from experiments import Floats
from experiments.data_files import RESULTS
from experiments.study_tables import TABLES, StudyTable, load
from experiments.truth_study import DELTA, EPSILONS, Z, column, frequent, least_squares

LEVEL, SEED, STARTS = 0.95, 0, 3
Choices = list[tuple[list[int], Floats]]
"""For each source column, the encoded columns that it sets and the values that they can have, one row each."""


def rows_indistinguishable(mu: float) -> int:
    """Return the largest j for which the interval contains both coefficients with probability at least ½.

    >>> [rows_indistinguishable(mu) for mu in (0.1, 0.5, 1.5, 2.0)]
    [15, 3, 1, 0]
    """
    return int((norm.ppf(LEVEL) - norm.ppf(0.5 + 1 - LEVEL)) / mu)


def largest_changes(X: Floats, y: Floats, most: int) -> Floats:
    """Return how far leaving out 1, ..., ``most`` rows moves each coefficient at least, shape (most, columns of X).

    >>> x, y = np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.0, 1.0, 1.0, 6.0])
    >>> X = np.column_stack([np.ones(4), x])
    >>> fits = [np.linalg.lstsq(np.delete(X, i, 0), np.delete(y, i))[0] for i in range(4)]
    >>> expected = np.abs(fits - np.linalg.lstsq(X, y)[0]).max(axis=0)
    >>> np.allclose(largest_changes(X, y, 1)[0], expected)
    True
    """
    scale = np.abs(X).max(axis=0)
    Q, R = np.linalg.qr(X / scale)
    residuals = y - Q @ (Q.T @ y)
    leverage = np.minimum(np.sum(Q * Q, axis=1), 1 - 1e-9)
    influence = np.linalg.solve(R, (Q * (residuals / (1 - leverage))[:, np.newaxis]).T)
    found = np.zeros((most, X.shape[1]))
    for own, order in enumerate(np.argsort(influence, axis=1)):
        for ordered in (order, order[::-1]):
            for j in range(1, most + 1):
                rows = ordered[:j]
                left = np.eye(j) - Q[rows] @ Q[rows].T
                if np.linalg.eigvalsh(left)[0] > 1e-6:  # without these rows, the columns are not collinear
                    moved = np.linalg.solve(R, Q[rows].T @ np.linalg.solve(left, residuals[rows]))
                    found[j - 1, own] = max(found[j - 1, own], abs(moved[own]))
    return np.asarray(np.maximum.accumulate(found / scale, axis=0))


def largest_additions(X: Floats, y: Floats, choices: Choices, times: int, seed: int) -> Floats:
    """Return how far adding ``times`` equal rows that are within the bounds moves each coefficient at least.

    Adding row (x, y) j times changes coefficients by j(XᵀX)⁻¹x (y - xᵀθ)/(1 + j xᵀ(XᵀX)⁻¹x). The row is found by
    coordinate ascent over the source columns from random starts, so that the changes are lower bounds of the largest.
    ``choices`` has, for each source column, the encoded columns it sets and the values that they can have; the last one
    is the response.
    """
    rng, scale = np.random.default_rng(seed), np.abs(X).max(axis=0)
    inverse = np.linalg.inv((X / scale).T @ (X / scale))
    theta = inverse @ ((X / scale).T @ y)
    *predictors, (_, responses) = choices
    values = [value / scale[own] for own, value in predictors]

    def changes(x: Floats, of: int) -> Floats:
        """Return the change of one coefficient for each row of x, with the response that moves it most."""
        moved = x @ inverse
        distances = np.abs(responses[:, 0] - (x @ theta)[:, np.newaxis]).max(axis=1)
        return np.asarray(
            times * np.abs(moved[:, of]) * distances / (1 + times * np.sum(moved * x, axis=1)), dtype=float
        )

    found = np.zeros(X.shape[1])
    for of in range(X.shape[1]):
        for _ in range(STARTS):
            x = np.zeros(X.shape[1])
            x[0] = 1 / scale[0]
            for (own, _), value in zip(predictors, values, strict=True):
                x[own] = value[rng.integers(len(value))]
            before, best = -1.0, 0.0
            while best > before * (1 + 1e-9):
                before = best
                for (own, _), value in zip(predictors, values, strict=True):
                    rows = np.repeat(x[np.newaxis], len(value), axis=0)
                    rows[:, own] = value
                    reached = changes(rows, of)
                    x, best = rows[np.argmax(reached)], float(reached.max())
            found[of] = max(found[of], best)
    return np.asarray(found / scale)


def measure(name: str) -> list[dict[str, object]]:
    """Return both lower bounds for every coefficient of a table, at each ε."""
    table, found = load(name), list[dict[str, object]]()
    for epsilon in EPSILONS:
        rows = rows_indistinguishable(gm.accounting.gaussian_mu(epsilon, DELTA))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a seed voids the guarantee
            release = gm.release(
                table.frame, schema=dict(table.schema), epsilon=epsilon, delta=DELTA, random_state=SEED
            )
        coded = release.topcode(table.clamped())
        ends = {name: (float(coded[name].min()), float(coded[name].max())) for name in table.numeric}
        for response in table.responses:
            model = release.ols(response)
            terms = [term for term, value in model.params.items() if np.isfinite(value) and term != "(intercept)"]
            if not terms:
                continue
            X = np.column_stack([np.ones(len(coded)), *(column(coded, term) for term in terms)])
            y, errors = column(coded, response), least_squares(coded, response, terms)[1]
            present = largest_changes(X, y, rows)[-1, 1:]
            admissible = largest_additions(X, y, _choices(table, ends, response, terms), rows, SEED)[1:]
            for term, own, added, error in zip(terms, present, admissible, errors, strict=True):
                if frequent(table, term):
                    about = {"table": name, "response": response, "term": term, "epsilon": epsilon, "rows": rows}
                    width = 2 * Z * error
                    found.append(about | {"present": own / width, "admissible": max(own, added) / width})
    return found


def _choices(table: StudyTable, ends: dict[str, tuple[float, float]], response: str, terms: list[str]) -> Choices:
    """Return the encoded columns of each source column and their values; numbers lie within the coded range."""
    choices: Choices = []
    for name in table.schema:
        own = [i for i, term in enumerate(terms, 1) if term == name or term.startswith(f"{name}=")]
        if name == response or not own:
            continue
        if name in table.numeric:
            choices.append((own, np.linspace(*ends[name], 9)[:, np.newaxis]))
        else:  # no level of the model, or one of them
            choices.append((own, np.vstack([np.zeros(len(own)), np.eye(len(own))])))
    responses = ends[response] if response in table.numeric else (0.0, 1.0)
    return [*choices, ([0], np.array(responses)[:, np.newaxis])]


def summarise(found: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """Return for each response and ε how the bounds compare with the intervals of the study of coverage."""
    keys = ["table", "response", "term", "epsilon"]
    both = found.merge(truth[truth["kind"] == "coefficient"], on=keys, validate="one_to_one")
    for bound in ("present", "admissible"):
        both[f"{bound}_longer"] = both[bound] > both["length"]
    both["missed"] = both["covered_plain"] < 0.85
    geometric = lambda values: float(np.exp(np.log(values).mean()))  # noqa: E731
    return both.groupby(["table", "response", "epsilon"], sort=False).agg(
        rows=("rows", "first"),
        coefficients=("term", "size"),
        missed=("missed", "sum"),
        length=("length", geometric),
        present=("present", "max"),
        present_longer=("present_longer", "sum"),
        admissible=("admissible", geometric),
        most_admissible=("admissible", "max"),
        admissible_longer=("admissible_longer", "sum"),
    )


def main() -> None:
    """Measure all tables, save and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = pd.DataFrame([row for name in asked.tables for row in measure(name)])
    print(summarise(found, pd.read_csv(RESULTS / "truth.csv")).round(2).to_string())
    if asked.out is not None:
        found.round(4).to_csv(asked.out, index=False)


if __name__ == "__main__":
    main()
