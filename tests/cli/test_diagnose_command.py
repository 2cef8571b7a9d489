"""``vcomp diagnose`` prints what the function returns."""

import json

import pytest

import vcomp
from tests.helpers.collection_file import SCORES, written
from tests.helpers.command_line import output_of, run


@pytest.fixture
def matrix(tmp_path):
    return written(tmp_path)


@pytest.mark.slow
def test_a_matrix(matrix, tmp_path):
    picture = tmp_path / "page.png"
    text = output_of("diagnose", matrix, "--draws", 39, "--seed", 3, "--plot", picture)
    assert text.rstrip("\n") == str(vcomp.diagnose(SCORES, n=39, rng=3))
    assert picture.stat().st_size > 1000
    found = json.loads(output_of("diagnose", matrix, "--draws", 39, "--format", "json"))
    table = vcomp.diagnose(SCORES, n=39).table
    assert [row["p_value"] for row in found] == pytest.approx(table["p_value"])


def test_a_formula(matrix, tmp_path):
    long = tmp_path / "long.csv"
    frame = vcomp.ir.as_score_matrix(SCORES).to_long()
    frame.to_csv(long, index=False)
    formula = "score ~ (1|system) + (1|topic)"
    given = ["--draws", 39, "--formula", formula, "--object", "topic"]
    text = output_of("diagnose", long, *given)
    assert text.rstrip("\n") == str(vcomp.fit(formula, frame).diagnose(object="topic", n=39))
    for wrong, message in (
        (["--object", "topic"], "--object needs --formula"),
        (["--formula", formula, "--system", "system"], "leave out --system"),
    ):
        done = run("diagnose", str(long), *wrong, check=False)
        assert done.returncode == 2
        assert message in done.stderr
