"""Runs the study: data sets in parallel, and the coverage of each method's intervals."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.coverage.cells import Cell, Plan
from benchmarks.coverage.methods import GROUPS, NORMAL, NORMAL_THEORY, Found, Group
from benchmarks.coverage.prepared import Prepared
from vcomp._typing import FloatArray
from vcomp.numerics.parallel import limited_blas

_BATCH = 10

_WIDTHS_OF = {"local": NORMAL_THEORY, "robust": NORMAL}
"""Methods whose widths the others' are divided by, by the group that has them."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the intervals of one method for one quantity came to.

    Attributes
    ----------
    cell, distribution, estimator, method, quantity : what was simulated
    near_zero : whether the quantity is a variance below its own standard error, or a share of one
    truth : its true value
    n : data sets
    none : share of them without an interval
    coverage : share of the intervals that contain the true value
    below, above : share of intervals that lie below the true value, and above it
    width : median width, relative to that of normal theory after REML; in all populations to that
        of modified large samples
    wide : the same of the width that a tenth of the intervals exceed
    """

    cell: str
    distribution: str
    estimator: str
    method: str
    quantity: str
    near_zero: bool
    truth: float
    n: int
    none: float
    coverage: float
    below: float
    above: float
    width: float
    wide: float = np.nan

    @property
    def error(self) -> float:
        """Monte Carlo standard error of the coverage."""
        made = max(self.n * (1.0 - self.none), 1.0)
        return float(np.sqrt(self.coverage * (1.0 - self.coverage) / made))


def run_study(
    cells: Sequence[Cell], *, seed: int, workers: int, quick: bool = False, progress: bool = True
) -> list[Row]:
    """Return the rows of all cells and distributions."""
    rows: list[Row] = []
    for cell in cells:
        for distribution in cell.distributions:
            plan = cell.plan if distribution == "normal" else cell.plan.of_others()
            plan = plan.quick() if quick else plan
            prepared = Prepared(cell, distribution, seed)
            rows += run_cell(prepared, plan, workers=workers, progress=progress)
    return rows


def run_cell(
    prepared: Prepared,
    plan: Plan,
    *,
    workers: int = 1,
    progress: bool = False,
    first: int = 0,
) -> list[Row]:
    """Return the rows of a design with a distribution; the same for any number of workers.

    Parameters
    ----------
    prepared, plan : the design, and how many data sets each group of methods gets
    workers, progress : processes, and whether they show what they have done
    first : number of the first data set
    """
    rows: list[Row] = []
    default = np.full((2, len(prepared.names)), np.nan)
    for group in GROUPS:
        n = int(getattr(plan, group))
        if n:
            label = f"{prepared.cell.name}, {prepared.distribution}, {group}"
            numbers = range(first, first + n)
            of = GROUPS[group]
            found = list(data_sets(prepared, plan, of, numbers, workers, progress, label))
            if group in _WIDTHS_OF:
                key = "reml", _WIDTHS_OF[group]
                default = widths_of(found, key, len(prepared.names))
            rows += tally(prepared, found, default)
    return rows


def tally(prepared: Prepared, found: Sequence[Found], default: FloatArray) -> list[Row]:
    """Return a row for every method and quantity.

    Parameters
    ----------
    prepared : the design
    found : the intervals of each data set
    default : (2, m) widths that others are divided by: medians, and 90 % points
    """
    truth, near = prepared.values, prepared.near_zero
    rows = []
    for estimator, method in dict.fromkeys(key for one in found for key in one):
        low, high = _gathered(found, (estimator, method), truth.size)
        made = ~np.isnan(low) & ~np.isnan(high)
        widths = _widths((low, high))
        for j in np.flatnonzero(made.any(axis=0)):
            there = made[:, j]
            # Rounding: a true share of 1 or component of 0 is not missed by its last bit.
            slack = 1e-12 * max(1.0, abs(truth[j]))
            below = float((high[there, j] < truth[j] - slack).mean())
            above = float((low[there, j] > truth[j] + slack).mean())
            rows.append(
                Row(
                    cell=prepared.cell.name,
                    distribution=prepared.distribution,
                    estimator=estimator,
                    method=method,
                    quantity=prepared.names[j],
                    near_zero=bool(near[j]),
                    truth=float(truth[j]),
                    n=len(found),
                    none=float(1.0 - there.mean()),
                    coverage=1.0 - below - above,
                    below=below,
                    above=above,
                    width=_ratio(float(widths[0, j]), float(default[0, j])),
                    wide=_ratio(float(widths[1, j]), float(default[1, j])),
                )
            )
    return rows


def widths_of(found: Sequence[Found], key: tuple[str, str], m: int) -> FloatArray:
    """Return medians and 90 % points of the widths of a method, (2, m), nan where there are none.

    Parameters
    ----------
    found : the intervals of each data set
    key : estimator and method
    m : number of quantities
    """
    return _widths(_gathered(found, key, m))


def _ratio(width: float, default: float) -> float:
    """Return a relative width; nan if both have no end."""
    return width / default if default > 0.0 and np.isfinite([width, default]).any() else np.nan


def _gathered(
    found: Sequence[Found], key: tuple[str, str], m: int
) -> tuple[FloatArray, FloatArray]:
    nothing = np.full((2, m), np.nan)
    ends = np.array([one.get(key, nothing) for one in found])
    return ends[:, 0], ends[:, 1]


def _widths(ends: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return medians and 90 % points of widths, (2, m), nan where there is none."""
    width = ends[1] - ends[0]
    columns = [column[~np.isnan(column)] for column in width.T]
    nothing = np.full(2, np.nan)
    # Those of a data set: between a finite and an infinite width is no number.
    return np.array(
        [np.quantile(c, (0.5, 0.9), method="higher") if c.size else nothing for c in columns]
    ).T


def data_sets(
    prepared: Prepared,
    plan: Plan,
    group: Group,
    numbers: range,
    workers: int,
    progress: bool,
    label: str,
) -> Iterator[Found]:
    """Return what a group of methods gives for each data set, in order.

    Parameters
    ----------
    prepared, plan : the design, and how many replicates the methods make
    group : of methods, such as those of :data:`~benchmarks.coverage.methods.GROUPS`
    numbers : of the data sets
    workers, progress, label : processes, and the bar of what they have done
    """
    from tqdm import tqdm

    # What children would all work out again.
    work = partial(_batch, prepared, plan, group)
    group(prepared, 0, plan)
    batches = [numbers[at : at + _BATCH] for at in range(0, len(numbers), _BATCH)]
    with tqdm(total=len(numbers), desc=label, disable=not progress, file=sys.stderr) as bar:
        for batch in _mapped(work, batches, workers):
            bar.update(len(batch))
            yield from batch


_work: partial[list[Found]] | None = None
"""What the children of a fork do: it holds a model, which is not sent."""


def _mapped(
    work: partial[list[Found]], batches: Sequence[range], workers: int
) -> Iterator[list[Found]]:
    global _work  # inherited by the fork
    if workers == 1:
        yield from map(work, batches)
        return
    _work = work
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap(_by_fork, batches)
    _work = None


def _by_fork(numbers: range) -> list[Found]:
    assert _work is not None
    return _work(numbers)


def _batch(prepared: Prepared, plan: Plan, group: Group, numbers: range) -> list[Found]:
    with limited_blas(1):
        return [group(prepared, number, plan) for number in numbers]
