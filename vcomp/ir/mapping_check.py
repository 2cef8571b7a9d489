"""Cross-validation of kinds of curves from Eρ² and Φ to other indicators, by collection.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 6, p. 402.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.exceptions import EstimationError, PlanError, check_alpha
from vcomp.ir.mapping import MappingStudy
from vcomp.ir.mapping_fit import FEATURES, checked_features, curve_through, feature_of
from vcomp.ir.reliability_map import Feature

if TYPE_CHECKING:
    import pandas as pd

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
