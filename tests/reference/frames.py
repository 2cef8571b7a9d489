"""Which table and formula a reference file belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

CODED_AS_IN_R = {
    # R orders the levels of a factor as the package stores them, Python alphabetically.
    "distance~Sex*age+(1|Subject)": "distance ~ C(Sex, Treatment('Male'))*age + (1|Subject)",
    "y~service+(1|s)+(1|d)+(1|dept:service)": "y ~ C(service)+(1|s)+(1|d)+(1|dept:service)",
}


def formula_of(stored: dict[str, Any]) -> str:
    """Return the formula in the coding that the reference used."""
    text: str = stored["formula"]
    return CODED_AS_IN_R.get(text, text)


def frame_of(stored: dict[str, Any], shared_data: Callable[[str], Path]) -> pd.DataFrame:
    """Return the rows that a reference file was computed from, in long form."""
    frame = pd.read_csv(shared_data(Path(stored["data_file"]).name))
    response = str(stored["formula"]).partition("~")[0].strip()
    if response not in frame.columns:
        frame = frame.assign(topic=np.arange(1, len(frame) + 1)).melt(
            id_vars="topic", var_name="sys", value_name=response
        )
    if stored["drop_fraction"]:
        means = frame.groupby("sys")[response].mean()
        kept = means.index[means >= np.quantile(means, stored["drop_fraction"])]
        frame = frame[frame["sys"].isin(kept)]
    for column, level in (stored["subset"] or {}).items():
        frame = frame[frame[column] == level]
    return frame.reset_index(drop=True)


def by_name(values: dict[str, Any], names: list[str]) -> np.ndarray:
    """Return stored values in the order of our components."""
    return np.array([np.nan if values[n] is None else values[n] for n in names], dtype=float)
