"""Results do not depend on the processor, threads, locale, time zone, hash seed, memory layout or order of files.

The processor is varied by the BLAS kernel (OPENBLAS_CORETYPE), by NumPy's SIMD paths (NPY_DISABLE_CPU_FEATURES) and by
switching the compiled functions off (GAUSSMIX_PURE).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import gaussmix as gm
import portable

SIMD = " ".join(feature for feature in __cpu_dispatch__ if __cpu_features__[feature])
ENVIRONMENTS = {
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "no SIMD": {"NPY_DISABLE_CPU_FEATURES": SIMD, "OPENBLAS_CORETYPE": "Prescott"},
    "no compiled functions": {"GAUSSMIX_PURE": "1"},
    "one thread": {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    "four threads": {"OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"},
    "Turkish": {"LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "1"},
    "C locale": {"LC_ALL": "C", "TZ": "America/St_Johns", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0"},
}
NEEDS = {"Haswell": "X86_V3", "SkylakeX": "X86_V4"}


def kinds() -> dict[str, dict]:
    """Ten releases: passes, privacy units, weights, neighbours, clipping, a ledger."""
    persons = {"privacy_unit": gm.PrivacyUnit("person", 2)}
    return {
        "one pass": {"passes": 1},
        "two passes": {"passes": 2},
        "three passes": {"passes": 3},
        "four passes": {"passes": 4},
        "persons": {"passes": 3, **persons},
        "persons, sampled": {"passes": 2, "privacy_unit": gm.PrivacyUnit("person", 2, "sample")},
        "weights": {"passes": 3, "weight": "weight"},
        "replace-one": {"passes": 2, "budget": gm.Budget(1.0, 1e-6, neighbours="replace-one")},
        "top-coding": {"passes": 3, "topcode": "auto"},
        "ledger": {"passes": 4},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("releases")
    ledger = gm.Ledger(path / "rows.ledger", epsilon=1.0, delta=1e-6, releases=2)
    for name, options in kinds().items():
        columns = {**portable.SCHEMA["columns"], **({"weight": [0, 2]} if "weight" in options else {})}
        budget = gm.Budget(ledger=ledger) if name == "ledger" else gm.Budget(1.0, 1e-6)
        private = gm.release(
            portable.rows(), schema={**portable.SCHEMA, "columns": columns}, **{"budget": budget, **options}
        )
        private.save(path / f"{name}.parquet")
    return path


@pytest.fixture(scope="module")
def here(folder) -> dict:
    return json.loads(json.dumps(portable.values(folder)))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_values_are_the_same_in_another_environment(name, folder, here):
    if name in NEEDS and not __cpu_features__.get(NEEDS[name]):
        pytest.skip("this processor has no such kernel")
    script = str(Path(portable.__file__))
    environment = {**os.environ, **ENVIRONMENTS[name]}
    done = subprocess.run([sys.executable, script, folder], env=environment, capture_output=True, check=True)
    there = json.loads(done.stdout)
    assert there["exact"] == here["exact"]
    assert there["close"].keys() == here["close"].keys()
    for key, value in here["close"].items():
        # A pooled estimate goes through inverses of ill-conditioned matrices: last digits grow.
        rel = 1e-6 if key.startswith("coefficients") else 1e-9
        assert there["close"][key] == pytest.approx(value, rel=rel, abs=1e-12), key


def test_ten_releases_have_the_fingerprints_of_their_files(folder, here):
    stored = {}
    for path in folder.glob("*.parquet"):
        stored[path.name] = json.loads(pq.read_schema(path).metadata[b"gaussmix"])["sha256"]
    assert here["exact"]["fingerprints"] == stored
    assert len(set(stored.values())) == 10


@pytest.mark.skipif(not __cpu_features__.get("X86_V3"), reason="this processor has no such kernel")
def test_the_environments_differ(folder):
    """Pooled matrices have other last digits under other kernels: a fingerprint over them would have changed."""
    file = str(folder / "four passes.parquet")
    code = f"import gaussmix as gm; print(gm.load({file!r}).second_moment.tobytes().hex())"
    found = set()
    for name in ("Prescott", "Haswell"):
        environment = {**os.environ, **ENVIRONMENTS[name]}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        found.add(done.stdout)
    assert len(found) == 2


def test_sums_do_not_depend_on_layout_or_order():
    table = portable.rows()
    expected = portable.units(gm.Moments.of(table, portable.SCHEMA))
    order = np.random.default_rng(0).permutation(len(table))
    frame = table.to_pandas()
    strided = pd.DataFrame(
        {name: np.repeat(frame[name].to_numpy(), 2)[::2] if name != "sex" else frame[name] for name in frame}
    )
    chunked = pa.concat_tables([table.slice(start, 700) for start in range(0, len(table), 700)])
    for other in (table.take(pa.array(order)), chunked, frame, strided, table.select(table.column_names[::-1])):
        assert portable.units(gm.Moments.of(other, portable.SCHEMA)) == expected


def test_sums_do_not_depend_on_the_order_of_files_or_the_number_of_row_groups(tmp_path):
    table = portable.rows()
    expected = portable.units(gm.Moments.of(table, portable.SCHEMA))
    for number, size in enumerate((100, 3000, 750, 333)):
        pq.write_table(table.slice(number * 750, 750), tmp_path / f"part{number}.parquet", row_group_size=size)
    files = sorted(tmp_path.glob("*.parquet"))
    for sources in (files, files[::-1]):
        assert portable.units(gm.Moments.of(sources, portable.SCHEMA)) == expected


@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_of_arrays_do_not_depend_on_their_layout(order):
    i = np.arange(5000)
    X = np.column_stack([(37 * i) % 120, (13 * i) % 23, (577 * i) % 997]) / 120
    y = X @ [0.5, -0.25, 0.125]
    fitted = [
        gm.LinearRegression(epsilon=1.0, delta=1e-6, data_norm=9.0, bounds_y=(-4, 4), passes=1, random_state=0).fit(
            A, b
        )
        for A, b in ((X, y), (np.asarray(X, order=order), np.repeat(y, 2)[::2]), (np.repeat(X, 2, axis=0)[::2], y))
    ]
    first, *others = (model.release_.statistic.passes[0].matrix for model in fitted)
    for other in others:
        assert np.array_equal(first, other)
