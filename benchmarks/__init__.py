"""Measurements of speed and memory, run as ``python -m benchmarks.…`` or ``make bench``."""

import warnings

# Benchmarks release the same rows many times.
warnings.filterwarnings("ignore", message="These rows were already released", category=UserWarning)
