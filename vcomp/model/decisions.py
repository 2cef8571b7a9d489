"""The methods of a result on decisions: comparisons, D-studies, the accuracy of rankings.

They pass components and cell means of a fit to :mod:`vcomp.gtheory` and :mod:`vcomp.ir`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp.exceptions import PlanError, did_you_mean
from vcomp.formula import REPLICATE
from vcomp.gtheory import (
    HasDStudies,
    MeanOfScores,
    PlanOptions,
    all_sizes,
    refuse_sizes_as_options,
)
from vcomp.inference import Projected, VarianceComponents
from vcomp.inference.intervals import IntervalSource
from vcomp.ir.rank import RankOptions, TauEstimator, TauInterval, TauTarget, TauVariant
from vcomp.model.interval_sources import IntervalMethod, source_of
from vcomp.model.ranked import RankedFit
from vcomp.model.record import FitRecord
from vcomp.model.row_access import Fitted

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.design import LevelGroups
    from vcomp.gtheory import DStudy
    from vcomp.inference.hypotheses import CovarianceOfFixed, DegreesOfFreedom
    from vcomp.inference.pairwise import CorrectionName, PairwiseComparisons
    from vcomp.ir import Accuracy, Measures, Model, ScoreMatrix
    from vcomp.ir.rank import AccuracyEstimator
    from vcomp.model.level_comparisons import LevelTest


def planned_components(record: FitRecord) -> VarianceComponents:
    """Return the components of a fit for a D-study.

    Raises
    ------
    PlanError
        If cells hold several scores and a facet of the formula has the name ``replicate``.
    """
    if record.structure.replicated and REPLICATE in record.structure.facets:
        raise PlanError(
            f"the cells hold several scores, which a D-study calls {REPLICATE!r}, and a facet "
            "of the formula has that name; rename the column for a D-study"
        )
    return record.tables.components


def cell_matrix(record: FitRecord, ranked: str) -> ScoreMatrix | None:
    """Return the cell means with the ranked facet in columns; None if the fit has none."""
    from vcomp.ir import ScoreMatrix  # deferred for start-up time

    return None if record.cells is None else ScoreMatrix(*record.cells.matrix(ranked))


def sampled_facet(facets: Sequence[str], n: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return the facet that is ranked, the one that is sampled, and its sizes or None."""
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
            f"expected_tau({sizes}) and expected_tau_ap() are of several, and so are Eρ² and Φ of "
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


class Decisions(HasDStudies, Fitted):
    """Comparisons of levels, D-studies, universe scores and rank accuracy of a fit."""

    @property
    def components(self) -> VarianceComponents:
        """Components with facets, nesting, sizes and covariance, as D-studies use them.

        Raises
        ------
        PlanError
            If cells hold several scores and a facet of the formula has the name ``replicate``,
            which a D-study needs for them.
        """
        return planned_components(self._record)

    def _planned_components(self) -> VarianceComponents:
        return planned_components(self._record)

    def _components(self) -> VarianceComponents:
        return self._record.tables.components

    def _source(self, interval: IntervalMethod, negative: Projected) -> IntervalSource:
        return source_of(self._record, self._rows, interval, negative)

    def _mean_of_scores(self) -> MeanOfScores:
        estimate, columns = self._record.estimate, self._record.exog_names
        return MeanOfScores(estimate.beta, estimate.cov_beta, columns == ("Intercept",))

    def compare_levels(
        self,
        facet: str,
        test: LevelTest = "t",
        *,
        levels: Iterable[object] | None = None,
        baseline: object | None = None,
        correction: CorrectionName | None = None,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom | None = None,
        cov_type: CovarianceOfFixed | None = None,
    ) -> PairwiseComparisons:
        """Test the differences between levels of a factor of the fixed part, in pairs.

        Compared are least-squares means (estimated marginal means): levels of other factors have
        equal weights, and covariates their means over the rows. Interactions are averaged in the
        same way, and the result says so.

        Levels of a random term can be compared, too. Their differences are those of predicted
        effects, which are shrunken towards zero: they are predictions with their errors, and no
        tests of levels that somebody chose.

        Parameters
        ----------
        facet : column of a factor of the fixed part, whether it is written as ``sys`` or as
            ``C(sys)``; else the name of a random term
        test : ``"t"``, of each pair; ``"tukey"``, of all pairs at once (Tukey-Kramer if standard
            errors differ); ``"dunnett"``, of all other levels with `baseline` at once
        levels : those to compare, all if None; their order is that of the pairs
        baseline : a level with which each other is compared, in place of all pairs
        correction : of the p-values of ``"t"`` for the number of pairs: ``"holm"`` (the default),
            ``"bonferroni"``, ``"fdr_bh"`` (Benjamini and Hochberg), ``"fdr_by"`` (Benjamini and
            Yekutieli) or ``"none"``; not given for the other tests
        alpha : level of significance; intervals have confidence 1 − alpha
        ddf : degrees of freedom, as for :meth:`t_test`, each pair its own; ``"satterthwaite"`` if
            None. Not given for a random term, whose errors are normal, with the components as if
            known
        cov_type : which covariance matrix, as for :meth:`t_test`; ``"model"`` if None. Not given
            for a random term

        Returns
        -------
        PairwiseComparisons
            The same value as that of :func:`vcomp.ir.compare_systems`: `table` with a row for each
            pair, `groups` of levels that are not distinguished, `summary()` and `plot()`.

        Raises
        ------
        PlanError
            If `facet` is neither a factor of the fixed part nor a random term, or an option is not
            one of the above, or is given to a test that has no use for it.
        DataError
            If a level is not there, or the result was stored without comparisons of `facet`
            (:meth:`~vcomp.VarianceComponentsResults.to_json`).
        FormulaError
            If `facet` is a numerical covariate, its column is also in another expression of the
            fixed part, or the mean of a covariate is not known because there is no intercept.
        EstimationError
            If degrees of freedom or covariance matrix are not available, as for :meth:`t_test`;
            the component of a random term is estimated at zero; or the mean of a level is not
            estimable, as combinations of factors have no rows.

        References
        ----------
        Searle, S. R., Speed, F. M. and Milliken, G. A. (1980). Population marginal means in the
        linear model: an alternative to least squares means. *The American Statistician*, 34,
        216-221.

        Kramer, C. Y. (1956). Extension of multiple range tests to group means with unequal numbers
        of replications. *Biometrics*, 12, 307-310.

        Dunnett, C. W. (1955). A multiple comparison procedure for comparing several treatments
        with a control. *Journal of the American Statistical Association*, 50, 1096-1121.

        Gelman, A., Hill, J. and Yajima, M. (2012). Why we (usually) don't have to worry about
        multiple comparisons. *Journal of Research on Educational Effectiveness*, 5, 189-211.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> compared = res.compare_levels("sys", "tukey")
        >>> compared.groups.round(3)
                      mean group
        sys
        algorithm 3  0.883     a
        algorithm 5  0.767    ab
        algorithm 2  0.720    ab
        algorithm 4  0.650    ab
        algorithm 1  0.600     b
        """
        from vcomp.model.level_comparisons import compare_levels  # deferred for start-up time

        return compare_levels(
            self._record,
            self._rows,
            facet,
            test,
            levels,
            baseline,
            correction,
            alpha,
            ddf,
            cov_type,
        )

    def universe_scores(
        self,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        *,
        alpha: float = 0.05,
        negative: Projected = "zero",
        sizes: Mapping[str, Any] | None = None,
        **n: Any,
    ) -> pd.DataFrame:
        """Return a row for each object of measurement: its universe score and standard errors.

        Parameters
        ----------
        object : the object of measurement, a facet or several (``"doctor:patient"``, whose
            universe score is the sum of the doctor's and the patient's effects); if None, the
            first facet without a size
        alpha : intervals have confidence 1 − alpha
        negative : ``"zero"`` sets negative components to zero in the errors, ``"keep"`` uses them
            as estimated; an error variance below zero then has no root (nan)
        sizes, **n : one size for each of the other facets in the measurement whose errors are
            computed, ``topic=25``; if there is none, each object's own numbers of levels

        Returns
        -------
        pandas.DataFrame
            with the objects as index and the columns

            ``n``, ``mean``
                its number of scores and their mean
            ``universe_score``, ``se``, ``low``, ``high``
                μ̂ + û, its best linear prediction at the mean of the covariates, with the standard
                error of the prediction (components treated as known) and a normal interval. In
                balanced data it is Kelley's: the mean score, shrunken towards the grand mean
            ``sem_rel``, ``sem_abs``
                √σ²(δ) and √σ²(Δ), the relative and absolute standard errors of measurement.
                Without `n` they use its own numbers of levels, and the mean of their squares over
                the objects is the error variance of the D-study
            ``csem_rel``, ``csem_abs``
                conditional standard errors, from the scores of this object (the relative one also
                from their covariance with the scores of the other objects). ``csem_rel`` is nan
                if objects do not all have the same cells equally often, as that covariance is then
                not estimable, and for objects of several facets; both are nan for an object with
                too few scores to estimate its error components

        Raises
        ------
        PlanError
            If the object is not known or has no component, a size is not one positive number, or
            alpha is not between 0 and 1.
        DataError
            If the result was stored without scores of the object
            (:meth:`~vcomp.VarianceComponentsResults.to_json`).
        EstimationError
            If the residual is estimated at zero; or if effects are solved for iteratively, and the
            objects are too many for one solve each.

        References
        ----------
        Brennan (2001), Generalizability Theory, sections 5.4 and 5.5; Brennan (1998), Raw-score
        conditional standard errors of measurement in generalizability theory, Applied
        Psychological Measurement 22, 307-331.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> columns = ["mean", "universe_score", "sem_abs", "csem_abs"]
        >>> res.universe_scores("sys")[columns].round(3).head(2)  # doctest: +NORMALIZE_WHITESPACE
                     mean  universe_score  sem_abs  csem_abs
        sys
        algorithm 1  0.60           0.624    0.054     0.058
        algorithm 2  0.72           0.721    0.054     0.061
        """
        self._refuse_sizes(alpha=alpha, object=object)
        wanted = all_sizes(sizes, n)
        from vcomp.model.universe_scores import universe_scores  # deferred for start-up time

        record, rows = self._record, self._rows
        return universe_scores(record, rows, self.components, object, wanted, alpha, negative)

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
        """Return Eτ, the expected correlation of a ranking by a new test with the true ranking.

        Parameters
        ----------
        design : of the new test in Brennan's notation, as of :meth:`dstudy`
        estimator : ``"shrunken"``, or ``"urbano"`` for the estimator as published
        variant : of τ if systems are tied, ``"a"`` or ``"b"``
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
            facet without a size has that of the data. If none is given, the test at hand, in which
            the first facet of the formula is ranked

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
        self._refuse_sizes(alpha=alpha, object=object, draws=draws, threshold=threshold)
        planned = PlanOptions(design, object, all_sizes(sizes, n), fixed, universe)
        options = RankOptions(estimator, variant, threshold, target, interval, alpha, draws, rng)
        return self._ranked(planned, groups).table(options, ap=False)

    def expected_tau_ap(
        self,
        design: str | None = None,
        *,
        estimator: TauEstimator = "shrunken",
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
        """Return Eτ_AP, in which swaps at the top count more; otherwise as :meth:`expected_tau`.

        Parameters
        ----------
        design, estimator, threshold, target, interval, alpha, draws, rng, groups : as for
            :meth:`expected_tau`
        object, fixed, universe, sizes, **n : as for :meth:`expected_tau`

        Returns
        -------
        pandas.DataFrame
            As :meth:`expected_tau`.

        Raises
        ------
        PlanError, DataError, EstimationError
            As :meth:`expected_tau`.
        """
        self._refuse_sizes(alpha=alpha, object=object, draws=draws, threshold=threshold)
        planned = PlanOptions(design, object, all_sizes(sizes, n), fixed, universe)
        options = RankOptions(estimator, "a", threshold, target, interval, alpha, draws, rng)
        return self._ranked(planned, groups).table(options, ap=True)

    def _refuse_sizes(self, **options: Any) -> None:
        refuse_sizes_as_options(self._record.structure.facets, **options)

    def _ranked(self, planned: PlanOptions, groups: LevelGroups | str | None) -> RankedFit:
        return RankedFit(self._record, self._rows, self.components, planned, groups)

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
        self._refuse_sizes(alpha=alpha, trials=trials, workers=workers)
        ranked, sampled, given = sampled_facet(facets, all_sizes(sizes, n))
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
