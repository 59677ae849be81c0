"""Attacks on the library's own guarantees: what the best tests of two neighbouring tables show of ε.

>>> from gaussmix import audit
>>> audit.SUBJECTS["sketch"].words
'a finite sketch, k = 10'
"""

from gaussmix.audit.bounds import shared_confidence
from gaussmix.audit.catalogue import SUBJECTS
from gaussmix.audit.results import Audit, Point
from gaussmix.audit.running import run

__all__ = ["SUBJECTS", "Audit", "Point", "run", "shared_confidence"]
