"""GeneralizIT, run by a Python interpreter that has it (``pip install generalizit``)."""

from __future__ import annotations

import importlib.util
import sys

import pandas as pd

from benchmarks.compare.fit import PeerFit
from benchmarks.compare.script import fit_by_script


def fit_generalizit(
    terms: dict[str, tuple[str, ...]],
    response: str,
    data: pd.DataFrame,
    *,
    limit: float,
    python: str | None = None,
) -> PeerFit | str:
    """Return the analysis of variance, or why there is none; only that is timed.

    Parameters
    ----------
    terms : the facets of every component, those of the residual too
    python : the interpreter that has it, None for this one
    """
    if python is None and importlib.util.find_spec("generalizit") is None:
        return "GeneralizIT is not installed (see --generalizit)"
    listed = ";".join(f"{name}={','.join(facets)}" for name, facets in terms.items())
    return fit_by_script(
        python or sys.executable,
        "run_generalizit.py",
        "GeneralizIT",
        f"{response}~{listed}",
        data,
        limit=limit,
    )
