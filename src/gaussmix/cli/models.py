"""Commands on a release: models, descriptive statistics and synthetic rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gaussmix._files import refuse_suffix, write_whole
from gaussmix._text import csv_cell, json_text
from gaussmix.cli.exits import echo, echo_json
from gaussmix.cli.options import (
    COLLAPSE,
    ESTIMAND,
    FORCE,
    JSON,
    PREDICTORS,
    REFERENCE,
    RELEASE,
    ROWS,
    collapses,
    references,
)
from gaussmix.data.readers import PARQUET
from gaussmix.models.classification import MulticlassModel
from gaussmix.models.families import registration
from gaussmix.models.linear import Predictor
from gaussmix.models.release import as_csv, load
from gaussmix.models.rendering import as_plain, guarantee_of, void_first
from gaussmix.models.results import Estimand, FittedModel, ResultTable, ratio_table

__all__ = ["corr", "crosstab", "describe", "export", "family_command", "logit", "mnlogit", "ols", "synthetic"]


F = TypeVar("F", bound=Callable[..., Any])


def _model_options(command: F) -> F:
    """Add the arguments of a fitted model and the options of its summary."""
    response = click.argument("response")
    for option in reversed((RELEASE, response, PREDICTORS, JSON, ESTIMAND, ROWS, COLLAPSE, REFERENCE)):
        command = option(command)
    return command


_ODDS = click.option("--odds", is_flag=True, help="Print odds ratios in place of coefficients.")


@click.command()
@_model_options
def ols(file: Path, response: str, predictors: tuple[str, ...], as_json: bool, **summary: Any) -> None:
    """Regress the column RESPONSE of a release on other columns. Costs no privacy.

    RESPONSE may also be a formula of columns and terms of the release, instead of --predictors.

    \b
    gaussmix ols cps.release.parquet "log(wage) ~ poly(age, 2) + sex"
    """  # noqa: D301 - click wants the character
    options = _summary_options(**summary)
    release, chosen = load(file), list(predictors) or None
    predictor = release.predictor(response, chosen) if as_json else None
    _print_summary(release.ols(response, chosen), as_json, options, predictor)


@click.command()
@_model_options
@_ODDS
@click.option("--level", help="One level of RESPONSE against all others. For a boolean: true (default) or false.")
def logit(
    file: Path,
    response: str,
    predictors: tuple[str, ...],
    as_json: bool,
    odds: bool,
    level: str | None,
    **summary: Any,
) -> None:
    """Estimate log odds of the column RESPONSE of a release by linear discriminant analysis.

    RESPONSE is a boolean column, a categorical column with two levels, or one --level of a categorical column against
    all others.
    """
    options = _summary_options(**summary)
    model = load(file).logit(response, list(predictors) or None, level=level)
    if odds:
        ratios = model.odds_ratios(**options)
        echo(json_text(ratios.as_plain()) if as_json else str(ratios))
    else:
        _print_summary(model, as_json, options)


@click.command()
@_model_options
@_ODDS
def mnlogit(file: Path, response: str, predictors: tuple[str, ...], as_json: bool, odds: bool, **summary: Any) -> None:
    """Log odds of the levels of the category RESPONSE of a release, by the linear discriminant.

    Each level is compared with the first, or with that of --reference RESPONSE=LEVEL.
    """
    options = _summary_options(**summary)
    _print_classes(load(file).mnlogit(response, list(predictors) or None), as_json, odds, options)


def family_command(name: str) -> click.Command:
    """Return the command of a model family with its options."""
    own = registration(name)
    ratio, has_population = own.family.ratio, "population" in own.family.intervals_are_for

    def command(
        file: Path, response: str, predictors: tuple[str, ...], as_json: bool, as_logs: bool = False, **asked: Any
    ) -> None:
        options = _summary_options(**asked) if has_population else _coding_options(**asked)
        model = load(file).fit(name, response, list(predictors) or None)
        if as_logs or not ratio:
            _print_summary(model, as_json, options)
        else:
            ratios = ratio_table(model.summary(**options))
            echo(json_text(ratios.as_plain()) if as_json else str(ratios))

    options = [
        RELEASE,
        click.argument("response"),
        PREDICTORS,
        JSON,
        *([ESTIMAND, ROWS] * has_population),
        COLLAPSE,
        REFERENCE,
    ]
    logs = click.option("--log", "as_logs", is_flag=True, help="Print coefficients instead of their exponentials.")
    for option in reversed([*options, *([logs] * bool(ratio))]):
        command = option(command)
    return click.command(name, help=own.help)(command)


def _print_classes(model: MulticlassModel, as_json: bool, odds: bool, options: dict[str, Any]) -> None:
    """Print one table per class; as JSON by class, with the predictive coefficients against the first."""
    if odds:
        ratios = {str(name): own for name, own in model.odds_ratios(**options).items()}
        tables = {name: str(own) for name, own in ratios.items()}
        content = {name: own.as_plain() for name, own in ratios.items()}
    else:
        summaries = {str(name): own for name, own in model.summary(**options).items()}
        tables = {name: str(own) for name, own in summaries.items()}
        content = {name: as_plain(own) for name, own in summaries.items()}
    predictor = {str(name): {"coef": own, "intercept": model.intercept[name]} for name, own in model.coef.items()}
    void = guarantee_of([] if model.certificate is None else [model.certificate.void_words])
    plain = void | ({"classes": content} if odds else {"classes": content, "predictor": predictor})
    echo(json_text(plain) if as_json else "\n\n".join(tables.values()))


def _summary_options(
    estimand: Estimand,
    rows: int | None,
    collapse: tuple[str, ...],
    reference: tuple[str, ...],
) -> dict[str, Any]:
    """Convert summary options to keyword arguments."""
    if rows is not None and estimand != "population":
        raise click.UsageError("--rows requires --estimand population.")
    return {"estimand": estimand, "n_rows": rows, **_coding_options(collapse, reference)}


def _coding_options(collapse: tuple[str, ...], reference: tuple[str, ...]) -> dict[str, Any]:
    """Convert options on features and coefficients to keyword arguments."""
    return {
        "collapse": collapses(collapse),
        "reference": references(reference),
    }


def _print_summary(
    model: FittedModel, as_json: bool, options: dict[str, Any], predictor: Predictor | None = None
) -> None:
    """Print the summary as a table; as JSON also the coefficients for prediction, which may be the model's own."""
    summary = model.summary(**options)
    if as_json:
        own: Any = predictor or model
        echo_json(as_plain(summary) | {"predictor": {"coef": own.coef, "intercept": own.intercept}})
    else:
        echo(str(summary))


_COLUMNS = click.option("--columns", multiple=True, help="Column to include; repeatable. Default: all.")
_CSV = click.option("--csv", "csv", is_flag=True, help="Print CSV with full precision.")
_ALPHA = click.option(
    "--alpha",
    type=float,
    default=0.05,
    show_default=True,
    help="Significance level; intervals have coverage 1 - alpha.",
)


@click.command()
@RELEASE
@_COLUMNS
@_ALPHA
@JSON
@_CSV
def describe(file: Path, columns: tuple[str, ...], alpha: float, as_json: bool, csv: bool) -> None:
    """Print the row count, means, standard deviations and shares of levels of a release, with intervals."""
    table = load(file).describe(list(columns) or None, alpha=alpha)
    _print(table, str(table), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@_COLUMNS
@click.option("--given", multiple=True, help="Column to partial out; repeatable.")
@_ALPHA
@JSON
@_CSV
def corr(file: Path, columns: tuple[str, ...], given: tuple[str, ...], alpha: float, as_json: bool, csv: bool) -> None:
    """Print correlations of the columns of a release; with intervals as JSON or CSV."""
    found = load(file).corr(list(columns) or None, given=list(given))
    _print(found.pairs(alpha), str(found), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@click.argument("rows")
@click.argument("columns")
@_ALPHA
@JSON
@_CSV
def crosstab(file: Path, rows: str, columns: str, alpha: float, as_json: bool, csv: bool) -> None:
    """Cross-tabulate two categorical or boolean columns, with a test that accounts for the privacy noise."""
    found = load(file).crosstab(rows, columns)
    _print(found.table(alpha), str(found), as_json=as_json, csv=csv)


@click.command()
@RELEASE
@click.argument("n", type=int)
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Output file, .csv or .parquet."
)
@click.option("--seed", type=int, help="Seed for reproducible rows.")
@FORCE
def synthetic(file: Path, n: int, out: Path, seed: int | None, force: bool) -> None:
    """Generate N synthetic rows that match the second moments of a release, and nothing else."""
    release = load(file)
    table, sink = release.synthetic(n, seed=seed), pa.BufferOutputStream()
    if out.suffix.lower() in PARQUET:
        pq.write_table(table, sink)
    elif out.suffix.lower() == ".csv":
        pa_csv.write_csv(_without_formulas(table), sink)
    else:
        raise click.UsageError("--out must end in .csv or .parquet.")
    write_whole(out, sink.getvalue().to_pybytes(), force=force)
    _say_void(release.certificate.void_words)
    echo(f"wrote {out}: synthetic rows that match the release's second moments only", err=True)


@click.command()
@RELEASE
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@FORCE
def export(file: Path, out: Path, force: bool) -> None:
    """Write the matrices of a release to OUT, a CSV file, for tools that cannot read Parquet (docs/gaussmix.R)."""
    refuse_suffix(out, own=(".csv",), kind="a CSV file")
    release = load(file)
    write_whole(out, as_csv(release).encode(), force=force)
    _say_void(release.certificate.void_words)
    echo(f"wrote {out}", err=True)


def _say_void(*words: str) -> None:
    """Print on standard error that there is no guarantee."""
    for note in filter(None, words):
        echo(note, err=True)


def _without_formulas(table: pa.Table) -> pa.Table:
    """Escape names and text cells that a spreadsheet would interpret as formulas."""
    columns = [
        pa.array([csv_cell(value) for value in column.to_pylist()], column.type)
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[str(csv_cell(name)) for name in table.column_names])


def _print(table: ResultTable, text: str, *, as_json: bool, csv: bool) -> None:
    if as_json and csv:
        raise click.UsageError("--json and --csv are mutually exclusive.")
    if as_json:
        echo_json(table.as_plain())
    else:
        _say_void(*void_first(table.notes)[0] if csv else ())
        echo(table.as_csv() if csv else text, nl=not csv)
