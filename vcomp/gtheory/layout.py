"""Layouts: plans whose observations are listed one by one, with exact divisors of components."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import number_combinations
from vcomp.exceptions import DataError, PlanError
from vcomp.formula import REPLICATE, BrennanDesign


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Planned observations of every object of measurement.

    Attributes
    ----------
    codes : facet → (N,) numbers of the levels
    objects : (N,) the object of each observation; all 0 where each has the same observations
    """

    codes: Mapping[str, LongArray]
    objects: LongArray

    def inverse_n(self, facets: Iterable[str]) -> float:
        """Return the mean over the objects of Σ (n_g/n)² over the groups g of some facets.

        Parameters
        ----------
        facets : whose combinations of levels are the groups; ``replicate`` makes every
            observation a group

        References
        ----------
        Brennan (2001), Generalizability Theory, eq. 7.28.
        """
        n = np.bincount(self.objects).astype(float)
        if REPLICATE in facets:
            return float((1.0 / n).mean())
        groups = self.objects
        for facet in facets:
            if facet in self.codes:
                groups = joined(groups, self.codes[facet])
        owner = np.empty(int(groups.max()) + 1, dtype=np.int64)
        owner[groups] = self.objects
        counts = np.bincount(groups).astype(float)
        return float((np.bincount(owner, counts**2) / n**2).mean())

    def unshared(self, facets: Iterable[str]) -> float:
        """Return 1/n of an effect without the object in differences between objects.

        It is Σ_g of the mean over the objects of w_pg², less the mean over pairs of w_pg w_qg,
        with w_pg the share of the observations of object p in group g; zero if all objects have
        the same levels.

        Parameters
        ----------
        facets : whose combinations of levels are the groups
        """
        n = np.bincount(self.objects).astype(float)
        if n.size < 2:
            return 0.0
        groups = np.zeros_like(self.objects)
        for facet in facets:
            if facet in self.codes:
                groups = joined(groups, self.codes[facet])
        cells = joined(self.objects, groups)
        owner, group = (np.empty(int(cells.max()) + 1, dtype=np.int64) for _ in range(2))
        owner[cells], group[cells] = self.objects, groups
        w = np.bincount(cells) / n[owner]
        within, everyone = float(w @ w), float(np.square(np.bincount(group, w)).sum())
        share = within / n.size - (everyone - within) / (n.size * (n.size - 1.0))
        return share if share > 1e-12 * within else 0.0

    def most_levels(self, facet: str, above: Iterable[str]) -> int:
        """Return the largest number of levels of a facet for one object, within a level of others.

        Parameters
        ----------
        facet : whose levels are counted; replicates have no levels of their own
        above : the facets that it is nested in
        """
        if facet not in self.codes:
            return 0
        outer = self.objects
        for name in above:
            if name in self.codes:
                outer = joined(outer, self.codes[name])
        levels = np.unique(np.column_stack([outer, self.codes[facet]]), axis=0)
        return int(np.bincount(levels[:, 0]).max())


def read_layouts(given: Any, design: BrennanDesign, objects: frozenset[str]) -> dict[str, Layout]:
    """Return the given layouts by name.

    Parameters
    ----------
    given : a table (of any kind that ``vcomp.fit`` reads) with a row for every planned observation
        and a column for every facet but the object's; with the columns of the object too where
        objects differ in their observations. Or several of them: a mapping by name, or a list
    design : of the D-study
    objects : the facets of the object of measurement

    Raises
    ------
    PlanError
        If a layout has no rows, no column of a facet, a missing value, or only some of the
        object's facets.
    """
    if isinstance(given, Mapping) and not set(map(str, given)) & set(design.facets):
        tables = {str(name): table for name, table in given.items()}
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        tables = {str(number): table for number, table in enumerate(given, 1)}
    else:
        tables = {"layout": given}
    if not tables:
        raise PlanError("no layout is given: the mapping is empty")
    return {name: _read(name, table, design, objects) for name, table in tables.items()}


def layout_divisors(layout: Layout, effects: Sequence[frozenset[str]]) -> FloatArray:
    """Return the exact 1/n of every effect, (k,).

    Parameters
    ----------
    layout : of the planned observations
    effects : the facets of each, those of the object included

    Raises
    ------
    PlanError
        If a cell is observed several times, and no effect has replicates.
    """
    everything = frozenset[str]().union(*effects)
    if REPLICATE not in everything:
        once, all_ = layout.inverse_n({REPLICATE}), layout.inverse_n(everything)
        if all_ > once * (1.0 + 1e-9):
            raise PlanError(
                "the layout repeats a cell, but the G-study has one score per cell: "
                "the variance within cells is unknown"
            )
    return np.array([layout.inverse_n(effect) for effect in effects])


def layout_sizes(layout: Layout, facets: Sequence[str], design: BrennanDesign) -> list[float]:
    """Return the effective number of levels of each facet within those that it is nested in.

    Parameters
    ----------
    layout : of the planned observations
    facets : those with a size
    design : of the D-study
    """
    sizes = []
    for facet in facets:
        above = design.nested_in[facet]
        sizes.append(layout.inverse_n(above) / layout.inverse_n(above | {facet}))
    # Sizes within rounding error of a whole number are whole.
    return [float(round(n)) if abs(n - round(n)) < 1e-9 * n else n for n in sizes]


def _read(name: str, table: Any, design: BrennanDesign, objects: frozenset[str]) -> Layout:
    # Deferred for start-up time: it imports pandas.
    from vcomp.data import open_source

    where = "the layout" if name == "layout" else f"layout {name!r}"
    try:
        source = open_source(table)
        named = [f for f in design.facets if f in objects and f in source.columns]
        wanted = [f for f in design.facets if f not in objects and f != REPLICATE]
        frame = source.read([*wanted, *named])
    except DataError as error:
        raise PlanError(f"{where} cannot be read: {error}") from error
    if named and len(named) < len(objects):
        missing = ", ".join(sorted(objects - set(named)))
        raise PlanError(f"{where} has columns {', '.join(named)} of the object, but not {missing}")
    if frame.empty:
        raise PlanError(f"{where} has no rows: give one for each planned observation")
    codes = {f: _codes(where, f, frame[f]) for f in frame.columns}
    owners = np.zeros(len(frame), dtype=np.int64)
    for facet in named:
        owners = joined(owners, codes[facet])
    return Layout({f: codes[f] for f in wanted}, owners)


def _codes(where: str, facet: str, column: Any) -> LongArray:
    import pandas as pd

    codes, _ = pd.factorize(column)
    if (codes < 0).any():
        raise PlanError(f"{where} has a missing value in column {facet!r}", column=facet)
    return np.asarray(codes, dtype=np.int64)


def joined(left: LongArray, right: LongArray) -> LongArray:
    """Return the combinations of two columns of codes, numbered in order.

    Parameters
    ----------
    left, right : (n,) codes, none negative

    Examples
    --------
    >>> joined(np.array([0, 0, 2]), np.array([1, 0, 1]))
    array([1, 0, 2])
    """
    sizes = (int(codes.max(initial=-1)) + 1 for codes in (left, right))
    return number_combinations(left, next(sizes), right, next(sizes))[1].astype(np.int64)
