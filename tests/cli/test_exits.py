"""The command as a process: exit codes, no traceback for bad input, closed and broken streams, little memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main

COMMAND = [sys.executable, "-c", "from gaussmix.cli import main; main()"]
BUDGET = ["-e", "1", "-d", "1e-6"]


def shell(*arguments, code=0, **options):
    """Run the command; its exit code is as told, and nothing looks like a fault of the library."""
    options = {"capture_output": True, "text": True, "errors": "surrogateescape", "timeout": 120} | options
    done = subprocess.run([*COMMAND, *map(str, arguments)], check=False, **options)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in (done.stderr or "")
    assert "Exception ignored" not in (done.stderr or "")
    return done


def here(*arguments, code):
    """The same without a process of its own; a fault of the library would be an exception that is no exit."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    patients(300).to_parquet(folder / "a.parquet")
    patients(300).to_csv(folder / "a.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    gm.release(patients(300), schema=SCHEMA, epsilon=5, delta=1e-6, out=folder / "r.parquet")
    gm.Ledger(folder / "patients.ledger", epsilon=1.0, delta=1e-6).spend(mu=0.2)
    return folder


def test_exit_codes(files, tmp_path):
    table, out = files / "a.parquet", tmp_path / "x.parquet"
    shell("release", table, "-s", files / "schema.json", *BUDGET, "-o", out)
    shell("release", table, "-s", files / "schema.json", *BUDGET, "-o", out, code=2)
    (tmp_path / "narrow.json").write_text(json.dumps({**SCHEMA, "sex": ["f"]}))
    bad = here("release", table, "-s", tmp_path / "narrow.json", *BUDGET, "-o", tmp_path / "y", code=3)
    assert "'sex' has values that are not among its declared levels" in bad
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    here("release", tmp_path / "bad.parquet", "-s", files / "schema.json", *BUDGET, "-o", tmp_path / "y", code=3)
    full = ["--ledger", files / "patients.ledger"]
    spent = here("release", table, "-s", files / "schema.json", *full, "-o", tmp_path / "y", code=4)
    assert "0 more releases of the planned size" in spent
    (tmp_path / "damaged").write_bytes(out.read_bytes()[:-100])
    shell("ols", tmp_path / "damaged", "cost", code=5)
    (tmp_path / "no.ledger").write_bytes(b"SQLite format 3\0" + bytes(4000))
    here(
        "release", table, "-s", files / "schema.json", "--ledger", tmp_path / "no.ledger", "-o", tmp_path / "y", code=5
    )
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("regres", "No such command 'regres'. Try 'main --help'."),
        ("--fish", "No such option '--fish'. Try 'main --help'."),
        ("plan --fish", "No such option '--fish'. Try 'main plan --help'."),
        ("release a.csv", "Missing option '--out' / '-o'. Try 'main release --help'."),
        ("release a.csv -e", "Option '-e' requires an argument. Try 'main release --help'."),
        ("verify a b", "Got unexpected extra argument (b). Try 'main verify --help'."),
        ("verify", "Missing argument 'RELEASE'. Usage: 'main verify [OPTIONS] RELEASE'. Try 'main verify --help'."),
        ("ledger show no.ledger", "File 'no.ledger' does not exist. Try 'main ledger show --help'."),
        ("release a.csv -o x", "A budget is required: pass epsilon and delta, or a ledger."),
    ],
)
def test_a_command_that_is_written_wrongly_is_one_line(tmp_path, monkeypatch, line, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").touch()
    words = here(*line.split(), code=2).removesuffix("\n")
    assert words.startswith("Error: ")
    assert words.endswith(said)
    assert "\n" not in words


@pytest.mark.parametrize("line", ["", "ledger"])
def test_no_command_is_help_and_not_one_line(line):
    assert "Commands:\n" in here(*line.split(), code=2)


@pytest.mark.parametrize("table", ["a.csv", "a.parquet"])
def test_an_output_that_promises_another_format_costs_nothing(files, tmp_path, table):
    ledger = tmp_path / "x.ledger"
    gm.Ledger(ledger, epsilon=1.0, delta=1e-6)
    options = ["-s", files / "schema.json", "--ledger", ledger, "-o", tmp_path / "x.csv"]
    said = here("release", files / table, *options, code=2)
    assert "x.csv has the wrong suffix for a Parquet file (the format of releases)." in said
    assert "Choose a name that ends in .parquet. Nothing" in said
    assert not gm.Ledger.open(ledger).entries()
    for line, wrong, words in (
        (["schema", files / table, "-o"], "x.toml", "a JSON schema. Choose a name that ends in .json"),
        (["report", files / "r.parquet", "-o"], "x.pdf", "an HTML page. Choose a name that ends in .html"),
        (["report", files / "r.parquet", "--label"], "x.png", "an SVG label"),
        (["report", files / "r.parquet", "--registry"], "x.json", "a YAML record"),
        (["export", files / "r.parquet"], "x.parquet", "a CSV file"),
    ):
        assert f"{wrong} has the wrong suffix for {words}" in here(*line, tmp_path / wrong, code=2)
    options = ["-s", files / "schema.json", "-o", tmp_path / "x.parquet"]
    assert "has the wrong suffix for a file of moments" in here("moments", files / table, *options, code=2)
    assert [file.name for file in tmp_path.iterdir()] == ["x.ledger"]


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("ols", ["cost"]),
        ("logit", ["sex"]),
        ("describe", []),
        ("means", ["cost", "sex"]),
        ("corr", []),
        ("crosstab", ["sex", "sex"]),
        ("synthetic", ["10", "-o", "y.csv"]),
        ("export", ["y.csv"]),
        ("report", ["-o", "y.html"]),
        ("verify", []),
    ],
)
@pytest.mark.parametrize("table", ["a.csv", "a.parquet"])
def test_a_table_is_no_release_and_is_not_said_to_be_damaged(files, tmp_path, monkeypatch, command, rest, table):
    monkeypatch.chdir(tmp_path)
    said = here(command, files / table, *rest, code=5).strip()
    assert f"{files / table} is not a gaussmix release. Make one from a table first: `gaussmix release" in said
    assert "damaged" not in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.csv", "does not exist"),
        ("absent-*.csv", "No file matches"),
        ("rows.xlsx", "must end in one of"),
        ("empty", "contains no Parquet, Arrow or CSV file"),
        ("dangling.csv", "is neither a file nor a directory"),
        ("absent.moments", "does not exist"),
    ],
)
@pytest.mark.parametrize("command", ["schema", "check", "moments", "release"])
def test_a_source_that_is_not_there_or_no_table_is_a_wrong_argument(files, tmp_path, command, name, words):
    """However it is named: not the rows are at fault."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.xlsx").write_bytes(b"x")
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    options = [] if command == "schema" else ["-s", files / "schema.json"]
    options += BUDGET if command == "release" else []
    options += ["-o", tmp_path / "out"] if command in ("moments", "release") else []
    assert words in here(command, tmp_path / name, *options, code=2)


def test_csv_options_that_contradict_each_other_are_wrong_arguments(files, tmp_path):
    (tmp_path / "a.csv").write_text("age\n1\n")
    command = ("check", tmp_path / "a.csv", "-s", files / "schema.json", "--skip-initial-space", "--quoted-newlines")
    assert "cannot be combined" in here(*command, code=2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"age": ' * 50_000, "nested too deeply"),
        ('{"age": [0, ' + "9" * 400 + "]}", "upper must be smaller than 1.8e308"),
        ('{"age": [0, ' + "9" * 100_000 + "]}", "not a valid JSON file"),
        ('{"\\ud800": [0, 1]}', "valid Unicode"),
        ("{}", "must not be empty"),
        ("[]", "must contain one object"),
        ("\0", "not a valid JSON file"),
        ('{"age": {"type": [[[]]]}}', "type must be one of"),
        ('{"age": [0, 1], "age": [0, 2]}', "occurs twice"),
    ],
)
def test_absurd_schemas(files, tmp_path, content, words):
    (tmp_path / "s.json").write_text(content)
    command = ("release", files / "a.parquet", *BUDGET, "-o", tmp_path / "x", "-s")
    assert words in here(*command, tmp_path / "s.json", code=2)
    (tmp_path / "s.toml").write_text("a = " + "[" * 100_000)
    assert "nested too deeply" in here(*command, tmp_path / "s.toml", code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", "-k", "9" * 400, "-g", "100", "-d", "1e-8"),
        ("account", "-k", "9" * 9000, "-e", "1", "-d", "1e-8"),
        ("account", "-k", "10", "-e", "1e400", "-d", "1e-8"),
        ("account", "-k", "10", "-e", "nan", "-d", "1e-400"),
        ("account", "-k", "-5", "-g", "nan", "-d", "nan"),
        ("plan", "-n", "9" * 400, "-p", "3", "-e", "1", "-d", "1e-6"),
        ("plan", "-n", "1000", "-p", "9" * 30, "-e", "1", "-d", "1e-6"),
        ("plan", "-n", "1000", "-p", "3", "-e", "1", "-d", "1e-6", "--r2", "7"),
        ("plan", "-n", "1000", "-p", "3", "-e", "inf", "-d", "1e-6"),
        ("demo", "-e", "-1"),
        ("no-such-command",),
    ],
)
def test_absurd_numbers(arguments):
    here(*arguments, code=2)


@pytest.mark.parametrize("epsilon", ["100", "701", "1e6"])
def test_an_epsilon_that_is_too_large_is_refused_in_one_sentence(files, tmp_path, epsilon):
    options = ("-s", files / "schema.json", "-e", epsilon, "-d", "1e-6", "-o", tmp_path / "x.parquet")
    for command in (("release", files / "a.parquet", *options), ("plan", files / "schema.json", *options[2:6])):
        said = here(*command, code=2)
        words = f"Error: epsilon={float(epsilon):g} is too large: values above 20 give almost no protection."
        assert said.splitlines()[-1] == f"{words} Choose a smaller epsilon."
    assert not list(tmp_path.iterdir())


def test_bytes_that_are_no_text_reach_no_ledger(files, tmp_path):
    wrong = os.fsdecode(b"\xff\xfe")
    ledger = files / "patients.ledger"
    before = ledger.read_bytes()
    command = ("release", files / "a.parquet", "-s", files / "schema.json", "--ledger", ledger)
    assert "UTF-8" in shell(*command, "-o", tmp_path / "x", "--note", wrong, code=2).stderr
    assert "UTF-8" in shell(*command, "-o", tmp_path / wrong, code=2).stderr
    assert "UTF-8" in shell("ols", files / "r.parquet", wrong, code=2).stderr
    with pytest.raises(gm.errors.ArgumentError, match="note must be valid Unicode"):
        gm.release(patients(20), schema=SCHEMA, budget=gm.Budget(ledger=ledger, note="\ud800"))
    assert ledger.read_bytes() == before
    shell("ols", files / "r.parquet", "cost", env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"})


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-", "2> /dev/full"])
def test_closed_streams(files, tmp_path, closed):
    """No file of ours may become descriptor 1 or 2, which libraries write to."""
    out = tmp_path / "x.parquet"
    arguments = ["release", files / "a.parquet", "-s", files / "schema.json", *BUDGET, "-o", out]
    line = " ".join(f"'{part}'" for part in [*COMMAND, *map(str, arguments)])
    done = subprocess.run(f"{line} {closed}", shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert gm.load(out).certificate.epsilon == 1
    if "/dev/full" not in closed:
        assert done.returncode == 0


def test_full_and_broken_outputs_are_no_traceback(files):
    for command in (("account", "-k", "150", "-g", "100", "-d", "1e-8"), ("ols", files / "r.parquet", "cost")):
        with open("/dev/full", "w") as full:
            failed = shell(*command, code=2, stdout=full, stderr=subprocess.PIPE, capture_output=False)
        assert "No space left" in failed.stderr
        reader, writer = os.pipe()
        os.close(reader)
        try:
            shell(*command, code=1, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
        finally:
            os.close(writer)


def test_interrupted(files, tmp_path):
    """Ctrl-C while rows are awaited: nothing is written, nothing is left, no traceback."""
    slow = "import signal, time, gaussmix.data.rows as m\n"
    slow += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job of a shell ignores it
    slow += "m.aggregate_batches = lambda *a, **k: (print('reading', flush=True), time.sleep(60))"
    arguments = ["release", files / "a.parquet", "-s", files / "schema.json", *BUDGET, "-o", tmp_path / "x"]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{slow}\nfrom gaussmix.cli import main; main()", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "reading"
    assert len(list(tmp_path.iterdir())) == 2  # the room that was taken, for the file and for outputs before it
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in words
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_ours_looks_like_one(files, monkeypatch):
    for fault in (TypeError("'NoneType' object is not subscriptable"), ValueError("of ours"), RuntimeError("of ours")):
        monkeypatch.setattr("gaussmix.cli.models.load", lambda *_, fault=fault: (_ for _ in ()).throw(fault))
        result = CliRunner().invoke(main, ["ols", str(files / "r.parquet"), "cost"])
        assert result.exception is fault
        assert "a bug in gaussmix" in result.exception.__notes__[0]
    faulty = "import gaussmix.cli.models as r; r.load = lambda path: len(None)\nfrom gaussmix.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", faulty, "ols", files / "r.parquet", "cost"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "please report it" in done.stderr


def test_weak_budgets_are_one_line(files, tmp_path):
    command = ("release", files / "a.parquet", "-s", files / "schema.json")
    done = shell(*command, "-e", "1", "-d", "0.1", "-o", tmp_path / "0.parquet")
    assert "one row in 10" in done.stderr
    assert done.stderr.count("Warning") == 1
    budget = ("-e", "30", "-d", "1e-6")
    result = CliRunner().invoke(main, [*map(str, command), *budget, "-o", str(tmp_path / "1.parquet")])
    assert result.exit_code == 0
    assert "no meaningful worst-case guarantee" in result.stderr
    assert result.stderr.count("Warning") == 1
    good = CliRunner().invoke(main, [*map(str, command), *BUDGET, "-o", str(tmp_path / "good.parquet")])
    assert good.exit_code == 0
    assert "guarantee" not in good.stderr


def test_a_ledger_without_room_refuses_before_a_row_is_read(files, tmp_path):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=2)
    ledger.spend(mu=0.2)

    def touched():
        raise AssertionError("a row was read")
        yield

    start = time.monotonic()
    with pytest.raises(ValueError, match="exceeds the remaining budget"):
        gm.release(touched(), schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=tmp_path / "x")
    assert time.monotonic() - start < 0.5
    (tmp_path / "big.parquet").write_bytes(b"not even a table")
    command = ("release", tmp_path / "big.parquet", "-s", files / "schema.json", "-o", tmp_path / "x")
    assert "remains" in shell(*command, "--ledger", ledger.path, code=4).stderr
    assert "exists already" in shell(*command[:-1], files / "a.parquet", *BUDGET, code=2).stderr


def test_the_package_can_be_run_as_a_module():
    asked = [sys.executable, "-m", "gaussmix", "--version"]
    assert gm.__version__ in subprocess.run(asked, capture_output=True, text=True, check=True).stdout
