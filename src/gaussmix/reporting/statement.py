"""The privacy statement of a release, field by field, and in plain words. Fields follow NIST SP 800-226."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gaussmix.accounting.curve import PrivacyCurve
from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.errors import NotPrivateError
from gaussmix.models.certificate import Certificate, Condition
from gaussmix.models.release import Release
from gaussmix.reporting.numbers import number, one_in, plain_value, up
from gaussmix.tables.columns import Boolean, Column, Numeric, Vector
from gaussmix.tables.schema import Schema

__all__ = [
    "NOTHING",
    "assumed",
    "banner",
    "bounds_of",
    "conditions",
    "fields_of",
    "found_at_most",
    "in_plain_words",
    "is_valid",
    "parameters_of",
    "subject",
]

_ASSUMED = (
    "A trusted curator held the rows, ran the library and saw its errors. The guarantee is about what the curator "
    "handed on: this release and what is computed from it.",
    "Bounds, levels and weights were fixed without looking at the rows, or proposed by a private release whose cost "
    "counts too. Software cannot check this.",
    "The guarantee speaks of this release. Others from the same rows add up, unless a ledger covers them together.",
    "How long the computation took is not protected.",
)
_ROWS = "One person has one row. Somebody with several rows is protected less."
_PERSONS = "One person has one value of the unit. Somebody with rows under two values is protected less."
_ON_INTEGERS = (
    "On the computer the sums over rows are exact integers and the noise is an exact discrete Gaussian: no rounded "
    "number stands between the rows and the release."
)
_IN_REAL_NUMBERS = (
    "The proofs are about real numbers. On the computer the sums over rows are exact, and what leaves is rounded to a "
    "public grid of about a millionth of the noise; this is not a proof that no floating-point attack exists."
)
NOTHING = ("Nothing is guaranteed: whoever sees this release may learn single rows from it. Do not publish it.",)
_LEVELS_SHOWN = 40


def subject(release: Release) -> str:
    """What the page is about."""
    columns = len(release.schema.columns)
    return f"A release of a table with {columns} declared column{'s' * (columns != 1)}"


def is_valid(release: Release) -> bool:
    """Whether what the certificate says is guaranteed: nothing voids it, and it is true, computed anew."""
    return banner(release) is None


def banner(release: Release) -> dict[str, str] | None:
    """Why the release guarantees nothing; None if it does."""
    certificate = release.certificate
    if not math.isfinite(certificate.epsilon):
        return {
            "heading": "Not private.",
            "text": "ε is infinite: this release holds sums over the rows without noise. Treat it like the rows.",
        }
    try:
        release.verify()
    except NotPrivateError:
        return {
            "heading": "The certificate does not fit the release.",
            "text": "ε, computed anew from the noise in the release, is larger than certified. Do not publish.",
        }
    if not certificate.is_private:
        return {"heading": "The guarantee is void.", "text": "The conditions below say why. Do not publish."}
    return None


def in_plain_words(certificate: Certificate) -> list[str]:
    """(ε, δ) in words; the numbers are rounded up."""
    epsilon, delta = certificate.epsilon, certificate.delta
    times = f"{up(math.exp(epsilon))} times" if epsilon < 700 else "more than 10³⁰⁰ times"
    whose, it, used = ("row", "it", "row was") if certificate.unit is None else ("person", "them", "rows were")
    other = f"any one {whose} were left out"
    if certificate.relation == "replace-one":
        other = f"one {whose} were replaced by another"
    return [
        f"The release would look nearly the same if {other}: whatever somebody concludes from it is at most {times} as "
        f"probable with the {whose} as without {it}, and the other way round, but for a probability "
        f"of {one_in(delta)}.",
        f"So, somebody who knows every other {whose} and tests whether a person's {used} used, and who is wrong about "
        f"5 % of those who were not, finds at most {found_at_most(certificate)} of those who were.",
        "Everything computed from the release, any number of models on this page or elsewhere, is covered at no "
        "further cost.",
    ]


def found_at_most(certificate: Certificate) -> str:
    """Share of those present whom the best attacker finds, who accuses 5 % of the absent falsely; rounded up."""
    epsilon, delta = certificate.epsilon, certificate.delta
    caught = min(math.exp(min(epsilon, 700)) * 0.05 + delta, 1 - math.exp(-epsilon) * (0.95 - delta), 1.0)
    if isinstance(certificate.account, LatticeAccount) and not certificate.covers_ledger:
        caught = min(caught, certificate.account.hit_rate(0.05))
    return f"{math.ceil(1000 * caught) / 10:g} %"


def assumed(certificate: Certificate) -> tuple[str, ...]:
    """What nobody can check from the release."""
    exact = isinstance(certificate.account, LatticeAccount)
    whose = _ROWS if certificate.unit is None else _PERSONS
    return (*_ASSUMED[:2], whose, *_ASSUMED[2:], _ON_INTEGERS if exact else _IN_REAL_NUMBERS)


def conditions(certificate: Certificate) -> list[Condition]:
    """What voids the guarantee first, then what it rests on."""
    return sorted(certificate.conditions, key=lambda condition: not condition.void)


@dataclass(frozen=True)
class Field:
    """One line of the statement."""

    name: str
    value: str
    note: str = ""


def _budget(certificate: Certificate, whole: str, anew: str) -> list[Field]:
    return [
        Field("ε (epsilon)", number(certificate.epsilon), whole),
        Field("δ (delta)", number(certificate.delta), anew),
    ]


def fields_of(release: Release, curve: PrivacyCurve | None, *, valid: bool, file_sha256: str = "") -> list[Field]:
    """The statement, field by field."""
    certificate = release.certificate
    together = certificate.covers_ledger
    whole = "for all releases through one ledger together, this one among them: do not add them up" if together else ""
    anew = "" if curve is None else f"computed anew for this page: δ = {up(curve.certified_delta)} at this ε"
    return [
        *([] if valid else [Field("ε and δ (epsilon, delta)", "none: nothing is guaranteed", certificate.void_words)]),
        Field("Unit of privacy", certificate.unit_words),
        Field("Neighbouring relation", certificate.relation, certificate.relation_words),
        *(_budget(certificate, whole, "" if together else anew) if valid else []),
        Field("Bound on a row", number(certificate.row_norm), "norm of an encoded row; bounds per column below"),
        Field("Mechanism", certificate.mechanism_words, f"made by {certificate.made_by}"),
        Field("Noise", *_noise(release)),
        *_size(release),
        Field("Analysis", certificate.account.analysis, "what ε and δ were computed with"),
        Field("Generator", certificate.generator_words, f"recorded as {certificate.generator}"),
        Field("Trust model", "central: one trusted curator holds the rows"),
        Field("Library version", f"gaussmix {certificate.version}" if certificate.version else "not recorded"),
        Field("Time", certificate.time or "not recorded", "when the release was made, UTC"),
        Field("Schema", release.schema.fingerprint, "SHA-256 of the declared columns"),
        Field("Release", release.fingerprint, "SHA-256, as stored in the release's file"),
        *([Field("File", file_sha256, "SHA-256 of the release's file, as sha256sum prints it")] if file_sha256 else []),
        *_ledger(certificate),
    ]


def _ledger(certificate: Certificate) -> list[Field]:
    """Which ledger was charged, where the certificate says so."""
    if not certificate.ledger:
        return []
    return [Field("Ledger", certificate.ledger, f"entry {certificate.entry}")]


def _size(release: Release) -> list[Field]:
    """How many passes there were and what they are worth together; nothing without noise."""
    statistic, account = release.statistic, release.certificate.account
    if not isinstance(account, LatticeAccount):
        return []
    alone = "of this release alone; " if release.certificate.covers_ledger else ""
    fields = [
        Field("Passes", str(len(statistic.passes)), "each in the metric that the ones before it learned"),
        Field("μ (Gaussian DP)", up(account.mu), f"{alone}μ² of several releases adds up"),
        Field(
            "Best attack",
            f"{math.ceil(1000 * account.hit_rate()) / 10:g} %",
            f"{alone}of those present are found by whoever accuses 5 % of the absent falsely",
        ),
        Field("Slack", up(account.slack), "total variation between discrete and continuous noise, within δ"),
    ]
    if statistic.shortened is not None:
        fields.append(
            Field("Clipped", str(statistic.shortened), "rows far out in the last pass's metric are shortened")
        )
    return fields


def _noise(release: Release) -> tuple[str, str]:
    statistic = release.statistic
    if statistic.exact:
        return "none", ""
    least, most = (f"{value:.4g}" for value in (statistic.column_noise.min(), statistic.column_noise.max()))
    return (
        "discrete Gaussian on integers, symmetric",
        f"standard deviation of an entry of the second moment: {least} to {most} by column, in encoded units",
    )


def bounds_of(schema: Schema) -> dict[str, Any]:
    """The declared columns as a table."""
    rows = [_bound(name, column) for name, column in schema.columns.items()]
    for name in schema.only_in_terms:
        rows[list(schema.columns).index(name)][3] = "in terms only"
    if schema.weight is not None:
        rows[list(schema.columns).index(schema.weight)][3] = "weighs the rows"
    terms = [[name, "term", "", f"{weight:g}", "", ""] for name, weight in schema.terms.items()]
    constant = f"a constant column of {schema.intercept:g}" if schema.intercept else "no constant column"
    with_terms = f", {len(terms)} terms" if terms else ""
    return {
        "caption": f"{len(rows)} columns{with_terms} and {constant}; {schema.n_columns} encoded columns",
        "head": ["Column", "Kind", "Bounds or levels", "Weight", "Missing values", "Unknown levels"],
        "rows": rows + terms,
    }


def _bound(name: str, column: Column) -> list[str]:
    weight = f"{column.weight:g}"
    if isinstance(column, Numeric):
        since = f" days since {column.origin}" if column.origin is not None else ""
        bounds = f"{number(column.lower)} to {number(column.upper)}{since}"
        return [name, "date" if since else "numeric", bounds, weight, column.missing, ""]
    if isinstance(column, Boolean):
        return [name, "boolean", "false or true", weight, column.missing, ""]
    if isinstance(column, Vector):
        return [name, f"vector of {column.size}", _vector_bounds(column), weight, column.missing, ""]
    levels = [str(level) for level in column.levels]
    more = f" and {len(levels) - _LEVELS_SHOWN} more" if len(levels) > _LEVELS_SHOWN else ""
    shown = ", ".join(levels[:_LEVELS_SHOWN]) + more
    return [name, "categorical", shown, weight, column.missing, column.unknown]


def _vector_bounds(column: Vector) -> str:
    words = []
    if isinstance(column.lower, float) and isinstance(column.upper, float):
        words.append(f"entries {number(column.lower)} to {number(column.upper)}")
    elif column.bounded:
        words.append("entries within bounds of their own")
    if column.norm is not None:
        words.append(f"norm {number(column.norm)}")
    return ", ".join(words)


def parameters_of(certificate: Certificate) -> list[tuple[str, str]]:
    """Public parameters of the mechanism, name by name."""
    return [(name, plain_value(value)) for name, value in asdict(certificate.account).items()]
