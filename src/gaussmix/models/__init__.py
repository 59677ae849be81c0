"""Models of a release: post-processing, which costs no privacy.

To add a family of generalised linear models, define it in :mod:`gaussmix.models.families` and list its name here. This
also defines the command ``gaussmix NAME`` and ``release.fit("NAME", ...)``.
"""

FAMILIES = ("logit", "probit", "poisson")
"""Names of the families that can be fitted by name."""
