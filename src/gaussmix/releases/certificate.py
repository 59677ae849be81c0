"""What a release guarantees, in public values, computed anew wherever a certificate is made or read.

**Private**: a certificate holds declared and public numbers only.

A certificate is checked against its own account when it is built, by whatever way: nobody can hold one that claims less
than its noise gives. What no computation can find is a file whose noise, generator or conditions were *all* rewritten
to fit each other: that takes a signature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix.accounting.accounts import (
    Account,
    AdaSSPAccount,
    NonPrivate,
    ObjectivePerturbationAccount,
    SheffetAccount,
)
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.accounting.thresholds import CountsAccount
from gaussmix.data.contributions import ONE_ROW, PrivacyUnit
from gaussmix.data.schema import Schema, stored_schema
from gaussmix.errors import ArgumentError, ArgumentTypeError, NotPrivateError
from gaussmix.ledger.claims import verify_claim
from gaussmix.ledger.composition import BudgetCap

__all__ = [
    "LEDGER_BUDGET",
    "NO_GUARANTEE",
    "PERSONS_APART",
    "ROWS_PUBLIC",
    "ROW_BY_ROW",
    "SECURE",
    "Certificate",
    "Condition",
]

SECURE = "chacha20-os"
"""What a certificate says of the secure generator, ChaCha20 with a 256-bit key from the operating system.

For releases it stands for OpenDP's sampler too, which draws their noise; ChaCha20 chooses samples of rows.
"""

_RELATION_WORDS: dict[Neighbours, str] = {
    "add-remove": "set to zero, added or removed",
    "replace-one": "replaced by another",
}
_MECHANISMS: dict[type[Account], tuple[str, str]] = {  # its name, also in files, and in words
    LatticeAccount: (
        "Gaussian mixing in the limit",
        "Gaussian mixing in the limit: the Gram matrix plus symmetric Gaussian noise, on integers",
    ),
    NonPrivate: ("none", "None: the second moment itself"),
    AdaSSPAccount: ("AdaSSP", "Noisy sufficient statistics (AdaSSP)"),
    SheffetAccount: ("Sheffet's tested sketch", "Sheffet's tested Gaussian sketch"),
    ObjectivePerturbationAccount: ("objective perturbation", "Objective perturbation"),
    CountsAccount: ("noisy counts by column", "Noisy counts by column"),
}


@dataclass(frozen=True)
class Condition:
    """What the guarantee rests on besides the noise, or what makes it void."""

    void: bool
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.void, bool) or not isinstance(self.text, str):
            raise ArgumentTypeError("a condition is a bool, whether it voids the guarantee, and a text.")

    def __str__(self) -> str:
        return f"{'void' if self.void else 'condition'}: {self.text}"


NO_GUARANTEE = "No privacy guarantee:"
"""How the first line of everything begins that is printed about a release without one."""

LEDGER_BUDGET = Condition(False, "the budget is the ledger's, and covers all of its releases together.")
PERSONS_APART = Condition(
    False, "nobody has rows under two values of the unit, and sites whose sums were added have nobody in common."
)
ROW_BY_ROW = Condition(
    False,
    "the table is the result of a query, a lazy frame or a stream, and each row of the source table affects at most "
    "one row of that result (row by row: scans, filters, projections, unions).",
)
ROWS_PUBLIC = Condition(False, "the number of rows was declared to be public; its being changed is not covered.")


@dataclass(frozen=True)
class Certificate:
    """What a release guarantees, and what the guarantee rests on.

    Raises
    ------
    NotPrivateError
        If (ε, δ), computed anew from the account, is more than is claimed.

    Attributes
    ----------
    made_by : str
        The function or estimator that made the release.
    epsilon, delta : float
        The guarantee.
    neighbours : {"add-remove", "replace-one"}
        Neighbouring relation: what is added, removed or replaced is one row, or one person where a unit is declared.
    account : Account
        Parameters of the mechanism, from which (ε, δ) is computed anew.
    schema : Schema
        The declared bounds behind it.
    generator : str
        Where the noise came from.
    version : str
        Version of the library.
    time : str
        When it was made, UTC.
    release : str
        Random name of the release, made before its noise was drawn; a ledger has it too.
    conditions : tuple of Condition
        What would void the guarantee, or does: a known seed, an infinite ε, a promise of the caller's.
    ledger : str
        Fingerprint of the ledger that was charged; empty without one.
    entry : int
        Number of the entry in it, from 1; 0 without one.
    reservation : BudgetCap or None
        What that ledger reserved for all of its releases: (ε, δ) are computed from it. None without a ledger.
    unit : PrivacyUnit or None
        The unit of privacy: all rows of one person; None for one row.
    """

    made_by: str
    epsilon: float
    delta: float
    neighbours: Neighbours
    account: Account
    schema: Schema
    generator: str
    version: str
    time: str
    release: str
    conditions: tuple[Condition, ...] = ()
    ledger: str = ""
    entry: int = 0
    reservation: BudgetCap | None = None
    unit: PrivacyUnit | None = None

    def __post_init__(self) -> None:
        self.verify()

    def verify(self) -> None:
        """Compute (ε, δ) anew from the account.

        Raises
        ------
        NotPrivateError
            If the certificate claims less, or leaves out a condition that its own fields show.
        """
        _check_types(self)
        if (self.generator != SECURE or math.isinf(self.epsilon)) and self.is_private:
            raise NotPrivateError(
                "The certificate has a seeded generator or an infinite epsilon, and no condition that says 'void'."
            )
        claims = math.isfinite(self.epsilon) or not isinstance(self.account, NonPrivate | ObjectivePerturbationAccount)
        if claims and not self.account.holds(self.epsilon, self.delta, self.neighbours):
            raise NotPrivateError(
                f"The certificate claims epsilon={self.epsilon!r} and delta={self.delta!r}; computed anew from its "
                "parameters the guarantee is weaker. Do not publish it."
            )
        if claims:
            _check_against_schema(self)
            _check_against_ledger(self)

    @property
    def mechanism(self) -> str:
        """The algorithm."""
        return _MECHANISMS[type(self.account)][0]

    @property
    def mechanism_words(self) -> str:
        """What it does to the table."""
        return _MECHANISMS[type(self.account)][1]

    @property
    def row_norm(self) -> float:
        """Declared bound C on the norm of an encoded row."""
        return self.schema.row_norm

    @property
    def unit_words(self) -> str:
        """The unit of privacy: "one row", or "one person (all rows with the same …)"."""
        return ONE_ROW if self.unit is None else str(self.unit)

    @property
    def relation_words(self) -> str:
        """In what neighbouring tables differ."""
        return f"{ONE_ROW if self.unit is None else 'one person'} {_RELATION_WORDS[self.neighbours]}"

    @property
    def generator_words(self) -> str:
        """What drew the noise."""
        if isinstance(self.account, NonPrivate):
            return "none"
        if self.generator != SECURE:
            return f"{self.generator}, not the secure generator"
        if isinstance(self.account, LatticeAccount | CountsAccount):
            return "OpenDP's exact sampler, from the operating system's entropy"
        return "ChaCha20, keyed by the operating system"

    @property
    def covers_ledger(self) -> bool:
        """Whether (ε, δ) are those of all releases of a ledger together."""
        return LEDGER_BUDGET in self.conditions

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds with nothing further to assume about seeds."""
        return not any(condition.void for condition in self.conditions)

    @property
    def void_words(self) -> str:
        """The line that comes first wherever results are printed: why nothing is guaranteed; empty if something is."""
        reasons = " ".join(condition.text for condition in self.conditions if condition.void)
        return f"{NO_GUARANTEE} {reasons}" if reasons else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["reservation"] = None if self.reservation is None else asdict(self.reservation)
        plain["account"] = {"mechanism": self.mechanism} | asdict(self.account)
        plain["schema"] = self.schema.to_dict()
        plain["conditions"] = [asdict(condition) for condition in self.conditions]
        plain["unit"] = None if self.unit is None else self.unit.to_dict()
        return plain

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Certificate:
        """Read what :meth:`to_dict` wrote: every key must be there, and no other."""
        plain = dict(stored)
        _check_keys(cls, plain)
        plain["schema"] = stored_schema(plain["schema"])
        plain["account"] = _account(plain["account"])
        plain["unit"] = None if plain["unit"] is None else PrivacyUnit.of(plain["unit"])
        if plain["reservation"] is not None:
            _check_keys(BudgetCap, plain["reservation"])
            plain["reservation"] = BudgetCap(**plain["reservation"])
        plain["conditions"] = tuple(Condition(**condition) for condition in plain["conditions"])
        return cls(**plain)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"Certificate({'' if self.is_private else 'no privacy guarantee, '}{values})"

    def __str__(self) -> str:
        lines = [
            *[self.void_words] * (not self.is_private),
            f"{self.mechanism} ({self.made_by}): ({self.epsilon:g}, {self.delta:g})-differentially private",
            f"  unit of privacy: {self.unit_words}",
            f"  neighbours: {self.neighbours} ({self.relation_words})",
            *self._gaussian(),
            f"  analysis: {self.account.analysis}; rows bounded by {self.row_norm:.6g}",
            f"  noise: {self.generator_words}",
        ]
        if self.ledger:
            lines.append(f"  ledger: {self.ledger}, entry {self.entry}")
        return "\n".join(map(plain, [*lines, *(f"  {condition}" for condition in self.conditions)]))

    def _gaussian(self) -> list[str]:
        """μ of a release in the limit, and what the best attacker makes of it."""
        if not isinstance(self.account, LatticeAccount):
            return []
        alone = "this release alone: " if self.covers_ledger else ""
        return [
            f"  {alone}μ = {self.account.mu:.4g} (Gaussian DP); whoever accuses 5 % of the absent falsely "
            f"finds at most {100 * self.account.attack_power():.3g} % of those present"
        ]


def _check_against_schema(certificate: Certificate) -> None:
    """Refuse an account whose parameters are for other columns than the declared ones."""
    account, schema = certificate.account, certificate.schema
    if certificate.unit is not None:
        if not isinstance(account, LatticeAccount) or certificate.unit.column in schema.columns:
            raise NotPrivateError("The unit is one that this mechanism does not protect, or is released itself.")
        if PERSONS_APART not in certificate.conditions:
            raise NotPrivateError("The certificate leaves out that nobody has rows under two values of the unit.")
    if isinstance(account, ObjectivePerturbationAccount):
        X = next(iter(schema.columns))
        if account.x_norm < schema.norm_of([X], intercept=True):
            raise NotPrivateError("The account is for features of a smaller norm than the declared ones.")


def _check_against_ledger(certificate: Certificate) -> None:
    """Refuse a claim that is not the one of the ledger that the release was recorded in."""
    reserved, unit = certificate.reservation, "" if certificate.unit is None else certificate.unit.column
    if len({certificate.covers_ledger, bool(certificate.ledger), reserved is not None}) > 1:
        raise NotPrivateError("The certificate leaves out a part of its ledger: condition, fingerprint or reservation.")
    if reserved is not None:
        claim = (certificate.epsilon, certificate.delta, certificate.neighbours, unit)
        verify_claim(reserved, certificate.account, ledger=certificate.ledger, claim=claim)


def _check_types(certificate: Certificate) -> None:
    for name in ("made_by", "neighbours", "generator", "version", "time", "release", "ledger"):
        if not isinstance(getattr(certificate, name), str):
            raise ArgumentTypeError(f"{name} must be a string.")
    if not all(isinstance(condition, Condition) for condition in certificate.conditions):
        raise ArgumentTypeError("conditions must be a tuple of Condition.")
    if not isinstance(certificate.account, Account):
        raise ArgumentTypeError("account must be the account of a mechanism.")
    check.positive(epsilon=certificate.epsilon)
    if not 0 < check.real(delta=certificate.delta) <= 1:
        raise ArgumentError(f"delta must lie in (0, 1], got {certificate.delta!r}.")
    check.choice(NEIGHBOURS, neighbours=certificate.neighbours)
    if not isinstance(certificate.reservation, BudgetCap | None):
        raise ArgumentTypeError("reservation must be a BudgetCap, or None without a ledger.")
    if not isinstance(certificate.unit, PrivacyUnit | None):
        raise ArgumentTypeError("unit must be a PrivacyUnit, or None for one row.")
    if not re.fullmatch(r"[0-9a-f]{32}", certificate.release):
        raise ArgumentError("release must be 32 hexadecimal digits.")
    if not re.fullmatch(r"(?:[0-9a-f]{64})?", certificate.ledger):
        raise ArgumentError("ledger must be 64 hexadecimal digits, or empty.")
    if type(certificate.entry) is not int or (certificate.entry > 0) != bool(certificate.ledger):
        raise ArgumentError("entry must be an integer ≥ 1 with a ledger, and 0 without one.")


def _check_keys(kind: type[Account] | type[Certificate] | type[BudgetCap], stored: Mapping[str, Any]) -> None:
    """Refuse stored values with a key too few or too many: a default would stand for what the file does not say."""
    if set(stored) != {field.name for field in fields(kind)}:
        raise ArgumentError(f"its keys are not those of a {kind.__name__}")


def _account(stored: Mapping[str, Any]) -> Account:
    kinds = {name: kind for kind, (name, _) in _MECHANISMS.items()}
    kind = kinds[stored["mechanism"]]
    values = {key: value for key, value in stored.items() if key != "mechanism"}
    _check_keys(kind, values)
    return kind(**values)
