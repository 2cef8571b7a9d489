"""Columns of a rank-deficient fixed part that are left out, as linear combinations of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray

_ROUNDING = 1e-8
"""Relative difference from the combination up to which a row is a combination of those fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Which columns are kept, and how the others follow from them: X_d = X_k W in the rows fitted.

    Attributes
    ----------
    names : of all columns
    kept : (p,) positions of the columns that are kept
    weights : (p, d) matrix W, on the scale of the data
    """

    names: tuple[str, ...]
    kept: LongArray
    weights: FloatArray

    @property
    def at(self) -> LongArray:
        """Positions of the columns that are left out, (d,)."""
        return np.setdiff1d(np.arange(len(self.names)), self.kept)

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of the columns that are kept."""
        return tuple(self.names[j] for j in self.kept)

    @property
    def left_out_names(self) -> tuple[str, ...]:
        """Names of the columns that are left out."""
        return tuple(self.names[j] for j in self.at)

    def all_columns(self, values: FloatArray) -> FloatArray:
        """Return a row of all columns from one of those kept, (p,)."""
        found = np.zeros(len(self.names))
        found[self.kept], found[self.at] = values, values @ self.weights
        return found

    def are_same(self, X: FloatArray) -> BoolArray:
        """Return whether columns left out are the combination that they are in the rows fitted.

        If all of them are in a row, its mean is estimable.

        Parameters
        ----------
        X : (n, p + d) rows, on the scale of the data

        Returns
        -------
        (n, d) for each row and column left out
        """
        kept, others = X[:, self.kept], X[:, self.at]
        scale = np.abs(kept) @ np.abs(self.weights) + np.abs(others)
        found: BoolArray = np.abs(others - kept @ self.weights) <= _ROUNDING * scale
        return found


_SHOWN = 8
"""Columns that a note names."""


def left_out_note(names: Sequence[str]) -> str:
    """Return a sentence that names the columns that are left out."""
    shown, more = ", ".join(map(repr, names[:_SHOWN])), len(names) - _SHOWN
    others = f" and {more:,} more" if more > 0 else ""
    if len(names) == 1:
        return (
            f"column {shown} of the fixed part is a linear combination of other columns in these "
            "rows and was left out; the fit is the same without it"
        )
    return (
        f"{len(names):,} columns of the fixed part are linear combinations of other columns in "
        f"these rows and were left out: {shown}{others}; the fit is the same without them"
    )
