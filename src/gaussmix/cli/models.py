"""``gaussmix regress``, ``classify`` and a command for every other family: models from a release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gaussmix._text import json_text
from gaussmix.cli.options import (
    ESTIMAND,
    JSON,
    LARGEST,
    MERGE,
    ON,
    REFERENCE,
    RELEASE,
    ROWS,
    merges,
    references,
)
from gaussmix.cli.printing import echo, echo_json
from gaussmix.models.families import registration
from gaussmix.models.multiclass import MulticlassModel
from gaussmix.models.odds import OddsRatios
from gaussmix.models.release import load
from gaussmix.models.rendering import as_plain, guarantee_of
from gaussmix.models.results import LARGEST as DEFAULT
from gaussmix.models.results import Estimand, FittedModel, ratio_table

__all__ = ["classify", "family_command", "regress"]

F = TypeVar("F", bound=Callable[..., Any])


def _model_options(command: F) -> F:
    """A release, a target, and how the summary is made."""
    target = click.argument("target")
    for option in reversed((RELEASE, target, ON, JSON, ESTIMAND, ROWS, MERGE, REFERENCE, LARGEST)):
        command = option(command)
    return command


@click.command()
@_model_options
def regress(file: Path, target: str, on: tuple[str, ...], as_json: bool, **summary: Any) -> None:
    """Explain the column TARGET of a release by others: free, as often as you like.

    TARGET may be a formula of columns and terms that the release holds, in place of --on.

    \b
    gaussmix regress cps.release.parquet "log(wage) ~ poly(age, 2) + sex"
    """  # noqa: D301 - click wants the character
    options = _summary_options(**summary)
    _print_summary(load(file).regress(target, list(on) or None), as_json, options)


@click.command()
@_model_options
@click.option("--odds", is_flag=True, help="Print odds ratios in place of coefficients.")
@click.option("--level", help="One level of TARGET, against all others; of a boolean, true (default) or false.")
def classify(
    file: Path, target: str, on: tuple[str, ...], as_json: bool, odds: bool, level: str | None, **summary: Any
) -> None:
    """Log odds of the column TARGET of a release, boolean or a category, by the linear discriminant.

    Of more than two levels: of each against the first, against --reference TARGET=LEVEL, or of one --level against all
    others.
    """
    options = _summary_options(**summary)
    model = load(file).classify(target, list(on) or None, level=level)
    if isinstance(model, MulticlassModel):
        _print_classes(model, as_json, odds, options)
    elif not odds:
        _print_summary(model, as_json, options)
    else:
        ratios = model.odds_ratios(**options)
        echo(json_text(_plain_odds(ratios)) if as_json else str(ratios))


def family_command(name: str) -> click.Command:
    """Return the command of a family that is fitted by name, with the options that the family has."""
    own = registration(name)
    ratio, has_population = own.family.ratio, "population" in own.family.intervals_are_for

    def command(
        file: Path, target: str, on: tuple[str, ...], as_json: bool, as_logs: bool = False, **asked: Any
    ) -> None:
        options = _summary_options(**asked) if has_population else _coding_options(**asked)
        model = load(file).fit(name, target, list(on) or None)
        if as_logs or not ratio:
            _print_summary(model, as_json, options)
        else:
            ratios = ratio_table(model.summary(**options))
            echo(json_text(ratios.as_plain()) if as_json else str(ratios))

    options = [RELEASE, click.argument("target"), ON, JSON, *([ESTIMAND, ROWS] * has_population), MERGE, REFERENCE]
    logs = click.option("--log", "as_logs", is_flag=True, help="Print coefficients in place of their exponentials.")
    for option in reversed([*options, LARGEST, *([logs] * bool(ratio))]):
        command = option(command)
    return click.command(name, help=own.help)(command)


def _print_classes(model: MulticlassModel, as_json: bool, odds: bool, options: dict[str, Any]) -> None:
    """One table a class; as JSON by class, with the coefficients that predict best against the first."""
    if odds:
        ratios = {str(name): own for name, own in model.odds_ratios(**options).items()}
        tables = {name: str(own) for name, own in ratios.items()}
        content = {name: _plain_odds(own) for name, own in ratios.items()}
    else:
        summaries = {str(name): own for name, own in model.summary(**options).items()}
        tables = {name: str(own) for name, own in summaries.items()}
        content = {name: as_plain(own) for name, own in summaries.items()}
    predictor = {str(name): {"coef": own, "intercept": model.intercept[name]} for name, own in model.coef.items()}
    void = guarantee_of([] if model.certificate is None else [model.certificate.void_words])
    plain = void | ({"classes": content} if odds else {"classes": content, "predictor": predictor})
    echo(json_text(plain) if as_json else "\n\n".join(tables.values()))


def _plain_odds(ratios: OddsRatios) -> dict[str, Any]:
    return {
        **guarantee_of(ratios.about),
        "odds": ratios.response_name,
        "odds_ratios": ratios.as_plain(),
        "about": list(ratios.about),
    }


def _summary_options(
    estimand: Estimand, rows: int | None, merge: tuple[str, ...], reference: tuple[str, ...], largest: float | None
) -> dict[str, Any]:
    """What was asked of the summary, as the library has it."""
    if rows is not None and estimand != "population":
        raise click.UsageError("--rows goes with --estimand population: other intervals do not depend on it.")
    return {"estimand": estimand, "n_rows": rows, **_coding_options(merge, reference, largest)}


def _coding_options(merge: tuple[str, ...], reference: tuple[str, ...], largest: float | None) -> dict[str, Any]:
    """What was asked of features and of their coefficients, as the library has it."""
    return {
        "largest": DEFAULT if largest is None else largest,
        "merge": merges(merge),
        "reference": references(reference),
    }


def _print_summary(model: FittedModel, as_json: bool, options: dict[str, Any]) -> None:
    """The summary as a table; as JSON also the coefficients that predict best."""
    summary = model.summary(**options)
    if as_json:
        content = as_plain(summary) | {"predictor": {"coef": model.coef, "intercept": model.intercept}}
        echo_json(content)
    else:
        echo(str(summary))
