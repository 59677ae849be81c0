"""Verification of release files, and reconciliation of ledger entries with them.

**Private**: reads releases and ledgers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gaussmix._text import plain
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.errors import DamagedError, NotPrivateError
from gaussmix.ledger import Entry
from gaussmix.models.release import Release
from gaussmix.releases.counts import large_delta
from gaussmix.releases.file import check_signature, partial_path, read_bytes, release_id, unfinished_id

__all__ = ["STATES", "Verdict", "entry_state", "verdict_on", "verify"]


@dataclass(frozen=True)
class Verdict:
    """Result of the verification of a release file.

    Attributes
    ----------
    state : {"true", "void", "false", "damaged", "unsigned"}
        The certificate is correct; it states itself that there is no guarantee; it overstates the guarantee; the file
        is not a release, is damaged or was edited; it is not signed by the given key.
    """

    state: Literal["true", "void", "false", "damaged", "unsigned"]
    sentence: str
    epsilon: float | None = None  # as certified, if the file can be read
    delta: float | None = None
    computed_delta: float | None = (
        None  # at the certified ε, recomputed and rounded up; for sites, if t of them collude
    )
    release: str = ""  # random identifier
    outsider_epsilon: float | None = None  # of several sites: against those who see the release only

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", plain(self.sentence))

    @property
    def is_private(self) -> bool:
        """Whether the certificate is correct and not void."""
        return self.state == "true"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with None for infinity."""
        found = {**asdict(self), "private": self.is_private}
        return {key: None if value == math.inf else value for key, value in found.items()}


def verify(path: str | Path, *, key: str | Path | None = None) -> Verdict:
    """Recompute (ε, δ) of a release file from its noise. The file is read once.

    This cannot detect a consistent forgery: a file with other numbers, other noise, another privacy unit or fewer
    conditions, and a new checksum. With ``key``, an Ed25519 public key, the file must be signed by it
    (:mod:`gaussmix.releases.file`); a missing signature is a failure.
    """
    try:
        content = read_bytes(path, signed=key is not None)
    except DamagedError as error:
        return Verdict("damaged", str(error))
    return verdict_on(content, path, key=key)


def verdict_on(content: bytes, path: str | Path, *, key: str | Path | None = None) -> Verdict:
    """Return the result of :func:`verify` for the content of a file."""
    if key is not None:
        try:
            check_signature(content, path, key)
        except DamagedError as error:
            return Verdict("unsigned", str(error))
    try:
        release = Release.from_bytes(content, name=path)
    except NotPrivateError:
        return Verdict("false", f"{path} overstates its privacy guarantee. Do not publish it.")
    except DamagedError as error:
        return Verdict("damaged", str(error))
    certificate, account = release.certificate, release.certificate.account
    guarantee = certificate.guarantee
    found: dict[str, Any] = {
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "release": certificate.release,
        "computed_delta": guarantee.spent_delta if isinstance(guarantee, LatticeAccount) else None,
        "outsider_epsilon": None,
    }
    if certificate.sites is not None and isinstance(account, LatticeAccount):
        found["outsider_epsilon"] = certificate.sites.outsider_epsilon(account)
    if math.isinf(certificate.epsilon):
        return Verdict("void", f"{path} is not private: it contains sums over the rows without noise.", **found)
    if not certificate.is_private:
        reasons = " ".join(condition.text for condition in certificate.conditions if condition.void)
        return Verdict("void", f"{path} has no privacy guarantee: {reasons}", **found)
    pair = f"({certificate.epsilon:g}, {certificate.delta:g})"
    whose = f" for {certificate.privacy_unit}" if certificate.privacy_unit is not None else ""
    signed = "" if key is None else f" It is signed by {key}."
    sites = "".join(f" {line[0].upper()}{line[1:]}." for line in certificate.site_words)
    weak = large_delta(release.statistic, certificate.delta)
    words = f"{path} is {pair}-differentially private{whose}, as certified.{sites}{signed} {weak}".rstrip()
    return Verdict("true", words, **found)


STATES = {
    "present": "file present",
    "unfinished": "interrupted: gaussmix release --resume continues it",
    "missing": "file missing: the release was lost or its file was moved; the budget is spent",
    "other": "file does not contain this release; the budget is spent",
    "unnamed": "no file recorded",
}
"""States of the release file of a ledger entry."""


def entry_state(entry: Entry) -> str:
    """Return the state of the release file that a ledger entry names, a key of :data:`STATES`."""
    if not entry.file:
        return "unnamed"
    if not Path(entry.file).exists():
        return "unfinished" if unfinished_id(partial_path(entry.file)) == entry.release else "missing"
    try:
        return "present" if release_id(Path(entry.file)) == entry.release else "other"
    except (DamagedError, OSError):
        return "other"
