"""Statistics of the declared table: estimates, standard errors and intervals over many draws of the marginals.

The noise of the marginals is drawn anew for one table; passes are drawn once, since these statistics do not read them.
Seeds are fixed. A chi-square test of 1,600 z-scores has a false-alarm rate of 1e-4 and fails with near certainty if
standard errors are 10 % too small.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.mechanism.passes import draw_marginals
from gaussmix.releases.counts import RowCounts, level_counts
from gaussmix.report.page_data import embedded_release

N, DRAWS = 5000, 200
FALSE_ALARM = 1e-4
SCHEMA = Schema.of(
    {
        "wage": {"lower": 0, "upper": 5000, "missing": "indicator"},
        "visits": [0, 60],
        "age": [0, 100],
        "level": {"levels": ["a", "b", "rare"], "unknown": "zero"},
        "ill": "boolean",
    }
)
WEIGHTED = Schema.of({**SCHEMA.columns, "w": [0, 4]}, weight="w")


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "wage": np.where(rng.random(n) < 0.1, np.nan, np.exp(rng.normal(6, 0.7, n))),
            "visits": rng.negative_binomial(0.7, 0.1, n).astype(float),
            "age": rng.uniform(18, 90, n),
            "level": rng.choice(["a", "b", "rare", "?"], n, p=[0.6, 0.34, 0.01, 0.05]),
            "ill": rng.random(n) < 0.2,
            "w": rng.gamma(2, 0.6, n),
            "who": rng.integers(0, n // 2, n),
        }
    )


DATA = table()
TABLES = [("level", "ill")]


def draws(schema, number=DRAWS, *, unit=None, neighbours="add-remove"):
    """Releases that differ in the noise of their marginals."""
    read = DATA[[*schema.columns, *([] if unit is None else ["who"])]]
    budget = gm.Budget(3.0, 1e-6, neighbours=neighbours)
    private = gm.release(read, schema, budget=budget, tables=TABLES, privacy_unit=unit, random_state=0)
    plan = private.statistic.marginals.plan
    exact = rows_of(read, plan.schema, unit=unit, new_key=lambda: bytes(32)).aggregate(plan.query)
    rng = np.random.default_rng(1)
    for _ in range(number):
        found = draw_marginals(lambda: exact, plan, private.certificate.account, rng)
        yield replace(private, statistic=replace(private.statistic, marginals=found))


@pytest.fixture(scope="module")
def unweighted():
    return list(draws(SCHEMA))


@pytest.fixture(scope="module")
def weighted():
    return list(draws(WEIGHTED))


def rows_by_name(release, alpha=0.05):
    return {(row["term"], row["statistic"]): row for row in release.describe(alpha=alpha).rows()}


def truth(weights=None):
    """Statistics of the declared table; weighted ones are those of the weighted distribution."""
    clamped = DATA.assign(**{name: DATA[name].clip(*SCHEMA_BOUNDS[name]) for name in SCHEMA_BOUNDS})
    w = np.ones(N) if weights is None else weights
    found = {("(rows)" if weights is None else "(weights)", "count"): w.sum()}
    for name in SCHEMA_BOUNDS:
        x = clamped[name].to_numpy()
        known = ~np.isnan(x)
        x, own = x[known], w[known]
        mean = np.average(x, weights=own)
        variance = np.average((x - mean) ** 2, weights=own)
        found[name, "mean"] = mean
        found[name, "std"] = np.sqrt(variance * (len(x) / (len(x) - 1) if weights is None else 1))
        order = np.argsort(x)
        share = np.cumsum(own[order]) / own.sum()
        for q, word in ((0.25, "q25"), (0.5, "median"), (0.75, "q75")):
            found[name, word] = x[order][np.searchsorted(share, q)]
    missing = DATA["wage"].isna().to_numpy()
    labels = DATA["level"].replace("?", "(none of these)")
    parts = {"wage=(missing)": missing, "ill=true": DATA["ill"].to_numpy()}
    parts |= {f"level={label}": (labels == label).to_numpy() for label in ("a", "b", "rare", "(none of these)")}
    for term, own in parts.items():
        found[term, "count"], found[term, "share"] = w[own].sum(), w[own].sum() / w.sum()
    return found


SCHEMA_BOUNDS = {"wage": (0, 5000), "visits": (0, 60), "age": (0, 100)}
W = np.clip(DATA["w"].to_numpy(), 0, 4)


def z_scores(releases, expected, terms):
    found = [rows_by_name(release) for release in releases]
    return np.array(
        [[(rows[t]["estimate"] - expected[t]) / rows[t]["std.error"] for t in terms] for rows in found]
    ).ravel()


def p_value(z):
    """Two-sided, of the hypothesis that z-scores are standard normal."""
    square = float(np.sum(z**2))
    return 2 * min(stats.chi2.sf(square, len(z)), stats.chi2.cdf(square, len(z)))


INDEPENDENT = [  # their noise is independent but for the number of rows, which is far more accurate
    *[(name, word) for name in ("wage", "visits", "age") for word in ("mean",)],
    ("age", "std"),
    ("ill=true", "share"),
    ("level=a", "share"),
    ("level=(none of these)", "count"),
    ("wage=(missing)", "share"),
]


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_standard_errors_are_those_of_the_estimates(kind, request):
    z = z_scores(request.getfixturevalue(kind), truth(None if kind == "unweighted" else W), INDEPENDENT)
    assert len(z) == 1600
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    assert p_value(z) > FALSE_ALARM
    assert p_value(z / 0.9) < FALSE_ALARM  # standard errors that are 10 % too small
    assert p_value(z / 1.15) < FALSE_ALARM


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_intervals_hold(kind, request):
    """Every interval at level 0.9; with 200 draws coverage below 0.82 has a probability of 2e-4 if it is 0.9."""
    expected = truth(None if kind == "unweighted" else W)
    found = [rows_by_name(release, alpha=0.1) for release in request.getfixturevalue(kind)]
    tolerance = {name: 1e-5 * (high - low) for name, (low, high) in SCHEMA_BOUNDS.items()}  # rows are rounded
    coverage = {}
    for term, value in expected.items():
        slack = tolerance.get(term[0], 0.0)
        own = [rows[term]["conf.low"] - slack <= value <= rows[term]["conf.high"] + slack for rows in found]
        coverage[term] = np.mean(own)
    assert len(coverage) == 28
    assert min(coverage.values()) > 0.82, coverage
    exact = [share for (_, word), share in coverage.items() if word in ("mean", "share", "count")]
    assert 0.87 < np.mean(exact) < 0.93
    lengths = {term: np.mean([rows[term]["conf.high"] - rows[term]["conf.low"] for rows in found]) for term in expected}
    assert lengths["age", "median"] < 15
    assert lengths["wage", "median"] < 400


def test_a_standard_deviation_that_the_noise_hides_is_not_shown(unweighted):
    data = DATA[["visits"]].assign(visits=1.0)
    private = gm.release(data, {"visits": [0, 60]}, epsilon=1.0, delta=1e-6, random_state=0)
    row = rows_by_name(private)["visits", "std"]
    assert np.isnan(row["estimate"])
    assert row["conf.low"] == 0
    assert 0 < row["conf.high"] < 30
    assert "variance is not significantly positive" in str(private.describe())


def test_quantiles_hold_whatever_is_inside_a_cell():
    """Point masses at edges, next to edges and inside cells: intervals of 0.9 at the 5, 50 and 95 % points."""
    values = {"edges": [0, 25, 50, 75], "beside": [24.99, 25.01, 49.99, 75.01], "inside": [1, 13.3, 40, 98]}
    rng = np.random.default_rng(3)
    for name, masses in values.items():
        x = rng.choice(masses, 3000, p=[0.3, 0.25, 0.3, 0.15])
        held = []
        for seed in range(30):
            private = gm.release({"x": x}, {"x": [0, 100]}, epsilon=1.0, delta=1e-6, random_state=seed)
            for row in private.quantiles(["x"], [0.05, 0.5, 0.95], alpha=0.1).rows():
                assert row["conf.low"] <= row["estimate"] <= row["conf.high"]
                exact = np.quantile(x, row["q"], method="inverted_cdf")
                held.append(row["conf.low"] - 1e-3 <= exact <= row["conf.high"] + 1e-3)
        assert np.mean(held) > 0.85, name


def test_totals_and_ratios_have_their_errors(unweighted):
    wage, visits = DATA["wage"].clip(0, 5000).sum(), DATA["visits"].clip(0, 60).sum()
    z, held = [], []
    for release in unweighted:
        counts = RowCounts(release.statistic)
        pair = counts.totals(["wage", "visits"])
        z += np.linalg.solve(np.linalg.cholesky(pair.covariance), pair.values - [wage, visits]).tolist()
        three = counts.totals(["ill", "age"])
        expected = [DATA["ill"].sum(), DATA["age"].sum()]
        z += np.linalg.solve(np.linalg.cholesky(three.covariance), three.values - expected).tolist()
        row = release.ratio("wage", "visits").rows()[0]
        held.append(row["conf.low"] <= wage / visits <= row["conf.high"])
    assert p_value(np.array(z)) > FALSE_ALARM
    assert p_value(np.array(z) / 0.8) < FALSE_ALARM
    assert 0.9 < np.mean(held) < 0.995
    total = unweighted[0].total("ill").rows()[0]
    assert total["estimate"] == pytest.approx(level_counts(unweighted[0].statistic, "ill")["true"][0])


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_declared_tables_have_their_errors_and_the_margins_of_the_levels(kind, request):
    weights = np.ones(N) if kind == "unweighted" else W
    labels = DATA["level"].replace("?", "(none of these)")
    expected = pd.crosstab(labels, DATA["ill"], weights, aggfunc="sum").loc[["a", "b", "rare", "(none of these)"]]
    z = []
    for release in request.getfixturevalue(kind):
        found = release.crosstab("level", "ill")
        z += ((found.estimates - expected.to_numpy()) / found.std_errors)[:3, 0].tolist()
        counts = level_counts(release.statistic, "level")
        np.testing.assert_allclose(found.estimates.sum(axis=1), [count for count, _ in counts.values()])
    assert p_value(np.array(z)) > FALSE_ALARM
    assert p_value(np.array(z) / 0.8) < FALSE_ALARM
    assert release.tables == (("level", "ill"),)
    other = release.crosstab("ill", "level")
    np.testing.assert_allclose(other.estimates, found.estimates.T)
    assert np.isnan(found.independence.p_value) == (kind == "weighted")


def test_undeclared_tables_have_their_errors():
    """From the first pass, moved to the margins of the levels."""
    data, schema = DATA[["age", "level", "ill"]], {name: SCHEMA.columns[name] for name in ("age", "level", "ill")}
    expected = pd.crosstab(data["level"].replace("?", "~"), data["ill"]).loc[["a", "b", "rare", "~"]].to_numpy()
    z, errors = [], []
    for seed in range(60):
        private = gm.release(data, schema, epsilon=3.0, delta=1e-6, random_state=seed)
        found = private.crosstab("level", "ill")
        z += ((found.estimates - expected) / found.std_errors)[:3, 0].tolist()
        errors.append(found.std_errors[0, 0])
        counts = level_counts(private.statistic, "ill")
        np.testing.assert_allclose(found.estimates.sum(axis=0), [count for count, _ in counts.values()])
    assert p_value(np.array(z)) > FALSE_ALARM
    assert p_value(np.array(z) / 0.7) < FALSE_ALARM
    assert "tables=[('level', 'ill')]" in str(found)
    declared = gm.release(data, schema, epsilon=3.0, delta=1e-6, random_state=0, tables=[("level", "ill")])
    assert declared.crosstab("level", "ill").std_errors[0, 0] < np.mean(errors)


def test_rows_are_counted_by_all_columns(unweighted):
    """The pooled number of rows has less noise than the intercept's sum, as it says."""
    found = [RowCounts(release.statistic).rows for release in unweighted]
    z = np.array([(rows - N) / error for rows, error in found])
    assert 0.8 < np.std(z) < 1.22  # chi-square, 200 degrees of freedom, 1e-4
    marginals = unweighted[0].statistic.marginals
    sizes, alone = marginals.plan.cells.sizes[:5], marginals.rows[1]  # of the columns; the declared table is apart
    pooled = (alone**-2 + sum(1 / (size * marginals.std_errors[0] ** 2) for size in sizes)) ** -0.5
    assert found[0][1] == pytest.approx(pooled)
    assert pooled < 0.75 * alone


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_privacy_units_are_described_as_bounded(neighbours):
    """All p rows of a unit count min(1, 2/p)."""
    unit = PrivacyUnit("who", 2, "scale")
    size = DATA.groupby("who")["who"].transform("size").to_numpy()
    weight = np.minimum(1.0, 2 / size)
    mean = np.average(DATA["age"], weights=weight)
    ill = weight[DATA["ill"]].sum() / weight.sum()
    z = []
    for release in draws(SCHEMA, 100, unit=unit, neighbours=neighbours):
        rows = rows_by_name(release)
        z += [(rows["age", "mean"]["estimate"] - mean) / rows["age", "mean"]["std.error"]]
        z += [(rows["ill=true", "share"]["estimate"] - ill) / rows["ill=true", "share"]["std.error"]]
    assert p_value(np.array(z)) > FALSE_ALARM
    assert p_value(np.array(z) / 0.7) < FALSE_ALARM
    assert "Contributions are bounded" in str(release.describe())


def test_coded_values_are_counted():
    private = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    rows = rows_by_name(private)
    _, high = private.thresholds["wage"]
    row = rows["wage", f"share above {high:,g}"]
    known = DATA["wage"].dropna()
    assert row["conf.low"] <= (known > high).mean() <= row["conf.high"]
    assert not any(statistic.startswith("share below") for _, statistic in rows)
    assert "numbers are coded to thresholds (wage to" in str(private.means("age", "level"))
    plain = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, topcode=None)
    assert not any(statistic.startswith("share above") for _, statistic in rows_by_name(plain))


def test_estimates_lie_within_their_intervals_and_bounds():
    """With much noise: no negative share or count, no mean beyond the bounds, no interval that is a point."""
    read, found = DATA[list(SCHEMA.columns)].iloc[:300], []
    for seed in range(5):
        private = gm.release(read, SCHEMA, epsilon=0.2, delta=1e-6, random_state=seed, topcode={"wage": (None, 900.0)})
        raw = private.histogram("visits", bins=16)
        assert raw.counts.min() < 0  # the noise makes counts negative, and is not taken out of them
        for row in [*private.describe().rows(), *raw.table().rows()]:
            if not np.isnan(row["estimate"]):
                assert row["conf.low"] <= row["estimate"] <= row["conf.high"]
                found.append(row["conf.high"] > row["conf.low"])
            if row.get("statistic") == "mean":
                assert 0 <= row["conf.low"] <= row["conf.high"] <= 5000
    assert len(found) > 100
    assert all(found)
    assert "Quantiles are interpolated within histogram cells" in str(private.describe())
    assert "Quantiles" not in str(private.describe(["ill"]))


def test_the_printed_share_of_coded_rows_is_an_interval():
    """Printed shares contain the exact ones: 95 % of 100 draws at least, up to chance, and none is empty."""
    known, held = DATA["wage"].dropna(), 0
    pattern = re.compile(r"wage coded to at most \S+ \((\S+) to (\S+) % of the rows, 95 % interval\)")
    for release in draws(SCHEMA, 100):
        words, (_, threshold) = release.statistic.coded["wage"], release.thresholds["wage"]
        low, high = map(float, pattern.fullmatch(words).groups())
        assert low < high
        held += low <= 100 * (known > threshold).mean() <= high
    assert held >= 88
    assert words in str(release.ols("age", predictors=["wage"]).summary())
    assert words in embedded_release(release)["estimated_on"]


def test_a_top_coded_response_is_pointed_out():
    private = gm.release(DATA[list(SCHEMA.columns)], SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    words = "The response is top-coded: coefficients of the uncoded column are typically larger in absolute value."
    assert "visits" in private.thresholds
    assert words in str(private.ols("visits").summary())
    assert words in str(private.poisson("visits").summary())
    assert "visits coded to" in str(private.ols("age").summary())
    assert words not in str(private.ols("age").summary())
    plain = gm.release(DATA[list(SCHEMA.columns)], SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, topcode=None)
    assert words not in str(plain.ols("visits").summary())


def test_an_uninformative_share_of_coded_rows_is_not_printed():
    read = DATA[list(SCHEMA.columns)]
    release = gm.release(read, SCHEMA, epsilon=0.01, delta=1e-6, random_state=0, topcode={"wage": (None, 900.0)})
    assert release.statistic.coded["wage"] == "wage coded to at most 900 (a share of the rows not known at this budget)"


def test_histograms_are_merged_cells(unweighted):
    private = unweighted[0]
    cells = private.histogram("age", bins=0)
    found = private.histogram("age", bins=8)
    np.testing.assert_allclose(found.edges, np.linspace(0, 100, 9))
    inside = [
        cells.counts[(cells.edges[:-1] >= low) & (cells.edges[:-1] < high)].sum() for low, high in pairwise(found.edges)
    ]
    np.testing.assert_allclose(found.counts, inside)
    expected = np.histogram(DATA["age"].clip(0, 100), found.edges)[0]
    assert np.abs((found.counts - expected) / found.std_errors).max() < 4.5
    assert len(private.histogram("age").counts) in (2, 4, 8, 16, 32)
    assert len(found.table()) == 8
    assert "Histogram(no privacy guarantee, 'age', 8 bins)" in repr(found)
    pytest.importorskip("matplotlib", reason="the extra gaussmix[plots] is not installed")
    from matplotlib.figure import Figure

    axes = found.plot(Figure().subplots())
    assert len(axes.patches) == 8


def test_what_needs_cells_or_numbers_says_so(unweighted):
    single = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, passes=1)
    for ask, words in (
        (lambda: single.quantiles(["wage"]), "several passes"),
        (lambda: single.histogram("wage"), "several passes"),
        (lambda: unweighted[0].quantiles(["level"]), "numeric columns"),
        (lambda: unweighted[0].quantiles(q=[1.5]), "q must"),
        (lambda: unweighted[0].total("level"), "Totals and ratios require"),
        (lambda: unweighted[0].ratio("wage", "wages"), "wages"),
    ):
        with pytest.raises(gm.GaussmixError, match=words):
            ask()


def test_one_pass_is_of_the_declared_table():
    """A single pass clips nothing: means, standard deviations, shares, totals of known values from its Gram matrix."""
    expected, z = truth(), []
    terms = [t for t in INDEPENDENT if t[0] != "wage=(missing)"]
    for seed in range(60):
        private = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=seed, passes=1)
        z += z_scores([private], expected, terms).tolist()
    pair = RowCounts(private.statistic).totals(["wage", "visits"])
    wage, visits = DATA["wage"].clip(0, 5000).sum(), DATA["visits"].clip(0, 60).sum()
    assert np.abs(np.linalg.solve(np.linalg.cholesky(pair.covariance), pair.values - [wage, visits])).max() < 4.5
    assert p_value(np.array(z)) > FALSE_ALARM
    assert p_value(np.array(z) / 0.8) < FALSE_ALARM
    assert private.describe().notes[1].startswith("Statistics describe the declared table")
    coded = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, passes=1, topcode={"wage": (None, 900.0)})
    assert "coded to their thresholds (wage to [0, 900])" in coded.describe().notes[1]


def test_files_keep_all_of_it(unweighted, tmp_path):
    private = gm.release(DATA, SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, tables=TABLES)
    private.save(tmp_path / "r.parquet")
    again = gm.load(tmp_path / "r.parquet")
    assert again.describe().as_csv() == private.describe().as_csv()
    assert again.quantiles().as_csv() == private.quantiles().as_csv()
    assert again.crosstab("level", "ill").table().as_csv() == private.crosstab("level", "ill").table().as_csv()
