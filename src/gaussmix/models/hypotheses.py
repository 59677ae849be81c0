"""Linear hypotheses R·β = q on coefficients, as in statsmodels, and results of their tests.

>>> R, q, words = linear_hypotheses("age - 2*bmi = 0.5, job=paid = 0", ["(intercept)", "age", "bmi", "job=paid"])
>>> R.tolist(), q.tolist(), words
([[0.0, 1.0, -2.0, 0.0], [0.0, 0.0, 0.0, 1.0]], [0.5, 0.0], ('age - 2*bmi = 0.5', 'job=paid = 0'))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.inference import critical_value
from gaussmix.models.rendering import in_columns, p_value, to_error, void_mark

__all__ = ["ContrastTest", "JointTest", "linear_hypotheses"]

Hypotheses = str | Sequence[str] | ArrayLike
"""A matrix R, for R·β = 0; or text: ``"age = 0"``, ``"age - bmi = 0, sex=m = 1"``, a coefficient, a column."""

_NUMBER = r"\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"


@dataclass(frozen=True, eq=False, repr=False)
class ContrastTest:
    """Tests of hypotheses one at a time. NaN where a coefficient is not identified.

    Attributes
    ----------
    hypotheses : tuple of str
    effect, sd, statistic, pvalue : arrays (hypotheses,)
        Estimates of R·β, standard errors, (R·β - q) over them, and two-sided normal p-values.
    void : str
        Why the release has no guarantee; empty if it has one.
    """

    hypotheses: tuple[str, ...]
    effect: Floats
    sd: Floats
    statistic: Floats
    pvalue: Floats
    void: str = ""

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of R·β of level 1 - alpha, shape (hypotheses, 2)."""
        half = critical_value(alpha) * self.sd
        return np.column_stack([self.effect - half, self.effect + half])

    def __str__(self) -> str:
        rows = [["", "effect", "std err", "z", "p", "[0.025", "0.975]"]]
        for i, (low, high) in enumerate(self.conf_int()):
            error = float(self.sd[i])
            numbers = [to_error(value, error) for value in (float(self.effect[i]), error)]
            ends = [to_error(float(end), error) for end in (low, high)]
            rows.append(
                [self.hypotheses[i], *numbers, f"{self.statistic[i]:.3g}", p_value(float(self.pvalue[i])), *ends]
            )
        return in_columns("Tests of linear hypotheses", rows, [self.void] if self.void else ())

    def __repr__(self) -> str:
        return f"ContrastTest({void_mark(self.void)}{', '.join(self.hypotheses)})"


@dataclass(frozen=True, repr=False)
class JointTest:
    """A Wald test of several hypotheses at once. NaN where a coefficient is not identified.

    Attributes
    ----------
    hypotheses : tuple of str
    statistic : float
        Chi-square with ``df`` degrees of freedom; of an F test divided by ``df``, with infinite denominator degrees of
        freedom.
    df : int
    pvalue : float
    void : str
        Why the release has no guarantee; empty if it has one.
    """

    hypotheses: tuple[str, ...]
    statistic: float
    df: int
    pvalue: float
    void: str = ""

    def __str__(self) -> str:
        degrees, p = f"{self.df} degree{'s' * (self.df > 1)} of freedom", p_value(self.pvalue)
        p = f"p {p}".replace("<", "< ") if p.startswith("<") else f"p = {p or 'nan'}"
        void = f"{self.void}\n" if self.void else ""
        return f"{void}{', '.join(self.hypotheses)}: statistic {self.statistic:.4g}, {degrees}, {p}"

    def __repr__(self) -> str:
        words = f"statistic={self.statistic:.4g}, df={self.df}, pvalue={self.pvalue:.4g}"
        return f"JointTest({void_mark(self.void)}{', '.join(self.hypotheses)}, {words})"


def linear_hypotheses(
    given: Hypotheses, names: Sequence[str], groups: Mapping[str, Sequence[int]] | None = None
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return R, q and the hypotheses as text.

    The name of a coefficient stands for "its value is 0", a name in ``groups`` for all coefficients of a column.
    """
    d = len(names)
    if not isinstance(given, str) and not (len(np.atleast_1d(given)) and isinstance(np.atleast_1d(given)[0], str)):
        R = np.atleast_2d(np.asarray(given, dtype=np.float64))
        if R.ndim != 2 or R.shape[1] != d or not np.isfinite(R).all():
            raise ArgumentError(
                f"A matrix of hypotheses must be finite with {d} columns, one per coefficient, got the shape {R.shape}."
            )
        return R, np.zeros(len(R)), tuple(f"row {i}" for i in range(len(R)))
    groups = groups or {}
    found: list[tuple[Floats, float, str]] = []
    for text in [given] if isinstance(given, str) else [str(one) for one in np.atleast_1d(given)]:
        if text in groups:
            found += [(np.eye(d)[i], 0.0, f"{names[i]} = 0") for i in groups[text]]
        elif text in names:
            found.append((np.eye(d)[list(names).index(text)], 0.0, f"{text} = 0"))
        else:
            found += _parsed(text, names)
    rows, values, words = zip(*found, strict=True)
    return np.array(rows), np.array(values), words


def _parsed(text: str, names: Sequence[str]) -> list[tuple[Floats, float, str]]:
    """Read hypotheses between commas; "a = b = 0" is two. Names may contain operators: the longest match is read."""
    name = "|".join(re.escape(own) for own in sorted(names, key=len, reverse=True))
    term = re.compile(rf"\s*([-+]?)\s*(?:(?:({_NUMBER})\s*\*\s*)?({name})|({_NUMBER}))\s*")
    found: list[tuple[Floats, float, str]] = []
    sides: list[tuple[Floats, str]] = []
    row, at, start = np.zeros(len(names) + 1), 0, 0  # weights of the coefficients and, last, the constant
    while True:
        match = term.match(text, at)
        at = match.end() if match else at
        following = text[at : at + 1]
        if match is None or following not in ("", "=", ",", "+", "-"):
            raise ArgumentError(
                f"{text!r} is not a valid hypothesis. Write, for example, 'a - b = 0'. The coefficients are "
                f"{', '.join(names)}."
            )
        sign, factor, own, number = match.groups()
        index = -1 if own is None else list(names).index(own)
        row[index] += (-1.0 if sign == "-" else 1.0) * float(factor or number or 1.0)
        if following in ("+", "-"):
            continue
        sides.append((row, text[start:at].strip()))
        if following != "=":
            right, words = sides.pop() if len(sides) > 1 else (np.zeros(len(names) + 1), "0")
            found += [((side - right)[:-1], float((right - side)[-1]), f"{left} = {words}") for side, left in sides]
            sides = []
        if not following:
            return found
        row, at, start = np.zeros(len(names) + 1), at + 1, at + 1
