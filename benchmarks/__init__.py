"""Measurements of speed and memory, run as ``python -m benchmarks.…`` or ``make bench``."""
