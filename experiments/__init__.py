"""Comparisons of methods on public data sets: outside the package ``gaussmix``, run as ``python -m experiments.…``."""
