"""Curves from Eρ² and Φ to other indicators, fitted to halves of one's own collections.

Kinds of curves are compared by leaving collections out in turn.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4; section 6, p. 402.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    check_alpha,
    check_known,
    did_you_mean,
    guarded,
    is_real,
    is_whole,
)
from vcomp.ir.agreement import Measure
from vcomp.ir.mapping import MappingStudy
from vcomp.ir.measures import several
from vcomp.ir.reliability_map import (
    FEATURES,
    PUBLISHED,
    Coefficient,
    Feature,
    Variance,
    curve_through,
    exponents_by_collection,
    feature_of,
)
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.ir.significance import TwoWay
from vcomp.ir.splits import FEWEST, Halves, draw_halves, evaluate_halves
from vcomp.numerics import check_count, run, seed_from

if TYPE_CHECKING:
    import pandas as pd


_STEP = 10
"""Number of topics of the smallest halves, and step between sizes, in the paper."""


_SMALLEST: dict[Coefficient, float] = {"Erho2": 0.8, "Phi": 0.5}
"""Smallest fitted coefficients; about 85 % of the paper's collections are above."""


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
            by_collection=exponents_by_collection(m, points, limits),
        )
        for m in measures
    }
    return MappingStudy(maps, {m.name: m for m in measures}, points, limits)


def _points(job: _Job, measures: tuple[Measure, ...], trials: int) -> pd.DataFrame:
    """Return two points per split: each half's coefficients and indicators against the other."""
    import pandas as pd

    drawn = draw_halves(len(job.X), job.n, trials, job.seed)
    halves = Halves(
        np.concatenate([drawn.collection, drawn.truth]),
        np.concatenate([drawn.truth, drawn.collection]),
    )
    values = evaluate_halves(job.X, measures, [halves])[:, 0]
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
    found = TwoWay.of(X)
    if found.system == 0.0 and found.residual == 0.0:
        return np.nan, np.nan, np.nan
    error, n = found.topic + found.residual, len(X)
    share = found.topic / error if error > 0.0 else np.nan
    relative = found.system / (found.system + found.residual / n)
    return relative, found.system / (found.system + error / n), share


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
        check_known(name, FEATURES, "{} is not a feature; these are", quoted=True)
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
        if not is_real(value) or not 0.0 <= value < 1.0:
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
            if not is_whole(n) or n < FEWEST:
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


KINDS: Mapping[str, Mapping[str, Any]] = {
    "published": {},
    "shrinking": {"variance": "shrinking"},
    "shrinking, features": {"variance": "shrinking", "features": FEATURES},
}
"""Kinds of curves compared by default."""


def validate_mapping(
    study: MappingStudy,
    kinds: Mapping[str, Mapping[str, Any]] = KINDS,
    *,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Cross-validate curves: predict the points of each collection from the others.

    Each collection is left out in turn. The curve through the points of the others predicts its
    points, with prediction intervals.

    Parameters
    ----------
    study : of :func:`fit_mapping`, with several collections
    kinds : options ``variance`` and ``features`` of :func:`fit_mapping` by name
    alpha : prediction intervals have confidence 1 − alpha

    Returns
    -------
    pandas.DataFrame
        One row per indicator and kind: ``nobs`` points, ``rmse`` and ``bias`` of the prediction;
        ``coverage`` of the prediction intervals, and that of the tenth of the points with the
        largest coefficient, ``coverage_top``; ``length``, the mean length of the intervals; and
        ``worst``, the lowest coverage of a collection.

    Raises
    ------
    PlanError
        If `study` is another object, an option is not known, or alpha is out of range.
    EstimationError
        If there are fewer than three collections, or fewer than three more than a kind has
        features, or too few points without one.

    Notes
    -----
    With few collections the coverage has a large error of its own: that of each collection
    depends on one shift of its points.

    Examples
    --------
    >>> import numpy as np
    >>> from vcomp.ir import fit_mapping, validate_mapping
    >>> rng = np.random.default_rng(1)
    >>> collections = [rng.normal(size=(40, 20)) + np.linspace(0, 2, 20) for _ in range(3)]
    >>> study = fit_mapping(collections, "tau", drop_worst=0.0, trials=20)
    >>> kinds = {"constant": {}, "shrinking": {"variance": "shrinking"}}
    >>> validate_mapping(study, kinds)[["kind", "nobs", "rmse"]].round(2)
            kind  nobs  rmse
    0   constant   150  0.07
    1  shrinking   150  0.07
    """
    import pandas as pd

    check_alpha(alpha)
    if not isinstance(study, MappingStudy):
        raise PlanError(f"study is a result of fit_mapping(), not a {type(study).__name__}")
    for name, options in kinds.items():
        strange = set(options) - {"variance", "features"}
        if strange:
            raise PlanError(f"kind {name!r} has the unknown option {sorted(strange)[0]!r}")
    names = list(dict.fromkeys(study.points["collection"]))
    if len(names) < 3:
        raise EstimationError(
            f"leaving out needs three collections, and the study has {len(names)}"
        )
    for name, options in kinds.items():
        n = len(_features_of(options))
        if n and len(names) < n + 3:
            raise EstimationError(
                f"kind {name!r} has {n} features: it needs {n + 3} collections, one of them left "
                f"out, and the study has {len(names)}; give kinds= with fewer features"
            )
    rows = []
    for indicator in study.maps:
        for kind, options in kinds.items():
            parts = [_left_out(study, indicator, name, options, alpha) for name in names]
            rows.append({"indicator": indicator, "kind": kind, **_scores(pd.concat(parts))})
    return pd.DataFrame(rows)


def _features_of(options: Mapping[str, Any]) -> tuple[Feature, ...]:
    return checked_features(options.get("variance", "constant"), options.get("features", ()))


def _left_out(
    study: MappingStudy, indicator: str, name: str, options: Mapping[str, Any], alpha: float
) -> pd.DataFrame:
    """Return the points of a collection with the predictions from the others."""
    variance, features = options.get("variance", "constant"), _features_of(options)
    points, coefficient = study.points, study.maps[indicator].coefficient
    others = points[points["collection"] != name]
    curve = curve_through(study.measures[indicator], others, study.smallest, variance, features)
    left = points[
        (points["collection"] == name) & (points[coefficient] >= study.smallest[coefficient])
    ].dropna(subset=[indicator])
    predicted = curve.predict(
        left[coefficient].to_numpy(),
        features={feature: feature_of(left, feature) for feature in features},
        alpha=alpha,
    )
    y = left[indicator].to_numpy()
    return predicted.assign(
        collection=name,
        x=left[coefficient].to_numpy(),
        error=predicted["estimate"].to_numpy() - y,
        inside=(predicted["obs_low"].to_numpy() <= y) & (y <= predicted["obs_high"].to_numpy()),
        length=predicted["obs_high"] - predicted["obs_low"],
    )


def _scores(predicted: pd.DataFrame) -> dict[str, float]:
    top = predicted["x"] >= predicted["x"].quantile(0.9)
    return {
        "nobs": len(predicted),
        "rmse": float(np.sqrt(np.square(predicted["error"]).mean())),
        "bias": float(predicted["error"].mean()),
        "coverage": float(predicted["inside"].mean()),
        "coverage_top": float(predicted.loc[top, "inside"].mean()),
        "length": float(predicted["length"].mean()),
        "worst": float(predicted.groupby("collection")["inside"].mean().min()),
    }
