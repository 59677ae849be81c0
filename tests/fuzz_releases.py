"""Mutated release files: ``python tests/fuzz_releases.py FILE COUNT``; prints what became of them as JSON."""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
from pathlib import Path

from gaussmix.errors import DamagedError, NotPrivateError
from gaussmix.models.release import load
from gaussmix.releases.file import parameters_of, release_id


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A file with bits flipped, bytes overwritten, pieces cut out or doubled; half of it in the footer."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        first = max(len(data) - 4000, 0) if rng.random() < 0.5 else 0
        place, kind = rng.randrange(first, len(data)), rng.randrange(5)
        end = min(place + rng.choice([1, 4, 64, 1024]), len(data))
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place:end] = rng.randbytes(end - place)
        elif kind == 2:
            del data[place:end]
        elif kind == 3:
            data[place:place] = data[place:end]
        else:
            data[place:end] = b"\xff" * (end - place)
        data = data or bytearray(b"x")
    return bytes(data)


def main(name: str, count: int, seed: int = 0) -> dict[str, float]:
    original, content, rng = load(name), Path(name).read_bytes(), random.Random(seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"refused": 0, "same numbers": 0, "other numbers": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutated.parquet"
        for _ in range(count):
            path.write_bytes(mutated(content, rng))
            try:
                release_id(path)
                release = load(path)
            except (DamagedError, NotPrivateError):
                found["refused"] += 1
                continue
            same = (
                release.certificate == original.certificate
                and release.fingerprint == original.fingerprint
                and parameters_of(release.statistic) == parameters_of(original.statistic)
            )
            found["same numbers" if same else "other numbers"] += 1
    return {**found, "peak growth in MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)))
