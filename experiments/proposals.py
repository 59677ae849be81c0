"""What private bounds are worth: declared blindly or wide, proposed, and the data's own, which are not private.

    python -m experiments.proposals --draws 5

One ledger of (ε, 10⁻⁶) a draw. Blind bounds, -10⁶ to 10⁶, are those of somebody who does not know the units; wide ones
go from zero, or a negative power of ten, to the power of ten beyond the largest value. A proposal takes a tenth of the
ledger and the release the rest; the others have all of it. R² is that of the predictions for the table's own rows, in
the target's unit.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments.data_files import RESULTS, read

DELTA = 1e-6
SHARE, REST = "1/10", "9/10"
EPSILONS = (0.5, 1.0, 3.0)
TABLES = {
    "cps1988": ("cps1988/cps1988.csv", "log_wage"),
    "diamonds": ("diamonds/diamonds.csv", "log_price"),
    "health": ("health_insurance/health_insurance.csv", "whrswk"),
}
WAYS = ("blind", "wide", "proposed", "own")
BLIND = [-1e6, 1e6]


def table_of(name: str) -> pd.DataFrame:
    """The columns of one table, its target on the scale of its model."""
    table = pd.read_csv(io.BytesIO(read(TABLES[name][0]))).drop(columns=["rownames", "wght"], errors="ignore")
    for column in ("wage", "price"):
        if column in table:
            table[f"log_{column}"] = np.log(table.pop(column))
    return table


def is_number(values: pd.Series) -> bool:
    """Whether a column holds numbers."""
    return bool(values.dtype.kind in "biuf")


def wide(low: float, high: float) -> list[float]:
    """Zero, or a negative power of ten, to the power of ten beyond the largest."""
    beyond = [10.0 ** math.ceil(math.log10(max(abs(value), 1e-9))) for value in (low, high)]
    return [0.0 if low >= 0 else -beyond[0], beyond[1]]


def declared(table: pd.DataFrame, way: str) -> dict[str, Any]:
    """The columns with declared bounds or with the data's own; levels are taken as known."""
    found: dict[str, Any] = {}
    for name, values in table.items():
        if not is_number(values):
            found[str(name)] = sorted(values.unique())
        else:
            low, high = float(values.min()), float(values.max())
            found[str(name)] = {"blind": BLIND, "wide": wide(low, high), "own": [low, high]}[way]
    return found


def one_draw(table: pd.DataFrame, target: str, way: str, epsilon: float, seed: int) -> dict[str, Any]:
    """R² of one release, and how much of the rows its bounds clip."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = gm.Ledger(Path(folder) / "rows.ledger", epsilon=epsilon, delta=DELTA)
        if way == "proposed":
            kinds = {str(name): "number" if is_number(table[name]) else "category" for name in table}
            proposal = gm.propose_bounds(table, kinds, budget=gm.Budget(ledger=ledger, share=SHARE), random_state=seed)
            schema, share, left_out = proposal.schema, REST, proposal.left_out
        else:
            schema, share, left_out = gm.Schema.of(declared(table, way)), "1", ()
        if target in left_out:
            return {"r2": 0.0, "left_out": len(left_out), "clipped": 1.0}
        private = gm.release(table, schema=schema, budget=gm.Budget(ledger=ledger, share=share), random_state=seed)
    predicted = private.ols(target).predict(table)
    y = table[target].to_numpy(float)
    numbers = [(name, column) for name, column in schema.columns.items() if isinstance(column, gm.Numeric)]
    clipped = [np.mean((table[name] < column.lower) | (table[name] > column.upper)) for name, column in numbers]
    r2 = 1 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2)
    return {"r2": float(r2), "left_out": len(left_out), "clipped": float(np.max(clipped))}


def main() -> None:
    """Write the results and print their means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--out", type=Path, default=RESULTS / "proposals.csv")
    options = parser.parse_args()
    rows = []
    for name, epsilon, way, seed in itertools.product(TABLES, EPSILONS, options.ways, range(options.draws)):
        table = table_of(name)
        found = one_draw(table, TABLES[name][1], way, epsilon, seed)
        rows.append({"table": name, "epsilon": epsilon, "way": way, "seed": seed, **found})
    frame = pd.DataFrame(rows)
    frame.round(5).to_csv(options.out, index=False)
    print(frame.groupby(["table", "epsilon", "way"])[["r2", "left_out", "clipped"]].mean().round(4).to_string())


if __name__ == "__main__":
    main()
