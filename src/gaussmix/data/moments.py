"""Exact second moments of the encoded rows of a table.

**Sensitive**: moments are as sensitive as the rows, and only the mechanism reads them; estimators only check the
declared number of rows.

>>> schema = Schema.of({"X": {"size": 2, "norm": 5.0}, "y": [-1, 1]})
>>> X, y = np.array([[3.0, 4.0], [0.3, -0.4]]), np.array([0.5, -1.0])
>>> left, right = (Moments.of_arrays([(X[i : i + 1], y[i : i + 1])], schema) for i in range(2))
>>> left + right
Moments(4 columns, 2 parts, sensitive: no numbers shown)
>>> bool(np.all((left + right).gram() == Moments.of_arrays([(X, y)], schema).gram()))
True
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._files import other_format, refuse_suffix, strict_json, write_whole
from gaussmix._types import Floats
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.encode import checked_arrays
from gaussmix.data.gram import LIMB_BITS, ExactSums, Gram, aggregate_arrays
from gaussmix.data.schema import Schema, stored_schema
from gaussmix.data.source import ReadOptions, unexpected_rows
from gaussmix.errors import ArgumentError, DamagedError, DataError, MissingFileError

_MAGIC = b"gaussmix moments\n"
FORMAT = 1


def check_name(path: str | os.PathLike[str]) -> None:
    """Reject a file name with the suffix of another format."""
    refuse_suffix(path, own=(".moments",), kind="a file of moments")


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Exact Gram matrix of encoded rows. **Sensitive**: only the mechanism reads it.

    Build with `of` or `of_arrays` and merge with ``+``, which is associative and commutative bit for bit; its zero is
    `Moments.empty`. Parts are never subtracted.

    Attributes
    ----------
    schema : Schema
        How the rows were encoded: equal in all parts of a merge.
    parts : frozenset of str
        Random ids of the builds that were merged; the same id is never merged twice.
    unit : PrivacyUnit or None
        The privacy unit: equal in all parts of a merge, which must have no unit in common. None for row-level privacy.
    is_computed : bool
        Whether rows of any part came from a query, a lazy frame or a stream; the certificate then states a condition.
    """

    _sums: ExactSums  # G, shape (m, m), and the rows read; never shown
    schema: Schema
    parts: frozenset[str]
    unit: PrivacyUnit | None = None
    is_computed: bool = False

    @classmethod
    def empty(cls, schema: Schema) -> Moments:
        """Return the moments of no rows."""
        zero = np.zeros((schema.n_columns, schema.n_columns), dtype=np.int64)
        return cls(ExactSums(zero, zero.copy(), 0), schema, frozenset())

    @property
    def n_columns(self) -> int:
        """Number m of encoded columns."""
        return len(self._sums.high)

    @property
    def row_norm(self) -> float:
        """Norm bound C by which encoded rows were divided."""
        return self.schema.row_norm

    def rows_between(self, least: int, most: int | None = None) -> bool:
        """Return whether the number of rows is in a range. **Sensitive**: for the curator's checks."""
        return least <= self._sums.n and (most is None or self._sums.n <= most)

    def expected_rows(self, expected: int) -> None:
        """Raise an error if the number of rows differs. For the curator only: the outcome depends on the data."""
        if not self.rows_between(check.positive_integer(expected_rows=expected), expected):
            raise unexpected_rows(expected)

    def gram(self) -> Floats:
        """Return G in float64, shape (m, m), for C = 1: the exact value, rounded once. **Sensitive**."""
        return self._sums.floats()

    def sums(self) -> ExactSums:
        """Return G and the number of rows as exact integers, for the mechanism. **Sensitive**."""
        return self._sums

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if self.schema != other.schema:
            raise DataError(
                "Moments built with different schemas cannot be merged. Build every part with the same columns, "
                "bounds, weights and intercept."
            )
        if self.unit != other.unit:
            raise DataError(
                "Moments with different privacy units cannot be merged. Build every part with the same unit, "
                "max_contributions and contribution_bounding. All rows of a unit must be in the same part."
            )
        if self.parts & other.parts:
            raise DataError(
                "The same part cannot be merged twice: a row counted twice would have a weaker guarantee. "
                "Merge each part once."
            )
        parts, computed = self.parts | other.parts, self.is_computed or other.is_computed
        return Moments(self._sums + other._sums, self.schema, parts, self.unit, computed)

    # -- tables and files -------------------------------------------------------------------------------------------
    @classmethod
    def of(
        cls,
        data: Any,
        schema: Schema | dict[str, Any] | str | Path,
        *,
        reading: ReadOptions | None = None,
        privacy_unit: PrivacyUnit | None = None,
    ) -> Moments:
        """Compute the moments of any table that :func:`gaussmix.data.table.open_table` supports, in one pass.

        Parameters
        ----------
        data : table, path, glob, query or iterable of batches
        schema : Schema, dict or path of a TOML or JSON file
        reading : ReadOptions, optional
            How the table is read.
        privacy_unit : PrivacyUnit, optional
            As in :func:`gaussmix.release`. Each unit must be in one of the merged parts only.
        """
        from gaussmix.data.rows import rows_of  # which sum their rows into moments
        from gaussmix.data.table import open_table

        declared, new_key = Schema.of(schema), functools.partial(os.urandom, 32)
        if privacy_unit is not None:
            check.instance(PrivacyUnit, privacy_unit=privacy_unit).check_schema(declared)
        if reading is not None and reading.sorted_by_unit and privacy_unit is None:
            raise ArgumentError("sorted_by_unit requires a privacy unit. Declare it or omit sorted_by_unit.")
        table = open_table(data, reading)
        with closing(rows_of(table, declared, reading, unit=privacy_unit, new_key=new_key)) as rows:
            return cls.built(rows.gram(), declared, rows.unit, is_computed=rows.is_computed)

    @classmethod
    def of_arrays(
        cls, blocks: Iterable[tuple[ArrayLike, ArrayLike | None]], schema: Schema, *, threads: int | None = None
    ) -> Moments:
        """Compute the moments of arrays, for a schema of one vector X and then numbers y.

        Parameters
        ----------
        blocks : iterable of (X, Y)
            ``X`` of shape (rows, size) and ``Y`` of shape (rows,) or (rows, numbers), or None. Any number of rows, any
            real dtype and memory order: none of these changes the result by a bit. A block may be overwritten once the
            next one is asked for.
        schema : Schema
        threads : int, optional
            Default: as many as BLAS would use.

        Raises
        ------
        DataError
            If a value is NaN or infinite. For the curator only: the occurrence of an error depends on single rows.
        """
        arrays = (checked_arrays(schema, X, Y) for X, Y in blocks)
        return cls.built(aggregate_arrays(arrays, schema, Gram(), threads=threads), schema)

    @classmethod
    def built(
        cls, sums: ExactSums, schema: Schema, unit: PrivacyUnit | None = None, *, is_computed: bool = False
    ) -> Moments:
        """Build moments with a new random id from sums over the encoded rows of a table."""
        return cls(sums, schema, frozenset([os.urandom(16).hex()]), unit, is_computed)

    def to_bytes(self) -> bytes:
        """Serialise the moments for :meth:`from_bytes`. **Sensitive**."""
        header = {
            "format": FORMAT,
            "warning": "sensitive: as sensitive as the rows themselves",
            "schema": self.schema.to_dict(),
            "fingerprint": self.schema.fingerprint,
            "parts": sorted(self.parts),
            "n": self._sums.n,
            "is_computed": self.is_computed,
            "unit": None if self.unit is None else self.unit.to_dict(),
        }
        text = json.dumps(header).encode()
        upper = np.triu_indices(self.n_columns)
        body = np.stack([self._sums.high[upper], self._sums.low[upper]]).astype("<i8").tobytes()
        content = len(text).to_bytes(8, "little") + text + body
        return _MAGIC + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str = "This") -> Moments:
        """Read and verify the output of :meth:`to_bytes`."""
        damaged = DamagedError(f"{name} is not a file of moments, or it is damaged. Build it again.")
        if content[: len(_MAGIC)] != _MAGIC:
            raise damaged
        digest, content = content[len(_MAGIC) : len(_MAGIC) + 32], content[len(_MAGIC) + 32 :]
        if hashlib.sha256(content).digest() != digest:
            raise damaged
        try:
            length = int.from_bytes(content[:8], "little")
            header = strict_json(content[8 : 8 + length])
            if type(header["format"]) is not int:
                raise damaged
            if header["format"] == FORMAT:
                return _unpacked(header, content[8 + length :])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise damaged from None
        raise DamagedError(other_format(name, header["format"], FORMAT))

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a file atomically, readable by its owner only and **as sensitive as the rows**.

        An existing file is replaced only with ``force``. Suffixes of other formats, such as ``x.parquet``, are
        rejected.
        """
        check_name(path)
        write_whole(path, self.to_bytes(), mode=0o600, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Moments:
        """Read a file written by :meth:`save`."""
        path = Path(path)
        if not path.is_file():
            raise MissingFileError(f"The file {path} does not exist.")
        return cls.from_bytes(path.read_bytes(), name=str(path))

    def __repr__(self) -> str:
        return f"Moments({self.n_columns} columns, {len(self.parts)} parts, sensitive: no numbers shown)"


def _unpacked(header: dict[str, Any], body: bytes) -> Moments:
    """Build moments from a header and sums, and check their consistency."""
    if set(header) != {"format", "warning", "schema", "fingerprint", "parts", "n", "is_computed", "unit"}:
        raise ValueError("its keys do not match the format of moments")
    schema, n, parts = stored_schema(header["schema"]), header["n"], header["parts"]
    m = schema.n_columns
    high, low = np.frombuffer(body, dtype="<i8").reshape(2, m * (m + 1) // 2).astype(np.int64)
    ids = isinstance(parts, list) and all(isinstance(p, str) and re.fullmatch("[0-9a-f]{32}", p) for p in parts)
    upper = np.triu_indices(m)
    full = np.zeros((2, m, m), dtype=np.int64)
    full[:, upper[0], upper[1]] = full[:, upper[1], upper[0]] = np.stack([high, low])
    unit = None if header["unit"] is None else PrivacyUnit.of(header["unit"])
    computed = header["is_computed"]
    found = Moments(ExactSums(full[0], full[1], n), schema, frozenset(parts), unit, computed)
    gram = found.gram()
    most = n * (1 + 1e-12)  # sums are exact, their conversion to floats is not
    sums_fit = (
        np.trace(gram) <= most and np.all(np.abs(gram) <= most) and np.linalg.eigvalsh(gram)[0] >= -1e-9 * (n + 1)
    )
    if not (
        header["fingerprint"] == schema.fingerprint
        and isinstance(n, int)
        and isinstance(computed, bool)
        and n >= 0
        and ids
        and len(parts) == len(set(parts))
        and (parts or n == 0)
        and np.all((low >= 0) & (low < 2**LIMB_BITS))
        and sums_fit
    ):
        raise ValueError("its parts are inconsistent")
    return found
