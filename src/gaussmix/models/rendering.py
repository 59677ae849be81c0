"""Summaries as text, HTML, LaTeX or plain values."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gaussmix._text import csv_cell, plain
from gaussmix.data.schema import INTERCEPT
from gaussmix.errors import MissingPackageError
from gaussmix.models.families import DISTRIBUTION_COLUMN, OF_DISTRIBUTION
from gaussmix.releases.certificate import NO_GUARANTEE
from gaussmix.releases.noisy import NoisyMoment

if TYPE_CHECKING:
    from gaussmix.models.results import Summary

__all__ = [
    "ALSO_STANDS_FOR",
    "NOT_IDENTIFIED",
    "allowance",
    "as_plain",
    "coefficient_rows",
    "estimated_on",
    "first_lines",
    "guarantee_of",
    "heading",
    "in_columns",
    "in_csv",
    "in_html",
    "in_latex",
    "new_axes",
    "notes",
    "p_value",
    "to_error",
    "void_first",
    "void_mark",
    "with_commas",
]

NOT_IDENTIFIED = "not identified at this budget"

ALSO_STANDS_FOR = "†"
"""Mark of coefficients that also absorb the effect of a column that was left out."""

WITH_WEIGHTS = ", with the row weights that Release.weights returns; the unweighted fit may lie outside"
SKEWED = " They allow for curvature, as p-values do, and can differ from estimate ± z standard errors."
NO_BETTER = "At this budget, this model predicts no better than the mean of the response."
ONLY_INTERCEPT = "Only the intercept is identified at this budget: all other columns were left out."
NOTHING = "No coefficient is identified at this budget."
RESPONSE_CODED = (
    "The response is top-coded: coefficients of the uncoded column are typically larger in absolute value. Declare "
    "narrower bounds, model its logarithm, or release with topcode=None (longer intervals)."
)
ESTIMATED_ON = "Estimated on the table with"
DECLARED = "Declared model:"
APPROXIMATE = (
    "Approximate maximum likelihood, because the model was not declared before the release (models=): intervals can "
    "miss the coefficients if predictors are related nonlinearly."
)
_FIRST = (NO_GUARANTEE, DECLARED, APPROXIMATE, ESTIMATED_ON, NO_BETTER, ONLY_INTERCEPT, NOTHING)  # above a table


def heading(summary: Summary) -> str:
    """Return the title of a summary: the response, and whose coefficients the intervals are for."""
    estimand = "this table" if summary.estimand == "table" else "the population"
    return f"Response: {summary.response_name}. Intervals for: {estimand}"


def p_value(p: float) -> str:
    """Format a p-value with three digits."""
    return "" if math.isnan(p) else "<1e-4" if p < 1e-4 else f"{p:.3g}"


def to_error(value: float, error: float) -> str:
    """Format a number to the digit of the second significant digit of its standard error.

    >>> to_error(12.34567, 0.0246), to_error(12345.6, 123.0), to_error(1.2345e-7, 2.1e-8)
    ('12.346', '12350', '1.23e-07')
    """
    if math.isinf(value):
        return "-∞" if value < 0 else "∞"
    if not error > 0 or math.isinf(error):
        return f"{value:.6g}" if error == 0 else ""
    decimals = 1 - math.floor(math.log10(error))
    rounded = round(value, decimals) + 0.0  # no negative zero
    size = max(abs(rounded), error)
    if decimals > 7 or size >= 1e15:
        return f"{value:.{max(math.floor(math.log10(size)) + decimals, 0)}e}"
    return f"{rounded:.{max(decimals, 0)}f}"


def with_commas(text: str) -> str:
    """Separate thousands in the text of a number of 10,000 or more.

    >>> with_commas("23962"), with_commas("-12345.67"), with_commas("1976.07"), with_commas("1e+07")
    ('23,962', '-12,345.67', '1976.07', '1e+07')
    """
    whole, point, decimals = text.partition(".")
    large = whole.removeprefix("-").isdigit() and abs(int(whole)) >= 10_000
    return f"{int(whole):,}{point}{decimals}" if large else text


def coefficient_rows(summary: Summary, alpha: float) -> list[list[str]]:
    """Return the header, and a row per coefficient: name, estimate, standard error, p, interval, share of noise."""
    head = ["", "coef", "std err", "p", f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]", "privacy noise"]
    found = [[*head, *["distribution"] * bool(summary.distribution_se)]]
    for name, (low, high) in summary.conf_int(alpha).items():
        share, error = summary.noise_share[name], summary.bse[name]
        mark = f" {ALSO_STANDS_FOR}" if name in summary.stands_for else ""
        if math.isnan(error):
            found.append([name, "", "", "", NOT_IDENTIFIED, "", "", *[""] * bool(summary.distribution_se)])
            continue
        numbers = [to_error(value, error) for value in (summary.params[name], error, low, high)]
        words = f"{100 * share:.0f} %" if math.isfinite(share) else ""
        assumed = [to_error(summary.distribution_se[name], error)] if summary.distribution_se else []
        found.append([name + mark, *numbers[:2], p_value(summary.pvalues[name]), *numbers[2:], words, *assumed])
    return found


def notes(summary: Summary, *, errors: bool = False) -> list[str]:
    """Return the notes of a table: those printed above it, the estimand, and columns that are not identified.

    All notes are composed here. ``errors`` is whether the table has the columns of :func:`coefficient_rows`.
    """
    family, noisy = summary.family, summary._problem.noisy
    kept = [name for name, error in summary.bse.items() if not math.isnan(error)]
    found = first_lines(summary)
    if summary.left_out and not set(kept) - {INTERCEPT}:
        found.append(ONLY_INTERCEPT if kept else NOTHING)
    elif summary.noise_dominates and family.predicts_mean:
        found.append(NO_BETTER)
    if summary.left_out:
        many = f"{len(summary.left_out)} column{'s' * (len(summary.left_out) > 1)}"
        found.append(f"The model contains only the identified columns, with {many} left out at this budget.")
    weights = WITH_WEIGHTS if noisy.weighted else ""
    about = f"Intervals are for {family.intervals_are_for[summary.estimand]}{weights}."
    if summary.estimand == "table":
        available = not summary.weighted and noisy.independent
        instead = ' (estimand="population" adds it)' if available else ""
        about += f" They do not include sampling error{instead}."
    if family.mean is not None:
        about += SKEWED
    columns = DISTRIBUTION_COLUMN if errors and summary.distribution_se else {}
    found += [about, *(note + columns.get(note, "") for note in family.notes)]
    if summary.response_name in noisy.coded:
        found.append(RESPONSE_CODED)
    if summary.references:
        found.append(f"Reference levels: {', '.join(summary.references)}.")
    if family.is_linear:
        unknown = summary.noise_dominates or (math.isnan(summary.sigma) and summary.rsquared == 1)
        doubt = " Not informative: privacy noise dominates." if unknown else ""
        found.append(f"R² = {summary.rsquared:.3f}.{doubt}")
    if summary.clipping_loss is not None:
        found += filter(None, [allowance(noisy)])
    if summary.weighted:
        found.append(f"Rows are weighted; the weights sum to about {summary.nobs:,.0f} (SE {summary.nobs_se:,.0f}).")
    if summary.n_rows is not None:
        found.append(f"Sampling error is computed for {_rows(summary)}, {_ASSUMING[summary.cov_type]}.")
    found += [f"Left out: {name}, {reason}." for name, reason in summary.left_out.items()]
    found += [
        f"{ALSO_STANDS_FOR} {name} also absorbs the effect of {', '.join(columns)}, left out."
        for name, columns in summary.stands_for.items()
    ]
    if summary.left_out:
        found.append(f"To identify more coefficients, {family.remedy}")
    return found


def first_lines(summary: Summary) -> list[str]:
    """Return whether there is a guarantee, how a model was computed, and of which table."""
    declared = f"{DECLARED} {summary.declared}." if summary.declared else ""
    assumes = OF_DISTRIBUTION in summary.family.notes and any(error > 0 for error in summary.distribution_se.values())
    approximate = APPROXIMATE if assumes else ""
    return [*filter(None, [summary.void, declared, approximate, estimated_on(summary._problem.noisy)])]


_ASSUMING = {
    "nonrobust": "assuming equal residual variances",
    "robust": "by the sandwich covariance, robust to unequal residual variances (HC1)",
    "cluster": "by the sandwich covariance, robust to dependence within privacy units",
}


def estimated_on(noisy: NoisyMoment) -> str:
    """Return the first line: which table coefficients are of; empty if it is the declared one with equal weights."""
    changes = [*filter(None, [noisy.weighted]), *noisy.coded.values()]
    return f"{ESTIMATED_ON} {'; '.join(changes)}." if changes else ""


def allowance(noisy: NoisyMoment) -> str:
    """Return sentences about the difference between the weighted and the unweighted fit; empty if it is negligible."""
    factor = math.sqrt(1 + noisy.clipping_bias**2)
    larger = (
        f"Standard errors are increased by {100 * (factor - 1):.0f} % to allow for the difference between the weighted "
        "and the unweighted fit"
    )
    shown = factor >= 1.005
    if noisy.near_unweighted:
        return f"{larger}." if shown else ""
    words = f"{larger}; the actual difference may be larger." if shown else "The unweighted fit may differ."
    return words + " In a release in one pass, all rows have weight 1." * noisy.independent


def _rows(summary: Summary) -> str:
    if summary.n_rows == summary.nobs and summary.nobs_se > 0:
        return f"about {summary.nobs:,.0f} rows (SE {summary.nobs_se:,.0f}), estimated from the release"
    return f"{summary.n_rows:,.0f} rows"


def in_columns(title: str, rows: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Format a table under its title; its first row is the header, and notes follow."""
    title, rows, words = plain(title), [[plain(cell) for cell in row] for row in rows], [plain(note) for note in words]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    rule, (first, rest) = "-" * len(lines[0]), _split(words, _FIRST)
    return "\n".join([*first, title, rule, lines[0], rule, *lines[1:], rule, *rest])


def void_first(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split notes into those about a void guarantee and the others."""
    return _split(words, (NO_GUARANTEE,))


def _split(words: Iterable[str], first: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split notes into those that begin with some words and the others."""
    words = list(words)
    return [note for note in words if note.startswith(first)], [note for note in words if not note.startswith(first)]


def guarantee_of(words: Iterable[str]) -> dict[str, str]:
    """Return a field with the reason why there is no guarantee; no field if there is one."""
    reasons = " ".join(note.removeprefix(NO_GUARANTEE).strip() for note in void_first(words)[0])
    return {"guarantee": f"void: {reasons}"} if reasons else {}


def void_mark(*words: str) -> str:
    """Return the start of a repr without a privacy guarantee; empty if there is a guarantee."""
    return "no privacy guarantee, " if void_first(words)[0] else ""


def new_axes() -> Any:
    """Return the axes of a new figure of matplotlib."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise MissingPackageError('Plots require matplotlib: pip install "gaussmix[plots]".') from error
    return plt.subplots()[1]


def in_csv(rows: Iterable[Iterable[object]]) -> str:
    """Return lines of CSV with numbers in full precision. Text that looks like a formula is quoted."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return buffer.getvalue()


def in_html(title: str, head: Iterable[str], rows: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Format a table with its title as caption and notes below."""
    top = "".join(f"<th>{_markup(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{_markup(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    above, below = ("".join(f"<p>{_markup(note)}</p>" for note in some) for some in _split(words, _FIRST))
    caption = _markup(title)
    return (
        f"{above}<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{below}"
    )


def in_latex(
    head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str], *, footnotes: bool = False
) -> str:
    """Format a LaTeX tabular, with notes about a void guarantee and the table that estimates are of above.

    Other notes are printed below it with ``footnotes``.
    """
    first, rest = _split(words, (NO_GUARANTEE, DECLARED, APPROXIMATE, ESTIMATED_ON))
    above, below = [_latex(note) for note in first], [_latex(note) for note in rest] if footnotes else []
    box = rf"\multicolumn{{{len(head)}}}{{p{{\linewidth}}}}"
    lines = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in (head, *rows)]
    top = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline"]
    top += [*(rf"{box}{{{note}}} \\ \hline" for note in above), lines[0], r"\hline"]
    bottom = [r"\hline", *(rf"{box}{{\footnotesize {note}}} \\" for note in below), r"\end{tabular}"]
    return "\n".join([*(f"% {note}" for note in above), *top, *lines[1:], *bottom])


def as_plain(summary: Summary, alpha: float = 0.05) -> dict[str, Any]:
    """Return plain values for JSON; None where a coefficient is not identified or a value is not finite."""
    intervals = summary.conf_int(alpha)
    return {
        **guarantee_of([summary.void]),
        "estimand": summary.estimand,
        "estimated_on": estimated_on(summary._problem.noisy) or None,
        **({"declared": summary.declared, "cov_type": summary.cov_type} if summary.declared else {}),
        **({"weighted": True} if summary.weighted else {}),
        "rsquared": summary.rsquared,
        "beats_mean": not summary.noise_dominates,
        "references": list(summary.references),
        "left_out": summary.left_out,
        "clipping_loss": _clipping_loss(summary),
        "signal_to_noise": _finite(summary.signal_to_noise),
        "coefficients": {
            name: {
                "coef": _finite(value),
                "std_err": _finite(summary.bse[name]),
                "p": _finite(summary.pvalues[name]),
                "interval": None if math.isnan(value) else [_finite(end) for end in intervals[name]],
                **({"distribution_err": _finite(summary.distribution_se[name])} if summary.distribution_se else {}),
                "stands_for": list(summary.stands_for.get(name, ())),
            }
            for name, value in summary.params.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _clipping_loss(summary: Summary) -> dict[str, float | None] | None:
    if summary.clipping_loss is None:
        return None
    return {name: _finite(value) for name, value in asdict(summary.clipping_loss).items()}


def _markup(text: str) -> str:
    return html.escape(plain(text))


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%_#${}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"\\": r"\textbackslash{}"}
)


def _latex(text: str) -> str:
    """Return text in which LaTeX prints every character as it is: '<1e-4' is printed as '¡1e-4' otherwise."""
    return plain(text).translate(_LATEX)
