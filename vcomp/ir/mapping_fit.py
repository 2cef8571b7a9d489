"""Curves from Eρ² and Φ to other indicators, fitted to halves of one's own collections.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, did_you_mean
from vcomp.ir.agreement import Measure, complete
from vcomp.ir.mapping import PUBLISHED, Coefficient, MappingStudy, ReliabilityMap
from vcomp.ir.measures import several
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix
from vcomp.ir.splits import FEWEST, Halves, draw_halves, observer
from vcomp.ir.two_way_anova import mean_squares
from vcomp.numerics import check_count, run, seed_from

if TYPE_CHECKING:
    import pandas as pd

_STEP = 10
"""Topics of the smallest halves, and from one size to the next, in the paper."""

_FEWEST_POINTS = 3
_ABSOLUTE = frozenset({"sens_rel", "rmse", "Phi"})
"""Indicators of absolute scores, which are functions of Φ."""

_SMALLEST: dict[Coefficient, float] = {"Erho2": 0.8, "Phi": 0.5}
"""Points below these are not fitted: about 85 % of the paper's collections are above."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Halves of one size of one collection."""

    name: str
    X: FloatArray
    n: int
    seed: int


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
        If an indicator is unknown or has no curve, or `smallest` is out of range.

    Notes
    -----
    The paper does not say how it fitted; this is least squares of y, since τ may be negative. The
    standard error of the exponent treats points of one collection as dependent and collections as
    independent (a sandwich, with Student's t on one less than the collections). From one
    collection it treats all points as independent, and is too small, because halves share topics.

    **A curve applies to collections like those it was fitted to.** Prediction intervals are for
    another pair of halves of these; how far collections lie apart shows in ``by_collection``. Eρ²
    and Φ of the points are themselves estimates from n topics, whose error pulls the curve down.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402. Section 4, Figures 2 and 3.

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
    columns = {"system": system, "topic": topic, "score": score}
    matrices = _collections(collections, drop_worst, columns)
    trials, workers = check_count(trials, "trials"), check_count(workers, "workers")
    jobs = _jobs(matrices, sizes, seed_from(rng))

    def make() -> Any:
        return lambda number: _points(jobs[number], measures, trials)

    import pandas as pd

    done = run(make, range(len(jobs)), workers=workers, progress=progress, label="halves")
    points = pd.concat([done[k] for k in range(len(jobs))], ignore_index=True)
    maps = {m.name: _map(m, points, limits) for m in measures}
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
    from scipy.optimize import least_squares

    inside = (base > 0.0) & (base < 1.0)
    base, y = base[inside], y[inside]
    log_base = np.log(base)
    usual = (y > 0.0) & (y < 1.0)
    start = float(np.median(np.log(y[usual]) / log_base[usual])) if usual.any() else 1.0
    # The logarithm of a is sought: a is positive, and may be of any size.
    found = least_squares(
        lambda b: base ** np.exp(b) - y,
        [np.log(start)],
        jac=lambda b: (base ** np.exp(b) * log_base * np.exp(b))[:, None],
        xtol=1e-15, ftol=1e-15, gtol=1e-15,
    )  # fmt: skip
    return float(np.exp(found.x[0]))


def _map(
    measure: Measure, points: pd.DataFrame, smallest: Mapping[Coefficient, float]
) -> ReliabilityMap:
    """Return the curve of an indicator through the points of all collections."""
    coefficient: Coefficient = "Phi" if measure.name in _ABSOLUTE else "Erho2"
    used = points[points[coefficient] >= smallest[coefficient]].dropna(subset=[measure.name])
    x, y = used[coefficient].to_numpy(), used[measure.name].to_numpy()
    if y.size and y.max() > 1.0:
        raise EstimationError(
            f"{measure.name!r} has values up to {display.number(y.max())}, and curves lie below 1"
        )
    rises = measure.larger_is_better
    base = x if rises else 1.0 - x
    inside = (base > 0.0) & (base < 1.0)
    if inside.sum() < _FEWEST_POINTS:
        raise EstimationError(
            f"{measure.name!r} has {int(inside.sum())} points with {coefficient} of at least "
            f"{display.number(smallest[coefficient])}, and a curve needs {_FEWEST_POINTS}; "
            "collections with more topics, or a smaller value in smallest=, have more"
        )
    a = fit_exponent(base, y)
    residual = y - base**a
    slope = np.where(inside, base**a * np.log(np.where(inside, base, 1.0)), 0.0)
    resid_var = float(residual @ residual) / (y.size - 1)
    names = used["collection"].to_numpy()
    by_collection = {
        name: fit_exponent(base[names == name], y[names == name])
        for name in dict.fromkeys(names)
        if inside[names == name].sum() >= _FEWEST_POINTS
    }
    information = float(slope @ slope)
    variance, n_collections = resid_var / information, len(set(names))
    if n_collections > 1:
        totals = used.assign(score=slope * residual).groupby("collection")["score"].sum()
        share = n_collections / (n_collections - 1.0)
        variance = share * float(np.square(totals).sum()) / information**2
    return ReliabilityMap(
        indicator=measure.name,
        coefficient=coefficient,
        exponent=a,
        rises=rises,
        lowest=measure.limits[0],
        bse=float(np.sqrt(variance)),
        resid_sd=float(np.sqrt(resid_var)),
        nobs=int(y.size),
        n_collections=n_collections,
        by_collection=by_collection,
    )


def _points(job: _Job, measures: tuple[Measure, ...], trials: int) -> pd.DataFrame:
    """Return two points a split: each half by its own coefficients, against the other."""
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
    }
    return pd.DataFrame(columns | dict(zip((m.name for m in measures), values, strict=True)))


def _coefficients(X: FloatArray) -> tuple[float, float]:
    """Return Eρ² and Φ of a test with as many topics as there are; nan if all scores are equal."""
    n, k = X.shape
    ms_s, ms_t, ms_e = mean_squares(X)
    system, topic = max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k)
    if system == 0.0 and ms_e == 0.0:
        return np.nan, np.nan
    return system / (system + ms_e / n), system / (system + (topic + ms_e) / n)


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
    found = {}
    for name, scores in named.items():
        try:
            found[name] = complete(
                as_score_matrix(scores, **columns).drop_worst(drop_worst), "scores"
            )
        except DataError as error:
            raise DataError(f"collection {name!r}: {error}") from error
    return found


def _jobs(
    matrices: Mapping[str, FloatArray], sizes: int | Iterable[int] | None, seed: int
) -> list[_Job]:
    """Return the sizes of halves to draw from each collection."""
    if sizes is not None:
        sizes = [sizes] if not isinstance(sizes, Iterable) else list(sizes)
        for n in sizes:
            if not isinstance(n, Integral) or isinstance(n, bool) or n < FEWEST:
                raise EstimationError(
                    f"sizes of halves are whole numbers from {FEWEST} on, not {n!r}"
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
        own = np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)
        jobs += [_Job(name, X, n, int(own[0])) for n in usable]
    return jobs
