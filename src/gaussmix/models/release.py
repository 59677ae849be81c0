"""What leaves the mechanism: the factor of a sketch, and a certificate of what was spent on it.

**Private**: everything here is a function of a release and of declared quantities. Estimators, intervals and reports
compute from it alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gaussmix._files import write_whole
from gaussmix.encoding import RowEncoder
from gaussmix.models import (
    ClassificationModel,
    Method,
    RegressionModel,
    SecondMoment,
    fit_classification,
    fit_regression,
)
from gaussmix.sampling import generator, rows_from_factor
from gaussmix.schema import Schema

__all__ = ["Certificate", "Release", "load"]

FORMAT = 1
METADATA_KEY = b"gaussmix"

Floats = NDArray[np.float64]

ADVICE = {
    "zero-out": "one row set to zero, added or removed",
    "replace-one": "one row replaced by another",
}


@dataclass(frozen=True)
class Certificate:
    """What a release guarantees, and what the guarantee rests on. Holds declared and public numbers only.

    Attributes
    ----------
    mechanism : str
        Name of the algorithm.
    epsilon, delta : float
        The guarantee.
    relation : str
        Neighbouring relation; the unit of privacy is one row.
    analysis : str
        What the guarantee was computed with.
    row_norm : float
        Declared bound C on the norm of an encoded row.
    bounds : dict
        The declared bounds behind it.
    generator : str
        Where the noise came from.
    conditions : tuple of str
        What would void the guarantee, or does: a known seed, an infinite ε, a promise of the caller's.
    parameters : dict
        Public parameters of the mechanism: sketch size, γ, noise variance and the like.
    version : str
        Version of the library.
    time : str
        When it was made, UTC.
    """

    mechanism: str
    epsilon: float
    delta: float
    relation: str
    analysis: str
    row_norm: float
    bounds: dict[str, Any]
    generator: str
    conditions: tuple[str, ...]
    parameters: dict[str, Any]
    version: str = field(default="")
    time: str = field(default="")

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds with nothing further to assume about seeds."""
        return not any(condition.startswith("void:") for condition in self.conditions)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}: ({self.epsilon:g}, {self.delta:g})-differentially private",
            f"  neighbours: {self.relation} ({ADVICE[self.relation]})",
            f"  analysis: {self.analysis}; rows bounded by {self.row_norm:.6g}; generator: {self.generator}",
        ]
        return "\n".join(lines + [f"  {condition}" for condition in self.conditions])


@dataclass(frozen=True, eq=False)
class Release:
    """A Gaussian sketch of the encoded table, as its triangular factor.

    Attributes
    ----------
    factor : array (m, m)
        R with RᵀR = MᵀM, M the k × m sketch, in the units of encoded rows and on a public grid.
    sketch_size : int
        Rows k of M.
    noise_variance : float
        σ² of the noise in M: RᵀR / k estimates G + σ²I.
    encoder : RowEncoder
        How rows were encoded: declared.
    schema : Schema or None
        The columns, for releases of tables; None inside the scikit-learn estimators.
    certificate : Certificate
        What was spent.
    """

    factor: Floats
    sketch_size: int
    noise_variance: float
    encoder: RowEncoder
    certificate: Certificate
    schema: Schema | None = None

    @property
    def noisy_second_moment(self) -> Floats:
        """RᵀR / k, an unbiased estimate of G + σ²I."""
        return np.asarray(self.factor.T @ self.factor / self.sketch_size)

    def second_moment(self) -> Floats:
        """RᵀR / k - σ²I, an unbiased estimate of the Gram matrix; it need not be positive."""
        return np.asarray(self.noisy_second_moment - self.noise_variance * np.eye(len(self.factor)))

    @property
    def entry_noise(self) -> float:
        """Standard deviation σ²/√k of an off-diagonal entry of :attr:`second_moment` where the table is empty."""
        return self.noise_variance / float(np.sqrt(self.sketch_size))

    def rows(self, random_state: int | np.random.Generator | None = None) -> Floats:
        """Sketch rows with the law of M given R, shape (k, m): post-processing, for bootstraps and the like."""
        return rows_from_factor(self.factor, self.sketch_size, generator(random_state)[0])

    # -- models ----------------------------------------------------------------------------------------------------
    @overload
    def regress(
        self, target: str, on: Sequence[str] | None = None, *, method: Method = "cleaned"
    ) -> RegressionModel: ...

    @overload
    def regress(
        self, target: list[str], on: Sequence[str] | None = None, *, method: Method = "cleaned"
    ) -> dict[str, RegressionModel]: ...

    def regress(
        self, target: str | list[str], on: Sequence[str] | None = None, *, method: Method = "cleaned"
    ) -> RegressionModel | dict[str, RegressionModel]:
        """A linear model of one column on others; of several columns, a dictionary of models.

        Parameters
        ----------
        target : str or list of str
            Numeric or boolean columns.
        on : list of str, optional
            Columns of the table; default: all others (but for the other targets).
        method : {"cleaned", "published"}
            The cleaned ridge (:func:`gaussmix.solvers.cleaned_ridge`), or least squares on the sketch as it is.
        """
        if isinstance(target, str):
            return fit_regression(self._moment(), target, on, method)
        others = on if on is not None else [name for name in self._moment().schema.columns if name not in target]
        return {name: fit_regression(self._moment(), name, others, method) for name in target}

    def classify(
        self,
        target: str,
        on: Sequence[str] | None = None,
        *,
        method: Method = "cleaned",
        surrogate_radius: float = 6.0,
    ) -> ClassificationModel:
        """A logistic model of a boolean column, or of one with two levels, on others.

        Parameters
        ----------
        target, on, method
            As in :meth:`regress`.
        surrogate_radius : float
            As in :class:`gaussmix.LogisticMixing`.
        """
        return fit_classification(self._moment(), target, on, method, surrogate_radius)

    def pca(self, on: Sequence[str] | None = None) -> tuple[Floats, Floats, tuple[str, ...]]:
        """Principal components of encoded columns, about their means if the release has an intercept.

        Returns
        -------
        variances : array (p,)
            Sums of squares along the components, largest first; noise may leave the last ones negative.
        components : array (p, p)
            One a row.
        names : tuple of str
            Of the encoded columns.
        """
        schema = self._moment().schema
        chosen = list(schema.columns) if on is None else list(on)
        unknown = [name for name in chosen if name not in schema.columns]
        if unknown:
            raise ValueError(f"Column {unknown[0]!r} is not in the release; it has {', '.join(schema.columns)}.")
        rows = np.array([index for name in chosen for index in schema.groups[name]])
        M = self.second_moment()
        block = M[np.ix_(rows, rows)]
        if schema.intercept and M[-1, -1] > 0:
            block = block - np.outer(M[rows, -1], M[rows, -1]) / M[-1, -1]
        variances, vectors = np.linalg.eigh(block)
        return variances[::-1], vectors.T[::-1], tuple(schema.names[i] for i in rows)

    def _moment(self) -> SecondMoment:
        if self.schema is None:
            raise ValueError("This release has no named columns: make it with gaussmix.release(data, schema=...).")
        return SecondMoment(self.noisy_second_moment, self.noise_variance, self.sketch_size, self.schema)

    # -- the file ---------------------------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write one small Parquet file, whole or not at all.

        Its m rows are those of the factor and its columns the encoded columns: ordinary least squares on it, in any
        tool, gives the coefficients as published, in encoded units. Everything else is JSON under the key ``gaussmix``
        of the file's metadata.
        """
        names = self._moment().schema.names
        columns = [pa.array(column) for column in self.factor.T]
        metadata = self._metadata()
        table = pa.Table.from_arrays(columns, names=list(names)).replace_schema_metadata(
            {METADATA_KEY: json.dumps(metadata, ensure_ascii=False).encode()}
        )
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        write_whole(path, buffer.getvalue(), mode=0o600 if math.isinf(self.certificate.epsilon) else 0o644)

    def _metadata(self) -> dict[str, Any]:
        content = {
            "format": FORMAT,
            "sketch_size": self.sketch_size,
            "noise_variance": self.noise_variance,
            "schema": self._moment().schema.to_dict(),
            "certificate": self.certificate.as_dict(),
        }
        return {**content, "sha256": _digest(content, self.factor)}

    # -- small things -----------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        m, k = len(self.factor), self.sketch_size
        return f"Release({m} columns, sketch_size={k}, epsilon={self.certificate.epsilon:g})"


def _digest(content: dict[str, Any], factor: Floats) -> str:
    """Finds damage and edits by hand; it is no signature."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode() + np.ascontiguousarray(factor).tobytes()).hexdigest()


def _checked_certificate(stored: dict[str, Any], schema: Schema) -> Certificate:
    """A certificate from plain values, of the right types and in agreement with the schema."""
    known = {f.name for f in fields(Certificate)}
    found = Certificate(**{key: value for key, value in stored.items() if key in known})
    texts = (found.mechanism, found.relation, found.analysis, found.generator, found.version, found.time)
    numbers = (found.epsilon, found.delta, found.row_norm)
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
        or not isinstance(found.conditions, list)
        or not all(isinstance(condition, str) for condition in found.conditions)
        or not isinstance(found.parameters, dict)
        or found.relation not in ADVICE
        or not found.epsilon > 0
        or not 0 < found.delta <= 1
        or found.row_norm != schema.norm
        or found.bounds != schema.to_dict()
    ):
        raise ValueError("its certificate does not fit the schema")
    return replace(found, conditions=tuple(found.conditions))


def load(path: str | Path) -> Release:
    """Read a release and check all of it.

    Raises
    ------
    ValueError
        If the file is not a release, is damaged or edited, or is of a newer format.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
        stored = json.loads((table.schema.metadata or {})[METADATA_KEY])
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path} is not a release of gaussmix, or it is damaged.") from None
    if not isinstance(stored, dict) or not isinstance(stored.get("format"), int) or stored["format"] < 1:
        raise ValueError(f"{path} is not a release of gaussmix, or it is damaged.")
    if stored["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {stored['format']}, and this version of gaussmix reads up to {FORMAT}: update gaussmix."
        )
    try:
        factor = np.column_stack([column.to_numpy() for column in table.columns]).astype(float, copy=False)
        digest = stored.pop("sha256")
        if digest != _digest(stored, factor):
            raise ValueError("its checksum does not fit")
        if not isinstance(stored["schema"], dict):
            raise TypeError("its schema is no object")
        schema = Schema.from_(stored["schema"])
        certificate = _checked_certificate(stored["certificate"], schema)
        sketch_size, variance = stored["sketch_size"], float(stored["noise_variance"])
        m = schema.n_columns
        if (
            tuple(table.column_names) != schema.names
            or factor.shape != (m, m)
            or not np.isfinite(factor).all()
            or np.any(np.tril(factor, -1) != 0)
            or not isinstance(sketch_size, int)
            or sketch_size != certificate.parameters.get("sketch_size", sketch_size)
            or sketch_size < (1 if math.isinf(certificate.epsilon) else m)
            or not (math.isfinite(variance) and variance >= 0)
        ):
            raise ValueError("its parts do not fit each other")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} was edited or is damaged: {error}. Ask for the file again.") from None
    return Release(
        factor=factor,
        sketch_size=sketch_size,
        noise_variance=variance,
        encoder=schema.row_encoder,
        certificate=certificate,
        schema=schema,
    )
