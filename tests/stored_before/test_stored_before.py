"""Files that the version before the package had rooms wrote are read, value for value."""

import json
from pathlib import Path

import numpy as np
import pytest

import vcomp
from vcomp.inference.resampling import Replicates

HERE = Path(__file__).parent


def stored(name):
    """Return what a file holds."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def without_new(now, before):
    """Return a document without fields that older files do not have; they are at their defaults.

    ``converged`` of components is True by default, others are empty.
    """
    if not isinstance(now, dict) or not isinstance(before, dict):
        return now
    return {
        key: without_new(value, before.get(key))
        for key, value in now.items()
        if key in before
        or (value not in (None, False, [], {}) and (key, value) != ("converged", True))
    }


@pytest.mark.parametrize("path", sorted(HERE.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_is_read_and_written_as_it_was(path):
    whole = stored(path.name)
    res = getattr(vcomp, whole["vcomp"]).from_json(path)
    assert without_new(json.loads(res.to_json()), whole) == whole
    assert res.formula == whole["formula"]
    assert "<table" in res._repr_html_()


def test_the_numbers_of_a_result():
    whole = stored("bodoff_reml.json")
    res = vcomp.VarianceComponentsResults.from_json(HERE / "bodoff_reml.json")
    estimate = whole["estimate"]
    assert res.vcomp.tolist() == estimate["values"]
    assert res.vcomp.index.tolist() == estimate["names"]
    assert res.components.cov.tolist() == estimate["covariances"]["observed"]
    assert res.llf == estimate["llf"]
    assert res.fe_params.tolist() == estimate["beta"]
    assert res.components.facets == tuple(map(frozenset, whole["components"]["facets"]))
    now = vcomp.fit(res.formula, vcomp.datasets.load("bodoff2007_alpha"))
    assert str(res) == str(now)
    assert str(res.dstudy(topic=[3, 50])) == str(now.dstudy(topic=[3, 50]))


def test_infinity_and_unknown_numbers():
    constant = stored("constant.json")
    assert constant["estimate"]["llf"] == {"infinite": 1}
    res = vcomp.VarianceComponentsResults.from_json(HERE / "constant.json")
    assert res.llf == np.inf
    bound = vcomp.VarianceComponentsResults.from_json(HERE / "bound_fixed.json")
    zero = bound.components.values == 0.0
    assert zero.any()
    assert np.isnan(bound.components.cov[zero]).all()


def test_statistics():
    sums = vcomp.AccumulatedStatistics.load(HERE / "bodoff.vcomp")
    now = vcomp.fit(sums.formula, vcomp.datasets.load("bodoff2007_alpha"))
    assert sums.fit().vcomp.to_numpy() == pytest.approx(now.vcomp.to_numpy(), rel=1e-9)


def test_replicates(tmp_path):
    path = HERE / "bodoff_replicates.npz"
    found = Replicates.load(path)
    found.save(tmp_path / "again.npz")
    with np.load(path) as before, np.load(tmp_path / "again.npz") as after:
        assert before.files == after.files
        assert json.loads(str(before["about"])) == json.loads(str(after["about"]))
        for name in set(before.files) - {"about"}:
            np.testing.assert_array_equal(before[name], after[name])
    assert found.frame.shape == (25, 6)
    assert found.names == ("sys", "topic", "Residual")
