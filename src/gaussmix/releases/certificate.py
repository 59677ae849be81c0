"""The privacy guarantee of a release in public values, verified whenever a certificate is built or read.

**Private**: a certificate holds declared and public numbers only.

A certificate is checked against its own account when it is built, so no certificate can claim more privacy than its
noise gives. Verification cannot detect a file in which noise, generator and conditions were all rewritten
consistently; that requires a signature.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, get_args

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix.accounting.accounts import Account, NonPrivate, ObjectivePerturbationAccount
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.accounting.sites import Sites
from gaussmix.accounting.thresholds import CountsAccount
from gaussmix.data.contributions import ONE_ROW, PrivacyUnit
from gaussmix.data.schema import Schema, stored_schema
from gaussmix.errors import ArgumentError, ArgumentTypeError, NotPrivateError
from gaussmix.ledger.composition import BudgetCap
from gaussmix.ledger.ledger import verify_claim
from gaussmix.releases.declared import ModelBudget

__all__ = [
    "JOINT",
    "LEDGER_BUDGET",
    "NO_GUARANTEE",
    "PERSONS_APART",
    "RESUMED",
    "ROWS_PUBLIC",
    "ROW_BY_ROW",
    "SECURE",
    "TRUSTED_CURATOR",
    "Certificate",
    "Condition",
    "conditions_of_sites",
    "models_public",
]

SECURE = "chacha20-os"
"""Name of the secure generator, ChaCha20 with a 256-bit key from the operating system.

In releases it also stands for OpenDP's sampler, which draws the noise; ChaCha20 selects samples of rows.
"""

JOINT = "sites"
"""What joint releases of several sites are made by."""

_RELATION_WORDS: dict[Neighbours, str] = {
    "add-remove": "added or removed",
    "replace-one": "replaced by another",
}
_KINDS: dict[str, type[Account]] = {kind.mechanism: kind for kind in get_args(Account)}


@dataclass(frozen=True)
class Condition:
    """An assumption of the guarantee besides the noise, or a reason why it is void."""

    void: bool
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.void, bool) or not isinstance(self.text, str):
            raise ArgumentTypeError(
                "void must be a bool (whether the guarantee is void) and text must be a string, got "
                f"{type(self.void).__name__} and {type(self.text).__name__}."
            )

    def __str__(self) -> str:
        return f"{'void' if self.void else 'condition'}: {self.text}"


NO_GUARANTEE = "No privacy guarantee:"
"""First words of everything printed about a release without a guarantee."""

LEDGER_BUDGET = Condition(
    False, "(epsilon, delta) is the budget of the ledger and covers all of its releases together."
)
PERSONS_APART = Condition(
    False,
    "no individual has rows under two values of the privacy unit, and sites whose sums were added share no unit.",
)
RESUMED = Condition(
    False,
    "the release was interrupted and resumed. One row, or privacy unit, is protected in all versions of the table that "
    "were read; estimates assume that the table did not change in between.",
)
ROW_BY_ROW = Condition(
    False,
    "the table is the result of a query, a lazy frame or a stream, and each row of the source affects at most one row "
    "of the result (scans, filters, projections and unions only).",
)
SITES_FOLLOW = Condition(
    False,
    "sites follow the protocol (secret sharing is secure against passive adversaries), and no adversary breaks the TLS "
    "connections between them. The time that a site takes is not protected.",
)
TRUSTED_CURATOR = Condition(
    False, "the sites trusted one curator, who added up their exact sums, drew the noise and kept both secret."
)
ROWS_PUBLIC = Condition(False, "the number of rows was declared public; the guarantee does not cover changes to it.")


def models_public(models: ModelBudget | None) -> tuple[Condition, ...]:
    """Return the condition about declared models, which names them."""
    if models is None:
        return ()
    words = "; ".join(map(str, models.models))
    return (
        Condition(
            False,
            f"the declared models, which have {100 * models.share:g} % of μ², were chosen without looking at the rows: "
            f"{words}.",
        ),
    )


def conditions_of_sites(sites: Sites, unit: PrivacyUnit | None) -> tuple[Condition, ...]:
    """Return the conditions of a guarantee for several sites without a trusted curator."""
    whose = ONE_ROW if unit is None else "no individual has rows under two values of the privacy unit; one unit"
    places = "one site" if sites.sites_per_unit == 1 else f"at most {sites.sites_per_unit} sites"
    return (
        Condition(False, f"{whose} is held by {places}."),
        Condition(
            False,
            f"at least {sites.number - sites.colluding} of {sites.number} sites drew their noise and kept it secret.",
        ),
        SITES_FOLLOW,
    )


@dataclass(frozen=True)
class Certificate:
    """The privacy guarantee of a release and its assumptions.

    Raises
    ------
    NotPrivateError
        If (ε, δ) recomputed from the account is larger than claimed.

    Attributes
    ----------
    made_by : str
        The function or estimator that made the release.
    epsilon, delta : float
        The guarantee.
    neighbours : {"add-remove", "replace-one"}
        Neighbouring relation, for one row or one privacy unit.
    account : Account
        Parameters of the mechanism, from which (ε, δ) is recomputed.
    schema : Schema
        The declared bounds.
    generator : str
        Source of the noise.
    version : str
        Version of the library.
    time : str
        Time of the release, UTC.
    release : str
        Random identifier of the release, made before its noise was drawn; also in the ledger.
    conditions : tuple of Condition
        Assumptions of the guarantee, and reasons why it is void: a known seed, an infinite ε.
    ledger : str
        Fingerprint of the ledger that was charged; empty without one.
    entry : int
        Number of the ledger's entry, from 1; 0 without a ledger.
    reservation : BudgetCap or None
        The ledger's reservation for all of its releases, from which (ε, δ) is computed. None without a ledger.
    privacy_unit : PrivacyUnit or None
        The privacy unit; None for row-level privacy.
    sites : Sites or None
        The sites of a joint release without a trusted curator. (ε, δ) holds against any t of them together; the account
        is that of the total noise.
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
    privacy_unit: PrivacyUnit | None = None
    sites: Sites | None = None

    def __post_init__(self) -> None:
        self.verify()

    def verify(self) -> None:
        """Recompute (ε, δ) from the account.

        Raises
        ------
        NotPrivateError
            If the recomputed guarantee is weaker than claimed, or a condition implied by the fields is missing.
        """
        _check_types(self)
        if (self.generator != SECURE or math.isinf(self.epsilon)) and self.is_private:
            raise NotPrivateError(
                "The certificate has a seeded generator or an infinite epsilon, but does not state that the guarantee "
                "is void."
            )
        claims = math.isfinite(self.epsilon) or not isinstance(self.account, NonPrivate | ObjectivePerturbationAccount)
        if claims and not self.account.holds(self.epsilon, self.delta, self.neighbours):
            raise NotPrivateError(
                f"The certificate claims epsilon={self.epsilon!r} and delta={self.delta!r}, but the guarantee "
                "recomputed from its parameters is weaker. Do not publish the release."
            )
        if claims:
            _check_against_schema(self)
            _check_against_ledger(self)
            _check_against_sites(self)

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return self.account.mechanism

    @property
    def mechanism_words(self) -> str:
        """Description of the mechanism."""
        return self.account.mechanism_words

    @property
    def row_norm(self) -> float:
        """Declared bound C on the norm of an encoded row."""
        return self.schema.row_norm

    @property
    def unit_words(self) -> str:
        """The privacy unit: "one row", or a description of the unit."""
        return ONE_ROW if self.privacy_unit is None else str(self.privacy_unit)

    @property
    def relation_words(self) -> str:
        """How neighbouring tables differ."""
        return f"{ONE_ROW if self.privacy_unit is None else 'one privacy unit'} {_RELATION_WORDS[self.neighbours]}"

    @property
    def bounded_unit(self) -> PrivacyUnit | None:
        """The privacy unit if contributions were bounded; None if one row is protected, or each unit has one row."""
        return None if self.privacy_unit is None else self.privacy_unit.bounded

    @property
    def generator_words(self) -> str:
        """Source of the noise."""
        if isinstance(self.account, NonPrivate):
            return "none"
        if self.generator != SECURE:
            return f"{self.generator}, not a secure generator"
        if isinstance(self.account, LatticeAccount | CountsAccount):
            return "OpenDP's exact sampler, seeded with operating-system entropy"
        return "ChaCha20, keyed with operating-system entropy"

    @property
    def guarantee(self) -> Account:
        """The account from which the guarantee follows: for several sites, that of the noise of all but t of them."""
        if self.sites is None or not isinstance(self.account, LatticeAccount):
            return self.account
        return replace(self.account, mu=self.sites.mu(self.account))

    @property
    def site_words(self) -> tuple[str, ...]:
        """The guarantee against outsiders and against colluding sites; empty without sites."""
        sites, account = self.sites, self.account
        if sites is None or not isinstance(account, LatticeAccount):
            return ()
        t = sites.colluding
        together = f"any {t} of the {sites.number} sites together" if t > 1 else f"any one of the {sites.number} sites"
        return (
            f"against outsiders: ({sites.outsider_epsilon(account):.3g}, {self.delta:g}), "
            f"μ = {sites.outsider_mu(account):.4g} (Gaussian DP)",
            f"against {together}: ({self.epsilon:g}, {self.delta:g}), μ = {sites.mu(account):.4g} (Gaussian DP)",
        )

    @property
    def covers_ledger(self) -> bool:
        """Whether (ε, δ) covers all releases of a ledger together."""
        return LEDGER_BUDGET in self.conditions

    @property
    def is_private(self) -> bool:
        """Whether no condition voids the guarantee."""
        return not any(condition.void for condition in self.conditions)

    @property
    def void_words(self) -> str:
        """Why the guarantee is void, printed first with all results; empty if it holds."""
        reasons = " ".join(condition.text for condition in self.conditions if condition.void)
        return f"{NO_GUARANTEE} {reasons}" if reasons else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["reservation"] = None if self.reservation is None else asdict(self.reservation)
        plain["account"] = {"mechanism": self.mechanism} | asdict(self.account)
        plain["schema"] = self.schema.to_dict()
        plain["conditions"] = [asdict(condition) for condition in self.conditions]
        plain["privacy_unit"] = None if self.privacy_unit is None else self.privacy_unit.to_dict()
        if self.sites is None:  # most releases have one curator, and their files say nothing about sites
            del plain["sites"]
        else:
            plain["sites"] = asdict(self.sites)
        return plain

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Certificate:
        """Read the output of :meth:`to_dict`. The keys must match exactly."""
        plain = {"sites": None, **stored}
        _check_keys(cls, plain)
        plain["schema"] = stored_schema(plain["schema"])
        plain["account"] = _account(plain["account"])
        plain["privacy_unit"] = None if plain["privacy_unit"] is None else PrivacyUnit.of(plain["privacy_unit"])
        if plain["sites"] is not None:
            _check_keys(Sites, plain["sites"])
            plain["sites"] = Sites(**plain["sites"])
        if plain["reservation"] is not None:
            _check_keys(BudgetCap, plain["reservation"])
            plain["reservation"] = BudgetCap(**plain["reservation"])
        plain["conditions"] = tuple(Condition(**condition) for condition in plain["conditions"])
        return cls(**plain)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"Certificate({'' if self.is_private else 'no privacy guarantee, '}{values})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [
            *[self.void_words] * (not self.is_private),
            f"({self.epsilon:g}, {self.delta:g})-differentially private: {self.mechanism}, made by {self.made_by}",
            f"  privacy unit: {self.unit_words}",
            f"  neighbours: {self.neighbours} ({self.relation_words})",
            *self._gaussian(),
            f"  analysis: {self.account.analysis}; row norm bounded by {self.row_norm:.6g}",
            f"  noise: {self.generator_words}",
        ]
        if self.ledger:
            lines.append(f"  ledger: {self.ledger}, entry {self.entry}")
        return "\n".join(map(plain, [*lines, *(f"  {condition}" for condition in self.conditions)]))

    def _gaussian(self) -> list[str]:
        """Return μ and the power of the optimal membership-inference attack; nothing without a guarantee."""
        if not isinstance(self.account, LatticeAccount) or not self.is_private:
            return []
        if self.sites is not None:
            return [f"  {line}" for line in self.site_words]
        alone = "this release alone: " if self.covers_ledger else ""
        return [
            f"  {alone}μ = {self.account.mu:.4g} (Gaussian DP); membership-inference power "
            f"≤ {100 * self.account.attack_power():.3g} % at a 5 % false-positive rate"
        ]


def _check_against_schema(certificate: Certificate) -> None:
    """Reject an account whose parameters do not match the declared columns."""
    account, schema = certificate.account, certificate.schema
    if certificate.privacy_unit is not None:
        one_row = isinstance(account, CountsAccount) and certificate.privacy_unit.one_row_each
        if not (isinstance(account, LatticeAccount) or one_row) or certificate.privacy_unit.column in schema.columns:
            raise NotPrivateError(
                "The certificate has a privacy unit, but the privacy-unit column is released, or the mechanism "
                "supports row-level privacy only."
            )
        if certificate.sites is None and PERSONS_APART not in certificate.conditions:
            raise NotPrivateError("The certificate has a privacy unit but lacks the condition that units are disjoint.")
    if isinstance(account, ObjectivePerturbationAccount):
        X = next(iter(schema.columns))
        if account.x_norm < schema.norm_of([X], intercept=True):
            raise NotPrivateError(
                "The privacy account assumes a smaller norm of the features than the schema declares."
            )


def _check_against_ledger(certificate: Certificate) -> None:
    """Reject a claim that differs from that of the ledger the release was recorded in."""
    reserved, unit = (
        certificate.reservation,
        "" if certificate.privacy_unit is None else certificate.privacy_unit.column,
    )
    if len({certificate.covers_ledger, bool(certificate.ledger), reserved is not None}) > 1:
        raise NotPrivateError(
            "The certificate must state all or none of the ledger's condition, fingerprint and budget."
        )
    if reserved is not None:
        claim = (certificate.epsilon, certificate.delta, certificate.neighbours, unit)
        verify_claim(reserved, certificate.account, ledger=certificate.ledger, claim=claim)


def _check_against_sites(certificate: Certificate) -> None:
    """Reject a joint release whose noise does not protect against colluding sites, or that lacks a condition."""
    sites, account = certificate.sites, certificate.account
    if sites is None:
        if SITES_FOLLOW in certificate.conditions:
            raise NotPrivateError("The certificate has the condition of a joint release but does not state its sites.")
        if certificate.made_by == JOINT and TRUSTED_CURATOR not in certificate.conditions:
            raise NotPrivateError("A joint release must state its sites, or the condition that they trust a curator.")
        return
    if certificate.made_by != JOINT or TRUSTED_CURATOR in certificate.conditions:
        raise NotPrivateError(
            "The certificate states sites, but the release was not made by several sites, or the sites trusted a "
            "curator."
        )
    if not isinstance(account, LatticeAccount) or certificate.ledger:
        raise NotPrivateError("A joint release of several sites must have discrete Gaussian noise and no ledger.")
    sites.verify(account)
    if not set(conditions_of_sites(sites, certificate.privacy_unit)) <= set(certificate.conditions):
        raise NotPrivateError("The certificate names several sites but lacks a condition of their guarantee.")


def _check_types(certificate: Certificate) -> None:
    for name in ("made_by", "neighbours", "generator", "version", "time", "release", "ledger"):
        if not isinstance(getattr(certificate, name), str):
            raise ArgumentTypeError(f"{name} must be a string, got {type(getattr(certificate, name)).__name__}.")
    if not all(isinstance(condition, Condition) for condition in certificate.conditions):
        raise ArgumentTypeError("conditions must be a tuple of Condition.")
    if not isinstance(certificate.account, Account):
        raise ArgumentTypeError(f"account must be an Account, got {type(certificate.account).__name__}.")
    check.positive(epsilon=certificate.epsilon)
    if not 0 < check.real(delta=certificate.delta) <= 1:
        raise ArgumentError(f"delta must lie in (0, 1], got {certificate.delta!r}.")
    check.choice(NEIGHBOURS, neighbours=certificate.neighbours)
    if not isinstance(certificate.reservation, BudgetCap | None):
        raise ArgumentTypeError(
            f"reservation must be a BudgetCap or None, got {type(certificate.reservation).__name__}."
        )
    if not isinstance(certificate.privacy_unit, PrivacyUnit | None):
        raise ArgumentTypeError(
            f"privacy_unit must be a PrivacyUnit or None, got {type(certificate.privacy_unit).__name__}."
        )
    if not isinstance(certificate.sites, Sites | None):
        raise ArgumentTypeError(f"sites must be a Sites or None, got {type(certificate.sites).__name__}.")
    if not re.fullmatch(r"[0-9a-f]{32}", certificate.release):
        raise ArgumentError(f"release must be 32 hexadecimal digits, got {certificate.release!r}.")
    if not re.fullmatch(r"(?:[0-9a-f]{64})?", certificate.ledger):
        raise ArgumentError(f"ledger must be 64 hexadecimal digits or empty, got {certificate.ledger!r}.")
    if type(certificate.entry) is not int or (certificate.entry > 0) != bool(certificate.ledger):
        raise ArgumentError(f"entry must be an integer ≥ 1 with a ledger and 0 without one, got {certificate.entry!r}.")


def _check_keys(kind: type[Account | Certificate | BudgetCap | Sites], stored: Mapping[str, Any]) -> None:
    """Reject stored values with missing or extra keys: a default must not stand in for a missing value."""
    if set(stored) != {field.name for field in fields(kind)}:
        raise ArgumentError(f"the stored {kind.__name__} has missing or unknown fields")


def _account(stored: Mapping[str, Any]) -> Account:
    kind = _KINDS[stored["mechanism"]]
    values = {key: value for key, value in stored.items() if key != "mechanism"}
    _check_keys(kind, values)
    return kind(**values)
