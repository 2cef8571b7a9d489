"""How long the stages of a fit take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the seconds that a block of statements takes under the name of its stage."""
    begun = perf_counter()
    yield
    seconds[stage] = perf_counter() - begun
