"""Tables of the page, and numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"


def percent(share: float) -> str:
    """Return a share as a percentage with one digit."""
    return f"{100.0 * share:.1f}"


def width(width: float) -> str:
    """Return a relative width, ∞ if half of the intervals have no end."""
    if np.isnan(width):
        return "–"
    return "∞" if np.isinf(width) else f"{width:.2f}"
