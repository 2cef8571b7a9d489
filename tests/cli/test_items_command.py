"""``vcomp items``: matrices and long data, tables and pictures, mistakes."""

from __future__ import annotations

import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.ctt_scores import QUESTIONS, holed
from vcomp.cli.score_commands import items
from vcomp.exceptions import DataError

LONG = ["--object", "sys", "--item", "topic", "--score", "score"]


def run(*arguments):
    done = CliRunner().invoke(items, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def matrix(tmp_path):
    frame = pd.DataFrame(QUESTIONS, columns=[f"q{i}" for i in range(10)])
    frame.insert(0, "who", [f"person {p}" for p in range(15)])
    path = tmp_path / "answers.csv"
    frame.to_csv(path, index=False)
    return path


def test_what_is_printed_are_the_summaries(matrix):
    scores = pd.read_csv(matrix, index_col=0)
    text = run(matrix)
    assert str(vcomp.reliability(scores)) in text
    assert str(vcomp.item_analysis(scores)) in text


def test_options(matrix):
    scores = pd.read_csv(matrix, index_col=0)
    text = run(matrix, "--low", "0.4", "--show", "4", "--alpha", "0.1")
    assert str(vcomp.reliability(scores, alpha=0.1)) in text
    assert str(vcomp.item_analysis(scores, low=0.4).summary(4)) in text


def test_long_data_sets():
    text = run("--dataset", "bodoff2007_alpha", *LONG)
    assert "Reliability of scores over 3 items; 5 objects" in text


def test_items_in_rows(matrix, tmp_path):
    turned = tmp_path / "turned.csv"
    pd.read_csv(matrix, index_col=0).T.to_csv(turned, index_label="topic")
    assert run(turned, "--transpose") == run(matrix)
    with pytest.raises(DataError, match="as they are called 'topic': give --transpose"):
        run(turned)


def test_missing_cells(tmp_path):
    path = tmp_path / "holes.csv"
    scores = pd.DataFrame(holed(QUESTIONS, 0.05))
    scores.to_csv(path, index=False)
    assert "variance components by REML" in run(path)
    assert "objects were left out (listwise)" in run(path, "--missing", "listwise")
    with pytest.raises(DataError, match="cells are missing"):
        run(path, "--missing", "raise")


def test_table_and_picture(matrix, tmp_path):
    table, picture = tmp_path / "items.csv", tmp_path / "items.png"
    run(matrix, "--csv", table, "--plot", picture)
    stored = pd.read_csv(table, index_col="item", keep_default_na=False)
    found = vcomp.item_analysis(pd.read_csv(matrix, index_col=0)).table
    assert stored.index.tolist() == found.index.tolist()
    assert picture.stat().st_size > 1000
    assert run(matrix, "--csv", "-").startswith("item,n,difficulty,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of DATA and --dataset"),
        (["--dataset", "bodoff2007_alpha"], "a data set is long"),
        (["--dataset", "bodoff2007_alpha", *LONG, "--transpose"], "--transpose needs a matrix"),
        (["--dataset", "bodoff2007_alpha", "--missing", "some"], "'some' is not one of"),
        (["--dataset", "bodoff2007_alpha", *LONG, "--show", "-1"], "-1 is not in the range x>=1"),
    ],
)
def test_mistakes_of_usage(arguments, message):
    done = CliRunner().invoke(items, arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_mistakes_in_the_data(matrix):
    with pytest.raises(DataError, match="score= is missing"):
        run(matrix, "--object", "who", "--item", "q1")
    with pytest.raises(DataError, match="its ending has to be one of"):
        run(matrix, "--plot", "items.doc")
