"""The methods of a result on decisions: D-studies, universe scores and the accuracy of rankings.

They pass components and cell means of a fit to :mod:`vcomp.gtheory` and :mod:`vcomp.ir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp.exceptions import PlanError, did_you_mean
from vcomp.formula import REPLICATE
from vcomp.gtheory import HasDStudies, MeanOfScores, all_sizes
from vcomp.inference import Projected, VarianceComponents
from vcomp.inference.intervals import IntervalSource
from vcomp.ir import ScoreMatrix
from vcomp.ir.rank import (
    PairedDifferences,
    TauEstimator,
    TauInterval,
    TauTarget,
    TauVariant,
    expected_correlation,
)
from vcomp.model.interval_sources import IntervalMethod, source_of
from vcomp.model.record import FitRecord
from vcomp.model.row_access import Fitted
from vcomp.model.universe_scores import universe_scores

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.gtheory import DStudy
    from vcomp.ir import Accuracy, Measures, Model
    from vcomp.ir.rank import AccuracyEstimator


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


def ranked_pairs(record: FitRecord, n: Mapping[str, Any]) -> tuple[PairedDifferences, Any]:
    """Return the paired differences of the ranked facet, and the sizes of the sampled one.

    Parameters
    ----------
    record : of the fit
    n : the sampled facet and its sizes; may be empty

    Raises
    ------
    PlanError
        If there are no cell means, or a facet is not one of the two.
    """
    cells = record.cells
    if cells is None:
        raise PlanError(
            "rank accuracy needs the cell means of two facets (systems and topics), and this "
            f"result has {', '.join(record.structure.facets)}; average the scores to a "
            "topic × system matrix and call vcomp.ir.expected_tau(matrix)"
        )
    if len(n) > 1 or any(facet not in cells.facets for facet in n):
        raise PlanError(
            f"give one size of {cells.facets[0]!r} or of {cells.facets[1]!r}, such as "
            f"{cells.facets[1]}=50, not of {', '.join(map(repr, n))}"
        )
    sampled = next(iter(n), cells.facets[1])
    system = cells.facets[1 - cells.facets.index(sampled)]
    return cells.differences(system), n.get(sampled)


def cell_matrix(record: FitRecord, ranked: str) -> ScoreMatrix | None:
    """Return the cell means with the ranked facet in columns; None if the fit has none."""
    return None if record.cells is None else ScoreMatrix(*record.cells.matrix(ranked))


def sampled_facet(facets: Sequence[str], n: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return the facet that is ranked, the one that is sampled, and its sizes or None."""
    unknown = [facet for facet in n if facet not in facets]
    if unknown:
        raise PlanError(
            f"there is no facet {unknown[0]!r}{did_you_mean(unknown[0], facets)}; the facets "
            f"are {', '.join(map(repr, facets))}"
        )
    if len(n) > 1 or len(facets) < 2 or (not n and len(facets) > 2):
        raise PlanError(
            "accuracy needs sizes of one facet, such as "
            f"{facets[-1]}=50; the facets are {', '.join(map(repr, facets))}, and sizes are given "
            f"for {', '.join(map(repr, n)) or 'none'}"
        )
    sampled = next(iter(n), facets[1])
    ranked = next(facet for facet in facets if facet != sampled)
    return ranked, sampled, n.get(sampled)


class Decisions(HasDStudies, Fitted):
    """D-studies, universe scores and rank accuracy of a fit."""

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
            If the result was loaded without its rows.
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
        access, wanted = self._row_access, all_sizes(sizes, n)
        return universe_scores(access, self.components, object, wanted, alpha, negative)

    def expected_tau(
        self,
        *,
        estimator: TauEstimator = "shrunken",
        variant: TauVariant = "a",
        threshold: float = 0.0,
        target: TauTarget = "test",
        interval: TauInterval = "auto",
        alpha: float = 0.05,
        draws: int = 2_000,
        rng: int | np.random.Generator | None = None,
        **n: Any,
    ) -> pd.DataFrame:
        """Return Eτ, the expected correlation of a ranking by n topics with the true ranking.

        Parameters
        ----------
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
        **n : the sampled facet and its sizes: ``topic=[25, 50]``; None for the test at hand. If
            not given, the first facet of the formula is ranked by the observed levels of the
            second

        Returns
        -------
        pandas.DataFrame with columns n, estimate, variance, low, high, estimator

        Raises
        ------
        PlanError
            If the design does not have exactly two crossed facets, the facet is not one of them,
            or an option is invalid.
        EstimationError
            If `rng` is neither a seed nor a generator.

        See Also
        --------
        vcomp.ir.expected_tau : the same from a matrix of scores

        References
        ----------
        Urbano (2016), Information Retrieval Journal 19, section 4.3.
        """
        pairs, sizes = ranked_pairs(self._record, n)
        return expected_correlation(
            pairs,
            sizes,
            estimator=estimator,
            variant=variant,
            threshold=threshold,
            target=target,
            interval=interval,
            alpha=alpha,
            draws=draws,
            rng=rng,
        )

    def expected_tau_ap(
        self,
        *,
        estimator: TauEstimator = "shrunken",
        threshold: float = 0.0,
        target: TauTarget = "test",
        interval: TauInterval = "auto",
        alpha: float = 0.05,
        draws: int = 2_000,
        rng: int | np.random.Generator | None = None,
        **n: Any,
    ) -> pd.DataFrame:
        """Return Eτ_AP, in which swaps at the top count more; otherwise as :meth:`expected_tau`.

        Parameters
        ----------
        estimator, threshold, target, interval, alpha, draws, rng, **n : as for
            :meth:`expected_tau`

        Returns
        -------
        pandas.DataFrame with columns n, estimate, variance, low, high, estimator

        Raises
        ------
        PlanError, EstimationError
            As :meth:`expected_tau`.
        """
        pairs, sizes = ranked_pairs(self._record, n)
        return expected_correlation(
            pairs,
            sizes,
            ap=True,
            estimator=estimator,
            threshold=threshold,
            target=target,
            interval=interval,
            alpha=alpha,
            draws=draws,
            rng=rng,
        )

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
