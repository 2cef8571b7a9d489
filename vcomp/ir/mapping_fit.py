"""Curves from Eρ² and Φ to other indicators, fitted to halves of one's own collections.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, did_you_mean, guarded
from vcomp.ir.agreement import Measure, complete
from vcomp.ir.mapping import MappingStudy
from vcomp.ir.measures import several
from vcomp.ir.reliability_map import (
    PUBLISHED,
    Coefficient,
    Feature,
    ReliabilityMap,
    feature_values,
)
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix
from vcomp.ir.splits import FEWEST, Halves, draw_halves, observer
from vcomp.ir.two_way_anova import mean_squares
from vcomp.numerics import check_count, run, seed_from, solve

if TYPE_CHECKING:
    import pandas as pd

_STEP = 10
"""Number of topics of the smallest halves, and step between sizes, in the paper."""

_FEWEST_POINTS = 3
_ABSOLUTE = frozenset({"sens_rel", "rmse", "Phi"})
"""Indicators of absolute scores; their curves are functions of Φ."""

_SMALLEST: dict[Coefficient, float] = {"Erho2": 0.8, "Phi": 0.5}
"""Smallest fitted coefficients; about 85 % of the paper's collections are above."""


Variance: TypeAlias = Literal["constant", "shrinking"]
FEATURES: tuple[Feature, ...] = get_args(Feature)


@dataclass(frozen=True, slots=True)
class _Job:
    """Halves of one size of one collection."""

    name: str
    X: FloatArray
    n: int
    seed: int


@guarded
def fit_mapping(
    collections: Mapping[str, ScoresLike] | Iterable[ScoresLike],
    indicators: str | Measure | Iterable[str | Measure] = tuple(PUBLISHED),
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    sizes: int | Iterable[int] | None = None,
    trials: int = 50,
    smallest: Mapping[str, float] | None = None,
    drop_worst: float = 0.25,
    variance: Variance = "constant",
    features: str | Iterable[str] = (),
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> MappingStudy:
    """Fit curves from Eρ² and Φ to other indicators of reliability, from collections of one's own.

    The topics of a collection are split at random into two disjoint sets of n topics. Eρ² and Φ of
    a test of n topics are estimated from each by the analysis of variance, the indicator is
    measured between the two, and each half gives a point. Through the points of all collections
    goes y = x^a, or y = (1 - x)^a for indicators that fall, by least squares.

    Parameters
    ----------
    collections : scores by name, or several without names: long tables with their columns named,
        :class:`ScoreMatrix`, or topic × system matrices, **one row per topic and one column
        per system**; no score may be missing
    indicators : names of :func:`vcomp.ir.measures.available`, or measures with options of their
        own. ``sens_rel`` and ``rmse`` are functions of Φ, all others of Eρ²
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    sizes : topics of the halves. If None as published: 10, 20, … up to half of the collection.
        Sizes above that are left out for this collection
    trials : pairs of halves of each size
    smallest : least coefficients of the points to fit, ``{"Erho2": 0.8, "Phi": 0.5}`` if None
    drop_worst : share of the systems to leave out, the worst by mean score
    variance : of points about a curve: ``"constant"``; or ``"shrinking"`` as a power of 1 - x that
        is estimated, with weighted least squares
    features : of collections that the exponent depends on besides the coefficient:
        ``"n_topics"``, ``"n_systems"`` (both by their logarithm) and ``"topic_share"``, the share
        of topics in the variance of topics and error
    rng : seed, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    MappingStudy
        with ``maps``, curves by indicator, for ``map_reliability(…, mapping=study.maps)``;
        ``points``, ``table``, ``summary()`` and ``plot()``

    Raises
    ------
    DataError
        If there is no collection, two have one name, or one cannot be read, lacks a score, or has
        fewer topics than two of the smallest halves.
    EstimationError
        If sizes, `trials` or `workers` are not positive whole numbers, or an indicator has
        fewer than three points to fit, or values beyond 1, as errors of other scores may.
    PlanError
        If an indicator is unknown or has no curve, `smallest` is out of range, or `variance` or a
        feature is not known.

    Notes
    -----
    The paper does not say how it fitted; this is least squares of y, since τ may be negative. The
    standard error of the exponent treats points of one collection as dependent and collections as
    independent (a sandwich, with Student's t on one less than the collections). From one
    collection it treats all points as independent, and is too small, because halves share topics.

    **A curve applies to collections like those it was fitted to.** Prediction intervals are for
    another pair of halves of these; how far collections lie apart shows in ``by_collection``. Eρ²
    and Φ of the points are themselves estimates from n topics, whose error pulls the curve down.

    :func:`validate_mapping` compares kinds of curves by leaving collections out.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402. Section 4, Figures 2 and 3; section 6 (p. 402) asks
    for different models and features.

    Examples
    --------
    >>> import numpy as np
    >>> from vcomp.ir import fit_mapping, map_reliability
    >>> rng = np.random.default_rng(1)
    >>> collections = {c: rng.normal(size=(40, 20)) + np.linspace(0, 2, 20) for c in "ab"}
    >>> study = fit_mapping(collections, "tau", drop_worst=0.0)
    >>> study
    <MappingStudy: tau from 400 points of 2 collections>
    >>> map_reliability("tau", Erho2=0.9, mapping=study.maps).round(1)
    np.float64(0.8)
    """
    measures = _indicators(indicators)
    limits = _smallest(smallest)
    chosen = checked_features(variance, features)
    columns = {"system": system, "topic": topic, "score": score}
    matrices = _collections(collections, drop_worst, columns)
    trials, workers = check_count(trials, "trials"), check_count(workers, "workers")
    jobs = _jobs(matrices, sizes, seed_from(rng))

    def make() -> Any:
        return lambda number: _points(jobs[number], measures, trials)

    import pandas as pd

    done = run(make, range(len(jobs)), workers=workers, progress=progress, label="halves")
    points = pd.concat([done[k] for k in range(len(jobs))], ignore_index=True)
    maps = {
        m.name: replace(
            curve_through(m, points, limits, variance, chosen),
            by_collection=_by_collection(m, points, limits),
        )
        for m in measures
    }
    return MappingStudy(maps, {m.name: m for m in measures}, points, limits)


def fit_exponent(base: FloatArray, y: FloatArray) -> float:
    """Return a of y = base^a by least squares (eq. 15.12 of the mathematics).

    Parameters
    ----------
    base : (m,) between 0 and 1, some of them inside
    y : (m,) at most 1

    Examples
    --------
    >>> x = np.array([0.7, 0.8, 0.95])
    >>> round(fit_exponent(x, x**2.5), 9)
    2.5
    """
    inside = (base > 0.0) & (base < 1.0)
    theta = _fit_log_exponent(base[inside], y[inside], np.zeros((int(inside.sum()), 0)))
    return float(np.exp(theta[0]))


def _fit_log_exponent(
    base: FloatArray,
    y: FloatArray,
    Z: FloatArray,
    weights: FloatArray | None = None,
    begin: FloatArray | None = None,
) -> FloatArray:
    """Return (1 + f,) log a and its slopes in the (m, f) features Z by weighted least squares."""
    from scipy.optimize import least_squares

    log_base = np.log(base)
    w = np.ones_like(base) if weights is None else weights
    design = np.column_stack([np.ones_like(base), Z])
    if begin is None:
        usual = (y > 0.0) & (y < 1.0)
        a = float(np.median(np.log(y[usual]) / log_base[usual])) if usual.any() else 1.0
        begin = np.array([np.log(a), *np.zeros(Z.shape[1])])
    # Parametrised by log a: a is positive and may have any magnitude.
    minimum = least_squares(
        lambda b: w * (base ** np.exp(design @ b) - y),
        begin,
        jac=lambda b: (w * base ** np.exp(design @ b) * log_base * np.exp(design @ b))[:, None]
        * design,
        xtol=1e-15, ftol=1e-15, gtol=1e-15,
    )  # fmt: skip
    return np.asarray(minimum.x)


def _fit_spread(away: FloatArray, residual: FloatArray) -> tuple[float, float]:
    """Return s and b ≥ 0 of the standard deviation s (1 - x)^b by normal likelihood.

    Parameters
    ----------
    away : (m,) 1 - x, above 0
    residual : (m,) points about the curve
    """
    design = np.column_stack([np.ones_like(away), 2.0 * np.log(away)])
    square = np.square(residual)
    if not square.any():
        return 0.0, 0.0
    beta = np.array([np.log(square.mean()), 0.0])
    # Gamma regression of squares with a log link, whose steps have constant weights
    for _ in range(200):
        step = np.linalg.lstsq(design, square / np.exp(design @ beta) - 1.0, rcond=None)[0]
        beta = beta + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    if beta[1] < 0.0:
        return float(np.sqrt(square.mean())), 0.0
    return float(np.exp(0.5 * beta[0])), float(beta[1])


def curve_through(
    measure: Measure,
    points: pd.DataFrame,
    smallest: Mapping[Coefficient, float],
    variance: Variance = "constant",
    features: tuple[Feature, ...] = (),
) -> ReliabilityMap:
    """Return the curve of an indicator through the points of all collections.

    Parameters
    ----------
    measure : the indicator
    points : as :attr:`MappingStudy.points`
    smallest : least coefficients of the points to fit
    variance, features : as for :func:`fit_mapping`

    Raises
    ------
    EstimationError
        If there are too few points, values beyond 1, or features that do not vary.
    """
    from scipy.special import xlogy

    coefficient, used = _used(measure, points, smallest, len(features))
    x, y = used[coefficient].to_numpy(), used[measure.name].to_numpy()
    rises = measure.larger_is_better
    base = x if rises else 1.0 - x
    inside = (base > 0.0) & (base < 1.0)
    if variance == "shrinking":  # points at the ends carry no information on the variance within
        used, x, y, base = used[inside], x[inside], y[inside], base[inside]
        inside = inside[inside]
    names = used["collection"].to_numpy()
    Z, centres = _features(used, features, len(set(names)))
    theta, power = _fitted(base[inside], y[inside], Z[inside], 1.0 - x[inside], variance)
    a = np.exp(theta[0] + Z @ theta[1:])
    weights = (1.0 - x) ** -power
    residual = weights * (y - base**a)
    slope = weights * a * xlogy(base**a, base)
    jacobian = slope[:, None] * np.column_stack([np.ones_like(x), Z])
    resid_var = float(residual @ residual) / (y.size - theta.size)
    covariance = _sandwich(jacobian, residual, names, resid_var)
    exponent = float(np.exp(theta[0]))
    return ReliabilityMap(
        indicator=measure.name,
        coefficient=coefficient,
        exponent=exponent,
        rises=rises,
        lowest=measure.limits[0],
        bse=exponent * float(np.sqrt(covariance[0, 0])),
        resid_sd=float(np.sqrt(resid_var)),
        nobs=int(y.size),
        n_collections=len(set(names)),
        sd_power=power,
        slopes=dict(zip(features, theta[1:].tolist(), strict=True)),
        centres=dict(zip(features, centres.tolist(), strict=True)),
        covariance=covariance if features else None,
    )


def _used(
    measure: Measure,
    points: pd.DataFrame,
    smallest: Mapping[Coefficient, float],
    n_features: int = 0,
) -> tuple[Coefficient, pd.DataFrame]:
    """Return the coefficient of an indicator, and the points that its curve is fitted to."""
    coefficient: Coefficient = "Phi" if measure.name in _ABSOLUTE else "Erho2"
    used = points[points[coefficient] >= smallest[coefficient]].dropna(subset=[measure.name])
    x, highest = used[coefficient], used[measure.name].max()
    if highest > 1.0:
        raise EstimationError(
            f"{measure.name!r} has values up to {display.number(highest)}, and curves lie below 1"
        )
    inside, needed = int(((x > 0.0) & (x < 1.0)).sum()), _FEWEST_POINTS + n_features
    if inside < needed:
        raise EstimationError(
            f"{measure.name!r} has {inside} points with {coefficient} of at least "
            f"{display.number(smallest[coefficient])}, and a curve needs {needed}; "
            "collections with more topics, or a smaller value in smallest=, have more"
        )
    return coefficient, used


def _by_collection(
    measure: Measure, points: pd.DataFrame, smallest: Mapping[Coefficient, float]
) -> dict[str, float]:
    """Return the exponent of each collection with enough points."""
    coefficient, used = _used(measure, points, smallest)
    exponents = {}
    for name, own in used.groupby("collection", sort=False):
        x, y = own[coefficient].to_numpy(), own[measure.name].to_numpy()
        if ((x > 0.0) & (x < 1.0)).sum() >= _FEWEST_POINTS:
            exponents[str(name)] = fit_exponent(x if measure.larger_is_better else 1.0 - x, y)
    return exponents


def _features(
    used: pd.DataFrame, features: tuple[Feature, ...], n_collections: int
) -> tuple[FloatArray, FloatArray]:
    """Return the (m, f) features centred at their means, and the means."""
    Z = np.column_stack(
        [np.zeros((len(used), 0)), *(feature_values(f, feature_of(used, f)) for f in features)]
    )
    if features and n_collections < len(features) + 2:
        raise EstimationError(
            f"{len(features)} features need {len(features) + 2} collections, and points come from "
            f"{n_collections}; give fewer features="
        )
    for name, column in zip(features, Z.T, strict=True):
        if np.ptp(column) <= 1e-9 * max(float(np.abs(column).max()), 1.0):
            raise EstimationError(f"the feature {name!r} is the same in all points; leave it out")
    centres = Z.mean(axis=0)
    return Z - centres, centres


def feature_of(points: pd.DataFrame, name: Feature) -> FloatArray:
    """Return a feature of the collections of points, such as :attr:`MappingStudy.points`."""
    return points["n" if name == "n_topics" else name].to_numpy(dtype=float)


def _fitted(
    base: FloatArray, y: FloatArray, Z: FloatArray, away: FloatArray, variance: Variance
) -> tuple[FloatArray, float]:
    """Return log a with its slopes, and the exponent b of the standard deviation s (1 - x)^b."""
    theta, power = _fit_log_exponent(base, y, Z), 0.0
    if variance == "constant":
        return theta, power
    for _ in range(50):
        residual = y - base ** np.exp(theta[0] + Z @ theta[1:])
        before = power
        _, power = _fit_spread(away, residual)
        theta = _fit_log_exponent(base, y, Z, away**-power, theta)
        if abs(power - before) < 1e-8:
            break
    return theta, power


def _sandwich(
    jacobian: FloatArray, residual: FloatArray, names: Any, resid_var: float
) -> FloatArray:
    """Return the cluster-robust covariance of the coefficients, clustered by collection."""
    information = jacobian.T @ jacobian
    n_collections = len(set(names))
    if n_collections == 1:
        return np.asarray(resid_var * solve(information, np.eye(len(information))))
    totals = np.array(
        [jacobian[names == name].T @ residual[names == name] for name in dict.fromkeys(names)]
    )
    half = solve(information, totals.T)
    return np.asarray(n_collections / (n_collections - 1.0) * half @ half.T)


def _points(job: _Job, measures: tuple[Measure, ...], trials: int) -> pd.DataFrame:
    """Return two points per split: each half's coefficients and indicators against the other."""
    import pandas as pd

    drawn = draw_halves(len(job.X), job.n, trials, job.seed)
    halves = Halves(
        np.concatenate([drawn.collection, drawn.truth]),
        np.concatenate([drawn.truth, drawn.collection]),
    )
    values = observer(job.X, measures)(halves)
    coefficients = np.array([_coefficients(job.X[topics]) for topics in halves.collection])
    columns: dict[str, Any] = {
        "collection": job.name,
        "n": job.n,
        "trial": np.tile(np.arange(trials), 2),
        "Erho2": coefficients[:, 0],
        "Phi": coefficients[:, 1],
        "n_systems": job.X.shape[1],
        "topic_share": coefficients[:, 2],
    }
    return pd.DataFrame(columns | dict(zip((m.name for m in measures), values, strict=True)))


def _coefficients(X: FloatArray) -> tuple[float, float, float]:
    """Return Eρ², Φ and the share of topics in the variance of topics and error.

    For a test with the topics of `X`; nan if all scores are equal.
    """
    n, k = X.shape
    ms_s, ms_t, ms_e = mean_squares(X)
    system, topic = max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k)
    if system == 0.0 and ms_e == 0.0:
        return np.nan, np.nan, np.nan
    error = topic + ms_e
    share = topic / error if error > 0.0 else np.nan
    return system / (system + ms_e / n), system / (system + error / n), share


def checked_features(variance: object, features: str | Iterable[str]) -> tuple[Feature, ...]:
    """Check features and kind of variance; return the names of the features.

    Raises
    ------
    PlanError
        If the variance or a feature is not known, or a feature is given twice.
    """
    if variance not in get_args(Variance):
        raise PlanError(f"variance is 'constant' or 'shrinking', not {variance!r}")
    names = [features] if isinstance(features, str) else list(features)
    for name in names:
        if name not in FEATURES:
            raise PlanError(
                f"{name!r} is not a feature{did_you_mean(name, FEATURES)}; these are "
                f"{', '.join(map(repr, FEATURES))}"
            )
    if len(set(names)) < len(names):
        raise PlanError("a feature is given twice")
    return tuple(name for name in FEATURES if name in names)


def _indicators(given: str | Measure | Iterable[str | Measure]) -> tuple[Measure, ...]:
    measures = several(given)
    seen: set[str] = set()
    for measure in measures:
        low, high = measure.limits
        falls = low == 0.0 and not measure.larger_is_better
        if not falls and not (high == 1.0 and measure.larger_is_better):
            raise PlanError(
                f"{measure.name!r} has no curve: it goes neither to 1 nor to 0 as Eρ² goes to 1"
            )
        if measure.name in seen:
            raise PlanError(f"{measure.name!r} is given twice, with different options")
        seen.add(measure.name)
    return measures


def _smallest(given: Mapping[str, float] | None) -> dict[Coefficient, float]:
    limits = dict(_SMALLEST)
    if not isinstance(given, Mapping | None):
        raise PlanError(f"smallest is a dict such as {_SMALLEST!r}, not {given!r}")
    for name, value in (given or {}).items():
        if name not in ("Erho2", "Phi"):
            raise PlanError(
                f"smallest is for 'Erho2' and 'Phi', not {name!r}{did_you_mean(name, limits)}"
            )
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not 0.0 <= value < 1.0:
            raise PlanError(f"the smallest {name} is at least 0 and less than 1, not {value!r}")
        limits["Erho2" if name == "Erho2" else "Phi"] = float(value)
    return limits


def _collections(
    given: Mapping[str, ScoresLike] | Iterable[ScoresLike],
    drop_worst: float,
    columns: Mapping[str, str | None],
) -> dict[str, FloatArray]:
    """Return complete matrices by name."""
    is_matrix = isinstance(given, ScoreMatrix) or hasattr(given, "__arrow_c_stream__")
    if is_matrix or getattr(given, "ndim", 0) == 2:
        raise DataError("collections are several matrices: put a single one in a list")
    named = (
        {str(name): one for name, one in given.items()}
        if isinstance(given, Mapping)
        else {str(place): one for place, one in enumerate(given, 1)}
    )
    if not named:
        raise DataError("no collection is given")
    matrices = {}
    for name, scores in named.items():
        try:
            matrices[name] = complete(
                as_score_matrix(scores, **columns).drop_worst(drop_worst), "scores"
            )
        except DataError as error:
            raise DataError(f"collection {name!r}: {error}") from error
    return matrices


def _jobs(
    matrices: Mapping[str, FloatArray], sizes: int | Iterable[int] | None, seed: int
) -> list[_Job]:
    """Return the jobs: sizes of halves to draw from each collection."""
    if sizes is not None:
        sizes = [sizes] if not isinstance(sizes, Iterable) else list(sizes)
        for n in sizes:
            if not isinstance(n, Integral) or isinstance(n, bool) or n < FEWEST:
                raise EstimationError(
                    f"sizes of halves must be whole numbers of at least {FEWEST}, not {n!r}"
                )
        if not sizes:
            raise EstimationError("no size of halves is given: sizes is empty")
    jobs = []
    for place, (name, X) in enumerate(matrices.items()):
        most = len(X) // 2
        wanted = range(_STEP, most + 1, _STEP) if sizes is None else sorted(set(map(int, sizes)))
        usable = [n for n in wanted if n <= most]
        if not usable:
            fewest = 2 * (_STEP if sizes is None else min(wanted))
            raise DataError(
                f"collection {name!r} has {len(X)} topics, and the smallest halves need {fewest}; "
                "sizes= allows smaller ones"
            )
        state = np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)
        jobs += [_Job(name, X, n, int(state[0])) for n in usable]
    return jobs
