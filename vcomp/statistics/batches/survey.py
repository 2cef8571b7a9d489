"""Surveys: levels, nesting and origin, as the first pass over the rows determines them.

Surveys of parts add up, in any order and on any machine, to the survey of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import code_levels, united_levels
from vcomp.design import Centre
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd


# Sums of parts --------------------------------------------------------------------------------


class Addable(Protocol):
    """A value that can be added to others of its type."""

    def __add__(self, other: Self) -> Self: ...


Part = TypeVar("Part", bound=Addable)


@dataclass(frozen=True, slots=True, eq=False)
class PendingSum(Generic[Part]):
    """A lazy sum of many parts, added as in a tree.

    Neighbours that are sums of about equally many parts are added first, so that data that many
    parts share are copied a few times, not once for each part.

    Attributes
    ----------
    parts : sums of neighbours in order, each with its depth in the tree; depths decrease
    """

    parts: tuple[tuple[int, Part], ...] = ()

    def __add__(self, other: PendingSum[Part]) -> PendingSum[Part]:
        waiting = list(self.parts)
        for depth, part in other.parts:
            total = part
            while waiting and waiting[-1][0] <= depth:
                below, before = waiting.pop()
                total = before + total
                depth += below == depth
            waiting.append((depth, total))
        return PendingSum(tuple(waiting))

    def total(self) -> Part | None:
        """Return the sum of all parts; None without parts."""
        if not self.parts:
            return None
        (_, whole), *rest = reversed(self.parts)
        for _, part in rest:
            whole = part + whole
        return whole


def pending(part: Part) -> PendingSum[Part]:
    """Return the sum of one part."""
    return PendingSum(((0, part),))


def add_up(parts: Iterable[Part]) -> Part | None:
    """Return the sum of the parts, added as in a tree; None without parts.

    Examples
    --------
    >>> add_up(["a", "b", "c"])
    'abc'
    """
    whole: PendingSum[Part] = PendingSum()
    for part in parts:
        whole += pending(part)
    return whole.total()


# Surveys --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FacetSurvey:
    """The levels of a facet, with their numbers of rows.

    Attributes
    ----------
    levels : in order, with categories that do not occur
    counts : (L,) number of rows of each level
    """

    levels: pd.Index
    counts: LongArray

    def used(self) -> tuple[pd.Index, LongArray]:
        """Return the levels that occur, and their positions."""
        places = np.flatnonzero(self.counts)
        are_all = places.size == len(self.levels)
        return self.levels if are_all else self.levels[places], places


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Levels of the facets, and sums of the response.

    Attributes
    ----------
    facets : of the formula, in its order
    determined : for nested pairs of facets (inner, outer) the outer level of each inner level, −1
        for levels that do not occur
    n : number of rows
    total : sum of the response in extended precision
    low, high : its smallest and largest value
    values : the values that it has, in order; None if they are more than a few, or not known
    squares : sum of its squares about its mean, for rows with weights, whose cells do not have it
    offset : sum of the offsets; None without, and in files of older versions
    """

    facets: tuple[FacetSurvey, ...]
    determined: Mapping[tuple[int, int], IntArray]
    n: int
    total: np.longdouble
    low: float
    high: float
    values: tuple[float, ...] | None = None
    squares: float | None = None
    offset: float | None = None

    def __add__(self, other: Survey) -> Survey:
        if not other.n:
            return self
        if not self.n:
            return other
        with np.errstate(over="ignore", invalid="ignore"):
            total = self.total + other.total
        united = [united_facets(a, b) for a, b in zip(self.facets, other.facets, strict=True)]
        maps = [(a, b) for _, a, b in united]
        return Survey(
            facets=tuple(facet for facet, _, _ in united),
            determined=_determined_by_both(
                self.determined, other.determined, maps, [f.counts.size for f, _, _ in united]
            ),
            n=self.n + other.n,
            total=total,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            values=_united_values(self.values, other.values),
            squares=self._squares_with(other),
            offset=None
            if self.offset is None or other.offset is None
            else self.offset + other.offset,
        )

    def _squares_with(self, other: Survey) -> float | None:
        if self.squares is None or other.squares is None:
            return None
        between = (other.mean - self.mean) ** 2 * (self.n * (other.n / (self.n + other.n)))
        return self.squares + other.squares + between

    @property
    def mean(self) -> float:
        """Mean of the response, exact if that is constant."""
        return self.low if self.low == self.high else float(self.total / self.n)

    def of_used_levels(self) -> Survey:
        """Return the survey without the levels that do not occur."""
        used = [facet.used() for facet in self.facets]
        determined = {}
        for (inner, outer), level in self.determined.items():
            place = np.full(self.facets[outer].counts.size, -1, np.int32)
            place[used[outer][1]] = np.arange(used[outer][1].size, dtype=np.int32)
            determined[inner, outer] = place[level[used[inner][1]]]
        facets = tuple(
            FacetSurvey(levels, facet.counts[places])
            for facet, (levels, places) in zip(self.facets, used, strict=True)
        )
        return replace(self, facets=facets, determined=determined)


def survey_rows(y: FloatArray, facets: Mapping[str, pd.Series]) -> Survey:
    """Return the survey of some rows.

    Parameters
    ----------
    y : (n,) response, none of it missing
    facets : the grouping columns

    Raises
    ------
    DataError
        If a column holds values that cannot be levels (lists, dicts).
    """
    columns = [code_levels(name, column) for name, column in facets.items()]
    determined = {}
    if y.size:
        for inner, outer in permutations(range(len(columns)), 2):
            level = columns[inner].levels_within(columns[outer])
            if level is not None:
                determined[inner, outer] = level
    low, high = (float(y.min()), float(y.max())) if y.size else (np.inf, -np.inf)
    found = tuple(FacetSurvey(column.levels, column.level_counts) for column in columns)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite scores are refused later
        total = np.longdouble(y.sum())
    return Survey(found, determined, int(y.size), total, low, high, few_values(y))


_FEW = 7
"""Largest number of values that are listed."""

_SAMPLE = 256
"""Size of the first sample of scores: in most responses it shows more than a few values."""


def few_values(y: FloatArray) -> tuple[float, ...] | None:
    """Return the values of a response in order, None if they are more than seven.

    Examples
    --------
    >>> few_values(np.array([1.0, 0.0, 0.0, 1.0]))
    (0.0, 1.0)
    >>> few_values(np.linspace(0.0, 1.0, 100)) is None
    True
    """
    if not y.size:
        return ()
    found = np.unique(y[:: -(-y.size // _SAMPLE)])
    if found.size > _FEW:
        return None
    values = tuple(found.tolist())
    is_other = np.ones(y.size, dtype=bool)
    for value in values:
        is_other &= y != value
    return _united_values(values, few_values(y[is_other])) if is_other.any() else values


def _united_values(
    a: tuple[float, ...] | None, b: tuple[float, ...] | None
) -> tuple[float, ...] | None:
    if a is None or b is None:
        return None
    united = tuple(sorted({*a, *b}))
    return united if len(united) <= _FEW else None


_Map = IntArray
"""Position of each level of a part among the levels of the whole."""


def united_facets(a: FacetSurvey, b: FacetSurvey) -> tuple[FacetSurvey, _Map, _Map]:
    """Return the levels of both, and the positions of the levels of each among them."""
    levels, in_a, in_b = united_levels(a.levels, b.levels)
    counts = np.zeros(len(levels), np.int64)
    counts[in_a] += a.counts
    counts[in_b] += b.counts
    return FacetSurvey(levels, counts), in_a, in_b


def _determined_by_both(
    a: Mapping[tuple[int, int], IntArray],
    b: Mapping[tuple[int, int], IntArray],
    maps: Sequence[tuple[_Map, _Map]],
    sizes: Sequence[int],
) -> dict[tuple[int, int], IntArray]:
    """Return the pairs that are nested in both parts, with equal levels where both have them."""
    determined = {}
    for pair in a.keys() & b.keys():
        inner, outer = pair
        whole = [np.full(sizes[inner], -1, np.int32) for _ in range(2)]
        for level, part, k in ((whole[0], a[pair], 0), (whole[1], b[pair], 1)):
            known = part >= 0
            level[maps[inner][k][known]] = maps[outer][k][part[known]]
        both = (whole[0] >= 0) & (whole[1] >= 0)
        if (whole[0][both] == whole[1][both]).all():
            determined[pair] = np.maximum(whole[0], whole[1])
    return determined


# The fixed part ----------------------------------------------------------------------------------


Columns = Mapping[str, Any]
"""The columns of the fixed part of some rows, in a form that patsy reads."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnKinds:
    """Contents of the columns of the fixed part, levels or numbers; kinds of parts add up.

    Attributes
    ----------
    levels : for each column its levels, None for numbers
    booleans : the columns that are true or false in all rows
    """

    levels: Mapping[str, FacetSurvey | None]
    booleans: frozenset[str]

    def __add__(self, other: ColumnKinds) -> ColumnKinds:
        if not self.levels or not other.levels:
            return self if self.levels else other
        both = {f: _both(f, self.levels[f], other.levels[f]) for f in self.levels}
        return ColumnKinds(both, self.booleans & other.booleans)

    @property
    def n_levels(self) -> dict[str, int]:
        """Numbers of levels of the factors."""
        return {f: len(found.used()[0]) for f, found in self.levels.items() if found is not None}

    @property
    def numbers(self) -> frozenset[str]:
        """Columns that hold neither levels nor booleans."""
        without = (name for name, found in self.levels.items() if found is None)
        return frozenset(without) - self.booleans

    def few_rows(self) -> dict[str, Any]:
        """Return columns with few rows in which all levels occur; numbers are ones."""
        import pandas as pd

        n = max([2, *self.n_levels.values()])
        columns: dict[str, Any] = {}
        for name, found in self.levels.items():
            columns[name] = np.ones(n, dtype=bool if name in self.booleans else float)
            if found is not None:
                levels, _ = found.used()
                codes = np.arange(n) % len(levels)
                columns[name] = pd.Categorical.from_codes(codes, categories=levels)
        return columns

    def of_no_rows(self) -> dict[str, Any]:
        """Return columns without rows, factors with all their levels."""
        import pandas as pd

        return {
            name: np.zeros(0)
            if found is None
            else pd.Categorical.from_codes(np.zeros(0, np.int8), categories=found.used()[0])
            for name, found in self.levels.items()
        }

    def of_levels(self, name: str, levels: pd.Index, codes: IntArray) -> Any:
        """Return a column of the fixed part from codes of its levels.

        Parameters
        ----------
        name : of the column
        levels : that the codes number, among them all that occur
        codes : (n,) codes
        """
        import pandas as pd

        found = self.levels[name]
        if found is None:
            return levels.to_numpy(bool if name in self.booleans else float)[codes]
        used, _ = found.used()
        if used is not levels:
            codes = used.get_indexer(levels).astype(np.int32)[codes]
        return pd.Categorical.from_codes(codes, categories=used, validate=False)

    def recoded(self, columns: Columns) -> dict[str, Any]:
        """Return the columns of some rows with the levels of all rows."""
        import pandas as pd

        if not len(next(iter(columns.values()), ())):
            return self.of_no_rows()  # the content of a column without rows is not known
        recoded = dict(columns)
        for name, found in self.levels.items():
            if found is None and name not in self.booleans:
                recoded[name] = np.asarray(columns[name], dtype=float)
            elif found is not None:
                levels, _ = found.used()
                of_part = levels.get_indexer(columns[name].categories)
                codes = of_part[columns[name].codes]
                recoded[name] = pd.Categorical.from_codes(codes, categories=levels)
        return recoded


def _both(name: str, a: FacetSurvey | None, b: FacetSurvey | None) -> FacetSurvey | None:
    if a is None and b is None:
        return None
    if a is None or b is None:
        raise DataError(
            f"column {name!r} holds numbers in some rows and text in others; make it one of them",
            column=name,
        )
    return united_facets(a, b)[0]


def kinds_of(columns: Columns, facets: Mapping[str, FacetSurvey]) -> ColumnKinds:
    """Return the kinds of the columns of some rows; no columns if there are no rows.

    Parameters
    ----------
    columns : of the fixed part
    facets : of the same rows, whose levels are counted
    """
    import pandas as pd

    if not columns or not len(next(iter(columns.values()))):
        return ColumnKinds({}, frozenset())
    levels: dict[str, FacetSurvey | None] = {}
    for name, column in columns.items():
        levels[name] = None
        if isinstance(column, pd.Categorical):
            found = facets.get(name)
            if found is None or found.levels is not column.categories:
                counts = np.bincount(column.codes, minlength=len(column.categories))
                found = FacetSurvey(column.categories, counts)
            levels[name] = found
    booleans = (
        name
        for name, column in columns.items()
        if isinstance(column, np.ndarray) and column.dtype.kind == "b"
    )
    return ColumnKinds(levels, frozenset(booleans))


@dataclass(frozen=True, slots=True, eq=False)
class XSums:
    """Sums of the columns of X; sums of parts of the data add up.

    Attributes
    ----------
    n : number of rows
    mean : (p,) means, exact of columns that are constant
    gram : (p, p) sums of squares and products about the means
    low, high : (p,) smallest and largest values
    """

    n: int
    mean: FloatArray
    gram: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> XSums:
        """Return the sums of some rows."""
        low, high = X.min(axis=0, initial=np.inf), X.max(axis=0, initial=-np.inf)
        total = X.sum(axis=0, dtype=np.longdouble)
        mean = np.asarray(total / max(len(X), 1), dtype=float)
        mean = np.where(low == high, low, mean)
        centred = X - mean
        return cls(len(X), mean, centred.T @ centred, low, high)

    def __add__(self, other: XSums) -> XSums:
        n = self.n + other.n
        if not self.n or not other.n:
            return self if self.n else other
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        apart = other.mean - self.mean
        mean = np.where(low == high, low, self.mean + apart * (other.n / n))
        between = np.outer(apart, apart) * (self.n * (other.n / n))
        return XSums(n, mean, self.gram + other.gram + between, low, high)

    def split(self, p: int) -> tuple[XSums, XSums]:
        """Return the sums of the first p columns, and of the others."""
        at = np.arange(self.mean.size)
        return self.of_columns(at[:p]), self.of_columns(at[p:])

    def of_columns(self, kept: LongArray) -> XSums:
        """Return the sums of some of the columns."""
        ends = self.low[kept], self.high[kept]
        return XSums(self.n, self.mean[kept], self.gram[np.ix_(kept, kept)], *ends)

    def constant(self, names: tuple[str, ...]) -> FloatArray:
        """Return a with X a = 1, within the digits of these sums; zeros without such an a."""
        return Centre.constant_of(names, self.mean, self.gram / max(self.n, 1))


_DEPENDENT = 1e-11
"""Variance of a combination of scaled columns below which it is rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class RegressionSums:
    """Sums of the columns of X and of their products with the response; sums of parts add up.

    Attributes
    ----------
    columns : of X
    mean : of the response
    products : (p,) sums of its products with the columns, about the means
    squares : sum of its squares about its mean
    """

    columns: XSums
    mean: float
    products: FloatArray
    squares: float

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray) -> RegressionSums:
        """Return the sums of some rows."""
        columns, mean = XSums.of(X), float(y.mean()) if y.size else 0.0
        centred = y - mean
        products = centred @ X - centred.sum() * columns.mean
        return cls(columns, mean, products, float(centred @ centred))

    def __add__(self, other: RegressionSums) -> RegressionSums:
        a, b = self.columns, other.columns
        if not a.n or not b.n:
            return self if a.n else other
        share, apart = b.n / (a.n + b.n), other.mean - self.mean
        between = apart * (b.mean - a.mean) * (a.n * share)
        return RegressionSums(
            columns=a + b,
            mean=self.mean + apart * share,
            products=self.products + other.products + between,
            squares=self.squares + other.squares + apart**2 * (a.n * share),
        )

    def dominant(self, p: int) -> FloatArray | None:
        """Return least-squares coefficients of the first p columns if they dwarf the rest.

        They are those of the shortest solution with scaled columns, about the means; None where
        squares of the response keep enough digits of the rest.
        """
        gram, products = self.columns.gram[:p, :p], self.products[:p]
        size = np.sqrt(np.diagonal(gram))
        scale = np.where(size > 0.0, size, 1.0)
        scaled = gram / np.outer(scale, scale), products / scale
        beta = np.linalg.lstsq(*scaled, rcond=_DEPENDENT)[0] / scale
        rest = self.squares - float(beta @ products)
        return np.asarray(beta) if rest < Centre.DOMINATED * self.squares else None
