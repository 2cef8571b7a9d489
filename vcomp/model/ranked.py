"""Accuracy of the ranking of the levels of a facet by tests of any design, from a fit.

With two crossed facets it is estimated from the cell means, else from scores and components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import number_combinations
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.gtheory import DStudyPlan, PlanOptions, weights
from vcomp.inference import VarianceComponents, used_components
from vcomp.ir import rank
from vcomp.ir.rank import (
    PairedDifferences,
    RankOptions,
    correlation_columns,
    correlation_table,
    ranking,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, require_rows

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.design import LevelGroups

_SHOWN = 5
"""Largest number of names in a message."""

_LEAST = 1e-300
"""Smallest error variance of a plan, whose inverse is finite."""


@dataclass(frozen=True, slots=True)
class RankedFit:
    """What a ranking by a fit's systems is estimated from, and the plans of new tests.

    Attributes
    ----------
    record : of the fit
    rows : access to its scores; None after loading
    components : of the fit, for D-studies
    planned : design, object, universe and sizes of new tests
    groups : of the ranked levels, if one of each group is ranked
    """

    record: FitRecord
    rows: RowAccess | None
    components: VarianceComponents
    planned: PlanOptions = field(default_factory=PlanOptions)
    groups: LevelGroups | str | None = None

    def table(self, options: RankOptions, *, ap: bool) -> pd.DataFrame:
        """Return Eτ or Eτ_AP of the plans.

        Parameters
        ----------
        options : how they are estimated
        ap : whether it is Eτ_AP

        Raises
        ------
        PlanError
            If the plans are invalid, or do not keep the levels of fixed facets.
        DataError
            If scores are needed and the result was loaded without them, systems are not connected
            by cells, or a system has no group.
        """
        if self._has_cell_means():
            pairs, sizes = self._pairs()
            assert not isinstance(self.groups, str)
            found = ranking(ap, options.variant, self.groups, pairs.systems)
            return correlation_table(pairs, sizes, options, found)
        return self._faceted(options, ap)

    def _has_cell_means(self) -> bool:
        """Whether the plans are of one sampled facet, with the cell means of the fit."""
        cells, planned = self.record.cells, self.planned
        other = planned.design or planned.fixed or planned.universe
        if cells is None or other or isinstance(self.groups, str):
            return False
        n = planned.sizes or {}
        return len(n) <= 1 and all(facet in cells.facets for facet in n)

    def _pairs(self) -> tuple[PairedDifferences, Any]:
        """Return the paired differences of two facets, and the sizes of the sampled one."""
        cells, n = self.record.cells, self.planned.sizes or {}
        assert cells is not None
        ranked = self.planned.object
        if ranked is not None and ranked not in cells.facets:
            raise PlanError(
                f"there is no facet {ranked!r}{did_you_mean(str(ranked), cells.facets)}; the "
                f"facets are {', '.join(map(repr, cells.facets))}",
                column=ranked,
            )
        others = [facet for facet in cells.facets if facet != ranked]
        sampled = next(iter(n), others[-1])
        if sampled == ranked:
            raise PlanError(f"{ranked!r} is ranked, and has no size; give one of {others[0]!r}")
        system = cells.facets[1 - cells.facets.index(sampled)]
        return cells.differences(system), n.get(sampled)

    def _faceted(self, options: RankOptions, ap: bool) -> pd.DataFrame:
        """Return the table of plans of several random facets."""
        import pandas as pd

        given = {f: n for f, n in (self.planned.sizes or {}).items() if n is not None}
        plan = replace(self.planned, sizes=given).plans(self.components)
        pairs = self._faceted_differences(plan)
        error = self._relative(plan) @ used_components(self.components, "zero").values
        found = ranking(ap, options.variant, self._groups(plan), pairs.systems)
        n = 1.0 / np.maximum(error, _LEAST)
        columns = correlation_columns(pairs, n, options, found, at_hand=plan.is_own)
        sizes = dict(zip(plan.facets, plan.sizes.T, strict=True))
        return pd.DataFrame({f: _whole(x) for f, x in sizes.items()} | columns)

    def _groups(self, plan: DStudyPlan) -> LevelGroups | None:
        """Return the group of each object, which may be its level of a facet it is nested in.

        Raises
        ------
        PlanError
            If the objects are not nested in a facet of this name.
        """
        facet = self.groups
        if not isinstance(facet, str):
            return facet
        outer = plan.objects - {plan.object}
        if facet not in outer:
            raise PlanError(
                f"groups={facet!r} has to be a facet that {plan.object!r} is nested in"
                f"{did_you_mean(facet, outer)}; pass a mapping from its levels to groups"
            )
        model = require_rows(self.rows).model
        term, position = self._term(plan), self.record.structure.facets.index(facet)
        of = np.zeros(model.design.terms[term].size, dtype=np.int64)
        of[model.chunk.codes[term]] = model.chunk.level_codes(position)
        return dict(zip(_names(model.design.group_index(term)), of.tolist(), strict=True))

    def _term(self, plan: DStudyPlan) -> int:
        """Return the number of the term whose levels are ranked."""
        return self.components.facets.index(plan.objects)

    def _relative(self, plan: DStudyPlan) -> FloatArray:
        return weights(self.components, plan).relative

    def _faceted_differences(self, plan: DStudyPlan) -> rank.FacetedDifferences:
        """Return the differences between the objects of measurement in the data."""
        record, components = self.record, self.components
        if record.exog_names != ("Intercept",):
            raise PlanError(
                "rank accuracy needs a formula without covariates, and this one has "
                f"{_first(record.exog_names) or 'no intercept'}; make a facet random and pass "
                "fixed=..."
            )
        own = PlanOptions(
            object=plan.object,
            fixed=self.planned.fixed,
            universe=self.planned.universe,
        ).plans(components)
        _refuse_other_levels(plan, own)
        access = require_rows(self.rows)
        used = used_components(components, "zero")
        relative = self._relative(own)[0]
        parts = relative * used.values
        chunk, facets = access.model.chunk, record.structure.facets
        term = self._term(plan)
        design = access.model.design
        n_compared = design.terms[term].size

        def joined(names: frozenset[str]) -> LongArray:
            codes, n = np.zeros(chunk.response.size, np.int32), 1
            for position, name in enumerate(facets):
                if name in names:
                    keys, codes = number_combinations(
                        codes, n, chunk.level_codes(position), chunk.facet_sizes[position]
                    )
                    n = keys.size
            return codes.astype(np.int64)

        apart = frozenset(f for f, above in components.nested_in.items() if above & plan.objects)
        errors = []
        for effect, part in zip(components.facets, parts, strict=True):
            others = effect - plan.objects
            if part > 0.0:
                groups = None if others & apart else joined(others)
                errors.append(rank.ErrorEffect(groups, float(part)))
        both = np.vstack([relative, self._relative(plan)])
        variance_df, loadings = _spreads(both, components, n_compared)
        return rank.FacetedDifferences.of(
            chunk.y,
            chunk.codes[term].astype(np.int64),
            joined(frozenset(facets) - plan.objects - apart),
            _names(design.group_index(term)),
            errors,
            variance_df,
            chunk.counts,
            loadings,
        )


def _first(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _refuse_other_levels(plan: DStudyPlan, own: DStudyPlan) -> None:
    """Refuse plans with other levels of fixed facets: their true ranking is another."""
    for facet in plan.universe.fixed:
        now, then = (x.sizes[:, x.facets.index(facet)] for x in (plan, own))
        if (now != then[0]).any():
            raise PlanError(
                f"{facet!r} is fixed, so that the true ranking is by its {then[0]:g} levels in "
                f"the data; leave out {facet}=..."
            )


def _spreads(
    relative: FloatArray, components: VarianceComponents, k: int
) -> tuple[float, FloatArray]:
    """Return how well relative error variances are estimated (eq. 15.8e).

    Parameters
    ----------
    relative : (1 + m, components) weights, of the scores and of new tests
    components : with their covariance matrix
    k : number of systems

    Returns
    -------
    df : Satterthwaite's degrees of freedom of the first, for each degree between systems
    loadings : (m, 2) standard deviations of logarithms, for one degree between systems: along with
        the first, and apart from it
    """
    values, cov = components.values, components.cov
    if components.without_bounds is not None:
        values, cov = components.without_bounds
    if cov is None:
        return np.inf, np.zeros((len(relative) - 1, 2))
    errors = np.maximum(relative @ np.maximum(values, 0.0), _LEAST)
    C = relative @ np.nan_to_num(cov) @ relative.T / np.outer(errors, errors)
    own, variances = C[0, 0], np.maximum(np.diag(C)[1:], 0.0)
    along = C[0, 1:] / np.sqrt(own) if own > 0.0 else np.zeros(variances.size)
    apart = np.sqrt(np.maximum(variances - along**2, 0.0))
    degrees = max(k - 1.0, 1.0)
    loadings = np.sqrt(degrees) * np.column_stack([along, apart])
    return (2.0 / own / degrees if own > 0.0 else np.inf), loadings


def _names(index: pd.Index) -> list[str]:
    """Return levels as text, those of several facets joined by colons."""
    if index.nlevels == 1:
        return list(map(str, index))
    return [":".join(map(str, levels)) for levels in index]


def _whole(sizes: FloatArray) -> FloatArray | LongArray:
    return sizes.astype(np.int64) if (sizes == np.round(sizes)).all() else sizes
