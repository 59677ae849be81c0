"""Write the golden files: published numbers with their source. Run with --overwrite, and read the difference.

Files of releases in format 1 were written by version 0.1.0 and stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import reference

GOLDEN = Path(__file__).parent / "golden"

# Five significant digits, as first published with the design of this library; "renyi" and "sheffet" are those of
# Figure 1 of arXiv:2505.24603v2 (k = 150, δ = 1e-8).
PUBLISHED = {
    "exact": {10: 6.6046, 100: 0.51457, 1000: 0.045182},
    "renyi": {10: 7.0966, 100: 0.55739, 1000: 0.049420},
    "sheffet": {10: 19.378, 100: 1.9378, 1000: 0.19378},
}


def accounting() -> dict[str, object]:
    rows = [
        {"analysis": analysis, "gamma": gamma, "epsilon": value, "rel": 3e-5, "source": "Figure 1, recomputed"}
        for analysis, values in PUBLISHED.items()
        for gamma, value in values.items()
    ]
    rows += [
        {
            "analysis": "renyi",
            "gamma": gamma,
            "epsilon": float(reference.renyi_epsilon(1e-8, 150, gamma)),
            "rel": 1e-9,
            "source": "Lemma 1 and Proposition 1 at 40 digits",
        }
        for gamma in (16 / 9, 20, 316.227766, 1e7)
    ]
    return {"sketch_size": 150, "delta": 1e-8, "epsilon": rows}


if __name__ == "__main__":
    if sys.argv[1:] != ["--overwrite"]:
        sys.exit("python tests/make_golden.py --overwrite")
    (GOLDEN / "accounting.json").write_text(json.dumps(accounting(), indent=1) + "\n")
