"""Which table and formula a reference file belongs to, and which files there are of lme4."""

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

COLLECTIONS = [
    "adhoc3", "adhoc3_drop25", "enterprise2006", "enterprise2006_drop25", "genomics2004",
    "genomics2004_drop25", "web2010ap",
]  # fmt: skip
"""TREC collections that Urbano (2016) studied: there is a file ``irj2015_<name>`` of each."""

LME4 = [
    "CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "HugeData", "MLrepro", "adhoc3",
    "adhoc3_drop25", "adhoc3_unbal", "brennan_missing_pxi", "brennan_synthetic1",
    "brennan_synthetic1_unbal", "brennan_synthetic2", "brennan_synthetic2_unbal",
    "brennan_synthetic3", "brennan_synthetic4", "brennan_synthetic4_missing", "dataEP05A2_1",
    "dataEP05A2_1_unbal", "dataEP05A2_2", "dataEP05A2_2_unbal", "dataEP05A3_MS_1",
    "dataEP05A3_MS_1_unbal", "dyestuff", "dyestuff2", "enterprise2006", "genomics2004", "insteval",
    "insteval_service", "narayanan2010", "novelty_small", "novelty_small_missing", "orthodont_ri",
    "pastes", "penicillin", "penicillin_unbal", "sleepstudy_ri", "web2010ap", "web2010p20",
]  # fmt: skip
"""Data that lme4 fitted: there is a file ``lme4_<name>`` of each."""


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
