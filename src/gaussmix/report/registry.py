"""A draft record of a release for the public registry of deployments of differential privacy.

**Private**: a function of the release. Names, purposes and access are placeholders to be filled in. Fields and
values are those of the registry's schema (``schemas/deployments-schema.yaml`` of opendp/deployments-registry-data,
commit 057e5d8). Its optional number of privacy units is left out: it is not public.
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

_FIELDS: dict[str, Any] = {
    "url_slug": str,
    "deployment": {
        "basic": {
            "name": str,
            "data_curators": [{"data_curator_name": str, "data_curator_type": str}],
            "intended_use": str,
            "data_product_type": str,
            "data_product_region": str,
            "data_product_sector": str,
            "description": str,
            "publication_date": datetime.date,
        },
        "dp_variant": {
            "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            "data_domain": str,
            "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_details": str,
            "privacy_parameters": {"epsilon": float, "delta": float},
            "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": ("Central", "Local", "Shuffle", "Federated"),
            "model_name_details": str,
            "actors": str,
            "release_type": ("One release", "Many releases"),
            "release_type_details": str,
            "data_source_type": ("Static", "Dynamic"),
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": str,
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str,
            "mechanisms": str,
            "composition": str,
            "post_processing": str,
            "justification": str,
            "additional_information": str,
        },
        "administrative": {
            "status": ("Draft", "Pending", "Changes Required", "Approved"),
            "registry_authors": [str],
            "tier": (1, 2, 3),
        },
    },
}
"""A type, a tuple of possible values, the fields of an object, or a list with the kind of its entries."""


def record_of(release: Release, *, file_sha256: str = "") -> dict[str, Any]:
    """Return the record as plain values, checked.

    Raises
    ------
    NotPrivateError
        If the release has no privacy guarantee.
    """
    if not is_valid(release):
        raise NotPrivateError("The release has no privacy guarantee and cannot be registered.")
    certificate, together = release.certificate, release.certificate.covers_ledger
    passes = isinstance(certificate.account, LatticeAccount) and len(certificate.account.noise_mu) > 1
    implementation = [
        f"{field.name}: {field.value}"
        for field in fields_of(release, None, valid=True)
        if field.name in ("Mechanism", "Noise", "Generator", "Library version")
    ]
    record = {
        "url_slug": TO_FILL_IN,
        "deployment": {
            "basic": {
                "name": TO_FILL_IN,
                "data_curators": [{"data_curator_name": TO_FILL_IN, "data_curator_type": TO_FILL_IN}],
                "intended_use": TO_FILL_IN,
                "data_product_type": "Summary statistics",
                "data_product_region": TO_FILL_IN,
                "data_product_sector": TO_FILL_IN,
                "description": f"Noisy second moments of the columns {', '.join(release.schema.columns)}, from which "
                "regressions, means and correlations are computed.",
                "publication_date": certificate.time[:10] or TO_FILL_IN,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": f"Tables of any number of rows with {len(release.schema.columns)} declared columns, "
                "whose bounds and levels are in the release.",
                "unprotected_quantities": "None computed from the rows. The schema, the parameters of the noise and "
                "the time of the release are public.",
            },
            "privacy_loss": _privacy_loss(certificate),
            "deployment_model": {
                **_model(certificate),
                "actors": TO_FILL_IN,
                "release_type": "One release",
                "release_type_details": "Further releases of the same rows share the budget of the same ledger."
                if together
                else "Further releases of the same rows would add to the privacy loss.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_details": "Readers receive the release as a file and compute from it; the rows are not "
                "queried.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Values are clamped to declared bounds and encoded row by "
                f"row; the library tuned no parameter on the rows. Source of the bounds: {TO_FILL_IN}",
                "mechanisms": "\n".join([*implementation, *assumed(certificate)]),
                "composition": (
                    "The passes over the table are adaptive, with Gaussian-DP parameters fixed in advance."
                    if passes
                    else "One mechanism."
                )
                + " Releases through the ledger: fully adaptive composition (privacy filter) with a budget fixed at "
                "creation." * together,
                "post_processing": "Regression estimates, intervals and reports are computed from the release alone.",
                "justification": TO_FILL_IN,
                "additional_information": f"Release {certificate.release}"
                + (f"; SHA-256 of its file {file_sha256}" if file_sha256 else "")
                + (f"; ledger {certificate.ledger}, entry {certificate.entry}" if certificate.ledger else ""),
            },
            "administrative": {"status": "Draft", "registry_authors": [TO_FILL_IN], "tier": 3},
        },
    }
    check_record(record)
    return record


def _model(certificate: Certificate) -> dict[str, str]:
    if certificate.sites is None:
        return {
            "model_name": "Central",
            "model_name_details": "A trusted curator holds the rows and runs the mechanism; only the release is "
            "published.",
        }
    words = "; ".join(certificate.site_words)
    return {
        "model_name": "Federated",
        "model_name_details": "Each site holds its own rows and adds its share of the noise; only noisy totals over "
        f"all sites are revealed, by secret sharing. Guarantees (epsilon, delta) {words}.",
    }


def _privacy_loss(certificate: Certificate) -> dict[str, Any]:
    account, together = certificate.guarantee, certificate.covers_ledger
    details = "They cover all releases through one ledger together. " if together else ""
    if isinstance(account, LatticeAccount):
        details += (
            f"{'This release alone' if together else 'The release'} is {account.mu:.6g}-Gaussian-DP up to a slack of "
            f"{account.slack:.3g} in total variation. "
        )
    return {
        "privacy_unit": "Row-level" if certificate.privacy_unit is None else "Person-level",
        "privacy_unit_details": f"The privacy unit is {certificate.unit_words}. Neighbours ({certificate.neighbours}): "
        f"{certificate.relation_words}.",
        "privacy_parameters": {"epsilon": float(certificate.epsilon), "delta": float(certificate.delta)},
        "privacy_parameters_details": f"{details}Analysis: {account.analysis}.",
    }


def check_record(record: Any) -> None:
    """Check that a record has exactly the fields of the registry, with valid types and values.

    Raises
    ------
    ArgumentError
        With the name of the invalid field.
    """
    _check(record, _FIELDS, "record")


def _check(value: Any, kind: Any, where: str) -> None:
    if isinstance(kind, dict):
        if not isinstance(value, Mapping) or set(value) != set(kind):
            raise ArgumentError(f"{where} must have exactly the fields {', '.join(kind)}.")
        for name, own in kind.items():
            _check(value[name], own, f"{where}.{name}")
    elif isinstance(kind, list):
        if not isinstance(value, list) or not value:
            raise ArgumentError(f"{where} must be a list with at least one entry, got {value!r}.")
        for entry in value:
            _check(entry, kind[0], where)
    elif isinstance(kind, tuple):
        if value not in kind or isinstance(value, bool):
            raise ArgumentError(f"{where} must be one of {', '.join(map(str, kind))}, got {value!r}.")
    elif kind is datetime.date:
        try:
            if value != TO_FILL_IN:
                datetime.date.fromisoformat(value)
        except (TypeError, ValueError):
            raise ArgumentError(f'{where} must be a date, such as "2020-01-31", got {value!r}.') from None
    elif not isinstance(value, kind):
        raise ArgumentError(f"{where} must be {'a string' if kind is str else 'a number'}, got {value!r}.")


def as_yaml(record: Mapping[str, Any]) -> str:
    """Return the record as YAML."""
    try:
        import yaml
    except ImportError:
        raise MissingPackageError('Registry records require PyYAML: pip install "gaussmix[yaml]".') from None
    return str(yaml.safe_dump(dict(record), sort_keys=False, allow_unicode=True, width=100))
