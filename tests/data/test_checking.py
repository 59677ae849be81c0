"""The curator's look at a table: counts that can be done by hand, and nothing that stops at the first mistake."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.check import check_table
from gaussmix.data.moments import Moments
from gaussmix.data.source import CsvOptions, ReadOptions

SCHEMA = {
    "age": {"lower": 0, "upper": 100, "missing": "drop-row"},
    "sex": {"levels": ["f", "m"], "unknown": "other", "missing": "level"},
    "smoker": "boolean",
    "site": {"levels": [1, 2]},
}
TABLE = pd.DataFrame(
    {
        "age": [20.0, 500.0, -3.0, float("nan"), float("inf")],
        "sex": ["f", " m", "x", None, "f"],
        "smoker": pd.array([True, False, None, True, True], dtype="boolean"),
        "site": [1, 1, 1, 1, 1],
    }
)


def test_shares_by_hand():
    found = check_table(TABLE, SCHEMA)
    assert found.rows == 5
    assert found.dropped == 0.4
    age, sex, smoker, site = found.columns.values()
    assert (age.clipped, age.missing, age.dropped, age.constant) == (0.4, 0.4, 0.4, False)
    assert (sex.unknown, sex.missing, sex.dropped, sex.spaced, sex.constant) == (0.4, 0.2, 0.0, 0.2, False)
    assert (smoker.unknown, smoker.missing, smoker.constant) == (0.0, 0.2, False)
    assert (site.unknown, site.missing, site.constant) == (0.0, 0.0, True)
    assert any("site: constant" in remark for remark in found.remarks())
    assert any("sex: 20.00% of the values are levels with spaces" in remark for remark in found.remarks())
    assert [column.refused for column in (age, sex, smoker, site)] == [False, False, True, False]
    assert (
        "smoker: a release would fail because of missing values; declare a rule for them in the schema"
        in found.remarks()
    )


def test_the_column_of_the_unit_is_read_as_a_release_reads_it():
    table = {"a": [0.5, 0.7], "who": ["p", "q"]}
    whose = {"privacy_unit": gm.PrivacyUnit("who", 2)}
    assert check_table(table, {"a": [0, 1]}, **whose) == check_table(table, {"a": [0, 1]})
    bad = [
        ({"a": [0.5, 0.7]}, "Column 'who' is not in"),
        ({**table, "who": ["p", None]}, "'who' has m"),
    ]
    bad += [
        ({**table, "who": ["p", ""]}, "'who' has m"),
        ({**table, "who": np.array([0.5, 1])}, "has fractional numbers"),
    ]
    for data, words in bad:
        for call in (check_table, Moments.of):
            with pytest.raises(gm.DataError, match=words):
                call(data, {"a": [0, 1]}, **whose)
    for unit, words in (
        ("who", "privacy_unit must be a PrivacyUnit, got str"),
        (gm.PrivacyUnit("a", 2), "'a' is the privacy unit and cannot be released"),
    ):
        with pytest.raises(gm.GaussmixError, match=words):
            check_table(table, {"a": [0, 1]}, privacy_unit=unit)


def test_unknown_levels_without_a_rule_are_said_to_be_refused():
    found = check_table({"a": ["x", "y"]}, {"a": {"levels": ["u", "v"]}})
    assert found.columns["a"].refused
    assert not any("constant" in remark for remark in found.remarks())
    assert not check_table({"a": ["x", "u"]}, {"a": {"levels": ["u", "v"], "unknown": "zero"}}).columns["a"].refused


@pytest.mark.parametrize("rows", [1, 2, 10**6])
def test_the_same_from_any_batches(rows):
    parts = [TABLE.iloc[i : i + rows] for i in range(0, len(TABLE), rows)]
    assert check_table(parts, SCHEMA) == check_table(TABLE, SCHEMA)
    coded = pa.Table.from_pandas(TABLE.astype({"sex": "category"}))
    assert check_table(coded, SCHEMA) == check_table(TABLE, SCHEMA)


def test_vectors_by_hand():
    """A vector is clipped by an entry beyond its bounds or by its norm, and constant if all rows are alike."""
    table = {
        "norm": np.array([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0], [1e308, 1e308], [np.nan, 1.0]]),
        "box": np.array([[0.0, 1.0], [1.0, 1.0], [-0.1, 1.0], [0.5, 1e308], [0.5, 0.5]]),
        "same": np.array([[1.0, 2.0]] * 5),
    }
    schema = {
        "norm": {"size": 2, "norm": 5.0, "missing": "drop-row"},
        "box": {"size": 2, "lower": 0, "upper": 1},
        "same": {"size": 2, "lower": 0, "upper": 4, "norm": 0.4},
    }
    for data in (table, [{name: values[i : i + 1] for name, values in table.items()} for i in range(5)]):
        found = check_table(data, schema)
        norm, box, same = found.columns.values()
        assert (found.rows, found.dropped) == (5, 0.2)
        assert (norm.clipped, norm.missing, norm.dropped, norm.constant) == (0.4, 0.2, 0.2, False)
        assert (box.clipped, box.missing, box.dropped, box.constant) == (0.4, 0.0, 0.0, False)
        assert (same.clipped, same.constant) == (1.0, True)  # mapped to (-0.5, 0), longer than 0.4
        assert any("same: constant" in remark for remark in found.remarks())


def test_levels_that_differ_by_spaces():
    found = check_table({"s": ["a"]}, {"s": {"levels": ["a", "a ", "b"]}})
    assert found.alike == {"s": ("a", "a ")}
    assert "differ only by spaces" in found.remarks()[0]


def test_expected_rows():
    assert check_table(TABLE, SCHEMA, reading=ReadOptions(expected_rows=5)).rows == 5
    for call in (check_table, Moments.of):
        with pytest.raises(ValueError, match="does not have expected_rows=6"):
            call(TABLE.assign(smoker=True), SCHEMA, reading=ReadOptions(expected_rows=6))
    with pytest.raises(ValueError, match="expected_rows must be an integer"):
        check_table(TABLE, SCHEMA, reading=ReadOptions(expected_rows=0))
    with pytest.raises(ValueError, match="does not have expected_rows"):
        gm.release({"x": [1.0]}, schema={"x": [0, 1]}, epsilon=1.0, delta=1e-6, reading=gm.ReadOptions(expected_rows=2))
    sums = Moments.of({"x": [1.0]}, {"x": [0, 1]})
    with pytest.raises(ValueError, match="does not have expected_rows"):
        gm.release(sums, epsilon=1.0, delta=1e-6, reading=gm.ReadOptions(expected_rows=2))


def test_options_reach_the_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("sex, age\nf, 3\n m, none\n")
    schema = {"sex": {"levels": ["f", "m"]}, "age": {"lower": 0, "upper": 9, "missing": "lower"}}
    options = CsvOptions(skip_initial_space=True, na_values=("none",))
    found = check_table(path, schema, reading=ReadOptions(csv=options))
    assert found.columns["sex"].unknown == 0
    assert found.columns["age"].missing == 0.5
    private = gm.release(
        path, schema=schema, epsilon=1.0, delta=1e-6, reading=gm.ReadOptions(csv=options), random_state=0
    )
    assert private.certificate.epsilon <= 1.0


def test_command(tmp_path):
    path, declared = tmp_path / "t.csv", tmp_path / "s.json"
    path.write_text("sex, age\nf, 3\nm, 12\n")
    declared.write_text(json.dumps({"sex": {"levels": ["f", "m"]}, "age": [0, 9]}))
    common = ["check", str(path), "-s", str(declared), "--skip-initial-space"]
    shown = CliRunner().invoke(main, common)
    assert shown.exit_code == 0, shown.output
    assert "2 rows" in shown.output
    assert "50.00%" in shown.output
    content = json.loads(CliRunner().invoke(main, [*common, "--json"]).stdout)
    assert content["sensitive"] is True
    assert content["columns"]["age"]["clipped"] == 0.5
    refused = CliRunner().invoke(main, [*common, "--expected-rows", "3"])
    assert refused.exit_code != 0
    assert "expected_rows=3" in refused.output
