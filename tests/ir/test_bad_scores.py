"""Scores that cannot be, by every way that they come in: errors say what is wrong, and where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from vcomp import ir
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError, VcompWarning

GOOD = np.random.default_rng(1).random((12, 5)).round(3)
NAMES = ["bm25", "rm3", "dense", "rerank", "fused"]


def frame(X):
    X = np.asarray(X, dtype=float)
    topics = pd.Index([f"t{k}" for k in range(len(X))], name="topic")
    return pd.DataFrame(X, index=topics, columns=NAMES[: X.shape[1]])


def by_command(verb, *options):
    def call(scores, folder):
        path = folder / "scores.csv"
        scores.to_csv(path)
        given = [verb, str(path), *options]
        if verb == "simulate":
            given += ["--topics", "5", "--out", str(folder / "new.csv")]
        runner = CliRunner()
        return runner.invoke(cli, given, catch_exceptions=False, standalone_mode=False)

    return call


def by_fit(scores, _):
    long = scores.reset_index().melt("topic", var_name="system", value_name="score")
    return vcomp.fit("score ~ (1|system) + (1|topic)", long).accuracy(["tau", "sens_abs"])


WAYS = {
    "tau": lambda scores, _: ir.expected_tau(scores),
    "accuracy": lambda scores, _: ir.accuracy(scores, ["tau", "sens_abs"], trials=3),
    "split_half": lambda scores, _: ir.split_half(scores, trials=3),
    "fit_collection": lambda scores, _: ir.fit_collection(scores),
    "res.accuracy": by_fit,
    "vcomp tau": by_command("tau"),
    "vcomp accuracy": by_command("accuracy", "--measures", "tau,sens_abs", "--trials", "3"),
    "vcomp simulate": by_command("simulate"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_ways_work(way, tmp_path):
    assert WAYS[way](frame(GOOD), tmp_path) is not None


@pytest.mark.parametrize("way", WAYS)
def test_one_topic_or_system(way, tmp_path):
    of_fits = way == "res.accuracy"
    with pytest.raises(VcompError) as caught:
        WAYS[way](frame(GOOD[:1]), tmp_path)
    wanted = "facet 'topic' has one level only ('t0')" if of_fits else "there are 1 × 5"
    assert wanted in str(caught.value)
    with pytest.raises(VcompError) as caught:
        WAYS[way](frame(GOOD[:, :1]), tmp_path)
    wanted = "facet 'system' has one level only ('bm25')" if of_fits else "there are 12 × 1"
    assert wanted in str(caught.value)


@pytest.mark.filterwarnings("ignore:1 of 60 rows have a missing value")
@pytest.mark.parametrize("way", [way for way in WAYS if "tau" not in way])
def test_a_topic_that_a_system_lacks(way, tmp_path):
    X = GOOD.copy()
    X[7, 2] = np.nan
    with pytest.raises(VcompError, match=r"1 of 60 .*'dense' on topic (number 8|'t7')"):
        WAYS[way](frame(X), tmp_path)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "res.accuracy"])
def test_a_score_that_is_infinite(way, tmp_path):
    X = GOOD.copy()
    X[7, 2] = np.inf
    with pytest.raises(VcompError, match=r"system 'dense' on topic 't7' is infinite"):
        WAYS[way](frame(X), tmp_path)


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("vcomp")])
def test_systems_that_are_all_dropped(way, tmp_path):
    verb, *_ = way.split()[1:]
    with pytest.raises(VcompError, match=r"drop_worst=0\.9 leaves .* alone of 5 systems"):
        by_command(verb, "--drop-worst", ".9")(frame(GOOD), tmp_path)


@pytest.mark.parametrize("way", ["fit_collection", "vcomp simulate"])
def test_scores_that_have_no_logit(way, tmp_path):
    with pytest.raises(VcompError, match=r"between 0 and 1; that of system 'rm3' on topic number"):
        WAYS[way](frame(GOOD + np.array([0.0, 2.0, 0.0, 0.0, 0.0])), tmp_path)


@pytest.mark.parametrize("way", ["fit_collection", "vcomp simulate"])
def test_topics_that_do_not_differ(way, tmp_path):
    with pytest.raises(VcompError, match="the mean score is the same on every topic"):
        WAYS[way](frame(np.tile([0.1, 0.2, 0.3, 0.4, 0.5], (6, 1))), tmp_path)


def test_constant_scores_have_nothing_to_share():
    with pytest.raises(VcompError, match="all scores are equal"):
        ir.accuracy(frame(np.full((6, 4), 0.5)), "Phi")
    with pytest.warns(VcompWarning, match="the response is constant"):
        made = by_fit_of_dstudy(np.full((6, 4), 0.5))
    assert made.table["estimate"].isna().all()
    assert "are not defined" in str(made)


def by_fit_of_dstudy(X):
    long = frame(X).reset_index().melt("topic", var_name="system", value_name="score")
    return vcomp.fit("score ~ (1|system) + (1|topic)", long).accuracy(["Erho2", "Phi"])


def test_all_ties_are_no_order():
    # Every system has every score once: their means are all the same.
    X = np.array([np.roll([0.1, 0.2, 0.3, 0.4, 0.5], k) for k in range(5)])
    made = ir.accuracy(frame(X), ["tau", "tau_ap", "Erho2"]).table
    np.testing.assert_allclose(made["estimate"], 0.0, atol=1e-12)
    with pytest.warns(vcomp.VcompWarning, match="sens_abs is not extrapolated by logit"):
        none = ir.accuracy(frame(X), "sens_abs", trials=4)
    assert none.table["estimate"].isna().all()
    assert "sens_abs has no" in str(none)
