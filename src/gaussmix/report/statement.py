"""The privacy statement of a release, as fields that follow NIST SP 800-226 and as sentences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from gaussmix.accounting.curve import PrivacyCurve
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.schema import Schema
from gaussmix.errors import NotPrivateError
from gaussmix.models.release import Release
from gaussmix.releases.certificate import Certificate, Condition
from gaussmix.releases.counts import large_delta

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
    "number",
    "one_in",
    "parameters_of",
    "plain_value",
    "subject",
    "up",
]


def up(value: float) -> str:
    """Format a number with three significant digits, rounded up."""
    if not math.isfinite(value):
        return "∞"
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(value)):.3g}"


def number(value: float) -> str:
    """Format a declared number with all of its digits."""
    if not math.isfinite(value):
        return "∞ (infinite)"
    return repr(value).removesuffix(".0")


def one_in(probability: float) -> str:
    """Format a small probability as "one in N"."""
    if not 1e-15 <= probability <= 0.1:
        return number(probability)
    return f"one in {math.floor(1 / probability + 1e-6):,}"


def plain_value(value: Any) -> str:
    """Format a value, or a dictionary of values, with all digits."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {plain_value(part)}" for key, part in value.items())
    if value is None:
        return "none"
    return number(value) if isinstance(value, float) else str(value)


NOTHING = ("There is no privacy guarantee: this release may reveal individual rows. Do not publish it.",)
_LEVELS_SHOWN = 40


def subject(release: Release) -> str:
    """Return a description of the release, used as the default title."""
    columns = len(release.schema.columns)
    return f"A release of a table with {columns} declared column{'s' * (columns != 1)}"


def is_valid(release: Release) -> bool:
    """Return whether the certificate is valid: no condition voids it, and the recomputed guarantee supports it."""
    return banner(release) is None


def banner(release: Release) -> dict[str, str] | None:
    """Return the reason why the release has no guarantee; None if it has one."""
    certificate = release.certificate
    if not math.isfinite(certificate.epsilon):
        return {
            "heading": "Not private.",
            "text": "ε is infinite: this release contains sums over the rows without noise. Protect it like the rows.",
        }
    try:
        if isinstance(release.certificate.account, LatticeAccount):
            release.certificate.account.verify()
        release.verify()
    except NotPrivateError:
        return {
            "heading": "The certificate does not match the release.",
            "text": "ε recomputed from the noise of the release is larger than certified. Do not publish it.",
        }
    if not certificate.is_private:
        return {"heading": "The guarantee is void.", "text": "The reasons are listed below. Do not publish it."}
    return None


def in_plain_words(certificate: Certificate) -> list[str]:
    """Return (ε, δ) as sentences, with numbers rounded up."""
    epsilon, delta = certificate.epsilon, certificate.delta
    factor = up(math.exp(epsilon)) if epsilon < 700 else "more than 10³⁰⁰"
    unit = "row" if certificate.privacy_unit is None else "privacy unit"
    change = "Replacing" if certificate.neighbours == "replace-one" else "Adding or removing"
    return [
        f"{change} one {unit} changes the probability of any result derived from the release by at most a factor of "
        f"{factor}, except for an additional probability of {one_in(delta)}.",
        f"A membership-inference attack that knows every other {unit} and has a false-positive rate of 5 % has a "
        f"true-positive rate of at most {found_at_most(certificate)}.",
        "All results computed from the release, on this page or elsewhere, are covered at no further privacy cost.",
    ]


def found_at_most(certificate: Certificate) -> str:
    """Return the power of the best membership-inference attack at a 5 % false-positive rate, rounded up."""
    epsilon, delta = certificate.epsilon, certificate.delta
    caught = min(math.exp(min(epsilon, 700)) * 0.05 + delta, 1 - math.exp(-epsilon) * (0.95 - delta), 1.0)
    account = certificate.guarantee
    if isinstance(account, LatticeAccount) and not certificate.covers_ledger:
        caught = min(caught, account.attack_power(0.05))
    return f"{math.ceil(1000 * caught) / 10:g} %"


def assumed(certificate: Certificate) -> tuple[str, ...]:
    """Return the assumptions that cannot be verified from the release."""
    by_row, exact = certificate.privacy_unit is None, isinstance(certificate.account, LatticeAccount)
    held = "A trusted curator held the rows, ran the library and saw its errors."
    if certificate.sites is not None:
        held = "Each site held its own rows, ran the library and saw its errors."
    return (
        f"{held} The guarantee covers only this release and results computed from it.",
        "Bounds, levels and weights were chosen without looking at the rows, or by a private release whose budget is "
        "accounted for. Software cannot verify this.",
        "Each person contributes one row. The protection of a person with several rows is weaker."
        if by_row
        else "Each privacy unit has one value in the unit column. The protection of a unit with several values is "
        "weaker.",
        "Privacy losses of other releases of the same rows add up, unless a ledger covers them together.",
        "The running time of the computation is not protected.",
        "Sums over rows are exact integers and the noise is an exact discrete Gaussian: no floating-point rounding "
        "takes place between the rows and the release."
        if exact
        else "The proofs assume real arithmetic. Sums over rows are exact, and the release is rounded to a public grid "
        "of about a millionth of the noise; this does not prove that no floating-point attack exists.",
    )


def conditions(certificate: Certificate) -> list[Condition]:
    """Return the conditions of a certificate, those that void the guarantee first."""
    return sorted(certificate.conditions, key=lambda condition: not condition.void)


@dataclass(frozen=True)
class Field:
    """One line of the statement."""

    name: str
    value: str
    note: str = ""


def _trust(certificate: Certificate) -> tuple[str, str]:
    """Return who holds the rows; for several sites, also the two guarantees."""
    if certificate.sites is None:
        return "central: one trusted curator holds the rows", ""
    return "federated: each site holds its own rows, and only noisy totals are revealed", "; ".join(
        certificate.site_words
    )


def fields_of(release: Release, curve: PrivacyCurve | None, *, valid: bool, file_sha256: str = "") -> list[Field]:
    """Return the fields of the statement."""
    certificate, account, statistic = release.certificate, release.certificate.guarantee, release.statistic
    together = certificate.covers_ledger
    fields = [
        Field("Privacy unit", certificate.unit_words),
        Field("Neighbouring relation", certificate.neighbours, certificate.relation_words),
    ]
    if valid:
        covers = "for all releases through one ledger together, including this one; do not add them up"
        again = "" if curve is None else f"recomputed for this page: δ = {up(curve.certified_delta)} at this ε"
        fields.append(Field("ε (epsilon)", number(certificate.epsilon), covers if together else ""))
        notes = [large_delta(statistic, certificate.delta), "" if together else again]
        fields.append(Field("δ (delta)", number(certificate.delta), " ".join(filter(None, notes))))
    else:
        fields.insert(0, Field("ε and δ (epsilon, delta)", "no guarantee", certificate.void_words))
    noise = Field("Noise", "none")
    if not statistic.exact:
        least, most = (f"{value:.4g}" for value in (statistic.column_noise.min(), statistic.column_noise.max()))
        spread = f"standard deviation of an entry of the second moment: {least} to {most} by column, in encoded units"
        noise = Field("Noise", "symmetric matrix of discrete Gaussian integers", spread)
    fields += [
        Field("Row norm bound", number(certificate.row_norm), "norm of an encoded row; bounds per column below"),
        Field("Mechanism", certificate.mechanism_words, f"created by {certificate.made_by}"),
        noise,
    ]
    if isinstance(account, LatticeAccount):
        fields.append(Field("Passes", str(len(statistic.passes)), "each preconditioned by the previous passes"))
    if isinstance(account, LatticeAccount) and certificate.is_private:
        alone = "this release alone; " if together else ""
        attack = f"{alone}maximum true-positive rate of membership inference at a 5 % false-positive rate"
        fields += [
            Field("μ (Gaussian DP)", up(account.mu), f"{alone}μ² of several releases adds up"),
            Field("Attack power", f"{math.ceil(1000 * account.attack_power()) / 10:g} %", attack),
            Field("Slack", up(account.slack), "total variation between discrete and rounded Gaussian, included in δ"),
        ]
    if statistic.models:
        note = f"declared before the release, with {100 * statistic.model_share:g} % of μ²: scores and their squares"
        fields.append(Field("Declared models", "; ".join(str(own.model) for own in statistic.models), note))
    if statistic.coded:
        found = "thresholds estimated from noisy counts, or declared; models describe the top-coded table"
        fields.append(Field("Top-coded", "; ".join(statistic.coded.values()), found))
    if statistic.clipping_loss is not None:
        note = "high-leverage rows have weights below 1 in the last pass: Release.weights"
        fields.append(Field("Clipped", str(statistic.clipping_loss), note))
    fields += [
        Field("Analysis", account.analysis, "used to compute ε and δ"),
        Field("Generator", certificate.generator_words, f"recorded as {certificate.generator}"),
        Field("Trust model", *_trust(certificate)),
        Field("Library version", f"gaussmix {certificate.version}" if certificate.version else "not recorded"),
        Field("Time", certificate.time or "not recorded", "creation of the release, UTC"),
        Field("Schema", certificate.schema.fingerprint, "SHA-256 of the declared columns"),
        Field("Release", certificate.release, "identifier, as on the label"),
        Field("Content", release.fingerprint, "SHA-256 of statistics and certificate, as stored in the release file"),
    ]
    if file_sha256:
        fields.append(Field("File", file_sha256, "SHA-256 of the release file, as printed by sha256sum"))
    if certificate.ledger:
        fields.append(Field("Ledger", certificate.ledger, f"entry {certificate.entry}"))
    return fields


def bounds_of(schema: Schema) -> dict[str, Any]:
    """Return the declared columns as a table."""
    rows = [_bound(name, column) for name, column in schema.columns.items()]
    for name in schema.only_in_terms:
        rows[list(schema.columns).index(name)][3] = "in terms only"
    if schema.weight is not None:
        rows[list(schema.columns).index(schema.weight)][3] = "row weight"
    terms = [[name, "term", "", f"{weight:g}", "", ""] for name, weight in schema.terms.items()]
    constant = f"a constant column of {schema.intercept:g}" if schema.intercept else "no constant column"
    with_terms = f", {len(terms)} terms" if terms else ""
    return {
        "caption": f"{len(rows)} columns{with_terms} and {constant}; {schema.n_columns} encoded columns",
        "head": ["Column", "Kind", "Bounds or levels", "Weight", "Missing values", "Unknown levels"],
        "rows": rows + terms,
    }


def _bound(name: str, column: Column) -> list[str]:
    """Return name, kind, bounds or levels, weight, and how missing values and unknown levels are handled."""
    if isinstance(column, Numeric):
        since = f" days since {column.origin}" if column.origin is not None else ""
        kind, bounds = "date" if since else "numeric", f"{number(column.lower)} to {number(column.upper)}{since}"
    elif isinstance(column, Boolean):
        kind, bounds = "boolean", "false or true"
    elif isinstance(column, Vector):
        entries = "bounds per entry" if column.bounded else ""
        if isinstance(column.lower, float) and isinstance(column.upper, float):
            entries = f"entries {number(column.lower)} to {number(column.upper)}"
        norm = "" if column.norm is None else f"norm {number(column.norm)}"
        kind, bounds = f"vector of {column.size}", ", ".join(filter(None, [entries, norm]))
    else:
        more = len(column.levels) - _LEVELS_SHOWN
        kind, bounds = "categorical", ", ".join(str(level) for level in column.levels[:_LEVELS_SHOWN])
        bounds += f" and {more} more" if more > 0 else ""
    unknown = column.unknown if isinstance(column, Categorical) else ""
    return [name, kind, bounds, f"{column.weight:g}", column.missing, unknown]


def parameters_of(certificate: Certificate) -> list[tuple[str, str]]:
    """Return the names and values of the public parameters of the mechanism."""
    return [(name, plain_value(value)) for name, value in asdict(certificate.account).items()]
