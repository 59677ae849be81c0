"""What is read from a noisy histogram stays within what a pass may be asked, whatever the noise."""

from __future__ import annotations

import numpy as np

from gaussmix.releases.preconditioning import BINS, bin_edges, read_tail


def test_shares_and_weights_never_leave_their_range():
    """A mean weight of 1 + 2⁻⁵² would have a release refused after its budget was spent."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        noise, mean = 10 ** rng.uniform(-1, 5), 10 ** rng.uniform(-3, 3)
        rows = rng.multinomial(int(10 ** rng.uniform(0, 7)), rng.dirichlet(np.full(BINS, 10 ** rng.uniform(-2, 1))))
        counts, edges = rows + noise * rng.standard_normal(BINS), bin_edges(mean)
        largest = edges[0] * 10 ** rng.uniform(-1, 6)
        tail = read_tail(counts, edges, noise=noise, rows=max(counts.sum(), 10.0), largest=largest)
        for found in (tail.lost, tail.surely_lost, tail.kept_weight):
            assert (found >= 0).all()
            assert (found <= 1).all()
