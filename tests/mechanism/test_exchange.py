"""Sites that trust a curator: requests and exact sums as files, noise drawn once."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.data.rows import rows_of
from gaussmix.mechanism import passes
from gaussmix.mechanism.exchange import _Curator, answer, collect
from gaussmix.mechanism.sites import StoredSums, run
from gaussmix.releases.certificate import TRUSTED_CURATOR
from site_hub import study_of

SCHEMA = {"age": [18, 95], "sex": ["f", "m"], "cost": [0, 20]}


def table(seed, n=1200):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 95, n)
    return {"age": age, "sex": rng.choice(["f", "m"], n), "cost": np.clip(2 + 0.1 * age + rng.normal(size=n), 0, 20)}


def finished(study, tables, folder, ledgers=None, **options):
    """Answer every request until the release is made."""
    for _ in range(30):
        try:
            return collect(study, folder, **options)
        except gm.SiteError as waiting:
            assert "is not fully answered" in str(waiting)  # noqa: PT017
            request = sorted(folder.glob("request-*.json"))[-1]
            for site, rows in enumerate(tables, 1):
                answer(study, request, rows, site=site, ledger=None if ledgers is None else ledgers[site - 1])
    raise AssertionError("never finished")


class Kept(passes._Draw):
    exact: list = []  # noqa: RUF012

    def _released(self, exact, noise):
        self.exact.append(exact.copy())
        return super()._released(exact, noise)


@pytest.mark.parametrize("unit", [None, gm.PrivacyUnit("id", 2)])
def test_sums_of_sites_are_those_of_the_pooled_rows(tmp_path, monkeypatch, unit):
    """Every exact sum, in integers, given the same noisy outputs before it."""
    monkeypatch.setattr(passes, "_Draw", Kept)
    tables = [table(i) for i in range(3)]
    if unit is not None:
        tables = [{**one, "id": np.repeat(np.arange(600) + 1000 * i, 2).astype(str)} for i, one in enumerate(tables)]
    study = study_of(SCHEMA, 3, 0, passes=3, privacy_unit=unit)
    private = finished(study, tables, tmp_path)
    Kept.exact.clear()
    again = collect(study, tmp_path)
    assert again.to_bytes() == private.to_bytes()  # noise is drawn once
    of_sites = list(Kept.exact)
    Kept.exact.clear()
    pooled = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}
    with (
        closing(StoredSums(tmp_path / "curator.sums", study, 0)) as stored,
        study.prepare(_Curator(study, stored)) as prepared,
    ):
        stored.create()
        whole = rows_of(pooled, study.schema, unit=unit, new_key=lambda: b"k" * 32)
        assert prepared.draw(whole).to_bytes() == private.to_bytes()
    assert len(of_sites) == len(Kept.exact) > 5
    for a, b in zip(of_sites, Kept.exact, strict=True):
        assert (a == b).all()


def test_the_certificate_is_that_of_one_table(tmp_path):
    study = study_of(SCHEMA, 2, 0, passes=2)
    private = finished(study, [table(0), table(1)], tmp_path, out=tmp_path / "r.parquet")
    certificate = gm.load(tmp_path / "r.parquet").certificate
    assert certificate == private.certificate
    assert certificate.sites is None
    assert TRUSTED_CURATOR in certificate.conditions
    with pytest.raises(gm.NotPrivateError, match="trust a curator"):
        replace(certificate, conditions=())
    assert certificate.account.mu == gm.release(table(2), SCHEMA, epsilon=1.0, delta=1e-6).certificate.account.mu


def test_what_a_site_checks(tmp_path):
    study, other = study_of(SCHEMA, 2, 0, passes=2), study_of(SCHEMA, 2, 0, passes=2)
    with pytest.raises(
        gm.SiteError, match=r"request-01.*Missing in .*: request-01\.site1\.sums, request-01\.site2\.sums"
    ):
        collect(study, tmp_path)
    request = tmp_path / "request-01.json"
    with pytest.raises(gm.SiteError, match="belongs to a different study"):
        answer(other, request, table(0), site=1)
    with pytest.raises(gm.ArgumentError, match="site"):
        answer(study, request, table(0), site=3)
    written = answer(study, request, table(0), site=1)
    assert written.stat().st_mode & 0o777 == 0o600
    with pytest.raises(gm.OutputExistsError):
        answer(study, request, table(0), site=1)
    (tmp_path / "request-01.site2.sums").write_bytes(written.read_bytes())
    with pytest.raises(gm.SiteError, match="comes from a different site"):
        collect(study, tmp_path)
    (tmp_path / "request-01.site2.sums").write_bytes(written.read_bytes().replace(b'"site": 1', b'"site": 2'))
    with pytest.raises(gm.DamagedError):
        collect(study, tmp_path)
    stored = json.loads(request.read_text())
    request.write_text(json.dumps({**stored, "query": {"kind": "rows"}}))
    with pytest.raises(gm.DamagedError, match="not a valid request"):
        answer(study, request, table(0), site=2)
    with pytest.raises(gm.SiteError, match="different request"):
        collect(study, tmp_path)


def test_ledgers_are_charged_once(tmp_path):
    study = study_of(SCHEMA, 2, 0, passes=1)
    ledger = gm.Ledger(tmp_path / "rows.ledger", epsilon=2.0, delta=1e-5)
    with pytest.raises(gm.SiteError):
        collect(study, tmp_path / "x")
    for _ in range(2):
        answer(study, tmp_path / "x" / "request-01.json", table(0), site=1, ledger=ledger, force=True)
    (entry,) = ledger.entries()
    assert (entry.release, entry.mu) == (study.release, study.account().mu)


def test_a_second_run_of_a_charged_study_is_refused(tmp_path):
    """In another folder, or without the file of noisy totals: it would be a second release with other noise."""
    study, tables = study_of(SCHEMA, 2, 0, passes=1, topcode=False), [table(0), table(1)]
    ledgers = [gm.Ledger(tmp_path / f"{i}.ledger", epsilon=1.001, delta=1.01e-6) for i in range(2)]
    private = finished(study, tables, tmp_path / "one", ledgers)
    assert collect(study, tmp_path / "one").to_bytes() == private.to_bytes()
    with pytest.raises(gm.SiteError, match="not fully answered"):
        collect(study, tmp_path / "two")
    for site in (1, 2):
        with pytest.raises(gm.LedgerError, match="another run"):
            answer(study, tmp_path / "two" / "request-01.json", tables[0], site=site, ledger=ledgers[site - 1])
    assert not list((tmp_path / "two").glob("*.site?.sums"))
    for copy in (tmp_path / "one").glob("request-01.site?.sums"):  # answers to the first run do not fit the second
        (tmp_path / "two" / copy.name).write_bytes(copy.read_bytes())
    with pytest.raises(gm.SiteError, match="answers a different request"):
        collect(study, tmp_path / "two")
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1]


@pytest.mark.parametrize("left", ["request-*", "request-*.sums"])
def test_totals_that_were_lost_are_not_drawn_again(tmp_path, left):
    study = study_of(SCHEMA, 2, 0, passes=1, topcode=False)
    finished(study, [table(0), table(1)], tmp_path)
    for path in set(tmp_path.iterdir()) - set(tmp_path.glob(left)):
        path.unlink()
    with pytest.raises(gm.SiteError, match="is missing"):
        collect(study, tmp_path)
    (tmp_path / "curator.sums").touch()
    with pytest.raises(gm.SiteError, match="is missing"):
        collect(study, tmp_path)


@pytest.mark.parametrize("options", [{"neighbours": "replace-one"}, {"privacy_unit": "id"}])
def test_a_ledger_for_another_relation_is_refused(tmp_path, options):
    study = study_of(SCHEMA, 2, 0, passes=1)
    ledger = gm.Ledger(tmp_path / "rows.ledger", epsilon=3.0, delta=1e-5, **options)
    with pytest.raises(gm.SiteError):
        collect(study, tmp_path / "x")
    with pytest.raises(gm.ArgumentError):
        answer(study, tmp_path / "x" / "request-01.json", table(0), site=1, ledger=ledger)
    assert ledger.entries() == []


def test_studies_say_whether_a_curator_is_trusted(tmp_path):
    with pytest.raises(gm.ArgumentError, match="do not trust a curator"):
        collect(study_of(SCHEMA, 3, 1), tmp_path)
    with pytest.raises(gm.ArgumentError, match="trust a curator"):
        run(study_of(SCHEMA, 3, 0), table(0), site=1, ledger=tmp_path / "none", keys=tmp_path)
