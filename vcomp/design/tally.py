"""What was missing in the rows that were read, and in which of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, warn
from vcomp.formula import Formula

__all__ = ["Missing", "Tally"]

Missing = Literal["drop", "raise"]

_SHOWN = 5
"""Parts of the data that a message names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows were read, and what was missing in them; those of parts add up.

    Attributes
    ----------
    n : number of rows
    incomplete : of them with a missing value
    missing : of them for each column, and for the response under ``None``
    infinite : of the complete rows those with an infinite response
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
        """Return the tally with what is missing or infinite in each file or frame.

        Parameters
        ----------
        keep : which of all rows are complete
        y : the response of these
        sizes : name of each part, and its number of rows
        """
        if len(sizes) < 2 or not (self.incomplete or self.infinite):
            return self  # of one file there is no need to say which
        infinite = np.zeros(keep.size, dtype=bool)
        infinite[keep] = np.isinf(y)
        parts, end = {}, 0
        for name, size in sizes:
            rows = slice(end, end := end + size)
            found = int((~keep[rows]).sum()), int(infinite[rows].sum())
            if name is not None and any(found):
                parts[name] = found
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

    def check(self, formula: Formula, missing: Missing) -> None:
        """Warn of rows that were left out, and refuse data that cannot be used.

        Raises
        ------
        DataError
            If there is no row, or none is complete; if the response is infinite somewhere; if
            rows are incomplete and ``missing="raise"``; or if `missing` is something else.
        """
        if missing not in ("drop", "raise"):
            raise DataError(f"missing={missing!r} is not known; it is 'drop' or 'raise'")
        if self.n == 0:
            raise DataError("the data have no rows")
        if self.missing[None] == self.n:
            raise DataError(f"the response {formula.response!r} is missing in every row")
        if self.incomplete:
            self._report(formula, missing)
        if self.infinite:
            parts = self._by_part(1)
            which = f" ({parts})" if parts else ""
            raise DataError(
                f"the response {formula.response!r} is infinite in {self.infinite} of "
                f"{self.n - self.incomplete} rows{which}"
            )

    def _report(self, formula: Formula, missing: Missing) -> None:
        # What is missing in the column that the response is needs no saying twice.
        named = [
            (f"response {formula.response}" if name is None else name, count)
            for name, count in self.missing.items()
            if count and (name is not None or formula.response not in self.missing)
        ]
        per_column = ", ".join(f"{name} {count}" for name, count in named)
        parts = self._by_part(0)
        which = f" ({parts})" if parts else ""
        where = f"{self.incomplete} of {self.n} rows{which} have a missing value ({per_column})"
        if missing == "raise":
            raise DataError(f"{where}; missing='drop' leaves them out")
        if self.incomplete == self.n:
            raise DataError(f"no row is complete: {where}")
        warn(f"{where} and were left out")

    def _by_part(self, which: int) -> str:
        """Return in which parts rows are incomplete (0) or infinite (1), and how many."""
        found = {part: counts[which] for part, counts in self.parts.items() if counts[which]}
        shown = [f"{count} in {part!r}" for part, count in islice(found.items(), _SHOWN)]
        more = [f"and in {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        return ", ".join([*shown, *more])


def _added(
    one: Mapping[str, tuple[int, int]], other: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    found = dict(one)
    for part, (incomplete, infinite) in other.items():
        before = found.get(part, (0, 0))
        found[part] = before[0] + incomplete, before[1] + infinite
    return found
