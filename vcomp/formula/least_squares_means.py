"""Rows of X for the levels of a factor, all else averaged (least-squares means).

:class:`ReferenceGrid` has rows for combinations of levels, at values of the covariates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, Json
from vcomp.codec import stored
from vcomp.exceptions import FormulaError
from vcomp.formula.dialects import quoted
from vcomp.formula.fixed import FixedPart
from vcomp.formula.formula_terms import first_names, names_in


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


def _changes(X: FloatArray) -> Json:
    """Return rows for a file: the first, and where the others differ from it."""
    rows, columns = np.nonzero(X[0] != X)
    return {"first": X[0], "rows": rows, "columns": columns, "values": X[rows, columns]}


def _changed(plain: Any, whole: Json) -> FloatArray:
    first = np.array(plain["first"], dtype=float)
    X: FloatArray = np.repeat(first[None, :], len(whole["levels"]), axis=0)
    places = (np.array(plain[name], dtype=np.int64) for name in ("rows", "columns"))
    X[tuple(places)] = plain["values"]
    return X


@dataclass(frozen=True, slots=True)
class LevelRows:
    """Rows of X for the levels of a factor.

    Attributes
    ----------
    levels : of the factor, in the order of its coding
    X : (levels, p) on the scale of the data
    interacting : other factors of the terms that the factor is part of
    not_estimable : levels whose means are not estimable, as combinations of factors are absent
    names : of the factor: as in the formula, and its column
    omitted : term that is lacking for cells of several scores; "" if none is
    """

    levels: tuple[Any, ...]
    X: FloatArray = field(metadata=stored(write=_changes, read=_changed))
    interacting: tuple[str, ...]
    not_estimable: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    omitted: str = ""


def level_rows(fixed: FixedPart, facet: str, means: FloatArray | None) -> LevelRows | None:
    """Return rows of X for the levels of a factor of the fixed part (Searle et al., 1980).

    Levels of other factors have equal weights, and covariates are averaged over the rows of the
    data, as products of several if they interact.

    Parameters
    ----------
    fixed : the coded fixed part
    facet : a column that is a factor, alone or as ``C(column)``; or the whole expression
    means : (p,) means of the columns of X over the rows; None if they are not known

    Returns
    -------
    None if the fixed part has no such factor.

    Raises
    ------
    FormulaError
        If it is a numerical covariate, its column is also in another expression, or covariates
        cannot be averaged.
    DataError
        If the coding of the fixed part is not known.

    References
    ----------
    Searle, S. R., Speed, F. M. and Milliken, G. A. (1980). Population marginal means in the linear
    model: an alternative to least squares means. *The American Statistician*, 34, 216-221.
    """
    fixed.check_known()
    if fixed.design_info is None:
        return None
    infos = list(fixed.design_info.factor_infos.values())
    factors = [info for info in infos if _is_of(info.factor.code, facet)]
    if not factors:
        return None
    if len(factors) > 1:
        raise _twice(facet, factors[0].factor.code, factors[1].factor.code)
    (info,) = factors
    if info.type == "numerical":
        raise FormulaError(
            f"{facet!r} is a numerical covariate of the fixed part, which has a slope and no "
            f"levels; write C({quoted(facet)}) in the formula to compare its values as levels",
            column=facet,
        )
    from patsy import builtins

    columns = set(names_in(info.factor.code)) - set(fixed.scope) - set(builtins.__all__)
    for other in infos:
        if other is not info and columns.intersection(names_in(other.factor.code)):
            raise _twice(facet, info.factor.code, other.factor.code)
    X, left_out = _all_columns(fixed, means, info.factor), fixed.left_out
    levels, interacting = tuple(info.categories), tuple(_interacting(fixed, info.factor))
    names = (info.factor.code, *sorted(first_names(info.factor.code)))
    if left_out is None:
        return LevelRows(levels, X, interacting, names=names)
    estimable: BoolArray = np.asarray(left_out.are_same(X).all(axis=1))
    known, absent = (
        tuple(level for level, e in zip(levels, estimable.tolist(), strict=True) if e == wanted)
        for wanted in (True, False)
    )
    return LevelRows(known, X[np.ix_(estimable, left_out.kept)], interacting, absent, names)


def average_rows(fixed: FixedPart, means: FloatArray | None) -> FloatArray:
    """Return a row of X for all of the data, (1, p).

    Factors have equal weights; if the mean is not estimable so, rows have.

    Parameters
    ----------
    fixed : the coded fixed part
    means : (p,) means of the columns of X over the rows; None if they are not known

    Raises
    ------
    FormulaError
        If covariates cannot be averaged.
    DataError
        If the coding of the fixed part is not known.
    """
    fixed.check_known()
    if fixed.design_info is None:
        return np.ones((1, len(fixed.names)))
    X, left_out = _all_columns(fixed, means), fixed.left_out
    if left_out is None:
        return X
    if means is not None and not left_out.are_same(X).all():
        return means[None, :]
    return X[:, left_out.kept]


def _all_columns(fixed: FixedPart, means: FloatArray | None, own: Any = None) -> FloatArray:
    """Return rows of all columns for the levels of a factor, or one for all of the data.

    Parameters
    ----------
    fixed, means : as of :func:`average_rows`
    own : patsy's factor whose levels have a row each; None for one row
    """
    info = fixed.design_info
    if means is not None and fixed.left_out is not None:
        means = fixed.left_out.all_columns(means)
    levels = 1 if own is None else len(info.factor_infos[own].categories)
    weights = {} if own is None else {own.code: np.eye(levels)}
    return weighted_columns(fixed, levels, weights, _covariates(info, means))


def weighted_columns(
    fixed: FixedPart,
    n_rows: int,
    weights: Mapping[str, FloatArray],
    products: Mapping[tuple[str, ...], FloatArray],
) -> FloatArray:
    """Return rows of all columns, also of those that are left out, averaged over levels.

    Parameters
    ----------
    fixed : the coded fixed part
    n_rows : number of rows, n
    weights : by factor (n, levels) weights of its levels in each row; equal ones if it is absent
    products : values of the products of covariates, by their expressions in the order of a term
    """
    info = fixed.design_info
    parts = [np.zeros((n_rows, 0))]
    for subterm, _ in subterms(info):
        row = np.ones((n_rows, 1))
        for factor in subterm.factors:
            if factor not in subterm.contrast_matrices:
                continue  # covariates follow as one product
            contrast = np.asarray(subterm.contrast_matrices[factor].matrix, dtype=float)
            mean = contrast.mean(axis=0, keepdims=True)
            values = weights[factor.code] @ contrast if factor.code in weights else mean
            row = _products(row, np.broadcast_to(values, (n_rows, contrast.shape[1])))
        numbers = _numbers(subterm)
        if numbers:
            row = _merged(info, subterm, row, products[numbers])
        parts.append(row)
    if fixed.factor is not None:
        k = len(fixed.factor.levels)
        of_factor = weights.get(fixed.factor.code, np.full((n_rows, k), 1.0 / k))
        parts.append(of_factor[:, 1:])
    return np.concatenate(parts, axis=1)


def _products(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the products of columns, those of the left fastest, as patsy orders them."""
    return (right[:, :, None] * left[:, None, :]).reshape(len(left), -1)


def _merged(info: Any, subterm: Any, row: FloatArray, means: FloatArray) -> FloatArray:
    """Return categorical columns times means of covariates, in the order of the factors."""
    wide = [
        info.factor_infos[f].num_columns
        if f not in subterm.contrast_matrices
        else subterm.contrast_matrices[f].matrix.shape[1]
        for f in subterm.factors
    ]
    is_number = [f not in subterm.contrast_matrices for f in subterm.factors]
    places = np.indices(wide[::-1]).reshape(len(wide), -1)[::-1]  # the first factor's fastest
    product = np.ones((len(row), places.shape[1]))
    for numeric, values in ((True, np.broadcast_to(means, (len(row), means.size))), (False, row)):
        at, step = np.zeros(places.shape[1], dtype=np.int64), 1
        for k, n in enumerate(wide):
            if is_number[k] == numeric:
                at += step * places[k]
                step *= n
        product *= values[:, at]
    return product


def _numbers(subterm: Any) -> tuple[str, ...]:
    return tuple(f.code for f in subterm.factors if f not in subterm.contrast_matrices)


def subterms(info: Any) -> Iterator[tuple[Any, slice]]:
    """Yield the parts of terms with the places of their columns."""
    at = 0
    for of_term in info.term_codings.values():
        for subterm in of_term:
            yield subterm, slice(at, at + subterm.num_columns)
            at += subterm.num_columns


def _covariates(info: Any, means: FloatArray | None) -> dict[tuple[str, ...], FloatArray]:
    """Return the means of the products of covariates in each part of a term.

    They are combinations of the means of columns: where covariates occur with factors, these are
    coded in full in some part, so that their columns can be added up to those of the covariates.
    """
    means_by_name: dict[tuple[str, ...], FloatArray] = {}
    wanted = dict.fromkeys(_numbers(subterm) for subterm, _ in subterms(info))
    for subterm, place in subterms(info):
        numbers = _numbers(subterm)
        if not numbers or numbers in means_by_name:
            continue
        if means is None:
            break
        whole: FloatArray = np.ones((1, 1))
        for f in subterm.factors:  # the first factor's columns are the fastest
            contrasts = subterm.contrast_matrices
            own = (
                _adding_up(np.asarray(contrasts[f].matrix, dtype=float))
                if f in contrasts
                else np.eye(info.factor_infos[f].num_columns)
            )
            whole = np.kron(own, whole).astype(float)
        if np.isfinite(whole).all():
            means_by_name[numbers] = whole @ means[place]
    for numbers in wanted:
        if numbers and numbers not in means_by_name:
            raise FormulaError(
                f"the mean of {':'.join(numbers)} cannot be found from the columns of the fixed "
                "part; add an intercept and the covariates themselves to the formula, or test "
                "contrasts with t_test()"
            )
    return means_by_name


def _adding_up(contrast: FloatArray) -> FloatArray:
    """Return the weights (1, columns) with which contrasts add up to 1 in every level, or nan."""
    weights = np.linalg.lstsq(contrast, np.ones(len(contrast)), rcond=None)[0].astype(float)
    adds_up = np.allclose(contrast @ weights, 1.0, 0.0, 1e-9)
    return np.where(adds_up, weights, np.nan)[None, :]


def fixed_effects(fixed: FixedPart) -> frozenset[frozenset[str]]:
    """Return the columns of each main effect and interaction of factors in the fixed part.

    Parameters
    ----------
    fixed : the coded fixed part
    """
    effects = set() if fixed.factor is None else {frozenset({fixed.factor.column})}
    info = fixed.design_info
    for term in () if info is None or not fixed.is_known else info.terms:
        factors = [info.factor_infos[factor] for factor in term.factors]
        columns = [first_names(f.factor.code) for f in factors if f.type == "categorical"]
        if len(columns) == len(factors) and all(columns):
            effects.add(frozenset().union(*columns))
    return frozenset(effects - {frozenset()})


def _is_of(code: str, facet: str) -> bool:
    return code == facet or facet in first_names(code)


def _interacting(fixed: FixedPart, own: Any) -> Iterator[str]:
    """Yield the other factors of the terms that a factor is part of."""
    terms = [term.factors for term in fixed.design_info.term_codings if own in term.factors]
    yield from dict.fromkeys(f.code for factors in terms for f in factors if f != own)


def _twice(facet: str, first: str, second: str) -> FormulaError:
    return FormulaError(
        f"the fixed part has {first} and {second}, both of column {facet!r}: levels cannot be "
        "compared while the other stays as it is; test contrasts with t_test()",
        column=facet,
    )
