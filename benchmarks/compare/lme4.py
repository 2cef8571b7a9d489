"""lme4 through Rscript, where R is installed with lme4 and jsonlite."""

from __future__ import annotations

import pandas as pd

from benchmarks.compare.fit import PeerFit
from benchmarks.compare.script import fit_by_script


def fit_lme4(formula: str, data: pd.DataFrame, *, reml: bool, limit: float) -> PeerFit | str:
    """Return the fit, or why there is none; only ``lmer`` itself is timed."""
    criterion = "REML" if reml else "ML"
    return fit_by_script("Rscript", "lme4.R", "lme4", formula, data, criterion, limit=limit)
