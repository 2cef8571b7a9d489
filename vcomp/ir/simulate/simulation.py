"""Stochastic simulation from a topic × system matrix of any kind."""

from __future__ import annotations

from numpy.typing import ArrayLike

from vcomp.ir.scores import ScoresLike, as_score_matrix
from vcomp.ir.simulate.collection_fit import fit_collection as fit_array
from vcomp.ir.simulate.simulator import CollectionSimulator


def fit_collection(
    scores: ScoresLike,
    *,
    drop_worst: float = 0.0,
    margins: str = "kernel",
    homoscedastic: bool = False,
    uncorrelated: bool = False,
    random_sampling: bool = True,
    means: str | ArrayLike = "observed",
    support: ArrayLike | str | None = None,
    copula: str = "gaussian",
    df: float | None = None,
) -> CollectionSimulator:
    """Prepare the simulation of collections with the same systems and new topics.

    The true mean score of every system is known, which is what no collection can tell: how far
    measures of accuracy and their estimates are off can then be seen. It is Algorithm 1 of Urbano
    (2016) with margins ``"kernel"`` or ``"normal"``, else the model of Urbano and Nagler (2018);
    :func:`vcomp.simulate.fit_collection` has them in full, as well as what can go wrong.

    Parameters
    ----------
    scores : topic × system matrix, **a row a topic and a column a system**: nested lists, a 2-D
        array, or a wide frame with the topics in its index. No cell may be missing
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
    >>> simulated = simulator.simulate(50, size=100, rng=1)
    >>> tau = vcomp.ir.measures.get("tau")
    >>> float(tau.actual_of_means(simulated.scores.mean(axis=1), simulated.means).mean().round(2))
    1.0
    """
    matrix = as_score_matrix(scores).drop_worst(drop_worst)
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
