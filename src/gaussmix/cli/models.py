"""Commands on a release: models, descriptive statistics and synthetic rows. They cost no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gaussmix._files import refuse_suffix, write_whole
from gaussmix._text import csv_cell
from gaussmix.cli.exits import command, echo, echo_json
from gaussmix.cli.options import (
    FORCE,
    PREDICTORS,
    RELEASE,
    Decorator,
    Printing,
    collected,
    names_in,
    out_option,
    printing_options,
)
from gaussmix.data.readers import PARQUET
from gaussmix.models.export import FORMATS, exported
from gaussmix.models.families import family_of
from gaussmix.models.glm import MultinomialModel
from gaussmix.models.linear import Predictor
from gaussmix.models.release import Release, load
from gaussmix.models.rendering import as_plain, guarantee_of, void_first
from gaussmix.models.results import FittedModel, ResultTable, Summary, ratio_table, tidy_table

__all__ = [
    "corr",
    "crosstab",
    "describe",
    "export",
    "family_command",
    "means",
    "mnlogit",
    "ols",
    "synthetic",
]


# ---------------------------------------------------------------------------------------------------------------
# Options
_ODDS = click.option("--odds", is_flag=True, help="Print odds ratios instead of log odds.")
_CODING = (
    click.option(
        "--collapse",
        multiple=True,
        metavar="COLUMN:NEW=LEVEL,...",
        help="Collapse levels, e.g. 'job:other=none,unpaid'. Repeatable.",
    ),
    click.option(
        "--reference",
        multiple=True,
        metavar="COLUMN=LEVEL",
        help=(
            "Reference level, e.g. 'race=White'. Default: the first level, or the largest level if the first is rare. "
            "Repeatable."
        ),
    ),
)
_PER = click.option(
    "--per",
    multiple=True,
    metavar="COEFFICIENT=UNITS",
    help="Coefficients per several units, e.g. 'distance=1000', or per standard deviation, 'age=sd'. Repeatable.",
)
_POPULATION = (
    click.option(
        "--estimand",
        type=click.Choice(["table", "population"]),
        default="table",
        show_default=True,
        help="Intervals for the coefficients of this table, or of the population it was drawn from.",
    ),
    click.option("--rows", type=int, help="Number of rows, if it is public; for --estimand population."),
)


def _model_options(*, population: bool = True) -> Decorator:
    """Add the arguments of a model and the options of its summary, passed as a loaded release and keyword arguments."""

    def collect(given: dict[str, Any]) -> None:
        names = ("collapse", "reference", *(("estimand", "rows") if population else ()))
        given["summary"] = _summary_options(**{name: given.pop(name) for name in names})
        given["summary"]["per"] = _units_in(given.pop("per"))
        given["release"] = release = load(given.pop("file"))
        given["predictors"] = names_in(release, given["predictors"])

    options = [
        RELEASE,
        click.argument("response"),
        PREDICTORS,
        *_POPULATION * population,
        *_CODING,
        _PER,
        printing_options,
    ]
    return collected(options, collect)


def _summary_options(
    collapse: Sequence[str],
    reference: Sequence[str],
    estimand: str | None = None,
    rows: int | None = None,
) -> dict[str, Any]:
    """Return the options of a summary as keyword arguments of ``summary``."""
    collapsed: dict[str, dict[str, list[str]]] = {}
    for text in collapse:
        column, colon, rest = text.partition(":")
        new, equals, levels = rest.partition("=")
        if not (column and colon and new and equals and levels):
            raise click.UsageError(
                f"--collapse must have the form COLUMN:NEW=LEVEL,LEVEL, e.g. 'job:other=none,unpaid', got {text!r}."
            )
        if new in collapsed.setdefault(column, {}):
            raise click.UsageError(
                "--collapse defines the same new level twice. List all levels to be collapsed into it in one option."
            )
        collapsed[column][new] = levels.split(",")
    references: dict[str, str] = {}
    for text in reference:
        column, equals, level = text.partition("=")
        if not (column and equals and level):
            raise click.UsageError(f"--reference must have the form COLUMN=LEVEL, e.g. 'race=White', got {text!r}.")
        if column in references:
            raise click.UsageError(f"--reference must be given at most once per column, got {column!r} twice.")
        references[column] = level
    options: dict[str, Any] = {"collapse": collapsed, "reference": references}
    if estimand is None:
        return options
    if rows is not None and estimand != "population":
        raise click.UsageError("--rows requires --estimand population.")
    return {**options, "estimand": estimand, "n_rows": rows}


def _units_in(per: Sequence[str]) -> dict[str, Any]:
    """Return units by coefficient, as :meth:`gaussmix.models.results.Summary.per` takes them."""
    found: dict[str, Any] = {}
    for text in per:
        name, equals, units = text.rpartition("=")
        try:
            found[name] = units if units == "sd" else float(units)
        except ValueError:
            equals = ""
        if not (name and equals):
            raise click.UsageError(f"--per must have the form COEFFICIENT=NUMBER or COEFFICIENT=sd, got {text!r}.")
    return found


# ---------------------------------------------------------------------------------------------------------------
# Models
@command()
@_model_options()
def ols(release: Release, response: str, predictors: list[str] | None, summary: Any, printing: Printing) -> None:
    """Regress the column RESPONSE of a release on other columns, by least squares.

    RESPONSE may also be a formula of columns and terms of the release, instead of --predictors.

    \b
    gaussmix ols cps.release.parquet wage --predictors age,sex
    gaussmix ols cps.release.parquet "log(wage) ~ poly(age, 2) + sex"
    """  # noqa: D301 - click wants the character
    predictor = release.predictor(response, predictors) if printing.style == "json" else None
    _print_model(release.ols(response, predictors), summary, printing, predictor=predictor)


@command()
@_model_options()
@_ODDS
def mnlogit(
    release: Release, response: str, predictors: list[str] | None, summary: Any, printing: Printing, odds: bool
) -> None:
    """Fit a multinomial logistic regression of the categorical column RESPONSE by approximate maximum likelihood.

    Each level is compared with the first level, or with the one given by --reference RESPONSE=LEVEL.
    """
    _print_model(release.mnlogit(response, predictors), summary, printing, ratios=odds)


def family_command(name: str) -> click.Command:
    """Return the command of a family of generalised linear models."""
    family = family_of(name)

    def fit(
        release: Release,
        response: str,
        predictors: Any,
        summary: Any,
        printing: Printing,
        odds: bool = False,
        as_logs: bool = False,
        **options: Any,
    ) -> None:
        # Odds ratios are printed on demand, rate ratios unless logarithms are asked for.
        ratios = bool(family.ratio) and (odds if family.of_classes else not as_logs)
        model = release.fit(name, response, predictors, **options)
        predictor = None
        if printing.style == "json" and not ratios:
            predictor = release.predictor(response, predictors, family=name, level=options.get("level"))
        _print_model(model, summary, printing, ratios=ratios, predictor=predictor)

    if family.of_classes:
        found = click.option(
            "--level",
            help="Level of RESPONSE to model against all others. For a boolean response: true (default) or false.",
        )(_ODDS(fit) if family.ratio else fit)
    else:
        found = click.option(
            "--exposure", help="Numeric column to which the mean is proportional, such as a duration."
        )(fit)
        found = click.option("--log", "as_logs", is_flag=True, help="Print coefficients instead of rate ratios.")(found)
    text = f"{family.help}\n\nRESPONSE may also be a formula of columns and terms of the release."
    return command(name, help=text)(_model_options()(found))


def _print_model(
    model: FittedModel | MultinomialModel,
    options: dict[str, Any],
    printing: Printing,
    *,
    ratios: bool = False,
    predictor: Predictor | None = None,
) -> None:
    """Print one table of coefficients, or of their exponentials, per class; in JSON also a regularised predictor."""
    alpha, several, units = printing.alpha, isinstance(model, MultinomialModel), options.pop("per")
    found = model.summary(**options)
    summaries = {str(name): own for name, own in found.items()} if isinstance(found, dict) else {model.response: found}
    if units:
        summaries = {name: own.per(units) for name, own in summaries.items()}
    tables = {name: ratio_table(own, alpha) if ratios else tidy_table(own, alpha) for name, own in summaries.items()}
    shown: list[Summary | ResultTable] = list((tables if ratios else summaries).values())
    if printing.style == "json":
        plain = {name: own.as_plain() if ratios else as_plain(summaries[name], alpha) for name, own in tables.items()}
        void = guarantee_of([] if model.certificate is None else [model.certificate.void_words])
        echo_json(
            (void | {"classes": plain} if several else plain[model.response])
            | ({} if predictor is None else {"predictor": {"coef": predictor.coef, "intercept": predictor.intercept}})
        )
    elif printing.style == "csv":
        _print_csv(_stacked(tables) if several else tables[model.response])
    elif printing.style == "latex":
        echo("\n\n".join(own.as_latex() if isinstance(own, ResultTable) else own.as_latex(alpha) for own in shown))
    else:
        echo("\n\n".join(own.as_text() if isinstance(own, ResultTable) else own.as_text(alpha) for own in shown))


def _stacked(tables: dict[str, ResultTable]) -> ResultTable:
    """Return the tables of all classes as one, with the class in the first column."""
    first = next(iter(tables.values()))
    levels = tuple(name for name, own in tables.items() for _ in range(len(own)))
    columns = {key: tuple(value for own in tables.values() for value in own.columns[key]) for key in first.columns}
    return ResultTable(first.title, {"y.level": levels, **columns}, first.notes)


# ---------------------------------------------------------------------------------------------------------------
# Descriptive statistics
_COLUMNS = click.option(
    "--columns", multiple=True, help="Columns to include, with commas or the option repeated. Default: all."
)


@command()
@RELEASE
@_COLUMNS
@printing_options
def describe(file: Path, columns: Sequence[str], printing: Printing) -> None:
    """Print counts, means, standard deviations, quartiles and shares of levels of a release, with intervals."""
    release = load(file)
    _print_table(release.describe(names_in(release, columns), alpha=printing.alpha), printing)


@command()
@RELEASE
@click.argument("response")
@click.argument("by", metavar="BY", required=False)
@printing_options
def means(file: Path, response: str, by: str | None, printing: Printing) -> None:
    """Print the mean of the numeric or boolean column RESPONSE in each level of the column BY, with intervals.

    \b
    gaussmix means patients.release.parquet cost region
    """  # noqa: D301 - click wants the character
    if by is None:
        raise click.UsageError("Missing argument 'BY'. For the mean over all rows use gaussmix describe.")
    _print_table(load(file).means(response, by, alpha=printing.alpha), printing)


@command()
@RELEASE
@_COLUMNS
@click.option("--given", multiple=True, help="Columns to partial out, with commas or the option repeated.")
@printing_options
def corr(file: Path, columns: Sequence[str], given: Sequence[str], printing: Printing) -> None:
    """Print correlations of the columns of a release; with intervals as JSON, CSV or LaTeX."""
    release = load(file)
    found = release.corr(names_in(release, columns), given=names_in(release, given) or [])
    _print_table(found.pairs(printing.alpha), printing, text=str(found))


@command()
@RELEASE
@click.argument("rows")
@click.argument("columns")
@printing_options
def crosstab(file: Path, rows: str, columns: str, printing: Printing) -> None:
    """Cross-tabulate two categorical or boolean columns, with a test of independence.

    Intervals and test account for the privacy noise.
    """
    found = load(file).crosstab(rows, columns)
    _print_table(found.table(printing.alpha), printing, text=str(found))


def _print_table(table: ResultTable, printing: Printing, *, text: str | None = None) -> None:
    if printing.style == "json":
        echo_json(table.as_plain())
    elif printing.style == "csv":
        _print_csv(table)
    else:
        echo(table.as_latex() if printing.style == "latex" else text or str(table))


def _print_csv(table: ResultTable) -> None:
    """Print a table as CSV, and on standard error if there is no guarantee."""
    _say_void(*void_first(table.notes)[0])
    echo(table.as_csv(), nl=False)


def _say_void(*words: str) -> None:
    for note in filter(None, words):
        echo(note, err=True)


# ---------------------------------------------------------------------------------------------------------------
# Files
@command()
@RELEASE
@click.argument("n", type=int)
@out_option("Output file, .csv or .parquet.", required=True)
@click.option("--seed", type=int, help="Seed for reproducible synthetic rows.")
@FORCE
def synthetic(file: Path, n: int, out: Path, seed: int | None, force: bool) -> None:
    """Generate N synthetic rows with the distributions of single columns and the correlations of a release."""
    release = load(file)
    table, sink = release.synthetic(n, seed=seed), pa.BufferOutputStream()
    if out.suffix.lower() in PARQUET:
        pq.write_table(table, sink)
    elif out.suffix.lower() == ".csv":
        pa_csv.write_csv(_without_formulas(table), sink)
    else:
        raise click.UsageError(f"--out must end in .csv or .parquet, got {out.name!r}.")
    write_whole(out, sink.getvalue().to_pybytes(), force=force)
    _say_void(release.certificate.void_words)
    echo(
        f"wrote {out}: synthetic rows that reproduce only the distributions of single columns and the correlations of "
        "the release",
        err=True,
    )


@command()
@RELEASE
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--to",
    type=click.Choice(list(FORMATS)),
    default="csv",
    show_default=True,
    help=(
        "csv: means and covariances. r: for the R package of gaussmix. stata, sas, lavaan: a script with means and "
        "covariances."
    ),
)
@FORCE
def export(file: Path, out: Path, to: str, force: bool) -> None:
    """Write the moments of a release to OUT, for other software.

    Standard errors of other software ignore the privacy noise; those of the R package do not.

    \b
    gaussmix export patients.release.parquet patients.sas --to sas
    """  # noqa: D301 - click wants the character
    refuse_suffix(out, own=(FORMATS[to].suffix,), kind=FORMATS[to].kind)
    release = load(file)
    write_whole(out, exported(release, to).encode(), mode=release.file_mode, force=force)
    _say_void(release.certificate.void_words)
    echo(f"wrote {out}", err=True)


def _without_formulas(table: pa.Table) -> pa.Table:
    """Escape names and text cells that a spreadsheet would interpret as formulas."""
    columns = [
        pa.array([csv_cell(value) for value in column.to_pylist()], column.type)
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[str(csv_cell(name)) for name in table.column_names])
