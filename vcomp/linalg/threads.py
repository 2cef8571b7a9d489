"""BLAS threads only where they help."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

__all__ = ["MANY_ROWS", "THREADS", "limited_blas"]

THREADS = 2
"""Passes over rows are bound by memory, which two threads use up."""

MANY_ROWS = 200_000
"""Below it threads take longer to start than they save."""

_ONE_THREAD_BELOW = 10_000
"""Below this order two threads gain a factor of two at most, on an idle machine. Where another
process has one of two cores they wait for it: a Cholesky factor and inverse of order 1,000 then
take 2 to 3 times as long as with one thread, of order 4,000 6 to 8 times."""


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limited_blas(order: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS works on matrices of this order with a fitting team."""
    if order >= _ONE_THREAD_BELOW:
        return nullcontext()
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
