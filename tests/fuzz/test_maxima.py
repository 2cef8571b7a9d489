"""A few of the cases of ``python -m tests.fuzz.maxima``, and a loss that it has to notice."""

from __future__ import annotations

import json
import warnings
from itertools import product

import numpy as np
import pytest

import vcomp
from tests.fuzz.maxima import WRONG, main, outcome
from tests.fuzz.one_term import highest, one_term_case
from tests.fuzz.oracle import Dense, Highest
from tests.fuzz.small_tables import case

LOST_BEFORE = [4, 5, 33, 125, 134, 156, 179, 255, 386, 603, 688, 697, 887, 1018, 1032, 1293]
"""Cases at which one climb from MIVQUE(0) ends at a lower maximum."""

LOST_BEFORE += [5780, 8222]  # one component has nearly all of the variance

LOST_BEFORE += [10778, 12187, 19141]  # on ridges that pass between the points of the grid

LOST_BEFORE += [15743]  # the first climb takes a thousand steps along a saddle

UNBOUNDED = [(124, 0), (382, 0), (432, 0), (8756, 2)]


@pytest.mark.parametrize("number", LOST_BEFORE)
def test_the_highest_maximum_is_found(number):
    found = outcome(number)
    assert found.verdict == "same", found


@pytest.mark.parametrize(
    ("number", "seed"),
    [
        (19734, 1),  # no term at the maximum, but a start from each set of terms ends elsewhere
        (12044, 1),  # maxima with other terms at zero are a tenth of a standard error apart
        (14740, 2),  # without fixed effects another term has the mean
    ],
)
def test_the_highest_maximum_of_other_seeds_is_found(number, seed):
    found = outcome(number, seed)
    assert found.verdict == "same", found


@pytest.mark.parametrize(("number", "seed"), UNBOUNDED)
def test_an_unbounded_likelihood_is_called_saturated(number, seed):
    found = outcome(number, seed)
    assert found.verdict == "said", found


def test_a_likelihood_without_a_maximum_at_a_held_component_is_called_saturated():
    """It rises as the residual goes to zero, and exceeds the maximum below 1e-18 only."""
    made = case(43, 7)
    with pytest.warns(vcomp.VcompWarning, match="saturated"):
        res = vcomp.fit(made.formula, made.data, method="ml", hold={"a": 0.5})
    dense = Dense(made.data["y"], made.X, made.labels, reml=False)
    values = res.vcomp.to_numpy()
    assert dense.value(values) == pytest.approx(res.llf, abs=1e-9)
    rising = [dense.value(np.array([0.5, 5.6, 56.2, 10.0**-e])) for e in range(5, 12)]
    # By ½ of the logarithm, as the terms reach all but one of the directions.
    np.testing.assert_allclose(np.diff(rising), 0.5 * np.log(10.0), rtol=1e-3)


@pytest.mark.parametrize("number", range(6))
def test_maxima_with_a_held_residual_are_the_highest(number):
    """Of two and three terms, against a grid of square roots of components by dense matrices."""
    made = case([3, 4, 9, 10, 18, 27][number], 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit(
            made.formula,
            made.data,
            method="reml" if made.reml else "ml",
            hold={"Residual": 0.7},
        )
    dense = Dense(made.data["y"], made.X, made.labels, reml=made.reml)
    assert res.llf == pytest.approx(dense.value(res.vcomp.to_numpy()), abs=1e-9)
    steps = np.concatenate([[0.0], np.geomspace(0.01, 100.0, 9)])
    grid = product(steps, repeat=len(made.terms))
    assert max(dense.value(np.array([*v, 0.7])) for v in grid) <= res.llf + 1e-9


@pytest.mark.parametrize("number", [*range(4), 161])
def test_one_term_of_few_levels_with_covariates(number):
    """The last has a lower maximum too, by 1.3."""
    found = outcome(number, family="one-term")
    assert found.verdict == "same", found


def test_a_dense_scan_of_one_ratio_agrees_with_the_search():
    for number in (2, 3):  # restricted and full likelihood
        made = one_term_case(number)
        dense = Dense(made.data["y"], made.X, made.labels, reml=made.reml)
        found, wanted = highest(dense), dense.highest()
        assert found.loglike == pytest.approx(wanted.loglike, abs=1e-9)
        assert found.loglike == pytest.approx(dense.value(found.values), abs=1e-9)


@pytest.mark.parametrize("number", range(10_000, 10_004))
def test_random_tables(number):
    found = outcome(number)
    assert found.verdict not in WRONG, found


def test_a_lower_maximum_is_noticed():
    """The search finds a value of 0.001 more than the library does."""

    def higher(dense):
        best = dense.highest()
        return Highest(best.loglike + 1e-3, best.values, best.unbounded, best.others)

    assert outcome(1).verdict == "same"
    assert outcome(1, search=higher).verdict == "lost"


def test_a_run_continues(tmp_path, capsys):
    state = tmp_path / "state.jsonl"
    for cases in (1, 2):
        main(["--cases", str(cases), "--state", str(state)])
        assert [json.loads(x)["number"] for x in state.read_text().splitlines()] == [*range(cases)]
    assert "same" in capsys.readouterr().out


def test_the_dense_search_agrees_with_its_own_value():
    """The profiled likelihood at the end is the likelihood of the components."""
    for number in (1, 2):
        made = case(number)
        dense = Dense(made.data["y"], made.X, made.labels, reml=made.reml)
        best = dense.highest()
        assert best.loglike == pytest.approx(dense.value(best.values), abs=1e-9)
        rng = np.random.default_rng(number)
        for _ in range(50):
            near = best.values * np.exp(0.3 * rng.normal(size=best.values.size))
            assert dense.value(near) <= best.loglike + 1e-9
