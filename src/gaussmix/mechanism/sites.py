r"""A joint release of rows at several sites that trust no curator: ``gaussmix sites`` and :func:`run`.

Every site runs the same loop over passes as a curator (:mod:`gaussmix.mechanism.passes`). It computes the exact sums of
its own rows, adds its share of the noise (:mod:`gaussmix.accounting.sites`), and only the total over all sites is
opened, by secret sharing (:mod:`gaussmix.mechanism.mpc`). Transforms, clips and bins of later passes are functions of
the opened totals, which each site computes by itself. All sites end with the same release.

**What leaves a site**: the hash of the study, versions of the software, hashes of questions, which are public, and
inputs of the secure sum, which are noisy. Nothing else is computed from rows, not even their number. The *time* that a
site takes to answer is not protected. A site whose rows do not fit the schema never connects, which the others see.

**One study, one release.** A study is a file that all sites have agreed on; its hash fixes schema, budget, sites and
everything else that is not in the rows. It identifies one release, which each site's ledger records once, before
anything is sent.

**Interrupted runs.** Whoever receives the last share of a total and stops knows it. A question whose opening has begun
is therefore spent, and an honest site never answers it twice with different noise, nor uses the same noise in two
totals whose difference would reveal something. Each site stores its noisy sum before it sends a share of it. If the
study is run again, the same question to the same sites is answered from the stored value: the total is the same as
before, or would have been. Another question in its place is refused (`StoredSums`). A question is identified by the
hash of the study, of everything opened so far, and of its own public parameters (`_Site.agree`). The file of stored
sums has a random identifier, which the ledger records with the charge (`charge_once`): another file, or a new one in
place of a deleted one, is refused. A copy of the same file is not detected.

>>> study = Study.new(
...     "Three hospitals",
...     {"age": [18, 95], "cost": [0, 20]},
...     {"North": "127.0.0.1:7001", "South": "127.0.0.1:7002", "West": "127.0.0.1:7003"},
...     epsilon=1.0,
...     delta=1e-6,
...     colluding=1,
... )
>>> Study.parse(study.to_toml()).hash == study.hash
True
>>> print(study.price_words)
noise 1.22 times that of a trusted curator (3 sites, of which 1 may collude)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import refuse_inputs, strict_json
from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix._version import __version__
from gaussmix.accounting.discrete import LatticeAccount, slack_delta
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.accounting.sites import Sites
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.gram import one_blas_thread
from gaussmix.data.rows import ONLY_PER_UNIT
from gaussmix.data.schema import Schema, declared_schema, stored_schema
from gaussmix.data.source import ReadOptions
from gaussmix.data.table import open_table
from gaussmix.data.transforms import Transform
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    DamagedError,
    DeclarationError,
    LedgerError,
    MissingFileError,
    OutputError,
    SiteError,
)
from gaussmix.ledger import Budget, Ledger
from gaussmix.mechanism.journal import public_digest
from gaussmix.mechanism.mpc import Keys, Mesh, Peer
from gaussmix.mechanism.noise import Exact
from gaussmix.mechanism.release import Prepared, prepare
from gaussmix.models.release import Release
from gaussmix.releases.certificate import JOINT, ROW_BY_ROW, TRUSTED_CURATOR

__all__ = ["StoredSums", "Study", "Transport", "address_of", "default_keys", "default_state", "run", "software"]

QUERY_NOT_ALLOWED = (
    "The table is the result of a query, which the study does not allow. Write the result to a file, or agree on a "
    "study with row_by_row."
)
TIMEOUT = 3600.0
"""Default seconds to wait for other sites: they read tables of different sizes."""


# ---------------------------------------------------------------------------------------------------------------
# The study
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "id": str,
    "created": str,
    "epsilon": (int, float),
    "delta": (int, float),
    "neighbours": str,
    "passes": int,
    "topcode": bool,
    "tables": list,
    "colluding": int,
    "sites_per_unit": int,
    "row_by_row": bool,
    "timeout": (int, float),
    "privacy_unit": (dict, type(None)),
    "sites": list,
    "schema": dict,
}


@dataclass(frozen=True)
class Study:
    """What all sites of a joint release have agreed on. Public; made with :meth:`new` or read from a TOML file.

    Attributes
    ----------
    name : str
    id : str
        32 random hexadecimal digits: another study with the same content is another release.
    created : str
        Time of the agreement, which the certificate states.
    schema : Schema
    peers : tuple of Peer
        The sites, with the addresses under which the others reach them.
    epsilon, delta : float
        The guarantee against any ``colluding`` sites together.
    neighbours : {"add-remove", "replace-one"}
    colluding : int
        t: number of sites that may pool what they see, or fail to draw noise. With 0 the sites trust a curator, who
        adds up their sums and draws the noise (:mod:`gaussmix.mechanism.exchange`).
    sites_per_unit : int
        s: a privacy unit, or a row, is at no more than this many sites.
    privacy_unit : PrivacyUnit or None
    passes : int
        From 1 to 4.
    topcode : bool
        Whether heavy-tailed numbers are coded to thresholds found within the budget.
    tables : tuple of (str, str)
        Pairs of columns whose cross-tables are counted.
    row_by_row : bool
        Whether sites may read the result of a query. The certificate then has the condition that each row of a source
        affects at most one row of the result.
    timeout : float
        Seconds to wait for other sites in every step.
    """

    name: str
    id: str
    created: str
    schema: Schema
    peers: tuple[Peer, ...]
    epsilon: float
    delta: float
    neighbours: Neighbours
    colluding: int
    sites_per_unit: int
    privacy_unit: PrivacyUnit | None
    passes: int
    topcode: bool
    tables: tuple[tuple[str, str], ...]
    row_by_row: bool
    timeout: float

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}", self.id):
            raise ArgumentError(f"id must be 32 hexadecimal digits, got {self.id!r}.")
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        check.choice(NEIGHBOURS, neighbours=self.neighbours)
        check.positive(finite=True, timeout=self.timeout)
        check.positive_integer(passes=self.passes)
        for name in (self.name, *(peer.name for peer in self.peers)):
            check.text(name=name)
        for given in ([peer.name for peer in self.peers], [f"{peer.host}:{peer.port}" for peer in self.peers]):
            if len(set(given)) < len(given):
                twice = next(item for item in given if given.count(item) > 1)
                raise ArgumentError(f"Sites must have different names and addresses, got {twice!r} twice.")
        if self.privacy_unit is not None:
            self.privacy_unit.check_schema(self.schema)
            if self.privacy_unit.bounded is None:
                raise ArgumentError(ONLY_PER_UNIT)
        if self.colluding or isinstance(self.colluding, bool):
            _ = self.sites
        elif self.sites_per_unit != 1:
            raise ArgumentError(
                "sites_per_unit must be 1 if the sites trust a curator (colluding = 0). Declare a privacy unit instead."
            )

    @classmethod
    def new(
        cls,
        name: str,
        schema: Schema | dict[str, Any] | str | os.PathLike[str],
        addresses: Mapping[str, str],
        *,
        epsilon: float,
        delta: float,
        colluding: int,
        neighbours: Neighbours = "add-remove",
        sites_per_unit: int = 1,
        privacy_unit: PrivacyUnit | None = None,
        formula: str | None = None,
        weight: str | None = None,
        passes: int = 4,
        topcode: bool = True,
        tables: Sequence[tuple[str, str]] = (),
        row_by_row: bool = False,
        timeout: float = TIMEOUT,
    ) -> Study:
        """Return a new study, with a random identifier.

        Parameters
        ----------
        name : str
        schema : Schema, dict or path
        addresses : mapping of str to str
            "host:port" of every site by its name.
        epsilon, delta, colluding, neighbours, sites_per_unit, privacy_unit, passes, topcode, tables, row_by_row, \
timeout
            The attributes of the study.
        formula, weight
            As in :func:`gaussmix.release`.
        """
        return cls(
            name=name,
            id=secrets.token_hex(16),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            schema=declared_schema(schema, formula=formula, weight=weight),
            peers=tuple(Peer(site, *address_of(address)) for site, address in addresses.items()),
            epsilon=float(epsilon),
            delta=float(delta),
            neighbours=neighbours,
            colluding=colluding,
            sites_per_unit=sites_per_unit,
            privacy_unit=privacy_unit,
            passes=passes,
            topcode=topcode,
            tables=tuple((rows, columns) for rows, columns in tables),
            row_by_row=row_by_row,
            timeout=float(timeout),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Study:
        """Read a study from a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MissingFileError(f"The file {os.fspath(path)} does not exist.") from None
        except UnicodeDecodeError:
            raise DeclarationError(
                f"{os.fspath(path)} is not a TOML file. Pass the study file on which all sites have agreed."
            ) from None
        try:
            return cls.parse(text)
        except DeclarationError as error:
            raise DeclarationError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Study:
        """Read the output of :meth:`to_toml`."""
        try:
            stored = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise DeclarationError(f"The study is not valid TOML: {error}") from None
        stored.setdefault("privacy_unit", None)
        wrong = {
            "missing keys": sorted(set(_FIELDS) - set(stored)),
            "unknown keys": sorted(set(stored) - set(_FIELDS)),
            "values of the wrong type": [
                key
                for key, kind in _FIELDS.items()
                if key in stored
                and (not isinstance(stored[key], kind) or (kind is not bool and isinstance(stored[key], bool)))
            ],
        }
        if any(wrong.values()):
            parts = [f"{what}: {', '.join(map(repr, keys))}" for what, keys in wrong.items() if keys]
            raise DeclarationError(f"The study is not valid. It has {'; '.join(parts)}.")
        rest = {key: stored[key] for key in _FIELDS if key not in ("schema", "sites", "tables", "privacy_unit")}
        try:
            return cls(
                **{**rest, **{key: float(rest[key]) for key in ("epsilon", "delta", "timeout")}},
                schema=stored_schema(stored["schema"]),
                peers=tuple(Peer(site["name"], *address_of(site["address"])) for site in stored["sites"]),
                tables=tuple((rows, columns) for rows, columns in stored["tables"]),
                privacy_unit=None if stored["privacy_unit"] is None else PrivacyUnit.of(stored["privacy_unit"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DeclarationError(f"The study is not valid: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in the TOML file."""
        return {
            **{key: getattr(self, key) for key in _FIELDS if key not in ("schema", "sites", "tables", "privacy_unit")},
            "tables": [list(pair) for pair in self.tables],
            "privacy_unit": None if self.privacy_unit is None else self.privacy_unit.to_dict(),
            "sites": [{"name": peer.name, "address": f"{peer.host}:{peer.port}"} for peer in self.peers],
            "schema": self.schema.to_dict(),
        }

    def to_toml(self) -> str:
        """Return the study as TOML."""
        lines = [
            "# A gaussmix study: the same file at all sites. Each site runs 'gaussmix sites run' with its own rows."
        ]
        lines += [f"{key} = {_toml(value)}" for key, value in self.to_dict().items() if value is not None]
        return "\n".join(lines) + "\n"

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content, which all sites must share."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @cached_property
    def release(self) -> str:
        """Identifier of the release: that of the study, in 32 digits."""
        return hashlib.sha256(f"gaussmix release {self.hash}".encode()).hexdigest()[:32]

    @cached_property
    def sites(self) -> Sites:
        """The number of sites and what they assume."""
        return Sites(len(self.peers), self.colluding, self.sites_per_unit)

    @property
    def price_words(self) -> str:
        """What it costs to have no trusted curator."""
        if not self.colluding:
            return f"the noise of one pooled table, because {len(self.peers)} sites trust one curator with their sums"
        s = self.sites
        persons = f", up to {s.sites_per_unit} sites per privacy unit" if s.sites_per_unit > 1 else ""
        return (
            f"noise {s.price:.3g} times that of a trusted curator ({s.number} sites, of which {s.colluding} may "
            f"collude{persons})"
        )

    def prepare(self, joint: Any, *, out: Any = None, force: bool = False) -> Prepared:
        """Return the release of this study at one site, ready except for the rows."""
        return prepare(
            self.schema,
            Budget(self.epsilon, self.delta, neighbours=self.neighbours),
            passes=self.passes,
            out=out,
            force=force,
            made_by=JOINT,
            conditions=[ROW_BY_ROW] * self.row_by_row + [TRUSTED_CURATOR] * (not self.colluding),
            unit=self.privacy_unit,
            topcode="auto" if self.topcode else None,
            tables=self.tables,
            marginals=True,
            joint=joint,
        )

    def account(self) -> LatticeAccount:
        """Return the account of the total noise. Nothing is spent."""
        with self.prepare(_Planned(self) if self.colluding else None) as prepared:
            if prepared.account is None:
                raise ArgumentError(f"epsilon must be finite, got {self.epsilon!r}.")
            return prepared.account


def address_of(address: object) -> tuple[str, int]:
    """Return host and port of "host:port"."""
    found = re.fullmatch(r"\[?([^\s\[\]]+?)\]?:(\d{1,5})", address) if isinstance(address, str) else None
    if found is None or not 0 < int(found[2]) < 2**16:
        raise ArgumentError(f"An address must be host:port, such as 10.0.0.7:7001, got {address!r}.")
    return found[1], int(found[2])


def _toml(value: Any) -> str:
    """Return a value as TOML: JSON, except for objects, which become inline tables without null."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------
# One site
class Transport(Protocol):
    """How one site reaches the others: a `Mesh`, or a test's."""

    def exchange(self, message: bytes, doing: str) -> list[bytes]:
        """Send public bytes to all sites; return the messages of all in their order."""

    def sum(self, values: Sequence[int], doing: str) -> list[int]:
        """Return the sums over all sites of their integers, and reveal nothing else."""


class StoredSums:
    """Noisy sums of one site for one study, in one file. **Sensitive**: they have one site's share of the noise only.

    A sum is stored before it is sent and never changed, and it is used again for the same question only. The file has a
    line for the study and one for each sum. A run locks it, and appends a line and waits for the disk before it sends.
    A last line without its end was being written when the computer stopped; nothing of it has been sent.

    The first line has a random identifier of the file, ``run``, which the ledger records: another file is refused, and
    so is a file that lost a line before the last. A file whose **last** lines were lost, such as an older copy, cannot
    be told from that of an interrupted run: its questions would be answered with new noise. Never restore or edit it.
    """

    def __init__(self, path: Path, study: Study, site: int) -> None:
        self.path, self._owner = path, {"study": study.hash, "site": site}
        self._file: Any = None

    @property
    def exists(self) -> bool:
        """Whether the file belongs to a run of this study at this site."""
        return self.path.exists() and bool(self._lines())

    @property
    def is_empty(self) -> bool:
        """Whether no sum has been stored."""
        return not self.path.exists() or len(self._lines()) < 2

    @property
    def run(self) -> str:
        """Random identifier of the file."""
        return str(self._parsed(self._lines()[0])["run"])

    def create(self) -> None:
        """Make the file, mode 0600, if it does not exist, and lock it until `close`."""
        try:
            self._file = open(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b")  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise SiteError(
                f"{self.path} is in use by another process that runs this study. Wait until it has finished."
            ) from None
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror or error}.") from None
        self._file.truncate(sum(map(len, self._lines())))  # a line that was not completed
        if not self._lines():
            self._append({**self._owner, "run": secrets.token_hex(16)})

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()

    def kept(self, number: int, question: str, noisy: list[int]) -> list[int]:
        """Return the sum stored for the question with this number, from 1, or store this one.

        Raises
        ------
        SiteError
            If another question was answered in its place.
        """
        lines = self._lines()
        if number == len(lines):  # the first line is that of the study
            self._append({"question": question, "sum": noisy})
            lines = self._lines()
        stored = self._parsed(lines[number]) if number < len(lines) else None
        if not isinstance(stored, dict) or set(stored) != {"question", "sum"} or len(stored["sum"]) != len(noisy):
            raise self._damaged()
        if stored["question"] != question:
            raise SiteError(
                "An earlier run of this study sent a different query at this step, and its budget is already spent. "
                "The sum of this step was not sent. Agree on a new study, which costs new budget."
            )
        return [int(value) for value in stored["sum"]]

    def _append(self, content: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(content).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(
                f"{self.path} cannot be written: {error.strerror or error}. The sum of this step was not sent. Correct "
                "the cause, keep this file and run the same command again."
            ) from None

    def _lines(self) -> list[bytes]:
        """Return complete lines, and check that the first is that of this study and site."""
        if self._file is None:
            content = self.path.read_bytes()
        else:  # the locked file, even if another one has its name now
            self._file.seek(0)
            content = self._file.read()
        first, end, _ = content.partition(b"\n")
        if content and not (end and self._owns(first)):
            raise ArgumentError(f"{self.path} does not contain the sums of this study and site. Choose another file.")
        return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]

    def _owns(self, first: bytes) -> bool:
        """Return whether the first line of a file names this study and site."""
        try:
            header = strict_json(first)
        except (ValueError, RecursionError):
            return False
        if not isinstance(header, dict) or not re.fullmatch(r"[0-9a-f]{32}", str(header.pop("run", None))):
            return False
        return bool(header == self._owner)

    def _parsed(self, line: bytes) -> Any:
        try:
            return strict_json(line)
        except ValueError:
            raise self._damaged() from None

    def _damaged(self) -> DamagedError:
        return DamagedError(f"{self.path} is damaged. The study cannot be continued at this site.")


def check_relation(study: Study, ledger: Ledger) -> None:
    """Reject a ledger with another privacy unit or another neighbouring relation than the study's."""
    ledger.check_privacy_unit(_unit_of(study))
    if ledger.reservation.neighbours != study.neighbours:
        raise ArgumentError(
            f"neighbours of the study must be {ledger.reservation.neighbours!r}, as in the ledger, got "
            f"{study.neighbours!r}."
        )


def recorded_run(study: Study, ledger: Ledger) -> str | None:
    """Return the identifier of the run for which a ledger was charged with a study; None if it was not charged."""
    notes = [entry.note for entry in ledger.entries() if entry.release == study.release]
    return notes[0].rpartition(" ")[2] if notes else None


def charge_once(
    study: Study, ledger: Ledger, run: str, *, mu: float, delta_slack: float, file: Path | None = None
) -> None:
    """Charge a ledger with a study for one run, unless it is charged for this run already.

    ``run`` identifies the file that stores the noisy sums. The noise of another file is other noise, and so another
    release. The ledger records a study once, in one transaction: of two processes with different files, the one whose
    run was recorded continues, and the other is refused.
    """
    if recorded_run(study, ledger) is None:
        note = f"joint study {study.name}, run {run}"
        unit = _unit_of(study)
        try:
            ledger.spend(mu=mu, delta_slack=delta_slack, note=note, file=file, privacy_unit=unit, release=study.release)
        except LedgerError:
            if recorded_run(study, ledger) is None:  # otherwise another process was first
                raise
    check_run(study, ledger, run)


def check_run(study: Study, ledger: Ledger, run: str) -> None:
    """Reject another run than that for which the ledger was charged."""
    if recorded_run(study, ledger) != run:
        raise LedgerError(
            f"{ledger.path} records this study for another run, whose noise is in another file. Continue that run, or "
            "agree on a new study, which costs new budget. Nothing was sent."
        )


def _unit_of(study: Study) -> str | None:
    return None if study.privacy_unit is None else study.privacy_unit.column


class _Planned:
    """The sites of a study of which nothing is run."""

    def __init__(self, study: Study) -> None:
        self.sites = Sites(len(study.peers), study.colluding, study.sites_per_unit, study.hash)
        self.release, self.time = study.release, study.created


class _Site(_Planned):
    """One site of a joint release: draws its share of the noise and adds up with the others.

    Parameters
    ----------
    study : Study
    transport : Transport
    ledger : Ledger
    stored : StoredSums
    details : dict
        What all sites must have in common besides the study: certificates and software.
    say : function
        Shows progress.
    """

    def __init__(
        self,
        study: Study,
        transport: Callable[[], Transport],
        ledger: Ledger,
        stored: StoredSums,
        *,
        details: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(study)
        self._study, self._transport, self._ledger, self._stored = study, transport, ledger, stored
        self._details, self._say = dict(details), say
        self._history = hashlib.sha256(f"gaussmix sites {study.hash}".encode())
        self._number, self._doing = 0, "connecting"

    # Ledger -------------------------------------------------------------------------------------------------------
    def check_budget(self, account: LatticeAccount) -> None:
        """Check, before a row is read, that this site may take part."""
        check_relation(self._study, self._ledger)
        if recorded_run(self._study, self._ledger) is not None:
            if not self._stored.exists:
                raise LedgerError(
                    f"{self._ledger.path} records this study, but {self._stored.path}, the file of the noisy sums "
                    "that were sent, is missing. Sending sums again would need new noise. Agree on a new study, which "
                    "costs new budget."
                )
            check_run(self._study, self._ledger, self._stored.run)
        elif not self._stored.is_empty:
            raise LedgerError(
                f"{self._stored.path} contains sums of this study, but {self._ledger.path} does not record the study. "
                "Use the ledger of the first run."
            )
        else:
            self._ledger.check_fits(**self._cost(account))

    def _cost(self, account: LatticeAccount) -> dict[str, float]:
        """Return what the rows of this site spend: μ against the other sites, not that of the published noise."""
        slack = slack_delta(self._ledger.reservation.epsilon, account.slack)
        return {"mu": self.sites.mu(account), "delta_slack": slack}

    # Joint ----------------------------------------------------------------------------------------------------------
    def begin(self, account: LatticeAccount, *, file: Path | None) -> None:
        """Meet the other sites, check that all have the same study and software, and charge this site's ledger."""
        self._say(f"waiting for {len(self._study.peers) - 1} other sites")
        self._mesh = self._transport()
        numbers = [*account.noise_mu, float(account.bits), account.slack]
        mine = {"study": self._study.hash, **self._details, "account": public_digest(*numbers)}
        self._compare(mine)
        self._stored.create()
        charge_once(self._study, self._ledger, self._stored.run, file=file, **self._cost(account))
        self._say("all sites agree on the study; ledger charged")

    def _compare(self, mine: dict[str, str]) -> None:
        """Reject sites with another study, other certificates or other software."""
        found = self._mesh.exchange(json.dumps(mine).encode(), "comparing studies")
        for number, message in enumerate(found):
            site = f"Site {number + 1} ({self._study.peers[number].name})"
            try:
                theirs = strict_json(message) if len(message) < _LONGEST_GREETING else None
            except (ValueError, RecursionError):
                theirs = None
            if not isinstance(theirs, dict) or theirs.keys() != mine.keys():
                raise SiteError(
                    f"{site} did not send a valid first message. Use the same version of gaussmix at all sites."
                )
            for name, value in mine.items():
                if theirs[name] != value:
                    shown = "" if name in _HASHED else f": {plain(str(theirs[name])[:200])} there, {value} here"
                    advice = _ADVICE if name in ("BLAS", "processor") else ""
                    raise SiteError(
                        f"{site} has a different {_WORDS.get(name, name)}{shown}.{advice} Nothing was spent."
                    )

    def agree(self, question: str, *public: Transform | Floats | float) -> None:
        """Begin a question; stop unless all sites ask the same, with the same history."""
        self._doing = question
        self._history.update(question.encode() + b"\0")
        self._history.update(public_digest(*public).encode())
        self._check_history()
        self._say(question)

    def _check_history(self) -> None:
        mine = self._history.hexdigest().encode()
        for number, theirs in enumerate(self._mesh.exchange(mine, f"agreeing on {self._doing}")):
            if theirs != mine:
                raise SiteError(
                    f"Site {number + 1} ({self._study.peers[number].name}) sent a different query for {self._doing}: "
                    "it received different totals, or its processor or software rounds differently. Nothing more was "
                    "sent. Run all sites with gaussmix sites run and the same versions of gaussmix and numpy."
                )

    def share(self, sigma: float) -> float:
        """Return the σ of this site's noise: variance σ²/k."""
        return self.sites.share(sigma)

    def total(self, noisy: Exact) -> Exact:
        """Store this site's noisy sum, then open the total over all sites; symmetric entries once."""
        self._number += 1
        entries = np.triu_indices(len(noisy)) if noisy.ndim == 2 else np.arange(len(noisy))
        mine = [int(value) for value in noisy[entries]]
        self._history.update(f"opening {self._number} of {len(mine)}".encode())
        self._check_history()
        mine = self._stored.kept(self._number, self._history.hexdigest(), mine)
        opened = self._mesh.sum(mine, self._doing)
        self._history.update(json.dumps(opened).encode())
        found = np.empty(noisy.shape, dtype=object)
        found[entries] = opened
        if noisy.ndim == 2:
            found.T[entries] = opened
        return found

    def finish(self, private: Release) -> None:
        """Check that all sites have the same file."""
        mine = hashlib.sha256(private.to_bytes()).hexdigest().encode()
        for number, theirs in enumerate(self._mesh.exchange(mine, "comparing the releases")):
            if theirs != mine:
                raise SiteError(
                    f"Site {number + 1} ({self._study.peers[number].name}) computed a different release. Do not "
                    "publish either."
                )


_LONGEST_GREETING = 2**16
_ADVICE = (
    " Rounding, and therefore the computed preconditioners, would differ between the sites. The command gaussmix "
    "sites run chooses the same kernels on most Intel and AMD processors; in Python, set the environment variables "
    "OPENBLAS_CORETYPE=Haswell and NPY_DISABLE_CPU_FEATURES before numpy is imported."
)
_HASHED = ("study", "certificates", "account")
_WORDS = {"study": "study file", "certificates": "set of certificates", "account": "noise calibration"}


def software() -> dict[str, str]:
    """Return versions and processor features on which the last bits of a preconditioner depend."""
    from threadpoolctl import threadpool_info

    blas = {
        f"{found['internal_api']} {found.get('version')} {found.get('architecture', '')}".strip()
        for found in threadpool_info()
        if found["user_api"] == "blas"
    }
    return {
        "gaussmix": __version__,
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
        "BLAS": ", ".join(sorted(blas)),
        "processor": f"{platform.machine()} {' '.join(_simd())}".strip(),
    }


def _simd() -> list[str]:
    """Return the SIMD extensions that numpy uses."""
    return [str(name) for name in np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])]


def common_environment() -> dict[str, str]:
    """Return environment variables under which most 64-bit Intel and AMD processors compute the same bits.

    Empty on other processors, where all sites need the same kind.
    """
    found = _simd()
    if not {"X86_V3", "AVX2"} & set(found):
        return {}
    newer = [name for name in found if name == "X86_V4" or name.startswith("AVX512")]
    common = {"OPENBLAS_CORETYPE": "Haswell"}
    return common | ({"NPY_DISABLE_CPU_FEATURES": " ".join(newer)} if newer else {})


def default_keys(study: str | os.PathLike[str]) -> Path:
    """Return the folder of keys next to a study file: study.keys for study.toml."""
    return Path(study).with_suffix(".keys")


def default_state(ledger: Ledger, study: Study) -> Path:
    """Return the file of a study's noisy sums next to that of a ledger."""
    if not isinstance(ledger.path, Path):
        raise ArgumentError(
            "The ledger is in a database, so the file for this site's noisy sums has no default path. Pass its path "
            "as state (--state)."
        )
    return Path(f"{ledger.path}.{study.release[:12]}.sums")


def run(
    study: Study | str | os.PathLike[str],
    data: Any,
    *,
    site: int,
    ledger: Ledger | str | os.PathLike[str],
    keys: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    reading: ReadOptions | None = None,
    listen: str | None = None,
    state: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Release:
    """Take part in a joint release with the rows of one site; return the release, the same at every site.

    All sites must run this within the time-out of the study. The rows are read once before the other sites are met, and
    again for every pass. The ledger is charged when all sites have agreed on the study, before anything is sent. If a
    run is interrupted, repeat it at all sites with the same ledger: it continues with the noise that was drawn, at no
    further cost.

    Parameters
    ----------
    study : Study or path
        The agreement of all sites.
    data : table
        The rows of this site, of any kind that :func:`gaussmix.release` accepts except moments.
    site : int
        Number of this site in the study, from 1.
    ledger : Ledger or path
        This site's ledger, which is charged with the guarantee against the other sites.
    keys : path, optional
        Folder with this site's key and the certificates of all (``gaussmix sites keys``). Default: ``study.keys`` next
        to the study file ``study.toml``.
    out : path, optional
        Output file in Parquet format.
    force : bool
        Whether to replace an existing file.
    reading : ReadOptions, optional
        How the table is read.
    listen : str, optional
        "host:port" to listen on, if it differs from the address in the study.
    state : path, optional
        File of this site's noisy sums, which is **sensitive**. Default: next to the ledger's file. Once every site has
        the release, it can be deleted.
    progress : function, optional
        Called with a line of text in every step.
    """
    if not isinstance(study, Study) and keys is None:
        keys = default_keys(study)
    agreed = study if isinstance(study, Study) else Study.read(study)
    if not agreed.colluding:
        raise ArgumentError(
            "The sites of this study trust a curator (colluding = 0): use gaussmix sites collect and gaussmix sites "
            "answer, or agree on a study with colluding ≥ 1."
        )
    number = check.positive_integer(site=site)
    if number > len(agreed.peers):
        raise ArgumentError(f"site must be from 1 to {len(agreed.peers)}, got {number}.")
    if keys is None:
        raise ArgumentTypeError("keys is required: the folder with this site's key and the certificates of all sites.")
    held = Keys.read(keys, number, number=len(agreed.peers), release=agreed.release)
    opened = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    stored = StoredSums(default_state(opened, agreed) if state is None else Path(state), agreed, number)
    options = ReadOptions() if reading is None else check.instance(ReadOptions, reading=reading)
    mesh = Mesh(agreed.peers, held, timeout=agreed.timeout, listen=None if listen is None else address_of(listen))
    certificates = hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in held.certificates)).hexdigest()
    with contextlib.ExitStack() as stack:
        stack.callback(stored.close)
        joint = _Site(
            agreed,
            lambda: stack.enter_context(mesh),
            opened,
            stored,
            details={"certificates": certificates, **software()},
            say=progress or (lambda _: None),
        )
        return _drawn(joint, agreed, data, options, out=out, force=force)


def _drawn(
    joint: _Site,
    study: Study,
    data: Any,
    options: ReadOptions,
    *,
    out: str | os.PathLike[str] | None,
    force: bool,
) -> Release:
    """Draw the release at one site."""
    table = open_table(data, options)
    if table.computed and not study.row_by_row:
        raise ArgumentError(QUERY_NOT_ALLOWED)
    if out is not None:
        refuse_inputs(out, table.paths)
    # The last bits of a preconditioner depend on the number of threads of BLAS. Rows are read by as many as before.
    with one_blas_thread(), study.prepare(joint, out=out, force=force) as prepared:
        if prepared.account is None:
            raise ArgumentError(f"epsilon must be finite, got {study.epsilon!r}.")
        joint.check_budget(prepared.account)
        with closing(prepared.rows(table, options)) as rows:
            private = prepared.draw(rows, origins=table.origins, progress=options.progress)
        joint.finish(private)
    return private
