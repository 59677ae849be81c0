"""Release files changed by hand, with the checksum as it was or one that fits again; and changed at random."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from gaussmix.releases.file import METADATA_KEY, _contents, _digest


def metadata_of(path):
    return json.loads(pq.read_schema(path).metadata[METADATA_KEY])


def rewritten(path, change, *, frame=None):
    """The file with other metadata or numbers, and the checksum as it was."""
    table = pq.read_table(path)
    metadata = json.loads(table.schema.metadata[METADATA_KEY])
    change(metadata)
    table = table if frame is None else frame(table)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


def forged(path, change):
    """The file with other metadata and a checksum that fits."""
    table = pq.read_table(path)
    metadata, _, blocks = _contents(Path(path).read_bytes(), path)
    change(metadata)
    metadata = remade(metadata, blocks)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


def remade(stored, blocks):
    stored = {key: value for key, value in stored.items() if key != "sha256"}
    return {**stored, "sha256": _digest(stored, blocks)}


def assert_no_mutated_file_is_believed(path):
    """Five hundred, in a process of its own watched in time and memory: none is read with other numbers."""
    program = Path(__file__).parent / "fuzz_releases.py"
    command = [sys.executable, str(program), str(path), "500"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["other numbers"] == 0
    assert found["refused"] > 300
    assert found["peak growth in MB"] < 200
