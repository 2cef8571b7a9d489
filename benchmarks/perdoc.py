"""Per-document scores, simulated: p × a × (d:i), topics with unequal numbers of documents.

The data of the tables on growth, missing cells and speed. Participants p and
assessors a are crossed with documents d, which are nested in topics i; there is one score a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

COMPONENTS = {
    "p": 0.01, "a": 0.002, "i": 0.03, "d": 0.05, "p:a": 0.001, "p:i": 0.02, "a:i": 0.01,
    "p:d": 0.1, "a:d": 0.05, "p:a:i": 0.005, "Residual": 0.2,
}  # fmt: skip
"""What is simulated, in the order of ``benchmarks.common.FULL_MODEL``."""

SMALL, MIDDLE, LARGE = 8_040, 115_080, 5_879_040
"""Rows: 67 documents in 10 topics, 959 and 48,992 in 50."""

N_SYSTEMS, N_ASSESSORS = 60, 2
_FEWEST, _MOST = 200, 1_899


def perdoc(
    n_rows: int,
    *,
    n_topics: int = 50,
    missing: float = 0.0,
    shuffled: bool = False,
    seed: int = 1,
) -> pd.DataFrame:
    """Return scores with int32 codes of systems, assessors, topics and documents.

    Documents per topic are in the proportions of numbers drawn from 200 to 1,899. The largest
    array beside the frame is a column of it.

    Parameters
    ----------
    n_rows : of the complete data, to the nearest multiple of 120
    missing : the probability of a row to be left out
    shuffled : rows in random order, or else by system, assessor and document

    Raises
    ------
    ValueError
        If there are fewer documents than topics.
    """
    rng = np.random.default_rng(seed)
    n_documents = round(n_rows / (N_SYSTEMS * N_ASSESSORS))
    if n_documents < n_topics:
        raise ValueError(
            f"{n_rows:,} rows are {n_documents} documents, fewer than {n_topics} topics; "
            f"take {N_SYSTEMS * N_ASSESSORS * n_topics:,} rows or more"
        )
    topics = np.repeat(np.arange(n_topics, dtype=np.int32), _documents(rng, n_documents, n_topics))
    columns: dict[str, NDArray[Any]] = {
        "score": _scores(rng, topics, n_topics),
        "p": np.repeat(np.arange(N_SYSTEMS, dtype=np.int32), N_ASSESSORS * n_documents),
        "a": np.tile(np.repeat(np.arange(N_ASSESSORS, dtype=np.int32), n_documents), N_SYSTEMS),
        "i": np.tile(topics, N_SYSTEMS * N_ASSESSORS),
        "d": np.tile(np.arange(n_documents, dtype=np.int32), N_SYSTEMS * N_ASSESSORS),
    }
    if missing:
        kept = rng.random(columns["score"].size) >= missing
        columns = {name: column[kept] for name, column in columns.items()}
    if shuffled:
        order = rng.permutation(columns["score"].size)
        for name in columns:
            columns[name] = columns[name][order]
    return pd.DataFrame(columns, copy=False)


def _documents(rng: np.random.Generator, n_documents: int, n_topics: int) -> NDArray[np.int64]:
    """Return numbers of documents that add up, one at least for each topic."""
    drawn = rng.integers(_FEWEST, _MOST, n_topics, endpoint=True)
    ends = np.round(np.cumsum(drawn) / drawn.sum() * (n_documents - n_topics)).astype(np.int64)
    numbers: NDArray[np.int64] = np.diff(ends, prepend=0) + 1
    return numbers


def _scores(
    rng: np.random.Generator, topics: NDArray[np.int32], n_topics: int
) -> NDArray[np.float64]:
    """Return scores by system, assessor and document, a system at a time."""
    sd = {name: float(np.sqrt(v)) for name, v in COMPONENTS.items()}
    cells = (N_ASSESSORS, topics.size)
    assessor = rng.normal(scale=sd["a"], size=(N_ASSESSORS, 1))
    topic = rng.normal(scale=sd["i"], size=n_topics)
    judged = rng.normal(scale=sd["a:i"], size=(N_ASSESSORS, n_topics))
    of_cell = 0.5 + assessor + (topic + judged)[:, topics]
    of_cell += rng.normal(scale=sd["d"], size=topics.size)
    of_cell += rng.normal(scale=sd["a:d"], size=cells)
    scores = np.empty((N_SYSTEMS, *cells))
    for p in range(N_SYSTEMS):
        by_topic = rng.normal(scale=sd["p:i"], size=n_topics)
        by_topic = by_topic + rng.normal(scale=sd["p:a:i"], size=(N_ASSESSORS, n_topics))
        scores[p] = of_cell + rng.normal(scale=sd["p"])
        scores[p] += rng.normal(scale=sd["p:a"], size=(N_ASSESSORS, 1)) + by_topic[:, topics]
        scores[p] += rng.normal(scale=sd["p:d"], size=topics.size)
        scores[p] += rng.normal(scale=sd["Residual"], size=cells)
    return scores.ravel()
