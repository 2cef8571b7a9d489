"""statsmodels' MixedLM: one grouping factor, or crossed ones within a single group."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import best_of
from benchmarks.compare.fit import PeerFit


def fit_mixedlm_one_way(response: str, group: str, data: pd.DataFrame, *, reml: bool) -> PeerFit:
    """Fit ``response ~ (1|group)``."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    fitted, seconds = _timed(
        lambda: MixedLM.from_formula(f"{response} ~ 1", data, groups=group), reml=reml
    )
    components = {group: float(fitted.cov_re.iloc[0, 0]), "Residual": float(fitted.scale)}
    return PeerFit(components, float(fitted.llf), seconds)


def fit_mixedlm_crossed(
    response: str, groups: list[str], data: pd.DataFrame, *, reml: bool
) -> PeerFit:
    """Fit ``response ~ (1|a) + (1|b) …``: all rows are one group, and its matrix is dense."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    whole = np.zeros(len(data), dtype=int)
    indicators = {group: f"0 + C({group})" for group in groups}
    fitted, seconds = _timed(
        lambda: MixedLM.from_formula(
            f"{response} ~ 1", data, groups=whole, re_formula="0", vc_formula=indicators
        ),
        reml=reml,
    )
    by_name = dict(zip(fitted.model.exog_vc.names, fitted.vcomp, strict=True))
    components = {group: float(by_name[group]) for group in groups}
    return PeerFit({**components, "Residual": float(fitted.scale)}, float(fitted.llf), seconds)


def _timed(make: Any, *, reml: bool) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = best_of(lambda: make().fit(reml=reml), 3)
        return make().fit(reml=reml), seconds
