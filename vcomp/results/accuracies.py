"""How accurate tests of other sizes would be, as far as a fit tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcomp.dstudy.sizes import all_sizes
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.results.decisions import Decisions
from vcomp.results.inference import IntervalMethod

if TYPE_CHECKING:
    import numpy as np

    from vcomp.ir.accuracies import EstimatorChoice, Measures
    from vcomp.ir.accuracy_result import Accuracy
    from vcomp.ir.curve import Model

__all__ = ["Accuracies"]


class Accuracies(Decisions):
    """Measures of the accuracy of a test collection, from the components and the cell means."""

    def accuracy(
        self,
        measures: Measures | None = None,
        *,
        estimator: EstimatorChoice = "best",
        alpha: float = 0.05,
        negative: str = "zero",
        method: IntervalMethod = "auto",
        model: Model | None = None,
        trials: int | None = None,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        progress: bool | None = None,
        sizes: Mapping[str, Any] | None = None,
        **n: Any,
    ) -> Accuracy:
        """Return how near to the truth tests of other sizes would come, by several measures.

        Eρ², Φ, ε and F come from the components of this fit, as :meth:`dstudy` projects them; τ
        and τ_AP are those of :meth:`expected_tau`; all others are extrapolated from halves.

        Parameters
        ----------
        measures : names of :func:`vcomp.ir.measures.available`, or measures with options; τ, τ_AP,
            Eρ², Φ and ε if None, or those of them that the design has
        estimator : ``"best"``, or ``"split_half"`` for all measures
        alpha : intervals have confidence 1 − alpha
        negative, method : of the D-study, see :meth:`dstudy`
        model, trials, rng, workers, progress : see :func:`vcomp.ir.accuracy`
        sizes, **n : the facet that is sampled anew, and its sizes: ``topic=[25, 50]``. Without one
            it is the collection itself, in which the formula's first facet is ranked

        Returns
        -------
        vcomp.ir.Accuracy
            with ``table``, ``predict()`` for further sizes, ``summary()`` and ``plot()``

        Raises
        ------
        PlanError
            If the facet is not known, several have sizes, or one is not positive; if a measure,
            model or estimator is unknown; if the design does not have two crossed facets and a
            measure needs their cell means (Eρ², Φ and ε need none); or if an option is of none of
            the measures.
        DataError
            If a cell is empty and a measure has to be extrapolated from halves, or two systems
            have fewer than two topics in common.

        See Also
        --------
        vcomp.ir.accuracy : the same from a matrix, and what the intervals are

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
        from vcomp.ir import ScoreMatrix, accuracies
        from vcomp.ir.measures.base import sizes as check_sizes

        cells = self._record.cells
        ranked, sampled, given = self._sampled(all_sizes(sizes, n))
        if measures is None and cells is None:
            measures = [kind.name for kind in accuracies.PLANNED]
        taken = accuracies.read_measures(measures)
        asked = None if given is None else check_sizes(given)
        levels = dict(zip(self.design.facets, self.design.n_levels, strict=True))
        study = None
        if accuracies.needs_dstudy(taken, estimator, negative, method):
            study = self.dstudy(
                object=ranked,
                sizes={sampled: levels[sampled] if asked is None else asked.tolist()},
                alpha=alpha,
                negative=negative,
                method=method,
            )
        return accuracies.accuracy_of(
            None if cells is None else ScoreMatrix(*cells.matrix(ranked)),
            study,
            taken,
            asked,
            (ranked, sampled),
            (levels[ranked], levels[sampled]),
            estimator=estimator,
            alpha=alpha,
            splits=accuracies.Splits(model, trials, rng, workers, progress),
        )

    def _sampled(self, n: Mapping[str, Any]) -> tuple[str, str, Any]:
        """Return the facet that is ranked, the one that is sampled, and its sizes or None."""
        facets = list(self.design.facets)
        unknown = [facet for facet in n if facet not in facets]
        if unknown:
            raise PlanError(
                f"there is no facet {unknown[0]!r}{did_you_mean(unknown[0], facets)}; the facets "
                f"are {', '.join(map(repr, facets))}"
            )
        if len(n) > 1 or len(facets) < 2 or (not n and len(facets) > 2):
            raise PlanError(
                "accuracy is that of tests of so many levels of one facet, such as "
                f"{facets[-1]}=50; the facets are {', '.join(map(repr, facets))}, and given are "
                f"the sizes of {', '.join(map(repr, n)) or 'none'}"
            )
        sampled = next(iter(n), facets[1])
        ranked = next(facet for facet in facets if facet != sampled)
        return ranked, sampled, n.get(sampled)
