"""Signatures of releases, and records of them for the public registry."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main
from gaussmix.errors import ArgumentError, NotPrivateError
from gaussmix.report.page import render
from gaussmix.report.registry import TO_FILL_IN, check_record, record_of
from gaussmix.report.verify import verify


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A release through a ledger, and its file."""
    folder = tmp_path_factory.mktemp("registry")
    ledger = gm.Ledger(folder / "p.ledger", epsilon=1.0, delta=1e-6, releases=2)
    file = folder / "r.parquet"
    release = gm.release(patients(500), schema=SCHEMA, budget=gm.Budget(ledger=ledger), passes=1, out=file)
    return release, file


def test_a_record_has_what_a_machine_knows_and_says_what_it_does_not(private, tmp_path):
    release, file = private
    out = tmp_path / "record.yaml"
    assert TO_FILL_IN in run("report", file, "--registry", out).stderr
    record = yaml.safe_load(out.read_text(encoding="utf-8"))
    check_record(record)
    deployment = record["deployment"]
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "all releases through one ledger" in deployment["privacy_loss"]["privacy_parameters_details"]
    assert "add-remove" in deployment["privacy_loss"]["privacy_unit_details"]
    assert deployment["deployment_model"]["model_name"] == "Central"
    assert "discrete Gaussian" in deployment["implementation"]["mechanisms"]
    assert "The running time of the computation" in deployment["implementation"]["mechanisms"]
    assert hashlib.sha256(file.read_bytes()).hexdigest() in deployment["implementation"]["additional_information"]
    assert release.certificate.ledger in deployment["implementation"]["additional_information"]
    assert deployment["basic"]["publication_date"] == release.certificate.time[:10]
    assert deployment["basic"]["name"] == deployment["implementation"]["justification"] == TO_FILL_IN
    assert "exists already" in run("report", file, "--registry", out, code=2).stderr
    assert "At least one of --out" in run("report", file, code=2).stderr


def test_a_record_is_checked_field_by_field(private):
    record = record_of(private[0])
    for path, value, words in [
        (("deployment", "administrative", "tier"), 4, r"administrative\.tier must be one of 1, 2, 3"),
        (("deployment", "administrative", "tier"), True, r"administrative\.tier must be one of"),
        (("deployment", "administrative", "status"), "Published", r"administrative\.status must be one of Draft"),
        (("url_slug",), None, r"record\.url_slug must be a string"),
        (("deployment", "basic", "name"), 3, r"deployment\.basic\.name must be a string"),
        (("deployment", "basic", "data_curators"), [], "data_curators must be a list with at least one entry"),
        (("deployment", "basic", "data_curators"), "An office", "data_curators must be a list"),
        (("deployment", "basic", "data_curators"), ["An office"], "exactly the fields data_curator_name, data_curator"),
        (("deployment", "basic", "data_curators", 0, "data_curator_name"), 7, "data_curator_name must be a string"),
        (("deployment", "administrative", "registry_authors"), [7], "registry_authors must be a string"),
        (("deployment", "deployment_model", "release_type"), "Continual release", "One release, Many releases"),
        (("deployment", "basic", "publication_date"), "tomorrow", "must be a date"),
        (("deployment", "basic", "publication_date"), 2026, "must be a date"),
        (("deployment", "dp_variant", "variant_name"), "Perfect", "variant_name must be one of"),
        (("deployment", "privacy_loss", "privacy_parameters", "epsilon"), "1", "epsilon must be a number"),
        (("deployment", "more"), "", "deployment must have"),
    ]:
        wrong = copy.deepcopy(record)
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(ArgumentError, match=words):
            check_record(wrong)
    with pytest.raises(ArgumentError, match="record must have exactly the fields url_slug"):
        check_record({})


REGISTRY_SCHEMA = json.loads((Path(__file__).parent / "registry_schema.json").read_text(encoding="utf-8"))


def filled_in(record):
    """Return the record with the choices of a person, in place of the placeholders that are values of a list."""
    filled = copy.deepcopy(record)
    basic = filled["deployment"]["basic"]
    assert basic["data_curators"][0]["data_curator_type"] == basic["data_product_sector"] == TO_FILL_IN
    basic["data_curators"][0]["data_curator_type"] = "Government"
    basic["data_product_sector"] = "Healthcare"
    return filled


def registry_errors(record):
    """Return where a record breaks the registry's schema."""
    checker = jsonschema.Draft202012Validator(
        REGISTRY_SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return sorted(error.json_path for error in checker.iter_errors(record))


def test_a_record_is_valid_by_the_schema_of_the_registry(private):
    record = record_of(private[0])
    assert registry_errors(filled_in(record)) == []
    assert registry_errors(record) == [
        "$.deployment.basic.data_curators[0].data_curator_type",
        "$.deployment.basic.data_product_sector",
    ]


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("administrative", "sources", "a field of an earlier schema"),
        ("administrative", "status", "Published"),
        ("basic", "publication_date", "yesterday"),
        ("basic", "data_curators", ["An office"]),
        ("privacy_loss", "privacy_parameters", {"epsilon": "1"}),
    ],
)
def test_the_schema_of_the_registry_rejects_other_records(private, section, field, value):
    record = filled_in(record_of(private[0]))
    record["deployment"][section][field] = value
    assert len(registry_errors(record)) == 1


def test_what_guarantees_nothing_has_no_record():
    seeded = gm.release(patients(500), schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1, random_state=0)
    with pytest.raises(NotPrivateError, match="cannot be registered"):
        record_of(seeded)


def test_the_page_shows_the_files_own_digest_and_the_ledger(private):
    release, file = private
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest in render(release, file_sha256=digest)
    assert release.certificate.ledger in render(release)


# ---------------------------------------------------------------------------------------------------------------
# Signatures
@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder = tmp_path_factory.mktemp("keys")
    plain = serialization.NoEncryption()
    made = {"one": ed25519.Ed25519PrivateKey.generate(), "other": ed25519.Ed25519PrivateKey.generate()}
    made["ec"] = ec.generate_private_key(ec.SECP256R1())
    for name, key in made.items():
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        (folder / f"{name}.pem").write_bytes(private)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / f"{name}.pub").write_bytes(public)
    return folder


def test_a_signature_cannot_be_stripped_changed_or_made_by_others(private, keys, tmp_path):
    file = tmp_path / "r.parquet"
    shutil.copy(private[1], file)
    sig = tmp_path / "r.parquet.sig"
    assert "is not signed" in run("verify", file, "--key", keys / "one.pub", code=5).stdout
    run("sign", file, "--key", keys / "one.pem")
    assert len(sig.read_bytes()) == 64
    assert "It is signed by" in run("verify", file, "--key", keys / "one.pub").stdout
    assert json.loads(run("verify", file, "--key", keys / "other.pub", "--json", code=5).stdout)["state"] == "unsigned"
    run("verify", file)  # who names no key asks for no signature
    assert "exists already" in run("sign", file, "--key", keys / "one.pem", code=2).stderr
    run("sign", file, "--key", keys / "other.pem", "--force")
    run("verify", file, "--key", keys / "other.pub")
    file.write_bytes(file.read_bytes() + b"\0")
    assert "does not match its signature" in run("verify", file, "--key", keys / "other.pub", code=5).stdout
    sig.unlink()
    run("verify", file, "--key", keys / "other.pub", code=5)


def test_the_bytes_that_are_loaded_are_those_that_were_signed(private, keys, tmp_path, monkeypatch):
    """A file that is replaced after it was opened once: what is verified, loaded and signed is what was read then."""
    file, key = tmp_path / "r.parquet", keys / "one.pub"
    shutil.copy(private[1], file)
    run("sign", file, "--key", keys / "one.pem")
    original, name = file.read_bytes(), private[0].certificate.release
    other = gm.release(patients(500), schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1, random_state=0).to_bytes()
    opened, times = io.open, []

    def replaced(path, *arguments, **options):
        handle = opened(path, *arguments, **options)
        if str(path) == str(file) and "r" in handle.mode:
            times.append(path)
            beside = tmp_path / "other"
            beside.write_bytes(other)
            beside.replace(file)
        return handle

    def once(use):
        file.write_bytes(original)
        times.clear()
        with monkeypatch.context() as patched:
            patched.setattr(io, "open", replaced)
            found = use()
        assert len(times) == 1
        assert file.read_bytes() == other
        return found

    assert once(lambda: verify(file, key=key)).release == name
    assert once(lambda: gm.load(file, key)).fingerprint == private[0].fingerprint
    assert once(lambda: gm.load(file, key=key.read_bytes())).certificate.release == name
    assert once(lambda: gm.load(file)).certificate.release == name
    once(lambda: run("sign", file, "--key", keys / "one.pem", "--force"))
    file.write_bytes(original)
    assert verify(file, key=key).is_private
    with pytest.raises(gm.DamagedError, match="with another key"):
        gm.load(file, key=keys / "other.pub")


def test_only_ed25519_keys_and_private_releases(private, keys, tmp_path):
    file = private[1]
    assert "Ed25519 private key" in run("sign", file, "--key", keys / "ec.pem", code=2).stderr
    assert "must be an unencrypted private key" in run("sign", file, "--key", keys / "one.pub", code=2).stderr
    assert "must be an unencrypted public key" in run("verify", file, "--key", keys / "one.pem", code=2).stderr
    seeded = tmp_path / "s.parquet"
    gm.release(patients(500), schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1, random_state=0).save(seeded)
    run("sign", seeded, "--key", keys / "one.pem", code=5)
    assert not seeded.with_name("s.parquet.sig").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_any_tool_can_check_a_signature(private, keys, tmp_path):
    file = tmp_path / "r.parquet"
    shutil.copy(private[1], file)
    run("sign", file, "--key", keys / "one.pem")
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", keys / "one.pub", "-rawin", "-in", file]
    done = subprocess.run([*command, "-sigfile", f"{file}.sig"], capture_output=True, text=True, check=False)
    assert "Verified Successfully" in done.stdout


def test_a_record_names_the_unit(private):
    release, _ = private
    rows = record_of(release)["deployment"]["privacy_loss"]
    assert (rows["privacy_unit"], rows["privacy_unit_details"][:28]) == ("Row-level", "The privacy unit is one row.")
    table = patients(500).assign(who=range(500))
    persons = gm.release(table, schema=SCHEMA, epsilon=1, delta=1e-6, passes=1, privacy_unit=gm.PrivacyUnit("who", 2))
    found = record_of(persons)["deployment"]["privacy_loss"]
    assert found["privacy_unit"] == "Person-level"
    assert "all rows with the same who" in found["privacy_unit_details"]
