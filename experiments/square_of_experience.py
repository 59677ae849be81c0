"""The square of a column as a term (Legendre, about the middle of its interval) against a column of raw squares.

CPS 1988, log wage on experience, its square and education, bounds fixed beforehand; errors of the coefficient of the
square against least squares on the table, in standard errors of least squares, over several releases.

    python -m experiments.square_of_experience --releases 20
"""

from __future__ import annotations

import argparse
import functools
import io

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments.data_files import read

BOUNDS = {"wage": [50, 20_000], "education": [0, 20], "experience": [-4, 63]}
FORMULA = "log(wage) ~ poly(experience, 2) + education"
ON = ["experience", "squared", "education"]


def errors(table: pd.DataFrame, epsilon: float, passes: int, releases: int) -> dict[str, float]:
    """Root mean squared errors of the coefficient of the square, in standard errors of least squares."""
    y = np.log(table.wage.clip(*BOUNDS["wage"]))
    X = np.column_stack([np.ones(len(table)), table.experience, table.squared, table.education])
    beta, residual, *_ = np.linalg.lstsq(X, y, rcond=None)
    deviation = float(np.sqrt(residual[0] / (len(y) - 4) * np.linalg.inv(X.T @ X)[2, 2]))
    squares = {"squared": [0.0, 63.0**2]}
    raw = gm.Schema.of(BOUNDS | squares, terms=["log(wage)"], only_in_terms=["wage"])
    found: dict[str, list[float]] = {"Legendre": [], "raw": []}
    for seed in range(releases):
        draw = functools.partial(gm.release, table, epsilon=epsilon, delta=1e-6, passes=passes, random_state=seed)
        own = draw(schema=BOUNDS, formula=FORMULA).ols(FORMULA)
        other = draw(schema=raw).ols("log(wage)", predictors=ON)
        found["Legendre"].append(own.params["experience^2"] - beta[2])
        found["raw"].append(other.params["squared"] - beta[2])
    return {name: float(np.sqrt(np.mean(np.square(values)))) / deviation for name, values in found.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=20)
    releases = parser.parse_args().releases
    table = pd.read_csv(io.BytesIO(read("cps1988/cps1988.csv")))
    table["squared"] = table.experience.astype(float) ** 2
    for passes in (1, 4):
        for epsilon in (1.0, 3.0, 10.0):
            found = errors(table, epsilon, passes, releases)
            print(f"passes={passes} epsilon={epsilon:g}", {name: round(value, 2) for name, value in found.items()})


if __name__ == "__main__":
    main()
