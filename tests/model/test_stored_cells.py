"""Cell means in stored results: a file grows with the data, not with the product of the levels."""

import json

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError

RNG = np.random.default_rng(3)


def sparse(n: int, *, replicates: bool = False) -> vcomp.VarianceComponentsResults:
    a, b = RNG.integers(n, size=10 * n), RNG.integers(n, size=10 * n)
    frame = pd.DataFrame({"a": a, "b": b, "score": RNG.normal(size=10 * n) + 0.1 * a})
    if not replicates:
        frame = frame.drop_duplicates(["a", "b"])
    return vcomp.fit("score ~ (1|a) + (1|b)", frame)


@pytest.mark.parametrize("replicates", [False, True])
def test_filled_cells_come_back(replicates):
    res = sparse(60, replicates=replicates)
    again = type(res).from_json(res.to_json())
    for name in ("means", "counts"):
        before, after = (getattr(r._record.tables.cells, name) for r in (res, again))
        np.testing.assert_array_equal(before, after)


def test_cells_are_means_of_their_scores():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.choice(list("dbca"), 60), "b": rng.choice(list("zxy"), 60)})
    frame = frame[(frame["a"] != "c") | (frame["b"] != "x")]
    frame["score"] = 50.0 + rng.normal(size=len(frame))
    cells = vcomp.fit("score ~ (1|a) + (1|b)", frame)._record.tables.cells
    wanted = frame.pivot_table(index="a", columns="b", values="score", aggfunc=["mean", "size"])
    wanted = wanted.reindex(cells.levels[0])
    for name, found in (("mean", cells.means), ("size", cells.counts)):
        expected = wanted[name].reindex(columns=cells.levels[1])
        expected = expected if name == "mean" else expected.fillna(0)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    for system, other in (("a", 1), ("b", 0)):
        means, rows, columns = cells.matrix(system)
        assert (rows, columns) == (cells.levels[other], cells.levels[1 - other])
        np.testing.assert_array_equal(means, cells.means.T if system == "a" else cells.means)


@pytest.mark.slow
def test_a_file_grows_with_the_data():
    small, large = (len(sparse(n).to_json()) for n in (60, 480))
    assert large < 12 * small  # eight times the scores, 64 times the cells


def test_a_table_that_a_file_claims_is_not_made():
    plain = json.loads(sparse(60).to_json())
    names = [str(k) for k in range(2_000)]
    plain["cells"]["levels"] = [names, names]
    with pytest.raises(DataError):
        vcomp.VarianceComponentsResults.from_json(json.dumps(plain))
