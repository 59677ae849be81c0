"""Sums over tables that live on a cluster: Dask collections and Spark data frames.

Only sums leave the workers, and they are the same to the last bit as on one machine. A task that is lost and run again
counts once: all partitions are computed in one job, of which the engine keeps one result a partition. No noise is drawn
on a worker.
"""

from __future__ import annotations

import collections
import functools
import operator
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from gaussmix.errors import DataError, GaussmixError
from gaussmix.tables.gram import Summable
from gaussmix.tables.memory import is_clustered, is_dask_array, is_spark
from gaussmix.tables.moments import Moments
from gaussmix.tables.schema import Schema

__all__ = ["is_clustered", "moments_on_cluster", "sum_on_cluster"]

A = TypeVar("A", bound=Summable)


def moments_on_cluster(data: Any, schema: Schema | dict[str, Any] | str | Path) -> Moments:
    """Moments of a Dask or Spark table, summed up where its partitions are.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, (dask.array.Array, names) or pyspark.sql.DataFrame
    schema : Schema, dict or path
    """
    declared = Schema.of(schema)
    sums = sum_on_cluster(data, declared, functools.partial(_moments, schema=declared), Moments.empty(declared))
    return replace(sums, is_computed=True)


def sum_on_cluster(data: Any, schema: Schema, build: Callable[[Any, int], A], empty: A) -> A:
    """Σ build(partition, its number) over a Dask or Spark table, in one job.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, (dask.array.Array, names) or pyspark.sql.DataFrame
    schema : Schema
    build : function of a table and a number
        It is sent to the workers with all that it holds; it does not get empty partitions.
    empty
        The sum over no rows.
    """
    if not is_spark(data):
        return _dask_sum(data, schema, build, empty)
    return _spark_sum(data, schema, build, empty)


def _moments(part: Any, number: int, *, schema: Schema) -> Moments:
    return Moments.of(part, schema)


def _check_columns(found: list[str], schema: Schema) -> None:
    for name in schema.columns:
        if found.count(name) != 1:
            what = "is not in the table" if name not in found else "is in the table twice"
            raise DataError(f"Column {name!r} {what}. The table must have every column of the schema once.")


def _computed(run: Callable[[], Any], where: str) -> Any:
    """Return what an engine computes. Its own errors may quote values and are replaced; those of gaussmix stay."""
    try:
        return run()
    except MemoryError:
        raise
    except GaussmixError as error:
        found: Exception = error
    except Exception:
        found = DataError(f"{where} failed while it ran. Run it on its own for the details.")
    found.__cause__ = found.__context__ = None
    raise found from None


# ---------------------------------------------------------------------------------------------------------------
# Dask
def _dask_sum(data: Any, schema: Schema, build: Callable[[Any, int], A], empty: A) -> A:
    from dask.delayed import delayed

    if is_dask_array(data):
        array, names = data
        if array.ndim != 2:
            raise DataError("(array, names) must be a 2-D array and one name per column of it.")
        _check_columns(list(names), schema)
        array = array.rechunk({1: -1})
        parts = [(block, list(names)) for block in array.to_delayed()[:, 0]]
    else:
        _check_columns(list(data.columns), schema)
        parts = data[list(schema.columns)].to_delayed()
    of_part = delayed(functools.partial(_build, build=build, empty=empty), pure=False)
    add = delayed(operator.add, pure=False)
    sums = [of_part(part, number) for number, part in enumerate(parts)]
    while len(sums) > 1:  # a tree: no worker holds more than a few moments
        sums = [add(*pair) if len(pair) == 2 else pair[0] for pair in (sums[i : i + 2] for i in range(0, len(sums), 2))]
    if not sums:
        return empty
    total: A = _computed(sums[0].compute, "The Dask collection")
    return total


def _build(part: Any, number: int, *, build: Callable[[Any, int], A], empty: A) -> A:
    """Of one partition; an empty one has none."""
    rows = part[0] if isinstance(part, tuple) else part
    return build(part, number) if len(rows) else empty


# ---------------------------------------------------------------------------------------------------------------
# Spark
_RESULT = pa.schema([("part", pa.int32()), ("sums", pa.binary())])


def _spark_sum(data: Any, schema: Schema, build: Callable[[Any, int], A], empty: A) -> A:
    """One job, in which Spark keeps one result a partition, however often a task was run.

    A job for every partition (``toLocalIterator``) would compute what was lost in between once more, and a partition
    of a table whose order is not fixed may then hold the rows of another. A shuffle of the results could do the same.
    The planned job knows how many partitions it has, but for Spark Connect, which does not tell: there the last ones
    are taken on Spark's word.
    """
    _check_columns(list(data.columns), schema)
    run = functools.partial(_spark_build, build=build, empty=empty)

    def collected() -> tuple[list[Any], int | None]:
        wanted = data.select(*[_quoted(name) for name in schema.columns])
        sums = wanted.mapInArrow(run, "part int, sums binary")
        if type(sums).__module__.startswith("pyspark.sql.connect"):
            return sums.collect(), None
        return sums.rdd.collect(), sums.rdd.getNumPartitions()  # one plan, carried out once

    parts, expected = _computed(collected, "The Spark data frame")
    if sorted(row["part"] for row in parts) != list(range(len(parts) if expected is None else expected)):
        raise DataError("Spark returned a partition twice, or left one out. Nothing was released: run it again.")
    found = [pickle.loads(bytes(row["sums"])) for row in sorted(parts, key=operator.itemgetter("part"))]
    for failed in found:
        if isinstance(failed, GaussmixError):
            raise failed
    return functools.reduce(operator.add, found, empty)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _spark_build(
    batches: Iterator[pa.RecordBatch], *, build: Callable[[Any, int], A], empty: A
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of one partition under its number; of an empty one as well, so that none can be missed.

    An error of gaussmix is returned in the place of the sums: Spark would pass it on in the text of a traceback.
    """
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    number = context.partitionId()
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    sums: A | GaussmixError
    try:
        sums = empty if first is None else build(chain([first], rows), number)
    except GaussmixError as error:
        sums = error
        collections.deque(batches, maxlen=0)  # Spark expects its rows to be read
    packed = {"part": [number], "sums": [pickle.dumps(sums)]}
    yield pa.RecordBatch.from_pydict(packed, schema=_RESULT)
