"""Release files changed by hand: with the checksum as it was, or with one that fits again."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq

from gaussmix.models.release_file import METADATA_KEY, _digest


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
    metadata = json.loads(table.schema.metadata[METADATA_KEY])
    change(metadata)
    factor = np.column_stack([column.to_numpy() for column in table.columns])
    metadata = remade(metadata, factor)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


def remade(stored, factor):
    stored = {key: value for key, value in stored.items() if key != "sha256"}
    return {**stored, "sha256": _digest(stored, factor)}
