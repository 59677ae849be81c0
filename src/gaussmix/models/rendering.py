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
from gaussmix.models.design import ENOUGH
from gaussmix.releases.certificate import NO_GUARANTEE

if TYPE_CHECKING:
    from gaussmix.models.results import Summary

__all__ = [
    "BOUND_DEPENDENT",
    "NOT_IDENTIFIED",
    "as_html",
    "as_latex",
    "as_plain",
    "as_text",
    "coefficient_rows",
    "guarantee_of",
    "in_columns",
    "in_csv",
    "in_html",
    "in_latex",
    "notes",
    "p_value",
    "void_first",
    "void_mark",
]

NOT_IDENTIFIED = "not identified at this budget"

BOUND_DEPENDENT = "*"
"""Marks intervals that depend on the assumed bound of other coefficients."""


def p_value(p: float) -> str:
    """Format a p-value with three digits."""
    return "" if math.isnan(p) else "<1e-4" if p < 1e-4 else f"{p:.3g}"


def coefficient_rows(summary: Summary, alpha: float) -> list[list[str]]:
    """Return the cells: name, coefficient, standard error, p, both ends of the interval, share of privacy noise.

    The last one has a mark where the interval depends on the assumed bound.
    """
    found = []
    for name, (low, high) in summary.conf_int(alpha).items():
        p, share = p_value(summary.pvalues[name]), summary.noise_share[name]
        if math.isfinite(low) and math.isfinite(high):
            numbers = [f"{summary.params[name]:.4g}", f"{summary.bse[name]:.3g}", p, f"{low:.4g}", f"{high:.4g}"]
        else:
            numbers = ["", "", p, NOT_IDENTIFIED, ""]
        words = f"{100 * share:.0f} %" if math.isfinite(share) else ""
        found.append([name, *numbers, f"{words} {BOUND_DEPENDENT}" if summary.bound_dependent[name] else words])
    return found


def heading(alpha: float) -> list[str]:
    """Return the header of the table."""
    return ["", "coef", "std err", "p", f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]", "privacy noise"]


def notes(summary: Summary, *, unidentified: bool) -> list[str]:
    """Return the notes below the table."""
    family = summary.family
    found = [f"Intervals are for {family.intervals_are_for[summary.estimand]}.", *family.notes]
    if family.prints_rsquared:
        doubt = " Not informative: privacy noise dominates." if summary.noise_dominates else ""
        found.append(f"R² = {summary.rsquared:.3f}.{doubt}")
    if summary.clipping_loss is not None:
        found.append(f"Norm clipping in the final pass removed {summary.clipping_loss}.")
        found += [family.clipping_note] if family.clipping_note else []
    if summary.weighted:
        found.append(f"Rows are weighted; the weights sum to about {summary.nobs:,.0f} (SE {summary.nobs_se:,.0f}).")
    if summary.n_rows is not None:
        found.append(f"Sampling error is computed for {_rows(summary)}.")
    if summary.least_identified is not None:
        found.append(
            f"Least-identified contrast: {summary.least_identified} (signal-to-noise {summary.signal_to_noise:.1f})."
        )
    if any(summary.bound_dependent.values()):
        found.append(
            f"{BOUND_DEPENDENT} depends on an assumption: no other predictor changes the response by more than "
            f"{summary.max_effect:g} times the response's declared range across its own declared range "
            f"(max_effect={summary.max_effect:g})."
        )
    if summary.suggested_collapses:
        clipped = "" if summary.clipping_loss is None else " after norm clipping"
        found.append(
            f"Sparse levels, with noisy counts{clipped} below {ENOUGH:g} standard errors; consider collapsing: "
            f"collapse={summary.suggested_collapses}."
        )
    if unidentified:
        found.append(f"Not identified: {family.remedy}")
    return [summary.void, *found] if summary.void else found


def _rows(summary: Summary) -> str:
    if summary.n_rows == summary.nobs and summary.nobs_se > 0:
        return f"about {summary.nobs:,.0f} rows (SE {summary.nobs_se:,.0f}), estimated from the release"
    return f"{summary.n_rows:,.0f} rows"


def as_text(summary: Summary, alpha: float) -> str:
    """Format a summary for a terminal."""
    rows = [heading(alpha), *coefficient_rows(summary, alpha)]
    title = f"{summary.response_name}: {summary.estimand}"
    return in_columns(title, rows, notes(summary, unidentified=_unidentified(rows)))


def in_columns(title: str, rows: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Format a table under its title; its first row is the header, and notes follow."""
    title, rows, words = plain(title), [[plain(cell) for cell in row] for row in rows], [plain(note) for note in words]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    rule, (first, rest) = "-" * len(lines[0]), void_first(words)
    return "\n".join([*first, title, rule, lines[0], rule, *lines[1:], rule, *rest])


def void_first(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split notes into those about a void guarantee, which are printed first, and the others."""
    first: list[str] = []
    rest: list[str] = []
    for note in words:
        (first if note.startswith(NO_GUARANTEE) else rest).append(note)
    return first, rest


def guarantee_of(words: Iterable[str]) -> dict[str, str]:
    """Return the field of plain values that says why nothing is guaranteed; no field where something is."""
    reasons = " ".join(note.removeprefix(NO_GUARANTEE).strip() for note in void_first(words)[0])
    return {"guarantee": f"void: {reasons}"} if reasons else {}


def void_mark(*words: str) -> str:
    """Return what a representation says first: that nothing is guaranteed; nothing where something is."""
    return "no privacy guarantee, " if void_first(words)[0] else ""


def in_csv(rows: Iterable[Iterable[object]]) -> str:
    """Return lines of CSV, numbers in all their digits; text that looks like a formula is quoted."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return buffer.getvalue()


def as_html(summary: Summary, alpha: float) -> str:
    """Format a summary as an HTML table."""
    rows = coefficient_rows(summary, alpha)
    words = notes(summary, unidentified=_unidentified(rows))
    return in_html(f"{summary.response_name}: {summary.estimand}", heading(alpha), rows, words)


def in_html(title: str, head: Iterable[str], rows: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Format a table with its title as caption and notes below."""
    top = "".join(f"<th>{_markup(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{_markup(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    above, below = ("".join(f"<p>{_markup(note)}</p>" for note in some) for some in void_first(words))
    caption = _markup(title)
    return (
        f"{above}<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{below}"
    )


def as_latex(summary: Summary, alpha: float) -> str:
    """Format a summary as a LaTeX tabular."""
    return in_latex(heading(alpha), coefficient_rows(summary, alpha), [summary.void])


def in_latex(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Format a LaTeX tabular. Of the notes only those about a void guarantee are printed."""
    void = [_latex(note) for note in void_first(words)[0]]
    lines = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in (head, *rows)]
    top = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline"]
    top += [rf"\multicolumn{{{len(head)}}}{{l}}{{{note}}} \\ \hline" for note in void] + [lines[0], r"\hline"]
    return "\n".join([*(f"% {note}" for note in void), *top, *lines[1:], r"\hline", r"\end{tabular}"])


def as_plain(summary: Summary, alpha: float = 0.05) -> dict[str, Any]:
    """Return plain values for JSON; unbounded intervals and values that are not finite are None."""
    intervals = summary.conf_int(alpha)
    return {
        **guarantee_of([summary.void]),
        "estimand": summary.estimand,
        **({"weighted": True} if summary.weighted else {}),
        "rsquared": summary.rsquared,
        "max_effect": summary.max_effect,
        "least_identified": None if summary.least_identified is None else str(summary.least_identified),
        "suggested_collapses": summary.suggested_collapses,
        "clipping_loss": _clipping_loss(summary),
        "signal_to_noise": summary.signal_to_noise if math.isfinite(summary.signal_to_noise) else None,
        "coefficients": {
            name: {
                "coef": value,
                "std_err": summary.bse[name],
                "p": None if math.isnan(summary.pvalues[name]) else summary.pvalues[name],
                "bound_dependent": summary.bound_dependent[name],
                "interval": list(intervals[name]) if all(map(math.isfinite, intervals[name])) else None,
            }
            for name, value in summary.params.items()
        },
    }


def _clipping_loss(summary: Summary) -> dict[str, float | None] | None:
    if summary.clipping_loss is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in asdict(summary.clipping_loss).items()}


def _unidentified(rows: list[list[str]]) -> bool:
    return any(NOT_IDENTIFIED in row for row in rows)


def _markup(text: str) -> str:
    return html.escape(plain(text))


def _latex(text: str) -> str:
    text = plain(text)
    for character in "&%_#$":
        text = text.replace(character, "\\" + character)
    return text
