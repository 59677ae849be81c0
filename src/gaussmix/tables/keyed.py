r"""Keyed hashes of many short values at once: the id of a privacy unit, and which of its rows are sampled.

**Sensitive**: whoever has the key can tell which unit a row belongs to by trying values.

SipHash-2-4 (Aumasson and Bernstein, 2012) is a pseudo-random function for short inputs. Here it runs on arrays: one
64-bit lane a value. The id of a unit is 128 bits, two hashes under two keys, so that two of U units share an id with a
probability of at most U²/2¹²⁹: 10⁻²⁵ for ten million.

>>> key = bytes(range(16))
>>> message = np.frombuffer(bytes(range(8)), dtype="<u8").reshape(1, 1)
>>> hex(siphash(message, key)[0])  # a test vector of the authors'
'0x93f5f5799a932462'
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix._types import Floats, Integers
from gaussmix.errors import DataError, DataTypeError

__all__ = ["Words", "derive_key", "siphash", "unit_ids", "unit_texts"]

Words = NDArray[np.uint64]

_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_BLOCK = 2**14  # values at a time: their lanes stay in the cache
_EXACT = 2.0**53


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return 16 bytes for one purpose, from a key."""
    return hashlib.blake2b(purpose, key=key, digest_size=16).digest()


# ---------------------------------------------------------------------------------------------------------------
# SipHash
def siphash(words: Words, key: bytes) -> Words:
    """SipHash-2-4 of each row of 64-bit words, shape (n, k): n words."""
    out = np.empty(len(words), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK):
        out[start : start + _BLOCK] = _siphash(words[start : start + _BLOCK], key)
    return out


def _siphash(words: Words, key: bytes) -> Words:
    halves = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    v = [np.full(len(words), halves[i % 2] ^ np.uint64(constant)) for i, constant in enumerate(_START)]
    length = np.full(len(words), (8 * words.shape[1] % 256) << 56, dtype=np.uint64)
    for word in (*words.T, length):
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= np.uint64(0xFF)
    _rounds(v, 4)
    return np.asarray(v[0] ^ v[1] ^ v[2] ^ v[3])


def _rounds(v: list[Words], count: int) -> None:
    """Run rounds of SipHash, in place; additions are modulo 2⁶⁴."""
    for _ in range(count):
        for a, b, turn, half in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            v[a] += v[b]
            v[b] = _turned(v[b], turn)
            v[b] ^= v[a]
            if half:
                v[a] = _turned(v[a], 32)


def _turned(x: Words, bits: int) -> Words:
    return np.asarray((x << np.uint64(bits)) | (x >> np.uint64(64 - bits)))


# ---------------------------------------------------------------------------------------------------------------
# Ids of units
def unit_ids(name: str, array: pa.Array, key: bytes) -> Words:
    """Return 128 bits for every value of the unit's column, shape (n, 2). Equal texts have equal ids."""
    texts = unit_texts(name, array)
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    if not lengths.all():
        raise _missing(name)
    found = np.empty((len(texts), 2), dtype=np.uint64)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        words = _words(data, offsets[at], int(length))
        for half in range(2):
            found[at, half] = siphash(words, derive_key(key, b"person %d" % half))
    return found


def _words(data: NDArray[np.uint8], starts: Integers, length: int) -> Words:
    """Return texts of one length, and their length, as 64-bit words."""
    padded = np.zeros((len(starts), -(-length // 8) * 8), dtype=np.uint8)
    padded[:, :length] = data[starts[:, np.newaxis] + np.arange(length)]
    words = padded.view("<u8").astype(np.uint64)
    return np.column_stack([words, np.full(len(words), length, dtype=np.uint64)])


def unit_texts(name: str, array: pa.Array) -> pa.LargeStringArray:
    """Return the values of the unit's column as text: 17, 17.0 and "17" are one unit, "017" is another.

    Raises
    ------
    DataError
        If a value is missing, or is neither text nor a whole number. No value is named.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if array.null_count or pa.types.is_null(kind):
        raise _missing(name)
    if pa.types.is_floating(kind):
        array = _whole(name, array)
    elif pa.types.is_decimal(kind) and kind.scale == 0:
        array = pc.cast(array, pa.string())
    elif not (pa.types.is_integer(kind) or _textual(kind)):
        raise _other_type(name, kind)
    return pc.cast(array, pa.large_string())


def _whole(name: str, array: pa.Array) -> pa.Array:
    values: Floats = np.asarray(array.cast(pa.float64()))
    if np.isnan(values).any():
        raise _missing(name)
    if not ((np.trunc(values) == values) & (np.abs(values) < _EXACT)).all():
        raise DataError(
            f"Column {name!r} is the unit and holds numbers that are not whole: a person is named by text or by a "
            "whole number."
        )
    return pa.array(values.astype(np.int64))


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _missing(name: str) -> DataError:
    return DataError(
        f"Column {name!r} is the unit and has missing values: every row must say whose it is. Drop such rows, or "
        "give each a unit of its own, by a rule that looks at one row at a time."
    )


def _other_type(name: str, kind: pa.DataType) -> DataTypeError:
    return DataTypeError(f"Column {name!r} is the unit and has the type {kind}. Cast it to text or to whole numbers.")
