"""Noise that a test writes: what every release of a mechanism answers, exactly, and with what σ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gaussmix.mechanism import passes as mechanism


class Script:
    """Stands where noise is drawn: records exact sums and σ, and gives the outputs of another run."""

    def __init__(self, monkeypatch, outputs=None):
        self.sums, self.sigmas, self.outputs, self.given = [], [], outputs, []
        monkeypatch.setattr(mechanism, "symmetric_noise", self.matrix_noise)
        monkeypatch.setattr(mechanism, "discrete_gaussian", self.count_noise)
        monkeypatch.setattr(mechanism, "add_noise", self.add)
        self.rng = np.random.default_rng(5)

    def matrix_noise(self, m, *, diagonal, off_diagonal, rng, progress):
        sigma = np.full((m, m), off_diagonal)
        np.fill_diagonal(sigma, diagonal)
        self.sigmas.append(sigma)
        noise = np.triu(np.rint(self.rng.standard_normal((m, m)) * sigma))
        return (noise + np.triu(noise, 1).T).astype(np.int64)

    def count_noise(self, count, *, sigma, rng):
        self.sigmas.append(np.full(count, sigma))
        return np.rint(self.rng.standard_normal(count) * sigma).astype(np.int64)

    def add(self, exact, noise):
        self.sums.append(exact)
        out = exact + noise.astype(object) if self.outputs is None else self.outputs[len(self.given)]
        self.given.append(out)
        return out


def spent(with_it, without, sigmas):
    """Σ (difference/σ)² over all coordinates of all releases, exactly; symmetric entries count once."""
    total = Fraction(0)
    for a, b, sigma in zip(with_it, without, sigmas, strict=True):
        pairs = zip(a.ravel(), b.ravel(), sigma.ravel(), strict=True)
        if a.ndim == 2:
            above = np.triu_indices(len(a))
            pairs = zip(a[above], b[above], sigma[above], strict=True)
        total += sum((Fraction(int(p) - int(q)) / Fraction(float(s))) ** 2 for p, q, s in pairs)
    return total
