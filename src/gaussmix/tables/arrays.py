"""A column of a batch as one array, and where it holds a value. **Sensitive**, as rows are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussmix.errors import DataError
from gaussmix.tables.columns import Column

__all__ = ["check_indices", "kept", "listed", "one_column", "present", "without_views"]


def one_column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """A column as one plain array; dictionaries stay."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        what = "is not in the table" if not indices else "is in the table twice"
        raise DataError(f"Column {name!r} {what}. The table must have every column of the schema once.")
    array = batch.column(indices[0])
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of no or of too long chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return _without_views(array)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with text and bytes in the form that Arrow's functions know; the same batch where it has no views."""
    columns = batch.columns
    arrays = [_without_views(array) for array in columns]
    if all(array is before for array, before in zip(arrays, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _without_views(array: pa.Array) -> pa.Array:
    """Text in the form that Arrow's functions know: few of them know views."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array


def check_indices(name: str, array: pa.Array) -> None:
    """Indices beyond the dictionary would read foreign memory."""
    if not pa.types.is_dictionary(array.type):
        return
    try:
        array.validate(full=True)
    except pa.ArrowException:
        raise DataError(f"Column {name!r} has indices beyond its dictionary: the table is corrupt.") from None


def kept(columns: Mapping[str, Column], arrays: Mapping[str, pa.Array]) -> pa.Array | None:
    """Which rows ``missing="drop-row"`` keeps; None for all."""
    keep = None
    for name, column in columns.items():
        if column.missing != "drop-row":
            continue
        here = present(arrays[name])
        if here is not None:
            keep = here if keep is None else pc.and_(keep, here)
    return keep


def present(array: pa.Array) -> pa.Array | None:
    """Where a value is neither missing nor NaN nor infinite, and all entries of a vector are; None for everywhere."""
    if listed(array.type):
        return _present_vectors(array)
    if pa.types.is_dictionary(array.type) and (array.dictionary.null_count or _floating(array.type.value_type)):
        array = array.dictionary_decode()
    if _floating(array.type):
        finite = pc.fill_null(pc.is_finite(array.cast(pa.float64())), False)
        return None if pc.all(finite).as_py() is not False else finite
    return pc.is_valid(array) if array.null_count else None


def _present_vectors(array: pa.Array) -> pa.Array | None:
    """Where a vector is there, and each of its entries."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    entries = present(pc.list_flatten(array))
    complete = array.is_valid().to_numpy(zero_copy_only=False)
    if entries is not None:
        owners = np.repeat(np.arange(len(array)), lengths)
        complete[owners[~entries.to_numpy(zero_copy_only=False)]] = False
    return None if complete.all() else pa.array(complete)


def _floating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def listed(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))
