"""The numbers of each group of a term from which influences are computed, for many groups.

Called by :mod:`~vcomp.inference.intervals.level_passes`. The order of a sum depends on the machine
only.
"""

from __future__ import annotations

from vcomp._typing import FloatArray
from vcomp.numerics.kernels import njit


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def write_slopes(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    effects: FloatArray,
    variances: FloatArray,
    within: FloatArray,
    own: float,
    error: float,
) -> tuple[float, float]:
    """Write effects, slopes and shares, and return what the scale of the shares is made from.

    Parameters
    ----------
    pulls : (q, 4), whose columns 0, 2 and 3 are written
    counts, u, effects : as for ``write_pulls``
    variances, within : as for ``write_pulls``; empty if there are none
    own, error : component of the term, and of the residual

    Returns
    -------
    Σ u² and Σ of the forms, over groups with rows
    """
    known_variances, has_finer = variances.size > 0, within.size > 0
    squares, forms = 0.0, 0.0
    for g in range(counts.size):
        n = max(counts[g], 1.0)
        there = 1.0 if counts[g] > 0.0 else 0.0
        spread = own + error / n
        if has_finer:
            spread += within[g] / (n * n)
        form = there / spread
        if known_variances:
            form = there * max(own - variances[g], 0.0) / (own * own)
        known = there * u[g]
        pulls[g, 0] = effects[g]
        pulls[g, 2] = known / (n * spread)
        pulls[g, 3] = form / n
        squares += known * known
        forms += form
    return squares, forms


@njit(cache=True, nogil=True, error_model="numpy")
def write_constants(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    left: FloatArray,
    own: float,
    error: float,
    scale: float,
) -> None:
    """Write constants, and the share of each expectation in that of the squared residual.

    Parameters
    ----------
    pulls : (q, 4) of :func:`write_slopes`, whose columns 1 and 3 are written
    counts, u : as for ``write_pulls``
    left : as for ``write_pulls``; empty if there is none
    own, error : component of the term, and of the residual
    scale : of the shares
    """
    has_finer = left.size > 0
    for g in range(counts.size):
        n = max(counts[g], 1.0)
        known = u[g] if counts[g] > 0.0 else 0.0
        rest = error * known
        if has_finer:
            rest += left[g]
        share = pulls[g, 3]
        pulls[g, 1] = (known * known - pulls[g, 2] * rest) / n - scale * share
        pulls[g, 3] = own * share if scale > 0.0 else 0.0
