"""The model that the page begins with: one whose coefficients are identified, chosen from the release alone.

Of every target that others can explain, all other columns explain it first, rare levels merged as the noisy counts
propose. Columns whose coefficients are not identified are then left out, and again, until all of them are. Of the
models that this leaves, one whose R² is at least nine tenths of the largest is taken: the one whose target comes last
in the table, where outcomes commonly stand. The choice is post-processing; intervals do not know of it. A release of
categories alone begins with the odds of the first that has two levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gaussmix.models.fits import part_name
from gaussmix.models.problem import Problem
from gaussmix.models.raw_units import is_marked, parts_without
from gaussmix.models.release import Release
from gaussmix.models.summary import Summary, summarise
from gaussmix.reporting.embedding import needs_of_part
from gaussmix.tables.columns import Boolean, Categorical, Numeric
from gaussmix.tables.schema import Schema

__all__ = ["StartingModel", "starting_model", "targets_of"]

_MOST_TARGETS = 12  # that are tried, the last ones of the table: each costs a few models
_NEAR_THE_BEST = 0.9  # of the largest R²


@dataclass(frozen=True)
class StartingModel:
    """A model to begin with.

    Attributes
    ----------
    target : str
    on : tuple of str
        Columns that explain it.
    merge : dict
        Levels that are taken as one, as ``summary(merge=)`` takes them.
    """

    target: str
    on: tuple[str, ...]
    merge: dict[str, dict[str, list[str]]]

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"target": self.target, "on": list(self.on), "merge": self.merge}


def targets_of(schema: Schema) -> list[str]:
    """Columns that others may explain: numbers, true and false."""
    if len(schema.parts) == 1 and not schema.intercept:
        return []
    return [
        name
        for name, part in schema.parts.items()
        if isinstance(part, Numeric | Boolean) and not is_marked(schema, name)
    ]


def starting_model(release: Release, *, target: str | None = None, alpha: float = 0.05) -> StartingModel | None:
    """The model that the page begins with; None where no column can be explained by others.

    Parameters
    ----------
    release : Release
    target : str, optional
        What it explains; default: what is explained best.
    alpha : float
        Coefficients are identified where their intervals of level 1 - alpha end.
    """
    if target is not None:
        return _identified(release, part_name(release.schema, target), alpha)[0]
    found = [_identified(release, name, alpha) for name in targets_of(release.schema)[-_MOST_TARGETS:]]
    if not found:
        return _of_classes(release.schema)
    enough = _NEAR_THE_BEST * max(explained for _, explained in found)
    return next(model for model, explained in reversed(found) if explained >= enough)


def _of_classes(schema: Schema) -> StartingModel | None:
    for name, part in schema.parts.items():
        others = tuple(parts_without(schema, [name]))
        if isinstance(part, Categorical) and len(part.labels) == 2 and others:
            return StartingModel(name, others, {})
    return None


def _identified(release: Release, target: str, alpha: float) -> tuple[StartingModel, float]:
    """The largest model of a target that is found to be identified, and its R²; all columns where none is."""
    schema, proposed = release.schema, release.propose_merges()
    every = parts_without(schema, [target])
    parts = every
    while parts:
        merge = {name: levels for name, levels in proposed.items() if name in parts}
        problem = release.regress(target, on=parts).problem(merge=merge)
        summary = summarise(problem)
        unknown = _unidentified_parts(problem, summary, alpha)
        if unknown is None:
            return StartingModel(target, tuple(parts), merge), 0.0 if summary.noise_dominates else summary.rsquared
        kept = [part for part in parts if not unknown & {part, *needs_of_part(schema, part)}]
        parts = kept if len(kept) < len(parts) else parts[:-1]
    return StartingModel(target, tuple(every), {}), 0.0


def _unidentified_parts(problem: Problem, summary: Summary, alpha: float) -> set[str] | None:
    """Parts with a coefficient that is not identified; those of the weakest direction where it is the intercept alone.

    None where all coefficients are identified.
    """
    unknown = {name for name, (low, _) in summary.conf_int(alpha).items() if not math.isfinite(low)}
    if not unknown:
        return None
    weakest = set() if summary.weakest is None else {*summary.weakest.names}
    sources = {problem.names[index]: source for source, indices in problem.groups.items() for index in indices}
    sources |= {name: source for source, name in problem.references.items()}
    return {sources[name] for name in unknown if name in sources} or {
        sources[name] for name in weakest if name in sources
    }
