"""Accuracy of the ranking of the levels of a facet by tests of any design, from a fit.

With two crossed facets it is estimated from the cell means, else from scores and components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, did_you_mean, guarded
from vcomp.gtheory import DStudyPlan, PlanOptions, all_sizes, weights
from vcomp.inference import VarianceComponents, used_components
from vcomp.ir import rank
from vcomp.ir.rank import (
    PairedDifferences,
    RankOptions,
    TauEstimator,
    TauInterval,
    TauTarget,
    TauVariant,
    correlation_columns,
    correlation_table,
    ranking,
)
from vcomp.model.interval_sources import IntervalMethod
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, require_rows
from vcomp.model.universe_scores import UniverseScores

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.design import LevelGroups
    from vcomp.gtheory import DStudy
    from vcomp.ir import Accuracy, Measures, Model, ScoreMatrix
    from vcomp.ir.rank import AccuracyEstimator

_SHOWN = 5
"""Largest number of names in a message."""

_LEAST = 1e-300
"""Smallest error variance of a plan: its inverse is still finite."""


class RankAccuracy(UniverseScores):
    """Accuracy of the ranking of the levels of a facet by tests of other sizes."""

    @guarded
    def expected_tau(
        self,
        design: str | None = None,
        *,
        estimator: TauEstimator = "shrunken",
        variant: TauVariant = "a",
        threshold: float = 0.0,
        target: TauTarget = "test",
        interval: TauInterval = "auto",
        alpha: float = 0.05,
        draws: int = 2_000,
        rng: int | np.random.Generator | None = None,
        groups: LevelGroups | str | None = None,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        fixed: str | Sequence[str] = (),
        universe: Mapping[str, float] | None = None,
        sizes: Mapping[str, Any] | None = None,
        **n: Any,
    ) -> pd.DataFrame:
        """Return Eτ or Eτ_AP, expected between the ranking by a new test and the true ranking.

        Parameters
        ----------
        design : of the new test in Brennan's notation, as of :meth:`dstudy`
        estimator : ``"shrunken"``, or ``"urbano"`` for the estimator as published
        variant : ``"a"`` or ``"b"`` for τ, as τ_a or τ_b if systems are tied; ``"ap"`` for τ_AP,
            in which swaps at the top count more
        threshold : largest difference of systems that count as equal
        target : quantity of the interval: ``"test"``, τ of one test, or ``"expectation"``, its
            expectation over tests
        interval : how it is made: ``"draws"``; ``"independent"``, as published; or ``"auto"``:
            ``"independent"`` for ``estimator="urbano"`` and ``target="test"``, else ``"draws"``
        alpha : intervals have confidence 1 − alpha
        draws : number of draws for ``interval="draws"``
        rng : seed or ``numpy.random.Generator``; 0 if not given
        groups : the group of each system, if one system of each group is ranked: a mapping, a
            function of a system's name, or a facet that systems are nested in; see
            :func:`vcomp.ir.expected_tau`
        object, fixed, universe : of the new test, as of :meth:`dstudy`: the facet that is ranked,
            fixed facets and finite universes
        sizes, **n : sizes of the sampled facets in the new test, ``topic=[25, 50], assessor=2``; a
            facet without a size has that of the data. If none is given, the observed test, in
            which the first facet of the formula is ranked

        Returns
        -------
        pandas.DataFrame
            With columns n, estimate, variance, low, high and estimator. Instead of n, a column for
            each sampled facet where there are several, replicates of cells have a size, or
            `design`, `fixed` or `universe` is given.

        Raises
        ------
        PlanError
            If a plan is invalid, as of :meth:`dstudy`; if it has other levels of a fixed facet
            than the data, or an option is invalid; or if the formula has covariates.
        DataError
            If there are several sampled facets and the result was loaded without its rows, systems
            are not connected by common cells, or a system has no group.
        EstimationError
            If `rng` is neither a seed nor a generator.

        See Also
        --------
        vcomp.ir.expected_tau : the same from a matrix of scores
        vcomp.ir.normal_tau : from the Eρ² of a D-study alone, for new systems

        Notes
        -----
        With several sampled facets, such as topics and assessors, the probability of a swap is
        (section 15.3a of the mathematics)

            w_ij = T(-ρ D_ij / (h_ij √(2σ²(δ)))),

        with σ²(δ) the relative error variance of the plan in a D-study, ρ² the Eρ² of the data
        (its distribution is that of a mean square with the effective degrees of freedom of σ²(δ)),
        and h_ij how much this pair varies compared with others. With one sampled facet, complete
        data and the analysis of variance this is the formula for two facets, and
        ``estimator="urbano"`` the published one. Errors of all facets are taken to have the same
        correlations between systems.

        References
        ----------
        Urbano (2016), Information Retrieval Journal 19, section 4.3.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ (1|sys*topic) + (1|query) + (1|sys:query)", data)
        >>> table = res.expected_tau(topic=[50, 150], query=2)
        >>> table[["topic", "query", "estimate", "estimator"]].round(2)
           topic  query  estimate estimator
        0     50      2      0.70  shrunken
        1    150      2      0.77  shrunken
        """
        known = {"alpha": alpha, "object": object, "draws": draws, "threshold": threshold}
        wanted = all_sizes(sizes, n, self._record.structure.facets, **known)
        planned = PlanOptions(design, object, wanted, fixed, universe)
        options = RankOptions(estimator, variant, threshold, target, interval, alpha, draws, rng)
        return self._ranked(planned, groups).table(options)

    def _ranked(self, planned: PlanOptions, groups: LevelGroups | str | None) -> RankedFit:
        return RankedFit(self._record, self._rows, self.components, planned, groups)

    @guarded
    def accuracy(
        self,
        measures: Measures | None = None,
        *,
        estimator: AccuracyEstimator = "shrunken",
        alpha: float = 0.05,
        negative: Literal["zero", "keep"] = "zero",
        interval: IntervalMethod = "auto",
        model: Model | None = None,
        trials: int | None = None,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        progress: bool | None = None,
        sizes: Mapping[str, Any] | None = None,
        **n: Any,
    ) -> Accuracy:
        """Return the accuracy of tests of other sizes, by several measures.

        Eρ², Φ, ε and F come from the components of this fit, as :meth:`dstudy` projects them; τ
        and τ_AP are those of :meth:`expected_tau`; all others are extrapolated from halves.

        Parameters
        ----------
        measures : names of :func:`vcomp.ir.measures.available`, or measures with options; if None,
            those of τ, τ_AP, Eρ², Φ and ε that the design has
        estimator : of τ and τ_AP, ``"shrunken"`` or ``"urbano"``; or ``"split_half"`` for all
            measures
        alpha : intervals have confidence 1 − alpha
        negative : of the D-study, ``"zero"`` or ``"keep"``; see :meth:`dstudy`
        interval : of the D-study, see :meth:`dstudy`
        model, trials, rng, workers, progress : see :func:`vcomp.ir.accuracy`
        sizes, **n : the sampled facet and its sizes: ``topic=[25, 50]``. If not given, those of
            the collection itself, in which the first facet of the formula is ranked

        Returns
        -------
        vcomp.ir.Accuracy
            with ``table``, ``predict()`` for further sizes, ``summary()`` and ``plot()``

        Raises
        ------
        PlanError
            If the facet is not known, several have sizes, or one is not positive; if a measure,
            model or estimator is unknown; if the design does not have two crossed facets and a
            measure needs their cell means (Eρ², Φ and ε need none); or if an option applies to
            none of the measures.
        DataError
            If a cell is empty and a measure is extrapolated from halves, or two systems have fewer
            than two topics in common.

        See Also
        --------
        vcomp.ir.accuracy : the same from a matrix, with a description of the intervals

        References
        ----------
        Urbano (2016), Information Retrieval Journal 19, section 4.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> columns = ["measure", "n", "estimate", "estimator"]
        >>> res.accuracy(["Erho2", "rmse"], topic=[3, 6]).table[columns].round(3)
          measure  n  estimate estimator
        0   Erho2  3     0.809   D-study
        1   Erho2  6     0.895   D-study
        2    rmse  3     0.054   D-study
        3    rmse  6     0.038   D-study
        """
        from vcomp.ir import accuracy_of  # deferred for start-up time: a fit needs no measures

        facets, n_levels = self._record.structure.facets, self._record.structure.n_levels
        wanted = all_sizes(sizes, n, facets, alpha=alpha, trials=trials, workers=workers)
        ranked, sampled, given = sampled_facet(facets, wanted)
        levels = dict(zip(facets, n_levels, strict=True))

        def study(planned: Any) -> DStudy:
            return self.dstudy(
                object=ranked,
                sizes={sampled: planned},
                alpha=alpha,
                negative=negative,
                interval=interval,
            )

        return accuracy_of(
            cell_matrix(self._record, ranked),
            study,
            measures,
            given,
            {ranked: levels[ranked], sampled: levels[sampled]},
            estimator=estimator,
            alpha=alpha,
            negative=negative,
            interval=interval,
            model=model,
            trials=trials,
            rng=rng,
            workers=workers,
            progress=progress,
        )


def cell_matrix(record: FitRecord, ranked: str) -> ScoreMatrix | None:
    """Return the cell means with the ranked facet in columns; None if the fit has none."""
    from vcomp.ir import ScoreMatrix  # deferred for start-up time

    return (
        None if record.tables.cells is None else ScoreMatrix(*record.tables.cells.matrix(ranked))
    )


def sampled_facet(facets: Sequence[str], n: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return the ranked facet, the sampled facet, and its sizes or None."""
    unknown = [facet for facet in n if facet not in facets]
    if unknown:
        raise PlanError(
            f"there is no facet {unknown[0]!r}{did_you_mean(unknown[0], facets)}; the facets "
            f"are {', '.join(map(repr, facets))}",
            column=unknown[0],
        )
    if len(n) > 1:
        sizes = ", ".join(f"{facet}={value!r}" for facet, value in n.items())
        raise PlanError(
            f"accuracy is over sizes of one facet, and {' and '.join(n)} have sizes; "
            f"expected_tau({sizes}) is of several, and so are Eρ² and Φ of "
            f"dstudy({sizes})"
        )
    if len(facets) < 2 or (not n and len(facets) > 2):
        raise PlanError(
            "accuracy needs sizes of one facet, such as "
            f"{facets[-1]}=50; the facets are {', '.join(map(repr, facets))}, and sizes are given "
            f"for {', '.join(map(repr, n)) or 'none'}"
        )
    sampled = next(iter(n), facets[1])
    ranked = next(facet for facet in facets if facet != sampled)
    return ranked, sampled, n.get(sampled)


@dataclass(frozen=True, slots=True)
class RankedFit:
    """Data of a fit for rank accuracy, and the plans of new tests.

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

    def table(self, options: RankOptions) -> pd.DataFrame:
        """Return Eτ or Eτ_AP of the plans.

        Parameters
        ----------
        options : how they are estimated

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
            statistic = ranking(options.variant, self.groups, pairs.systems)
            return correlation_table(pairs, sizes, options, statistic)
        return self._faceted(options)

    def _has_cell_means(self) -> bool:
        """Whether the plans are of one sampled facet, with the cell means of the fit."""
        cells, planned = self.record.tables.cells, self.planned
        other = planned.design or planned.fixed or planned.universe
        if cells is None or other or isinstance(self.groups, str):
            return False
        n = planned.sizes or {}
        return len(n) <= 1 and all(facet in cells.facets for facet in n)

    def _pairs(self) -> tuple[PairedDifferences, Any]:
        """Return the paired differences of two facets, and the sizes of the sampled one."""
        cells, n = self.record.tables.cells, self.planned.sizes or {}
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
            raise PlanError(
                f"{ranked!r} is ranked, and has no size; give one of {others[0]!r}", column=ranked
            )
        system = cells.facets[1 - cells.facets.index(sampled)]
        return cells.differences(system), n.get(sampled)

    def _faceted(self, options: RankOptions) -> pd.DataFrame:
        """Return the table of plans of several random facets."""
        import pandas as pd

        given = {f: n for f, n in (self.planned.sizes or {}).items() if n is not None}
        plan = replace(self.planned, sizes=given).plans(self.components)
        pairs = self._faceted_differences(plan)
        error = self._relative(plan) @ used_components(self.components, "zero").values
        statistic = ranking(options.variant, self._groups(plan), pairs.systems)
        n = 1.0 / np.maximum(error, _LEAST)
        columns = correlation_columns(pairs, n, options, statistic, at_hand=plan.is_own)
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
                f"{did_you_mean(facet, outer)}; pass a mapping from its levels to groups",
                column=facet,
            )
        data = require_rows(self.rows).data
        design, chunk = data.design, data.statistics.rows
        term, position = self._term(plan), self.record.structure.facets.index(facet)
        of = np.zeros(design.terms[term].size, dtype=np.int64)
        of[chunk.codes[term]] = chunk.level_codes(position)
        return dict(zip(_names(design.group_index(term)), of.tolist(), strict=True))

    def _term(self, plan: DStudyPlan) -> int:
        """Return the number of the term whose levels are ranked."""
        return self.components.facets.index(plan.objects)

    def _relative(self, plan: DStudyPlan) -> FloatArray:
        return weights(self.components, plan).relative

    def _faceted_differences(self, plan: DStudyPlan) -> rank.FacetedDifferences:
        """Return the differences between the objects of measurement in the data."""
        record, components = self.record, self.components
        if record.exog_names != ("Intercept",):
            covariates = display.shortened(record.exog_names, _SHOWN) or "no intercept"
            raise PlanError(
                "rank accuracy needs a formula without covariates, and this one has "
                f"{covariates}; make a facet random and pass fixed=..."
            )
        options = PlanOptions(
            object=plan.object,
            fixed=self.planned.fixed,
            universe=self.planned.universe,
        ).plans(components)
        _refuse_other_levels(plan, options)
        access = require_rows(self.rows)
        used = used_components(components, "zero")
        relative = self._relative(options)[0]
        parts = relative * used.values
        chunk, facets = access.data.statistics.rows, record.structure.facets
        term = self._term(plan)
        design = access.data.design
        n_compared = design.terms[term].size

        def joined(names: frozenset[str]) -> LongArray:
            return chunk.cells(at for at, name in enumerate(facets) if name in names)[0]

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


def _refuse_other_levels(plan: DStudyPlan, own: DStudyPlan) -> None:
    """Refuse plans with other levels of fixed facets: their true ranking is another."""
    for facet in plan.universe.fixed:
        now, then = (x.sizes[:, x.facets.index(facet)] for x in (plan, own))
        if (now != then[0]).any():
            raise PlanError(
                f"{facet!r} is fixed, so that the true ranking is by its {then[0]:g} levels in "
                f"the data; leave out {facet}=...",
                column=facet,
            )


def _spreads(
    relative: FloatArray, components: VarianceComponents, k: int
) -> tuple[float, FloatArray]:
    """Return the accuracy of estimated relative error variances (eq. 15.8e).

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
