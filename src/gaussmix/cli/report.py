"""Commands for reports, verification, signatures, planning and accounts."""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gaussmix import accounting
from gaussmix._files import refuse_inputs, refuse_suffix, reserve
from gaussmix._text import json_text, plain
from gaussmix.accounting.calibration import calibrate
from gaussmix.accounting.parameters import BoundHoldsFor
from gaussmix.cli.exits import NOT_PRIVATE, command, echo, echo_json
from gaussmix.cli.options import (
    ALPHA,
    FORCE,
    INPUT_FILE,
    JSON,
    NEIGHBOURS_OPTION,
    PREDICTORS,
    RELEASE,
    UNIT,
    names_in,
    out_option,
    refuse_lone_force,
    unit_of,
)
from gaussmix.data.contributions import ONE_ROW
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.release import Release
from gaussmix.releases.file import read_bytes
from gaussmix.releases.file import sign as signed
from gaussmix.report.label import as_svg
from gaussmix.report.page import render
from gaussmix.report.plan import LARGEST_EPSILON, RATE_RATIO, Plan, Planner, numeric_schema
from gaussmix.report.registry import TO_FILL_IN, as_yaml, record_of
from gaussmix.report.statement import is_valid
from gaussmix.report.verify import verdict_on
from gaussmix.report.verify import verify as verified

__all__ = ["account", "plan", "report", "sign", "verify"]


@command()
@RELEASE
@out_option("HTML file.")
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    help="Write a record for the public registry of differential-privacy deployments to this YAML file.",
)
@click.option("--label", type=click.Path(path_type=Path), help="Write the privacy label to this SVG file.")
@ALPHA
@click.option("--response", help="Response of the initial model. Default: the reader chooses one.")
@PREDICTORS
@click.option("--title", default="", help="Title of the page.")
@click.option("--description", default="", help="One or two sentences shown below the title.")
@click.option("--rows", "n_rows", type=int, help="Number of rows, if it is public; for population intervals.")
@FORCE
@JSON
def report(
    file: Path,
    out: Path | None,
    registry: Path | None,
    label: Path | None,
    force: bool,
    as_json: bool,
    **page: Any,
) -> None:
    """Write an HTML page about a release: privacy statement, and models and tables chosen by the reader.

    The page contains the release and computes in the browser. It loads and sends nothing, and costs no privacy.

    \b
    gaussmix report patients.release.parquet -o report.html --response cost --predictors age,sex
    gaussmix report patients.release.parquet -o report.html --title "Costs of patients, 2025" --rows 20000
    gaussmix report patients.release.parquet --registry record.yaml --label label.svg

    Fields of the registry record that need human judgement are left to be filled in.

    Exit code 5 if the release has no privacy guarantee: the page says so and shows no ε.
    """  # noqa: D301 - click wants the character
    if out is None and registry is None and label is None:
        raise click.UsageError("At least one of --out, --registry and --label is required.")
    if out is None:
        _refuse_page_options(*page, "as_json")
    for path, own, kind in (
        (out, (".html",), "an HTML page"),
        (registry, (".yaml", ".yml"), "a YAML record"),
        (label, (".svg",), "an SVG label"),
    ):
        if path is not None:
            refuse_inputs(path, [file])
            refuse_suffix(path, own=own, kind=kind)
    content = read_bytes(file)
    release, digest = Release.from_bytes(content, name=file), hashlib.sha256(content).hexdigest()
    if registry is not None:
        written = _write(registry, as_yaml(record_of(release, file_sha256=digest)), force)
        echo(f"wrote {written}: fill in the fields marked {TO_FILL_IN}", err=True)
    if label is not None:
        echo(f"wrote {_write(label, as_svg(release), force)}", err=True)
    if out is None:
        return
    page["predictors"] = names_in(release, page["predictors"])
    written, valid = _write(out, render(release, file_sha256=digest, **page), force), is_valid(release)
    if as_json:
        echo_json({"file": str(written), "release": str(file), "private": valid})
    echo(f"wrote {written}", err=True)
    if not valid:
        echo(f"{file} has no privacy guarantee. Do not publish it.", err=True)
        raise click.exceptions.Exit(NOT_PRIVATE)


def _refuse_page_options(*names: str) -> None:
    """Reject page options if no page is written."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} requires --out.")


def _write(path: Path, text: str, force: bool) -> Path:
    return reserve(path, 0, force=force).commit(text.encode())


_KEY = functools.partial(click.option, "--key", type=INPUT_FILE)


@command()
@RELEASE
@_KEY(required=True, help="Ed25519 private key, PEM: openssl genpkey -algorithm ed25519 -out private.pem.")
@FORCE
def sign(file: Path, key: Path, force: bool) -> None:
    """Sign a release with an Ed25519 key, in RELEASE.sig. A release without a guarantee is not signed."""
    content = read_bytes(file)
    verdict = verdict_on(content, file)
    if not verdict.is_private:
        echo(verdict.sentence)
        raise click.exceptions.Exit(NOT_PRIVATE)
    echo(f"wrote {signed(content, file, key, force=force)}", err=True)


@command()
@RELEASE
@_KEY(help="Ed25519 public key, PEM: require a valid signature in RELEASE.sig.")
@JSON
def verify(file: Path, key: Path | None, as_json: bool) -> None:
    """Recompute (ε, δ) of a release from its noise. Exit code 0: its certificate is valid.

    Exit code 5: it claims more privacy than it gives, is void or damaged, or is not signed with the key.
    """
    verdict = verified(file, key=key)
    echo(json_text(verdict.to_dict()) if as_json else verdict.sentence)
    if not verdict.is_private:
        raise click.exceptions.Exit(NOT_PRIVATE)


@command()
@click.argument("schema_file", metavar="[SCHEMA]", required=False, type=INPUT_FILE)
@click.option("--features", "-p", type=int, help="Instead of SCHEMA: number of numeric predictors.")
@click.option("--rows", "-n", type=int, help="Number of rows. Default: print the required number of rows only.")
@click.option("--epsilon", "-e", type=float, required=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget.")
@click.option("--response", help="Response, numeric or boolean. Default: the last numeric column.")
@click.option("--r2", type=float, default=0.4, show_default=True, help="Expected R² without privacy.")
@click.option("--mean", type=float, help="Expected mean of a count response, to plan for rate ratios.")
@click.option("--passes", type=int, help="Number of passes over the data, 1 to 4. Default: 4.")
@NEIGHBOURS_OPTION
@UNIT[0]
@UNIT[1]
@JSON
@click.option("--plot", type=click.Path(path_type=Path), help="Plot the loss of R² against ε: PNG, SVG or PDF file.")
@FORCE
def plan(
    schema_file: Path | None,
    features: int | None,
    rows: int | None,
    epsilon: float,
    privacy_unit: str | None,
    max_contributions: int | None,
    as_json: bool,
    plot: Path | None,
    force: bool,
    passes: int | None,
    **question: Any,
) -> None:
    """Estimate the required number of rows and the expected accuracy of a release, without data.

    Simulates three tables that match SCHEMA (TOML or JSON): a best case, a typical and an adverse one. With
    --privacy-unit, each simulated unit has --max-contributions rows.

    \b
    gaussmix plan patients.json -e 1 -d 1e-6
    gaussmix plan patients.json --rows 20000 -e 1 -d 1e-6 --response cost
    """  # noqa: D301 - click wants the character
    refuse_lone_force(force, plot)
    if (schema_file is None) == (features is None):
        raise click.UsageError("Give either SCHEMA or --features.")
    if plot is not None and rows is None:
        raise click.UsageError("--plot requires --rows.")
    schema = Schema.of(schema_file) if schema_file is not None else numeric_schema(features or 0)
    unit = unit_of(privacy_unit, max_contributions)
    if unit is not None:
        unit.check_schema(schema)
        question["max_contributions"] = unit.max_contributions
    planner = Planner(schema, passes=passes or "auto", **question)
    found, least = None, None
    with Console(stderr=True).status("simulating tables") as status:
        if rows is not None:
            found = planner.expect(n_rows=rows, epsilon=epsilon)
            status.update("searching for the smallest useful ε")
            least = planner.least_epsilon(n_rows=rows)
        status.update("searching for the required number of rows")
        needed = planner.rows_needed(epsilon=epsilon)
        if plot is not None:
            status.update("drawing")
            from gaussmix.report.plots import lost_r2  # an optional extra

            lost_r2(plot, planner, n_rows=rows or 0, chosen=epsilon, force=force)
    shown_unit = ONE_ROW if unit is None else str(unit)
    if as_json:
        answers = {} if found is None else {**found.to_dict(), "least_epsilon": least}
        echo_json({**answers, "rows_needed": needed, "privacy_unit": shown_unit})
    else:
        if found is not None:
            Console(file=sys.stdout).print(_expectations(found))
        echo(f"Privacy unit: {shown_unit}.")
        for sentence in _sentences(planner, found, least, needed, epsilon):
            echo(sentence)
    if plot is not None:
        echo(f"wrote {plot}", err=True)


def _expectations(found: Plan) -> Table:
    """Return one column per scenario."""
    title = (
        f"{found.n_rows:,} rows, {found.columns} encoded columns, response {plain(found.response)}: "
        f"ε = {found.epsilon:g}, δ = {found.delta:g}, {found.passes} pass{'es' if found.passes > 1 else ''}"
    )

    def bounded(value: float, digits: str) -> str:
        return "unbounded" if value == math.inf else f"{value:{digits}}"

    table = Table("simulated table", title=escape(title), title_justify="left")
    for own in found.scenarios:
        table.add_column(own.name, justify="right")
    lost = ["all of it" if own.lost_r2 >= found.r2 else f"{own.lost_r2:.2g}" for own in found.scenarios]
    table.add_row(f"loss of R² to privacy (from {found.r2:g})", *lost)
    table.add_row(
        "standard error relative to no privacy", *(bounded(own.error_ratio, ".2f") for own in found.scenarios)
    )
    table.add_row(
        "95 % interval, ± share of response range", *(bounded(own.interval, ".2g") for own in found.scenarios)
    )
    if all(own.rate_interval is not None for own in found.scenarios):
        rates = [
            math.exp(own.rate_interval or 0.0) if own.rate_interval != math.inf else math.inf for own in found.scenarios
        ]
        table.add_row("95 % interval of a rate ratio per SD, ×/÷", *(bounded(rate, ".2f") for rate in rates))
    table.add_row("useful", *("yes" if own.useful else "no" for own in found.scenarios))
    return table


def _sentences(
    planner: Planner, found: Plan | None, least: float | None, needed: int | None, epsilon: float
) -> list[str]:
    """Return the explanation of the plan."""
    words = ["Useful means that privacy and sampling together lose less than a tenth of R² on new rows."]
    if planner.mean is not None:
        ratio = f"a rate ratio of {RATE_RATIO:g} per standard deviation of a predictor"
        words = [f"Useful means that {ratio} is significantly different from 1 for half of the predictors."]
    elif planner.may_be_count:
        words.append(
            f"If {plain(planner.response)} is a count, give its expected mean (--mean): rare events need more rows."
        )
    if needed is None:
        words.append(f"The typical table is not useful at ε = {epsilon:g} with any number of rows.")
    else:
        words.append(f"The typical table needs about {_two_digits(needed):,} rows at ε = {epsilon:g}.")
    if found is None:
        return [*words, "Give --rows for the expected accuracy."]
    if least is None:
        words.append(f"With {found.n_rows:,} rows it is not useful for any ε up to {LARGEST_EPSILON:g}.")
    else:
        words.append(f"With {found.n_rows:,} rows it needs ε of about {least:.2g}.")
    if not found.useful:
        words.append("Use more rows, fewer columns or levels, or a larger ε.")
    return [
        *words,
        "Standard errors and intervals refer to the clipped table, as in a summary: more rows of an adverse table are "
        "clipped, so its intervals may be narrower although it loses more R².",
        "Tables are simulated from the schema. Best case: columns are uniform over their bounds. Typical: they are "
        "skewed and correlated, with rare levels. Adverse: more so. No data were read.",
    ]


def _two_digits(number: int) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit


_ANALYSES = {
    "exact": "exact",
    "renyi": "Rényi (Lemma 1, Proposition 1)",
    "tcdp": "tCDP (Corollary 1, Proposition 2)",
    "sheffet": "Sheffet 2019 (Theorem 2)",
}
_CALIBRATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("noise alone, exact", {}),
    "renyi": ("noise alone, Rényi", {"analysis": "renyi"}),
    "replace_one": ("noise alone, exact, replace-one", {"neighbours": "replace-one"}),
    "private": ("private eigenvalue, joint account", {"scale": "private"}),
    "paper": ("private eigenvalue, Theorem 1", {"scale": "private", "analysis": "paper"}),
}


@command()
@click.option("--sketch-size", "-k", type=int, required=True, help="Number of rows of the sketch.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget, for example 1e-6.")
@click.option("--gamma", "-g", type=float, help="γ = (σ² + λ)/C²: print the resulting ε.")
@click.option("--epsilon", "-e", type=float, help="ε of the budget: print the required γ.")
@click.option(
    "--bound-holds-for",
    type=click.Choice(accounting.BOUND_HOLDS_FOR),
    help=(
        "With --gamma: which neighbouring tables have a smallest eigenvalue of at least λ. Both (default): leverage "
        "1/(1+γ); only the larger, as in the paper: leverage 1/γ."
    ),
)
@JSON
@click.option("--plot", type=click.Path(path_type=Path), help="Plot ε against γ: PNG, SVG or PDF file.")
@FORCE
def account(
    sketch_size: int,
    delta: float,
    gamma: float | None,
    epsilon: float | None,
    bound_holds_for: BoundHoldsFor | None,
    as_json: bool,
    plot: Path | None,
    force: bool,
) -> None:
    """Print the privacy of a sketch: ε for a given γ by each analysis, or the γ that a given ε requires.

    \b
    gaussmix account --sketch-size 150 --gamma 100 --delta 1e-8
    gaussmix account --sketch-size 250 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click wants the character
    refuse_lone_force(force, plot)
    if (gamma is None) == (epsilon is None):
        raise click.UsageError("Give either --gamma or --epsilon, not both.")
    rows: dict[str, dict[str, Any]] = {}
    if gamma is not None:
        holds = bound_holds_for or "both"
        asked: dict[str, Any] = {"sketch_size": sketch_size, "gamma": gamma, "bound_holds_for": holds}
        for name, label in _ANALYSES.items():
            rows[name] = _tried(name, label, _epsilon, delta, analysis=name, **asked)
        title = f"ε of k = {sketch_size}, γ = {gamma:g} at δ = {delta:g} (bound holds for: {holds})"
        columns = {"analysis": "label", "ε": "epsilon"}
    else:
        if bound_holds_for is not None:
            raise click.UsageError("--bound-holds-for requires --gamma.")
        for name, (label, options) in _CALIBRATIONS.items():
            rows[name] = _tried(name, label, _calibration, epsilon, delta, sketch_size=sketch_size, **options)
        title = f"γ for ε = {epsilon:g}, δ = {delta:g}, k = {sketch_size}"
        columns = {"calibration": "label", "γ": "gamma", "η": "eta", "τ": "tau", "γ + ητ": "gamma_plus_eta_tau"}
    if plot is not None:
        from gaussmix.report.plots import compare_analyses  # an optional extra

        compare_analyses(plot, sketch_size=sketch_size, delta=delta, force=force)
        echo(f"wrote {plot}", err=True)
    if as_json:
        echo_json(rows)
        return
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(columns):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows.values():
        numbers = [f"{row[key]:.5g}" if row.get(key) is not None else "" for key in list(columns.values())[1:]]
        table.add_row(row["label"], *(["not applicable"] if "error" in row else numbers))
    Console(file=sys.stdout).print(table)


def _tried(name: str, label: str, compute: Callable[..., dict[str, Any]], *budget: Any, **asked: Any) -> dict[str, Any]:
    """Return one row, with the reason if an analysis does not apply. Raise if the exact one fails."""
    try:
        return {"label": label, **compute(*budget, **asked)}
    except ArgumentError as error:
        if name == "exact":
            raise
        return {"label": label, "error": str(error)}


def _epsilon(delta: float, **asked: Any) -> dict[str, Any]:
    value = accounting.epsilon(delta, **asked)
    if value == math.inf and asked["analysis"] != "exact":
        raise ArgumentError(
            f"analysis={asked['analysis']!r} does not apply to gamma={asked['gamma']!r}: epsilon is infinite. "
            "Choose a larger gamma."
        )
    return {"epsilon": value}


def _calibration(epsilon: float | None, delta: float, **asked: Any) -> dict[str, Any]:
    found = asdict(calibrate(epsilon, delta, **asked))
    reach = found["gamma"] + (found["eta"] * found["tau"] if found["eta"] is not None else 0.0)
    return {**found, "gamma_plus_eta_tau": reach, "delta_split": dict(found["delta_split"])}
