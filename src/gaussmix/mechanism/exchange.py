"""A joint release of rows at several sites that trust one curator, by exchanging files.

The curator and the sites share a folder, or send each other its files. For every question the curator writes a request,
which is public; each site answers with a file of exact sums over its rows, **as sensitive as the rows**; the curator
adds them up and draws the noise once, as for one table. No site sends rows, nothing needs to run at the same time, and
the noise is that of a single table: the price is trust in the curator.

:func:`collect` runs the loop of every release (:mod:`gaussmix.mechanism.passes`) from its beginning each time it is
called. Questions that all sites have answered, and the noise drawn for them, are read from files, so that the loop
comes to the first question without answers, writes its request and stops with an error that names the missing answers.
When there is no such question left, the release is written. A study for this has ``colluding=0``.

**One study, one release.** The curator's file of noisy totals has a random identifier, ``run``, which is in every
request. A site's ledger is charged for one run and refuses the requests of another: a second folder, or a new file of
totals, would be a second release with other noise. An older copy of the file of totals is not detected.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import strict_json, write_whole
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount, slack_delta
from gaussmix.data.gram import BinCounts, ExactSums, Gram, MappedGram, NormCounts, Query, Summable, one_blas_thread
from gaussmix.data.marginals import MarginalQuery, MarginalSums
from gaussmix.data.rows import RowSource, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.data.source import ReadOptions
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, DamagedError, SiteError
from gaussmix.ledger import Ledger
from gaussmix.mechanism.noise import Exact
from gaussmix.mechanism.sites import QUERY_NOT_ALLOWED, StoredSums, Study, charge_once, check_relation
from gaussmix.models.release import Release
from gaussmix.releases.marginals import MarginalPlan

__all__ = ["answer", "collect"]

A = TypeVar("A", bound=Summable)


# ---------------------------------------------------------------------------------------------------------------
# Queries and their results as plain values
def _plain_query(query: Query[Any], schema: Schema, study: Study) -> dict[str, Any]:
    if isinstance(query, MarginalQuery):
        return {"kind": "marginals"}
    thresholds = {name: list(ends) for name, ends in schema.thresholds_within(study.schema).items()}
    if isinstance(query, Gram):
        return {"kind": "gram", "thresholds": thresholds}
    if isinstance(query, MappedGram):
        transform = _plain_transform(query.transform)
        return {"kind": "mapped", "thresholds": thresholds, "transform": transform, "clip": query.clip}
    if isinstance(query, NormCounts):
        transforms = [_plain_transform(transform) for transform in query.transforms]
        edges = [np.asarray(ends).tolist() for ends in query.edges]
        return {"kind": "counts", "thresholds": thresholds, "transforms": transforms, "edges": edges}
    raise ArgumentError("Declared models are not supported in a study with a trusted curator (colluding = 0).")


def _plain_transform(transform: Transform) -> dict[str, Any]:
    return {"integers": transform.integers.tolist(), "scales": transform.scales.tolist()}


def _transform(plain: Mapping[str, Any]) -> Transform:
    return Transform(_floats(plain["integers"]), _floats(plain["scales"]))


def _floats(values: Any) -> Floats:
    return np.array(values, dtype=np.float64)


def _read_query(plain: Mapping[str, Any], study: Study) -> tuple[Query[Any], Schema]:
    """Return the query of a request and the schema of its rows."""
    unit = study.privacy_unit
    most = 1 if unit is None else unit.max_contributions
    if plain["kind"] == "marginals":
        plan = MarginalPlan(study.schema, study.tables, most, study.neighbours)
        return plan.query, plan.schema
    coded = study.schema.coded({name: (lower, upper) for name, (lower, upper) in plain["thresholds"].items()})
    if plain["kind"] == "gram":
        return Gram(most), coded
    if plain["kind"] == "mapped":
        return MappedGram(_transform(plain["transform"]), check.positive(finite=True, clip=plain["clip"])), coded
    if plain["kind"] == "counts":
        return NormCounts([_transform(one) for one in plain["transforms"]], [_floats(e) for e in plain["edges"]]), coded
    raise ValueError("unknown kind of request")


def _plain_result(result: Any) -> dict[str, Any]:
    if isinstance(result, ExactSums):
        return {"high": result.high.tolist(), "low": result.low.tolist(), "n": result.n}
    if isinstance(result, BinCounts):
        return {"counts": [counts.tolist() for counts in result.counts], "n": result.n}
    names = ("counts", "sums", "squares")
    return {**{name: [int(value) for value in getattr(result, name)] for name in names}, "n": result.n}


def _read_result(plain: Mapping[str, Any]) -> Any:
    if "high" in plain:
        high, low = (np.array(plain[name], dtype=np.int64) for name in ("high", "low"))
        return ExactSums(high, low, int(plain["n"]))
    if "sums" in plain:
        sums, squares = (np.array(plain[name], dtype=object) for name in ("sums", "squares"))
        return MarginalSums(np.array(plain["counts"], dtype=np.int64), sums, squares, int(plain["n"]))
    return BinCounts([np.array(counts, dtype=np.int64) for counts in plain["counts"]], int(plain["n"]))


# ---------------------------------------------------------------------------------------------------------------
# The curator
class _Requests:
    """Requests in a folder, in the order of the questions."""

    def __init__(self, folder: Path, study: Study, run: str) -> None:
        self.folder, self.study, self.run, self.number = folder, study, run, 0
        self.units = (0, 0)

    def answered(self, query: Query[A], schema: Schema, rate: float, question: str) -> A:
        """Return the sum of the answers of all sites, or write the request and wait."""
        self.number += 1
        request = {
            "study": self.study.hash,
            "run": self.run,
            "number": self.number,
            "question": question,
            "rate": rate,
            "query": _plain_query(query, schema, self.study),
        }
        content = json.dumps(request).encode()
        path = self.folder / f"request-{self.number:02}.json"
        if not path.exists():
            write_whole(path, content)
        elif path.read_bytes() != content:
            raise SiteError(
                f"{path} contains a different request from the one computed now. Continue with the version of "
                "gaussmix and the type of processor that wrote it."
            )
        digest, found, missing = hashlib.sha256(content).hexdigest(), [], []
        for site in range(1, len(self.study.peers) + 1):
            sums = _answer_file(path, site)
            if sums.exists():
                found.append(_read_answer(sums, digest, site))
            else:
                missing.append(sums.name)
        if missing:
            raise SiteError(
                f"{path.name} ({question}) is not fully answered. Missing in {self.folder}: {', '.join(missing)}."
            )
        totals = [one["units"] for one in found]
        self.units = sum(units for units, _ in totals), sum(rows for _, rows in totals)
        return cast(A, functools.reduce(operator.add, [_read_result(one["result"]) for one in found]))


def _answer_file(request: Path, site: int) -> Path:
    return request.with_name(f"{request.stem}.site{site}.sums")


def _read_answer(path: Path, digest: str, site: int) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = strict_json(path.read_bytes())
        if stored.pop("sha256") != _content_hash(stored):
            raise ValueError("checksum")
        if (stored["request"], stored["site"]) != (digest, site):
            raise SiteError(
                f"{path} answers a different request or comes from a different site. Replace it with the answer of "
                f"site {site}."
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedError(f"{path} is damaged. Ask site {site} to answer the request again with --force.") from None
    return stored


def _content_hash(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


class _RequestedRows(RowSource):
    """The rows of all sites: every reading is a request."""

    def __init__(self, requests: _Requests, schema: Schema) -> None:
        self._requests, self.schema, self.unit = requests, schema, requests.study.privacy_unit

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Return the sum of the sites' answers."""
        return self._requests.answered(query, self.schema, 1.0 if sample is None else sample.rate, describe)

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same rows under another schema."""
        return _RequestedRows(self._requests, schema)

    def check_again(self) -> None:
        """Do nothing: sites can always be asked again."""

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of privacy units, and of their rows, of all sites."""
        return self._requests.units


class _Curator:
    """A curator that stores its noisy totals, so that noise is drawn once however often the loop is repeated."""

    sites = None

    def __init__(self, study: Study, stored: StoredSums) -> None:
        self.release, self.time = study.release, study.created
        self._stored = stored
        self._history, self._number = hashlib.sha256(study.hash.encode()), 0

    def begin(self, account: LatticeAccount, *, file: Path | None) -> None:
        """Do nothing: the sites charge their ledgers."""

    def agree(self, question: str, *public: Transform | Floats | float) -> None:
        self._history.update(question.encode())

    def share(self, sigma: float) -> float:
        return sigma

    def total(self, noisy: Exact) -> Exact:
        self._number += 1
        flat = self._stored.kept(self._number, self._history.hexdigest(), [int(value) for value in noisy.ravel()])
        self._history.update(json.dumps(flat).encode())
        return np.array(flat, dtype=object).reshape(noisy.shape)


def collect(
    study: Study | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Release:
    """Continue a joint release as its trusted curator; call again whenever the sites have answered.

    Parameters
    ----------
    study : Study or path
        With ``colluding=0``: the sites trust the curator.
    folder : path
        Folder of requests, of the sites' answers, and of the noisy totals. **As sensitive as the rows**.
    out : path, optional
        Output file in Parquet format.
    force : bool
        Whether to replace an existing file.

    Raises
    ------
    SiteError
        If a request has not been answered by all sites.
    """
    agreed = _trusted(study)
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A repeated run must compute the same requests, whatever the number of threads.
    with (
        one_blas_thread(),
        closing(StoredSums(place / "curator.sums", agreed, 0)) as stored,
        agreed.prepare(_Curator(agreed, stored), out=out, force=force) as prepared,
    ):
        if not stored.exists and any(place.glob("request-*")):
            raise SiteError(
                f"{place} contains requests of an earlier run, but the file of its noisy totals, {stored.path}, is "
                "missing. Continuing would need new noise. Agree on a new study, which costs new budget."
            )
        stored.create()
        return prepared.draw(_RequestedRows(_Requests(place, agreed, stored.run), agreed.schema))


def _trusted(study: Study | str | os.PathLike[str]) -> Study:
    agreed = study if isinstance(study, Study) else Study.read(study)
    if agreed.colluding:
        raise ArgumentError(
            "The sites of this study do not trust a curator. Use gaussmix sites run, or agree on a study with "
            "colluding = 0."
        )
    return agreed


# ---------------------------------------------------------------------------------------------------------------
# A site
def answer(
    study: Study | str | os.PathLike[str],
    request: str | os.PathLike[str],
    data: Any,
    *,
    site: int,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    reading: ReadOptions | None = None,
    force: bool = False,
) -> Path:
    """Write the exact sums that a request asks for, next to it; return the file. **As sensitive as the rows**.

    Parameters
    ----------
    study : Study or path
    request : path
        A file that the curator wrote.
    data : table
        The rows of this site.
    site : int
        Number of this site in the study, from 1.
    ledger : Ledger or path, optional
        This site's ledger, charged with the whole release at its first answer. Without one, a second release of the
        same study is not noticed here.
    reading : ReadOptions, optional
        How the table is read.
    force : bool
        Whether to replace an earlier answer.
    """
    agreed, path = _trusted(study), Path(request)
    if check.positive_integer(site=site) > len(agreed.peers):
        raise ArgumentError(f"site must be from 1 to {len(agreed.peers)}, got {site}.")
    content = path.read_bytes()
    try:
        asked = strict_json(content)
        if asked["study"] != agreed.hash:
            raise SiteError(f"{path} belongs to a different study. Pass a request of this study.")
        if not re.fullmatch(r"[0-9a-f]{32}", run := asked["run"]):
            raise ValueError("run must be 32 hexadecimal digits")
        query, schema = _read_query(asked["query"], agreed)
        rate = check.real(rate=asked["rate"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is not a valid request: {error}") from None
    _charge(agreed, ledger, run)
    options = ReadOptions() if reading is None else reading
    new_key: Callable[[], bytes] = functools.partial(secrets.token_bytes, 32)
    with closing(rows_of(data, schema, options, unit=agreed.privacy_unit, new_key=new_key)) as rows:
        if rows.is_computed and not agreed.row_by_row:
            raise ArgumentError(QUERY_NOT_ALLOWED)
        result = rows.aggregate(query, None if rate == 1.0 else Sample.secure(rate))
        units = (0, 0) if agreed.privacy_unit is None else rows.unit_counts()
    stored = {
        "request": hashlib.sha256(content).hexdigest(),
        "site": site,
        "units": list(units),
        "result": _plain_result(result),
    }
    written = _answer_file(path, site)
    write_whole(written, json.dumps({**stored, "sha256": _content_hash(stored)}).encode(), mode=0o600, force=force)
    return written


def _charge(study: Study, ledger: Ledger | str | os.PathLike[str] | None, run: str) -> None:
    """Charge a site's ledger for the curator's run, once; reject requests of another run."""
    if ledger is None:
        return
    opened = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    check_relation(study, opened)
    account = study.account()
    charge_once(study, opened, run, mu=account.mu, delta_slack=slack_delta(opened.reservation.epsilon, account.slack))
