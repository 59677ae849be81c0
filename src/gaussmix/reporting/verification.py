"""Whether a release file says the truth: (ε, δ) computed anew from what the file holds.

**Private**: everything here is a function of a release.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gaussmix._text import plain
from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.errors import DamagedError, NotPrivateError
from gaussmix.models.release import Release
from gaussmix.models.release_file import read_bytes
from gaussmix.models.signatures import check_signature

__all__ = ["Verdict", "verdict_on", "verify"]


@dataclass(frozen=True)
class Verdict:
    """What a release file is worth.

    Attributes
    ----------
    state : {"true", "void", "false", "damaged", "unsigned"}
        The certificate is true; it says itself that nothing is guaranteed; it claims more privacy than the noise gives;
        or the file is no release, or not as it was written; or it is not signed by the key that was named.
    sentence : str
        The same in words.
    epsilon, delta : float or None
        What is certified, where the file can be read.
    computed_delta : float or None
        δ at the certified ε, computed anew and rounded up, where a formula gives it for this release alone.
    release : str
        Random name of the release.
    """

    state: Literal["true", "void", "false", "damaged", "unsigned"]
    sentence: str
    epsilon: float | None = None
    delta: float | None = None
    computed_delta: float | None = None
    release: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", plain(self.sentence))

    @property
    def is_private(self) -> bool:
        """Whether the certificate is true, and nothing voids it."""
        return self.state == "true"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no infinity."""
        found = {**asdict(self), "private": self.is_private}
        return {key: None if value == math.inf else value for key, value in found.items()}


def verify(path: str | Path, *, key: str | Path | None = None) -> Verdict:
    """Compute (ε, δ) of a release file anew from its noise. The file is read once.

    What this cannot find: a file rewritten as a whole, with other numbers and their noise, or with its void conditions
    taken out, and a new checksum. A checksum is no signature. With ``key``, an Ed25519 public key, the file must be
    signed by it (:mod:`gaussmix.models.signatures`): a missing signature is a failure.
    """
    try:
        content = read_bytes(path, signed=key is not None)
    except DamagedError as error:
        return Verdict("damaged", str(error))
    return verdict_on(content, path, key=key)


def verdict_on(content: bytes, path: str | Path, *, key: str | Path | None = None) -> Verdict:
    """Return the verdict of :func:`verify` on the bytes that were read from a file."""
    if key is not None:
        try:
            check_signature(content, path, key)
        except DamagedError as error:
            return Verdict("unsigned", str(error))
    try:
        release = Release.from_bytes(content, name=path)
    except NotPrivateError:
        return Verdict("false", f"{path} claims more privacy than its noise gives: do not publish it.")
    except DamagedError as error:
        return Verdict("damaged", str(error))
    certificate, account = release.certificate, release.certificate.account
    found: dict[str, Any] = {
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "release": certificate.release,
        "computed_delta": account.spent_delta if isinstance(account, LatticeAccount) else None,
    }
    if math.isinf(certificate.epsilon):
        return Verdict("void", f"{path} is not private: it holds sums over the rows without noise.", **found)
    if not certificate.is_private:
        reasons = " ".join(condition.text for condition in certificate.conditions if condition.void)
        return Verdict("void", f"{path} guarantees nothing: {reasons}", **found)
    pair = f"({certificate.epsilon:g}, {certificate.delta:g})"
    whose = f" for {certificate.unit}" if certificate.unit is not None else ""
    signed = "" if key is None else f" It is signed by {key}."
    words = f"{path} is {pair}-differentially private{whose}, as its certificate says.{signed}"
    return Verdict("true", words, **found)
