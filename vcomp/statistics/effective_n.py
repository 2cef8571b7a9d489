"""The exact divisors of a design as it stands, balanced or not."""

from __future__ import annotations

import numpy as np

from vcomp.statistics.cross_products import CrossProducts

__all__ = ["inverse_effective_n"]


def inverse_effective_n(stats: CrossProducts, term: int) -> list[float]:
    """Return 1/n of every component, the residual last, when `term` is the object measured.

    The mean of one object over its n_p rows carries of component h the variance
    σ²_h Σ_h n_ph²/n_p²; averaged over objects that is σ²_h / n (Brennan 2001, eq. 7.28).
    """
    n = stats.group_n[term]
    inverse = []
    for other in range(stats.n_terms):
        table = stats.gram(term, other)
        squares = table.multiply(table).sum(axis=1)
        inverse.append(float(np.mean(np.asarray(squares).ravel() / n**2)))
    return [*inverse, float(np.mean(1.0 / n))]
