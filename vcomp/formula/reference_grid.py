"""Rows of X for combinations of levels of the fixed part, at values of its covariates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import FormulaError
from vcomp.formula.fixed import FixedPart
from vcomp.formula.formula_terms import names_in
from vcomp.formula.least_squares_means import first_names, subterms, weighted_columns


@dataclass(frozen=True, slots=True, eq=False)
class GridFactor:
    """A factor of the fixed part.

    Attributes
    ----------
    code : as in the formula, such as ``C(recipe)``
    names : by which it is called: the expression, and its column
    levels : in the order of its coding
    """

    code: str
    names: tuple[str, ...]
    levels: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceGrid:
    """The factors and covariates of a fixed part, from which rows of X follow (as R's emmeans).

    Attributes
    ----------
    fixed : the coded fixed part
    factors : in the order of the formula
    covariates : columns from which numbers are computed
    """

    fixed: FixedPart
    factors: tuple[GridFactor, ...]
    covariates: tuple[str, ...]

    @classmethod
    def of(cls, fixed: FixedPart) -> ReferenceGrid:
        """Return the grid of a fixed part.

        Raises
        ------
        DataError
            If the coding of the fixed part is not known.
        """
        from patsy import builtins

        fixed.check_known()
        if fixed.design_info is None:
            return cls(fixed, (), ())
        factors, numbers = [], dict[str, None]()
        for info in fixed.design_info.factor_infos.values():
            code = info.factor.code
            if info.type == "categorical":
                names = (code, *sorted(first_names(code)))
                factors.append(GridFactor(code, names, tuple(info.categories)))
            else:
                used = set(names_in(code)) - set(fixed.scope) - set(builtins.__all__)
                numbers |= dict.fromkeys(sorted(used))
        wide = fixed.factor
        if wide is not None:
            factors.append(GridFactor(wide.code, (wide.code, wide.column), tuple(wide.levels)))
        return cls(fixed, tuple(factors), tuple(numbers))

    def factor(self, name: str) -> GridFactor | None:
        """Return the factor of a name, or None.

        Raises
        ------
        FormulaError
            If its column is also in another expression.
        """
        called = [factor for factor in self.factors if name in factor.names]
        if len(called) > 1 or (called and name in self.covariates):
            raise FormulaError(
                f"column {name!r} is in several expressions of the fixed part, so that its levels "
                "cannot vary while the others stay as they are; test contrasts with t_test()",
                column=name,
            )
        return called[0] if called else None

    def rows(
        self, n_rows: int, weights: Mapping[str, FloatArray], point: Mapping[str, float]
    ) -> tuple[FloatArray, BoolArray]:
        """Return rows of X on the scale of the data, and which of them are estimable.

        Parameters
        ----------
        n_rows : number of rows, n
        weights : by the code of a factor (n, levels) weights in each row; equal ones if absent
        point : values of all covariates

        Raises
        ------
        FormulaError
            If an expression has no value there, or one that depends on other rows.
        """
        if self.fixed.design_info is None:
            return np.ones((n_rows, len(self.fixed.names))), np.ones(n_rows, dtype=bool)
        X = weighted_columns(self.fixed, n_rows, weights, self._products(point))
        left_out = self.fixed.left_out
        if left_out is None:
            return X, np.ones(n_rows, dtype=bool)
        return X[:, left_out.kept], np.asarray(left_out.are_same(X).all(axis=1))

    def _products(self, point: Mapping[str, float]) -> dict[tuple[str, ...], FloatArray]:
        """Return the products of covariates in each part of a term, the first the fastest."""
        info = self.fixed.design_info
        values = {
            f.code: _value(i, point) for f, i in info.factor_infos.items() if i.type == "numerical"
        }
        products = {}
        for part, _ in subterms(info):
            codes = [f.code for f in part.factors if f not in part.contrast_matrices]
            product: FloatArray = np.ones(1)
            for code in codes:
                product = np.kron(values[code], product).astype(float)
            products[tuple(codes)] = product
        return products


def _value(info: Any, point: Mapping[str, float]) -> FloatArray:
    """Return the columns of a numerical factor at a point."""
    code = info.factor.code
    alone, among = (
        _evaluated(
            info, {name: np.array([x, *(x + s for s in shifts)]) for name, x in point.items()}
        )
        for shifts in ((), (1.0, 3.0))
    )
    if alone.shape[1] != info.num_columns or not np.isfinite(alone).all():
        raise FormulaError(f"{code!r} of the fixed part has no value at {_listed(point)}")
    if not np.allclose(among[:1], alone, 1e-9, 0.0):
        raise FormulaError(
            f"the value of {code!r} depends on other rows, so that it has none at "
            f"{_listed(point)}; use patsy's center() or standardize(), or compute it as a column"
        )
    return alone[0]


def _evaluated(info: Any, columns: Mapping[str, FloatArray]) -> FloatArray:
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(info.factor.eval(info.state, columns), dtype=float)
    except Exception as error:
        raise FormulaError(
            f"{info.factor.code!r} of the fixed part cannot be evaluated at single values: {error}"
        ) from None
    return values[:, None] if values.ndim == 1 else values


def _listed(point: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in point.items())
