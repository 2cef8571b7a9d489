"""Seeds and random streams: each replicate has its own, independent of threads and order."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from vcomp.exceptions import EstimationError

__all__ = [
    "check_count",
    "check_rng",
    "seed_from",
    "seed_of",
    "stream",
]


def stream(seed: int, number: int) -> np.random.Generator:
    """Return the random number generator of one replicate.

    Parameters
    ----------
    seed : of all replicates
    number : of the replicate, from 0 on

    Examples
    --------
    >>> stream(1, 5).normal() == stream(1, 5).normal()
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))


def seed_from(rng: int | np.random.Generator | None) -> int:
    """Return the seed, checked: as given, drawn once from a generator, or 0 for None.

    Raises
    ------
    EstimationError
        If `rng` is none of these.
    """
    check_rng(rng)
    return seed_of(rng)


def check_count(value: object, name: str) -> int:
    """Return a number of replicates, responses or workers, checked.

    Raises
    ------
    EstimationError
        If it is not a whole number of at least 1.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise EstimationError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def check_rng(rng: object) -> None:
    """Check a seed or generator.

    Raises
    ------
    EstimationError
        If `rng` is not None, a seed of at least 0, or a numpy Generator.
    """
    is_seed = isinstance(rng, Integral) and not isinstance(rng, bool) and int(rng) >= 0
    if rng is not None and not is_seed and not isinstance(rng, np.random.Generator):
        raise EstimationError(
            f"rng must be a seed of at least 0 or a numpy Generator, not {rng!r}"
        )


def seed_of(rng: int | np.random.Generator | None) -> int:
    """Return the seed as given, drawn once from a generator, or 0 for None."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**31))
    return 0 if rng is None else int(rng)
