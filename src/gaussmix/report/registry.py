"""A draft record of a release for the public registry of deployments of differential privacy.

**Private**: a function of the release. Names, purposes and access are placeholders to be filled in. The fields and
their values are those of tier 3 of the registry as of September 2026.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.errors import ArgumentError, MissingPackageError, NotPrivateError
from gaussmix.models.release import Release
from gaussmix.releases.certificate import Certificate
from gaussmix.report.statement import assumed, fields_of, is_valid

__all__ = ["TO_FILL_IN", "as_yaml", "check_record", "record_of"]

TO_FILL_IN = "TO BE FILLED IN"
"""Placeholder of fields that are not known to the library."""

_OF_THE_MECHANISM = ("Mechanism", "Noise", "Generator", "Library version")
"""Fields of the statement that describe the implementation."""

_TEXT, _NUMBER, _LIST = str, float, list
_FIELDS: dict[str, dict[str, Any]] = {
    "basic": {
        "name": _TEXT,
        "data_curators": _LIST,
        "intended_use": _TEXT,
        "data_product_type": _TEXT,
        "data_product_region": _TEXT,
        "data_product_sector": _TEXT,
        "description": _TEXT,
        "publication_date": _TEXT,
    },
    "dp_variant": {
        "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP"),
        "data_domain": _TEXT,
        "unprotected_quantities": _TEXT,
    },
    "privacy_loss": {
        "privacy_unit": _TEXT,
        "privacy_unit_details": _TEXT,
        "privacy_parameters": {"epsilon": _NUMBER, "delta": _NUMBER},
        "privacy_parameters_details": _TEXT,
    },
    "deployment_model": {
        "model_name": ("Central", "Local", "Shuffle", "Federated"),
        "model_name_details": _TEXT,
        "actors": _TEXT,
        "release_type": ("One release", "Continual release"),
        "release_type_details": _TEXT,
        "data_source_type": ("Static", "Dynamic"),
        "access_type": ("Interactive", "Non-interactive"),
        "access_type_details": _TEXT,
    },
    "accounting": {"post_processing": _TEXT, "composition": _TEXT},
    "implementation": {
        "preprocessing_and_hyperparameter_tuning": _TEXT,
        "mechanisms": _TEXT,
        "justification": _TEXT,
    },
    "administrative": {"sources": _TEXT, "registry_authors": _LIST},
}


def record_of(release: Release, *, file_sha256: str = "") -> dict[str, Any]:
    """Return the record as plain values, checked.

    Raises
    ------
    NotPrivateError
        If the release has no privacy guarantee.
    """
    if not is_valid(release):
        raise NotPrivateError("The release has no privacy guarantee and cannot be registered.")
    certificate = release.certificate
    record = {
        "url_slug": TO_FILL_IN,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(release),
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": f"Tables of any number of rows with {len(release.schema.columns)} declared columns, "
                "whose bounds and levels are in the release.",
                "unprotected_quantities": "None computed from the rows. The schema, the parameters of the noise and "
                "the time of the release are public.",
            },
            "privacy_loss": _privacy_loss(certificate),
            "deployment_model": _model(certificate),
            "accounting": _accounting(certificate),
            "implementation": _implementation(release),
            "administrative": {
                "sources": f"Release {certificate.release}"
                + (f"; SHA-256 of its file {file_sha256}" if file_sha256 else "")
                + (f"; ledger {certificate.ledger}, entry {certificate.entry}" if certificate.ledger else ""),
                "registry_authors": [TO_FILL_IN],
            },
        },
    }
    check_record(record)
    return record


def _basic(release: Release) -> dict[str, Any]:
    date = release.certificate.time[:10]
    names = ", ".join(release.schema.columns)
    return {
        "name": TO_FILL_IN,
        "data_curators": [{"data_curator_name": TO_FILL_IN, "data_curator_type": TO_FILL_IN}],
        "intended_use": TO_FILL_IN,
        "data_product_type": "Summary statistics",
        "data_product_region": TO_FILL_IN,
        "data_product_sector": TO_FILL_IN,
        "description": f"Noisy second moments of the columns {names}: regressions, means and correlations from them.",
        "publication_date": date or TO_FILL_IN,
    }


def _privacy_loss(certificate: Certificate) -> dict[str, Any]:
    whole = "They cover all releases through one ledger together. " if certificate.covers_ledger else ""
    account = certificate.account
    gaussian = ""
    if isinstance(account, LatticeAccount):
        alone = "This release alone is" if certificate.covers_ledger else "The release is"
        gaussian = f"{alone} {account.mu:.6g}-Gaussian-DP up to a slack of {account.slack:.3g} in total variation. "
    return {
        "privacy_unit": "Row-level" if certificate.privacy_unit is None else "Person-level",
        "privacy_unit_details": f"The privacy unit is {certificate.unit_words}. Neighbours ({certificate.neighbours}): "
        f"{certificate.relation_words}.",
        "privacy_parameters": {"epsilon": float(certificate.epsilon), "delta": float(certificate.delta)},
        "privacy_parameters_details": f"{whole}{gaussian}Analysis: {account.analysis}.",
    }


def _model(certificate: Certificate) -> dict[str, Any]:
    several = certificate.covers_ledger
    return {
        "model_name": "Central",
        "model_name_details": "A trusted curator holds the rows and runs the mechanism; only the release is published.",
        "actors": TO_FILL_IN,
        "release_type": "One release",
        "release_type_details": "Further releases of the same rows share the budget of the same ledger."
        if several
        else "Further releases of the same rows would add to the privacy loss.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
        "access_type_details": "Readers receive the release as a file and compute from it; the rows are not queried.",
    }


def _accounting(certificate: Certificate) -> dict[str, Any]:
    passes = isinstance(certificate.account, LatticeAccount) and len(certificate.account.noise_mu) > 1
    within = "Passes over the table are adaptive; their Gaussian-DP parameters are fixed in advance. "
    ledger = "Releases through the ledger: fully adaptive composition (privacy filter) with a budget fixed at creation."
    return {
        "post_processing": "Regression estimates, intervals and reports are computed from the release alone.",
        "composition": (within if passes else "One mechanism. ") + (ledger if certificate.covers_ledger else ""),
    }


def _implementation(release: Release) -> dict[str, Any]:
    certificate = release.certificate
    fields = fields_of(release, None, valid=True)
    kept = [f"{field.name}: {field.value}" for field in fields if field.name in _OF_THE_MECHANISM]
    return {
        "preprocessing_and_hyperparameter_tuning": "Values are clamped to declared bounds and encoded row by row; the "
        "library tuned no parameter on the rows. Source of the bounds: " + TO_FILL_IN,
        "mechanisms": "\n".join([*kept, *assumed(certificate)]),
        "justification": TO_FILL_IN,
    }


def check_record(record: Mapping[str, Any]) -> None:
    """Check that a record has exactly the fields of the registry, with valid types and values.

    Raises
    ------
    ArgumentError
        With the name of the invalid field.
    """
    if set(record) != {"url_slug", "status", "tier", "deployment"}:
        raise ArgumentError("A record must have the fields url_slug, status, tier and deployment.")
    if record["tier"] not in (1, 2, 3) or not isinstance(record["deployment"], Mapping):
        raise ArgumentError("tier must be 1, 2 or 3, and deployment an object.")
    _check(record["deployment"], _FIELDS, "deployment")
    date = record["deployment"]["basic"]["publication_date"]
    if date != TO_FILL_IN:
        try:
            datetime.date.fromisoformat(date)
        except ValueError:
            raise ArgumentError("deployment.basic.publication_date must be a date, YYYY-MM-DD.") from None


def _check(found: Any, fields: Mapping[str, Any], where: str) -> None:
    if not isinstance(found, Mapping) or set(found) != set(fields):
        raise ArgumentError(f"{where} must have exactly the fields {', '.join(fields)}.")
    for name, kind in fields.items():
        value, here = found[name], f"{where}.{name}"
        if isinstance(kind, Mapping):
            _check(value, kind, here)
        elif isinstance(kind, tuple):
            if value not in kind:
                raise ArgumentError(f"{here} must be one of {', '.join(kind)}.")
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise ArgumentError(f"{here} must be {kind.__name__}.")


def as_yaml(record: Mapping[str, Any]) -> str:
    """Return the record as YAML."""
    try:
        import yaml
    except ImportError:
        raise MissingPackageError('Records require PyYAML: pip install "gaussmix[yaml]".') from None
    text: str = yaml.safe_dump(dict(record), sort_keys=False, allow_unicode=True, width=100)
    return text
