"""Logarithms of likelihood ratios: no test of two tables does better than a threshold on one (Neyman and Pearson)."""

from __future__ import annotations

import math

import numpy as np

from audit.subject import Neighbours
from gaussmix._types import Floats
from gaussmix.models.steps import label_of
from gaussmix.models.transcript import Transcript
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = ["TranscriptRatio", "gaussian_ratio", "symmetric_ratio", "wishart_ratio"]


def gaussian_ratio(seen: Floats, absent: Floats, present: Floats, *, sigma: float | Floats) -> float:
    r"""Σ ((x - a)² - (x - p)²)/2σ² for independent normals of mean a without the row and p with it."""
    step = (present - absent) / sigma
    return float(np.sum(((seen - absent) / sigma) * step - step**2 / 2))


def symmetric_ratio(seen: Floats, absent: Floats, present: Floats, *, mu: float) -> float:
    """The same for a symmetric matrix with noise 1/μ on its diagonal and 1/(√2 μ) off it, each entry counted once."""
    upper = np.triu_indices(len(seen))
    sigma = np.where(upper[0] == upper[1], 1 / mu, 1 / (math.sqrt(2) * mu))
    return gaussian_ratio(seen[upper], absent[upper], present[upper], sigma=sigma)


def wishart_ratio(seen: Floats, absent: Floats, present: Floats, *, k: int) -> float:
    r"""Of Wishart matrices with k degrees of freedom and scale matrices A without the row and P with it.

    .. math:: \frac k2 (\log\det A - \log\det P) + \frac12 \mathrm{tr}\bigl((A^{-1} - P^{-1}) W\bigr)
    """
    determinants = np.linalg.slogdet(absent)[1] - np.linalg.slogdet(present)[1]
    inverse = np.linalg.inv(absent) - np.linalg.inv(present)
    return float(k / 2 * determinants + np.sum(inverse * seen) / 2)


class TranscriptRatio:
    """Of a release in passes and steps: given what was asked, each answer is an exact sum with independent noise."""

    def __init__(self, neighbours: Neighbours, schema: Schema) -> None:
        self.grams = neighbours.grams(schema)
        self.tables = [neighbours.rows(present=present, schema=schema) for present in (False, True)]

    def seen(self, transcript: Transcript) -> list[float]:
        """The ratio of all matrices and gradients, and what each request tells of what was counted: rows, clip."""
        first, *later = transcript.passes
        most = 1 if transcript.unit is None else transcript.unit.rows
        ratio, told = symmetric_ratio(first.matrix, *self.grams, mu=first.mu / most), list[float]()
        for output in later:
            if output.request is not None:
                transform, clip = output.request.metric.transform, output.request.clip
                answers = [rows.mapped(transform, clip) for rows in self.tables]
                sums = [answer.high + answer.low / 2.0**40 for answer in answers]
                ratio += symmetric_ratio(output.matrix, *sums, mu=output.mu)
                told += [output.request.rows, clip]
        for step in transcript.steps:
            asked, label = step.request, label_of(transcript.schema, step.request.target)
            found = [rows.gradient(asked.transform, label, asked.clip) for rows in self.tables]
            gradients = [sums.gradient / 2.0**FRACTION_BITS for sums in found]
            weights = [np.array([sums.weight / 2.0**FRACTION_BITS]) for sums in found]
            ratio += gaussian_ratio(step.gradient, *gradients, sigma=1 / step.mu)
            ratio += gaussian_ratio(np.array([step.weight]), *weights, sigma=1 / step.weight_mu)
        return [ratio, *told]
