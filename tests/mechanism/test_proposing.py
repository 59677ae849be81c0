"""Bounds and levels by noisy counts: what is found, what it costs, and how often a single row's key shows."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.accounting.thresholds import counts_account
from gaussmix.data.counts import COARSE_BINS, FineGrid, coarse_bins
from gaussmix.errors import BudgetExceededError, BudgetUnmetError, BudgetWarning, DataError, OutputError
from gaussmix.mechanism import bounds
from gaussmix.mechanism.bounds import propose_bounds
from gaussmix.models.bounds import coarse_bounds, distinct_levels, fine_bounds, usable
from gaussmix.releases.certificate import Certificate

FALSE_ALARM = 1e-6
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def table(n=40_000, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "year": rng.integers(1980, 2000, n).astype(float),
            "wage": np.exp(rng.normal(10, 0.7, n)),
            "change": rng.normal(0, 3, n),
            "job": rng.choice(["nurse", "clerk", "judge"], n, p=[0.6, 0.399, 0.001]),
            "code": rng.integers(1, 4, n),
        }
    )


KINDS = {"year": "number", "wage": "number", "change": "number", "job": "category", "code": "codes"}


def test_bounds_are_narrow_and_hold_nearly_all_rows():
    data = table()
    found = propose_bounds(data, KINDS, random_state=0, **BUDGET)
    columns = found.schema.columns
    assert 1968 <= columns["year"].lower <= 1980
    assert 2000 <= columns["year"].upper <= 2016
    for name in ("year", "wage", "change"):
        values = data[name].to_numpy()
        outside = np.mean((values < columns[name].lower) | (values > columns[name].upper))
        assert outside < 0.03
        assert columns[name].upper - columns[name].lower < 3 * np.ptp(values)
    assert columns["job"].levels == ("clerk", "nurse")  # the third has some 40 rows
    assert columns["job"].unknown == "other"
    assert columns["code"].levels == (1, 2, 3)
    assert found.left_out == ()
    gm.release(data, schema=found.schema, passes=1, **BUDGET).ols("wage")


def test_certificate_says_what_was_spent_and_is_read_back():
    found = propose_bounds(table(2000), KINDS, **BUDGET)
    certificate = found.certificate
    assert (certificate.epsilon, certificate.delta, certificate.made_by) == (1.0, 1e-6, "propose_bounds")
    assert certificate.is_private
    assert "noisy counts by column" in str(certificate)
    account = counts_account(1.0, 1e-6, grids=[COARSE_BINS] * 3, keys=2, refined=[129] * 3)
    assert certificate.account == account
    again = Certificate.from_dict(json.loads(json.dumps(certificate.to_dict())))
    assert again == certificate


def test_a_seed_voids_it_and_repeats_it():
    one, other = (propose_bounds(table(3000), KINDS, random_state=5, **BUDGET) for _ in range(2))
    assert one.schema == other.schema
    assert not one.certificate.is_private


def test_what_comes_once_has_powers_of_two_for_bounds():
    found = propose_bounds(iter(table().to_batches()), KINDS, random_state=0, **BUDGET)
    year = found.schema.columns["year"]
    assert (year.lower, year.upper) == (1024.0, 2048.0)
    assert len(found.certificate.account.lattice.noise_mu) == 5  # and all of the budget goes to one reading


def test_declared_columns_are_not_read_and_a_declared_bound_stays():
    data = table(5000).append_column("unread", pa.array([None] * 5000))
    found = propose_bounds(
        data,
        {"unread": [0, 1], "wage": {"lower": 0, "upper": None, "missing": "drop-row"}, "flag": "boolean"},
        **BUDGET,
    )
    assert list(found.schema.columns) == ["unread", "wage", "flag"]
    assert found.schema.columns["wage"].lower == 0.0
    assert found.schema.columns["wage"].missing == "drop-row"


def test_what_does_not_stand_out_is_left_out():
    data = pa.table({"id": [f"p{i}" for i in range(3000)], "x": np.zeros(3000), "y": np.arange(3000.0) + 1})
    found = propose_bounds(data, {"id": "category", "x": "number", "y": "number"}, random_state=0, **BUDGET)
    assert found.left_out == ("x", "id")
    assert list(found.schema.columns) == ["y"]
    with pytest.raises(BudgetUnmetError, match="The budget is spent"):
        propose_bounds(data, {"id": "category"}, **BUDGET)


def test_a_ledger_is_charged_for_noise_and_threshold(tmp_path):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=3)
    out = tmp_path / "schema.json"
    found = propose_bounds(table(20_000), KINDS, budget=gm.Budget(ledger=ledger, note="bounds"), out=out)
    assert gm.Schema.of(out) == found.schema
    (entry,) = ledger.entries()
    account = found.certificate.account
    assert entry.mu == account.mu
    assert entry.delta_slack >= account.threshold_delta > 0
    assert ledger.remaining().releases_left == 2
    assert ledger.remaining_releases(1) == 2
    assert (found.certificate.ledger, found.certificate.entry) == (ledger.fingerprint, 1)
    assert found.certificate.covers_ledger
    for _ in range(2):
        propose_bounds(table(500), {"code": "codes", "year": [0, 3000]}, budget=gm.Budget(ledger=ledger))
    with pytest.raises(BudgetExceededError, match="exceeds the remaining budget"):
        propose_bounds(table(500), KINDS, budget=gm.Budget(ledger=ledger))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "A budget is required"),
        ({"epsilon": 1.0, "delta": 1e-6, "budget": gm.Budget(1.0, 1e-6)}, "Pass either the budget or the two numbers"),
        ({"epsilon": 1.0, "delta": 1e-6, "tail": 0.7}, "tail must lie in"),
        ({"epsilon": 1.0, "delta": 1e-6, "most_levels": 0}, "most_levels must be"),
    ],
)
def test_arguments_are_settled_before_a_row_is_read(options, words):
    def unread():
        raise AssertionError("the rows were read")
        yield

    with pytest.raises(ValueError, match=words):
        propose_bounds(unread(), KINDS, **options)


def test_a_table_that_cannot_be_read_costs_nothing(tmp_path):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(DataError):
        propose_bounds({"year": ["x"]}, {"year": "number"}, budget=gm.Budget(ledger=ledger))
    assert ledger.entries() == []


def test_a_row_changes_no_other_rows_count():
    """Brute force: a row more changes one bin, and one key, of every column by one, and nothing else."""
    from gaussmix.data.counts import count_columns
    from gaussmix.data.schema import PartialSchema
    from gaussmix.data.table import open_table

    data, columns = table(200), PartialSchema.of(KINDS)
    whole = count_columns(open_table(data), columns)
    for left_out in range(0, 200, 7):
        rest = pa.concat_tables([data.slice(0, left_out), data.slice(left_out + 1)])
        less = count_columns(open_table(rest), columns)
        for name in columns.numbers:
            assert np.abs(whole.bins[name] - less.bins[name]).sum() == 1
        for name in columns.keys:
            assert sum(((whole.keys[name] - less.keys[name]) + (less.keys[name] - whole.keys[name])).values()) == 1


def shown(singles, *, delta):
    """How many of so many keys with one row each show; exact noise."""
    keys = [f"a{i}" for i in range(singles)] + ["there"] * 500
    found = propose_bounds({"key": keys}, {"key": "category"}, epsilon=1.0, delta=delta, most_levels=10**6)
    levels = found.schema.columns["key"].levels
    return sum(level[0] == "a" for level in levels), found


def test_one_row_changes_what_the_account_has_and_no_less(monkeypatch):
    """Exact counts with a row more, over the noise they get, given the same outputs: Σ(Δ/σ)² is μ², all of it."""
    seen, outputs, sigmas = [], [], []

    def noise(count, *, sigma, rng):
        sigmas.append(sigma)
        return np.rint(sigma * np.random.default_rng(len(sigmas)).standard_normal(count)).astype(np.int64)

    def add(exact, noise):
        if len(outputs) < 8:
            outputs.append(exact + noise.astype(object))
        seen.append(exact)
        return outputs[(len(seen) - 1) % 8]

    monkeypatch.setattr(bounds, "discrete_gaussian", noise)
    monkeypatch.setattr(bounds, "add_noise", add)
    rows = table(4000)
    found = propose_bounds(rows, KINDS, **BUDGET)
    propose_bounds(pa.concat_tables([rows, rows.slice(0, 1)]), KINDS, **BUDGET)
    changes = [float(np.sum((after - before) ** 2)) for before, after in zip(seen[:8], seen[8:], strict=True)]
    spent = sum(change / sigma**2 for change, sigma in zip(changes, sigmas, strict=False))
    mu2 = found.certificate.account.mu**2
    assert 0.9999 * mu2 < spent <= mu2


def test_a_key_of_one_row_shows_as_often_as_accounted_for():
    """An audit by brute force, with power: a threshold that is lower by a third of a row would be seen."""
    n, delta = 30_000, 0.2
    with pytest.warns(BudgetWarning, match="publishing one row in"):
        once, found = shown(n, delta=delta)
    account = found.certificate.account
    p = account.threshold_delta
    assert p == pytest.approx(delta / 5, rel=1e-6)
    assert stats.binom.sf(once - 1, n, p) > FALSE_ALARM  # not more often than said
    assert stats.binom.cdf(once, n, p) > FALSE_ALARM  # nor much less often: nothing is wasted
    sigma = 1 / account.lattice.noise_mu[0]
    lower = stats.norm.sf((account.threshold_in_rows - 1 - 1 / 3) / sigma)
    assert stats.binom.sf(lower * n, n, p) < FALSE_ALARM  # power


# ---------------------------------------------------------------------------------------------------------------
# From noisy counts to bounds
def test_coarse_bounds_ignore_noise_and_rare_bins():
    rng = np.random.default_rng(3)
    for _ in range(20):
        counts = rng.normal(0, 10, COARSE_BINS)
        counts[coarse_bins(np.array([-3.0, 20.0, 40.0]))] += [5000, 3000, 2000]
        assert coarse_bounds(counts, noise=10.0, columns=1) == (-4.0, 64.0)
    assert coarse_bounds(rng.normal(0, 10, COARSE_BINS), noise=10.0, columns=1) is None
    only_zero = np.zeros(COARSE_BINS)
    only_zero[COARSE_BINS // 2] = 1e6
    assert coarse_bounds(only_zero, noise=10.0, columns=1) is None
    counts = np.zeros(COARSE_BINS)
    counts[coarse_bins(np.array([1.5, 3.0, 100.0]))] = [1e6, 1e6, 100.0]
    assert coarse_bounds(counts, noise=1.0, columns=1, tail=1e-6) == (1.0, 128.0)
    assert coarse_bounds(counts, noise=1.0, columns=1, tail=1e-3) == (1.0, 4.0)  # a share may be beyond


def test_noise_in_empty_bins_gives_no_bounds():
    # 2,000 empty grids: with a false-alarm rate of 1e-6 all of them are empty with probability .998, with .01 none.
    rng = np.random.default_rng(5)
    found = sum(coarse_bounds(rng.standard_normal(COARSE_BINS), noise=1.0, columns=1) is not None for _ in range(2_000))
    assert found == 0


def test_fine_bounds_cut_off_empty_ends_and_no_more():
    rng = np.random.default_rng(4)
    grid = FineGrid.between(1024.0, 2048.0)
    widths = []
    for _ in range(40):
        counts = rng.normal(0, 20, grid.bins)
        counts[30:34] += 5000
        lower, upper = fine_bounds(counts, grid, noise=20.0)
        assert grid.edge(0) <= lower <= grid.edge(30)
        assert grid.edge(34) <= upper <= grid.edge(grid.bins)
        widths.append((upper - lower) / grid.step)
    assert np.median(widths) <= 8
    exact = np.zeros(grid.bins)
    exact[30:34] = 5000
    assert fine_bounds(exact, grid, noise=1e-9) == (grid.edge(30), grid.edge(34))
    assert fine_bounds(np.zeros(grid.bins), grid, noise=1.0) == (1024.0, 2048.0)


def test_bounds_are_ones_that_a_schema_can_have():
    assert usable((0.0, 8.0), {}) == (0.0, 8.0)
    assert usable((0.0, 8.0), {"lower": -1.0}) == (-1.0, 8.0)
    assert usable((0.0, 8.0), {"lower": 9.0}) is None
    assert usable((0.0, 2.0**-999), {}) is None
    lower, upper = usable((-(2.0**1000), 2.0**1000), {})
    gm.Numeric(lower, upper)
    assert math.isfinite(upper)


def test_levels_are_the_most_frequent_and_their_names_differ():
    counts = {"x": 5.0, "y": 9.0, "z": 7.0}
    assert distinct_levels("a", counts, taken=[], most=2)[0] == ("y", "z")
    levels, names = distinct_levels("a", counts, taken=["a=y"], most=2)
    assert levels == ("x", "z")
    assert names == {"a=y", "a=x", "a=z"}


def test_a_level_called_as_another_encoded_column_costs_no_error():
    n = 3000
    data = {"a": ["b=c"] * n + ["d"] * n, "a=b": ["c"] * n + ["e"] * n, "o": ["(other)"] * n + ["x"] * n}
    found = propose_bounds(data, dict.fromkeys(data, "category"), random_state=0, **BUDGET)
    assert found.schema.columns["a"].levels == ("b=c", "d")
    assert found.schema.columns["a=b"].levels == ("e",)
    assert found.schema.columns["o"].levels == ("x",)


def test_a_name_that_promises_no_schema_costs_nothing(tmp_path):
    ledger = gm.Ledger(tmp_path / "a.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(
        OutputError, match=r"x\.csv has the wrong suffix for a JSON schema\. Choose a name that ends in \.json"
    ):
        propose_bounds(table(500), KINDS, budget=gm.Budget(ledger=ledger), out=tmp_path / "x.csv")
    assert not ledger.entries()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_no_proposal_takes_the_place_of_its_ledger(tmp_path, ending):
    ledger = gm.Ledger(tmp_path / "a.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(OutputError, match="is the ledger or one of its files"):
        propose_bounds(table(500), KINDS, budget=gm.Budget(ledger=ledger), out=f"{ledger.path}{ending}", force=True)
    assert not ledger.entries()


# ---------------------------------------------------------------------------------------------------------------
# Privacy units
def panel(persons=4000, seed=0):
    """One to nine rows of each person, in random order."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(persons), rng.integers(1, 10, persons))
    rng.shuffle(who)
    return {"who": who, "pays": rng.uniform(0, 100, len(who)), "job": rng.choice(["a", "b"], len(who))}


PANEL = {"pays": "number", "job": "category"}


def test_a_unit_counts_once_however_many_rows_it_has(monkeypatch):
    """Exact counts of a table and of its neighbour, which has a unit of 5,000 rows more."""
    seen = []
    exact = bounds.count_columns
    monkeypatch.setattr(bounds, "count_columns", lambda *a: seen.append(exact(*a)) or seen[-1])
    base = panel()
    more = {
        name: np.append(values, {"who": [4000], "pays": [1e6], "job": ["zz"]}[name] * 5000)
        for name, values in base.items()
    }
    for data in (base, more):
        found = propose_bounds(data, PANEL, privacy_unit="who", random_state=0, **BUDGET)
        assert found.schema.columns["pays"].upper < 200
        assert found.schema.columns["job"].levels == ("a", "b")
    before, after = seen
    assert before.bins["pays"].sum() == sum(before.keys["job"].values()) == 4000
    assert after.bins["pays"].sum() == 4001
    assert after.bins["pays"][coarse_bins(np.array([1e6]))[0]] == after.keys["job"]["zz"] == 1


def test_the_certificate_of_a_proposal_names_the_unit(tmp_path):
    found = propose_bounds(panel(), PANEL, privacy_unit="who", **BUDGET)
    assert found.certificate.privacy_unit == gm.PrivacyUnit("who", 1, "sample")
    assert "all rows with the same who (one row sampled)" in str(found.certificate)
    assert Certificate.from_dict(found.certificate.to_dict()) == found.certificate
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=2, privacy_unit="who")
    budget = gm.Budget(ledger=ledger, share=0.2)
    with pytest.raises(gm.ArgumentError, match="but the release is for row-level privacy"):
        propose_bounds(panel(), PANEL, budget=budget)
    assert not ledger.entries()
    found = propose_bounds(panel(), PANEL, budget=budget, privacy_unit="who")
    gm.release(panel(), found.schema, budget=gm.Budget(ledger=ledger), privacy_unit=gm.PrivacyUnit("who", 5))
    assert len(ledger.entries()) == 2


def test_the_unit_is_not_a_column_to_propose():
    for schema in ({**PANEL, "who": "codes"}, {**PANEL, "who": [0, 5000]}):
        with pytest.raises(gm.DeclarationError, match="'who' is the privacy unit"):
            propose_bounds(panel(), schema, privacy_unit="who", **BUDGET)
