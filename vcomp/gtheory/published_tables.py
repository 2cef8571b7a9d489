"""Published tables: facets and nesting of their components, and the analysis of variance."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, is_real
from vcomp.formula import REPLICATE, RESIDUAL
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
        raise PlanError(f"sizes= has no size of {', '.join(missing)}", column=missing[0])
    for a, b in combinations(facets[:-1], 2):
        if a & b and a & b not in facets:
            term = ":".join(sorted(a & b))
            raise PlanError(
                f"mean squares need a component {term!r}, as two others have these facets in "
                "common; add it, as 0 if it is not known",
                term=term,
            )
    groups = np.array([math.prod(sizes[f] for f in term) for term in facets])
    df = np.zeros(len(facets))
    for t in sorted(range(len(facets)), key=lambda k: len(facets[k])):
        df[t] = groups[t] - 1.0 - sum(df[s] for s in range(len(facets)) if facets[s] < facets[t])
        if not df[t] > 0.0:
            levels = ", ".join(f"{f}={display.number(sizes[f])}" for f in sorted(facets[t]))
            raise PlanError(
                f"{names[t]!r} has no degrees of freedom with the sizes {levels}", term=names[t]
            )
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
            "an unbalanced design has no mean squares that follow from its components",
            column=split[0],
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
            "of variance with these sizes",
            term=names[t],
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
            "the degrees of freedom of an unbalanced design as well, df=",
            column=split,
        )
    implied, expected = expectations(names, facets, sizes)
    if df is None:
        df = implied
    wrong = np.abs(df - implied) > _SAME * implied
    if whole and wrong.any():
        t = int(np.flatnonzero(wrong)[0])
        levels = ", ".join(f"{f}={display.number(sizes[f])}" for f in sorted(sizes))
        per_cell = (1.0 + df.sum()) / math.prod(sizes.values())
        advice = "correct one of them, or add the mean square and df of the term that is missing"
        if t == len(names) - 1 and REPLICATE not in sizes and _holds_replicates(names, per_cell):
            written = {f: int(sizes[f]) for f in sorted(sizes)} | {REPLICATE: round(per_cell)}
            advice = f"with {round(per_cell)} scores in each cell, pass sizes={written}"
        raise PlanError(
            f"df of {names[t]!r} is {display.number(df[t])}, but with the sizes {levels} of a "
            f"balanced design it is {display.number(implied[t])}; {advice}",
            term=names[t],
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
                f"{':'.join(sorted(own))!r}; pass sizes=",
                column=facet,
            )
        groups = df[at[own]] + 1.0 + sum(df[k] for k, term in enumerate(facets) if term < own)
        n = groups / math.prod(sizes[f] for f in nested_in[facet])
        if abs(n - round(n)) > _SAME * n:
            raise PlanError(
                f"df of {names[at[own]]!r} give {display.number(n)} levels of {facet!r}, not a "
                "whole number: the design is not balanced, or a term is missing. Of an unbalanced "
                "design pass sizes= as well; the size of "
                f"{facet!r} is then the coefficient n0 of its expected mean squares",
                column=facet,
            )
        sizes[facet] = float(round(n))
    return sizes


def _check_residual(names: Sequence[str], squares: FloatArray) -> None:
    if not squares[-1] > 0.0:
        raise PlanError(
            f"the mean square of the residual, {names[-1]!r}, is 0: there is no error to measure "
            "others by"
        )


# Names and values as they are given --------------------------------------------------------------

_SEPARATOR = re.compile(r"\s*[:×*,]\s*|\s+[xX]\s+")
_SLOPE = re.compile(r"[^\s\[]\[.*\]")
_ERROR_SUFFIX = re.compile(r"\s*,\s*e$")


def terms_of(names: Sequence[str], *, replicated: bool = False) -> list[frozenset[str]]:
    """Return the facets of each component.

    Parameters
    ----------
    replicated : whether cells hold several scores; they do if another component than the residual
        has all facets
    names : ``"p:i"``, ``"p x i"``, ``"p*i"``, ``"p,i"``, or ``"pi"`` where each letter is a facet;
        ``"Residual"``

    Raises
    ------
    PlanError
        If a name cannot be read, names a facet twice, or has the facets of another one; or no
        component has all facets.

    Examples
    --------
    >>> [sorted(term) for term in terms_of(["p", "i:p", "Residual"])]
    [['p'], ['i', 'p'], ['i', 'p', 'replicate']]
    """
    parts = {name: _parts(name, names) for name in names}
    written = [p for name in names for p in parts[name]]
    letters = frozenset(p for p in written if len(p) == 1)
    terms: dict[str, frozenset[str]] = {}
    for name in names:
        facets = [f for p in parts[name] for f in (p if set(p) <= letters else [p])]
        twice = [f for f in facets if facets.count(f) > 1]
        if twice:
            raise PlanError(
                f"component {name!r} names facet {twice[0]!r} twice", term=name, column=twice[0]
            )
        terms[name] = frozenset(facets)
    everything = frozenset().union(*terms.values())
    if not everything:
        raise PlanError("no component names a facet; the residual alone has no D-study")
    replicated = replicated or any(term == everything for term in terms.values())
    for name in names:
        if not parts[name]:
            terms[name] = everything | {REPLICATE} if replicated else everything
    for k, name in enumerate(names):
        same = [other for other in names[:k] if terms[other] == terms[name]]
        if same:
            raise PlanError(f"components {same[0]!r} and {name!r} have the same facets", term=name)
    if not {everything, everything | {REPLICATE}}.intersection(terms.values()):
        raise PlanError(
            f"no component has all facets ({', '.join(sorted(everything))}): the residual is "
            f"missing, or a name is not read as meant. Write {RESIDUAL!r} for the residual, and "
            "colons between facets, as in 'p:i'"
        )
    return [terms[name] for name in names]


def _parts(name: str, names: Sequence[str]) -> list[str]:
    """Return the parts of a component's name, none for the residual."""
    if not isinstance(name, str):
        raise PlanError(f"components are named by text such as 'p:i', not {name!r}")
    text = name.strip()
    if text.lower() == RESIDUAL.lower():
        return []
    if "e" not in names:
        text = _ERROR_SUFFIX.sub("", text)
    if _SLOPE.search(text):
        raise PlanError(
            f"component {name!r} is of a random slope, and a universe score then depends on the "
            "covariate; give the components of a model of intercepts alone. The name of a facet "
            "has no brackets here",
            term=name,
        )
    parts = _SEPARATOR.split(text.replace("(", "").replace(")", ""))
    if not all(parts) or any(re.search(r"\s", p) for p in parts):
        raise PlanError(
            f"cannot read component {name!r}; write colons between facets, as 'p:i'", term=name
        )
    return parts


def nesting_of(terms: Sequence[frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the facets in which each facet is nested: those without which it never occurs.

    Parameters
    ----------
    terms : the facets of each component

    Raises
    ------
    PlanError
        If two facets always occur together.

    Examples
    --------
    >>> nesting_of([frozenset("p"), frozenset("pi")])
    {'i': frozenset({'p'}), 'p': frozenset()}
    """
    facets = sorted(frozenset().union(*terms))
    nested_in = {f: frozenset.intersection(*(t for t in terms if f in t)) - {f} for f in facets}
    for facet, above in nested_in.items():
        for other in sorted(above):
            if facet in nested_in[other]:
                raise PlanError(
                    f"{facet!r} and {other!r} always occur together, so it is not clear which "
                    "is nested in which; add a component of the outer one, as 0 if it is not "
                    "known",
                    column=facet,
                )
    return nested_in


def covariance_of(cov: Any, names: list[str]) -> FloatArray:
    """Return a covariance matrix of components in the order of their names.

    Raises
    ------
    PlanError
        If it is not one, or has other components.
    """
    k = len(names)
    labels = getattr(cov, "columns", None)
    if labels is not None:
        strange = sorted(set(names).symmetric_difference(labels), key=str)
        if strange or set(cov.index) != set(names):
            raise PlanError(f"cov must have the components {names} as rows and columns")
        cov = cov.loc[names, names].to_numpy()
    try:
        matrix = np.asarray(cov, dtype=float)
    except (TypeError, ValueError):
        raise PlanError(f"cov is a matrix of numbers or a frame, not {cov!r}") from None
    if matrix.shape != (k, k):
        raise PlanError(f"cov must be {k} × {k}, one row a component, not of shape {matrix.shape}")
    if np.isinf(matrix).any() or not np.allclose(matrix, matrix.T, equal_nan=True):
        raise PlanError("cov must be symmetric, and finite or nan")
    if (np.diagonal(matrix) < 0).any():
        at = names[int(np.flatnonzero(np.diagonal(matrix) < 0)[0])]
        raise PlanError(f"cov has a negative variance for component {at!r}", term=at)
    known = ~np.isnan(np.diagonal(matrix))
    inside = matrix[np.ix_(known, known)]
    scale = np.sqrt(np.diagonal(inside))
    scale[scale == 0.0] = 1.0
    # Test the correlations, as variances of components may differ by many orders of magnitude.
    if known.any() and np.linalg.eigvalsh(inside / np.outer(scale, scale))[0] < -1e-8:
        raise PlanError("cov is not a covariance matrix: some combination has a negative variance")
    return matrix


def finite_value(name: str, value: Any, what: str) -> float:
    """Return a number of a table.

    Parameters
    ----------
    name : of the component
    value : as it is given
    what : it is, for messages

    Raises
    ------
    PlanError
        If it is not a finite number.
    """
    if not is_real(value) or not math.isfinite(value):
        raise PlanError(f"{what} {name!r} must be a finite number, not {value!r}")
    return float(value)


def degrees_of_freedom(df: Mapping[str, float], names: list[str]) -> FloatArray:
    """Return degrees of freedom in the order of the mean squares.

    Parameters
    ----------
    df : by the names of the mean squares
    names : of the mean squares

    Raises
    ------
    PlanError
        If they have other names, or one is not above 0.
    """
    given = dict(df.items()) if hasattr(df, "items") else df
    if not isinstance(given, Mapping):
        raise PlanError(f"df is a mapping such as {{'p': 9, 'i': 3, 'pi': 27}}, not {df!r}")
    strange = sorted(set(names).symmetric_difference(given), key=str)
    if strange:
        where = "has no mean square" if strange[0] in given else "has no degrees of freedom"
        raise PlanError(
            f"{strange[0]!r} {where}; df= needs the names of the mean squares", term=strange[0]
        )
    values = np.array([finite_value(name, given[name], "df of") for name in names])
    if (values <= 0.0).any():
        at = int(np.flatnonzero(values <= 0.0)[0])
        raise PlanError(f"df of {names[at]!r} must be above 0, not {display.number(values[at])}")
    return values


def df_show_replicates(
    names: list[str], terms: list[frozenset[str]], df: Mapping[str, float]
) -> bool:
    """Return whether the degrees of freedom imply several scores in each cell of all facets.

    Parameters
    ----------
    names, terms : of the components, with the facets of each
    df : degrees of freedom by name
    """
    everything = max(terms, key=len)
    if REPLICATE in everything:
        return False
    given = degrees_of_freedom(df, names)
    try:
        sizes = sizes_of_df(names, terms, nesting_of(terms), given)
    except PlanError:  # it is raised again for the design itself
        return False
    per_cell = (1.0 + given.sum()) / math.prod(sizes[f] for f in everything)
    return _holds_replicates(names, per_cell)


def _holds_replicates(names: Sequence[str], per_cell: float) -> bool:
    """Return whether cells of so many scores have replicates, which are in the residual."""
    has_residual = RESIDUAL.lower() in (name.strip().lower() for name in names)
    return has_residual and per_cell > 1.5 and abs(per_cell - round(per_cell)) <= _SAME * per_cell
