"""R's VCA through Rscript, where R is installed with VCA and jsonlite."""

from __future__ import annotations

import pandas as pd

from benchmarks.compare.fit import PeerFit
from benchmarks.compare.script import fit_by_script


def fit_vca(formula: str, data: pd.DataFrame, *, limit: float) -> PeerFit | str:
    """Return the Type I analysis, or why there is none; only ``anovaVCA`` itself is timed.

    Parameters
    ----------
    formula : without bars, as all its terms are random: ``"y ~ a/b"``
    """
    return fit_by_script("Rscript", "vca.R", "VCA", formula, data, limit=limit)
