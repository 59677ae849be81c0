"""The command line as a user meets it."""

from __future__ import annotations

import json

import click
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import statsmodels.formula.api as smf
from click.testing import CliRunner

from example_tables import SCHEMA, patients
from gaussmix import Ledger, __version__, accounting, load, release
from gaussmix.cli import main
from gaussmix.data.moments import Moments
from gaussmix.models.results import ratio_table
from gaussmix.report.demo import ROWS


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_version_and_help():
    assert __version__ in run("--version")
    assert "account" in run("--help")
    assert "--sketch-size" in run("account", "-h")


def test_account_prints_every_analysis():
    text = run("account", "-k", "150", "-g", "100", "-d", "1e-8", "--bound-holds-for", "larger")
    for number in ("0.51457", "0.55739", "1.9378"):
        assert number in text


def test_account_calibrates():
    text = run("account", "--sketch-size", "250", "--epsilon", "1", "--delta", "1e-6")
    for number in ("52.827", "58.579", "67.392", "82.47", "195.02"):
        assert number in text


def test_json_is_for_machines():
    rows = json.loads(run("account", "-k", "150", "-g", "100", "-d", "1e-8", "--json"))
    assert rows["exact"]["epsilon"] == accounting.epsilon(1e-8, sketch_size=150, gamma=100.0)
    rows = json.loads(run("account", "-k", "150", "-e", "1", "-d", "1e-8", "--json"))
    assert rows["private"]["delta_spent"] <= 1e-8


def test_an_analysis_that_does_not_apply_says_so():
    rows = json.loads(run("account", "-k", "150", "-g", "2", "-d", "1e-8", "--json"))
    assert "does not apply" in rows["tcdp"]["error"]
    assert "not applicable" in run("account", "-k", "150", "-g", "2", "-d", "1e-8")
    rows = json.loads(run("account", "-k", "150", "-g", "0.9", "-d", "1e-8", "--json"))
    assert "epsilon" in rows["exact"]
    assert "gamma must be > 1" in rows["renyi"]["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-k", "5", "-d", "1e-6"), "Give either --gamma"),
        (("-k", "5", "-d", "1e-6", "-g", "3", "-e", "1"), "Give either --gamma"),
        (("-k", "0", "-d", "1e-6", "-g", "3"), "sketch_size must be an integer ≥ 1"),
        (("-k", "5", "-d", "2", "-g", "3"), "delta must lie in [0, 1]"),
        (("-k", "5", "-d", "1e-6", "-e", "-1"), "epsilon must be a finite number > 0"),
        (("-k", "5", "-d", "1e-6", "-g", "0.5", "--bound-holds-for", "larger"), "gamma must be > 1"),
        (("-k", "5", "-d", "1e-6", "-e", "1", "--bound-holds-for", "larger"), "--bound-holds-for requires --gamma"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words):
    text = run("account", *arguments, code=2)
    assert words in text
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot_is_written(tmp_path, suffix):
    path = tmp_path / f"figure1.{suffix}"
    run("account", "-k", "150", "-g", "100", "-d", "1e-8", "--plot", str(path))
    assert path.stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("start", [("account", "-k", "150", "-g", "100"), ("plan", "-n", "100", "-p", "2", "-e", "1")])
def test_plot_of_an_unknown_format_is_one_line(tmp_path, start):
    said = run(*start, "-d", "1e-8", "--plot", str(tmp_path / "f.xyz"), code=2)
    assert "must end in one of .png, .svg, .pdf" in said


def test_demo_shows_exact_values_beside_private_estimates(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # headings are not wrapped, however wide the intervals are
    text = run("demo", "-o", str(tmp_path))
    assert text.count("least squares on the table") == 2
    assert text.count("maximum likelihood on the table") == 2
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in text.splitlines() if line.startswith("│")}
    exact, private, interval = (cell.strip() for cell in rows["income"])
    private_release, table = load(tmp_path / "demo.release.parquet"), pd.read_parquet(tmp_path / "patients.parquet")
    formula, weights = "cost ~ age + bmi + smoker + region + income", private_release.weights(table)
    truth = smf.wls(formula, private_release.topcode(table), weights=weights).fit().params["income"]
    assert float(exact) == pytest.approx(truth, rel=1e-3)  # four digits, of rows rounded to the lattice
    low, high = (float(end) for end in interval.split(" to "))
    assert low < float(private) < high
    assert [rows[str(number)][2].strip() for number in (1, 4)] == ["100%", "100%"]  # of the rows
    assert "(1, 1e-06)-differentially private" in text
    assert (tmp_path / "demo.report.html").stat().st_size > 10_000
    assert pq.read_metadata(tmp_path / "patients.parquet").num_rows == ROWS
    assert "patients.parquet exists already" in run("demo", "-o", str(tmp_path), code=2)


@pytest.fixture
def files(tmp_path):
    table = patients(4000)
    table.iloc[:2000].to_parquet(tmp_path / "a.parquet")
    table.iloc[2000:].to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def test_schema_template_has_names_and_types_and_no_value(files):
    template = json.loads(run("schema", str(files / "a.parquet")))
    assert template["columns"]["age"] == {"type": "numeric", "lower": None, "upper": None}
    assert template["columns"]["sex"] == {"type": "categorical", "levels": None}
    run("schema", str(files / "a.parquet"), "-o", str(files / "template.json"))
    assert "--force" in run("schema", str(files / "a.parquet"), "-o", str(files / "template.json"), code=2)
    run("schema", str(files / "a.parquet"), "-o", str(files / "template.json"), "--force")
    text = run("release", str(files / "a.parquet"), "-s", str(files / "template.json"), "-e", "1", "-d", "1e-6",
               "-o", str(files / "x.parquet"), code=2)  # fmt: skip
    assert "Column" in text
    assert not (files / "x.parquet").exists()


def test_table_to_release_to_models(files):
    out = str(files / "r.parquet")
    text = run(
        "release", str(files / "a.parquet"), "-s", str(files / "schema.json"), "-e", "5", "-d", "1e-5", "-o", out
    )
    assert "(5, 1e-05)-differentially private" in text
    assert "2000" not in text
    model = json.loads(run("ols", out, "cost", "--predictors", "age", "--predictors", "smoker", "--json"))
    assert model["predictor"]["coef"] == load(out).predictor("cost", ["age", "smoker"]).coef
    low, high = model["coefficients"]["smoker"]["interval"]
    assert low < model["coefficients"]["smoker"]["coef"] < high
    assert "privacy noise" in run("ols", out, "cost")
    assert "population" in run("ols", out, "cost", "--estimand", "population", "--rows", "2000")
    assert "estimated from the release" in run("ols", out, "cost", "--estimand", "population")
    assert "Response: smoker=true. Intervals for: this table" in run("logit", out, "smoker", "--predictors", "cost")
    assert "maximum-likelihood logistic coefficients" in run("logit", out, "smoker", "--predictors", "cost")
    odds = json.loads(run("logit", out, "smoker", "--predictors", "cost", "--odds", "--json"))
    assert odds == load(out).logit("smoker", predictors=["cost"]).odds_ratios().as_plain()
    assert "odds ratio" in run("logit", out, "smoker", "--predictors", "cost", "--odds")
    assert "is not in the release" in run("ols", out, "weight", code=2)
    assert "For the mean over all rows use gaussmix describe." in run("means", out, "cost", code=2)
    model = load(out).poisson("cost", predictors=["smoker"])
    assert run("poisson", out, "cost", "--predictors", "smoker").strip() == str(model.rate_ratios()).strip()
    assert json.loads(run("poisson", out, "cost", "--predictors", "smoker", "--json")) == model.rate_ratios().as_plain()
    logs = json.loads(run("poisson", out, "cost", "--predictors", "smoker", "--log", "--json"))
    assert logs["coefficients"]["smoker"]["coef"] == model.params["smoker"]
    assert "Use logit for boolean and categorical columns" in run("poisson", out, "smoker", code=2)
    run("report", out, "-o", str(files / "report.html"), "--response", "cost")
    assert "<html" in (files / "report.html").read_text()


def test_formulas_and_weights(tmp_path):
    """The schema's terms come from a formula; a weighted release says so; a term that is not there is exit code 2."""
    rng = np.random.default_rng(0)
    years, weights = rng.uniform(0, 40, 2000), rng.uniform(0, 3, 2000)
    wages = np.exp(5 + 0.08 * years - 0.001 * years**2 + rng.normal(0, 0.3, 2000))
    pd.DataFrame({"wage": wages, "years": years, "w": weights}).to_csv(tmp_path / "t.csv", index=False)
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps({"wage": [20, 9000], "years": [0, 50], "w": [0, 3]}), encoding="utf-8")
    out = str(tmp_path / "r.parquet")
    formula = "log(wage) ~ poly(years, 2)"
    budget = ("-e", "20", "-d", "1e-6", "-o", out)
    run("release", str(tmp_path / "t.csv"), "-s", str(schema), "--formula", formula, "--weight", "w", *budget)
    found = json.loads(stdout("ols", out, formula, "--json"))
    assert found["weighted"]
    assert found["coefficients"]["years"]["coef"] == pytest.approx(0.08, rel=0.2)
    assert found["coefficients"]["years^2"]["coef"] == pytest.approx(-0.001, rel=0.3)
    assert "must be declared in the schema's terms" in run("ols", out, "log(wage) ~ poly(years, 3)", code=2)
    assert "require --schema" in run("release", "t.moments", "--weight", "w", *budget, "--force", code=2)


@pytest.mark.slow
def test_levels_are_merged_and_measured_from_others(tmp_path):
    table = patients(2000)
    out = tmp_path / "r.parquet"
    release(table, schema=SCHEMA, epsilon=20.0, delta=1e-5, random_state=0).save(out)
    text = run("ols", str(out), "cost", "--predictors", "region", "--collapse", "region:rest=south,west")
    assert "region=rest" in text
    text = run("poisson", str(out), "cost", "--collapse", "region:rest=south,west", "--reference", "region=rest")
    assert "region=north" in text
    text = run("logit", str(out), "smoker", "--predictors", "region", "--odds", "--reference", "region=west")
    assert "region=north" in text
    assert not any(line.lstrip().startswith("region=west") for line in text.splitlines())
    text = run("mnlogit", str(out), "region", "--predictors", "cost", "--odds", "--reference", "region=west")
    assert "region=north against west: odds ratios" in text
    assert "region=south against west: odds ratios" in text
    one = run("logit", str(out), "region", "--predictors", "cost", "--odds", "--level", "west")
    west = load(out).logit("region", predictors=["cost"], level="west")
    assert one.strip() == str(ratio_table(west.summary())).strip()
    found = json.loads(run("mnlogit", str(out), "region", "--predictors", "cost", "--json"))
    model = load(out).mnlogit("region", predictors=["cost"])
    assert list(found["classes"]) == ["south", "west"]
    plain = json.loads(run("mnlogit", str(out), "region", "--predictors", "cost", "--odds", "--json"))["classes"][
        "west"
    ]
    assert plain == model.odds_ratios()["west"].as_plain()
    for words, arguments in {
        "--collapse must have the form": ("--collapse", "region=south"),
        "--reference must have the form": ("--reference", "region"),
        "defines the same new level twice": ("--collapse", "region:a=south", "--collapse", "region:a=west"),
        "must be given at most once per column": ("--reference", "region=west", "--reference", "region=south"),
    }.items():
        assert words in run("ols", str(out), "cost", *arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ols", "RELEASE", "cost", "--rows", "2000"), "--rows requires --estimand population"),
        (("logit", "RELEASE", "smoker", "--rows", "20", "--estimand", "table"), "--rows requires --estimand pop"),
        (
            ("release", "TABLE", "-s", "SCHEMA", "-e", "1", "-d", "1e-6", "-o", "OUT", "--note", "x"),
            "note requires a ledger",
        ),
        (
            (
                "release",
                "TABLE",
                "-s",
                "SCHEMA",
                "-e",
                "1",
                "-d",
                "1e-6",
                "-o",
                "OUT",
                "--table",
                "sex",
            ),
            "--table must name two columns",
        ),
        (("release", "TABLE", "-s", "SCHEMA", "-e", "1", "-d", "1e-6", "-o", "OUT", "--na-value", "x"), "no CSV file"),
        (("release", "SUMS", "-e", "1", "-d", "1e-6", "-o", "OUT", "--skip-initial-space"), "no CSV file"),
        (("moments", "TABLE", "-s", "SCHEMA", "-o", "OUT", "--quoted-newlines"), "no CSV file"),
        (("check", "TABLE", "-s", "SCHEMA", "--no-quoting"), "no CSV file"),
        (("schema", "TABLE", "--skip-initial-space"), "no CSV file"),
        (("schema", "TABLE", "--force"), "--force has no effect"),
        (("plan", "-n", "9999", "-p", "2", "-e", "1", "-d", "1e-6", "--force"), "--force has no effect"),
        (("account", "-k", "150", "-g", "100", "-d", "1e-8", "--force"), "--force has no effect"),
    ],
)
def test_options_that_would_do_nothing_are_refused(files, arguments, words):
    places = {
        "TABLE": "a.parquet", "SCHEMA": "schema.json", "OUT": "out", "RELEASE": "r.parquet", "SUMS": "a.moments",
    }  # fmt: skip
    if "RELEASE" in arguments:
        release(patients(300), schema=SCHEMA, epsilon=5, delta=1e-6, out=files / "r.parquet")
    if "SUMS" in arguments:
        run("moments", str(files / "a.parquet"), "-s", str(files / "schema.json"), "-o", str(files / "a.moments"))
    said = run(*(str(files / places[word]) if word in places else word for word in arguments), code=2)
    assert words in said
    assert not (files / "out").exists()


def test_every_command_that_reads_tables_has_the_csv_options(files):
    (files / "spaced.csv").write_text("age, cost\n1, ?\n?, 3\n")
    template = json.loads(run("schema", str(files / "spaced.csv"), "--skip-initial-space", "--na-value", "?"))
    assert template["columns"] == {name: {"type": "numeric?", "lower": None, "upper": None} for name in ("age", "cost")}
    for command in ("schema", "check", "bounds", "moments", "release"):
        text = run(command, "--help")
        for option in (
            "--delimiter",
            "--skip-initial-space",
            "--na-value",
            "--quoted-newlines",
            "--quoting / --no-quoting",
        ):
            assert option in text


def test_fields_may_be_separated_by_semicolons(files):
    patients(200).to_csv(files / "semicolons.csv", sep=";", index=False)
    schema, table = str(files / "schema.json"), str(files / "semicolons.csv")
    template = json.loads(run("schema", table, "--delimiter", ";"))
    assert list(template["columns"]) == list(patients(2).columns)
    run("check", table, "-s", schema, "--delimiter", ";", "--expected-rows", "200")
    run("moments", table, "-s", schema, "--delimiter", ";", "-o", str(files / "s.moments"))
    assert (Moments.load(files / "s.moments").gram() == Moments.of(patients(200), SCHEMA).gram()).all()
    assert "is not in" in run("moments", table, "-s", schema, "-o", str(files / "no.moments"), code=3)
    template = files / "wrong.json"
    assert "--delimiter" in run("schema", table, "-o", str(template), code=3)
    assert not template.exists()
    for wrong in (";;", '"', " ", "§"):
        assert "delimiter must be one ASCII character" in run("schema", table, "--delimiter", wrong, code=2)


def test_messages_of_the_library_are_shown_as_they_are(files):
    table, schema = str(files / "b.csv"), str(files / "schema.json")
    out = ("-o", str(files / "x.parquet"))
    budget = ("-s", schema, "-e", "5", "-d", "1e-5", *out)
    assert "does not have expected_rows=3 rows" in run("release", table, *budget, "--expected-rows", "3", code=3)
    assert "epsilon and delta cannot be combined with a ledger" in run(
        "release", table, *budget, "--ledger", _ledger(files), code=2
    )
    assert "neighbours must be 'add-remove', as in the ledger, got 'replace-one'" in run(
        "release", table, "-s", schema, "--ledger", _ledger(files), "--neighbours", "replace-one", *out, code=2
    )
    (files / "stray.csv").write_text('age,cost\n1,"2\n')
    said = run("check", str(files / "stray.csv"), "-s", schema, code=3)
    assert "declare quoted_newlines=True if fields" in said
    assert "or quoting=False if quotes" in said
    taken = run("release", table, *budget[:-1], str(files / "a.parquet"), code=2)
    assert "replace it with force=True (--force)." in taken


def _ledger(files):
    path = files / "rows.ledger"
    if not path.exists():
        Ledger(path, epsilon=1.0, delta=1e-6)
    return str(path)


def test_two_sites_and_one_curator(files):
    schema = str(files / "schema.json")
    run("moments", str(files / "a.parquet"), "-s", schema, "-o", str(files / "a.moments"))
    run("moments", str(files / "b.csv"), "-s", schema, "-o", str(files / "b.moments"))
    both = [str(files / "a.moments"), str(files / "b.moments")]
    run("release", *both, "-e", "5", "-d", "1e-5", "-o", str(files / "joint.parquet"))
    assert load(files / "joint.parquet").certificate.epsilon == 5
    twice = run("release", both[0], both[0], "-e", "5", "-d", "1e-5", "-o", str(files / "x.parquet"), code=3)
    assert "merged twice" in twice
    table = str(files / "a.parquet")
    same = run(
        "release",
        table,
        str(files / "*a.parquet"),
        "-s",
        schema,
        "-e",
        "5",
        "-d",
        "1e-5",
        "-o",
        str(files / "x.parquet"),
        code=3,
    )
    assert "double-counted" in same
    assert "--epsilon must be finite" in run(
        "release", table, "-s", schema, "-e", "inf", "-d", "1e-5", "-o", str(files / "x.parquet"), code=2
    )
    (files / "copy.moments").write_bytes((files / "a.moments").read_bytes())
    again = run(
        "release", both[0], str(files / "copy.moments"), "-e", "5", "-d", "1e-5", "-o", str(files / "x.parquet"), code=3
    )
    assert "merged twice" in again
    assert not (files / "x.parquet").exists()


def test_release_says_what_is_missing(files):
    table = str(files / "a.parquet")
    assert "--schema" in run("release", table, "-e", "1", "-d", "1e-6", "-o", str(files / "x.parquet"), code=2)
    assert "A budget is required" in run(
        "release", table, "-s", str(files / "schema.json"), "-o", str(files / "x.parquet"), code=2
    )
    nowhere = run(
        "release",
        table,
        "-s",
        str(files / "schema.json"),
        "-e",
        "1",
        "-d",
        "1e-6",
        "-o",
        str(files / "no" / "x"),
        code=2,
    )
    assert "Nothing was spent" in nowhere


@pytest.mark.slow
def test_plan_from_public_quantities(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    budget = ("--epsilon", "1", "--delta", "1e-6")
    arguments = ("plan", str(tmp_path / "schema.json"), "--rows", "5000", *budget)
    said = run(*arguments)
    about = "intervals refer to the clipped table"
    for words in (
        "response cost",
        "best case",
        "typical",
        "adverse",
        "loss of R² to privacy (from 0.4)",
        "No data were read",
        about,
    ):
        assert words in said
    plan = json.loads(run(*arguments, "--response", "bmi", "--r2", "0.2", "--passes", "2", "--json"))
    assert (plan["response"], plan["passes"], plan["r2"], plan["n_rows"]) == ("bmi", 2, 0.2, 5000)
    assert plan["scenarios"]["typical"]["useful"] is (plan["rows_needed"] <= 5000)
    assert plan["least_epsilon"] > 0
    run("plan", "-p", "2", "-n", "500", *budget, "--plot", str(tmp_path / "plan.png"))
    assert (tmp_path / "plan.png").stat().st_size > 5_000
    again = ("plan", "-p", "2", "-n", "500", *budget, "--plot", str(tmp_path / "plan.png"))
    assert "--force" in run(*again, code=2)
    run(*again, "--force")


@pytest.mark.slow
def test_plan_tells_how_many_rows_are_needed():
    budget = ("-e", "1", "-d", "1e-6")
    said = run("plan", "-p", "3", *budget)
    assert "The typical table needs about" in said
    assert "Give --rows" in said
    assert list(json.loads(run("plan", "-p", "3", *budget, "--json"))) == ["rows_needed", "privacy_unit"]
    few = run("plan", "-p", "3", "-n", "20", *budget)
    assert "Use more rows, fewer columns or levels, or a larger ε." in few


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "0", "-p", "3"), "rows must be"),
        (("--rows", "10"), "Give either SCHEMA or --features"),
        (("-p", "3", "--plot", "x.png"), "--plot requires --rows"),
        (("-p", "3", "--response", "z"), "'z' is not in the schema. The columns are x1, x2, x3, y"),
        (("-p", "3", "--passes", "7"), "passes must be one of 1, 2, 3, 4"),
        (("no-such-file.json",), "does not exist"),
    ],
)
def test_plan_refuses_what_it_cannot_plan(arguments, words):
    assert words in run("plan", *arguments, "-e", "1", "-d", "1e-6", code=2)


def test_no_input_is_overwritten(files):
    table, schema = files / "a.parquet", str(files / "schema.json")
    before = table.read_bytes()
    budget = ("-s", schema, "-e", "5", "-d", "1e-5")
    assert "is one of the inputs" in run("release", str(table), *budget, "-o", str(table), code=2)
    assert "is one of the inputs" in run("release", str(table), *budget, "-o", schema, code=2)
    assert "lies in an input directory" in run("release", str(files), *budget, "-o", str(files / "out.parquet"), code=2)
    assert "exists already" in run("schema", str(table), "-o", schema, code=2)
    assert "cannot be written" in run("release", str(table), *budget, "-o", "/dev/null", code=2)
    assert table.read_bytes() == before
    out = files / "r.parquet"
    run("release", str(table), *budget, "-o", str(out))
    assert "is one of the inputs" in run("report", str(out), "-o", str(out), code=2)
    content = bytearray(out.read_bytes())
    content[100:400] = bytes(300)
    out.write_bytes(content)
    assert "Error" in run("ols", str(out), "cost", code=5)


def every_command():
    """Return the path of every command and of every command in a group."""
    found = []
    with click.Context(main) as context:
        for name in main.list_commands(context):
            own = main.get_command(context, name)
            found += [(name, each) for each in own.commands] if isinstance(own, click.Group) else [(name,)]
    return found


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_help_has_no_markup(path):
    text = run(*path, "--help")
    for markup in ("`", "**", ":class:", ":func:", ":math:"):
        assert markup not in text


def test_help_keeps_examples_on_their_lines():
    text = run("release", "--help")
    assert "\\b" not in text
    assert "\n  gaussmix release site-a.moments" in text


def stdout(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_command_speaks_json(files):
    schema, out = str(files / "schema.json"), str(files / "r.parquet")
    sums = json.loads(
        stdout("moments", str(files / "a.parquet"), "-s", schema, "-o", str(files / "a.moments"), "--json")
    )
    assert sums["sensitive"] is True
    assert "n" not in sums
    released = json.loads(stdout("release", str(files / "a.moments"), "-e", "5", "-d", "1e-5", "-o", out, "--json"))
    assert released["epsilon"] == 5
    page = json.loads(stdout("report", out, "-o", str(files / "r.html"), "--response", "cost", "--json"))
    assert page["release"] == out


def test_tails_are_kept_on_request(files, monkeypatch):
    asked = []

    def noted(*arguments, **options):
        asked.append(options["topcode"])
        return release(*arguments, **options)

    monkeypatch.setattr("gaussmix.cli.data.draw_release", noted)
    command = (
        "release",
        str(files / "a.parquet"),
        "-s",
        str(files / "schema.json"),
        "-e",
        "1",
        "-d",
        "1e-6",
        "--force",
    )
    for more in ((), ("--no-topcode",)):
        run(*command, "-o", str(files / "tails.parquet"), *more)
    assert asked == ["auto", None]
