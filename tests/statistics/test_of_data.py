"""Stages of reading data in memory, in batches and on Dask."""

from time import perf_counter

import pytest

from tests.helpers.designs import gridded
from tests.helpers.readings import model_of


@pytest.mark.parametrize("way", ["memory", "batches", "dask"])
def test_stages_take_no_longer_than_the_whole(way):
    formula, data = gridded("per document")
    stages = {"gather"}
    if way == "memory":
        stages = {"read", "learn", "encode", "accumulate"}
    if way == "batches":
        stages |= {"read"}
    if way == "dask":
        data = pytest.importorskip("dask.dataframe", reason="Dask is an extra").from_pandas(
            data, npartitions=2
        )
    begun = perf_counter()
    model = model_of(formula, data, **({"stream": True} if way == "batches" else {}))
    whole = perf_counter() - begun
    seconds = dict(model.seconds)
    assert seconds.keys() == stages | {"check"}
    assert all(s >= 0.0 for s in seconds.values())
    assert sum(seconds.values()) <= whole
