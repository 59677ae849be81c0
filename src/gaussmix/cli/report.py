"""Commands for reports, verification, signatures, planning and accounts."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping
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
from gaussmix.accounting.parameters import NEIGHBOURS, BoundHoldsFor, Neighbours
from gaussmix.cli.exits import NOT_PRIVATE, echo, echo_json
from gaussmix.cli.options import FORCE, JSON, RELEASE, refuse_lone_force, unit_of
from gaussmix.data.contributions import ONE_ROW
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.release import Release
from gaussmix.releases.file import read_bytes
from gaussmix.releases.file import sign as signed
from gaussmix.report.label import as_svg
from gaussmix.report.page import render
from gaussmix.report.plan import MOST_EPSILON, Plan, expect, least_useful_epsilon, numbers_only, rows_needed
from gaussmix.report.registry import TO_FILL_IN, as_yaml, record_of
from gaussmix.report.statement import is_valid
from gaussmix.report.verify import verdict_on
from gaussmix.report.verify import verify as verified

__all__ = ["account", "plan", "report", "sign", "verify"]


@click.command()
@RELEASE
@click.option("--out", "-o", type=click.Path(path_type=Path), help="HTML file.")
@click.option("--registry", type=click.Path(path_type=Path), help="YAML file for a record in the public registry.")
@click.option("--label", type=click.Path(path_type=Path), help="SVG file for the privacy label.")
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    show_default=True,
    help="Significance level; intervals have coverage 1 - alpha.",
)
@click.option("--response", help="Response of the initial model. Default: the first numeric column.")
@click.option("--title", default="", help="Title of the page.")
@click.option("--description", default="", help="One or two sentences shown below the title.")
@click.option("--rows", type=int, help="Number of rows, if public; for population intervals.")
@FORCE
@JSON
def report(
    file: Path,
    out: Path | None,
    registry: Path | None,
    label: Path | None,
    alpha: float,
    response: str | None,
    title: str,
    description: str,
    rows: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write an HTML page about a release: privacy statement, and models and tables chosen by the reader.

    The page contains the release and computes in the browser. It loads and sends nothing, and costs no privacy.

    \b
    gaussmix report patients.release.parquet -o report.html --response cost
    gaussmix report patients.release.parquet -o report.html --title "Costs of patients, 2025" --rows 20000
    gaussmix report patients.release.parquet --registry record.yaml --label label.svg

    Fields of the registry record that need human judgement are left to be filled in.

    Exit code 5 if the release has no privacy guarantee: the page says so and shows no ε.
    """  # noqa: D301 - click wants the character
    if out is None and registry is None and label is None:
        raise click.UsageError("At least one of --out, --registry and --label is required.")
    if out is None:
        _refuse_about_the_page("alpha", "response", "title", "description", "rows", "as_json")
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
        _write_record(release, digest, registry, force)
    if label is not None:
        _write_label(release, label, force)
    if out is None:
        return
    with reserve(out, 0, force=force) as output:
        page = render(
            release,
            alpha=alpha,
            response=response,
            title=title,
            description=description,
            n_rows=rows,
            file_sha256=digest,
        )
        written, valid = output.commit(page.encode()), is_valid(release)
    if as_json:
        echo_json({"file": str(written), "release": str(file), "private": valid})
    echo(f"wrote {written}", err=True)
    if not valid:
        echo(f"{file} has no privacy guarantee. Do not publish it.", err=True)
        raise click.exceptions.Exit(NOT_PRIVATE)


def _refuse_about_the_page(*names: str) -> None:
    """Reject page options if no page is written."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} requires --out.")


def _write_record(release: Release, digest: str, registry: Path, force: bool) -> None:
    """Write and validate the registry record, and say which fields are open."""
    text = as_yaml(record_of(release, file_sha256=digest))
    with reserve(registry, 0, force=force) as output:
        written = output.commit(text.encode())
    echo(f"wrote {written}: fill in the fields marked {TO_FILL_IN}", err=True)


def _write_label(release: Release, label: Path, force: bool) -> None:
    """Write the label, which states if there is no guarantee."""
    text = as_svg(release)
    with reserve(label, 0, force=force) as output:
        written = output.commit(text.encode())
    echo(f"wrote {written}", err=True)


@click.command()
@RELEASE
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Ed25519 private key, PEM: openssl genpkey -algorithm ed25519 -out private.pem.",
)
@FORCE
def sign(file: Path, key: Path, force: bool) -> None:
    """Sign a release with an Ed25519 key, in FILE.sig. A release without a guarantee is not signed."""
    content = read_bytes(file)
    verdict = verdict_on(content, file)
    if not verdict.is_private:
        echo(verdict.sentence)
        raise click.exceptions.Exit(NOT_PRIVATE)
    echo(f"wrote {signed(content, file, key, force=force)}", err=True)


@click.command()
@RELEASE
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ed25519 public key, PEM: require a valid signature in FILE.sig.",
)
@JSON
def verify(file: Path, key: Path | None, as_json: bool) -> None:
    """Recompute (ε, δ) of a release from its noise. Exit code 0: its certificate is valid.

    Exit code 5: it claims more privacy than it gives, is void or damaged, or is not signed with the key.
    """
    verdict = verified(file, key=key)
    echo(json_text(verdict.to_dict()) if as_json else verdict.sentence)
    if not verdict.is_private:
        raise click.exceptions.Exit(NOT_PRIVATE)


@click.command()
@click.argument(
    "schema_file", metavar="[SCHEMA]", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--features", "-p", type=int, help="Instead of SCHEMA: number of numeric predictors.")
@click.option("--rows", "-n", type=int, help="Number of rows. Without it, only the required number is printed.")
@click.option("--epsilon", "-e", type=float, required=True, help="ε of the budget.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget.")
@click.option("--response", help="Response, numeric or boolean. Default: the last numeric column.")
@click.option("--r2", type=float, default=0.4, show_default=True, help="Expected R² without privacy.")
@click.option("--passes", type=int, help="Number of passes over the data, 1 to 4. Default: 4.")
@click.option("--neighbours", type=click.Choice(NEIGHBOURS), default="add-remove", show_default=True)
@click.option("--privacy-unit", help="Privacy-unit column: all rows of a unit are protected together.")
@click.option(
    "--max-contributions",
    type=int,
    help="Maximum number of rows per privacy unit; simulated units have exactly as many.",
)
@JSON
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Plot the loss of R² against ε to a file."
)
@FORCE
def plan(
    schema_file: Path | None,
    features: int | None,
    rows: int | None,
    epsilon: float,
    delta: float,
    response: str | None,
    r2: float,
    passes: int | None,
    neighbours: Neighbours,
    privacy_unit: str | None,
    max_contributions: int | None,
    as_json: bool,
    plot: Path | None,
    force: bool,
) -> None:
    """Estimate the required number of rows and the expected accuracy of a release, without data.

    Simulates three tables that match SCHEMA (TOML or JSON), even, usual and hard, with simulated noise.

    \b
    gaussmix plan patients.json -e 1 -d 1e-6
    gaussmix plan patients.json --rows 20000 -e 1 -d 1e-6 --response cost
    """  # noqa: D301 - click wants the character
    refuse_lone_force(force, plot)
    if (schema_file is None) == (features is None):
        raise click.UsageError("Give either SCHEMA or --features.")
    if plot is not None and rows is None:
        raise click.UsageError("--plot requires --rows.")
    schema = numbers_only(features) if schema_file is None and features is not None else Schema.of(schema_file or "")
    whose = unit_of(privacy_unit, max_contributions)
    if whose is not None:
        whose.check_schema(schema)
    if whose is not None and plot is not None:
        raise click.UsageError("--plot does not support --privacy-unit. Omit one of them.")
    question: Any = {
        "delta": delta,
        "response": response,
        "r2": r2,
        "passes": passes or "auto",
        "neighbours": neighbours,
    }
    if whose is not None:
        question["max_contributions"] = whose.max_contributions
    found, least = None, None
    with Console(stderr=True).status("simulating tables") as status:
        if rows is not None:
            found = expect(schema, n_rows=rows, epsilon=epsilon, **question)
            status.update("searching for the smallest useful ε")
            least = least_useful_epsilon(schema, n_rows=rows, **question)
        status.update("searching for the required number of rows")
        needed = rows_needed(schema, epsilon=epsilon, **question)
        if plot is not None:
            status.update("drawing")
            from gaussmix.report.plots import lost_r2  # an optional extra

            lost_r2(plot, schema, n_rows=rows or 0, chosen=epsilon, force=force, **question)
    if as_json:
        answers = {} if found is None else {**found.to_dict(), "least_useful_epsilon": least}
        answers |= {"rows_needed": needed, "privacy_unit": ONE_ROW if whose is None else str(whose)}
        echo_json(answers)
    else:
        if found is not None:
            Console(file=sys.stdout).print(_expectations(found))
        echo(f"Privacy unit: {ONE_ROW if whose is None else whose}.")
        for sentence in _sentences(found, least, needed, epsilon):
            echo(sentence)
    if plot is not None:
        echo(f"wrote {plot}", err=True)


def _expectations(found: Plan) -> Table:
    """Return one column per simulated table."""
    title = (
        f"{found.n_rows:,} rows, {found.columns} encoded columns, response {plain(found.response)}: "
        f"ε = {found.epsilon:g}, δ = {found.delta:g}, {found.passes} pass{'es' if found.passes > 1 else ''}"
    )
    table = Table(title=escape(title), title_justify="left")
    table.add_column("simulated scenario")
    lines: list[list[str]] = [
        [f"loss of R² to privacy (from {found.r2:g})"],
        ["standard error relative to no privacy"],
        ["95 % interval, ± share of the response's range"],
        ["useful"],
    ]
    for expected in found.tables:
        table.add_column(expected.name, justify="right")
        lines[0].append("all of it" if expected.lost_r2 >= found.r2 else f"{expected.lost_r2:.2g}")
        lines[1].append("unbounded" if expected.error_ratio == math.inf else f"{expected.error_ratio:.2f}")
        lines[2].append("unbounded" if expected.interval == math.inf else f"{expected.interval:.2g}")
        lines[3].append("yes" if expected.useful else "no")
    for line in lines:
        table.add_row(*line)
    return table


def _sentences(found: Plan | None, least: float | None, needed: int | None, epsilon: float) -> list[str]:
    """Return the explanation of the plan."""
    words = ["Useful means that privacy and sampling together lose less than a tenth of R² on new rows."]
    if needed is None:
        words.append(f"The usual scenario is not useful at ε = {epsilon:g} with any number of rows.")
    else:
        words.append(f"The usual scenario needs about {_two_digits(needed):,} rows at ε = {epsilon:g}.")
    if found is None:
        return [*words, "Give --rows for the expected accuracy."]
    if least is None:
        words.append(f"With {found.n_rows:,} rows it is not useful for any ε up to {MOST_EPSILON:g}.")
    else:
        words.append(f"With {found.n_rows:,} rows it needs ε of about {least:.2g}.")
    if not found.useful:
        words.append("Use more rows, fewer columns or levels, or a larger ε.")
    words.append(
        "Standard errors and intervals refer to the clipped table, as in a summary: a hard table is clipped more "
        "and may have narrower intervals but a larger loss of R²."
    )
    words.append(
        "Tables are simulated from the schema: even columns are spread over their bounds, usual ones are "
        "skewed and correlated with rare levels, hard ones more so. No data were read."
    )
    return words


def _two_digits(number: int) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit


_ANALYSIS_NAMES = {
    "exact": "exact",
    "renyi": "Rényi (Lemma 1, Proposition 1)",
    "tcdp": "tCDP (Corollary 1, Proposition 2)",
    "sheffet": "Sheffet 2019 (Theorem 2)",
}
_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("noise alone, exact", {}),
    "renyi": ("noise alone, Rényi", {"analysis": "renyi"}),
    "replace_one": ("noise alone, exact, replace-one", {"neighbours": "replace-one"}),
    "private": ("private eigenvalue, joint account", {"scale": "private"}),
    "paper": ("private eigenvalue, Theorem 1", {"scale": "private", "analysis": "paper"}),
}


@click.command()
@click.option("--sketch-size", "-k", type=int, required=True, help="Number of rows of the sketch.")
@click.option("--delta", "-d", type=float, required=True, help="δ of the budget, for example 1e-6.")
@click.option("--gamma", "-g", type=float, help="(σ² + λ)/C²: print the resulting ε.")
@click.option("--epsilon", "-e", type=float, help="ε of the budget: print the required γ.")
@click.option(
    "--bound-holds-for",
    type=click.Choice(accounting.BOUND_HOLDS_FOR),
    help="With --gamma: leverage 1/(1+γ) (both, default) or the paper's 1/γ (larger).",
)
@JSON
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Plot ε against γ to a PNG, SVG or PDF file."
)
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
    """Account for the privacy of a sketch: ε from γ by each analysis, or γ from ε.

    \b
    gaussmix account --sketch-size 150 --gamma 100 --delta 1e-8
    gaussmix account --sketch-size 250 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click wants the character
    refuse_lone_force(force, plot)
    if (gamma is None) == (epsilon is None):
        raise click.UsageError("Give either --gamma or --epsilon.")
    if gamma is not None:
        holds = bound_holds_for or "both"
        rows = _try_each(_ANALYSIS_NAMES, lambda name: _epsilon_row(name, sketch_size, gamma, delta, holds))
        title = f"ε of k = {sketch_size}, γ = {gamma:g} at δ = {delta:g} (bound holds for: {holds})"
        first = "analysis"
    else:
        if bound_holds_for is not None:
            raise click.UsageError("--bound-holds-for requires --gamma.")
        names = {name: label for name, (label, _) in _WAYS.items()}
        rows = _try_each(names, lambda name: _gamma_row(name, sketch_size, epsilon, delta))
        title, first = f"γ for ε = {epsilon:g}, δ = {delta:g}, k = {sketch_size}", "calibration"
    if plot is not None:
        from gaussmix.report.plots import compare_analyses  # an optional extra

        compare_analyses(plot, sketch_size=sketch_size, delta=delta, force=force)
        echo(f"wrote {plot}", err=True)
    if as_json:
        echo_json(rows)
    else:
        _print_table(title, first, rows)


def _try_each(names: Mapping[str, str], row: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one row per analysis, with the reason if it does not apply. Raise if the exact one fails."""
    rows: dict[str, dict[str, Any]] = {}
    for name, label in names.items():
        try:
            rows[name] = {"label": label, **row(name)}
        except ArgumentError as error:
            if name == "exact":
                raise
            rows[name] = {"label": label, "error": str(error)}
    return rows


def _epsilon_row(
    name: Any, sketch_size: int, gamma: float, delta: float, bound_holds_for: BoundHoldsFor
) -> dict[str, Any]:
    value = accounting.epsilon(
        delta, sketch_size=sketch_size, gamma=gamma, bound_holds_for=bound_holds_for, analysis=name
    )
    if value == float("inf") and name != "exact":
        return {"error": "does not apply to this gamma"}
    return {"epsilon": value}


def _gamma_row(name: str, sketch_size: int, epsilon: float | None, delta: float) -> dict[str, Any]:
    found = asdict(calibrate(epsilon, delta, sketch_size=sketch_size, **_WAYS[name][1]))
    reach = found["gamma"] + (found["eta"] * found["tau"] if found["eta"] is not None else 0.0)
    return {**found, "gamma_plus_eta_tau": reach, "delta_split": dict(found["delta_split"])}


def _print_table(title: str, first: str, rows: dict[str, dict[str, Any]]) -> None:
    columns = {"epsilon": "ε", "gamma": "γ", "eta": "η", "tau": "τ", "gamma_plus_eta_tau": "γ + ητ"}
    calibrated = any("gamma" in row for row in rows.values())
    shown = [key for key in columns if (key != "epsilon") == calibrated]
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for key in shown:
        table.add_column(columns[key], justify="right")
    for row in rows.values():
        cells = [f"{row[key]:.5g}" if row.get(key) is not None else "" for key in shown]
        table.add_row(row["label"], *(cells if "error" not in row else ["not applicable", *cells[1:]]))
    Console(file=sys.stdout).print(table)
