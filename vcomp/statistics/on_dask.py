"""The passes over a Dask DataFrame: a task for each partition and pass, summed as a tree.

Nothing is shuffled. Rows stay where they are; what moves are surveys of levels, and cells. Where
partitions hold whole cells of a complete grid (documents that all systems were scored on) these
come to a few numbers for each of their groups before they move; see
:mod:`vcomp.statistics.sealed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from vcomp.design.addition import Addable, add_up
from vcomp.design.rows import CompleteRows, Missing, complete_rows, fixed_names, used_columns
from vcomp.exceptions import DataError
from vcomp.formula import Formula
from vcomp.formula.fixed import names_in
from vcomp.io import Source
from vcomp.io.columns import native
from vcomp.statistics.cell_sums import CellSums
from vcomp.statistics.cell_table import CellTable, sum_cells
from vcomp.statistics.first_pass import learn_in_passes
from vcomp.statistics.gather import Coder, check_rows
from vcomp.statistics.learned import Learned
from vcomp.statistics.sealed import PartSums, Sealing, sealing_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["gather_on_dask", "is_on_dask"]

_TOGETHER = 8
"""Sums that one task adds up."""

Sum = TypeVar("Sum", bound=Addable)


def is_on_dask(data: Any) -> bool:
    """Whether data are a Dask collection."""
    return hasattr(data, "__dask_graph__")


def gather_on_dask(
    formula: Formula, data: Any, environment: Any, missing: Missing, *, seal: bool
) -> CellSums:
    """Learn the design of the rows of a Dask DataFrame, and sum them where they are.

    Parameters
    ----------
    formula : what is wanted of them
    data : a ``dask.dataframe.DataFrame``; the scheduler is that of the caller, as for ``compute``
    environment, missing, seal : as for :func:`vcomp.statistics.gather.gather`; where cells may be
        forgotten once they are complete, they are

    Raises
    ------
    DataError, FormulaError
        If the rows cannot be used, change between the passes, or have a fixed part that depends on
        all of them together.
    """
    partitions = _Partitions(formula, data, environment)
    learned = learn_in_passes(formula, partitions, environment, missing)
    sealing = sealing_of(learned) if seal else None
    if sealing is not None:
        found = partitions.total(_PartOfGrid(learned, sealing))
        assert found is not None
        check_rows(learned, found.n)
        if found.is_complete:
            return CellSums(learned, found.open, found)
    table = partitions.total(_Cells(learned))
    assert table is not None
    check_rows(learned, table.n)
    return CellSums(learned, table)


@dataclass(frozen=True, slots=True, eq=False)
class _PartOfGrid:
    """Sums rows, and seals the cells that they complete."""

    learned: Learned
    sealing: Sealing

    def __call__(self, part: CompleteRows) -> PartSums:
        places, values = Coder(self.learned)(part)
        return PartSums.of(self.sealing, sum_cells(self.sealing.by_cell(places), values))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Sums rows in cells."""

    learned: Learned

    def __call__(self, part: CompleteRows) -> CellTable:
        return sum_cells(*Coder(self.learned)(part))


class _Partitions:
    """The rows of a Dask DataFrame that have all that a formula needs, by partition."""

    def __init__(self, formula: Formula, data: Any, environment: Any) -> None:
        self._formula = formula
        columns = Source(tuple(map(str, data.columns)), tuple)
        names = used_columns(formula, columns, environment)
        # A scope cannot be sent, the names in it that the formula uses can.
        wanted = {*names_in(formula.response), *fixed_names(formula)} - set(names)
        self._scope = {
            name: environment.namespace[name] for name in wanted if name in environment.namespace
        }
        self._delayed = data[list(dict.fromkeys(names))].to_delayed()

    def each(self, why: str) -> Iterable[CompleteRows]:
        raise DataError(
            f"{why}, which are in partitions: make its columns beforehand, with "
            "data.assign(…), or read the rows with stream=True"
        )

    def total(self, of: Callable[[CompleteRows], Sum]) -> Sum | None:
        """Return the sum of what a function gives of each partition."""
        dask: Any = import_module("dask")
        # What all tasks need is sent once, not with each of them.
        shared = dask.delayed(_Work(of, self._formula, self._scope), traverse=False)
        level = [dask.delayed(_of_partition)(shared, part) for part in self._delayed]
        while len(level) > 1:
            level = [
                dask.delayed(_added)(level[k : k + _TOGETHER])
                for k in range(0, len(level), _TOGETHER)
            ]
        found: Sum | None = dask.compute(level[0])[0] if level else None
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What is done with the rows of every partition.

    Attributes
    ----------
    of : complete rows → what adds up
    formula : what makes rows complete
    scope : names that it uses
    """

    of: Callable[[CompleteRows], Any]
    formula: Formula
    scope: Mapping[str, Any]


def _of_partition(work: _Work, frame: pd.DataFrame) -> Any:
    """Return what a function gives of the rows of one partition, on the worker that has them."""
    from patsy import EvalEnvironment

    environment = EvalEnvironment([dict(work.scope)])
    rows = complete_rows(work.formula, native(frame.reset_index(drop=True)), environment)
    return work.of(rows)


def _added(parts: list[Sum]) -> Sum:
    found = add_up(parts)
    assert found is not None
    return found
