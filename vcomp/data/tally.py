"""Numbers of rows and missing values, which are reported once for all parts of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.data.column_values import labels_of_files
from vcomp.data.reading import Missing
from vcomp.exceptions import DataError, warn
from vcomp.formula import Formula

_SHOWN = 5
"""Largest number of parts of the data that a message names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of rows and of missing values; the tallies of parts add up.

    Attributes
    ----------
    n : number of rows
    incomplete : number of rows with a missing value
    missing : number of missing values in each column, in the response under ``None``
    infinite : number of complete rows with an infinite response
    parts : incomplete and infinite rows of the files or frames that have any
    """

    n: int
    incomplete: int
    missing: Mapping[str | None, int]
    infinite: int
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def named(self, part: str | None) -> Tally:
        """Return the tally of a part of this name."""
        if part is None or not (self.incomplete or self.infinite):
            return self
        return replace(self, parts={part: (self.incomplete, self.infinite)})

    def by_part(
        self, keep: BoolArray, y: FloatArray, sizes: Sequence[tuple[str | None, int]]
    ) -> Tally:
        """Return the tally with the numbers of incomplete and infinite rows of each file or frame.

        Parameters
        ----------
        keep : which of all rows are complete
        y : the response of these
        sizes : name of each part, and its number of rows
        """
        if not (self.incomplete or self.infinite):
            return self
        infinite = np.zeros(keep.size, dtype=bool)
        infinite[keep] = np.isinf(y)
        parts, end = {}, 0
        for name, size in sizes:
            rows = slice(end, end := end + size)
            counts = int((~keep[rows]).sum()), int(infinite[rows].sum())
            if name is not None and any(counts):
                parts[name] = counts
        return replace(self, parts=parts)

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys([*self.missing, *other.missing])
        return Tally(
            self.n + other.n,
            self.incomplete + other.incomplete,
            {name: self.missing.get(name, 0) + other.missing.get(name, 0) for name in names},
            self.infinite + other.infinite,
            _added(self.parts, other.parts),
        )

    def check(self, formula: Formula, missing: Missing, files: Sequence[Path] = ()) -> None:
        """Warn of rows that were left out, and refuse data that cannot be used.

        Raises
        ------
        DataError
            If there is no row, or none is complete; if the response is infinite somewhere; or if
            rows are incomplete and ``missing="raise"``.
        """
        if self.n == 0:
            raise DataError("the data have no rows")
        if self.missing[None] == self.n:
            raise DataError(
                f"the response {formula.response!r} is missing in every row",
                column=formula.response,
            )
        if self.incomplete:
            self._report(formula, missing, files)
        if self.infinite:
            parts = self._by_part(1)
            which = f" ({parts})" if parts else ""
            raise DataError(
                f"the response {formula.response!r} is infinite in {self.infinite} of "
                f"{self.n - self.incomplete} rows{which}",
                column=formula.response,
            )

    def _report(self, formula: Formula, missing: Missing, files: Sequence[Path]) -> None:
        # A response that is a column is counted there already.
        named = [
            (f"response {formula.response}" if name is None else name, count)
            for name, count in self.missing.items()
            if count and (name is not None or formula.response not in self.missing)
        ]
        per_column = ", ".join(f"{name} {count}" for name, count in named)
        parts = self._by_part(0)
        which = f" ({parts})" if parts else ""
        where = f"{self.incomplete} of {self.n} rows{which} have a missing value ({per_column})"
        labels = [f for f in formula.facets if self.missing.get(f)]
        is_text = any(path.suffix.lower() != ".parquet" for path in files)
        if labels and is_text:
            where += f"; in files NA and NULL are missing: {labels_of_files(labels)}"
        if missing == "raise":
            raise DataError(f"{where}; missing='drop' leaves them out")
        if self.incomplete == self.n:
            raise DataError(f"no row is complete: {where}")
        warn(
            f"{where}; they were left out" if labels and is_text else f"{where} and were left out"
        )

    def _by_part(self, which: int) -> str:
        """Return in which parts rows are incomplete (0) or infinite (1), and how many."""
        affected = {part: counts[which] for part, counts in self.parts.items() if counts[which]}
        shown = [f"{count} in {part!r}" for part, count in islice(affected.items(), _SHOWN)]
        more = [f"and in {len(affected) - _SHOWN} more"] if len(affected) > _SHOWN else []
        return ", ".join([*shown, *more])


def _added(
    one: Mapping[str, tuple[int, int]], other: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    total = dict(one)
    for part, (incomplete, infinite) in other.items():
        before = total.get(part, (0, 0))
        total[part] = before[0] + incomplete, before[1] + infinite
    return total
