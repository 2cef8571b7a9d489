"""Cases of tests that repeat one thing for many designs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def alternately(names: Iterable[Any], *options: Any) -> list[tuple[Any, Any]]:
    """Return each name with one of the options, by turns: all options occur, and all names."""
    return [(name, options[k % len(options)]) for k, name in enumerate(names)]
