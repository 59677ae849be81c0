"""Count the functions and modules of the package that a computation enters.

``python -m benchmarks.walk [--list]`` prints one row for each walk; ``--list`` also prints the functions by module.
Counted are named functions and methods, in every thread; class bodies, lambdas and comprehensions are not.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gaussmix as gm

ROOT = str(Path(gm.__file__).parent)
SCHEMA = {"age": [18, 95], "bmi": [15, 45], "cost": [0, 30]}


def entered(compute: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (module, qualified name) of every function of the package that ``compute`` enters."""
    seen: set[tuple[str, str]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_named = code.co_flags & 0x2 and not code.co_name.startswith("<")  # CO_NEWLOCALS: not a class body
        if event == "call" and is_named and code.co_filename.startswith(ROOT):
            seen.add((code.co_filename[len(ROOT) + 1 :], code.co_qualname))

    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        compute()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def walks(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the computations that are counted, by name, on 20,000 rows of three columns."""
    rng = np.random.default_rng(0)
    n = 20_000
    age, bmi = rng.uniform(18, 95, n), rng.normal(27, 4, n).clip(15, 45)
    columns = {"age": age, "bmi": bmi, "cost": (0.1 * age + 0.2 * bmi + rng.normal(0, 2, n)).clip(0, 30)}
    parquet = folder / "rows.parquet"
    pq.write_table(pa.table(columns), parquet)
    X, y = np.column_stack([age, bmi]), columns["cost"]
    model = gm.LinearRegression(epsilon=1.0, delta=1e-6, bounds_X=([18, 15], [95, 45]), bounds_y=(0, 30))

    def summary(data: object) -> Callable[[], object]:
        return lambda: str(gm.release(data, schema=SCHEMA, epsilon=1.0, delta=1e-6).ols("cost").summary())

    return {
        "Parquet to summary, first call": summary(str(parquet)),
        "arrays to summary, second call": summary(columns),
        "fit to coef_": lambda: model.fit(X, y).coef_,
    }


def main() -> None:
    """Print the counts."""
    with tempfile.TemporaryDirectory() as folder:
        for name, compute in walks(Path(folder)).items():
            seen = entered(compute)
            by_module = Counter(module for module, _ in seen)
            print(f"{name}: {len(seen)} functions in {len(by_module)} modules")
            if "--list" in sys.argv:
                for module in sorted(by_module):
                    print(f"  {module} ({by_module[module]}): " + ", ".join(sorted(f for m, f in seen if m == module)))


if __name__ == "__main__":
    main()
