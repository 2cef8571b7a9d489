"""A factor of very many levels in the fixed part, coded without patsy's levels × levels matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import LongArray
from vcomp.exceptions import DataError
from vcomp.formula.parser import names_in

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class WideFactor:
    """A factor with treatment coding: a column for each level but the first.

    Attributes
    ----------
    code : as in the formula, ``item`` or ``C(item)``
    column : of the data
    levels : in the order of the coding
    """

    code: str
    column: str
    levels: pd.Index

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.levels) - 1

    def names(self) -> list[str]:
        """Return the names of the columns, as patsy makes them."""
        of_levels = (x if isinstance(x, str) else repr(x) for x in self.levels.to_numpy()[1:])
        return [f"{self.code}[T.{level}]" for level in of_levels]

    def codes(self, columns: Mapping[str, Any]) -> LongArray:
        """Return the level of each row, (n,).

        Raises
        ------
        DataError
            If the column is missing, or has another level.
        """
        import pandas as pd

        if self.column not in columns:
            raise DataError(f"the fixed part needs column {self.column!r}", column=self.column)
        values = columns[self.column]
        if isinstance(values, pd.Categorical):
            of_category = self.levels.get_indexer(values.categories)
            found = np.append(of_category, -1)[values.codes]
        else:
            found = self.levels.get_indexer(pd.Index(values))
        if (found < 0).any():
            first = int(np.argmax(found < 0))
            (new,) = np.asarray(values)[first : first + 1].tolist()
            if isinstance(new, float) and new.is_integer():  # whole numbers are read as floats
                new = int(new)
            raise DataError(
                f"{self.code!r} of the fixed part has no level {new!r} in the fit", level=new
            )
        return np.asarray(found, dtype=np.int64)

    def sparse(self, columns: Mapping[str, Any]) -> Any:
        """Return the columns of X, (n, levels − 1), as a ``scipy.sparse.csr_array``.

        Raises
        ------
        DataError
            As :meth:`codes`.
        """
        from scipy.sparse import csr_array

        codes = self.codes(columns)
        there = codes > 0
        indptr = np.concatenate([[0], np.cumsum(there)])
        indices = (codes[there] - 1).astype(np.int32)
        shape = (codes.size, self.n_columns)
        return csr_array((np.ones(indices.size), indices, indptr), shape=shape)

    @classmethod
    def find(cls, description: Any, columns: Mapping[str, Any], least: int) -> WideFactor | None:
        """Return the factor with most levels that can be coded here; None if there is none.

        It is a term of its own, beside an intercept, and its column is in no other term.

        Parameters
        ----------
        description : patsy's ``ModelDesc``
        columns : of all rows
        least : smallest number of its columns
        """
        from patsy import INTERCEPT

        terms = description.rhs_termlist
        if INTERCEPT not in terms:
            return None
        found = None
        for term in terms:
            code = term.factors[0].code if len(term.factors) == 1 else ""
            name = code[2:-1] if code.startswith("C(") and code.endswith(")") else code
            if name not in columns:
                continue
            others = [f.code for other in terms if other != term for f in other.factors]
            if any(name in names_in(other) for other in others):
                continue
            levels = _levels(columns[name], is_called=name != code)
            if levels is not None and len(levels) > least:
                least, found = len(levels), cls(code, name, levels)
        return found

    def others(self, description: Any) -> Any:
        """Return patsy's description without this factor."""
        from patsy import ModelDesc

        kept = [
            term
            for term in description.rhs_termlist
            if [factor.code for factor in term.factors] != [self.code]
        ]
        return ModelDesc([], kept)


def _levels(column: Any, *, is_called: bool) -> pd.Index | None:
    """Return the levels of a column, in patsy's order; None if patsy decides what it is."""
    import pandas as pd

    if isinstance(column, pd.Categorical):
        used = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
        return column.categories if used.all() else None
    values = np.asarray(column)
    if is_called and values.ndim == 1 and values.dtype.kind in "fiu":
        levels: pd.Index = pd.Index(np.unique(values))
        return levels
    return None
