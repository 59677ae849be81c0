"""Everything that is attacked, by name."""

from __future__ import annotations

from gaussmix.audit import fitted, persons, proposals, releases
from gaussmix.audit.subject import Subject

__all__ = ["SUBJECTS"]

SUBJECTS: dict[str, type[Subject]] = {
    "release": releases.OnePass,
    "replace-one": releases.ReplaceOne,
    "passes": releases.Passes,
    "tails": releases.Tails,
    "yes-and-no": releases.YesAndNo,
    "persons": persons.Persons,
    "persons-kept": persons.KeptPersons,
    "person-passes": persons.PersonPasses,
    "sketch": releases.Sketched,
    "modified": releases.Modified,
    "linear": fitted.Regressor,
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
"""Cheap ones and dear ones: a run of the first costs a millisecond, one of several passes forty, of bounds ninety."""
