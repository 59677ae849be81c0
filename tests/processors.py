"""Run tests as other processors would: python tests/processors.py [PYTEST ARGUMENTS].

Without arguments: the golden, format and accounting tests. BLAS kernels and SIMD paths that this processor lacks are
left out. Exits with 1 if a test fails anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

TESTS = [
    "tests/test_golden.py",
    "tests/test_formats.py",
    "tests/accounting",
    "tests/data/test_rows_alone.py",
    "tests/data/test_scores.py",
]
HERE = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
AVX512 = [name for name in HERE if name == "X86_V4" or name.startswith("AVX512")]


def environments() -> list[dict[str, str]]:
    """Return what to set: kernels from the oldest to the newest, SIMD paths to match, and no compiled functions."""
    oldest = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": " ".join(HERE)}
    haswell = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": " ".join(AVX512)}
    skylake = {"OPENBLAS_CORETYPE": "SkylakeX"}
    found = [oldest]
    if "X86_V3" in HERE:
        found.append(haswell)
    if "X86_V4" in HERE:
        found.append(skylake)
    return [*found, {"GAUSSMIX_PURE": "1"}]


def main(arguments: list[str]) -> int:
    """Run the tests in every environment."""
    failed = False
    for environment in environments():
        print(*(f"{name}={value!r}" for name, value in environment.items()), flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "slow or not slow", *(arguments or TESTS)]
        done = subprocess.run(command, env={**os.environ, **environment}, check=False)
        failed |= done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
