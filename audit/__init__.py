"""Attacks on the library's own guarantees: what the best tests of two neighbouring tables show of ε.

>>> import audit
>>> audit.SUBJECTS["sketch"].words
'a finite sketch, k = 10'
"""

from audit.bounds import shared_confidence
from audit.catalogue import SUBJECTS
from audit.results import Audit, Point
from audit.running import run

__all__ = ["SUBJECTS", "Audit", "Point", "run", "shared_confidence"]
