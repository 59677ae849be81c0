"""Models of a release: post-processing, which costs no privacy.

To add a family: write a module with a `Family`, a model and a `Registration` called ``REGISTRATION``, and name it here.
The command ``gaussmix NAME`` and ``release.fit("NAME", ...)`` follow.
"""

FAMILIES = {"poisson": "gaussmix.models.rates"}
"""Modules of the families that are fitted by name; they are loaded when they are asked for."""
