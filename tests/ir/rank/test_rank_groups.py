"""Eτ and Eτ_AP of one system of each group, against all choices of systems."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError
from vcomp.ir.rank.correlation import RankCorrelation, Swaps
from vcomp.ir.rank.correlation_tables import expected_correlation
from vcomp.ir.rank.paired import PairedDifferences

GROUPS = {"a": 0, "b": 1, "c": 0, "d": 2, "e": 1, "f": 0, "g": 3}


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(8)
    scores = rng.normal(size=(12, 7)) + 0.2 * np.arange(7) + rng.normal(size=(12, 1))
    return PairedDifferences.from_scores(scores, list(GROUPS))


def of_all_choices(pairs, n, ap, estimator):
    """Return the mean over all choices of one system of each group, by the published formulae."""
    swaps = Swaps.of(pairs, estimator, 0.0)
    behind = np.zeros((7, 7))
    behind[np.triu_indices(7, 1)] = swaps.probabilities(n)[1]
    members = [[s for s, name in enumerate(pairs.systems) if GROUPS[name] == g] for g in range(4)]
    found = []
    for chosen in itertools.product(*members):
        w = behind[np.ix_(sorted(chosen), sorted(chosen))]
        above = np.arange(1, 4)
        share = (w.sum(axis=0)[1:] / above).sum() if ap else w.sum()
        found.append(1.0 - 2.0 * share / 3.0 if ap else 1.0 - 2.0 * share / 6.0)
    return np.mean(found)


@pytest.mark.parametrize("ap", [False, True], ids=["tau", "tau_ap"])
@pytest.mark.parametrize("estimator", ["shrunken", "urbano"])
def test_the_estimate_is_the_mean_over_all_choices(pairs, ap, estimator):
    made = expected_correlation(
        pairs, [5, 40], variant="ap" if ap else "a", estimator=estimator, groups=GROUPS
    )
    expected = [of_all_choices(pairs, n, ap, estimator) for n in (5, 40)]
    np.testing.assert_allclose(made["estimate"], expected, rtol=1e-12)


@pytest.mark.parametrize("ap", [False, True], ids=["tau", "tau_ap"])
def test_groups_of_one_system_are_no_groups(pairs, ap):
    alone = expected_correlation(
        pairs, [5, 40], variant="ap" if ap else "a", draws=100, groups=lambda name: name
    )
    plain = expected_correlation(pairs, [5, 40], variant="ap" if ap else "a", draws=100)
    pd.testing.assert_frame_equal(alone, plain)


@pytest.mark.parametrize("ap", [False, True], ids=["tau", "tau_ap"])
def test_weights_add_up_to_one(ap):
    groups = np.array([0, 1, 0, 2, 1, 0, 3])
    weights = RankCorrelation("ap" if ap else "a", groups).weights(7)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("k", [2, 3, 11, 40])
def test_each_system_below_m_others_weighs_one_over_m(k):
    """Of the pairs of the system at rank m + 1, of k - 1 such systems: τ_AP as published."""
    expected = [1.0 / (j * (k - 1)) for _, j in itertools.combinations(range(k), 2)]
    for groups in (None, np.arange(k), np.arange(k)[::-1]):
        weights = RankCorrelation("ap", groups).weights(k)
        np.testing.assert_allclose(weights, expected, rtol=1e-11)


def test_limits_contain_the_estimate(pairs):
    for target in ("test", "expectation"):
        for threshold, variant in ((0.0, "a"), (0.1, "b")):
            made = expected_correlation(
                pairs, [5, 40], draws=200, groups=GROUPS, target=target, threshold=threshold,
                variant=variant,
            )  # fmt: skip
            assert (made["low"] < made["estimate"]).all()
            assert (made["estimate"] < made["high"]).all()


def test_choices_of_systems_widen_the_interval_of_a_test_only(pairs):
    widths = {}
    for target in ("test", "expectation"):
        made = expected_correlation(pairs, 40, draws=500, groups=GROUPS, target=target).iloc[0]
        widths[target] = made["high"] - made["low"]
    assert widths["expectation"] < 0.8 * widths["test"]


def test_a_draw_of_a_test_is_of_one_choice(pairs):
    """τ of four systems is a multiple of a third, which a mean over choices need not be."""
    draws = [
        expected_correlation(pairs, 5, draws=1, groups=GROUPS, target="test", rng=k).iloc[0]
        for k in range(20)
    ]
    thirds = 3.0 * np.array([[d["low"], d["high"]] for d in draws])
    np.testing.assert_allclose(thirds, np.rint(thirds), atol=1e-12)
    assert len(np.unique(thirds)) > 2


def test_variants_of_one_system_hide_how_well_groups_are_ranked():
    """Copies of each system with small changes swap with each other: B08, section 4.6."""
    rng = np.random.default_rng(3)
    of_group = np.repeat(np.arange(6), 4)
    scores = 0.3 * of_group + rng.normal(size=(60, 6))[:, of_group] + rng.normal(size=(60, 24)) / 9
    frame = pd.DataFrame(scores, columns=[f"org{g}-run{r}" for g in range(6) for r in range(4)])
    everyone = vcomp.ir.expected_tau(frame)["estimate"].item()
    made = vcomp.ir.expected_tau(frame, groups=lambda name: name.split("-")[0])
    assert made["estimate"].item() > everyone + 0.02
    long = frame.rename_axis("topic").reset_index().melt("topic", var_name="run")
    long["org"] = long["run"].str[:4]
    by_column = vcomp.ir.expected_tau(long, system="run", score="value", groups="org")
    pd.testing.assert_frame_equal(by_column, made)


def test_mistakes(pairs):
    with pytest.raises(DataError, match=r"'\w' of 'system' has no group"):
        expected_correlation(pairs, groups={"a": 1})
    matrix = np.arange(12.0).reshape(4, 3) ** 1.5
    with pytest.raises(DataError, match="groups='org' is a column of a long table"):
        vcomp.ir.expected_tau(vcomp.ir.as_score_matrix(matrix), groups="org")
    long = pd.DataFrame(matrix).rename_axis("topic").reset_index().melt("topic", var_name="system")
    with pytest.raises(DataError, match="no column 'org'"):
        vcomp.ir.expected_tau(long, score="value", groups="org")
    long["org"] = long["system"] + long["topic"]
    with pytest.raises(DataError, match="'0' has several groups in column 'org'"):
        vcomp.ir.expected_tau(long, score="value", groups="org")
