"""A long table is not read as a matrix, nor a matrix the wrong way round."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.command_line import run
from vcomp import ir

FUNCTIONS = {
    "icc": vcomp.icc,
    "cronbach_alpha": vcomp.cronbach_alpha,
    "reliability": vcomp.reliability,
    "item_analysis": vcomp.item_analysis,
    "expected_tau": lambda scores: ir.expected_tau(scores, 10),
    "expected_tau_ap": lambda scores: ir.expected_tau(scores, 10, variant="ap"),
    "accuracy": ir.accuracy,
    "as_score_matrix": ir.as_score_matrix,
}


def long(names=("person", "item", "score"), seed=0, share=1.0):
    rng = np.random.default_rng(seed)
    person, item = (a.ravel() for a in np.indices((12, 8)))
    score = rng.normal(size=12)[person] + rng.normal(size=96)
    frame = pd.DataFrame(dict(zip(names, (person + 1, item + 1, score), strict=True)))
    return frame[rng.random(96) <= share].reset_index(drop=True)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "names",
    [("person", "item", "score"), ("subject", "question", "value"), ("u", "v", "w")],
    ids=lambda names: names[0],
)
def test_long_tables(name, names):
    for frame in (long(names), long(names).sample(frac=1.0, random_state=1), long(names, 0, 0.9)):
        with pytest.raises(
            vcomp.DataError, match=r"looks? like a long table|looks like the labels"
        ):
            FUNCTIONS[name](frame)
    with pytest.raises(vcomp.DataError, match=r"looks? like a long table"):
        FUNCTIONS[name](long(names).set_index(names[0]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_long_arrays(name):
    with pytest.raises(vcomp.DataError, match=r"looks? like a long table"):
        FUNCTIONS[name](long().to_numpy())


def test_the_message_names_the_columns():
    with pytest.raises(vcomp.DataError, match="object='person', item='item', score='score'"):
        vcomp.cronbach_alpha(long())


@pytest.mark.parametrize("command", ["tau", "items", "accuracy"])
@pytest.mark.parametrize("names", [("person", "item", "score"), ("u", "v", "w")])
def test_the_command_line(command, names, tmp_path):
    long(names).to_csv(tmp_path / "f.csv", index=False)
    done = run(command, str(tmp_path / "f.csv"), check=False)
    assert done.returncode == 2
    assert "long" in done.stderr


def test_matrices_of_whole_numbers_are_matrices():
    """Shrout and Fleiss (1979), Table 2, and answers of 0 and 1."""
    scores = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    assert vcomp.icc(scores) is not None
    rng = np.random.default_rng(0)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        ratings = rng.integers(1, 6, (rng.integers(5, 40), 3))
        ir.as_score_matrix(pd.DataFrame(ratings))
    vcomp.cronbach_alpha(rng.integers(0, 2, (30, 5)))


@pytest.mark.parametrize(
    ("function", "rows", "columns"),
    [
        (lambda m: ir.expected_tau(m, 10), "run{}", "topic {}"),
        (vcomp.cronbach_alpha, "item_{}", "p{}"),
        (vcomp.icc, "judge{}", "x{}"),
        (vcomp.cronbach_alpha, "x{}", "person-{}"),
    ],
)
def test_numbered_labels_on_the_wrong_side(function, rows, columns):
    values = np.random.default_rng(1).normal(size=(6, 9))
    frame = pd.DataFrame(
        values, [rows.format(k) for k in range(6)], [columns.format(k) for k in range(9)]
    )
    with pytest.raises(vcomp.DataError, match="look transposed"):
        function(frame)
