"""A release as one CSV file, for tools that read no Parquet: G, N and the units of every column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gaussmix.models.release_file import block_column
from gaussmix.models.rendering import in_csv

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["as_csv"]


def as_csv(release: Release) -> str:
    """Rows of the blocks ``G`` and ``N``, as in the release's own file, and two of ``units``: centres and scales.

    An encoded entry is (x - centre)/scale. All digits are kept.
    """
    schema, statistic = release.schema, release.statistic
    noisy = statistic.predictive
    blocks = {"G": noisy.moment, "N": noisy.shape, "units": np.vstack([schema.units.centres, schema.units.scales])}
    head = [block_column(schema.names), *schema.names]
    return in_csv([head, *([name, *row] for name, block in blocks.items() for row in block.tolist())])
