"""Stochastic simulation from a topic × system matrix of any kind."""

from __future__ import annotations

from numpy.typing import ArrayLike

from vcomp.ir.scores import ScoresLike, as_score_matrix
from vcomp.ir.simulate.collection_fit import CopulaName, MarginFamily, MeansOf
from vcomp.ir.simulate.collection_fit import fit_collection as fit_array
from vcomp.ir.simulate.simulator import CollectionSimulator


def fit_collection(
    scores: ScoresLike,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    drop_worst: float = 0.0,
    margins: MarginFamily = "kernel",
    homoscedastic: bool = False,
    uncorrelated: bool = False,
    random_sampling: bool = True,
    means: MeansOf | ArrayLike = "observed",
    support: ArrayLike | str | None = None,
    copula: CopulaName = "gaussian",
    df: float | None = None,
) -> CollectionSimulator:
    """Return a simulator of collections with the same systems and new topics.

    The true mean score of every system is known, as it is of no real collection, so that errors of
    measures of accuracy and of their estimates can be computed. It is Algorithm 1 of Urbano
    (2016) with margins ``"kernel"`` or ``"normal"``, else the model of Urbano and Nagler (2018);
    :func:`vcomp.simulate.fit_collection` has them in full, with its limitations.

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix,
        **a row a topic and a column a system**. No score may be missing
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    margins : ``"kernel"`` or, to force normal residuals, ``"normal"``; of scores without effects
        ``"truncated_normal"``, ``"beta"``, ``"truncated_kernel"``, ``"beta_kernel"``, with
        `support` ``"beta_binomial"`` and ``"discrete_kernel"``, or ``"auto"``
    homoscedastic, uncorrelated : force these assumptions
    random_sampling : False for collections whose topics are no random sample
    means : true means: ``"observed"``, ``"fitted"`` (the algorithm as published), or one number a
        system
    support : possible scores, or ``"P@k"``, ``"RR@k"``, ``"RR"``
    copula : ``"gaussian"``, as published, or ``"t"``, under which extremes come together
    df : degrees of freedom of the t copula; fitted if None

    Returns
    -------
    vcomp.simulate.CollectionSimulator
        with ``simulate(n_topics, size, rng=…)``, ``true_means`` and ``summary()``

    Raises
    ------
    DataError, PlanError, EstimationError
        As :func:`vcomp.simulate.fit_collection` and :func:`vcomp.ir.as_score_matrix`.

    See Also
    --------
    vcomp.ir.diagnose : how like the original simulated collections are

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 5.

    Examples
    --------
    >>> import vcomp
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = vcomp.ir.fit_collection(scores)
    >>> simulated = simulator.simulate(50, n=100, rng=1)
    >>> tau = vcomp.ir.measures.get("tau")
    >>> float(tau.actual_of_means(simulated.scores.mean(axis=1), simulated.means).mean().round(2))
    1.0
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    matrix = matrix.drop_worst(drop_worst)
    return fit_array(
        matrix.scores,
        matrix.systems,
        margins=margins,
        homoscedastic=homoscedastic,
        uncorrelated=uncorrelated,
        random_sampling=random_sampling,
        means=means,
        support=support,
        copula=copula,
        df=df,
    )
