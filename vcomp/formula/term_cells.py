"""Terms of the fixed part as all products of levels and covariates, whatever their coding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.formula.fixed import FixedPart
from vcomp.formula.formula_terms import Formula, first_names
from vcomp.formula.least_squares_means import subterms
from vcomp.formula.parser import patsy_description

_ROUNDING = 1e-8
"""Relative rounding of the weights of columns that are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedTerm:
    """A term of the fixed part.

    Attributes
    ----------
    name : as in the formula, such as ``C(recipe):temp``
    factors : expressions of its factors and of its covariates
    numbers : those of its covariates
    cells : (p, m) columns X B are the indicators of all combinations of the levels of its factors,
        times its covariates; the levels of the first factor are the fastest
    is_first : (m,) whether a factor has its first level there
    """

    name: str
    factors: tuple[str, ...]
    numbers: frozenset[str]
    cells: FloatArray
    is_first: BoolArray

    def is_in(self, other: FixedTerm) -> bool:
        """Whether another term has its factors and more, with the same covariates."""
        return set(self.factors) < set(other.factors) and self.numbers == other.numbers

    def is_called(self, name: str) -> bool:
        """Whether a text such as ``a:b`` names the term: by expressions, or columns of factors."""
        parts = factors_in(name)
        named = [{code, *first_names(code)} for code in self.factors]
        used: set[int] = set()
        for part in parts:
            used |= {place for place, names in enumerate(named) if part in names}
        return len(parts) == len(used) == len(named)


def factors_in(name: str) -> list[str]:
    """Return the factors of an interaction by its name.

    Examples
    --------
    >>> factors_in("C(a, levels=x[1:]):b")
    ['C(a, levels=x[1:])', 'b']
    """
    return [part.strip() for part in re.split(r":(?![^(]*\))", name)]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Columns of X that code a part of a term, as patsy's ``SubtermInfo``.

    Attributes
    ----------
    factors : expressions, in the order of the products: the first is the fastest
    contrasts : of each categorical factor the (levels, columns) matrix
    place : columns, among all
    """

    factors: tuple[str, ...]
    contrasts: Mapping[str, FloatArray]
    place: slice

    def is_whole(self, code: str) -> bool:
        """Whether a factor has a column for each of its levels."""
        levels, columns = self.contrasts[code].shape
        return levels == columns


def fixed_terms(fixed: FixedPart, formula: Formula) -> tuple[FixedTerm, ...]:
    """Return the terms of the fixed part, first those with few factors, else as written.

    An intercept is the term ``"Intercept"``.

    Parameters
    ----------
    fixed : the coded fixed part of p columns
    formula : whose fixed part it is

    Raises
    ------
    DataError
        If the coding of the fixed part is not known.
    """
    fixed.check_known()
    if fixed.design_info is None:
        one = FixedTerm("Intercept", (), frozenset(), np.ones((1, 1)), np.zeros(1, dtype=bool))
        return (one,) if fixed.names else ()
    parts = _parts(fixed)
    columns = {f.code: i.num_columns for f, i in fixed.design_info.factor_infos.items()}
    kept = _of_kept(fixed)
    written = sorted(patsy_description(formula).rhs_termlist, key=lambda term: len(term.factors))
    return tuple(
        _term(tuple(f.code for f in term.factors), term.name(), parts, columns, kept)
        for term in written
    )


def _of_kept(fixed: FixedPart) -> FloatArray | None:
    """Return all columns as combinations of those that are kept, (p, p + d); None if all are."""
    left_out = fixed.left_out
    if left_out is None:
        return None
    whole = np.zeros((left_out.kept.size, len(left_out.names)))
    whole[np.arange(left_out.kept.size), left_out.kept] = 1.0
    whole[:, left_out.at] = left_out.weights
    return whole


def _parts(fixed: FixedPart) -> list[_Part]:
    found = []
    for part, place in subterms(fixed.design_info):
        contrasts = {
            f.code: np.asarray(matrix.matrix, dtype=float)
            for f, matrix in part.contrast_matrices.items()
        }
        found.append(_Part(tuple(f.code for f in part.factors), contrasts, place))
    if fixed.factor is not None:
        p = len(fixed.with_all.names)
        coded = np.eye(len(fixed.factor.levels))[:, 1:]
        place = slice(p - fixed.factor.n_columns, p)
        found.append(_Part((fixed.factor.code,), {fixed.factor.code: coded}, place))
    return found


def _term(
    codes: tuple[str, ...],
    name: str,
    parts: Sequence[_Part],
    columns: Mapping[str, int],
    kept: FloatArray | None,
) -> FixedTerm:
    """Return a term with its cells, from the parts that code it and terms in it.

    The indicator of a level is α + C c with the contrasts C that a part has of the factor, and
    D d with a column for each level. Products of such sums have each of their parts once.
    """
    levels = {code: len(C) for part in parts for code, C in part.contrasts.items()}
    numbers = frozenset(codes) - levels.keys()
    reduced = {
        code: C for part in parts for code, C in part.contrasts.items() if not part.is_whole(code)
    }
    size = [levels.get(code) or columns[code] for code in codes]
    n_all = max(part.place.stop for part in parts)
    cells = np.zeros((n_all, int(np.prod(size))))
    for part in parts:
        if frozenset(part.factors) - part.contrasts.keys() != numbers:
            continue
        if any(code not in codes and not part.is_whole(code) for code in part.contrasts):
            continue
        order = (*part.factors, *(code for code in codes if code not in part.factors))
        blocks = [_block(code, part, codes, reduced, columns) for code in order]
        product: FloatArray = np.ones((1, 1))
        for block in blocks:
            product = np.kron(block, product).astype(float)
        within = [code for code in order if code in codes]
        cells[part.place] = product[:, _reordered(within, codes, size)]
    cells = cells if kept is None else _without_rounding(kept, cells)
    return FixedTerm(name, codes, numbers, cells, _is_first(codes, size, numbers))


def _without_rounding(kept: FloatArray, cells: FloatArray) -> FloatArray:
    """Return the product, with zero where terms cancel: in cells without rows all are zero."""
    product = kept @ cells
    return np.where(np.abs(product) > _ROUNDING * (np.abs(kept) @ np.abs(cells)), product, 0.0)


def _block(
    code: str,
    part: _Part,
    codes: tuple[str, ...],
    reduced: Mapping[str, FloatArray],
    columns: Mapping[str, int],
) -> FloatArray:
    """Return the weights of a factor's columns in a part (rows) in each of its levels."""
    if code in part.factors and code not in part.contrasts:
        return np.eye(columns[code])
    if code in part.contrasts and part.is_whole(code):
        D = part.contrasts[code]
        right = np.eye(len(D)) if code in codes else np.ones((len(D), 1))
        return np.linalg.solve(D, right).astype(float)
    C = reduced[code]
    whole = np.hstack([np.ones((len(C), 1)), C])
    both: FloatArray = np.linalg.solve(whole, np.eye(len(C))).astype(float)
    return both[1:] if code in part.factors else both[:1]


def _reordered(within: Sequence[str], codes: tuple[str, ...], size: Sequence[int]) -> LongArray:
    """Return the places of cells in the order of a term among those in another order."""
    sizes = dict(zip(codes, size, strict=True))
    places = np.arange(int(np.prod(size))).reshape([sizes[c] for c in reversed(within)])
    axes = [len(within) - 1 - within.index(code) for code in reversed(codes)]
    return places.transpose(axes).ravel()


def _is_first(codes: tuple[str, ...], size: Sequence[int], numbers: frozenset[str]) -> BoolArray:
    places, step = np.arange(int(np.prod(size))), 1
    first = np.zeros(places.size, dtype=bool)
    for code, n in zip(codes, size, strict=True):
        if code not in numbers:
            first |= places // step % n == 0
        step *= n
    return first
