"""Runs the study: cells in parallel, parts stored on disk."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bias_study.cells import Cell, parts_of
from benchmarks.bias_study.evaluate import Evaluation, evaluate
from benchmarks.bias_study.store import Settings, load, save, stacked
from vcomp.numerics.parallel import limited_blas


def run_study(
    settings: Settings, *, workers: int = 1, folder: Path | None = None, progress: bool = False
) -> tuple[Evaluation, int]:
    """Return what all collections came to, and how many were made: others were on disk.

    Numbers are the same for any number of workers.

    Parameters
    ----------
    settings : of the run
    workers : processes
    folder : where parts are kept; those that are there are not made again. None keeps nothing
    progress : whether to show a bar

    Returns
    -------
    Evaluation, int
        Arrays have the axes collection, normal, homoscedastic, uncorrelated, random, size and
        trial before those of one collection.

    Raises
    ------
    OtherSettingsError
        If a part that is there was made with other settings.
    """
    from tqdm import tqdm

    parts = parts_of(settings.collections)
    done = {p: None if folder is None else load(folder, p, settings) for p in parts}
    missing = [part for part in parts if done[part] is None]
    cells = [Cell(part, size) for part in missing for size in settings.sizes]
    total = len(parts) * len(settings.sizes) * settings.trials
    with tqdm(
        total=total,
        initial=total - len(cells) * settings.trials,
        desc="collections",
        unit="",
        disable=not progress,
        file=sys.stderr,
    ) as bar:
        finished = _mapped(settings, cells, workers)
        for part in missing:
            made = []
            for _ in settings.sizes:
                made.append(next(finished))
                bar.update(settings.trials)
            values = Evaluation(
                np.stack([one.diagnosis for one in made]),
                np.stack([one.actual for one in made]),
                np.stack([one.estimates for one in made]),
            )
            if folder is not None:
                save(folder, part, settings, values)
            done[part] = values
    values = stacked([one for one in done.values() if one is not None], len(settings.collections))
    return values, len(cells) * settings.trials


def _mapped(settings: Settings, cells: Sequence[Cell], workers: int) -> Iterator[Evaluation]:
    """Return what cells come to, in order."""
    work = partial(_cell, settings)
    if workers == 1 or len(cells) < 2:
        yield from map(work, cells)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap(work, cells)


def _cell(settings: Settings, cell: Cell) -> Evaluation:
    with limited_blas(0):
        return evaluate(cell, settings.trials, settings.seed, settings.sensitivities)
