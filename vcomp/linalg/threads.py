"""BLAS threads only where they help."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

__all__ = ["limited_blas"]

_ONE_THREAD_BELOW = 1000
"""Below this order two threads gain little, and lose a hundredfold when a core is busy."""


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
