"""Encoded rows of a table, before and after they are shortened and rounded, for tests that look at single rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.data.schema import FRACTION_BITS, Schema


def plain_rows(schema: Schema, table: pa.RecordBatch | pa.Table) -> np.ndarray:
    """In the units of the weights, neither shortened nor rounded."""
    return encode_batch(table, schema, BlockEncoder.plain(schema))


def summed_rows(schema: Schema, table: pa.RecordBatch | pa.Table) -> np.ndarray:
    """As they are summed up: whole multiples of 2⁻²⁰, in units of the row's bound C."""
    plan = BlockEncoder.of(schema)
    block = encode_batch(table, schema, plan)
    with np.errstate(over="ignore", invalid="ignore"):
        plan.finish(block)
    return np.ldexp(block, -FRACTION_BITS)


def exact_gram(rows: np.ndarray) -> np.ndarray:
    """Of rows as `summed_rows` gives them, in Python's integers and units of 2⁻⁴⁰."""
    whole = np.vectorize(int, otypes=[object])(np.ldexp(rows, FRACTION_BITS))
    return whole.T @ whole


def squared_lengths(rows: np.ndarray) -> list[int]:
    """Squared norm of every row, in Python's integers and units of 2⁻⁴⁰."""
    return [sum(int(value) ** 2 for value in row) for row in np.ldexp(rows, FRACTION_BITS).tolist()]
