"""Attacks on the privacy guarantees of the library: lower bounds on the ε that its mechanisms spend."""

from audit.bounds import shared_confidence
from audit.runner import Audit, Point, run
from audit.subjects import SUBJECTS

__all__ = ["SUBJECTS", "Audit", "Point", "run", "shared_confidence"]
