"""Everything that is attacked, by name."""

from __future__ import annotations

from audit import fitted, ledgers, persons, proposals, releases
from audit.subject import Subject

__all__ = ["EXPENSIVE", "SUBJECTS"]

SUBJECTS: dict[str, type[Subject]] = {
    "release": releases.OnePass,
    "replace-one": releases.ReplaceOne,
    "weights": releases.Weighted,
    "passes": releases.Passes,
    "replace-in-passes": releases.ReplaceInPasses,
    "tails": releases.Tails,
    "yes-and-no": releases.YesAndNo,
    "persons": persons.Persons,
    "persons-kept": persons.KeptPersons,
    "person-passes": persons.PersonPasses,
    "ledger": ledgers.Shares,
    "ledger-sketches": ledgers.SketchesToo,
    "sketch": releases.Sketched,
    "replace-in-sketch": releases.ReplaceInSketch,
    "modified": releases.Modified,
    "linear": fitted.Regressor,
    "linear-persons": fitted.Grouped,
    "logistic": fitted.Classifier,
    "steps": fitted.Stepped,
    "proposed-levels": proposals.Levels,
    "proposed-bounds": proposals.Bounds,
    "adassp": fitted.AdaSSP,
    "adassp-printed": fitted.PrintedAdaSSP,
    "sheffet": fitted.Sheffet,
    "sheffet-renyi": fitted.RenyiSheffet,
    "objective-perturbation": fitted.Perturbed,
}
"""Every subject by its name."""

EXPENSIVE = frozenset(
    {
        "passes",
        "replace-in-passes",
        "tails",
        "yes-and-no",
        "person-passes",
        "linear",
        "linear-persons",
        "logistic",
        "steps",
        "proposed-bounds",
    }
)
"""Subjects of which a run takes 40 ms or more. The others are fast: about a millisecond."""
