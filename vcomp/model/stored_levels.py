"""The levels of a fit as values: universe scores and differences, without the rows.

A result without rows has them in its record. They are found by
:mod:`~vcomp.model.universe_scores` and :mod:`~vcomp.model.level_comparisons`. Values of stored
results that contradict each other are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._plugins import plugin_names
from vcomp._typing import FloatArray, Json, LongArray
from vcomp.codec import stored
from vcomp.data import plain_label
from vcomp.estimators import METHODS
from vcomp.exceptions import DataError
from vcomp.formula import REPLICATE, RESIDUAL, EffectMatrix, LevelRows
from vcomp.inference import TwoWayMeanSquares, VarianceComponents, are_computable

if TYPE_CHECKING:
    import pandas as pd

_MANY = 2**53
"""Largest count up to which floats represent all whole numbers."""


def check_record(record: Any) -> None:
    """Raise a ValueError that names the part of a stored result that contradicts others.

    Parameters
    ----------
    record : a ``FitRecord`` as it was read
    """
    method, known = record.estimate.method, (*METHODS, *plugin_names("estimators"))
    if method not in known:
        raise ValueError(f"method {method!r} is not known; the methods are {', '.join(known)}")
    for name, found, shape in _shapes(record):
        if np.shape(found) != shape:
            raise ValueError(f"{name} has the shape {np.shape(found)}, and {shape} belongs there")
    for name, holds in _agreements(record):
        if not all(holds):
            raise ValueError(f"the values of {name} contradict each other, or other values")


def _shapes(record: Any) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Yield arrays with the shapes that the numbers of components and effects give them."""
    estimate, components, fixed = record.estimate, record.components, record.estimate.fixed_errors
    k, p = len(estimate.names), len(record.exog_names)
    yield "estimate.values", estimate.values, (k,)
    yield "components.values", components.values, (k,)
    yield "estimate.beta", estimate.beta, (p,)
    yield "estimate.cov_beta", estimate.cov_beta, (p, p)
    for kind, cov in estimate.covariances.items():
        yield f"estimate.covariances.{kind}", cov, (k, k)
    if components.cov is not None:
        yield "components.cov", components.cov, (k, k)
    for of, without in (("components", components), ("estimate", estimate)):
        if without.without_bounds is not None:
            values, cov = without.without_bounds
            yield f"{of}.without_bounds.values", values, (k,)
            yield f"{of}.without_bounds.cov", cov, (k, k)
    if fixed is not None:
        yield "estimate.fixed_errors.df", fixed.df, (p,)
    if fixed is not None and fixed.slopes is not None:
        yield "estimate.fixed_errors.slopes", fixed.slopes, (k, p, p)
    table, cells = record.tables.table, record.tables.cells
    if table is not None:
        m = len(table.names)
        yield "table.df", table.df, (m,)
        yield "table.sum_sq", table.sum_sq, (m,)
        yield "table.expected", table.expected, (m, m)
    if cells is not None:
        size = tuple(map(len, cells.levels))
        yield "cells.means", cells.means, size
        yield "cells.counts", cells.counts, size
    for name in ("levels", "fixed_levels"):
        levels = getattr(record.tables, name)
        if levels is not None:
            m, q = len(levels.sets), levels.information.shape[0]
            yield f"{name}.information", levels.information, (q, q)
            yield f"{name}.shared", levels.shared, (m, q, q)
            yield f"{name}.sizes", levels.sizes, (m,)
            if levels.inverse is not None:
                yield f"{name}.inverse", levels.inverse, (q, q)
            for at in set(levels.coarsest().values()).intersection(range(m - 1)):
                if levels.of_groups is not None:
                    parts = levels.of_groups[at]
                    n = 1 if np.shape(parts)[:1] == (1,) else levels.sizes[at]
                    yield f"{name}.of_groups", parts, (n, q, q)


def _agreements(record: Any) -> Iterator[tuple[str, Iterable[bool]]]:
    """Yield the parts of a result with what must hold for their values."""
    estimate, components, structure = record.estimate, record.components, record.structure
    k, names, facets = len(estimate.names), estimate.names, set(structure.facets)
    named = frozenset([REPLICATE]).union(facets, *components.facets)
    effects = set(record.exog_names)
    yield "exog_names", (len(effects) == len(record.exog_names),)
    yield "left_out", (not effects.intersection(record.left_out),)
    finite = bool(np.isfinite(estimate.values).all()) and are_computable(estimate.values)
    yield "estimate.names", (len(set(names)) == k,)
    yield "estimate.values", (finite,)
    yield "estimate.covariances", (bool(estimate.covariances),)
    finite = bool(np.isfinite(components.values).all()) and are_computable(components.values)
    yield "components.names", (names == components.names, len(components.facets) == k)
    yield "components.values", (finite,)
    nested = (named >= {f, *outer} for f, outer in components.nested_in.items())
    yield "components.nested_in", nested
    yield "components.sizes", (n > 0.0 for n in components.sizes.values())
    of_names = (of.keys() == set(components.names) for of in components.inverse_n.values())
    above = (not x <= 0.0 for of in components.inverse_n.values() for x in of.values())
    yield "components.inverse_n", (*of_names, *above)
    squares = components.mean_squares
    yield "components.mean_squares", (squares is None or _are_sizes(squares),)
    yield "components.matrices", (_is_symmetric(m, k) for m in components.matrices)
    counts = (*structure.n_levels, structure.n_rows)
    yield "structure.facets", (len(facets) == len(structure.facets) == len(structure.n_levels),)
    yield "structure.n_levels", (1 <= n < _MANY for n in counts)
    pairs = (*structure.partly_crossed, *structure.fully_crossed)
    yield "structure.fully_crossed", (facets.issuperset(pair) for pair in pairs)
    nested = (named >= {f, *outer} for f, outer in structure.nested_in.items())
    yield "structure.nested_in", (*nested, structure.nested_in.keys() >= facets)
    named_terms = (bool(t) and all(map(str.strip, t)) for t in structure.terms.values())
    yield "structure.terms", (RESIDUAL in structure.terms, *named_terms)
    yield "structure.sizes", (n > 0.0 for n in structure.sizes.values())
    yield "cells", (record.tables.cells is None or _are_means(record.tables.cells),)
    if record.level_values is not None:
        yield "level_values", record.level_values.agree(components, len(record.exog_names))


def _is_symmetric(matrix: EffectMatrix, n_components: int) -> bool:
    """Return whether the places of a covariance matrix are those of components."""
    q, places = len(matrix.effects), matrix.places
    if [len(row) for row in places] != [q] * q:
        return False
    inside = all(0 <= place < n_components for row in places for place in row)
    return inside and all(places[i][j] == places[j][i] for i in range(q) for j in range(i))


def _are_means(cells: Any) -> bool:
    """Return whether stored cell means can be computed with."""
    known = cells.means[~np.isnan(cells.means)]
    return bool(known.size and are_computable(known) and (cells.counts >= 0.0).all())


def _are_sizes(table: TwoWayMeanSquares) -> bool:
    return all(1 <= n < _MANY for n in (table.n_rows, table.n_columns, table.n_replicates))


@dataclass(frozen=True, slots=True)
class EffectsWithin:
    """The effects of the components within an object of measurement.

    Attributes
    ----------
    all : of each component the facets but for the object's, the residual last
    distinct : those of the analysis within an object, without the residual
    nested : facets that are nested in the object
    parts : the terms whose effects make up the universe score
    excluded : facets of the object and those nested in it
    """

    all: tuple[frozenset[str], ...]
    distinct: tuple[frozenset[str], ...]
    nested: frozenset[str]
    parts: tuple[int, ...]
    excluded: frozenset[str]

    @classmethod
    def of(cls, components: VarianceComponents, objects: frozenset[str]) -> EffectsWithin:
        """Return the effects within an object with some facets."""
        effects = tuple(facets - objects for facets in components.facets)
        # A term that is confounded with the residual within an object belongs to the residual.
        distinct = tuple(e for e in dict.fromkeys(effects) if e and e != effects[-1])
        above = components.nested_in.items()
        nested = frozenset(f for f, outer in above if outer & objects) - objects
        parts = tuple(k for k, f in enumerate(components.facets[:-1]) if f <= objects)
        return cls(effects, distinct, nested, parts, nested | objects)

    @property
    def everything(self) -> tuple[frozenset[str], ...]:
        """The effects of the analysis within an object, the residual last."""
        return (*self.distinct, self.all[-1])

    @property
    def own(self) -> Any:
        """Whether each effect is specific to an object: one of its facets is nested in it."""
        return np.array([bool(e & self.nested) for e in self.everything])


@dataclass(frozen=True, slots=True)
class Within:
    """An analysis of variance of each object's scores; columns are effects S, the residual last.

    Attributes
    ----------
    components : (P, k + 1) σ̂²(S|p); nan for an object from whose scores they are not estimable
    shared : (P, k + 1) σ̂_S(p, others), None where objects do not have the same cells
    inverse_n : (P, k + 1) 1/n_S: Σ n²/(Σ n)² over the groups of S, with weights 1/Σ w of the
        residual
    of_scores : (P, 1) Σ w²/(Σ w)² over the scores, of a term that is confounded with the residual;
        None where all count alike
    """

    components: FloatArray
    shared: FloatArray | None
    inverse_n: FloatArray
    of_scores: FloatArray | None = None


def _folded(within: Within) -> Json:
    """Return the columns of the arrays for a file; a constant column is one number."""
    arrays = {f.name: getattr(within, f.name) for f in fields(within)}
    return {
        name: None if array is None else [_folded_column(column) for column in array.T]
        for name, array in arrays.items()
    }


def _folded_column(column: FloatArray) -> Any:
    first = float(column[0])
    alike = np.isnan(column).all() if np.isnan(first) else (column == first).all()
    return first if alike else column


def _unfolded(plain: Any, objects: Json) -> Within:
    n = len(objects["n"])

    def table(columns: Any) -> FloatArray:
        whole = [np.broadcast_to(np.array(column, dtype=float), (n,)) for column in columns]
        return np.column_stack(whole)

    shared, of_scores = plain["shared"], plain.get("of_scores")
    return Within(
        table(plain["components"]),
        None if shared is None else table(shared),
        table(plain["inverse_n"]),
        None if of_scores is None else table(of_scores),
    )


@dataclass(frozen=True, slots=True)
class ObjectScores:
    """Values of the levels of a term as objects of measurement, which need the rows.

    Attributes
    ----------
    n, mean : (P,) their numbers of scores, and the means of these
    score, se : (P,) universe scores, and standard errors of their prediction
    within : analysis of variance of each object's scores
    """

    n: LongArray
    mean: FloatArray
    score: FloatArray
    se: FloatArray
    within: Within = field(metadata=stored(write=_folded, read=_unfolded))


def _folded_variances(variances: FloatArray) -> FloatArray | float:
    return float(variances[0]) if np.ptp(variances) == 0.0 else variances


def _unfolded_variances(plain: Any, whole: Json) -> FloatArray:
    q = len(whole["effects"])
    return np.broadcast_to(np.array(plain, dtype=float), (q * (q - 1) // 2,))


@dataclass(frozen=True, slots=True)
class StoredDifferences:
    """The predicted effects of a term, with the errors of their differences.

    Attributes
    ----------
    effects : (q,)
    centre : the mean to which they are added
    variances : of the differences, in the order of the upper triangle of a matrix
    """

    effects: FloatArray
    centre: float
    variances: FloatArray = field(
        metadata=stored(write=_folded_variances, read=_unfolded_variances)
    )

    @classmethod
    def of(
        cls,
        effects: FloatArray,
        centre: float,
        variances: Callable[[tuple[LongArray, LongArray]], FloatArray],
    ) -> StoredDifferences:
        """Return the differences of a term of at least two levels."""
        i, j = np.triu_indices(effects.size, 1)
        return cls(effects, centre, variances((i, j)))

    def of_pairs(self, pairs: tuple[LongArray, LongArray]) -> FloatArray:
        """Return the variances of the differences of pairs, (m,)."""
        low, high = np.minimum(*pairs), np.maximum(*pairs)
        return self.variances[low * (2 * self.effects.size - low - 1) // 2 + high - low - 1]


_DATES = "datetime64"


def _written_labels(index: Any) -> Json:
    """Return names of levels for a file; other kinds than text, numbers and dates become text."""
    if index.nlevels == 1:
        return {"names": [index.name], "levels": [_written_level(index)]}
    return {
        "names": list(index.names),
        "levels": [_written_level(level) for level in index.levels],
        "codes": [np.asarray(codes) for codes in index.codes],
    }


def _written_level(index: pd.Index) -> Json:
    dtype = str(index.dtype)
    if dtype.startswith(_DATES):
        return {"dtype": dtype, "values": [value.isoformat() for value in index]}
    plain = [plain_label(value) for value in index]
    if not all(isinstance(value, str | int | float) for value in plain):
        plain = [str(value) for value in plain]
    kept = dtype in ("str", "string") or index.dtype.kind in "iufb"
    return {"dtype": dtype if kept else "object", "values": plain}


def _read_labels(plain: Any, _: Json) -> Any:
    import pandas as pd

    levels: list[Any] = [_read_level(level) for level in plain["levels"]]
    if "codes" in plain:
        return pd.MultiIndex(levels=levels, codes=plain["codes"], names=plain["names"])
    (level,) = levels
    return level.rename(plain["names"][0])


def _read_level(plain: Json) -> pd.Index:
    import pandas as pd

    dtype, values = str(plain["dtype"]), plain["values"]
    if dtype.startswith(_DATES):
        return pd.DatetimeIndex(values).astype(dtype)
    return pd.Index(values, dtype=dtype)


@dataclass(frozen=True, slots=True)
class StoredTerm:
    """The levels of a random term; None for parts that are not stored.

    Attributes
    ----------
    labels : names of the levels
    objects : the levels as objects of measurement
    differences : between the predicted effects
    """

    labels: Any = field(metadata=stored(write=_written_labels, read=_read_labels))
    objects: ObjectScores | None = None
    differences: StoredDifferences | None = None

    def agree(self, n_effects: int) -> Iterator[bool]:
        """Yield whether the values are valid, one for each level."""
        q, objects, differences = len(self.labels), self.objects, self.differences
        yield q > 0
        if differences is not None:
            yield differences.effects.shape == (q,)
            yield bool(np.isfinite(differences.centre))
            yield bool((differences.variances >= 0.0).all())
        if objects is not None:
            columns = (objects.n, objects.mean, objects.score, objects.se)
            yield all(column.shape == (q,) for column in columns)
            within = objects.within
            for table in (within.components, within.shared, within.inverse_n):
                yield table is None or table.shape == (q, n_effects)


@dataclass(frozen=True, slots=True)
class StoredLevels:
    """The levels of all random terms and of the factors of the fixed part.

    Attributes
    ----------
    terms : by name
    factors : rows of X for the levels of each factor
    no_scores, no_differences : of terms and factors that lack them, the message that says why
    """

    terms: dict[str, StoredTerm]
    factors: tuple[LevelRows, ...]
    no_scores: dict[str, str]
    no_differences: dict[str, str]

    def agree(self, components: VarianceComponents, n_columns: int) -> Iterator[bool]:
        """Yield whether the values agree with each other and with the components."""
        yield set(components.names).issuperset(self.terms)
        for name, facets in zip(components.names, components.facets, strict=True):
            if name in self.terms:
                effects = EffectsWithin.of(components, facets).everything
                yield from self.terms[name].agree(len(effects))
        for factor in self.factors:
            yield factor.X.shape == (len(factor.levels), n_columns)
            yield bool(np.isfinite(factor.X).all())

    def factor(self, facet: str) -> LevelRows | None:
        """Return the rows of a factor, None if there is no such factor."""
        return next((rows for rows in self.factors if facet in rows.names), None)

    def scores(self, term: str) -> tuple[ObjectScores, pd.Index]:
        """Return the universe scores of the levels of a term, and their names.

        Raises
        ------
        DataError
            If they are not stored.
        """
        stored = self.terms.get(term)
        if stored is None or stored.objects is None:
            raise _absent("universe scores", term, self.no_scores)
        return stored.objects, stored.labels

    def differences(self, term: str) -> tuple[StoredDifferences, pd.Index]:
        """Return the predicted effects of a term with their differences, and names of its levels.

        Raises
        ------
        DataError
            If they are not stored.
        """
        stored = self.terms.get(term)
        if stored is None or stored.differences is None:
            raise _absent("comparisons", term, self.no_differences)
        return stored.differences, stored.labels

    def check_factor(self, facet: str) -> None:
        """Refuse a factor that cannot be compared.

        Raises
        ------
        DataError
            If there is a reason.
        """
        if facet in self.no_differences:
            raise _absent("comparisons", facet, self.no_differences)


def _absent(what: str, term: str, reasons: dict[str, str]) -> DataError:
    none = f"this result was stored without {what} of {term}; fit the model again"
    return DataError(reasons.get(term, none), term=term)
