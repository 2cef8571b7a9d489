"""Fit a simulator of collections to the scores of one (section 16 of the mathematics)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import ORIENTATIONS
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    check_known,
    did_you_mean,
    guarded,
    is_real,
)
from vcomp.ir.scores import ScoreMatrix, ScoresLike, check_matrix, complete, names_of
from vcomp.ir.simulate.copula import (
    COPULAS,
    Copula,
    Effects,
    Scale,
    Spread,
    correlation_factor,
    decompose,
    fitted_df,
    gaussian,
    normal_scores,
    scaled_factor,
    spread_of,
    student,
)
from vcomp.ir.simulate.margin import Margin, with_nonnormality
from vcomp.ir.simulate.margin_families import (
    EFFECTS,
    FAMILIES,
    kernel_margin,
    normal_margin,
    score_margin,
    support_of,
)
from vcomp.ir.simulate.simulator import CollectionSimulator

_CONSTANT = 1e-12
"""Relative rounding error: smaller residuals count as zero."""

_LEAST_SD = 1e-6
"""Least s.d. of the residuals of a system, relative to the largest."""


MarginFamily: TypeAlias = Literal[
    "kernel",
    "normal",
    "truncated_normal",
    "beta",
    "truncated_kernel",
    "beta_kernel",
    "beta_binomial",
    "discrete_kernel",
    "auto",
]
CopulaName: TypeAlias = Literal["gaussian", "t"]
MeansOf: TypeAlias = Literal["observed", "fitted"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of :func:`fit_collection`, under their names there."""

    margins: MarginFamily
    heteroscedasticity: float
    nonnormality: float
    correlation: float
    random_sampling: bool
    copula: CopulaName
    df: float | None


def read_complete(
    scores: ScoresLike,
    systems: Sequence[str] | None,
    drop_worst: float,
    names: Mapping[str, str | None],
) -> tuple[FloatArray, tuple[str, ...]]:
    """Return a complete topic × system array, and the names of the systems.

    Parameters
    ----------
    scores : of any form that :func:`vcomp.ir.as_score_matrix` reads
    systems : names that replace those of the scores
    drop_worst : see :meth:`vcomp.ir.ScoreMatrix.drop_worst`
    names : columns of a long table by role

    Raises
    ------
    DataError
        If there are fewer than two topics or systems, a score of the systems that are kept is
        missing or not a number, or the names are not unique or not as many as systems.
    """
    table = ORIENTATIONS["system"].read(scores, names)
    if min(table.values.shape) < 2:
        raise DataError(
            "a simulation needs at least two topics (rows) and two systems (columns); "
            f"there are {table.values.shape[0]} × {table.values.shape[1]}"
        )
    labels = _names(table.columns if systems is None else systems, table.values.shape[1])
    checked = check_matrix(ScoreMatrix(table.values, names_of(table.rows), labels))
    kept = checked.drop_worst(drop_worst)
    # Always in row-major order: sums in another order differ in the last bit.
    return np.array(complete(kept), order="C"), kept.systems


def _names(systems: Any, n_systems: int) -> tuple[str, ...]:
    if isinstance(systems, str | bytes) or not isinstance(systems, Iterable):
        raise DataError(f"systems= is a list of names, not {systems!r}")
    given = list(systems)
    if any(name is None or name != name for name in given):
        raise DataError("names of systems are text or numbers, not None or nan")
    names = tuple(map(str, given))
    if len(names) != n_systems:
        raise DataError(f"there are {len(names)} names for {n_systems} systems")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"system {twice[0]!r} is named twice", level=twice[0])
    return names


def check_options(options: FitOptions, support: object) -> None:
    """Refuse unknown options and invalid combinations.

    Raises
    ------
    PlanError
        Naming the option and its allowed values.
    """
    _check_copula(options)
    check_known(options.margins, FAMILIES, "margins={} is not known; margins are")
    for name in ("heteroscedasticity", "nonnormality", "correlation"):
        _check_dial(name, getattr(options, name))
    if not isinstance(options.random_sampling, bool | np.bool_):
        raise PlanError(f"random_sampling is True or False, not {options.random_sampling!r}")
    if options.margins in EFFECTS and support is not None:
        raise PlanError(
            f"support= needs margins of scores; margins={options.margins!r} are those of "
            "residuals. Use 'beta_binomial', 'discrete_kernel' or 'auto'"
        )
    for name, allowed in (("heteroscedasticity", EFFECTS), ("nonnormality", ("kernel",))):
        if options.margins not in allowed and getattr(options, name) != 1.0:
            known = " or ".join(map(repr, allowed))
            raise PlanError(
                f"{name}={display.number(getattr(options, name))} changes margins of residuals, "
                f"margins={known}, not margins={options.margins!r}"
            )


_LARGEST_DIAL = 10.0


def _check_dial(name: str, value: object) -> None:
    if not is_real(value) or not 0.0 <= value <= _LARGEST_DIAL:
        raise PlanError(
            f"{name} is a number from 0 (none) over 1 (as in the scores) to {_LARGEST_DIAL:g}, "
            f"not {value!r}"
        )


def _check_copula(options: FitOptions) -> None:
    if options.copula not in COPULAS:
        raise PlanError(
            f"copula={options.copula!r} is not known{did_you_mean(options.copula, COPULAS)}; it "
            "is 'gaussian' or 't'"
        )
    if options.copula == "t" and options.correlation == 0.0:
        raise PlanError(
            "copula='t' makes extremes dependent even without correlation; use "
            "copula='gaussian' with correlation=0"
        )
    if options.df is None:
        return
    if options.copula != "t":
        raise PlanError("df= are the degrees of freedom of copula='t'; the Gaussian one has none")
    if not is_real(options.df) or not 1.0 <= options.df < np.inf:
        raise PlanError(
            f"df= must be finite and at least 1, not {options.df!r}; for infinitely many use "
            "copula='gaussian'"
        )


def check_between_0_and_1(X: FloatArray, names: tuple[str, ...], margins: str) -> None:
    """Refuse scores outside [0, 1], which have no logit.

    Raises
    ------
    DataError
        Naming the first score outside.
    """
    outside = np.argwhere((X < 0.0) | (X > 1.0))
    if outside.size:
        topic, system = outside[0]
        raise DataError(
            f"margins={margins!r} needs scores between 0 and 1; that of system "
            f"{names[system]!r} on topic number {topic + 1} is {X[topic, system]:g}. Scale the "
            "scores, or use margins='normal'",
            level=names[system],
        )


def true_means_of(
    means: str | ArrayLike, X: FloatArray, names: tuple[str, ...], bounded: bool
) -> FloatArray | None:
    """Return the requested true means; None if they are fitted.

    Raises
    ------
    PlanError
        If they are not numbers, or a system cannot have its mean.
    """
    if isinstance(means, str):
        if means not in ("observed", "fitted"):
            known = ("observed", "fitted")
            raise PlanError(
                f"means={means!r} is not known{did_you_mean(means, known)}; it is 'observed', "
                "'fitted', or a number for each system"
            )
        return X.mean(axis=0) if means == "observed" else None
    try:
        values = np.asarray(means, dtype=float)
    except (TypeError, ValueError) as error:
        raise PlanError(f"means holds a number for each system: {error}") from error
    if values.shape != (len(names),):
        raise PlanError(f"means holds {values.size} numbers for {len(names)} systems")
    wrong = ~np.isfinite(values) | (bounded & ((values <= 0.0) | (values >= 1.0)))
    if wrong.any():
        s = int(wrong.argmax())
        what = "between 0 and 1" if bounded else "finite"
        raise PlanError(
            f"means of system {names[s]!r} is {values[s]:g}; it must be {what}", level=names[s]
        )
    return values


def check_effects(effects: Effects, names: tuple[str, ...], largest: float) -> None:
    """Refuse effects without variance.

    Parameters
    ----------
    effects : of topics and systems
    names : of the systems
    largest : largest absolute score on the scale of the effects

    Raises
    ------
    DataError
        If topics are all alike, or a system has no residuals.
    """
    tolerance = _CONSTANT * max(largest, 1.0)
    if float(np.ptp(effects.topics)) <= tolerance:
        raise DataError(
            "the mean score is the same on every topic, so that there are no topic effects to "
            "simulate"
        )
    constant = np.ptp(effects.residuals, axis=0) <= tolerance
    if constant.any():
        name = names[int(constant.argmax())]
        raise DataError(
            f"system {name!r} differs from the mean of all systems by the same amount on every "
            "topic, so that it has no residuals to simulate; leave it out",
            level=name,
        )


@guarded
def fit_collection(
    scores: ScoresLike,
    systems: Sequence[str] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    drop_worst: float = 0.0,
    margins: MarginFamily = "kernel",
    heteroscedasticity: float = 1.0,
    nonnormality: float = 1.0,
    correlation: float = 1.0,
    random_sampling: bool = True,
    means: MeansOf | ArrayLike = "observed",
    support: ArrayLike | str | None = None,
    copula: CopulaName = "gaussian",
    df: float | None = None,
) -> CollectionSimulator:
    """Return a simulator of collections with the same systems and new topics.

    With ``margins="kernel"`` or ``"normal"`` it is Algorithm 1 of Urbano (2016): scores are
    decomposed into effects of systems and topics and residuals; topic effects and residuals are
    drawn from their margins, joined by a copula; system effects are kept (eqs. 16.1 and
    16.2 of the mathematics).

    * ``"kernel"``: margins are kernel estimates, and effects add up as smoothed logits
      log((x + .05) / (1.05 - x)), so that scores stay between 0 and 1;
    * ``"normal"``: residuals are normal (topic effects still have a kernel estimate), and effects
      add up as scores, which may lie outside 0 and 1.

    With any other margin it is the model of Urbano and Nagler (2018), without effects: scores of
    each system follow a margin of their own, joined by a copula with the correlations of normal
    scores. Margins are ``"truncated_normal"``, ``"beta"``,
    ``"truncated_kernel"``, ``"beta_kernel"``; with `support` ``"beta_binomial"`` and
    ``"discrete_kernel"``; and ``"auto"``, for each system the one with the smallest AIC.

    Parameters
    ----------
    scores : long table with its columns named, :class:`vcomp.ir.ScoreMatrix`, or (n_topics,
        n_systems) matrix, **one row per topic and one column per system**; no score may be missing
    systems : (n_systems,) names; if None those of the scores, numbers from 0 of an array
    system, topic, score : columns of a long table. If one of them is given, each other is the
        column of its own name
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`vcomp.ir.ScoreMatrix.drop_worst`
    margins : see above; ``"normal"`` forces the assumption of normality
    heteroscedasticity : how much the variances of the residuals differ between systems: 1 as in
        `scores`; 0 not at all, all are the mean of theirs; in between and beyond, up to 10,
        logarithms of variances differ so many times as much, with the same mean of the variances.
        Of effects only. (A kernel estimate adds the variance of its kernel, which differs.)
    nonnormality : how much the distributions of residuals differ from normal ones, of
        ``margins="kernel"`` only: 1 as in `scores`; 0 not at all, on the scale of logits; in
        between and beyond, up to 10, quantiles differ so many times as much from those of the
        normal distribution, with the mean and the variance of the kernel estimate
    correlation : how much residuals of systems and topic effects (without effects, the scores of
        systems) are correlated: 1 as in `scores`; 0 not at all; in between correlations are so
        many times those; beyond, up to 10, they are those of the nearest correlation matrix,
        and grow by less
    random_sampling : topics are a random sample. If not, a collection has mostly hard, easy, or
        medium topics (section 16.3 of the mathematics). Without effects, the hardest topic is
        that with the smallest sum of normals
    means : true mean scores of the systems. ``"observed"``: those of `scores`; ``"fitted"``: those
        that the effects or margins imply; or (n_systems,) numbers
    support : possible scores, see :func:`vcomp.simulate.support_of`; for instance ``"P@20"`` or
        ``"RR@10"``
    copula : ``"gaussian"``, as published, or ``"t"``, under which extremes occur together: a topic
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
        distribution of the requested kind; if names are not as many as systems, or not
        different.
    PlanError
        If an option does not have an allowed value, or cannot be combined with the margins.
    EstimationError
        If a margin cannot be fitted, or cannot have the requested mean.

    Notes
    -----
    **True means.** The algorithm keeps effects, not means: on the logit scale, kernel estimates
    being wider than the residuals they come from, simulated scores are on average .002 to .03
    above those of the collection for the four of the paper. ``means="fitted"`` is the algorithm as
    published; ``means="observed"`` moves system effects until expected scores are those observed,
    which the paper requires (sec. 5). ``true_means`` of the result is right either way.

    Correlations are those of the covariance matrix of effects, made positive definite as in the
    paper's code. Kernel widths are by its rule too, that of ``ks::kcde``; the distribution is
    evaluated exactly instead of on a grid of 401 points.

    Without effects, margins and the correlations of normal scores are kept. Those of
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
    >>> simulator = fit_collection(scores, ["a", "b", "c"], heteroscedasticity=0)
    >>> simulator.simulate(100, n=20, rng=1)
    <20 simulated collections of 100 topics × 3 systems>
    """
    columns = {"system": system, "topic": topic, "score": score}
    X, names = read_complete(scores, systems, drop_worst, columns)
    dials = (heteroscedasticity, nonnormality, correlation)
    options = FitOptions(margins, *dials, random_sampling, copula, df)
    check_options(options, support)
    if margins != "normal":
        check_between_0_and_1(X, names, margins)
    true_means = true_means_of(means, X, names, bounded=margins != "normal")
    if margins in EFFECTS:
        return _from_effects(X, names, options, true_means)
    possible = None if support is None else support_of(support)
    return _from_margins(X, names, options, true_means, possible)


def _from_effects(
    X: FloatArray,
    names: tuple[str, ...],
    options: FitOptions,
    true_means: FloatArray | None,
) -> CollectionSimulator:
    scale = Scale(logit=options.margins == "kernel")
    effects = decompose(scale.forward(X))
    check_effects(effects, names, float(np.abs(scale.forward(X)).max()))
    if options.heteroscedasticity != 1.0:
        effects = _with_variances(effects, names, float(options.heteroscedasticity))
    unscaled = correlation_factor(effects.covariance())
    columns = np.column_stack([effects.topics, effects.residuals])
    copula = _copula(options, columns, unscaled)
    factor = scaled_factor(unscaled, float(options.correlation))
    # Scores outside [0, 1], such as discounted gains, have unbounded effects.
    inside = bool((X >= 0.0).all() and (X <= 1.0).all())
    reach = scale.reach if inside else np.inf
    topic = kernel_margin(effects.topics, -reach, reach)
    residuals = tuple(
        with_nonnormality(kernel_margin(e, -reach, reach), float(options.nonnormality))
        if scale.logit
        else normal_margin(e)
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
        options.margins,
        residuals,
        topic,
        scale,
        offsets,
        factor,
        copula,
        float(options.heteroscedasticity),
        float(options.nonnormality),
        float(options.correlation),
        options.random_sampling,
        means,
        np.stack([margin.quantiles for margin in residuals]),
    )


def _with_variances(effects: Effects, names: tuple[str, ...], power: float) -> Effects:
    sd = effects.residuals.std(axis=0, ddof=1)
    if (sd.min() / sd.max()) ** power < _LEAST_SD:
        raise PlanError(
            f"heteroscedasticity={display.number(power)} leaves next to no variance to system "
            f"{names[int(sd.argmin())]!r}; use at most "
            f"{display.number(np.floor(np.log(_LEAST_SD) / np.log(sd.min() / sd.max())))}",
            level=names[int(sd.argmin())],
        )
    return effects.with_variances(power)


def _copula(options: FitOptions, columns: FloatArray, factor: FloatArray) -> Copula:
    """Return the requested copula, with fitted degrees of freedom if none are given."""
    if options.copula == "gaussian":
        return gaussian()
    return student(
        fitted_df(columns, factor @ factor.T) if options.df is None else float(options.df)
    )


def _offsets(
    fitted: FloatArray, spreads: list[Spread], scale: Scale, true_means: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return offsets (grand mean plus system effects), and the resulting expected scores."""
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
    options: FitOptions,
    true_means: FloatArray | None,
    support: FloatArray | None,
) -> CollectionSimulator:
    fitted: list[Margin] = []
    for s, name in enumerate(names):
        margin = score_margin(X[:, s], options.margins, support, name)
        if true_means is not None:
            margin = _with_mean(margin, float(true_means[s]), name)
        fitted.append(margin)
    unscaled = correlation_factor(np.atleast_2d(np.corrcoef(normal_scores(X), rowvar=False)))
    return CollectionSimulator(
        X,
        names,
        options.margins,
        tuple(fitted),
        None,
        Scale(logit=False),
        np.zeros(len(names)),
        scaled_factor(unscaled, float(options.correlation)),
        _copula(options, X, unscaled),
        1.0,
        1.0,
        float(options.correlation),
        options.random_sampling,
        np.array([margin.mean for margin in fitted]),
        np.stack([m.limits if m.is_discrete else m.quantiles for m in fitted]),
    )


def _with_mean(margin: Margin, mean: float, system: str) -> Margin:
    try:
        return margin.with_mean(mean)
    except EstimationError as error:
        raise EstimationError(
            f"system {system!r}: {error}; use means='fitted'", level=system
        ) from error
