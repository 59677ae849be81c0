"""Compiles what is done to rows, where there is a C compiler; else the package is pure Python.

Both compute the same bits (``tests/data/test_kernels.py``). ``GAUSSMIX_PURE=1`` leaves the library out: for wheels
that are to serve every platform. At run time the same variable keeps it from being loaded.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/gaussmix/data/_kernels.c")
# No -ffast-math and no fused operations: every operation is rounded by itself. Traps and errno are not looked at.
FLAGS = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]


class Kernels(BuildHookInterface):
    """One shared library with no Python in it, so that the wheel is of a platform and not of a version of Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, beside the source for an editable install, and name the wheel after its platform."""
        source = Path(self.root) / SOURCE
        library = source.with_suffix(".so")
        library.unlink(missing_ok=True)
        if not wanted() or not compiled(source, library):
            return
        if version == "editable":  # it lies beside its source
            return
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(library)] = "gaussmix/data/_kernels.so"


def wanted() -> bool:
    """Whether the library is to be built: its functions are for x86-64, and for compilers with GCC's attributes."""
    x86 = sysconfig.get_platform().endswith("x86_64")
    return x86 and sys.platform != "win32" and os.environ.get("GAUSSMIX_PURE") != "1"


def compiled(source: Path, library: Path) -> bool:
    """Whether a compiler was found and was content."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, str(source), "-o", str(library), "-lm"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
