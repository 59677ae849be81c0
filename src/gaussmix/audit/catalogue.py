"""Everything that is attacked, by name."""

from __future__ import annotations

from gaussmix.audit import fitted, persons, releases
from gaussmix.audit.subject import Subject

__all__ = ["SUBJECTS"]

SUBJECTS: dict[str, type[Subject]] = {
    "release": releases.OnePass,
    "replace-one": releases.ReplaceOne,
    "passes": releases.Passes,
    "persons": persons.Persons,
    "person-passes": persons.PersonPasses,
    "sketch": releases.Sketched,
    "modified": releases.Modified,
    "linear": fitted.Regressor,
    "logistic": fitted.Classifier,
    "adassp": fitted.AdaSSP,
    "adassp-printed": fitted.PrintedAdaSSP,
    "sheffet": fitted.Sheffet,
    "objective-perturbation": fitted.Perturbed,
}
"""Cheap ones and dear ones: a run of the first costs a millisecond, one of several passes forty."""
