"""A bar on the terminal while something takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vcomp.exceptions import DataError

__all__ = ["check_progress", "progress_bar"]


def check_progress(progress: bool | None, *, on_dask: bool = False) -> None:
    """Refuse what is neither True, False nor None, and a bar of work that Dask does.

    Raises
    ------
    DataError
    """
    if progress is not None and not isinstance(progress, bool):
        raise DataError(f"progress={progress!r} is not known; it is True, False or None")
    if progress and on_dask:
        raise DataError(
            "progress=True is of rows that are read here; Dask shows its own, on its dashboard or "
            "inside dask.diagnostics.ProgressBar()"
        )


@contextmanager
def progress_bar(
    progress: bool | None, total: float | None, label: str, *, unit: str = "", delay: float = 0.0
) -> Iterator[Callable[[int], Any]]:
    """Give a function that moves a bar, which may not be there.

    Parameters
    ----------
    progress : whether to show it; None for one where stderr is a terminal
    total : where it ends; None if nobody knows
    label : in front of it
    unit : of what it counts; many are shown as thousands and millions
    delay : seconds after which it appears, unless it was asked for
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
