"""From the scores of a collection to a simulator of collections like it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.simulate.asked import (
    Asked,
    check_between_0_and_1,
    check_effects,
    check_options,
    read,
    wanted,
)
from vcomp.simulate.continuous import kernel_margin, normal_margin
from vcomp.simulate.copula import Copula, fitted_df, gaussian, student
from vcomp.simulate.decompose import correlation_factor, decompose, normal_scores
from vcomp.simulate.discrete import support_of
from vcomp.simulate.expected import Spread, spread_of
from vcomp.simulate.margin import Margin
from vcomp.simulate.scale import Scale
from vcomp.simulate.select import EFFECTS, score_margin
from vcomp.simulate.simulator import CollectionSimulator

__all__ = ["fit_collection"]


def fit_collection(
    scores: ArrayLike,
    systems: Sequence[str] | None = None,
    *,
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

    With ``margins="kernel"`` or ``"normal"`` it is Algorithm 1 of Urbano (2016): scores are taken
    apart into effects of systems and topics and residuals; topic effects and residuals are drawn
    from their margins, tied together by a copula; system effects stay as they are.

    * ``"kernel"``: margins are kernel estimates, and effects add up as smoothed logits
      log((x + .05) / (1.05 - x)), so that scores stay between 0 and 1;
    * ``"normal"``: residuals are normal (topic effects still have a kernel estimate), and effects
      add up as scores, which may lie outside 0 and 1.

    With any other margin it is the model of Urbano and Nagler (2018), without effects: scores of
    each system follow a margin of their own, tied together by a copula with the correlations of
    normal scores. Margins are ``"truncated_normal"``, ``"beta"``,
    ``"truncated_kernel"``, ``"beta_kernel"``; with `support` ``"beta_binomial"`` and
    ``"discrete_kernel"``; and ``"auto"``, which takes for each system that with the smallest AIC.

    Parameters
    ----------
    scores : (n_topics, n_systems), **a row a topic and a column a system**, none of them missing
    systems : (n_systems,) names; numbers from 0 if not given
    margins : see above; ``"normal"`` forces the assumption of normality
    homoscedastic : residuals of all systems have one variance, the mean of theirs. Of effects
        only. (A kernel estimate adds the variance of its kernel, which differs.)
    uncorrelated : residuals of systems and topic effects are independent; without effects, the
        scores of different systems are
    random_sampling : topics are a random sample. If not, a collection has mostly hard, easy, or
        middling topics: see :func:`vcomp.simulate.topics.choose_unevenly`. Without effects, the
        hardest topic is that with the smallest sum of normals
    means : true mean scores of the systems. ``"observed"``: those of `scores`; ``"fitted"``: what
        comes of the effects, or of the margins, as they are; or (n_systems,) numbers
    support : possible scores, see :func:`vcomp.simulate.discrete.support_of`; for instance
        ``"P@20"`` or ``"RR@10"``
    copula : ``"gaussian"``, as published, or ``"t"``, under which extremes come together: a topic
        that is unusual for one system is so for more of them. Its correlations are the same
    df : degrees of freedom of the t copula, from 1 on; the fewer, the more often extremes come
        together. If None, those between 1 and 200 with the largest likelihood of the ranks of all
        pairs of systems (and topic effects)

    Returns
    -------
    CollectionSimulator

    Raises
    ------
    DataError
        If `scores` is not a matrix of at least two topics and two systems, or a score is missing,
        infinite or, where margins need it, not between 0 and 1; if topics do not differ, or a
        system differs from the mean of all by the same on each topic; if a system's scores have no
        distribution of the kind that is asked for; if names are not as many as systems, or not
        different.
    PlanError
        If an option is not one of those above, or does not go with the margins.
    EstimationError
        If a margin cannot be fitted, or cannot have the mean that is asked for.

    Notes
    -----
    **True means.** The algorithm keeps effects, not means: on the logit scale, kernel estimates
    being wider than the residuals they come from, simulated scores are on average .002 to .03
    above those of the collection for the four of the paper. ``means="fitted"`` is the algorithm as
    published; ``means="observed"`` moves system effects until expected scores are those observed,
    which is what the paper asks for (sec. 5). ``true_means`` of the result is right either way.

    Correlations are those of the covariance matrix of effects, made positive definite as in the
    paper's code. Kernel widths are by its rule too, that of ``ks::kcde``; the distribution is
    evaluated exactly instead of on a grid of 401 points.

    Without effects, what is kept are margins and the correlations of normal scores. Those of
    scores, and with them the share of the topics, come out lower where a few topics are much
    easier than the rest.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 5, Algorithm 1.

    Urbano, J. and Nagler, T. (2018). Stochastic simulation of test collections: evaluation scores.
    *SIGIR*, 695-704.

    Demarta, S. and McNeil, A. J. (2005). The t copula and related copulas. *International
    Statistical Review*, 73, 111-129.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = fit_collection(scores, ["a", "b", "c"], homoscedastic=True)
    >>> simulator.simulate(100, size=20, rng=1)
    <20 simulated collections of 100 topics × 3 systems>
    """
    X, names = read(scores, systems)
    asked = Asked(margins, homoscedastic, uncorrelated, random_sampling, copula, df)
    check_options(asked, support)
    if margins != "normal":
        check_between_0_and_1(X, names, margins)
    true_means = wanted(means, X, names, bounded=margins != "normal")
    if margins in EFFECTS:
        return _from_effects(X, names, asked, true_means)
    possible = None if support is None else support_of(support)
    return _from_margins(X, names, asked, true_means, possible)


def _from_effects(
    X: FloatArray, names: tuple[str, ...], asked: Asked, true_means: FloatArray | None
) -> CollectionSimulator:
    scale = Scale(logit=asked.margins == "kernel")
    effects = decompose(scale.forward(X))
    check_effects(effects, names, float(np.abs(scale.forward(X)).max()))
    if asked.homoscedastic:
        effects = effects.pooled()
    factor = correlation_factor(effects.covariance())
    if asked.uncorrelated:
        factor = np.eye(len(factor))
    columns = np.column_stack([effects.topics, effects.residuals])
    copula = _copula(asked, columns, factor)
    # Scores beyond 0 and 1, as of discounted gains, have effects that end nowhere.
    inside = scale.logit or bool((X >= 0.0).all() and (X <= 1.0).all())
    reach = scale.reach if inside else np.inf
    topic = kernel_margin(effects.topics, -reach, reach)
    residuals = tuple(
        kernel_margin(e, -reach, reach) if scale.logit else normal_margin(e)
        for e in effects.residuals.T
    )
    spreads = [
        spread_of(topic, margin, copula, float(r))
        for margin, r in zip(residuals, factor[1:, 0], strict=True)
    ]
    offsets, means = _offsets(effects.mean + effects.systems, spreads, scale, true_means)
    return CollectionSimulator(
        X,
        names,
        asked.margins,
        residuals,
        topic,
        scale,
        offsets,
        factor,
        copula,
        asked.homoscedastic,
        asked.uncorrelated,
        asked.random_sampling,
        means,
        np.stack([margin.quantiles for margin in residuals]),
    )


def _copula(asked: Asked, columns: FloatArray, factor: FloatArray) -> Copula:
    """Return the copula that is asked for, its degrees of freedom fitted if none are given."""
    if asked.copula == "gaussian":
        return gaussian()
    return student(fitted_df(columns, factor @ factor.T) if asked.df is None else float(asked.df))


def _offsets(
    fitted: FloatArray, spreads: list[Spread], scale: Scale, true_means: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return grand mean plus system effects, and the means that they lead to."""
    offsets = fitted
    if true_means is not None:
        offsets = np.array(
            [
                spread.offset(float(mean), scale, float(start))
                for spread, mean, start in zip(spreads, true_means, fitted, strict=True)
            ]
        )
    pairs = zip(spreads, offsets, strict=True)
    return offsets, np.array([spread.mean(float(offset), scale) for spread, offset in pairs])


def _from_margins(
    X: FloatArray,
    names: tuple[str, ...],
    asked: Asked,
    true_means: FloatArray | None,
    support: FloatArray | None,
) -> CollectionSimulator:
    fitted: list[Margin] = []
    for s, name in enumerate(names):
        margin = score_margin(X[:, s], asked.margins, support, name)
        if true_means is not None:
            margin = _with_mean(margin, float(true_means[s]), name)
        fitted.append(margin)
    factor = np.eye(len(names))
    if not asked.uncorrelated:
        factor = correlation_factor(np.atleast_2d(np.corrcoef(normal_scores(X), rowvar=False)))
    return CollectionSimulator(
        X,
        names,
        asked.margins,
        tuple(fitted),
        None,
        Scale(logit=False),
        np.zeros(len(names)),
        factor,
        _copula(asked, X, factor),
        False,
        asked.uncorrelated,
        asked.random_sampling,
        np.array([margin.mean for margin in fitted]),
        np.stack([m.limits if m.is_discrete else m.quantiles for m in fitted]),
    )


def _with_mean(margin: Margin, mean: float, system: str) -> Margin:
    try:
        return margin.with_mean(mean)
    except EstimationError as error:
        raise EstimationError(f"system {system!r}: {error}; use means='fitted'") from error
