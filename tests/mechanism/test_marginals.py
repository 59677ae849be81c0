"""Marginals of a release: what one row or privacy unit can change in them, exactly, and that they are what they say."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.marginals import NONE_OF_THESE, cells_of, grid
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.mechanism.release import prepare
from gaussmix.releases.marginals import MarginalPlan, thresholds_of
from scripted_noise import Script, spent

SCHEMA = Schema.of(
    {
        "wage": {"lower": 0, "upper": 5000, "missing": "indicator"},
        "level": {"levels": ["a", "b", "c"], "unknown": "zero"},
        "ill": "boolean",
        "y": [-1, 1],
        "w": [0, 8],
    },
    terms=["poly(y, 2)", "level:ill"],
)
WEIGHTED = replace(SCHEMA, weight="w")
J = 3
TABLES = [("level", "ill")]


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "wage": np.where(rng.uniform(size=n) < 0.05, np.nan, np.exp(rng.normal(5, 1, n))),
            "level": rng.choice(["a", "b", "c", "?"], n, p=[0.6, 0.25, 0.1, 0.05]),
            "ill": rng.uniform(size=n) < 0.2,
            "y": np.clip(rng.normal(0, 0.4, n), -1, 1),
            "w": rng.uniform(0, 8, n),
            "who": rng.integers(0, n // 2, n),
        }
    )


CORNER = {"wage": 5000.0, "level": "c", "ill": True, "y": 1.0, "w": 8.0, "who": -1}
OPPOSITE = {"wage": 0.0, "level": "a", "ill": False, "y": -1.0, "w": 8.0, "who": -1}
ROWS = {
    "corner": CORNER,
    "opposite corner": OPPOSITE,
    "missing and unknown": CORNER | {"wage": math.nan, "level": "?"},
    "beyond the bounds": CORNER | {"wage": 1e300, "y": -1e300, "w": 1e300},
    "small weight": CORNER | {"w": 0.37},
    "like the others": {"wage": 150.0, "level": "a", "ill": False, "y": 0.1, "w": 4.0, "who": -1},
}


def with_rows(data, *rows):
    return pd.concat([data[:40], pd.DataFrame(rows), data[40:]], ignore_index=True)


def answers(monkeypatch, first, second, *, unit=None, neighbours="add-remove", schema=SCHEMA):
    """What two tables answer to the same questions of one release: exact sums, σ, and the account."""
    found, account, given = [], None, None
    for data in (first, second):
        budget = gm.Budget(1.0, 1e-6, neighbours=neighbours)
        with monkeypatch.context() as patch:
            script = Script(patch, outputs=given)
            plan = prepare(
                schema,
                budget,
                topcode="auto",
                tables=TABLES,
                marginals=True,
                unit=unit,
                random_state=0,
            )
            columns = list(schema.columns) + ([] if unit is None else [unit.column])
            private = plan.draw(plan.rows(data[columns]))
        given, account = script.given, private.certificate.account
        found.append((script.sums, script.sigmas))
    (first_sums, sigmas), (second_sums, again) = found
    assert all(np.array_equal(a, b) for a, b in zip(sigmas, again, strict=True))
    return [spent([a], [b], [s]) for a, b, s in zip(first_sums, second_sums, sigmas, strict=True)], account


@pytest.mark.parametrize("schema", [SCHEMA, WEIGHTED], ids=["rows", "weighted rows"])
@pytest.mark.parametrize("row", ROWS)
def test_one_row_changes_no_more_than_the_account_has(monkeypatch, row, schema):
    data = table()
    used, account = answers(monkeypatch, data, with_rows(data, ROWS[row]), schema=schema)
    counts, sums = (Fraction(part) ** 2 for part in account.noise_mu[-2:])
    assert used[0] <= counts
    assert used[1] <= sums
    assert sum(used) <= Fraction(account.mu) ** 2
    if row == "corner":  # the bounds are met, so no noise is too small
        assert used[0] >= counts * Fraction(999, 1000)
        assert used[1] >= sums * Fraction(999, 1000)


@pytest.mark.parametrize("row", ROWS)
def test_replacing_a_row_changes_no_more_than_the_account_has(monkeypatch, row):
    data = table()
    one, other = (with_rows(data, found) for found in (ROWS[row], OPPOSITE | {"w": 0.0}))
    used, account = answers(monkeypatch, one, other, neighbours="replace-one")
    assert used[0] <= 2 * Fraction(account.noise_mu[-2]) ** 2
    assert used[1] <= 2 * Fraction(account.noise_mu[-1]) ** 2
    assert sum(used) <= Fraction(account.mu) ** 2
    if row == "corner":
        assert used[0] >= 2 * Fraction(account.noise_mu[-2]) ** 2 * Fraction(999, 1000)
        assert used[1] >= Fraction(account.noise_mu[-1]) ** 2  # 4L of 2(2L + 1)


UNITS = [PrivacyUnit("who", J, "scale"), PrivacyUnit("who", J, "sample")]
PEOPLE = {
    "one row": [CORNER],
    "equal rows": [CORNER] * J,
    "many equal rows": [CORNER] * 7 * J,
    "all kinds of rows": list(ROWS.values()) * 2,
}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.contribution_bounding)
@pytest.mark.parametrize("schema", [SCHEMA, WEIGHTED], ids=["rows", "weighted rows"])
@pytest.mark.parametrize("person", PEOPLE)
def test_one_unit_changes_no_more_than_the_account_has(monkeypatch, person, schema, unit):
    data = table()
    used, account = answers(monkeypatch, data, with_rows(data, *PEOPLE[person]), schema=schema, unit=unit)
    counts, sums = (Fraction(part) ** 2 for part in account.noise_mu[-2:])
    assert used[0] <= counts
    assert used[1] <= sums
    assert sum(used) <= Fraction(account.mu) ** 2
    if "equal" in person:
        assert used[0] >= counts * Fraction(999, 1000)
        assert used[1] >= sums * Fraction(999, 1000)


@pytest.mark.slow
def test_random_neighbours_change_no_more_than_the_account_has(monkeypatch):
    """Two thousand pairs of tables, with rows drawn from corners, extremes and the table itself."""
    rng, data = np.random.default_rng(11), table(60)
    corners = list(ROWS.values())
    largest = Fraction(0)
    for _ in range(2000):
        schema, unit = (SCHEMA, WEIGHTED)[rng.integers(2)], [None, *UNITS][rng.integers(3)]
        added = [corners[rng.integers(len(corners))] for _ in range(1 if unit is None else rng.integers(1, 9))]
        query = MarginalPlan(schema, (("level", "ill"),), 1 if unit is None else J)
        found = []
        for rows in (data, with_rows(data, *added)):
            columns = list(schema.columns) + ([] if unit is None else [unit.column])
            source = rows_of(rows[columns], query.schema, unit=unit, new_key=lambda: bytes(32))
            sums = source.aggregate(query.query)
            source.close()
            found.append((sums.counts, np.concatenate([sums.sums, sums.squares])))
        (counts, sums), (more_counts, more_sums) = found
        most = query.max_contributions
        square = sum(Fraction(int(a) - int(b), 1 << 20) ** 2 for a, b in zip(counts, more_counts, strict=True))
        assert square <= len(query.cells.sizes) * most**2
        square_sums = sum(Fraction(int(a) - int(b), 1 << 40) ** 2 for a, b in zip(sums, more_sums, strict=True))
        bound = (2 * len(query.cells.numbers) + 1) * Fraction(query.schema.in_units(1.0), 1 << 20) ** 2
        assert square_sums <= bound * most**2
        if unit is None:  # the row replaced by another one
            other = with_rows(data, corners[rng.integers(len(corners))])[list(schema.columns)]
            instead = rows_of(other, query.schema).aggregate(query.query)
            changed = zip(more_sums, np.concatenate([instead.sums, instead.squares]), strict=True)
            assert sum(Fraction(int(a) - int(b), 1 << 40) ** 2 for a, b in changed) <= 2 * bound
        largest = max(largest, square / (len(query.cells.sizes) * most**2))
    assert largest == 1


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("unit", [None, UNITS[0]], ids=["rows", "units"])
def test_standard_errors_are_those_of_the_noise(monkeypatch, neighbours, unit):
    """σ of the draws, in rows and in row norms, and what they are made of."""
    with monkeypatch.context() as patch:
        script = Script(patch)
        budget = gm.Budget(1.0, 1e-6, neighbours=neighbours)
        plan = prepare(SCHEMA, budget, marginals=True, unit=unit, random_state=0)
        private = plan.draw(plan.rows(table()[[*SCHEMA.columns, *([] if unit is None else ["who"])]]))
    account, marginals = private.certificate.account, private.statistic.marginals
    counts, sums = marginals.std_errors
    assert counts == pytest.approx(script.sigmas[0][0] / 2.0**account.bits)
    assert sums == pytest.approx(script.sigmas[1][0] / 2.0**account.bits)
    most, columns = (1 if unit is None else J), len(SCHEMA.columns)
    assert counts == pytest.approx(most * math.sqrt(columns) / account.noise_mu[-2])
    entry = plan.marginals.schema.in_units(1.0) / 2.0**20
    assert sums == pytest.approx(
        most * math.sqrt(2 * 3 + 1) * entry / account.noise_mu[-1]
    )  # wage, y and w are numbers


def naive(data, schema, column, weights):
    """Weights of the rows of every cell of a column."""
    cells = next(cells for cells in MarginalPlan(schema).cells.columns if cells.column == column)
    values = data[column]
    if cells.edges is None:
        labels = values.map({False: "false", True: "true"}) if column == "ill" else values.replace("?", NONE_OF_THESE)
        return [weights[labels == label].sum() for label in cells.labels]
    clamped = values.clip(cells.edges[0], cells.edges[-1])
    place = np.clip(np.searchsorted(cells.edges, clamped, side="right") - 1, 0, len(cells.edges) - 2)
    known = values.notna().to_numpy()
    found = [weights[known & (place == cell)].sum() for cell in range(len(cells.edges) - 1)]
    return [*found, weights[~known].sum()] if cells.missing is not None else found


@pytest.mark.parametrize("schema", [SCHEMA, WEIGHTED], ids=["rows", "weighted rows"])
def test_counts_and_sums_are_those_of_the_table(schema):
    data = table(5000, 3)
    plan = MarginalPlan(schema, (("level", "ill"),))
    found = rows_of(data[list(schema.columns)], plan.schema).aggregate(plan.query)
    weights = np.ones(len(data)) if schema.weight is None else data["w"].to_numpy() / 8
    counts = plan.cells.split(found.counts / 2.0**20)
    for column in (name for name in schema.columns if name != schema.weight):
        np.testing.assert_allclose(counts[column], naive(data, schema, column, weights), atol=5000 * 2.0**-20 + 1.5)
    crossed = counts["level", "ill"]
    assert crossed.shape == (4, 2)
    assert crossed[1, 1] == pytest.approx(weights[(data["level"] == "b") & data["ill"]].sum(), abs=0.01)
    units, C = plan.schema.units, plan.schema.row_norm
    at, place = plan.schema.groups["y"][0], list(plan.cells.numbers).index("y")
    entries = units.encode(data["y"].to_numpy(), at)
    assert found.sums[place] / 2.0**40 == pytest.approx(weights @ entries / C, abs=5000 * 2.0**-18)
    assert found.squares[place] / 2.0**40 == pytest.approx(weights @ entries**2 / C, abs=5000 * 2.0**-18)


def test_any_order_and_any_parts_give_the_same_bits():
    data = table(20_000, 4)[list(SCHEMA.columns)]
    plan = MarginalPlan(WEIGHTED)
    whole = rows_of(data, plan.schema).aggregate(plan.query)
    parts = rows_of([data[15_000:], data[:777], data[777:15_000]], plan.schema).aggregate(plan.query)
    for name in ("counts", "sums", "squares"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize("lower", [0.0, -1.0, -1e-3, -5.0, 3.7])
@pytest.mark.parametrize("width", [1e-3, 1.0, 7.3, 1e6])
def test_cells_of_numbers_are_those_of_a_binary_search(lower, width):
    schema = Schema.of({"x": [lower, lower + width], **{f"other{i}": "boolean" for i in range(6)}})
    cells, largest = cells_of(schema).columns[0], schema.in_units(1.0)
    x = np.random.default_rng(0).integers(-largest, largest + 1, 5000).astype(float)
    x = np.concatenate([x, cells.limits - 1, cells.limits, cells.limits + 1, [-largest, 0.0, largest]])
    expected = np.searchsorted(cells.limits, x, side="right")
    np.testing.assert_array_equal(cells.places(np.column_stack([x, *[x] * 7])), expected)


def test_bounds_that_are_neighbouring_numbers_have_one_cell():
    cells = cells_of(Schema.of({"x": [1e16, 1e16 + 2]})).columns[0]
    assert cells.size == 1
    np.testing.assert_array_equal(cells.places(np.array([[-5.0], [0.0], [7.0]])), 0)


def test_rows_of_zeros_are_in_no_cell():
    plan = MarginalPlan(SCHEMA)
    aggregator = plan.query.aggregator(plan.schema.n_columns)
    aggregator.add(np.zeros((7, plan.schema.n_columns)))
    found = aggregator.result()
    assert not found.counts.any()
    assert not found.sums.any()


def test_a_release_has_marginals_and_thresholds_in_its_file(tmp_path):
    data = table(30_000, 5)
    private = gm.release(data[list(SCHEMA.columns)], SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    assert list(private.thresholds) == ["wage"]
    lower, upper = private.thresholds["wage"]
    assert lower == 0
    assert 0.001 < (data["wage"] > upper).mean() < 0.02
    assert private.schema.columns["wage"].upper == upper
    assert private.certificate.schema.columns["wage"].upper == 5000
    coded = private.topcode(data)
    assert coded["wage"].max() == upper
    assert coded["y"].equals(data["y"])
    private.save(tmp_path / "wages.parquet")
    again = gm.load(tmp_path / "wages.parquet")
    assert again.fingerprint == private.fingerprint
    assert again.thresholds == private.thresholds
    np.testing.assert_array_equal(again.statistic.marginals.counts, private.statistic.marginals.counts)
    rows, error = again.statistic.marginals.rows
    assert abs(rows - 30_000) < 4 * error


def test_declared_thresholds_cost_nothing_and_none_codes_nothing():
    data, words = table(3000)[list(SCHEMA.columns)], {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    plain = gm.release(data, SCHEMA, topcode=None, **words)
    declared = gm.release(data, SCHEMA, topcode={"wage": (None, 800)}, **words)
    assert plain.thresholds == {}
    assert declared.thresholds == {"wage": (0.0, 800.0)}
    assert plain.certificate.account == declared.certificate.account
    one = gm.release(data, SCHEMA, topcode={"wage": (5, 800)}, passes=1, **words)
    assert one.thresholds == {"wage": (5.0, 800.0)}
    assert one.statistic.marginals is None
    for wrong, words_of_error in [
        ({"wage": (10, 9000)}, "within its bounds"),
        ({"level": (0, 1)}, "must be a numeric column"),
        ({"wage": 800}, "a pair"),
        ("always", "topcode must be"),
    ]:
        with pytest.raises(gm.GaussmixError, match=words_of_error):
            gm.release(data, SCHEMA, topcode=wrong, **words)


@pytest.mark.parametrize("again", [("level", "ill"), ("ill", "level")])
def test_a_pair_counted_twice_is_refused(again):
    with pytest.raises(gm.DeclarationError, match="a pair twice"):
        gm.release(table()[list(SCHEMA.columns)], SCHEMA, epsilon=1.0, delta=1e-6, tables=[("level", "ill"), again])


def test_without_an_intercept_nothing_is_coded():
    """Narrower bounds have another centre: the regression through the origin would be another one."""
    data = {"x": np.exp(np.random.default_rng(0).normal(size=5000)), "y": np.ones(5000)}
    schema = Schema.of({"columns": {"x": [-500, 500], "y": [-2, 2]}, "intercept": 0.0})
    words = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    assert gm.release(data, schema, **words).thresholds == {}
    with pytest.raises(gm.DeclarationError, match="requires a schema with an intercept"):
        gm.release(data, schema, topcode={"x": (0, 9)}, **words)


def test_forged_marginals_are_refused():
    private = gm.release(table()[list(SCHEMA.columns)], SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    statistic, certificate = private.statistic, private.certificate
    marginals = statistic.marginals
    larger = replace(marginals, mu=(2 * marginals.mu[0], marginals.mu[1]))
    with pytest.raises(gm.NotPrivateError, match="noise of the marginals does not match"):
        gm.Release(replace(statistic, marginals=larger), certificate)
    units = replace(marginals, plan=replace(marginals.plan, max_contributions=2))
    with pytest.raises(gm.NotPrivateError, match="privacy unit of the marginals do not match"):
        gm.Release(replace(statistic, marginals=units), certificate)
    with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
        gm.Release(replace(statistic, marginals=None), certificate)
    more = replace(marginals, plan=replace(marginals.plan, tables=(("level", "ill"),)))
    with pytest.raises(gm.GaussmixError, match=r"do not match"):
        gm.Release(replace(statistic, marginals=more), certificate)


def test_thresholds_follow_skewed_tails_only():
    rng, noise = np.random.default_rng(0), 30.0
    for draw, coded in [
        (lambda: np.exp(rng.normal(7, 0.8, 30_000)), True),
        (lambda: rng.exponential(1000, 30_000), True),
        (lambda: rng.uniform(0, 50_000, 30_000), False),
        (lambda: rng.normal(25_000, 6_000, 30_000), False),
        (lambda: rng.integers(0, 2, 30_000) * 50_000.0, False),
    ]:
        values, edges = np.clip(draw(), 0, 50_000), grid(0.0, 50_000.0)
        counts = np.histogram(values, edges)[0] + noise * rng.standard_normal(len(edges) - 1)
        lower, upper = thresholds_of(counts, edges, noise=noise, rows=30_000.0)
        assert (upper < 50_000) == coded
        assert lower == 0 or (values < lower).mean() < 0.02
        assert (values > upper).mean() < 0.02


def test_thresholds_of_few_rows_are_the_declared_bounds():
    """Noise alone never codes a column: 200 tables of uniform numbers, of 0 to 29 standard deviations of a count."""
    rng, edges = np.random.default_rng(1), grid(0.0, 100.0)
    for rows in rng.uniform(0, 2900, 200):
        counts = np.histogram(rng.uniform(0, 100, int(rows)), edges)[0] + 100 * rng.standard_normal(len(edges) - 1)
        assert thresholds_of(counts, edges, noise=100.0, rows=float(rows)) == (0.0, 100.0)


def test_thresholds_code_few_rows_of_any_column():
    """At 30 standard deviations and above, and for any shape, at most a few per cent of the rows are coded."""
    rng, coded = np.random.default_rng(2), []
    shapes = [
        lambda n: rng.uniform(0, 100, n),
        lambda n: rng.normal(50, 8, n),
        lambda n: rng.exponential(3, n),
        lambda n: np.exp(rng.normal(1, 1, n)),
        lambda n: rng.poisson(0.3, n).astype(float),
        lambda n: rng.choice([0.0, 40.0, 100.0], n),
        lambda n: 100 - rng.exponential(3, n),
    ]
    for shape in shapes:
        for _ in range(40):
            rows = int(rng.uniform(3000, 30_000))
            values, edges = np.clip(shape(rows), 0, 100), grid(0.0, 100.0)
            counts = np.histogram(values, edges)[0] + 100 * rng.standard_normal(len(edges) - 1)
            lower, upper = thresholds_of(counts, edges, noise=100.0, rows=rows + 100 * rng.standard_normal())
            coded.append(np.mean((values < lower) | (values > upper)))
    assert np.mean(coded) < 0.02
    assert np.quantile(coded, 0.99) < 0.12


@pytest.mark.slow
def test_the_noise_of_marginals_is_tested_without_false_alarms():
    """300 releases: p-values are uniform (Kolmogorov-Smirnov, false-alarm rate 1e-4); a tenth of the noise is seen."""
    data, p = table(400)[list(SCHEMA.columns)], []
    for seed in range(300):
        private = gm.release(data, SCHEMA, epsilon=1.0, delta=1e-6, random_state=seed)
        p.append(private.statistic.marginals.noise_p_value)
    assert stats.kstest(p, "uniform").pvalue > 1e-4
    marginals = private.statistic.marginals
    louder = replace(marginals, mu=(marginals.mu[0] / 10, marginals.mu[1] / 10))
    assert louder.noise_p_value < 0.01
