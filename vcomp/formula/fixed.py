"""The parts of a formula that patsy evaluates: the response and the fixed effects."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, FormulaError
from vcomp.formula.parse import Formula, patsy_description

__all__ = ["FixedPart", "build_fixed", "evaluate", "names_in"]


@dataclass(frozen=True, slots=True)
class FixedPart:
    """How rows become the columns of X, with patsy's memory of codings and transforms."""

    names: tuple[str, ...]
    design_info: Any = None
    """patsy's ``DesignInfo``; None for a lone intercept, which needs no patsy at all."""

    def matrix(self, columns: Mapping[str, Any], n_rows: int) -> FloatArray:
        """Return X, shape (n_rows, p), for new rows.

        Raises
        ------
        DataError
            If a column of the fixed part is missing, or has a level that was not there before.
        """
        if self.design_info is None:
            return np.ones((n_rows, len(self.names)))
        from patsy import PatsyError, build_design_matrices

        try:
            (X,) = build_design_matrices([self.design_info], columns, NA_action="raise")
        except PatsyError as error:
            raise DataError(f"the fixed part: {error}") from None
        return np.ascontiguousarray(X, dtype=float)


def build_fixed(formula: Formula, columns: Mapping[str, Any], environment: Any) -> FixedPart:
    """Learn the coding of the fixed part from `columns`.

    Raises
    ------
    FormulaError
        If patsy cannot evaluate it (an unknown name, factors of different lengths).
    """
    if formula.intercept_only:
        return FixedPart(("Intercept",))
    if not formula.fixed:
        return FixedPart(())
    from patsy import PatsyError, incr_dbuilder

    try:
        info = incr_dbuilder(
            patsy_description(formula), lambda: iter([columns]), environment, NA_action="raise"
        )
    except PatsyError as error:
        raise FormulaError(f"the fixed part of the formula: {error}") from None
    return FixedPart(tuple(info.column_names), info)


def evaluate(code: str, columns: Mapping[str, Any], environment: Any) -> Any:
    """Evaluate an expression of the formula, columns first, then the caller's names.

    Raises
    ------
    FormulaError
        If Python cannot evaluate it; the message says what it said.
    """
    if code in columns:
        return columns[code]
    namespace = {**columns, "I": lambda x: x, "Q": columns.__getitem__}
    try:
        return environment.eval(code, inner_namespace=namespace)
    except Exception as error:
        raise FormulaError(f"cannot evaluate {code!r}: {type(error).__name__}: {error}") from None


def names_in(code: str) -> tuple[str, ...]:
    """Return the names that an expression looks up, ``Q("...")`` included.

    Examples
    --------
    >>> names_in("np.log(score) - Q('base line')")
    ('np', 'score', 'base line')
    """
    places: dict[str, int] = {}
    for node in ast.walk(ast.parse(code.strip(), mode="eval")):
        match node:
            case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str(name))]):
                places.setdefault(name, node.col_offset)
            case ast.Name(id=name) if name not in ("Q", "I", "C"):
                places.setdefault(name, node.col_offset)
    return tuple(sorted(places, key=places.__getitem__))
