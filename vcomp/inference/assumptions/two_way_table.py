"""Additivity and correlations in a table of two crossed facets, such as systems and topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.inference.assumptions.samples import AssumptionTest, blocks, p_of
from vcomp.inference.assumptions.sphericity import f_level, sphericity

_MOST_COLUMNS = 1500
"""Columns, without the largest term's, above which residuals are found by sweeps."""

_SINGULAR = 1e-10
"""Eigenvalues below this share of the largest are zero."""

_SWEEPS, _CLOSE = 500, 1e-9

_BEYOND = 1e-6
"""Share of a column of X below which the terms have all of it, up to the error of sweeps."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Projection of a response on the complement of all terms, taken as fixed.

    The largest term is eliminated by its group means. The equations of the others are solved
    through the eigenvalues of their matrix, or by alternating projections if there are very many.

    Attributes
    ----------
    groups : for each term the group of every row, from 0; no term is nested in another
    X : (n, p) columns of the fixed part, or None
    slopes : for each slope the group of every row, and the (n,) values by which its effects are
        multiplied, of size 1 or 0 in each group
    roots : (n,) square roots of the weights by which rows, also of X and slopes, are multiplied;
        None where all count alike

    Examples
    --------
    >>> rows, columns = np.divmod(np.arange(6), 3)
    >>> Projection.of([rows, columns]).residuals(np.array([1.0, 2, 3, 2, 3, 7])).round(3)
    array([ 0.5,  0.5, -1. , -0.5, -0.5,  1. ])
    """

    groups: tuple[LongArray, ...]
    X: FloatArray | None
    slopes: tuple[tuple[LongArray, FloatArray], ...] = ()
    roots: FloatArray | None = None

    @classmethod
    def of(
        cls,
        groups: Sequence[LongArray],
        X: FloatArray | None = None,
        slopes: Sequence[tuple[LongArray, FloatArray]] = (),
        roots: FloatArray | None = None,
    ) -> Projection:
        """Return the projection of some terms; those that others are nested in are left out.

        Parameters
        ----------
        groups : for each term the group of every row, from 0
        X : columns of the fixed part
        slopes : for each slope the group of every row and the value of its column
        roots : square roots of the weights of the rows; responses are multiplied by them
        """
        kept: list[LongArray] = []
        for codes in sorted(groups, key=lambda g: -int(g.max())):
            if not any(_determines(finer, codes) for finer in kept):
                kept.append(codes)
        columns = None if X is None or X.shape[1] == 0 else _by_row(X, roots)
        within = tuple((codes, _of_unit_size(codes, z, kept, roots)) for codes, z in slopes)
        return cls(tuple(kept), columns, within, roots)

    def residuals(self, y: FloatArray) -> FloatArray:
        """Return the residuals of one response, (n,), or of several, (n, m)."""
        if self._inverse is None:
            return self._by_sweeps(y)
        rest = y - self._means(0, y)
        columns = self._columns
        if columns is None:
            return rest
        part = columns @ (self._inverse @ (columns.T @ rest))
        return np.asarray(rest - (part - self._means(0, part)))

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of the residuals (n less the rank of the columns)."""
        n = float(self.groups[0].size)
        largest = float(self._matrices[0].shape[1])
        if self._inverse is None:
            others = sum(m.shape[1] - 1 for m in self._matrices[1:])
            of_slopes = sum(np.unique(codes[z != 0.0]).size for codes, z in self.slopes)
            return float(n - largest - others - of_slopes - self._own)
        return float(n - largest - self._rank)

    # The largest term is absorbed; S = Z'MZ of the other columns Z ---------------------------

    @cached_property
    def _matrices(self) -> tuple[Any, ...]:
        from scipy.sparse import csr_array

        n = self.groups[0].size
        ones, rows = np.ones(n) if self.roots is None else self.roots, np.arange(n)
        return tuple(csr_array((ones, (rows, codes))) for codes in self.groups)

    @cached_property
    def _of_slopes(self) -> tuple[Any, ...]:
        from scipy.sparse import csr_array

        rows = np.arange(self.groups[0].size)
        return tuple(csr_array((z, (rows, codes))) for codes, z in self.slopes)

    @cached_property
    def _columns(self) -> Any:
        from scipy.sparse import csr_array, hstack

        others = [*self._matrices[1:], *self._of_slopes]
        if self.X is not None:
            # Deviations from the means of the largest term, which S has in any case: products of
            # columns far from zero, or in other units, lose no digits.
            within = self.X - self._means(0, self.X)
            sizes = np.sqrt(np.square(within).sum(axis=0))
            rounded = sizes <= _BEYOND * np.sqrt(np.square(self.X).sum(axis=0))
            others.append(csr_array(within / np.where(rounded, np.inf, sizes)))
        return hstack(others, format="csr") if others else None

    @cached_property
    def _solved(self) -> tuple[FloatArray | None, float]:
        columns = self._columns
        if columns is None:
            return np.zeros((0, 0)), 0.0
        if columns.shape[1] > _MOST_COLUMNS:
            return None, float("nan")
        first = self._matrices[0]
        between = (first.T @ columns).toarray()
        counts = self._counts(0)[:, None]
        S = (columns.T @ columns).toarray() - between.T @ (between / counts)
        values, vectors = np.linalg.eigh(S)
        known = values > _SINGULAR * values[-1]
        inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
        return inverse, float(known.sum())

    @property
    def _inverse(self) -> FloatArray | None:
        return self._solved[0]

    @property
    def _rank(self) -> float:
        return self._solved[1]

    @cached_property
    def _own(self) -> float:
        """The rank of what the columns of X have beyond the terms, if these are swept out."""
        if self.X is None:
            return 0.0
        others = Projection(self.groups, None, self.slopes, self.roots)
        rest = others._by_sweeps(self.X / np.linalg.norm(self.X, axis=0))
        return float(np.linalg.matrix_rank(rest, tol=_BEYOND))

    def _counts(self, term: int) -> FloatArray:
        """Return the number of rows of each group, or the sum of their weights."""
        weights = None if self.roots is None else np.square(self.roots)
        return np.asarray(np.bincount(self.groups[term], weights), dtype=float)

    def _means(self, term: int, y: FloatArray) -> FloatArray:
        """Return the mean of its group for every row, times the root of the weight."""
        sums, counts = self._matrices[term].T @ y, self._counts(term)
        means = sums / counts.reshape(-1, *(1,) * (y.ndim - 1))
        return _by_row(means[self.groups[term]], self.roots)

    def _by_sweeps(self, y: FloatArray) -> FloatArray:
        rest = np.array(y)
        q = None if self.X is None else np.linalg.qr(self.X)[0]
        scale = float(np.abs(rest).max())
        for _ in range(_SWEEPS):
            before = rest
            for term in range(len(self.groups)):
                rest = rest - self._means(term, rest)
            for matrix in self._of_slopes:
                rest = rest - matrix @ (matrix.T @ rest)
            if q is not None:
                rest = rest - q @ (q.T @ rest)
            if float(np.abs(rest - before).max()) <= _CLOSE * scale:
                break
        return rest


def _by_row(values: FloatArray, factors: FloatArray | None) -> FloatArray:
    """Return rows, (n,) or (n, m), times a number each."""
    return np.asarray(values) if factors is None else (values.T * factors).T


def _of_unit_size(
    codes: LongArray, z: FloatArray, groups: Sequence[LongArray], roots: FloatArray | None
) -> FloatArray:
    """Return a column of size 1 in each group, or 0 where it is a combination of the terms."""
    weights = None if roots is None else np.square(roots)
    within, whole = z, _by_row(z, roots)
    if any(_determines(finer, codes) for finer in groups):
        sums = np.bincount(codes, z if weights is None else weights * z)
        within = z - (sums / np.bincount(codes, weights))[codes]
    within = _by_row(within, roots)
    size = np.sqrt(np.bincount(codes, within * within))
    rounded = size <= _BEYOND * np.sqrt(np.bincount(codes, whole * whole))
    return np.asarray(within / np.where(rounded, np.inf, size)[codes])


def _determines(finer: LongArray, coarser: LongArray) -> bool:
    """Whether every group of the first lies in one group of the second."""
    of_group = np.zeros(int(finer.max()) + 1, dtype=coarser.dtype)
    of_group[finer] = coarser
    return bool((of_group[finer] == coarser).all())


_TINY = 1e-300

_BLOCKS = 8
"""Tables that are kept of each drawn one, so that those of a block fit into the cache."""


@dataclass(frozen=True, eq=False)
class TwoWayTable:
    """Cell means of two crossed facets, and their residuals from the additive model.

    Attributes
    ----------
    row, column : names of the facets; columns are the objects, such as systems
    rows, columns : labels of the levels
    values : (n_rows, n_columns), nan for missing cells

    Examples
    --------
    >>> table = TwoWayTable.of([[1.0, 2.0, 4.0], [3.0, 4.0, 6.0], [1.0, 3.0, 2.0]])
    >>> table.residuals.sum(axis=0).round(12) + 0.0
    array([0., 0., 0.])
    """

    row: str
    column: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: FloatArray

    @classmethod
    def of(cls, values: object, row: str = "topic", column: str = "system") -> TwoWayTable:
        """Return the table of an array, levels numbered from 0."""
        array = np.asarray(values, dtype=float)
        n, k = array.shape
        return cls(row, column, tuple(map(str, range(n))), tuple(map(str, range(k))), array)

    @cached_property
    def observed(self) -> BoolArray:
        """(n_rows, n_columns) cells that are not missing."""
        return np.asarray(~np.isnan(self.values))

    @property
    def pairs(self) -> str:
        """The correlated residuals in words, ``"residuals of every two systems over topic"``."""
        return f"residuals of every two {display.levels_of(self.column)} over {self.row}"

    @cached_property
    def projection(self) -> Projection:
        """The projection of the observed cells on what rows and columns leave."""
        row, column = np.nonzero(self.observed)
        return Projection.of([row, column])

    def project(self, values: FloatArray) -> FloatArray:
        """Return the residuals of a table, or of several; 0 in missing cells.

        Parameters
        ----------
        values : (…, n_rows, n_columns); missing cells do not count
        """
        if self.observed.all():
            rest = values - values.mean(axis=-2, keepdims=True)
            return np.asarray(rest - rest.mean(axis=-1, keepdims=True))
        out = np.zeros(values.shape)
        out[..., self.observed] = self.projection.residuals(values[..., self.observed].T).T
        return out

    @cached_property
    def residuals(self) -> FloatArray:
        """(n_rows, n_columns) residuals of the additive model; 0 in missing cells."""
        return self.project(self.values)

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of the residuals."""
        if self.observed.all():
            n, k = self.values.shape
            return float((n - 1) * (k - 1))
        return self.projection.df

    @cached_property
    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of rows and of columns by least squares, each about its mean."""
        if self.observed.all():
            return _centred(self.values.mean(axis=1)), _centred(self.values.mean(axis=0))
        n, k = self.values.shape
        row, column = np.nonzero(self.observed)
        design = np.zeros((row.size, n + k))
        design[np.arange(row.size), row] = 1.0
        design[np.arange(row.size), n + column] = 1.0
        found = np.linalg.lstsq(design, self.values[self.observed], rcond=None)[0]
        solution = np.asarray(found, dtype=float)
        return _centred(solution[:n]), _centred(solution[n:])

    @cached_property
    def covariance(self) -> FloatArray:
        """(n_columns, n_columns) covariances of the residuals of columns."""
        e = self.residuals
        return np.asarray(e.T @ e / (len(e) - 1))

    @cached_property
    def correlations(self) -> FloatArray:
        """(n_columns, n_columns) correlations of the residuals of every two columns."""
        return _correlations(self.residuals)

    @cached_property
    def row_correlations(self) -> FloatArray:
        """(n_columns,) correlation of each column's residuals with the effects of rows."""
        return _with_effects(self.residuals, self.effects[0], self.observed)


def _centred(x: FloatArray) -> FloatArray:
    return np.asarray(x - x.mean())


def _correlations(e: FloatArray) -> FloatArray:
    """Return the correlations of every two columns of tables, (…, n_columns, n_columns)."""
    sd = np.sqrt((e * e).sum(axis=-2, keepdims=True))
    # A column without residuals correlates with none.
    z = e / np.where(sd > _TINY, sd, np.inf)
    return np.asarray(np.swapaxes(z, -1, -2) @ z)


def _with_effects(e: FloatArray, effects: FloatArray, observed: BoolArray) -> FloatArray:
    """Return the correlations of columns of tables with effects of rows, (…, n_columns)."""
    t = np.where(observed, effects[:, None], 0.0)
    scale = np.sqrt((e * e).sum(axis=-2) * (t * t).sum(axis=0))
    unknown = np.zeros(scale.shape)
    return np.asarray(np.divide((e * t).sum(axis=-2), scale, out=unknown, where=scale > _TINY))


@dataclass(frozen=True, slots=True, eq=False)
class TableFindings:
    """What the residuals of a table show.

    Attributes
    ----------
    table : the table
    tests : additivity, correlation with the effects of rows, correlation between columns
    slope : B of Tukey's model μ + a + b + B a b
    sphericity : ε of the columns' covariance matrix, 1 if F tests of columns are exact
    f_level : probability with which the F test of columns at .05 rejects a true null
    p_pairs : (n_columns, n_columns) p-values of correlations, adjusted for all pairs
    """

    table: TwoWayTable
    tests: tuple[AssumptionTest, ...]
    slope: float
    sphericity: float
    f_level: float
    p_pairs: FloatArray

    def pairs(self) -> list[tuple[str, str, float, float]]:
        """Return the pairs of columns with r and adjusted p, the largest absolute r first."""
        i, j = np.triu_indices(len(self.table.columns), 1)
        r, p = self.table.correlations[i, j], self.p_pairs[i, j]
        names = self.table.columns
        order = np.argsort(-np.abs(r), kind="stable")
        return [(names[i[k]], names[j[k]], float(r[k]), float(p[k])) for k in order]


def findings_of(table: TwoWayTable, n: int, rng: np.random.Generator) -> TableFindings:
    """Return the tests of additivity and of correlations of a table.

    Tukey's test has an F distribution. The null distribution of correlations is that of the same
    residuals with random signs, from which the effects of rows and columns are removed again:
    variances may differ between rows, columns and cells, and distributions need not be normal.

    Parameters
    ----------
    table : at least three rows and three columns, and two degrees of freedom
    n : number of draws
    rng : random numbers

    References
    ----------
    Tukey, J. W. (1949). One degree of freedom for non-additivity. *Biometrics*, 5, 232-242.

    Mandel, J. (1961). Non-additivity in two-way analysis of variance. *JASA*, 56, 878-888.

    Liu, R. Y. (1988). Bootstrap procedures under some non-i.i.d. models. *Annals of Statistics*,
    16, 1696-1708.
    """
    slope, additivity = tukey(table)
    k = len(table.columns)
    upper = np.triu_indices(k, 1)
    squares, extremes, with_rows = np.empty(n), np.empty(n), np.empty(n)
    effects, first = table.effects[0], 0
    for m in blocks(_BLOCKS * (table.values.size + k * k), n):
        some = slice(first, first := first + m)
        # Draws have the same signs in blocks of any size.
        signs = np.stack([rng.integers(0, 2, table.values.shape, np.int8) for _ in range(m)])
        e = table.project(table.residuals * (signs * 2.0 - 1.0))
        r = _correlations(e)[:, *upper]
        squares[some], extremes[some] = np.mean(r * r, axis=1), np.abs(r).max(axis=1)
        with_rows[some] = np.mean(_with_effects(e, effects, table.observed) ** 2, axis=1)
    r = table.correlations[upper]
    between, by_row = float(np.mean(r * r)), float(np.mean(table.row_correlations**2))
    how = "random signs"
    tests = (
        additivity,
        AssumptionTest(
            "uncorrelated effects", f"{table.column} with {table.row} effects", by_row,
            p_of(by_row, with_rows), _beyond(by_row, with_rows), "r beyond chance", how,
        ),
        AssumptionTest(
            "uncorrelated", table.pairs, between,
            p_of(between, squares), _beyond(between, squares), "r beyond chance", how,
        ),
    )  # fmt: skip
    at_least = n - np.searchsorted(np.sort(extremes), np.abs(table.correlations), side="left")
    n_rows = len(table.rows)
    epsilon = sphericity(table.covariance, n_rows - 1.0)
    return TableFindings(
        table,
        tests,
        slope,
        epsilon,
        f_level(k, n_rows - 1.0, epsilon),
        np.asarray((1.0 + at_least) / (n + 1.0), dtype=float),
    )


def _beyond(mean_square: float, drawn: FloatArray) -> float:
    """Return the root of the mean square beyond that of the draws."""
    return float(np.sqrt(max(mean_square - float(drawn.mean()), 0.0)))


def tukey(table: TwoWayTable) -> tuple[float, AssumptionTest]:
    """Return the slope and the test of Tukey's one degree of freedom for non-additivity.

    Parameters
    ----------
    table : at least three rows and columns, and two degrees of freedom
    """
    from scipy.special import fdtrc  # scipy.stats takes a second to import

    rows, columns = table.effects
    e = table.residuals
    product = table.project(np.outer(rows, columns))
    size, total = float((product**2).sum()), float((e * e).sum())
    slope = float((e * product).sum()) / size if size > _TINY else 0.0
    explained = slope**2 * size
    df = table.df - 1.0
    rest = max(total - explained, _TINY)
    ratio = explained / (rest / df)
    p = float(fdtrc(1.0, df, ratio))
    test = AssumptionTest(
        "additivity", f"{table.column} and {table.row}", ratio, p, explained / max(total, _TINY),
        "share of the residual sum of squares", "Tukey's one degree of freedom, F",
    )  # fmt: skip
    return slope, test
