"""Moments of tables that live on a cluster: Dask collections and Spark data frames.

Only :class:`gaussmix.moments.Moments` leave the workers, and they are the same to the last bit as on one machine. A
task that is lost and run again counts once: the engine keeps one result a partition, and every build has its own
random id. No noise is drawn on a worker.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from gaussmix.moments import Moments
from gaussmix.schema import Schema

__all__ = ["is_clustered", "moments_on_cluster"]


def is_clustered(data: Any) -> bool:
    """Whether the table is a Dask collection or a Spark data frame; imports neither."""
    return _is_dask(data) or _is_dask_array(data) or _is_spark(data)


def moments_on_cluster(data: Any, schema: Schema | dict[str, Any] | str | Path) -> Moments:
    """Moments of a Dask or Spark table, summed up where its partitions are.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, (dask.array.Array, names) or pyspark.sql.DataFrame
    schema : Schema, dict or path
    """
    declared = Schema.from_(schema)
    if _is_dask(data) or _is_dask_array(data):
        return _dask_moments(data, declared)
    return _spark_moments(data, declared)


def _module(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def _is_dask(data: Any) -> bool:
    return _module(data) in ("dask", "dask_expr") and hasattr(data, "to_delayed") and hasattr(data, "columns")


def _is_dask_array(data: Any) -> bool:
    return isinstance(data, tuple) and len(data) == 2 and _module(data[0]) == "dask"


def _is_spark(data: Any) -> bool:
    return _module(data) == "pyspark" and hasattr(data, "mapInArrow")


def _check_columns(found: list[str], schema: Schema) -> None:
    for name in schema.columns:
        if found.count(name) != 1:
            what = "is not in the table" if name not in found else "is in the table twice"
            raise ValueError(f"Column {name!r} {what}. The table must have every column of the schema once.")


# ---------------------------------------------------------------------------------------------------------------
# Dask
def _dask_moments(data: Any, schema: Schema) -> Moments:
    from dask.delayed import delayed

    if _is_dask_array(data):
        array, names = data
        _check_columns(list(names), schema)
        array = array.rechunk({1: -1})
        parts = [(block, list(names)) for block in array.to_delayed()[:, 0]]
    else:
        _check_columns(list(data.columns), schema)
        parts = data[list(schema.columns)].to_delayed()
    build = delayed(functools.partial(_build, schema=schema), pure=False)
    add = delayed(operator.add, pure=False)
    sums = [build(part) for part in parts]
    while len(sums) > 1:  # a tree: no worker holds more than a few moments
        sums = [add(*pair) if len(pair) == 2 else pair[0] for pair in (sums[i : i + 2] for i in range(0, len(sums), 2))]
    if not sums:
        return Moments.empty(schema.row_encoder, schema)
    moments: Moments = sums[0].compute()
    return moments


def _build(part: Any, *, schema: Schema) -> Moments:
    """Moments of one partition; an empty one has none."""
    rows = part[0] if isinstance(part, tuple) else part
    if len(rows) == 0:
        return Moments.empty(schema.row_encoder, schema)
    return Moments.from_(part, schema)


# ---------------------------------------------------------------------------------------------------------------
# Spark
_RESULT = pa.schema([("moments", pa.binary())])


def _spark_moments(data: Any, schema: Schema) -> Moments:
    _check_columns(list(data.columns), schema)
    parts = data.select(*[_quoted(name) for name in schema.columns]).mapInArrow(
        functools.partial(_spark_build, schema=schema), "moments binary"
    )
    count = data.rdd.getNumPartitions() if hasattr(data, "rdd") else 1
    if count > 64:  # a second level of the tree; below, the driver adds up the few results
        parts = parts.repartition(int(count**0.5)).mapInArrow(_spark_add, "moments binary")
    total = Moments.empty(schema.row_encoder, schema)
    for row in parts.toLocalIterator():
        total = total + Moments.from_bytes(bytes(row["moments"]))
    return total


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _spark_build(batches: Iterator[pa.RecordBatch], *, schema: Schema) -> Iterator[pa.RecordBatch]:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return

    def rest() -> Iterator[pa.RecordBatch]:
        yield first
        yield from (batch for batch in batches if batch.num_rows)

    yield _packed(Moments.from_(rest(), schema))


def _spark_add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parts = [Moments.from_bytes(value.as_py()) for batch in batches for value in batch.column(0)]
    if parts:
        yield _packed(functools.reduce(operator.add, parts))


def _packed(moments: Moments) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"moments": [moments.to_bytes()]}, schema=_RESULT)
