r"""Moments of a release as files for other software.

===========  ====================================================================================================
``csv``      number of rows, means and covariance matrix, in original units
``r``        the second moment of encoded rows with its noise, a CSV file for the R package in ``r/``
``stata``    a do-file with ``ssd init`` and ``ssd set``, for ``sem``
``sas``      a data step of ``TYPE=COV``, for PROC REG, PROC CALIS and others
``lavaan``   an R script with ``sample.cov``, ``sample.mean`` and ``sample.nobs``
===========  ====================================================================================================

Standard errors that other software computes from a covariance matrix ignore the privacy noise, and every file says so
first. Only the R package computes standard errors that account for it.

A release may come from a stranger, and scripts are run. Names in scripts are therefore made of ASCII letters, digits
and underscores (`legal_names`), and comments of letters, digits and a few marks (`harmless`): neither can end a
comment, a string or a statement.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gaussmix.data.terms import Block
from gaussmix.models.design import Coding, columns_behind, is_marked
from gaussmix.models.moments import SecondMoments, features, positive_definite, second_moments
from gaussmix.models.rendering import estimated_on, in_csv
from gaussmix.releases.file import block_column

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["FORMATS", "Format", "exported", "harmless", "legal_names"]

IGNORED = (
    "Standard errors that other software computes from these moments ignore the privacy noise. "
    "For intervals that account for it use gaussmix (ols, or Release.draws for other estimators)."
)


@dataclass(frozen=True)
class Format:
    """A format of exports: the suffix of its files, what they are, and the function that writes one."""

    suffix: str
    kind: str
    write: Callable[[Release], str]


def exported(release: Release, to: str) -> str:
    """Return a release in one of `FORMATS` as text."""
    return FORMATS[to].write(release)


# ---------------------------------------------------------------------------------------------------------------
# Content
def _moments(release: Release) -> tuple[SecondMoments, list[str]]:
    """Return moments with a positive definite covariance matrix, and notes: what they ignore, and what they are of."""
    schema, certificate = release.schema, release.certificate
    noisy, coding = features(release.statistic.noisy, schema)
    noisy, raised = positive_definite(noisy)
    found = second_moments(noisy, schema, coding)
    _, std_error = noisy.quadratic(np.append(coding.units.scales[0], np.zeros(len(noisy.moment) - 1)))
    count = "Sum of the row weights" if schema.weight is not None else "Number of rows"
    words = [
        certificate.void_words,
        IGNORED,
        f"Moments of a release with epsilon = {certificate.epsilon:g} and delta = {certificate.delta:g}.",
        estimated_on(noisy),
        f"{count}: about {found.n_rows:,.0f} (SE {schema.weight_bound * std_error:,.0f}).",
    ]
    if found.references:
        words.append(f"Levels have indicator columns, except the reference levels: {', '.join(found.references)}.")
    if raised:
        words.append(
            f"The covariance matrix is the nearest positive definite one: noise dominated {raised} of "
            f"{len(found.names)} directions, and their variances were raised to one standard error of the noise."
        )
    if any(is_marked(schema, part) for part in schema.parts):
        words.append("Missing numbers are set to the midpoint of their bounds, and an indicator column marks them.")
    return found, [note for note in words if note]


_TEXT = re.compile(r"[^\w .,;:%()=<>+-]")
_STATA = {"byte", "double", "float", "if", "in", "int", "long", "strl", "using", "with"}
_R_WORDS = {"break", "else", "false", "for", "function", "inf", "na", "nan", "next", "null", "repeat", "true", "while"}
_RESERVED = _STATA | _R_WORDS  # SAS has none that begin with a letter


def harmless(text: str) -> str:
    """Return text for a comment of a script: all characters but letters, digits and a few marks become ``_``.

    >>> harmless("wage */ shell('rm') `x' $y")
    'wage __ shell(_rm_) _x_ _y'
    """
    return " ".join(_TEXT.sub("_", text).split())


_LONGEST_NAME = 32  # in SAS and Stata


def legal_names(names: Iterable[str]) -> list[str]:
    """Return distinct names that SAS, Stata and R accept: a letter, then letters, digits and underscores, at most 32.

    >>> legal_names(["age", "region=north west", "2nd", "Age", "if"])
    ['age', 'region_north_west', 'v_2nd', 'Age_2', 'if_']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        own = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        own = own if own[:1].isalpha() else f"v_{own}".rstrip("_")
        own = f"{own}_" if own.lower() in _RESERVED or re.fullmatch(r"str\d+", own.lower()) else own
        base, own, number = own, own[:_LONGEST_NAME], 1
        while own.lower() in taken:  # SAS ignores case
            number += 1
            own = f"{base[: _LONGEST_NAME - len(str(number)) - 1]}_{number}"
        taken.add(own.lower())
        found.append(own)
    return found


def _number(value: float) -> str:
    return f"{value:.17g}"


def _lines(words: Iterable[str], width: int = 78) -> list[str]:
    """Return words in lines of at most ``width`` characters."""
    return textwrap.wrap(" ".join(words), width, break_long_words=False, break_on_hyphens=False)


def _numbers(values: Sequence[float]) -> list[str]:
    return _lines(map(_number, values))


def _renamed(found: SecondMoments) -> tuple[list[str], list[str]]:
    """Return legal names, and the notes that say what they stand for."""
    names = legal_names(found.names)
    changed = [f"{new}: {old}" for new, old in zip(names, found.names, strict=True) if new != old]
    return names, ["Columns renamed in this file:", *changed] if changed else []


# ---------------------------------------------------------------------------------------------------------------
# Formats
def _csv(release: Release) -> str:
    """Return rows ``n``, ``mean`` and ``covariance``, after notes."""
    found, words = _moments(release)
    rows: list[list[object]] = [["statistic", "column", *found.names]]
    rows += [["note", note] for note in words]
    rows += [["n", "", *[found.n_rows] * len(found.names)], ["mean", "", *found.means.tolist()]]
    rows += [["covariance", name, *row] for name, row in zip(found.names, found.covariance.tolist(), strict=True)]
    return in_csv(rows)


def _sas(release: Release) -> str:
    found, words = _moments(release)
    names, renamed = _renamed(found)
    count = max(round(found.n_rows), 2)
    rows = [("MEAN .", found.means.tolist()), ("N .", [count] * len(names))]
    rows += [(f"COV {name}", row) for name, row in zip(names, found.covariance.tolist(), strict=True)]
    return "\n".join(
        [
            *(f"/* {harmless(note)} */" for note in [*words, *renamed]),
            "data moments(type=cov);",
            "  length _TYPE_ $ 8 _NAME_ $ 32;",
            "  input _TYPE_ $ _NAME_ $",
            *(f"    {line}" for line in _lines(names)),
            "  ;",
            "  datalines;",
            *(line for start, row in rows for line in [start, *_numbers(row)]),  # input reads on in the next line
            ";",
            "run;",
            "/* proc reg data=moments; model y = x1 x2; run; */",
            "",
        ]
    )


def _stata(release: Release) -> str:
    found, words = _moments(release)
    names, renamed = _renamed(found)
    lower = [_numbers(row[: at + 1]) for at, row in enumerate(found.covariance.tolist())]
    matrix = [[*rows[:-1], rows[-1] + (" \\" if at < len(lower) - 1 else "")] for at, rows in enumerate(lower)]
    return "\n".join(
        [
            *(f"// {harmless(note)}" for note in [*words, *renamed]),
            "clear",
            _continued(["ssd init", *_lines(names)]),
            f"ssd set observations {max(round(found.n_rows), 2)}",
            _continued(["ssd set means", *_numbers(found.means.tolist())]),
            _continued(["ssd set covariances", *(line for rows in matrix for line in rows)]),
            "// sem (y <- x1 x2)",
            "",
        ]
    )


def _continued(lines: Sequence[str]) -> str:
    """Return one command of Stata in several lines."""
    return " ///\n    ".join(lines)


def _lavaan(release: Release) -> str:
    found, words = _moments(release)
    names, renamed = _renamed(found)
    quoted = [f'"{name}"' for name in names]

    def vector(parts: Iterable[str]) -> str:
        return "\n  ".join(_lines([f"c({', '.join(parts)})"], 98))

    return "\n".join(
        [
            *(f"# {harmless(note)}" for note in [*words, *renamed]),
            f"columns <- {vector(quoted)}",
            f"sample.nobs <- {max(round(found.n_rows), 2)}",
            f"sample.mean <- {vector(map(_number, found.means))}",
            "names(sample.mean) <- columns",
            f"sample.cov <- matrix({vector(map(_number, found.covariance.ravel()))},",
            "  nrow = length(columns), dimnames = list(columns, columns))",
            "# lavaan::sem(model, sample.cov = sample.cov, sample.mean = sample.mean, sample.nobs = sample.nobs)",
            "",
        ]
    )


R_FORMAT = "1"
"""Version of the format ``r``, which the R package checks."""


def _r(release: Release) -> str:
    """Return the second moment of encoded rows, its noise and the units of all columns, for the R package.

    A row of a block has one cell per encoded column. Rows that describe the whole release have one cell.
    """
    schema, noisy, certificate = release.schema, release.statistic.noisy, release.certificate
    names, parts = schema.names, [column.source or "" for column in schema.encoded]
    plain = [part for part in schema.parts if not isinstance(schema.parts[part], Block) and not is_marked(schema, part)]
    references = {name for name, _ in Coding.of(schema, plain, noisy=noisy).references.values()} if plain else set()
    behind = [columns_behind(schema, part) if part else () for part in parts]
    coded = ["; ".join(noisy.coded[name] for name in own if name in noisy.coded) for own in behind]
    whole: dict[str, object] = {
        "format": R_FORMAT,
        "void": certificate.void_words,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "clipping_bias": noisy.clipping_bias,
        "weight_bound": schema.weight_bound,
        "weighted": noisy.weighted,
        "derived": int(bool(schema.terms) or len(plain) < len(schema.parts)),
    }
    by_column: dict[str, list[object]] = {
        "part": [*parts],
        "kind": [column.kind for column in schema.encoded],
        "model": [int(part in plain or not part) for part in parts],
        "reference": [int(name in references) for name in names],
        "coded": [*coded],
        "centre": schema.units.centres.tolist(),
        "scale": schema.units.scales.tolist(),
    }
    rows: list[list[object]] = [[block_column(names), *names]]
    rows += [[key, value] for key, value in whole.items()]
    rows += [[key, *values] for key, values in by_column.items()]
    for name, matrix in (("M", noisy.moment), ("N", noisy.shape)):
        rows += [[name, *row] for row in matrix.tolist()]
    return in_csv(rows)


FORMATS = {
    "csv": Format(".csv", "a CSV file", _csv),
    "r": Format(".csv", "a CSV file", _r),
    "stata": Format(".do", "a do-file of Stata", _stata),
    "sas": Format(".sas", "a SAS program", _sas),
    "lavaan": Format(".R", "an R script", _lavaan),
}
