"""``vcomp simulate``: the collections of a seed, their true means, what it says, mistakes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.collection_file import SCORES, written
from tests.helpers.command_line import output_of
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError
from vcomp.ir.simulate.source_comparison import write_batches


@pytest.fixture
def matrix(tmp_path):
    return written(tmp_path)


def test_collections_of_a_seed(matrix, tmp_path):
    out = tmp_path / "new.parquet"
    text = output_of(
        "simulate", matrix, "--topics", 9, "--collections", 4, "--seed", 7, "--out", out
    )
    simulator = vcomp.ir.fit_collection(SCORES)
    expected = simulator.simulate(9, n=4, rng=7)
    found = pd.read_parquet(out)
    np.testing.assert_array_equal(found["score"], expected.scores.ravel())
    assert list(found.columns) == ["collection", "topic", "system", "score"]
    means = pd.read_csv(tmp_path / "new.means.csv", index_col="system")["mean"]
    np.testing.assert_allclose(means, simulator.true_means, rtol=1e-15)
    assert means.index.tolist() == SCORES.columns.tolist()
    assert str(simulator.summary()) in text
    assert f"4 collections of 9 topics × 5 systems: 180 rows in {out}; true means in" in text


def test_long_scores_and_long_results_go_round(matrix, tmp_path):
    out, again = tmp_path / "new.csv", tmp_path / "again.csv"
    output_of("simulate", matrix, "--topics", 12, "--out", out)
    output_of("simulate", out, "--topics", 6, "--out", again)
    long = pd.read_csv(out)
    wide = long.pivot(index="topic", columns="system", values="score")[SCORES.columns]
    expected = vcomp.ir.fit_collection(wide).simulate(6, rng=0).to_long()
    np.testing.assert_allclose(pd.read_csv(again)["score"], expected["score"], rtol=1e-12)


def test_assumptions(matrix, tmp_path):
    out = tmp_path / "new.csv"
    text = output_of(
        "simulate", matrix, "--topics", 8, "--collections", 3, "--margins", "normal",
        "--heteroscedasticity", 0, "--correlation", 0, "--non-random-sampling",
        "--means", "fitted", "--drop-worst", ".25", "--workers", 2, "--out", out,
    )  # fmt: skip
    simulator = vcomp.ir.fit_collection(
        SCORES, drop_worst=0.25, margins="normal", heteroscedasticity=0, correlation=0,
        random_sampling=False, means="fitted",
    )  # fmt: skip
    expected = simulator.simulate(8, n=3, rng=0)
    np.testing.assert_array_equal(pd.read_csv(out)["score"], expected.scores.ravel())
    assert str(simulator.summary()) in text


@pytest.mark.parametrize("df", [None, 3.5])
def test_the_other_copula(df, matrix, tmp_path):
    out = tmp_path / "new.csv"
    given = [] if df is None else ["--copula-df", df]
    text = output_of("simulate", matrix, "--topics", 8, "--copula", "t", *given, "--out", out)
    simulator = vcomp.ir.fit_collection(SCORES, copula="t", df=df)
    expected = simulator.simulate(8, rng=0)
    np.testing.assert_array_equal(pd.read_csv(out)["score"], expected.scores.ravel())
    assert "degrees of freedom" in text


@pytest.mark.parametrize(("text", "support"), [("P@10", "P@10"), ("0,.25,.5,.75,1", None)])
def test_possible_scores(tmp_path, text, support):
    values = np.arange(11) / 10 if support else np.arange(5) / 4
    scores = pd.DataFrame(np.random.default_rng(2).choice(values, (20, 4)), columns=list("abcd"))
    path, out = tmp_path / "scores.csv", tmp_path / "new.csv"
    scores.to_csv(path, index=False)
    output_of(
        "simulate", path, "--margins", "discrete_kernel", "--support", text, "--means", "fitted",
        "--topics", 30, "--out", out,
    )  # fmt: skip
    assert set(pd.read_csv(out)["score"]) <= set(values)


def test_how_like_the_original_they_are(matrix, tmp_path):
    text = output_of(
        "simulate", matrix, "--topics", 10, "--collections", 5, "--compare", "--out",
        tmp_path / "new.csv",
    )  # fmt: skip
    simulator = vcomp.ir.fit_collection(SCORES)
    comparison = vcomp.ir.compare_simulated(simulator, simulator.simulate(10, n=5, rng=0))
    assert str(comparison.summary()) in text
    original, parts = vcomp.ir.OriginalCollection(simulator.scores), []
    write_batches(  # two collections at a time
        simulator, tmp_path / "parts.csv", 10, n=5, rng=0, rows_at_once=100,
        each=lambda some: parts.append(original.indicators(some.scores)),
    )  # fmt: skip
    assert len(parts) == 3
    np.testing.assert_array_equal(np.concatenate(parts), comparison.values)


def test_true_means_elsewhere(matrix, tmp_path):
    out, means = tmp_path / "new.csv", tmp_path / "truth.csv"
    output_of("simulate", matrix, "--topics", 5, "--out", out, "--true-means", means)
    assert len(pd.read_csv(means)) == 5
    assert not (tmp_path / "new.means.csv").exists()
    text = output_of("simulate", matrix, "--topics", 5, "--out", out, "--true-means", "-")
    assert text.startswith("system,mean\n")


def test_accuracy_can_be_measured_with_what_was_written(matrix, tmp_path):
    out = tmp_path / "new.parquet"
    output_of("simulate", matrix, "--topics", 400, "--collections", 2, "--out", out)
    truth = pd.read_csv(tmp_path / "new.means.csv", index_col="system")["mean"]
    rows = pd.read_parquet(out).astype({"system": str})
    for _, one in rows.groupby("collection"):
        collection = vcomp.ir.ScoreMatrix.from_long(one)
        assert vcomp.ir.measures.get("rmse").actual(collection, truth) < 0.05


def test_help_has_examples():
    text = output_of("simulate", "--help")
    assert "vcomp simulate matrix.csv --topics 50 --collections 100 --seed 1" in text
    for family in ("beta_binomial", "truncated_kernel", "auto"):
        assert family in text


MISTAKES = {
    "'new.xls' does not end in .parquet or .csv": ["--out", "new.xls"],
    "cannot write 'absent/new.csv': there is no such folder": ["--out", "absent/new.csv"],
    "there is no such folder": [
        *["--out", "OUT", "--true-means", "absent/means.csv"],
    ],
    "two files, not both to": ["--out", "OUT", "--true-means", "OUT"],
    "margins='kernals' is not known (did you mean 'kernel'?)": [
        *["--out", "OUT", "--margins", "kernals"],
    ],
    "copula='vine' is not known; it is 'gaussian' or 't'": ["--out", "OUT", "--copula", "vine"],
    "the Gaussian one has none": ["--out", "OUT", "--copula-df", "4"],
    "means='true' is not known": ["--out", "OUT", "--means", "true"],
    "heteroscedasticity=0 changes margins of residuals": [
        *["--out", "OUT", "--margins", "beta", "--heteroscedasticity", "0"],
    ],
    "support= needs margins of scores": ["--out", "OUT", "--support", "P@5"],
    "is not a list of scores; write 0,0.5,1": ["--out", "OUT", "--support", "0,half,1"],
    "drop_worst must be at least 0": ["--out", "OUT", "--drop-worst", "-1"],
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(message, matrix, tmp_path):
    given = [str(tmp_path / "new.csv") if a == "OUT" else a for a in MISTAKES[message]]
    arguments = ["simulate", str(matrix), "--topics", "5", *given]
    with pytest.raises(VcompError) as caught:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.csv"]


SCORES_THAT_CANNOT_BE = {
    "needs scores between 0 and 1; that of system 'b' on topic number 2 is 3": [[0, 1], [1, 3]],
    "the mean score is the same on every topic": [[0.1, 0.2], [0.2, 0.1], [0.2, 0.1]],
    "system 'a' differs from the mean of all systems by the same": [[0.1, 0.2], [0.2, 0.3]],
    "at least two topics": [[0.1, 0.2]],
    "1 of 6 are missing, that of system 'b' on topic '1'": [
        *[[0.1, 0.2], [0.3, None], [0.4, 0.1]],
    ],
}


@pytest.mark.parametrize("message", SCORES_THAT_CANNOT_BE)
def test_scores_that_cannot_be(message, tmp_path):
    path, out = tmp_path / "scores.csv", tmp_path / "new.csv"
    rows = SCORES_THAT_CANNOT_BE[message]
    margins = ["--margins", "normal"] if "differs from the mean" in message else []
    pd.DataFrame(rows, columns=["a", "b"]).to_csv(path, index=False)
    arguments = ["simulate", str(path), "--topics", "5", "--out", str(out), *margins]
    with pytest.raises(VcompError) as caught:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert message in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize("option", ["--topics", "--collections", "--workers"])
def test_numbers_that_cannot_be(option, matrix, tmp_path):
    arguments = {"--topics": "5", "--out": str(tmp_path / "new.csv")} | {option: "0"}
    flat = [part for pair in arguments.items() for part in pair]
    done = CliRunner().invoke(cli, ["simulate", str(matrix), *flat])
    assert done.exit_code == 2
    assert "0 is not in the range x>=1" in done.output


def test_one_topic_is_not_compared(matrix, tmp_path):
    given = ["--topics", "1", "--compare", "--out", str(tmp_path / "new.csv")]
    with pytest.raises(VcompError, match="--compare needs two topics or more, not 1"):
        CliRunner().invoke(
            cli, ["simulate", str(matrix), *given], catch_exceptions=False, standalone_mode=False
        )
