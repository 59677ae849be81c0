"""Several classes: Fisher's discriminant without noise, softmax, and intervals that hold it with noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import gaussmix as gm
from gaussmix.models.classification import MulticlassModel

SCHEMA = {"x": [-4, 4], "z": [-4, 4], "flag": "boolean", "kind": ["a", "b", "c", "d"]}
CENTRES = np.array([[0.0, 0.0], [1.0, 0.3], [-0.6, 1.0], [0.2, -1.2]])


def table(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    x, z = (CENTRES[kind] + rng.normal(0, 0.6, (n, 2)) @ [[1.0, 0.4], [0.0, 0.8]]).T
    flag = rng.random(n) < 0.2 + 0.1 * kind
    return {"x": np.clip(x, -4, 4), "z": np.clip(z, -4, 4), "flag": flag, "kind": np.array(list("abcd"))[kind]}


def discriminant(rows):
    X = np.column_stack([rows["x"], rows["z"], rows["flag"]])
    return X, LinearDiscriminantAnalysis(solver="lsqr").fit(X, rows["kind"])


@pytest.mark.slow
def test_without_noise_it_is_fishers_discriminant():
    rows = table(5000)
    model = gm.release(rows, schema=SCHEMA, epsilon=math.inf, delta=1e-6).mnlogit("kind")
    assert isinstance(model, MulticlassModel)
    assert model.classes == ("a", "b", "c", "d")
    X, lda = discriminant(rows)
    scores = lda.decision_function(X)
    assert model.decision_function(rows) == pytest.approx(scores - scores[:, :1], abs=2e-4)
    assert model.predict_proba(rows) == pytest.approx(special.softmax(scores, axis=1), abs=1e-4)
    assert np.mean(model.predict(rows) == lda.predict(X)) > 0.999
    for k, name in enumerate(model.classes[1:], 1):
        slopes = lda.coef_[k] - lda.coef_[0]
        assert [model.coef[name][column] for column in ("x", "z", "flag")] == pytest.approx(slopes, rel=1e-3)


def test_any_class_can_be_the_reference():
    rows = table(5000)
    model = gm.release(rows, schema=SCHEMA, epsilon=math.inf, delta=1e-6).mnlogit("kind")
    _, lda = discriminant(rows)
    found = model.summary(reference={"kind": "c"})
    assert list(found) == ["a", "b", "d"]
    for name, k in (("a", 0), ("b", 1), ("d", 3)):
        params = found[name].params
        slopes, intercept = lda.coef_[k] - lda.coef_[2], lda.intercept_[k] - lda.intercept_[2]
        assert [params[column] for column in ("x", "z", "flag")] == pytest.approx(slopes, rel=1e-3, abs=1e-3)
        assert params["(intercept)"] == pytest.approx(intercept, abs=1e-3)
        assert f"kind = {name} against c" in str(found[name])
    with pytest.raises(gm.ArgumentError, match="'e' is not a level of 'kind'"):
        model.summary(reference={"kind": "e"})


@pytest.mark.slow
def test_intervals_hold_the_discriminant():
    """12 releases, nine slopes each: at 0.95 fewer than 90 of 108 would be a chance of 10⁻⁵ were they independent."""
    rows = table()
    _, lda = discriminant(rows)
    held = lengths = 0
    for seed in range(12):
        model = gm.release(rows, schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=seed).mnlogit("kind")
        for k, (name, ratios) in enumerate(model.odds_ratios().items(), 1):
            rows_of = {row["term"]: row for row in ratios.rows()}
            for column, slope in zip(("x", "z", "flag"), lda.coef_[k] - lda.coef_[0], strict=True):
                low, high = rows_of[column]["conf.low"], rows_of[column]["conf.high"]
                held += low <= math.exp(slope) <= high
                lengths += high < math.inf
            assert ratios.title.startswith(f"kind = {name} against a: odds ratios")
    assert held >= 90
    assert lengths == 108


def test_with_noise_it_predicts_and_shrinks_where_noise_is_all():
    rows, test = table(), table(4000, seed=1)
    _, lda = discriminant(rows)
    X, _ = discriminant(test)
    places = np.searchsorted(["a", "b", "c", "d"], test["kind"])

    def loss(probabilities):
        return -float(np.mean(np.log(probabilities[np.arange(len(places)), places])))

    best, constant = loss(lda.predict_proba(X)), loss(np.tile([0.4, 0.3, 0.2, 0.1], (4000, 1)))
    losses = {}
    for epsilon in (3.0, 0.02):
        private = gm.release(rows, schema=SCHEMA, epsilon=epsilon, delta=1e-6, random_state=0)
        losses[epsilon] = loss(private.mnlogit("kind").predict_proba(test))
    assert losses[3.0] < best + 0.01
    assert losses[0.02] < constant + 0.2


def test_two_levels_are_no_case_of_several():
    rows = table(500)
    two = gm.release(rows, schema=SCHEMA, epsilon=math.inf, delta=1e-6).logit("flag")
    assert not isinstance(two, MulticlassModel)


# ---------------------------------------------------------------------------------------------------------------
# One level against all others
def test_one_level_against_the_rest_is_fishers_discriminant_of_two():
    rows = table(5000)
    private = gm.release(rows, schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    for level in "abcd":
        model = private.logit("kind", level=level)
        assert model.classes == ("all others", level)
        X = np.column_stack([rows["x"], rows["z"], rows["flag"]])
        lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, rows["kind"] == level)
        assert model.decision_function(rows) == pytest.approx(lda.decision_function(X), abs=2e-3)
        assert f"kind = {level}" in str(model.summary())
    assert set(model.predict(rows)) == {"all others", "d"}


@pytest.mark.slow
def test_one_level_has_odds_ratios_that_hold_without_noise():
    rows = table(40_000)
    exact = gm.release(rows, schema=SCHEMA, epsilon=math.inf, delta=1e-6).logit("kind", level="b").odds_ratios()
    held = []
    for seed in range(10):
        private = gm.release(rows, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=seed)
        ratios = private.logit("kind", level="b").odds_ratios()
        truth = exact.columns["odds.ratio"]
        held += [row["conf.low"] <= own <= row["conf.high"] for row, own in zip(ratios.rows(), truth, strict=True)]
    assert len(held) == 30
    assert np.mean(held) > 0.8


@pytest.mark.parametrize("wanted", [True, np.True_, "true"])
def test_a_boolean_has_the_levels_true_and_false(wanted):
    private = gm.release(table(3000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    plain, named = private.logit("flag"), private.logit("flag", level=wanted)
    assert (named.coef, named.intercept, named.classes) == (plain.coef, plain.intercept, (False, True))
    other = private.logit("flag", level=str(not wanted).lower() if isinstance(wanted, str) else not wanted)
    assert other.classes == (True, False)
    assert other.intercept == pytest.approx(-plain.intercept, rel=1e-9)
    assert other.coef == pytest.approx({name: -value for name, value in plain.coef.items()}, rel=1e-9)
    assert other.predict_proba(table(50)) == pytest.approx(plain.predict_proba(table(50))[:, ::-1])
    assert np.array_equal(other.predict(table(50)), plain.predict(table(50)))
    ratios, inverse = (own.odds_ratios().columns["odds.ratio"] for own in (plain, other))
    assert inverse == pytest.approx([1 / value for value in ratios])
    assert "flag = False" in str(other.summary())
    with pytest.raises(gm.ArgumentError, match="'x' is not a level of 'flag'; it has False, True"):
        private.logit("flag", level="x")


@pytest.mark.parametrize("levels", [(False, True), ("false", "true", "unknown")])
def test_levels_true_and_false_are_known_by_value_and_by_words(levels):
    rows = table(3000)
    sure = (
        rows["flag"]
        if levels[0] is False
        else np.where(rows["x"] > 1, "unknown", np.where(rows["flag"], *levels[1::-1]))
    )
    schema = {"x": [-4, 4], "sure": {"levels": list(levels)}}
    private = gm.release({"x": rows["x"], "sure": sure}, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    for value, word in ((True, "true"), (False, "false")):
        by_value, by_word = private.logit("sure", level=value), private.logit("sure", level=word)
        assert by_value.coef == by_word.coef
        assert by_value.classes == by_word.classes == ("all others", levels[int(value)])


def test_two_levels_are_the_same_either_way():
    rows = table(3000)
    rows = {**rows, "sex": np.where(rows["flag"], "m", "f")}
    schema = {"x": [-4, 4], "z": [-4, 4], "sex": ["f", "m"]}
    private = gm.release(rows, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    plain, named = private.logit("sex"), private.logit("sex", level="m")
    assert named.coef == plain.coef
    with pytest.raises(gm.ArgumentError, match="'x' is not a level of 'sex'"):
        private.logit("sex", level="x")
    with pytest.raises(gm.ArgumentError, match="is not a category"):
        private.logit("x", level="m")


def test_columns_that_say_nothing_of_the_classes_predict_their_shares():
    """Noise may leave a negative explained covariance: log odds of 10⁷ came of it in one release of three."""
    rng = np.random.default_rng(5)
    n = 20_000
    table = {
        "x": rng.uniform(-1, 1, n),
        "z": rng.uniform(-1, 1, n),
        "k": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
    }
    for seed in range(12):
        private = gm.release(
            table, schema={"x": [-1, 1], "z": [-1, 1], "k": ["a", "b", "c"]}, epsilon=2.0, delta=1e-6, random_state=seed
        )
        found = private.mnlogit("k").predict_proba({"x": [-1.0, 1.0, 0.0], "z": [1.0, 1.0, 0.0]})
        assert np.abs(found - [0.5, 0.3, 0.2]).max() < 0.1
