"""Models of a release: post-processing, which costs no privacy.

To add a family, write a module with a `Family`, a model and a `Registration` called ``REGISTRATION``, and list it here.
This also defines the command ``gaussmix NAME`` and ``release.fit("NAME", ...)``.
"""

FAMILIES = {"poisson": "gaussmix.models.rates"}
"""Modules of the families that can be fitted by name, imported on first use."""
