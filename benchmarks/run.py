"""All benchmarks, one CSV file: python -m benchmarks.run [--small] [--out FILE] [NAME ...].

The file is ``benchmarks/runs/DATE.csv`` unless it is named; every line has machine, commit and date. ``--small`` tries
everything with few rows: its ratios say nothing, and are not comparable with those of a whole run.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from pathlib import Path

RUNS = Path(__file__).parent / "runs"
WHOLE: dict[str, list[str]] = {
    "accounting": [],
    "speed": [],
    "readings": [],
    "tables": [],
    "passes": [],
    "summaries": [],
    "logit": [],
    "peers": [],
}
SMALL = {
    "speed": ["--part", "100", "--threads", "1"],
    "readings": ["--part", "100"],
    "tables": ["--rows", "20000"],
    "passes": ["--part", "100"],
    "summaries": ["--part", "10"],
    "logit": ["--part", "10"],
    "peers": ["--part", "100"],
}
"""Arguments of every benchmark."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WHOLE)}; default: all")
    parser.add_argument("--small", action="store_true", help="few rows")
    parser.add_argument("--out", type=Path, help="CSV file, which must not be there")
    options = parser.parse_args()
    if unknown := set(options.names) - set(WHOLE):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ")
    out: Path = options.out or RUNS / f"{now}.csv"
    if out.exists():
        parser.error(f"{out} exists already")
    for name in options.names or WHOLE:
        arguments = SMALL.get(name, []) if options.small else WHOLE[name]
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments, "--csv", str(out)], check=True)
    print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
