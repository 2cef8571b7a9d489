"""New responses of the rows of a fit, on the scale of the data."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.exceptions import EstimationError
from vcomp.linalg.memory import available_bytes, gib
from vcomp.resampling.row_draws import draw_errors
from vcomp.resampling.streams import check_count, seed_from, stream

__all__ = ["simulate_responses"]


def simulate_responses(
    rows: Chunk,
    v: FloatArray,
    beta: FloatArray,
    n: int,
    rng: int | np.random.Generator | None = None,
) -> FloatArray:
    """Return responses drawn from the model, (rows, n): Xβ + Σ Z_t u_t + e.

    Parameters
    ----------
    rows : coded
    v : (k + 1,) components, not negative, the residual last
    beta : (p,) fixed effects of the centred columns of X
    n : how many responses
    rng : seed, or a generator that one is drawn from once; 0 if not given. Response j has the
        stream ``SeedSequence(seed, spawn_key=(j,))`` to itself

    Raises
    ------
    EstimationError
        If an option is not of that form, a fixed effect is not known, or the responses would not
        fit into memory.
    """
    n, seed = check_count(n, "n"), seed_from(rng)
    if not np.isfinite(beta).all():
        raise EstimationError(
            "the fixed effects of this fit are not known, so that responses have no mean; "
            "use method='reml'"
        )
    # The codes of the rows in every term are made as well.
    needed = 8.0 * rows.n * (n + 3.0) + 4.0 * rows.n * len(rows.terms)
    free = available_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"{n:,} responses of {rows.n:,} rows need {gib(needed)}, and {gib(free)} are free; "
            "simulate fewer at a time, with another rng= each time"
        )
    mean = rows.origin + rows.X @ beta
    simulated = np.empty((rows.n, n), order="F")
    for j in range(n):
        simulated[:, j] = mean + draw_errors(rows, v, stream(seed, j))
    return simulated
