"""A clock for limits of time, on which any machine is as fast as any other."""

from __future__ import annotations

from itertools import count

import pytest


def ticking(monkeypatch: pytest.MonkeyPatch, seconds: float = 1e-3) -> None:
    """Let some seconds pass whenever replicates look at the clock, and at no other time."""
    ticks = count()
    monkeypatch.setattr("vcomp.numerics.parallel.monotonic", lambda: seconds * next(ticks))
