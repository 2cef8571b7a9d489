"""What was read of logs: the table of scores, and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.exceptions import visible

if TYPE_CHECKING:
    import pandas as pd

_TROUBLES = ("unscored", "failed", "unreadable", "duplicates")

_SHOWN = 30
"""Runs, and notes, that are printed."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvalLogs(display.Printed):
    """Scores of logs of evaluations, and what was read of each.

    Made by :func:`vcomp.evals.read`; ``print`` it.

    Attributes
    ----------
    table : a row for each score: ``model``, ``task``, ``item``, ``epoch``, ``prompt``, ``judge``,
        ``metric`` (those that the logs have), ``score``, and whatever else varies
    unscored : the rows without a score, with the ``problem`` of each; they are not in the table
    report : a row for each run: its ``file`` and ``format``, the numbers of ``samples``,
        ``failed`` and ``unreadable`` ones, of ``scores`` in the table, ``unscored`` rows, and
        ``duplicates`` that a later score replaced
    notes : sentences on what was not read or is not known, with the names
    """

    table: pd.DataFrame
    unscored: pd.DataFrame
    report: pd.DataFrame
    notes: tuple[str, ...]

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        counts = ["samples", "scores"]
        counts += [n for n in self.report if n in _TROUBLES and self.report[n].any()]
        shown = self.report.head(_SHOWN)
        cells = {
            name: [visible(str(v)) for v in shown[name]] for name in ("format", "model", "task")
        }
        cells |= {name: [display.count(v) for v in shown[name]] for name in counts}
        table = display.column_table(
            cells, title=self._size(), stubs=[visible(_short(name)) for name in shown["file"]]
        )
        notes = [visible(note) for note in self.notes[:_SHOWN]]
        if len(self.report) > _SHOWN:
            notes.insert(0, f"{len(self.report) - _SHOWN:,} more runs are in report.")
        if len(self.notes) > _SHOWN:
            notes.append(f"{len(self.notes) - _SHOWN:,} more sentences are in notes.")
        if len(self.unscored):
            problems = self.unscored["problem"].value_counts()
            listed = ", ".join(f"{p} ({n:,})" for p, n in problems.head(5).items() if n)
            notes.insert(0, visible(f"Rows without a score, in unscored: {listed}."))
        return display.summary([table], notes)

    def __repr__(self) -> str:
        return f"<EvalLogs: {self._size()}>"

    def _size(self) -> str:
        facets = ("model", "task", "item", "epoch", "prompt", "judge", "metric")
        sizes = [
            display.counted(self.table[name].nunique(), name)
            for name in facets
            if name in self.table
        ]
        return f"{display.count(len(self.table))} scores: {', '.join(sizes)}"


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"…{name[-47:]}"
