"""Degrees of freedom and expected mean squares of a balanced design, from terms and sizes alone.

In a balanced design whose terms are closed under intersection the strata of the terms are
orthogonal. So a published table needs no scores: components and sizes give mean squares and
degrees of freedom, mean squares and degrees of freedom give components and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE
from vcomp.inference import TwoWayMeanSquares
from vcomp.numerics import covariance_of_solution, solve

_SAME = 1e-6
"""Relative tolerance within which degrees of freedom are equal."""

_LEAST = 1e-6
"""Replacement of a mean square printed as 0, as a share of the residual's mean square. It adds
nothing to a limit, and is large enough to keep the covariance matrix of the components regular."""


@dataclass(frozen=True, slots=True, eq=False)
class BalancedAnova:
    """An analysis of variance of a balanced design.

    Attributes
    ----------
    facets : for each term those of its effect, with those that they are nested in; all facets last
    sizes : levels of each facet within those that it is nested in
    df : (k,) degrees of freedom
    expected : (k, k) coefficients of the components (columns) in the expected mean squares
    mean_squares : (k,)
    """

    facets: tuple[frozenset[str], ...]
    sizes: Mapping[str, float]
    df: FloatArray
    expected: FloatArray
    mean_squares: FloatArray

    @property
    def components(self) -> FloatArray:
        """The components σ² with E[MS] = MS, (k,); some may be negative."""
        return np.asarray(solve(self.expected, self.mean_squares))

    @property
    def covariance(self) -> FloatArray:
        """Their covariance matrix, (k, k): mean squares are independent with 2 MS²/df."""
        least = _LEAST * float(self.mean_squares[-1])
        squares = np.maximum(self.mean_squares, least)
        return covariance_of_solution(self.expected, np.diag(2.0 * np.square(squares) / self.df))

    @property
    def two_way(self) -> TwoWayMeanSquares | None:
        """The mean squares of a crossed two-way table for exact F intervals, None of others."""
        crossed = sorted(self.facets[-1] - {REPLICATE})
        if len(crossed) != 2 or any(n != int(n) for n in self.sizes.values()):
            return None
        rows, columns = crossed
        at = {facets: k for k, facets in enumerate(self.facets)}
        wanted = [frozenset({rows}), frozenset({columns}), frozenset(crossed)]
        if not all(facets in at for facets in wanted):
            return None
        r = int(self.sizes.get(REPLICATE, 1))
        row, column, rest = (float(self.mean_squares[at[facets]]) / r for facets in wanted)
        n_rows, n_columns = int(self.sizes[rows]), int(self.sizes[columns])
        return TwoWayMeanSquares(rows, columns, n_rows, n_columns, row, column, rest, r)


def expectations(
    names: Sequence[str], facets: Sequence[frozenset[str]], sizes: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Return degrees of freedom and coefficients of the components in the expected mean squares.

    A term has the degrees of freedom of its groups less those of all coarser terms; an interaction
    that is no term belongs to the residual.

    Parameters
    ----------
    names : of the terms, for messages
    facets : of each term, with those that they are nested in; the last has all
    sizes : of each facet, within those that it is nested in

    Returns
    -------
    (k,) and (k, k), row t and column u: the scores of a group of u where u holds all facets of t

    Raises
    ------
    PlanError
        If a size is missing, two terms have facets in common that are no term themselves, or
        nothing is left for a term.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: rules for degrees of freedom and expected
    mean squares; Bodoff (2008), Information Processing & Management 44, appendix B, for
    participants × queries × assessors.

    Examples
    --------
    >>> terms = [frozenset("p"), frozenset("i"), frozenset("pi")]
    >>> df, expected = expectations(["p", "i", "pi"], terms, {"p": 10, "i": 4})
    >>> df
    array([ 9.,  3., 27.])
    >>> expected
    array([[ 4.,  0.,  1.],
           [ 0., 10.,  1.],
           [ 0.,  0.,  1.]])
    """
    missing = sorted(f for f in facets[-1] if f not in sizes)
    if missing:
        raise PlanError(f"sizes= has no size of {', '.join(missing)}")
    for a, b in combinations(facets[:-1], 2):
        if a & b and a & b not in facets:
            raise PlanError(
                f"mean squares need a component {':'.join(sorted(a & b))!r}, as two others have "
                "these facets in common; add it, as 0 if it is not known"
            )
    groups = np.array([math.prod(sizes[f] for f in term) for term in facets])
    df = np.zeros(len(facets))
    for t in sorted(range(len(facets)), key=lambda k: len(facets[k])):
        df[t] = groups[t] - 1.0 - sum(df[s] for s in range(len(facets)) if facets[s] < facets[t])
        if not df[t] > 0.0:
            levels = ", ".join(f"{f}={display.number(sizes[f])}" for f in sorted(facets[t]))
            raise PlanError(f"{names[t]!r} has no degrees of freedom with the sizes {levels}")
    finer = np.array([[t <= u for u in facets] for t in facets])
    return df, np.where(finer, groups[-1] / groups, 0.0)


def anova_of_components(
    names: Sequence[str],
    facets: Sequence[frozenset[str]],
    values: FloatArray,
    sizes: Mapping[str, float],
) -> BalancedAnova:
    """Return the analysis of variance that gives these components.

    Parameters
    ----------
    names, facets, sizes : as for :func:`expectations`
    values : (k,) the components

    Raises
    ------
    PlanError
        If the sizes are not whole numbers, give no analysis of variance, or the components would
        need a mean square below zero, or one of zero for the residual.

    Examples
    --------
    >>> terms = [frozenset("p"), frozenset("i"), frozenset("pi")]
    >>> anova_of_components(["p", "i", "pi"], terms, np.array([2.0, 1.0, 4.0]),
    ...                     {"p": 10, "i": 4}).mean_squares
    array([12., 14.,  4.])
    """
    split = [f for f, n in sizes.items() if n != int(n)]
    if split:
        raise PlanError(
            f"the size of {split[0]!r} is {display.number(sizes[split[0]])}, not a whole number: "
            "an unbalanced design has no mean squares that follow from its components"
        )
    df, expected = expectations(names, facets, sizes)
    squares = expected @ values
    # Negative mean squares within rounding error of printed components are zero.
    squares = np.where(np.abs(squares) <= 1e-12 * (expected @ np.abs(values)), 0.0, squares)
    if (squares < 0.0).any():
        t = int(np.argmin(squares))
        raise PlanError(
            f"these components give the mean square of {names[t]!r} as "
            f"{display.number(squares[t])}, below zero: they are not those of a balanced analysis "
            "of variance with these sizes"
        )
    _check_residual(names, squares)
    return BalancedAnova(tuple(facets), dict(sizes), df, expected, squares)


def anova_of_mean_squares(
    names: Sequence[str],
    facets: Sequence[frozenset[str]],
    nested_in: Mapping[str, frozenset[str]],
    squares: FloatArray,
    df: FloatArray | None,
    sizes: Mapping[str, float] | None,
) -> BalancedAnova:
    """Return the analysis of variance with these mean squares.

    Parameters
    ----------
    names, facets : as for :func:`expectations`
    nested_in : for each facet those that it is nested in
    squares : (k,) the mean squares
    df : (k,) degrees of freedom; None if they follow from the sizes
    sizes : None if they follow from the degrees of freedom. A size that is not a whole number is a
        coefficient n₀ of unbalanced data, whose degrees of freedom are needed as well

    Raises
    ------
    PlanError
        If neither is given, one does not follow from the other, both are given and contradict
        each other, or the residual has a mean square of zero.

    Examples
    --------
    >>> terms = [frozenset("p"), frozenset("i"), frozenset("pi")]
    >>> nested = {"p": frozenset(), "i": frozenset()}
    >>> made = anova_of_mean_squares(["p", "i", "pi"], terms, nested, np.array([12.0, 14.0, 4.0]),
    ...                              np.array([9.0, 3.0, 27.0]), None)
    >>> made.sizes, made.components
    ({'i': 4.0, 'p': 10.0}, array([2., 1., 4.]))
    """
    _check_residual(names, squares)
    if sizes is None:
        if df is None:
            raise PlanError("mean squares need df=, or sizes= of the G-study")
        sizes = sizes_of_df(names, facets, nested_in, df)
    whole = all(n == int(n) for n in sizes.values())
    if df is None and not whole:
        split = next(f for f, n in sizes.items() if n != int(n))
        raise PlanError(
            f"the size of {split!r} is {display.number(sizes[split])}, not a whole number: pass "
            "the degrees of freedom of an unbalanced design as well, df="
        )
    implied, expected = expectations(names, facets, sizes)
    if df is None:
        df = implied
    wrong = np.abs(df - implied) > _SAME * implied
    if whole and wrong.any():
        t = int(np.flatnonzero(wrong)[0])
        levels = ", ".join(f"{f}={display.number(sizes[f])}" for f in sorted(sizes))
        raise PlanError(
            f"df of {names[t]!r} is {display.number(df[t])}, but with the sizes {levels} of a "
            f"balanced design it is {display.number(implied[t])}; a term may be missing"
        )
    return BalancedAnova(tuple(facets), dict(sizes), df, expected, squares)


def sizes_of_df(
    names: Sequence[str],
    facets: Sequence[frozenset[str]],
    nested_in: Mapping[str, frozenset[str]],
    df: FloatArray,
) -> dict[str, float]:
    """Return the sizes of the facets of a balanced design with these degrees of freedom.

    Parameters
    ----------
    names, facets : as for :func:`expectations`
    nested_in : for each facet those that it is nested in
    df : (k,) degrees of freedom

    Raises
    ------
    PlanError
        If a facet has no term of its own, or its number of levels is not a whole number.

    Examples
    --------
    >>> terms = [frozenset("h"), frozenset("hi")]
    >>> sizes_of_df(["h", "i:h"], terms, {"h": frozenset(), "i": frozenset("h")},
    ...             np.array([2.0, 9.0]))
    {'h': 3.0, 'i': 4.0}
    """
    at = {term: k for k, term in enumerate(facets)}
    sizes: dict[str, float] = {}
    for facet in sorted(nested_in, key=lambda f: (len(nested_in[f]), f)):
        own = nested_in[facet] | {facet}
        if own not in at:
            raise PlanError(
                f"the number of levels of {facet!r} does not follow from df, as no term is "
                f"{':'.join(sorted(own))!r}; pass sizes="
            )
        groups = df[at[own]] + 1.0 + sum(df[k] for k, term in enumerate(facets) if term < own)
        n = groups / math.prod(sizes[f] for f in nested_in[facet])
        if abs(n - round(n)) > _SAME * n:
            raise PlanError(
                f"df of {names[at[own]]!r} give {display.number(n)} levels of {facet!r}, not a "
                "whole number: the design is not balanced, or a term is missing. Of an unbalanced "
                "design pass sizes= as well; the size of "
                f"{facet!r} is then the coefficient n0 of its expected mean squares"
            )
        sizes[facet] = float(round(n))
    return sizes


def _check_residual(names: Sequence[str], squares: FloatArray) -> None:
    if not squares[-1] > 0.0:
        raise PlanError(
            f"the mean square of the residual, {names[-1]!r}, is 0: there is no error to measure "
            "others by"
        )
