"""Progress bars of long work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(
    progress: bool | None, total: float | None, label: str, *, unit: str = "", delay: float = 0.0
) -> Iterator[Callable[[int], Any]]:
    """Return a context whose value moves a progress bar, if one is shown.

    Parameters
    ----------
    progress : whether to show it; None for one where stderr is a terminal
    total : number at its end; None if it is not known
    label : in front of it
    unit : of what it counts; many are shown as thousands and millions
    delay : seconds after which it appears, unless it was requested
    """
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        yield lambda n: None
        return
    from tqdm import tqdm

    with tqdm(
        total=total,
        desc=label,
        unit=unit,
        unit_scale=bool(unit),
        file=sys.stderr,
        delay=0.0 if progress else delay,
    ) as bar:
        yield bar.update
