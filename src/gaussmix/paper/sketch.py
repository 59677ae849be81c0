r"""A released sketch: least squares and inner products computed from it, its guarantee and its file.

>>> from gaussmix.paper import gauss_mix
>>> sketch = gauss_mix([[0.6, 0.8], [0.8, 0.6]], 10, 3.0, row_norm=1.0, columns=("x", "y"), rng=0)
>>> sketch.inner("x", ["x", "y"]).shape, sketch.lstsq("y").shape
((2,), (1,))

**Private**: nothing here sees the rows of the table.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._files import other_format, refuse_suffix, strict_json, write_whole
from gaussmix._types import Floats
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.errors import ArgumentError, ArgumentTypeError, DamagedError, MissingFileError, NotPrivateError
from gaussmix.paper.certificate import SECURE, Certificate
from gaussmix.paper.rows import column_names

__all__ = ["METHODS", "Method", "Sketch", "average", "stack"]

Method = Literal["gram", "explicit"]
METHODS: tuple[Method, ...] = ("gram", "explicit")

FORMAT = 1
METADATA_KEY = b"gaussmix.sketch"
_COLUMNS_MAX, _NUMBERS_MAX, _FOOTER_MAX = 2**14, 2**27, 2**26
_KAPPA = 1.25  # κ: part of the spread of the noise floor that is not subtracted


@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """A Gaussian sketch M = SA + σΞ of a table A, as released.

    Attributes
    ----------
    rows : array (k, m) or (m, m)
        M itself or, if ``method`` is "gram" and k ≥ m, the triangular factor R with RᵀR = MᵀM, which gives the same
        results. Values are in the units of the table and on a public grid. Read-only.
    columns : tuple of str
        Names of the m columns.
    certificate : Certificate
        Public parameters and the guarantee.
    method : {"gram", "explicit"}
        How M was drawn. The distribution of MᵀM is the same.
    """

    rows: Floats
    columns: tuple[str, ...]
    certificate: Certificate
    method: Method = "explicit"

    def __post_init__(self) -> None:
        rows = np.array(self.rows, dtype=np.float64)
        rows.setflags(write=False)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", column_names(self.columns))
        check.choice(METHODS, method=self.method)
        fits = rows.ndim == 2 and rows.shape[1] == len(self.columns) and 0 < len(rows) <= self.k
        if not fits or not np.isfinite(rows).all() or (self.method == "explicit" and len(rows) != self.k):
            raise ArgumentError(
                "rows must be a finite matrix with one column per name: the k rows of the sketch, or their triangular "
                "factor."
            )
        n_max, error = self.certificate.n_max, self.certificate.eigenvalue_error
        if n_max is not None and error < eigenvalue_error_bound(len(self.columns), n_max=n_max):
            raise NotPrivateError(
                "The certificate does not account for the numerical error of the released eigenvalue."
            )

    def __repr__(self) -> str:
        return f"Sketch(k={self.k}, sigma={self.sigma:.6g}, columns={self.columns!r})"

    @property
    def k(self) -> int:
        """Number of sketch rows."""
        return self.certificate.k

    @property
    def sigma(self) -> float:
        """Standard deviation σ of the noise in a sketch row."""
        return self.certificate.sigma

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at this δ, rounded up (:meth:`Certificate.epsilon`)."""
        return self.certificate.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest δ at this ε, rounded up (:meth:`Certificate.delta`)."""
        return self.certificate.delta(epsilon)

    @cached_property
    def noisy_second_moment(self) -> Floats:
        """MᵀM / k, an unbiased estimate of AᵀA + σ²I."""
        return np.asarray(self.rows.T @ self.rows / self.k)

    @cached_property
    def second_moment(self) -> Floats:
        """MᵀM / k - σ²I, an unbiased estimate of AᵀA. It need not be positive definite."""
        return np.asarray(self.noisy_second_moment - self.sigma**2 * np.eye(len(self.columns)))

    def inner(self, a: str | Sequence[str], b: str | Sequence[str], *, noisy: bool = False) -> Any:
        r"""Estimate AᵀB for columns of the table (equation 2 and the inner product 𝒦 of arXiv:2505.24603v2).

        .. math:: \tfrac1k (SA + \sigma\Xi_a)^\top (SB + \sigma\Xi_b) \approx A^\top B + \sigma^2 I

        where the identity applies to pairs of the same column, from which σ² is subtracted.

        Parameters
        ----------
        a, b : str or sequence of str
            Names of columns.
        noisy : bool
            Do not subtract σ² from pairs of the same column.

        Returns
        -------
        float or array
            An array of shape (len(a), len(b)); a single name drops its axis.
        """
        moment = self.noisy_second_moment if noisy else self.second_moment
        found = moment[np.ix_(self._places(a), self._places(b))]
        found = found[0] if isinstance(a, str) else found
        return found[..., 0] if isinstance(b, str) else found

    def lstsq(self, response: str, predictors: Sequence[str] | None = None, *, debiased: bool = False) -> Floats:
        r"""Regress one column on others, from the sketch alone.

        As published (last line of Algorithm 2), θ minimises ‖M_x θ - M_y‖: equivalent to ``numpy.linalg.lstsq`` on the
        sketch rows. It estimates a ridge regression of the table with penalty σ². The debiased version,

        .. math:: \theta = \bigl(W_{xx} - (1 - \kappa q)_+ \sigma^2 I\bigr)^{-1} W_{xy},\quad
            W = M^\top M / k,\quad q = 1 - (1 - \sqrt{d/k})^2,\quad \kappa = 1.25,

        subtracts the penalty except for its spread in the sketch; smaller eigenvalues are raised to (κ - 1)qσ²/2.

        Parameters
        ----------
        response : str
            The response column.
        predictors : sequence of str, optional
            The predictor columns. Default: all other columns.
        debiased : bool
            Subtract the known noise from the second moment.

        Returns
        -------
        array (d,)
            Coefficients in the order of ``predictors``.
        """
        if not isinstance(response, str):
            raise ArgumentTypeError(f"response must be the name of one column, got {type(response).__name__}.")
        (y,) = self._places(response)
        names = [name for name in self.columns if name != response] if predictors is None else predictors
        x, d = self._places(names), len(names)
        if not d or y in x or len(set(x)) < d or isinstance(names, str):
            raise ArgumentError(
                "predictors must be a list of at least one column, without duplicates and without the response."
            )
        if self.k < d:
            raise ArgumentError(f"lstsq requires k ≥ {d}, the number of predictors, got k={self.k}.")
        if not debiased or self.sigma == 0:
            return np.asarray(np.linalg.lstsq(self.rows[:, x], self.rows[:, y], rcond=None)[0])
        q = 1 - (1 - np.sqrt(d / self.k)) ** 2
        W, noise = self.noisy_second_moment, self.sigma**2
        values, vectors = scipy.linalg.eigh(W[np.ix_(x, x)] - max(1 - _KAPPA * q, 0.0) * noise * np.eye(d))
        values = np.maximum(values, (_KAPPA - 1) * q * noise / 2)
        return np.asarray(vectors @ ((vectors.T @ W[x, y]) / values))

    def sample_rows(self, rng: int | np.random.Generator | None = None) -> Floats:
        """Return k sketch rows with the distribution of M given MᵀM: post-processing, for splits and bootstraps.

        They are Q·R with Q uniform among orthonormal matrices, or M itself if its rows were released.
        """
        if self.method == "explicit" or len(self.rows) == self.k < len(self.columns):
            return self.rows
        Q, T = scipy.linalg.qr(np.random.default_rng(rng).standard_normal((self.k, len(self.rows))), mode="economic")
        return np.asarray((Q * np.where(np.diagonal(T) < 0, -1.0, 1.0)) @ self.rows)  # QR alone is not uniform

    # ------------------------------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the sketch to one Parquet file, atomically; ``force`` replaces an existing file.

        The columns are those of the sketch. Everything else is JSON under the metadata key ``gaussmix.sketch``, with a
        SHA-256 of all of it.
        """
        refuse_suffix(path, own=(".parquet", ".pq"), kind="a Parquet file")
        content = self._content()
        metadata = content | {"sha256": _digest(content, self.columns, self.rows)}
        table = pa.Table.from_arrays([pa.array(column) for column in self.rows.T], names=list(self.columns))
        buffer = io.BytesIO()
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: text.encode()}), buffer)
        write_whole(path, buffer.getvalue(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a file written by :meth:`save`, and verify its checksum, shapes and certificate.

        Raises
        ------
        DamagedError
            If the file is not a sketch, is damaged or was edited.
        NotPrivateError
            If its certificate claims more than its parameters give.
        """
        path = Path(path)
        stored, columns, rows = _contents(path)
        if not isinstance(stored, dict) or type(stored.get("format")) is not int:
            raise _damaged(path)
        if stored["format"] != FORMAT:
            raise DamagedError(other_format(path, stored["format"], FORMAT))
        try:
            if stored.pop("sha256", None) != _digest(stored, columns, rows):
                raise ValueError("its checksum does not match")
            if set(stored) != {"format", "method", "certificate"} or not isinstance(stored["certificate"], dict):
                raise ValueError("the stored sketch has missing or unknown fields")
            return cls(rows, columns, Certificate.from_dict(stored["certificate"]), stored["method"])
        except NotPrivateError as error:
            raise NotPrivateError(f"{path} was edited or is damaged: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedError(f"{path} was edited or is damaged: {error}") from None

    def _content(self) -> dict[str, Any]:
        return {"format": FORMAT, "method": self.method, "certificate": asdict(self.certificate)}

    def _places(self, names: str | Sequence[str]) -> list[int]:
        """Return the positions of columns by name."""
        found = []
        for name in [names] if isinstance(names, str) else names:
            if name not in self.columns:
                near = difflib.get_close_matches(str(name), self.columns, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Its columns are {', '.join(self.columns)}."
                raise ArgumentError(f"Column {name!r} is not in the sketch. {hint}")
            found.append(self.columns.index(name))
        return found


# ----------------------------------------------------------------------------------------------------------------------
# Several sketches of one table
def stack(sketches: Sequence[Sketch]) -> Sketch:
    """Combine sketches of one table, held by q workers, into one sketch of all their rows.

    Each worker holds k rows that GaussMix drew from the same table, with the account of k rows. Workers who pool their
    sketches, and recipients of the stack, hold qk rows at the same leverage, and the account of the stack is exactly
    that of one sketch of qk rows. Choose q and k before the first sketch is drawn; the certificate states this
    condition.

    Parameters
    ----------
    sketches : sequence of Sketch
        Results of :func:`gauss_mix` on one table with the same columns, ``sigma``, ``row_norm``, ``scale_bound`` and
        ``neighbours``. Sketches of Algorithm 1 cannot be stacked: its account is for one release.

    Examples
    --------
    >>> from gaussmix.paper import gauss_mix
    >>> A = [[0.6, 0.8], [0.8, 0.6]]
    >>> four = [gauss_mix(A, 25, 7.0, row_norm=1.0, rng=seed) for seed in range(4)]
    >>> [round(sketch.epsilon(1e-6), 2) for sketch in (four[0], stack(four))]
    [0.4, 0.71]
    """
    first = _alike(sketches)
    certificate = replace(
        first.certificate,
        k=sum(sketch.k for sketch in sketches),
        sketches=sum(sketch.certificate.sketches for sketch in sketches),
        generator=next((s.certificate.generator for s in sketches if s.certificate.generator != SECURE), SECURE),
    )
    method: Method = "explicit" if all(sketch.method == "explicit" for sketch in sketches) else "gram"
    return Sketch(np.vstack([sketch.rows for sketch in sketches]), first.columns, certificate, method)


def average(
    sketches: Sequence[Sketch], response: str, predictors: Sequence[str] | None = None, *, debiased: bool = False
) -> Floats:
    """Average the coefficients of q workers, each fitted to its own sketch of one table (distributed sketching).

    A worker sends d coefficients and keeps its sketch. The coefficients are a function of the sketches, so the account
    of the average is that of :func:`stack`. Least squares on the stack itself is more accurate: it averages second
    moments instead of coefficients.

    Parameters
    ----------
    sketches
        As in :func:`stack`.
    response, predictors, debiased
        As in :meth:`Sketch.lstsq`.
    """
    _alike(sketches)
    return np.asarray(np.mean([one.lstsq(response, predictors, debiased=debiased) for one in sketches], axis=0))


def _alike(sketches: Sequence[Sketch]) -> Sketch:
    """Return the first of several sketches; reject sketches with different parameters or duplicates."""
    if not sketches or not all(isinstance(sketch, Sketch) for sketch in sketches):
        raise ArgumentTypeError("sketches must be a sequence of at least one Sketch.")
    first = sketches[0]
    for i, sketch in enumerate(sketches):
        ours, theirs = first.certificate, sketch.certificate
        if theirs.algorithm != "GaussMix":
            raise ArgumentError("Sketches drawn by modified_gauss_mix (Algorithm 1) cannot be combined. Use gauss_mix.")
        if sketch.columns != first.columns or replace(theirs, k=1, sketches=1, generator=SECURE, version="") != replace(
            ours, k=1, sketches=1, generator=SECURE, version=""
        ):
            raise ArgumentError(
                "Sketches must have the same columns, sigma, row_norm, scale_bound and neighbours to be combined."
            )
        if any(np.array_equal(sketch.rows, other.rows) for other in sketches[:i]):
            raise ArgumentError("The same sketch was passed twice. Sketches must be drawn independently.")
    return first


# ----------------------------------------------------------------------------------------------------------------------
# The file
def _digest(content: dict[str, Any], columns: tuple[str, ...], rows: Floats) -> str:
    """Hash the content of the file. This detects damage and careless edits; it is not a signature."""
    text = json.dumps([content, columns], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode() + np.ascontiguousarray(rows, dtype="<f8").tobytes()).hexdigest()


def _damaged(path: Path) -> DamagedError:
    return DamagedError(f"{path} is not a sketch written by gaussmix.paper, or it is damaged.")


def _contents(path: Path) -> tuple[Any, tuple[str, ...], Floats]:
    """Read metadata, names and numbers. Counts in the footer are checked before anything is decompressed."""
    if not path.is_file():
        raise MissingFileError(f"The file {path} does not exist.")
    try:
        with path.open("rb") as handle:
            _check_footer(handle)
            file = pq.ParquetFile(handle, pre_buffer=False)
            counts, schema = file.metadata, file.schema_arrow
            groups = [counts.row_group(i).num_rows for i in range(min(counts.num_row_groups, 2))]
            sizes_fit = 1 <= counts.num_columns <= _COLUMNS_MAX and counts.num_rows * counts.num_columns <= _NUMBERS_MAX
            if not sizes_fit or groups != [counts.num_rows] or set(schema.types) != {pa.float64()}:
                raise _damaged(path)
            stored = strict_json((schema.metadata or {})[METADATA_KEY])
            table = file.read(use_threads=False)
            if any(column.null_count for column in table.columns):
                raise _damaged(path)
            return stored, tuple(table.column_names), np.column_stack([column.to_numpy() for column in table.columns])
    except DamagedError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError):
        raise _damaged(path) from None


def _check_footer(handle: BinaryIO) -> None:
    """Reject files that are not Parquet or have too large a footer, before the footer is read."""
    begins = handle.read(4)
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(size - 8, 0))
    if begins != b"PAR1" or int.from_bytes(handle.read(4), "little") > _FOOTER_MAX:
        raise ValueError("not a Parquet file of a sketch")
    handle.seek(0)
