"""Tables from a release on the command line."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from example_tables import SCHEMA, patients
from gaussmix import load, release
from gaussmix.cli import main


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    out = tmp_path_factory.mktemp("release") / "r.parquet"
    release(patients(4000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, out=out)
    return str(out)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def printed(*arguments: str) -> str:
    """Standard output alone."""
    return CliRunner().invoke(main, arguments).stdout


def test_tables_are_those_of_the_library(file):
    private = load(file)
    assert str(private.describe()) in run("describe", file)
    assert json.loads(run("describe", file, "--columns", "age", "--json")) == private.describe(["age"]).as_plain()
    assert printed("describe", file, "--alpha", "0.1", "--csv") == private.describe(alpha=0.1).as_csv()
    assert str(private.corr()) in run("corr", file)
    rows = json.loads(run("corr", file, "--columns", "age", "--columns", "cost", "--given", "sex", "--json"))["rows"]
    assert rows == private.corr(["age", "cost"], given=["sex"]).pairs().as_plain()["rows"]
    assert str(private.crosstab("sex", "region")) in run("crosstab", file, "sex", "region")
    cells = list(csv.DictReader(io.StringIO(printed("crosstab", file, "sex", "region", "--csv"))))
    estimates = private.crosstab("sex", "region").estimates
    assert [float(cell["estimate"]) for cell in cells] == estimates.ravel().tolist()


def test_means_are_those_of_the_library(file):
    private = load(file)
    assert str(private.means("cost", "region")) in run("means", file, "cost", "region")
    found = json.loads(run("means", file, "smoker", "sex", "--alpha", "0.2", "--json"))
    assert found == private.means("smoker", "sex", alpha=0.2).as_plain()
    assert printed("means", file, "cost", "region", "--csv") == private.means("cost", "region").as_csv()
    assert run("means", file, "cost", "region", "--latex").strip() == private.means("cost", "region").as_latex()


@pytest.mark.parametrize(
    ("command", "response", "model"),
    [
        ("ols", "cost", lambda private: private.ols("cost", ["age", "sex"])),
        ("logit", "smoker", lambda private: private.logit("smoker", ["age", "sex"])),
        ("mnlogit", "region", lambda private: private.mnlogit("region", ["age", "sex"])),
        ("poisson", "cost", lambda private: private.poisson("cost", ["age", "sex"])),
    ],
)
def test_models_are_printed_as_csv_and_latex_at_every_level(file, command, response, model):
    own = model(load(file))
    more = ("--log",) if command == "poisson" else ()
    asked = (command, file, response, "--predictors", "age,sex", "--alpha", "0.2", *more)
    assert asked[0] == "mnlogit" or "[0.1" in run(*asked)
    assert printed(*asked, "--csv") == own.as_csv(0.2)
    assert printed(*asked, "--latex").strip() == own.as_latex(0.2)
    summaries = own.summary()
    for name, summary in summaries.items() if command == "mnlogit" else [("", summaries)]:
        plain = json.loads(run(*asked, "--json"))
        plain = plain["classes"][name] if name else plain
        assert plain["coefficients"]["age"]["interval"] == list(summary.conf_int(0.2)["age"])


@pytest.mark.parametrize(("command", "response"), [("logit", "smoker"), ("mnlogit", "region"), ("poisson", "cost")])
def test_ratios_are_printed_as_csv_and_latex(file, command, response):
    odds = () if command == "poisson" else ("--odds",)
    rows = list(csv.DictReader(io.StringIO(printed(command, file, response, "--predictors", "age", *odds, "--csv"))))
    assert {row["term"] for row in rows} == {"age"}
    assert len(rows) == (2 if command == "mnlogit" else 1)
    assert ("y.level" in rows[0]) == (command == "mnlogit")
    assert all(0 < float(row["conf.low"]) < float(row["conf.high"]) for row in rows)
    assert r"\begin{tabular}" in printed(command, file, response, "--predictors", "age", *odds, "--latex")


def test_predictors_are_separated_by_commas_or_repeated(file):
    together = run("ols", file, "cost", "--predictors", "age, sex", "--predictors", "smoker")
    assert together == run("ols", file, "cost", *(f"--predictors={name}" for name in ("age", "sex", "smoker")))


def test_commas_in_terms_and_names_separate_nothing(tmp_path):
    table, out = patients(300)[["age", "cost"]].rename(columns={"cost": "cost, paid"}), tmp_path / "r.parquet"
    schema = {"columns": {"age": [0, 100], "cost, paid": [0, 50]}, "terms": ["poly(age, 2)"]}
    release(table, schema=schema, epsilon=5.0, delta=1e-6, passes=1, out=out)
    terms = json.loads(run("ols", str(out), "cost, paid", "--predictors", "poly(age, 2)", "--json"))
    assert list(terms["coefficients"]) == ["(intercept)", "age", "age^2"]
    assert "cost, paid" in run("ols", str(out), "age", "--predictors", "cost, paid")


def test_coefficients_are_printed_per_several_units(file):
    one, ten = (
        json.loads(run("ols", file, "cost", "--json", *per))["coefficients"] for per in ((), ("--per", "age=10"))
    )
    assert ten["age (per 10)"]["coef"] == pytest.approx(10 * one["age"]["coef"])
    assert "age (per SD of " in run("logit", file, "smoker", "--predictors", "age", "--odds", "--per", "age=sd")
    for wrong in ("age", "age=ten", "=3"):
        assert "--per must have the form COEFFICIENT=NUMBER" in run("ols", file, "cost", "--per", wrong, code=2)
    assert "per must name coefficients of numeric columns" in run("ols", file, "cost", "--per", "a=2", code=2)


def test_columns_of_tables_are_separated_by_commas_or_repeated(file):
    assert run("describe", file, "--columns", "age,cost") == run(
        "describe", file, "--columns", "age", "--columns", "cost"
    )
    assert run("corr", file, "--columns", "age,cost", "--given", "smoker") == run(
        "corr", file, "--columns", "age", "--columns", "cost", "--given", "smoker"
    )
    assert "must not be empty" in run("describe", file, "--columns", "", code=2)


@pytest.mark.parametrize(
    "line",
    [
        "ols FILE costt",
        "ols FILE age --predictors costt",
        "logit FILE smoker --predictors age,costt",
        "mnlogit FILE region --predictors costt",
        "poisson FILE costt",
        "means FILE costt sex",
        "describe FILE --columns costt",
        "corr FILE --columns age --columns costt",
        "report FILE -o new.html --response costt",
    ],
)
def test_a_misspelt_column_is_answered_with_the_nearest(file, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    assert "Did you mean 'cost'?" in run(*line.replace("FILE", file).split(), code=2)


def test_synthetic_rows_are_written_and_marked(file, tmp_path):
    out = tmp_path / "rows.parquet"
    assert "reproduce only the distributions of single columns" in run(
        "synthetic", file, "50", "-o", str(out), "--seed", "1"
    )
    assert b"gaussmix.synthetic" in pq.read_schema(out).metadata
    assert "--force" in run("synthetic", file, "50", "-o", str(out), code=2)
    run("synthetic", file, "5", "-o", str(tmp_path / "rows.csv"))
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 6
    assert ".csv or .parquet" in run("synthetic", file, "5", "-o", str(tmp_path / "rows.txt"), code=2)


def test_an_export_for_r_has_the_matrices_and_the_units(file, tmp_path):
    out, private = tmp_path / "r.csv", load(file)
    run("export", file, str(out), "--to", "r")
    rows = list(csv.reader(io.StringIO(out.read_text())))
    m, noisy = private.schema.n_columns, private.statistic.noisy
    assert rows[0] == ["block", *private.schema.names]
    assert [row[0] for row in rows[-2 * m :]] == ["M"] * m + ["N"] * m
    assert [float(x) for x in rows[-2 * m][1:]] == noisy.moment[0].tolist()
    assert [float(x) for x in rows[-1][1:]] == noisy.shape[-1].tolist()
    (scales,) = (row[1:] for row in rows if row[0] == "scale")
    assert [float(x) for x in scales] == private.schema.units.scales.tolist()


def test_what_makes_no_sense_is_refused(file):
    assert "mutually exclusive" in run("describe", file, "--json", "--csv", code=2)
    assert "require a categorical or boolean column, got 'age'" in run("crosstab", file, "sex", "age", code=2)
