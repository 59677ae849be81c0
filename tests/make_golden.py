"""Write the golden files: ``python tests/make_golden.py --overwrite``, and read the difference.

Published numbers with their source (accounting.json), and one small file of every kind that gaussmix reads
(docs/development.md). Noise, names, times and keys are fixed: the same versions of the libraries write the same bytes.
"""

from __future__ import annotations

import json
import multiprocessing  # noqa: F401  # draws random bytes when it is imported: before they are fixed
import random
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import gaussmix as gm
import reference
from gaussmix.releases.file import sign

GOLDEN = Path(__file__).parent / "golden"

# Five significant digits, as first published with the design of this library; "renyi" and "sheffet" are those of
# Figure 1 of arXiv:2505.24603v2 (k = 150, δ = 1e-8).
PUBLISHED = {
    "exact": {10: 6.6046, 100: 0.51457, 1000: 0.045182},
    "renyi": {10: 7.0966, 100: 0.55739, 1000: 0.049420},
    "sheffet": {10: 19.378, 100: 1.9378, 1000: 0.19378},
}

SCHEMA: dict[str, Any] = {
    "age": [0, 100],
    "sex": {"levels": ["f", "m"], "unknown": "other"},
    "smoker": "boolean",
    "cost": {"lower": 0, "upper": 20, "missing": "lower"},
}
UNIT: dict[str, Any] = {"privacy_unit": gm.PrivacyUnit("person", 5)}
BUDGET: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6}
MODELS = ("smoker ~ age", "cost ~ age + smoker", gm.DeclaredModel("cost ~ age", "poisson"))
LEDGER: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "releases": 4}


def rows(n: int = 400) -> pa.Table:
    """The rows of all golden files, computed from whole numbers alone; five rows for each of n / 5 persons."""
    i = np.arange(n)
    smoker = i % 4 == 0
    return pa.table(
        {
            "age": (37 * i) % 120,
            "sex": pa.array([("f", "m", "x")[j % 3] for j in i]),
            "smoker": smoker,
            "cost": 2 + ((37 * i) % 120) / 20 + 3 * smoker + ((13 * i) % 23) / 8,
            "person": pa.array([f"p{j % (n // 5)}" for j in i]),
        }
    )


def accounting() -> dict[str, object]:
    """ε of the published analyses, at the parameters of Figure 1."""
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


class FixedTime(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> FixedTime:
        return cls(2026, 1, 1, tzinfo=tz or UTC)


@contextmanager
def reproducible() -> Iterator[None]:
    """Fix the names of releases, ledgers and parts, the keys of persons and samples, and the clock."""
    source = random.Random(0)
    with ExitStack() as stack:
        for target in ("gaussmix.mechanism.release.datetime", "gaussmix.ledger.ledger.datetime"):
            stack.enter_context(patch(target, FixedTime))
        stack.enter_context(patch("uuid.uuid4", lambda: uuid.UUID(bytes=source.randbytes(16), version=4)))
        stack.enter_context(patch("os.urandom", source.randbytes))
        yield


def releases(folder: Path) -> None:
    """Write a release of each kind; all but `not_private.parquet` have noise from a seed."""
    table = rows(4000)
    gm.release(table, schema=SCHEMA, **BUDGET, passes=3, random_state=1).save(folder / "passes.parquet")
    gm.release(table, schema=SCHEMA, **BUDGET, **UNIT, passes=3, random_state=2).save(folder / "unit.parquet")
    gm.release(table, schema=SCHEMA, epsilon=np.inf, delta=1e-6).save(folder / "not_private.parquet")
    gm.release(table, schema=SCHEMA, **BUDGET, **UNIT, passes=3, models=MODELS, random_state=4).save(
        folder / "models.parquet"
    )


def paper_sketch() -> gm.paper.Sketch:
    """Draw a sketch of the paper's Algorithm 1 from a seed."""
    table = rows(4000)
    A = np.column_stack([table["age"].to_numpy() / 120, table["smoker"].to_numpy(), table["cost"].to_numpy() / 20])
    return gm.paper.modified_gauss_mix(A, 1.5, 60, 40.0, 0.5, 6.0, columns=("age", "smoker", "cost"), rng=6)


def sketches(folder: Path) -> None:
    """Write a sketch of `gaussmix.paper`."""
    paper_sketch().save(folder / "paper.parquet")


def ledgers(folder: Path) -> None:
    """Write a ledger with two entries, and the release of the first of them."""
    ledger = gm.Ledger(folder / "two_entries.ledger", **LEDGER)
    private = gm.release(
        rows(4000), schema=SCHEMA, budget=gm.Budget(ledger=ledger, note="first"), passes=1, random_state=5
    )
    private.save(folder / "ledger.parquet")
    ledger.spend(mu=0.05, delta_slack=1e-12, note="second")


def moments(folder: Path) -> None:
    """Write moments whose privacy unit is a row, and moments whose unit is a person."""
    gm.Moments.of(rows(), SCHEMA).save(folder / "rows.moments")
    gm.Moments.of(rows(), SCHEMA, **UNIT).save(folder / "unit.moments")


def signatures(folder: Path) -> None:
    """Sign `passes.parquet` with a key that is public knowledge, and write its public half."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    with tempfile.NamedTemporaryFile(suffix=".pem") as private:
        private.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        private.flush()
        signed = folder / "passes.parquet"
        sign(signed.read_bytes(), signed, private.name)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "signer.pem").write_bytes(public)


def write_all(folder: Path) -> None:
    """Write every golden file but `numbers.json` and the schemas."""
    with reproducible():
        for kind in (releases, sketches, ledgers, moments, signatures):
            kind(folder)
    (folder / "accounting.json").write_text(json.dumps(accounting(), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--overwrite"]:
        sys.exit("python tests/make_golden.py --overwrite")
    with tempfile.TemporaryDirectory() as name:
        write_all(Path(name))
        for file in Path(name).iterdir():
            shutil.copyfile(file, GOLDEN / file.name)
