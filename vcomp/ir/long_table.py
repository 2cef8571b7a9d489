"""From a long table, a row a score, to the cells of a topic × system matrix."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError
from vcomp.io import open_source

__all__ = ["read_cells"]


def read_cells(
    data: Any, system: str, topic: str, score: str
) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    """Return the scores, nan where there is none, the topics and the systems.

    Parameters
    ----------
    data : what :func:`vcomp.io.open_source` opens
    system, topic, score : names of its columns

    Returns
    -------
    (n_topics, n_systems) array, and the names of topics and systems, in the order in which they
    first come

    Raises
    ------
    DataError
        If two columns are one, a column is not there, scores are not numbers, a system or topic
        has no name, or a system has several scores on a topic.
    """
    import pandas as pd
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    columns = [system, topic, score]
    names = [column for column in columns if isinstance(column, Hashable)]
    if len(set(names)) < len(columns):
        raise DataError(f"system, topic and score are three columns, not {columns}")
    frame = open_source(data).read(columns)
    dtype = frame[score].dtype
    if is_complex_dtype(dtype) or not is_numeric_dtype(dtype):
        raise DataError(f"column {score!r} does not hold numbers; it is {dtype}")
    for column in (system, topic):
        empty = frame[column].isna().to_numpy()
        if empty.any():
            raise DataError(f"column {column!r} is missing in row {int(empty.argmax())}")
    rows, topics = pd.factorize(frame[topic].astype(str))
    places, systems = pd.factorize(frame[system].astype(str))
    cells = rows.astype(np.int64) * len(systems) + places
    _, first, count = np.unique(cells, return_index=True, return_counts=True)
    if (count > 1).any():
        at = first[count > 1].min()
        raise DataError(
            f"system {systems[places[at]]!r} has several scores on topic {topics[rows[at]]!r}; "
            "average them first, or keep one"
        )
    values = np.full((len(topics), len(systems)), np.nan)
    values[rows, places] = frame[score].to_numpy(dtype=float, na_value=np.nan)
    return values, tuple(topics), tuple(systems)
