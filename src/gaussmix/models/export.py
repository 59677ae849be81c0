"""A release as one CSV file, for tools that read no Parquet: G, N and the units of every column."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import numpy as np

from gaussmix.models.release_file import block_column

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["as_csv"]


def as_csv(release: Release) -> str:
    """Rows of the blocks ``G`` and ``N``, as in the release's own file, and two of ``units``: centres and scales.

    An encoded entry is (x - centre)/scale. All digits are kept. For a finite sketch N is the spread of its noise.
    """
    schema, statistic = release.schema, release.statistic
    noisy = statistic.predictive
    shape = np.sqrt(noisy.alpha) * noisy.spread
    blocks = {"G": noisy.moment, "N": shape, "units": np.vstack(schema.decode_map)}
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([block_column(schema.names), *schema.names])
    for name, block in blocks.items():
        for row in block.tolist():
            writer.writerow([name, *map(repr, row)])
    return buffer.getvalue()
