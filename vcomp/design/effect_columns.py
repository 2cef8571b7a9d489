"""Covariance matrices of the effects of bars, and the columns that multiply the effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, DesignError, EstimationError
from vcomp.formula import INTERCEPT, EffectMatrix, FixedPart, Formula, RandomTerm, in_formula

_FAR = 1e3
"""Largest distance of the mean of a column from zero, in standard deviations: variances at zero
are then fourth powers of it times those inside the data, and keep four digits."""

_FEWEST, _WITHOUT_VARIANCE = 2, 1e-14
"""Columns of a factor, and the variance of a combination of columns, in its squared mean, below
which it is a constant up to rounding error."""

_CONSTANT = 1e-11
"""Spread of a column, in its size, below which it is a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class EffectColumns:
    """The columns z of the effects of one bar, centred and scaled to z_c = zA.

    Attributes
    ----------
    part : how the columns are coded from the data
    origin, scale : (q,) numbers that are subtracted, and by which the rest is divided
    at : (q,) their positions among the columns of the part
    squares : (q, q) means over the rows of the products of the centred columns
    """

    part: FixedPart
    origin: FloatArray
    scale: FloatArray
    at: tuple[int, ...]
    squares: FloatArray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.part.names[i] for i in self.at)

    def without(self, column: int) -> EffectColumns | None:
        """Return the other columns; None if they are an intercept alone."""
        kept = [i for i in range(len(self.at)) if i != column]
        at = tuple(self.at[i] for i in kept)
        squares = self.squares[np.ix_(kept, kept)]
        other = EffectColumns(self.part, self.origin[kept], self.scale[kept], at, squares)
        return None if other.names == (INTERCEPT,) else other

    @property
    def basis(self) -> FloatArray:
        """The (q, q) matrix A of z_c = zA: effects of z are u = A u_c."""
        A = np.diag(1.0 / self.scale)
        if INTERCEPT in self.names:
            A[self.names.index(INTERCEPT)] -= self.origin / self.scale
        return A

    def values(
        self, columns: Mapping[str, Any], n_rows: int, *, centred: bool
    ) -> list[FloatArray | None]:
        """Return the columns of rows; None for an intercept.

        Parameters
        ----------
        columns : of the data
        n_rows : their length
        centred : whether they are centred and scaled
        """
        Z = self.part.matrix(columns, n_rows)[:, self.at]
        if centred:
            Z = (Z - self.origin) / self.scale
        return [
            None if name == INTERCEPT else np.ascontiguousarray(z)
            for name, z in zip(self.names, Z.T, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class CovarianceBlocks:
    """The covariance matrices and columns of a design with random slopes or residual groups.

    Attributes
    ----------
    matrices : for each bar the positions of its variances and covariances among the components;
        its variances are those of its terms
    columns : for each bar its columns; None for an intercept alone
    n_residuals : number of residual variances, the last components
    contained : clauses on intercepts that were left out, as effects of a factor contain them
    """

    matrices: tuple[EffectMatrix, ...]
    columns: tuple[EffectColumns | None, ...]
    n_residuals: int = 1
    contained: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[tuple[int, ...], ...]:
        """For each bar the positions of its effects among the terms of the design."""
        return tuple(
            tuple(row[i] for i, row in enumerate(matrix.places)) for matrix in self.matrices
        )

    @property
    def has_slopes(self) -> bool:
        """Whether a bar has other effects than an intercept."""
        return any(own is not None for own in self.columns)

    def without(self, term: int) -> tuple[CovarianceBlocks, list[int]]:
        """Return the columns without those of a term, and the components that are left.

        Parameters
        ----------
        term : a slope, or an intercept without slopes in its bar
        """
        gone = {term}
        for matrix in self.matrices:
            for i, row in enumerate(matrix.places):
                if row[i] == term:
                    gone.update(row)
        n_components = 1 + max(place for m in self.matrices for row in m.places for place in row)
        left = [place for place in range(n_components) if place not in gone]
        at = {place: new for new, place in enumerate(left)}
        matrices, columns = [], []
        for matrix, own in zip(self.matrices, self.columns, strict=True):
            kept = [i for i, row in enumerate(matrix.places) if row[i] != term]
            if not kept:
                continue
            places = tuple(tuple(at[matrix.places[i][j]] for j in kept) for i in kept)
            effects = tuple(matrix.effects[i] for i in kept)
            matrices.append(EffectMatrix(matrix.groups, effects, places))
            (dropped,) = set(range(len(matrix.effects))).difference(kept) or (None,)
            columns.append(own if own is None or dropped is None else own.without(dropped))
        return CovarianceBlocks(tuple(matrices), tuple(columns), self.n_residuals), left

    def check_matrices(self, v: FloatArray) -> None:
        """Refuse components whose matrices are not positive semidefinite.

        Raises
        ------
        EstimationError
        """
        for matrix in self.matrices:
            values = v[np.array(matrix.places)]
            scale = np.sqrt(np.abs(np.diagonal(values)))
            scaled = values / np.outer(scale, scale) if scale.all() else values
            if np.linalg.eigvalsh(scaled)[0] < -_CONSTANT * max(1.0, float(np.abs(scaled).max())):
                raise EstimationError(
                    f"the variances and covariances of {matrix.groups} are no covariance matrix: "
                    "a variance is negative, or a covariance too large for its variances",
                    term=matrix.groups,
                )

    def centred_matrices(self, v: FloatArray) -> list[FloatArray]:
        """Return for each bar the covariance matrix of the effects of its centred columns.

        Parameters
        ----------
        v : components, the residual last
        """
        found = []
        for matrix, A in zip(self.matrices, self.bases, strict=True):
            half = np.linalg.solve(A, v[np.array(matrix.places)])
            found.append(np.asarray(np.linalg.solve(A, half.T).T, dtype=float))
        return found

    @property
    def mean_squares(self) -> tuple[FloatArray, ...]:
        """For each bar the means over the rows of the products of its centred columns."""
        return tuple(np.eye(1) if c is None else c.squares for c in self.columns)

    @property
    def bases(self) -> tuple[FloatArray, ...]:
        """For each bar the matrix A of u = A u_c."""
        return tuple(np.eye(1) if c is None else c.basis for c in self.columns)

    def values(
        self, columns: Mapping[str, Any], n_rows: int, *, centred: bool = True
    ) -> tuple[FloatArray | None, ...]:
        """Return for each term the column that its effects are multiplied by; None for ones.

        Parameters
        ----------
        columns : of the data
        n_rows : their length
        centred : whether columns are centred and scaled
        """
        found: dict[int, FloatArray | None] = {}
        for block, own in zip(self.terms, self.columns, strict=True):
            values = [None] if own is None else own.values(columns, n_rows, centred=centred)
            found.update(zip(block, values, strict=True))
        return tuple(found[t] for t in range(len(found)))


@dataclass(frozen=True, slots=True, eq=False)
class CodedBar:
    """The coding of the columns of a bar with slopes, and their moments over all rows.

    Attributes
    ----------
    part : how the columns are coded from the data
    mean, cov : (q,) and (q, q) means, and covariance matrix
    """

    part: FixedPart
    mean: FloatArray
    cov: FloatArray

    @property
    def contains_intercept(self) -> bool:
        """Whether the columns add up to a constant without having an intercept, as of a factor."""
        if INTERCEPT in self.part.names or self.mean.size < _FEWEST:
            return False
        whole = self.cov + np.outer(self.mean, self.mean)
        a = np.linalg.lstsq(whole, self.mean, rcond=None)[0]
        return float(a @ self.cov @ a) <= _WITHOUT_VARIANCE * float(a @ self.mean) ** 2

    @classmethod
    def of_rows(
        cls,
        term: RandomTerm,
        formula: Formula,
        columns: Mapping[str, Any],
        environment: Any,
        n_rows: int,
    ) -> CodedBar:
        """Return the coding of a bar, with the moments of these rows."""
        part = FixedPart.of_rows(formula.slope_part(term), lambda: [columns], environment, n_rows)
        Z = part.matrix(columns, n_rows)
        mean = Z.mean(axis=0)
        away = Z - mean
        return cls(part, mean, away.T @ away / n_rows)


def bars_of_rows(
    formula: Formula, columns: Mapping[str, Any], environment: Any, n_rows: int
) -> list[CodedBar | None]:
    """Return for each bar its columns, with the moments of all rows; None for an intercept.

    Parameters
    ----------
    formula : with random slopes, or groups of residuals
    columns : of all rows
    environment : patsy's ``EvalEnvironment`` of the caller
    n_rows : their number
    """
    return [
        None if t.is_intercept else CodedBar.of_rows(t, formula, columns, environment, n_rows)
        for t in formula.random
    ]


def learn_blocks(
    formula: Formula, coded: Sequence[CodedBar | None]
) -> tuple[Formula, CovarianceBlocks]:
    """Return the formula with a term for each column of effects, and its covariance matrices.

    Parameters
    ----------
    formula : with random slopes, or groups of residuals
    coded : for each bar its columns; None for an intercept alone

    Raises
    ------
    DesignError
        If a slope is of a constant column, columns of one bar are linearly dependent, or a facet
        has the name of a slope.
    DataError
        If a column is so far from zero that variances of intercepts lose their digits.
    """
    terms: list[RandomTerm] = []
    own: list[EffectColumns | None] = []
    bars, contained = _without_contained(list(zip(formula.random, coded, strict=True)))
    for term, bar in bars:
        own.append(None if bar is None else _learned(term, bar))
        names = (INTERCEPT,) if bar is None else bar.part.names
        terms += [term.of_column(name) for name in names]
    by_column = replace(formula, random=tuple(terms))
    names = by_column.component_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DesignError(
            f"two components have the name {twice!r}, as a facet is named like a slope; rename "
            "its column",
            term=twice,
        )
    n_residuals = len(by_column.residual_names)
    return by_column, CovarianceBlocks(by_column.matrices, tuple(own), n_residuals, contained)


def _without_contained(
    bars: list[tuple[RandomTerm, CodedBar | None]],
) -> tuple[list[tuple[RandomTerm, CodedBar | None]], tuple[str, ...]]:
    """Return the bars without intercepts that others contain, and clauses on these.

    With σ² of the intercept and Λ of the effects of a factor at each level, Λ + σ²11' is all that
    the data show, and is a covariance matrix: (0 + c | g) has the likelihood of (c || g).
    """
    clauses = []
    for term, bar in list(bars):
        groups = frozenset(term.facets)
        place = next(
            (i for i, (t, _) in enumerate(bars) if t.is_intercept and groups == {*t.facets}), None
        )
        if bar is None or place is None or not bar.contains_intercept:
            continue
        intercept = bars[place][0]
        at = next(i for i, (_, b) in enumerate(bars) if b is bar)
        # In its place, so that facets keep their order.
        bars[place] = replace(term, facets=intercept.facets, name=intercept.name), bar
        del bars[at]
        clauses.append(
            f"{intercept.written} is left out, as the effects of {term.written} contain it, and "
            "the data show the sum of both covariance matrices alone"
        )
    return bars, tuple(clauses)


def _learned(term: RandomTerm, bar: CodedBar) -> EffectColumns:
    part, mean = bar.part, bar.mean
    if set(part.names) <= {INTERCEPT}:
        raise DesignError(
            f"{term.written} has no slope: its factor has one level; write "
            f"(1|{in_formula(term.facets)})",
            term=term.name,
        )
    has_intercept = INTERCEPT in part.names
    is_slope = np.array([name != INTERCEPT for name in part.names])
    origin = np.where(is_slope & has_intercept, mean, 0.0)
    about_origin = bar.cov + np.outer(mean - origin, mean - origin)
    scale = np.where(is_slope, np.sqrt(np.diagonal(about_origin)), 1.0)
    size = np.sqrt(np.diagonal(bar.cov) + np.square(mean))
    for name, spread, whole in zip(part.names, scale, size, strict=True):
        if spread <= _CONSTANT * whole:
            what = "zero in all rows" if whole == 0.0 else "constant"
            others = tuple(effect for effect in term.effects if effect != name)
            advice = (
                f"write {replace(term, effects=others).written}"
                if name in term.effects and others
                else "leave it out"
            )
            raise DesignError(
                f"{term.written} has a slope of {name!r}, which is {what}: {advice}",
                term=term.name,
                column=name,
            )
    far = np.abs(origin) > _FAR * scale
    if far.any():
        name = part.names[int(np.argmax(far))]
        raise DataError(
            f"{name!r} of {term.written} is far from zero, and the variance of the intercepts is "
            f"that at zero: subtract a number near its mean, {origin[far][0]:.6g}",
            term=term.name,
            column=name,
        )
    squares = about_origin / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(squares)
    if values[0] <= _CONSTANT:
        involved = [n for n, c in zip(part.names, vectors[:, 0], strict=True) if abs(c) > 1e-3]
        raise DesignError(
            f"the columns {', '.join(map(repr, involved))} of {term.written} are linearly "
            "dependent: leave one of them out",
            term=term.name,
        )
    return EffectColumns(part, origin, scale, tuple(range(len(part.names))), squares)
