"""``vcomp average-p-values``: what Python prints, tables, pictures, mistakes."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.command_line import output_of
from tests.helpers.rank_scores import LONG, WIDE
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError
from vcomp.ir import as_score_matrix, average_p_values

BINS = [0.0, 0.05, 0.2, np.inf]
GIVEN = ("--bins", "0,.05,.2,inf", "--trials", "3")


def test_it_prints_what_python_prints(wide):
    made = average_p_values(WIDE, bins=BINS, trials=3)
    assert output_of("average-p-values", wide, *GIVEN) == f"{made}\n"
    few = as_score_matrix(WIDE).drop_worst(0.5)
    made = average_p_values(few, [5, 300], test="wilcoxon", sides=1, trials=3, rng=4)
    given = ("--topics", "5,300", "--test", "wilcoxon", "--sides", "1", "--trials", "3",
             "--seed", "4", "--drop-worst", ".5", "--workers", "2")  # fmt: skip
    assert output_of("average-p-values", wide, *given) == f"{made}\n"


def test_csv_and_json_are_the_table(tmp_path):
    path = tmp_path / "long.parquet"
    LONG.to_parquet(path)
    table = average_p_values(WIDE, [5, 300], bins=BINS, trials=3).table
    given = ("average-p-values", path, *GIVEN, "--topics", "5,300")
    read = pd.read_csv(io.StringIO(output_of(*given, "--format", "csv")))
    pd.testing.assert_frame_equal(read, table, check_dtype=False, rtol=1e-12)
    rows = json.loads(output_of(*given, "--format", "json"))
    assert [row["p_value"] for row in rows if row["p_value"] is not None] == pytest.approx(
        list(table["p_value"].dropna()), rel=1e-12
    )


def test_a_picture_of_a_data_set(tmp_path):
    path = tmp_path / "picture.svg"
    given = ("--dataset", "bodoff2007_alpha", "--topics", "2,3", "--bins", "0,1", "--plot", path)
    made = average_p_values(
        vcomp.datasets.load("bodoff2007_alpha"), [2, 3], bins=[0, 1], system="sys"
    )
    assert output_of("average-p-values", *given) == f"{made}\n"
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--bins", "0,a"], "--bins '0,a' are not numbers; write 0,.02,.05,inf"),
        (["--bins", ".2,.1"], "increase from zero"),
        (["--sides", "3"], "sides must be 1 or 2, not 3"),
        (["--topics", "1"], "two topics or more"),
        (["--plot", "x.doc"], "its ending has to be one of"),
    ],
)
def test_mistakes(wide, given, message):
    done = CliRunner().invoke(cli, ["average-p-values", str(wide), *given])
    assert isinstance(done.exception, VcompError)
    assert message in str(done.exception)
