r"""The outputs of an unfinished release, stored as they are drawn, so that it can be resumed: ``release(resume=True)``.

**Private.** The file ``out.partial`` holds declared quantities and noisy outputs, nothing else. Its size and the number
of bytes of a record do not depend on the rows. It is not meant to be published, and is deleted with the last step of
the release.

**Order.** For every output: the question and its public parameters are fixed by earlier outputs; the rows are read; the
noise is drawn; the output is written and synchronised with the disk; only then is it used. The ledger is charged before
the first draw, under the identifier that the file has had since before the charge. So

- a release that stops before the charge has drawn nothing, and one that stops afterwards is charged once: resuming
  looks its identifier up in the ledger and charges only if it is absent. The account in the file must be one that
  the call itself computes from its budget, and cost what the ledger's entry records;
- an output that is in the file is never drawn again, and no question depends on an output that is not in the file;
- an output that was drawn but not completely written has been used for nothing. Its incomplete record is overwritten,
  and the question is answered with new noise, which is then the only answer that anything depends on. Only the last
  record can be incomplete: a file in which more follows is damaged, and is refused.

One process at a time can use the file, by a lock: two would answer one question with different noise. A file system
whose locks do nothing is refused. Locks between several computers cannot be tested. Resuming repeats all computations
from the stored outputs and compares the question and its public parameters with those of each record, so that another
schema, budget or option, or a processor that rounds otherwise, is refused before anything more is drawn.

**Rows.** A digest of the rows would reveal whether a row is among them to anyone who has its key, so that none is
stored, and the rows of two runs are not compared. Privacy does not require it. Let :math:`D_q` be the table from which
output q is computed and :math:`D'_q` the same table without the rows of one privacy unit, for every q. Given the
earlier outputs, output q is the Gaussian mechanism with its :math:`\mu_q` on two neighbouring tables, whatever
:math:`D_q` is, because sensitivities hold for all tables. Adaptive composition then bounds the joint distribution of
all outputs by the account, also if :math:`D_1, D_2, \ldots` differ: each unit is protected in all versions of the table
together. Sampling keys and keys of units are drawn again in every run; the argument of :mod:`gaussmix.data.sampling`
holds for the readings of each run. What a changed table would spoil is the estimates, and the certificate states the
condition (`RESUMED`).

A copy of the file that is resumed too would be answered with other noise. The file therefore holds the path of the
output, which the ledger's entry holds as well, and is refused under another one. A copy that is restored under its own
name cannot be recognised. Do not copy or restore it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix._files import Output, other_format, reserve, strict_json
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, DamagedError, MissingFileError, OutputError, OutputExistsError
from gaussmix.releases.file import PARTIAL_MAGIC

__all__ = ["Journal", "public_digest", "refuse_unfinished"]

FORMAT = 1
_RECORD_BYTES = 256  # of the line before the numbers of a record
_RECORD_BEGINS = b'{"question": '
_WORDS = {"source": "table", "out": "output file", "account": "account of the noise", "version": "version of gaussmix"}


def public_digest(*public: Transform | Floats | float) -> str:
    """Hash public numbers, with their shapes."""
    digest = hashlib.sha256()
    for item in public:
        parts = (item.integers, item.scales) if isinstance(item, Transform) else (item,)
        for part in parts:
            array = np.ascontiguousarray(part, dtype="<f8")
            digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()


def refuse_unfinished(path: Path) -> None:
    """Reject a new release in place of an unfinished one, whose outputs would be lost."""
    if os.path.exists(path):  # False for names that are too long, which `reserve` rejects
        raise OutputExistsError(
            f"{path} contains the outputs of an unfinished release, whose budget is spent. Continue it with "
            "resume=True (--resume), or delete the file to abandon the release. Nothing was spent."
        )


class Journal:
    """The file of an unfinished release. Made with :meth:`new` or :meth:`resumed`; used by one process at a time.

    Attributes
    ----------
    path : Path
    declared : dict
        What was declared: schema, budget, options. Plain values for JSON.
    release : str
        Identifier of the release, under which the ledger is charged.
    account : LatticeAccount or None
        The account of the noise, once it is fixed.
    is_charged : bool
        Whether this process knows that the budget is spent.
    """

    def __init__(self, path: Path, declared: Mapping[str, Any]) -> None:
        self.path, self.declared = path, dict(declared)
        self.release = uuid.uuid4().hex
        self.account: LatticeAccount | None = None
        self._output: Output | None = None  # disk space, until the file has its name
        self._file: Any = None
        self._stored: list[tuple[str, Floats]] = []
        self._used, self._end, self.is_charged = 0, 0, False
        self._history = hashlib.sha256()

    @classmethod
    def new(cls, path: Path, declared: Mapping[str, Any], account: LatticeAccount) -> Journal:
        """Allocate disk space for all outputs of an account. The file gets its name in :meth:`begin`."""
        journal = cls(path, declared)
        records = 2 * len(account.coordinates)  # counts of units and rows, or of cells and sums, are two records
        numbers = 8 * sum(account.coordinates) + _RECORD_BYTES * records
        journal._output = reserve(path, len(journal._header(asdict(account))) + numbers)
        try:
            _refuse_without_locks(journal._output.locked)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def resumed(cls, path: Path, declared: Mapping[str, Any]) -> Journal:
        """Open the file of an unfinished release and lock it. Other declarations than its own are an error."""
        journal = cls(path, declared)
        try:
            journal._lock(open(path, "r+b"))  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise MissingFileError(
                f"{path} does not exist, so there is nothing to resume. Omit resume to begin a release."
            ) from None
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None
        try:
            _refuse_without_locks(path)
            journal._load()
        except BaseException:
            journal.close()
            raise
        return journal

    def begin(self, account: LatticeAccount) -> None:
        """Give the file its name, with the account of the release. Call this before the ledger is charged."""
        if self._output is None:
            return
        self.account = account
        header = self._header(asdict(account))
        file = self._output.begin(header)
        self._output = None
        self._lock(file)
        self._end = len(header)

    # Outputs ----------------------------------------------------------------------------------------------------------
    @property
    def drawn(self) -> int:
        """Number of outputs that are stored."""
        return len(self._stored)

    @property
    def has_begun(self) -> bool:
        """Whether the file exists, so that the ledger may be charged."""
        return self._file is not None

    def ask(self, question: str, *public: Transform | Floats | float) -> None:
        """Begin a question, with public parameters."""
        self._history.update(f"{question}\0{public_digest(*public)}".encode())

    def answer(self, draw: Callable[[], Floats]) -> Floats:
        """Return the stored output of this question, or draw it and wait until it is on the disk.

        Raises
        ------
        ArgumentError
            If another question was answered in its place. Nothing more is drawn.
        """
        number, self._used = self._used, self._used + 1
        self._history.update(b"output %d" % number)
        question = self._history.hexdigest()
        if number == len(self._stored):
            output = np.ascontiguousarray(draw(), dtype=np.float64)
            self._append(question, output)
            self._stored.append((question, output))
        asked, output = self._stored[number]
        if asked != question:
            raise ArgumentError(
                f"{self.path} contains the answer to a different query: from the same outputs, this process computed a "
                "different preconditioner or different thresholds. Resume on the same computer and with the same "
                "software as in the first run. Nothing more was drawn."
            )
        return output

    def _append(self, question: str, output: Floats) -> None:
        content = output.astype("<f8").tobytes()
        about = {"question": question, "shape": output.shape, "sha256": hashlib.sha256(content).hexdigest()}
        record = json.dumps(about).encode() + b"\n" + content
        try:
            self._file.seek(self._end)
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(f"{self.path} could not be written: {error.strerror or error}.") from None
        self._end += len(record)

    # The file ---------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Release the file, or the disk space of one that was not begun."""
        if self._output is not None:
            self._output.abandon()
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Delete the file: the release is finished, or the ledger was not charged."""
        self.close()
        self._file = None
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def words(self, spent: str) -> str:
        """Return what was spent and how to continue."""
        known = f"its budget ({spent}) is spent" if self.is_charged else f"its budget ({spent}) may be spent"
        return (
            f"The release had begun, and {known}. {self.path} holds its outputs so far ({self.drawn}). Repeat the "
            "call with resume=True (--resume) to continue with the same table at no further cost."
        )

    def _header(self, account: Mapping[str, Any]) -> bytes:
        content = {"declared": self.declared, "release": self.release, "account": account}
        return PARTIAL_MAGIC + b"%d\n" % FORMAT + json.dumps(content).encode() + b"\n"

    def _lock(self, file: Any) -> None:
        import fcntl  # not on every platform on which releases are read

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise OutputError(
                f"{self.path} is in use by another process that makes this release. Wait until it has finished."
            ) from None
        except OSError:
            file.close()
            raise _without_locks(self.path) from None
        self._file = file

    def _load(self) -> None:
        """Read header and complete records. What follows the last of them was being written when the run stopped."""
        content = self._file.read()
        if not content.startswith(PARTIAL_MAGIC):
            raise DamagedError(f"{self.path} is not a partial release. Move it, or choose another output file.")
        version, header, rest = [*content[len(PARTIAL_MAGIC) :].split(b"\n", 2), b"", b""][:3]
        if version != b"%d" % FORMAT:
            raise DamagedError(other_format(self.path, int(version) if version.isdigit() else 0, FORMAT))
        try:
            stored = strict_json(header)
            declared, self.release = stored["declared"], str(stored["release"])
            self.account = LatticeAccount(**stored["account"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamagedError(f"{self.path} is damaged. The release cannot be resumed. Nothing was drawn.") from None
        own = json.loads(json.dumps(self.declared))
        differing = [_WORDS.get(name, name) for name in own if declared.get(name) != own[name]]
        if differing or declared.keys() != own.keys():
            raise ArgumentError(
                f"{self.path} was begun with different declarations ({', '.join(differing) or 'options'}). Repeat the "
                "original call. Nothing was drawn."
            )
        self._end = len(content) - len(rest)
        while (found := _record(rest)) is not None:
            question, output, size = found
            self._stored.append((question, output))
            rest, self._end = rest[size:], self._end + size
        # Only the last record can be incomplete. What it was to hold is zeros, or part of one record.
        longest = _RECORD_BYTES + 8 * max(self.account.coordinates)
        if rest.find(_RECORD_BEGINS, 1) >= 0 or len(rest.rstrip(b"\0")) > longest:
            raise DamagedError(
                f"{self.path} is damaged: outputs follow one that cannot be read. The release cannot be resumed. "
                "Nothing was drawn."
            )


def _refuse_without_locks(locked: Path) -> None:
    """Reject a file system whose locks do nothing, as in some network folders. This process has locked the file."""
    import fcntl

    with open(locked, "r+b") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            pass  # locks are not supported at all
    raise _without_locks(locked)


def _without_locks(path: Path) -> OutputError:
    return OutputError(
        f"File locks do not work in {path.parent}, as in some network folders: two processes could continue the same "
        "release with different noise. Write the output to a local disk."
    )


def _record(content: bytes) -> tuple[str, Floats, int] | None:
    """Return the question, the output and the size of a record; None if it is not complete."""
    line, end, rest = content.partition(b"\n")
    try:
        about: Any = strict_json(line) if end else None
        shape = tuple(map(int, about["shape"]))
        size = 8 * int(np.prod(shape, dtype=np.int64))
        if size < 0 or hashlib.sha256(rest[:size]).hexdigest() != about["sha256"]:
            return None
        output = np.frombuffer(rest[:size], dtype="<f8").astype(np.float64).reshape(shape)
        return str(about["question"]), output, len(line) + 1 + size
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
