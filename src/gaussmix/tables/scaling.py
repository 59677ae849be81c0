"""Products with a transform in the units of a clip or of bins, scaled and rounded, and their squared norms; sensitive.

Elementwise, by compiled functions or by numpy with the same bits (:mod:`gaussmix.tables.kernels`).
"""

from __future__ import annotations

import numpy as np

from gaussmix._types import Floats
from gaussmix.tables import kernels
from gaussmix.tables.encoder import squared_norms_of, tiled

__all__ = ["Scaling"]


class Scaling:
    """One factor a column, for blocks of at most ``block_rows`` rows in C order.

    A squared norm is exact below 2⁵³, and at least that or infinite where it is not.
    """

    def __init__(self, factors: Floats, block_rows: int) -> None:
        self._factors = np.array(factors)
        self._tiles = None if kernels.library() else tiled(factors, block_rows)

    def apply(self, products: Floats) -> Floats:
        """Products times the factors, rounded towards zero, in place; squared norms of the rows."""
        squares = kernels.scale(products, self._factors)
        return self._by_numpy(products, products) if squares is None else squares

    def norms(self, products: Floats, scratch: Floats) -> Floats:
        """The same squared norms; the products stay as they are, and ``scratch`` may be overwritten."""
        squares = kernels.norms(products, self._factors)
        return self._by_numpy(products, scratch) if squares is None else squares

    def _by_numpy(self, products: Floats, out: Floats) -> Floats:
        factors = self._factors if self._tiles is None else self._tiles[: len(products)]
        np.multiply(products, factors, out=out)
        np.trunc(out, out=out)
        with np.errstate(over="ignore"):
            return squared_norms_of(out)
