"""Robust intervals and what others would use, on the same data sets of eight cells.

Rows are kept in a file; what it has with enough data sets is not run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.coverage import lme4_profile
from benchmarks.coverage.burch import METHOD as BURCH
from benchmarks.coverage.burch import burch
from benchmarks.coverage.cells import Plan, cells_by_name
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.drawn_levels import drawn_levels
from benchmarks.coverage.methods import GROUPS, NORMAL, Found, Group, quietly
from benchmarks.coverage.prepared import Prepared
from benchmarks.coverage.results import merged, read_rows, write_rows
from benchmarks.coverage.study import Row, data_sets, tally, widths_of
from vcomp._typing import FloatArray
from vcomp.statistics.statistics import Statistics

EIGHT = (
    *(("st20x25", population) for population in ("normal", "t5", "exponential", "0/1 .86")),
    *(("groups", population) for population in ("normal", "t5", "chi2", "exponential")),
)
"""Designs and populations."""

QUICK = EIGHT[0], EIGHT[-1]
"""Those that are done in seconds, with :data:`QUICK_DATA_SETS` data sets."""

DATA_SETS = 300
QUICK_DATA_SETS = 3
_LME4 = "lme4"

_METHODS: dict[str, Group] = {
    "robust": GROUPS["robust"],
    "burch": quietly(burch),
    "levels": quietly(drawn_levels),
    "bootstrap": GROUPS["bootstrap"],
    "jackknife": GROUPS["jackknife"],
    "profile": GROUPS["profile"],
}

_BEGINNINGS = {
    "robust": (NORMAL, "robust", "log", "wald"),
    "burch": (BURCH,),
    "levels": ("bootstrap over ",),
    "bootstrap": ("bootstrap, ",),
    "jackknife": ("jackknife over ",),
    "profile": ("profile",),
    _LME4: (lme4_profile.METHOD,),
}
"""How the names of the methods of a group begin; slow groups last."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Which groups of methods are done in which cells, and in which order.

    Attributes
    ----------
    cells : designs and populations
    groups, slow : names of groups; those of the second have some data sets of every cell first
    step : data sets of slow groups that all cells have before one has more
    """

    cells: tuple[tuple[str, str], ...] = EIGHT
    groups: tuple[str, ...] = tuple(_BEGINNINGS)
    slow: tuple[str, ...] = ("profile", _LME4)
    step: int = 100

    def targets(self, data_sets: int) -> Iterator[tuple[str, int]]:
        """Yield groups with the number of data sets that every cell should have."""
        for group in self.groups:
            if group not in self.slow:
                yield group, data_sets
        for target in range(self.step, data_sets + self.step, self.step):
            for group in self.slow:
                yield group, min(target, data_sets)


class PreparedRows(Prepared):
    """A prepared design that draws rows for every method, so that all have the same data sets."""

    def draw(self, number: int, *, rows: bool = False) -> Statistics:
        """Return the statistics of a data set with its rows."""
        return super().draw(number, rows=True)


@dataclass(frozen=True)
class _Cell:
    """One of the cells, with the widths that others are divided by.

    Attributes
    ----------
    name, population : design and population
    seed, data_sets : of the study, and for the widths
    """

    name: str
    population: str
    seed: int
    data_sets: int

    @cached_property
    def prepared(self) -> Prepared:
        (cell,) = cells_by_name((self.name,), DESIGNS)
        return PreparedRows(cell, self.population, self.seed)

    @cached_property
    def widths(self) -> FloatArray:
        """(2, m) widths by normal theory."""
        plan = Plan()
        numbers = range(self.data_sets)
        found = list(data_sets(self.prepared, plan, GROUPS["robust"], numbers, 1, False, ""))
        return widths_of(found, ("reml", NORMAL), len(self.prepared.names))


def compare_methods(
    path: Path | None,
    *,
    seed: int,
    workers: int,
    data_sets: int = DATA_SETS,
    quick: bool = False,
    progress: bool = True,
    steps: Steps | None = None,
) -> list[Row]:
    """Return the rows of all cells and methods.

    Parameters
    ----------
    path : file of rows, which is written after every cell and group of methods; None for none
    seed, workers, progress : as for :func:`~benchmarks.coverage.study.run_study`
    data_sets : numbers 0 to this of each cell; those that the file has are not drawn again
    quick : few cells and resamples
    steps : cells and groups of methods in another order
    """
    steps = steps or Steps(QUICK if quick else EIGHT)
    rows = read_rows(path) if path is not None and path.exists() else []
    cells = [_Cell(*names, seed, data_sets) for names in steps.cells]
    plan = Plan().quick() if quick else Plan()
    for group, target in steps.targets(data_sets):
        for cell in cells:
            done = _done(rows, cell, group)
            if done < target and _applies(cell, group):
                numbers = range(done, target)
                found = _found(cell, group, numbers, plan, workers, progress)
                rows = merged(rows, tally(cell.prepared, found, cell.widths))
                rows.sort(key=_place)
                if path is not None:
                    write_rows(rows, path)
    return rows


def _applies(cell: _Cell, group: str) -> bool:
    if group == "burch":
        return cell.name == "groups"
    return group != _LME4 or lme4_profile.installed()


def _done(rows: list[Row], cell: _Cell, group: str) -> int:
    return min(
        (
            r.n
            for r in rows
            if (r.cell, r.distribution) == (cell.name, cell.population)
            and r.method.startswith(_BEGINNINGS[group])
        ),
        default=0,
    )


def _found(
    cell: _Cell, group: str, numbers: range, plan: Plan, workers: int, progress: bool
) -> list[Found]:
    if group == _LME4:
        return list(lme4_profile.by_lme4(cell.prepared, numbers, workers))
    label = f"{cell.name}, {cell.population}, {group}"
    return list(data_sets(cell.prepared, plan, _METHODS[group], numbers, workers, progress, label))


def _place(row: Row) -> tuple[int, int]:
    groups = list(_BEGINNINGS.values())
    of = next(at for at, starts in enumerate(groups) if row.method.startswith(starts))
    return EIGHT.index((row.cell, row.distribution)), of
