"""Stages of reading data in memory, in batches and on Dask."""

from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.designs import gridded
from tests.helpers.readings import model_of
from vcomp.statistics.of_data import _response_sums


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


class Kept(SimpleNamespace):
    """Rows of which the response alone is known."""

    def __len__(self):
        return self.y.size


@pytest.mark.parametrize(
    ("mean", "origin", "unit"),
    [(7.02, 7.0, 1.0), (7.02, 7.0, 1e-4), (1e8, 0.0, 1.0), (1e8, -1e8, 1.0), (1e-2, 0.0, 1e-10)],
)
def test_squares_about_the_mean_do_not_cancel(mean, origin, unit):
    """From those about an origin that is near, else from the rows."""
    noise = np.random.default_rng(1).normal(size=101)
    noise -= noise.mean()
    y = mean + unit * noise
    around = (y - y.mean()).astype(np.longdouble)
    statistics = SimpleNamespace(strata=None, yy=float(np.square(y - origin).sum()))
    found = _response_sums(SimpleNamespace(origin=origin), Kept(y=y, weights=None), statistics)
    assert found[0] == y.mean()
    assert found[1] == pytest.approx(float((around**2).sum()), rel=1e-12, abs=0.0)
    of_strata = SimpleNamespace(response_sums=lambda: (0.25, 3.0))
    known = SimpleNamespace(strata=of_strata, yy=0.0)
    found = _response_sums(SimpleNamespace(origin=origin), Kept(y=y, weights=None), known)
    assert found == (origin + 0.25, 3.0)
