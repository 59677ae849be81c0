"""Joint releases of several sites: the same loop, exact totals, what leaves a site, interrupted runs, ledgers."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.data.rows import rows_of
from gaussmix.mechanism import noise, passes, sites
from gaussmix.mechanism.sites import StoredSums, Study, _drawn, _Site, address_of, charge_once
from gaussmix.releases.certificate import TRUSTED_CURATOR, Certificate
from gaussmix.releases.preconditioning import budgets_of
from gaussmix.report.label import as_svg
from gaussmix.report.page import render
from gaussmix.report.registry import record_of
from gaussmix.report.statement import fields_of, up
from gaussmix.report.verify import verdict_on
from site_hub import Hub, ledger_of, run_all, study_of

SCHEMA = {"age": [18, 95], "sex": ["f", "m"], "cost": [0, 20]}


def table(seed, n=1500):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 95, n)
    return {"age": age, "sex": rng.choice(["f", "m"], n), "cost": np.clip(2 + 0.1 * age + rng.normal(size=n), 0, 20)}


def pooled(tables):
    return {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}


@pytest.fixture
def no_noise(monkeypatch):
    """Shares of noise that are zero, and the totals of a curator without noise."""
    monkeypatch.setattr(passes, "discrete_gaussian", lambda count, **_: np.zeros(count, dtype=np.int64))
    monkeypatch.setattr(passes, "symmetric_noise", lambda m, **_: np.zeros((m, m), dtype=np.int64))


class Plain:
    """A curator that keeps totals."""

    def __init__(self):
        self.totals = []

    def agree(self, question, *public):
        pass

    def share(self, sigma):
        return sigma

    def total(self, noisy):
        self.totals.append(noisy)
        return noisy


@pytest.mark.parametrize(("k", "t"), [(2, 1), (3, 1), (5, 2)])
def test_every_total_is_the_exact_sum_over_pooled_rows(tmp_path, monkeypatch, no_noise, k, t):
    """Marginals, counts, histograms and all passes: equal to those of one curator, in integers."""
    monkeypatch.setattr("gaussmix.models.release.Release.verify", lambda _: None)  # there is no noise
    tables = [table(i, 400 + 100 * i) for i in range(k)]
    study, hub = study_of(SCHEMA, k, t), Hub(k)
    released = run_all(study, tables, tmp_path, hub=hub)
    assert all(isinstance(one, gm.Release) for one in released), released
    curator, whole = Plain(), rows_of(pooled(tables), study.schema)
    with study.prepare(None) as prepared:
        account = study.account()
        found = whole.recoded(prepared.marginals.schema).aggregate(prepared.marginals.query)
        marginals = passes.draw_marginals(
            lambda: found, prepared.marginals, account, np.random.default_rng(0), parties=curator
        )
        coded = whole.recoded(study.schema.coded(marginals.thresholds()))
        passes.draw_passes(coded, coded.gram, account, np.random.default_rng(0), marginals=marginals, parties=curator)
    assert len(hub.inputs) == len(curator.totals) == 10
    for (_, inputs), exact in zip(hub.inputs, curator.totals, strict=True):
        flat = exact[np.triu_indices(len(exact))] if exact.ndim == 2 else exact
        assert [sum(column) for column in zip(*inputs, strict=True)] == [int(value) for value in flat]


def test_all_sites_have_the_same_file_and_it_verifies(tmp_path):
    tables = [table(i) for i in range(3)]
    study = study_of(SCHEMA)
    released = run_all(study, tables, tmp_path)
    contents = {one.to_bytes() for one in released}
    assert len(contents) == 1
    certificate = released[0].certificate
    assert (certificate.release, certificate.time, certificate.ledger) == (study.release, study.created, "")
    assert (certificate.sites.number, certificate.sites.colluding, certificate.sites.study) == (3, 1, study.hash)
    words = str(certificate)
    assert "against outsiders: (0.804, 1e-06)" in words
    assert "against any one of the 3 sites: (1, 1e-06)" in words
    verdict = verdict_on(contents.pop(), "joint.parquet")
    assert verdict.is_private
    assert 0.9e-6 < verdict.computed_delta <= 1e-6
    assert verdict.outsider_epsilon < 0.81
    assert "Against outsiders" in verdict.sentence


def test_reports_state_the_guarantee_against_sites(tmp_path):
    """Not the smaller μ of the published noise, which holds against outsiders only."""
    study = study_of(SCHEMA, passes=2)
    private = run_all(study, [table(i) for i in range(3)], tmp_path)[0]
    mu = study.sites.mu(study.account())
    assert private.certificate.guarantee.mu == mu > private.certificate.account.mu
    assert float(private.ols("cost").glance()["mu"].iloc[0]) == mu
    fields = {field.name: field for field in fields_of(private, None, valid=True)}
    assert fields["μ (Gaussian DP)"].value == up(mu)
    assert fields["Trust model"].value.startswith("federated")
    assert "against outsiders" in fields["Trust model"].note
    record = record_of(private)["deployment"]
    assert record["deployment_model"]["model_name"] == "Federated"
    assert f"is {mu:.6g}-Gaussian-DP" in record["privacy_loss"]["privacy_parameters_details"]
    assert up(mu) in as_svg(private)
    assert "federated" in render(private, response="cost")


def test_the_noise_of_a_site_is_its_share(tmp_path, monkeypatch):
    """σ of every draw, in exact rationals: (k - t) shares have at least a curator's variance for (ε, δ)."""
    sigmas, lone = [], passes.discrete_gaussian

    def drawn(count, *, sigma, rng, **rest):
        sigmas.append(sigma)
        return lone(count, sigma=sigma, rng=rng, **rest)

    monkeypatch.setattr(passes, "discrete_gaussian", drawn)
    monkeypatch.setattr(noise, "discrete_gaussian", drawn)
    study = study_of(SCHEMA, 5, 2)
    released = run_all(study, [table(i, 300) for i in range(5)], tmp_path)
    assert all(isinstance(one, gm.Release) for one in released)
    joint = sorted(sigmas)
    sigmas.clear()
    gm.release(table(9), SCHEMA, epsilon=study.epsilon, delta=study.delta)
    central = sorted(5 * sigmas)
    assert len(joint) == len(central)
    for share, whole in zip(joint, central, strict=True):
        ratio = 3 * Fraction(share) ** 2 / Fraction(whole) ** 2
        assert 1 - Fraction(1, 10**14) <= ratio <= 1 + Fraction(1, 10**8)


def test_nothing_but_hashes_and_noisy_sums_leaves_a_site(tmp_path):
    """All sites send the same messages, and neither their number nor their lengths depend on the rows."""
    study, found = study_of(SCHEMA, passes=2), []
    for number, n in enumerate((300, 900)):
        hub = Hub(3)
        folder = tmp_path / str(number)
        folder.mkdir()
        run_all(study, [table(0), table(1, n), table(2)], folder, hub=hub)
        found.append(hub)
        for doing, messages in hub.messages:
            assert len(set(messages)) == 1, doing  # what one site sends, the others send too
    first, second = found
    assert [doing for doing, _ in first.messages] == [doing for doing, _ in second.messages]
    assert [len(m[0]) for _, m in first.messages] == [len(m[0]) for _, m in second.messages]
    assert [[len(v) for v in inputs] for _, inputs in first.inputs] == [
        [len(v) for v in inputs] for _, inputs in second.inputs
    ]


def residuals(released, tables):
    """Noise of every pass over its stated standard deviation, from the exact sums over the pooled rows."""
    found, transcript = [], released.statistic
    rows = rows_of(pooled(tables), transcript.schema)
    for output in transcript.passes:
        sums = (
            rows.gram() if output.request is None else rows.mapped(output.request.metric.transform, output.request.clip)
        )
        difference = (output.matrix - (sums.high + sums.low / 2.0**40)) * output.mu
        above = np.triu_indices(len(difference))
        found.append(difference[above] * np.where(above[0] == above[1], 1.0, np.sqrt(2)))
    return np.concatenate(found)


@pytest.mark.parametrize(("k", "t"), [(3, 1), (5, 2)])
def test_the_noise_is_that_of_a_curator_times_the_price(tmp_path, k, t):
    """20 columns, 4 passes: noise over √(k/(k - t)) times a curator's is standard normal, by Kolmogorov and Smirnov.

    Noise and its absolute values are tested, at one in a million each. Power: 10 % more or less noise is rejected.
    """
    schema = {f"x{i}": [-3, 3] for i in range(20)}
    mix = np.random.default_rng(1).normal(size=(20, 20)) / 4
    seen = []
    study = study_of(schema, k, t)
    alone = budgets_of(study_of(schema, k, 0).account(), marginals=True).passes
    for run in range(8):
        rng, folder = np.random.default_rng(run), tmp_path / str(run)
        folder.mkdir()
        tables = [dict(zip(schema, (rng.normal(size=(600, 20)) @ mix).T, strict=True)) for _ in range(k)]
        released = run_all(study, tables, folder)
        for output, mu in zip(released[0].statistic.passes, alone, strict=True):
            assert mu / output.mu == pytest.approx(np.sqrt(k / (k - t)), rel=1e-12)
        seen.append(residuals(released[0], tables))
    values = np.concatenate(seen)
    assert len(values) == 8 * 4 * 21 * 22 / 2
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert stats.kstest(np.abs(values), "halfnorm").pvalue > 1e-6
    for factor in (0.9, 1.1):
        assert stats.kstest(factor * np.abs(values), "halfnorm").pvalue < 1e-6


# ---------------------------------------------------------------------------------------------------------------
# Ledgers and interrupted runs
def spent(folder, site):
    return [entry.mu for entry in ledger_of(folder, site).entries()]


def test_each_ledger_is_charged_what_colluding_sites_may_see(tmp_path):
    study = study_of(SCHEMA)
    run_all(study, [table(i) for i in range(3)], tmp_path)
    account = study.account()
    for site in (1, 2, 3):
        (entry,) = ledger_of(tmp_path, site).entries()
        assert entry.release == study.release
        assert entry.mu == study.sites.mu(account) > account.mu


STEPS = ["comparing studies", "agreeing on Marginals", "before Marginals", "after Marginals", "before Pass 1"]
STEPS += ["after Pass 1", "agreeing on Pass 2 of 2, row norms", "before Pass 2 of 2", "after Pass 2 of 2"]


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_was_killed_continues_with_the_same_noise(tmp_path, step):
    """In every phase: nothing is charged twice, sums that were sent are sent again, and the release is made."""
    study, tables = study_of(SCHEMA, passes=2), [table(i) for i in range(3)]
    killed = Hub(3, stop=(2, step))
    ended = run_all(study, tables, tmp_path, hub=killed)
    assert isinstance(ended[1], KeyboardInterrupt)
    assert all(isinstance(error, gm.SiteError) for error in (ended[0], ended[2])), ended
    charged = [len(spent(tmp_path, site)) for site in (1, 2, 3)]
    assert charged == [0 if step == "comparing studies" else 1] * 3
    hub = Hub(3)
    released = run_all(study, tables, tmp_path, hub=hub)
    assert len({one.to_bytes() for one in released}) == 1
    for (_, before), (_, after) in zip(killed.inputs, hub.inputs, strict=False):
        assert before == after
    assert all(len(spent(tmp_path, site)) == 1 for site in (1, 2, 3))


def test_repeating_a_finished_study_gives_the_same_release(tmp_path):
    """Even with other rows: the attack of asking again for new noise gains nothing."""
    study = study_of(SCHEMA, passes=2)
    first = run_all(study, [table(i) for i in range(3)], tmp_path)
    second = run_all(study, [table(10 + i) for i in range(3)], tmp_path)
    assert {one.to_bytes() for one in first} == {one.to_bytes() for one in second}


def test_another_question_in_place_of_an_answered_one_is_refused(tmp_path):
    """A site that saw another first total must not answer the second question with a noise that is spent."""

    class Shifted(_Site):
        """A malicious site that adds to its input of the first opening."""

        def total(self, noisy):
            return super().total(noisy + 2**50 if self._number == 0 else noisy)

    study, tables = study_of(SCHEMA, passes=2), [table(i) for i in range(3)]
    killed = Hub(3, stop=(2, "before Pass 1"))
    run_all(study, tables, tmp_path, hub=killed)
    first, *_ = (tmp_path / "sums2").read_bytes().splitlines(keepends=True)
    (tmp_path / "sums2").write_bytes(first)  # it forgets what it sent
    hub = Hub(3)
    ended = run_all(study, tables, tmp_path, hub=hub, sites={2: Shifted})
    assert "a different query" in str(ended[0])
    assert "a different query" in str(ended[2])
    for site in (0, 2):  # what honest sites sent is what they sent before
        assert [inputs[site] for _, inputs in hub.inputs] == [inputs[site] for _, inputs in killed.inputs][:1]


def test_lost_sums_of_a_recorded_study_are_not_drawn_again(tmp_path):
    study, tables = study_of(SCHEMA, passes=1), [table(i) for i in range(3)]
    run_all(study, tables, tmp_path)
    (tmp_path / "sums2").unlink()
    ended = run_all(study, tables, tmp_path)
    assert isinstance(ended[1], gm.LedgerError)
    assert "new noise" in str(ended[1])
    assert all(len(spent(tmp_path, site)) == 1 for site in (1, 2, 3))


@pytest.mark.parametrize("lost", [False, True])
def test_another_file_of_sums_is_refused(tmp_path, lost):
    """Site 1 begins a second run, which has checked its budget, before the first: with a file of its own, or a new one.

    Its noise would be new, and the ledger is charged once.
    """
    study, tables = study_of(SCHEMA, passes=1, topcode=False), [table(i) for i in range(3)]
    first, second, path = Hub(3), Hub(3), tmp_path / ("sums1" if lost else "other")
    stored = StoredSums(path, study, 1)

    def transport():
        assert all(isinstance(one, gm.Release) for one in run_all(study, tables, tmp_path, hub=first))
        if lost:
            path.unlink()
        return Alone()

    class Alone:
        """The greetings of sites that have nothing else to say."""

        def exchange(self, message, doing):
            return [message] * 3

        def sum(self, values, doing):
            raise AssertionError("new noise was sent")

    joint = _Site(study, transport, ledger_of(tmp_path, 1), stored, details={}, say=lambda line: None)
    with closing(stored), pytest.raises(gm.LedgerError, match="another run"):
        _drawn(joint, study, tables[0], gm.ReadOptions(), out=None, force=False)
    if not lost:  # found before the others are met, the next time
        path.rename(tmp_path / "sums1")
        ended = run_all(study, tables, tmp_path, hub=second)
        assert isinstance(ended[0], gm.LedgerError)
        assert second.messages == []
    assert len(spent(tmp_path, 1)) == 1


def test_of_two_runs_the_ledger_chooses_one(tmp_path, monkeypatch):
    """Both find the study unrecorded; the second to record it is refused."""
    study, ledger = study_of(SCHEMA, passes=1), ledger_of(tmp_path, 1)
    real, seen = sites.recorded_run, []

    def late(*arguments):
        seen.append(real(*arguments))
        if len(seen) == 1:
            charge_once(study, ledger, "a" * 32, mu=0.1, delta_slack=1e-9)
            return None
        return real(*arguments)

    monkeypatch.setattr(sites, "recorded_run", late)
    with pytest.raises(gm.LedgerError, match="another run"):
        charge_once(study, ledger, "b" * 32, mu=0.1, delta_slack=1e-9)
    charge_once(study, ledger, "a" * 32, mu=0.1, delta_slack=1e-9)
    (entry,) = ledger.entries()
    assert entry.note.endswith("a" * 32)


@pytest.mark.parametrize("content", ['{"age":[18,95]}', "a\n", "[1]\n", '{"run": 1}\n', "[" * 60_000 + "\n"])
def test_files_of_others_are_not_overwritten(tmp_path, content):
    path = tmp_path / "schema.json"
    path.write_text(content)
    stored = StoredSums(path, study_of(SCHEMA), 1)
    for attempt in (lambda: stored.exists, lambda: stored.is_empty, stored.create):
        with pytest.raises(gm.ArgumentError, match="Choose another file"):
            attempt()
    stored.close()
    assert path.read_text() == content


def test_a_file_of_sums_that_was_replaced_is_not_read(tmp_path):
    """A run continues with the file that it has locked; the other file has another identifier."""
    study, path = study_of(SCHEMA), tmp_path / "sums"
    first, second = StoredSums(path, study, 1), StoredSums(path, study, 1)
    first.create()
    path.unlink()
    second.create()
    second.kept(1, "q", [5])
    assert first.run != second.run
    assert first.kept(1, "q", [6]) == [6]
    first.close()
    second.close()


def test_sums_without_their_ledger_are_refused(tmp_path):
    study, tables = study_of(SCHEMA, passes=1), [table(i) for i in range(3)]
    run_all(study, tables, tmp_path)
    (tmp_path / "site2.ledger").unlink()
    ended = run_all(study, tables, tmp_path)
    assert "ledger of the first run" in str(ended[1])
    assert spent(tmp_path, 2) == []


def test_a_ledger_without_room_ends_the_run_before_others_are_met(tmp_path):
    study = study_of(SCHEMA, passes=1)
    gm.Ledger(tmp_path / "site2.ledger", epsilon=0.1, delta=1e-6)
    ended = run_all(study, [table(i) for i in range(3)], tmp_path)
    assert isinstance(ended[1], gm.BudgetExceededError)
    assert [spent(tmp_path, site) for site in (1, 2, 3)] == [[], [], []]


@pytest.mark.parametrize("options", [{"neighbours": "replace-one"}, {"privacy_unit": "id"}])
def test_a_ledger_for_another_relation_is_refused(tmp_path, options):
    study = study_of(SCHEMA, passes=1)
    gm.Ledger(tmp_path / "site2.ledger", epsilon=3.0, delta=1e-5, **options)
    ended = run_all(study, [table(i) for i in range(3)], tmp_path)
    assert isinstance(ended[1], gm.ArgumentError)


def test_sums_are_stored_once(tmp_path):
    study, path = study_of(SCHEMA, passes=1), tmp_path / "sums"
    stored = StoredSums(path, study, 1)
    assert not stored.exists
    assert stored.is_empty
    stored.create()
    assert stored.exists
    assert stored.is_empty
    assert path.stat().st_mode & 0o777 == 0o600
    assert stored.kept(1, "q", [5, -(2**100)]) == [5, -(2**100)]
    assert stored.kept(1, "q", [7, 8]) == [5, -(2**100)]
    with pytest.raises(gm.SiteError, match="a different query at this step"):
        stored.kept(1, "r", [7, 8])
    with pytest.raises(gm.SiteError, match="in use"):
        StoredSums(path, study, 1).create()
    with pytest.raises(gm.DamagedError):  # a sum before it is missing
        stored.kept(3, "s", [7, 8])
    stored.close()
    with pytest.raises(gm.ArgumentError, match="does not contain the sums of this study and site"):
        _ = StoredSums(path, study, 2).exists


def test_a_sum_that_was_being_written_is_forgotten(tmp_path):
    """The computer stopped before the line was complete, and so before it was sent."""
    study, path = study_of(SCHEMA, passes=1), tmp_path / "sums"
    stored = StoredSums(path, study, 1)
    stored.create()
    stored.kept(1, "q", [5, 6])
    stored.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    again = StoredSums(path, study, 1)
    again.create()
    assert again.kept(1, "q", [7, 8]) == [7, 8]
    again.close()
    path.write_bytes(whole.replace(b'"sum"', b'"sun"'))
    damaged = StoredSums(path, study, 1)
    damaged.create()
    with pytest.raises(gm.DamagedError):
        damaged.kept(1, "q", [7, 8])
    damaged.close()


@pytest.mark.parametrize("path", ["no/sums", "."])
def test_sums_that_cannot_be_stored_end_the_run_before_anything_is_spent(tmp_path, path):
    stored = StoredSums(tmp_path / path, study_of(SCHEMA), 1)
    with pytest.raises(gm.OutputError):
        stored.create()


# ---------------------------------------------------------------------------------------------------------------
# Sites that disagree
def test_sites_with_different_studies_stop_before_anything_is_spent(tmp_path):
    study = study_of(SCHEMA)
    for other in (
        replace(study, epsilon=2.0),
        replace(study, schema=gm.Schema.of({**SCHEMA, "cost": [0, 21]})),
        replace(study, colluding=1, timeout=21.0),
    ):
        ended = run_all(study, [table(i) for i in range(3)], tmp_path, studies=[study, study, other])
        assert all(isinstance(error, gm.SiteError) for error in ended), ended
        assert "Site 3 (site 3) has a different study file" in str(ended[0])
        assert [spent(tmp_path, site) for site in (1, 2, 3)] == [[], [], []]


def test_sites_with_different_software_stop_before_anything_is_spent(tmp_path):
    ended = run_all(
        study_of(SCHEMA), [table(i) for i in range(3)], tmp_path, details={2: {"gaussmix": "0.0.1\x1b[31m"}}
    )
    assert "Site 2 (site 2) has a different gaussmix: 0.0.1\\x1b[31m there, test here" in str(ended[0])
    assert [spent(tmp_path, site) for site in (1, 2, 3)] == [[], [], []]


@pytest.mark.parametrize("greeting", [b"[" * 60_000, b"\xff", b"{}", b"[1]", b"1" * 2**17, b""])
def test_a_malformed_greeting_ends_the_run_before_anything_is_spent(tmp_path, greeting):
    class Rude(_Site):
        def _compare(self, mine):
            self._mesh.exchange(greeting, "comparing studies")

    ended = run_all(study_of(SCHEMA, passes=1), [table(i) for i in range(3)], tmp_path, sites={2: Rude})
    assert "Site 2 (site 2) did not send a valid first message" in str(ended[0])
    assert [spent(tmp_path, site) for site in (1, 3)] == [[], []]


def test_a_site_that_computes_another_clip_is_found_before_the_pass(tmp_path):
    class Wider(_Site):
        def agree(self, question, *public):
            if question == "Pass 2 of 2":
                public = (public[0], 2 * public[1], *public[2:])
            super().agree(question, *public)

    hub = Hub(3)
    ended = run_all(study_of(SCHEMA, passes=2), [table(i) for i in range(3)], tmp_path, hub=hub, sites={2: Wider})
    assert "Site 2 (site 2) sent a different query for Pass 2 of 2" in str(ended[0])
    assert "Pass 2 of 2" not in [doing for doing, _ in hub.inputs]


def test_sites_that_were_shown_different_totals_stop(tmp_path):
    """A malicious site sends inconsistent shares: the next question is not answered."""
    hub = Hub(3, shifted=(3, "Pass 1"))
    ended = run_all(study_of(SCHEMA, passes=2), [table(i) for i in range(3)], tmp_path, hub=hub)
    assert "Site 3 (site 3) sent a different query for Pass 1" in str(ended[0])
    assert all(isinstance(error, gm.SiteError) for error in ended)
    assert len(hub.inputs) == 3  # two marginals and the matrix of the first pass


def test_sites_that_were_shown_different_last_totals_notice(tmp_path):
    hub = Hub(3, shifted=(3, "Pass 2 of 2"))
    ended = run_all(study_of(SCHEMA, passes=2), [table(i) for i in range(3)], tmp_path, hub=hub)
    assert "Site 3 (site 3) computed a different release" in str(ended[0])


def test_schemas_of_every_kind(tmp_path):
    """Vectors, which have no marginals; weights and terms; declared tables."""
    rng = np.random.default_rng(0)
    vectors = [{"X": rng.normal(size=(500, 3)), "y": rng.normal(size=500)} for _ in range(3)]
    kinds = [(study_of({"X": {"size": 3, "norm": 3.0}, "y": [-3, 3]}, passes=2), vectors)]
    weighted = [{**table(i), "w": rng.uniform(0, 2, 1500)} for i in range(3)]
    schema = {**SCHEMA, "w": [0, 2], "old": "boolean"}
    weighted = [{**one, "old": one["age"] > 60} for one in weighted]
    kinds.append((study_of(schema, passes=2, weight="w", tables=[("sex", "old")], neighbours="replace-one"), weighted))
    for number, (study, tables) in enumerate(kinds):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = {"neighbours": study.neighbours}
        released = run_all(study, tables, folder, ledger=ledger)
        assert all(isinstance(one, gm.Release) for one in released), released
        assert len({one.to_bytes() for one in released}) == 1
        assert Study.parse(study.to_toml()).hash == study.hash


def test_a_site_with_another_table_stops_before_it_meets_others(tmp_path):
    tables = [table(i) for i in range(3)]
    del tables[1]["cost"]
    ended = run_all(study_of(SCHEMA, passes=1), tables, tmp_path)
    assert isinstance(ended[1], gm.DataError)
    assert [spent(tmp_path, site) for site in (1, 2, 3)] == [[], [], []]


def test_a_query_needs_a_study_that_allows_it(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE r AS SELECT 18 + i % 70 AS age, 'f' AS sex, i % 20 AS cost FROM range(900) t(i)"
        )
    from gaussmix.data.engines import DuckDBQuery

    tables = [DuckDBQuery(path, "SELECT * FROM r"), table(1), table(2)]
    ended = run_all(study_of(SCHEMA, passes=1), tables, tmp_path)
    assert "row_by_row" in str(ended[0])
    released = run_all(study_of(SCHEMA, passes=1, row_by_row=True), tables, tmp_path)
    assert len({one.to_bytes() for one in released}) == 1
    assert "result of a query" in str(released[1].certificate)


# ---------------------------------------------------------------------------------------------------------------
# Privacy units, certificates, study files
def test_persons_at_sites(tmp_path):
    unit = gm.PrivacyUnit("id", 3)
    tables = [{**table(i), "id": np.repeat(np.arange(500), 3).astype(str)} for i in range(3)]
    for s, words in ((1, "one unit is held by one site"), (2, "one unit is held by at most 2 sites")):
        folder = tmp_path / str(s)
        folder.mkdir()
        study = study_of(SCHEMA, passes=2, privacy_unit=unit, sites_per_unit=s)
        released = run_all(study, tables, folder, ledger={"privacy_unit": "id"})
        assert len({one.to_bytes() for one in released}) == 1, released
        certificate = released[0].certificate
        assert certificate.privacy_unit == unit
        assert words in str(certificate)
        assert certificate.sites.mu(certificate.account) <= 0.2367 < s * certificate.account.mu * 1.2248


def edited(certificate, **changes):
    stored = json.loads(json.dumps(certificate.to_dict()))
    for key, value in changes.items():
        place, _, name = key.partition("__")
        if name:
            stored[place][name] = value
        else:
            stored[place] = value
    return Certificate.from_dict(stored)


def test_a_certificate_that_claims_more_is_refused(tmp_path):
    certificate = run_all(study_of(SCHEMA, 5, 1, passes=1), [table(i) for i in range(5)], tmp_path)[0].certificate
    assert edited(certificate) == certificate
    with pytest.raises(gm.NotPrivateError, match="noise of 3 of 5 sites"):
        edited(certificate, sites__colluding=2)
    with pytest.raises(gm.NotPrivateError):
        edited(certificate, sites__sites_per_unit=2)
    with pytest.raises(gm.NotPrivateError, match="lacks a condition"):
        edited(certificate, conditions=certificate.to_dict()["conditions"][1:])
    with pytest.raises(gm.ArgumentError):
        edited(certificate, sites__number=4, sites__colluding=2)
    with pytest.raises(gm.NotPrivateError, match="does not state its sites"):
        edited(certificate, sites=None)
    outsider = certificate.sites.outsider_epsilon(certificate.account)  # smaller, and holds against outsiders only
    with pytest.raises(gm.NotPrivateError, match="must state its sites"):
        edited(certificate, sites=None, conditions=[], epsilon=outsider, account__epsilon=outsider)
    with pytest.raises(gm.NotPrivateError, match="not made by several sites"):
        edited(certificate, made_by="release")
    trusted = [*certificate.to_dict()["conditions"], asdict(TRUSTED_CURATOR)]
    with pytest.raises(gm.NotPrivateError, match="trusted a curator"):
        edited(certificate, conditions=trusted)


def test_study_files(tmp_path):
    unit = gm.PrivacyUnit("id", 3, "sample")
    study = study_of(SCHEMA, 5, 2, privacy_unit=unit, tables=[("sex", "sex")][:0], row_by_row=True)
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml(), encoding="utf-8")
    assert Study.read(path) == study
    assert study_of(SCHEMA, 5, 2).release != study_of(SCHEMA, 5, 2).release
    for wrong in (
        study.to_toml() + "extra = 1\n",
        study.to_toml().replace("passes = 4", "passes = true"),
        study.to_toml().replace("colluding = 2", "colluding = 3"),
        study.to_toml().replace("127.0.0.1:7001", "127.0.0.1:7002"),
        study.to_toml().replace("epsilon = 1.0\n", ""),
        "= 1",
    ):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(gm.DeclarationError, match=r"study\.toml"):
            Study.read(path)
    wrong = "extra = 1\n" + study.to_toml().replace("passes = 4", "passes = true").replace("epsilon = 1.0\n", "")
    listed = "It has missing keys: 'epsilon'; unknown keys: 'extra'; values of the wrong type: 'passes'."
    with pytest.raises(gm.DeclarationError, match=re.escape(listed)):
        Study.parse(wrong)
    with pytest.raises(gm.MissingFileError):
        Study.read(tmp_path / "none.toml")


@pytest.mark.parametrize("address", ["host", "host:0", "host:70000", "a b:1", 7, ""])
def test_invalid_addresses(address):
    with pytest.raises(gm.ArgumentError, match="host:port"):
        address_of(address)


def test_two_sites_add_the_whole_noise_each():
    """Neither has secrets from the other: what a site sends is private by itself."""
    study = study_of(SCHEMA, 2, 1)
    account, alone = study.account(), study_of(SCHEMA, 2, 0).account()
    assert study.sites.price == pytest.approx(2**0.5)
    for total, whole in zip(account.noise_mu, alone.noise_mu, strict=True):
        share = Fraction(study.sites.share(2.0**account.bits / total))
        assert share >= Fraction(2) ** account.bits / Fraction(whole) * (1 - Fraction(1, 10**15))
    with pytest.raises(gm.ArgumentError, match="colluding must be 1 with 2 sites"):
        study_of(SCHEMA, 2, 2)


def test_one_row_each_cannot_be_claimed_for_the_tables_of_sites():
    with pytest.raises(gm.ArgumentError, match="only for releases of tables made by per_unit"):
        study_of(SCHEMA, privacy_unit=gm.PrivacyUnit("id", 1, "unique"))
