"""``vcomp compare-systems``: what Python prints, tables, pictures, mistakes."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.command_line import output_of
from tests.helpers.rank_scores import LONG, WIDE
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError


def test_it_prints_what_python_prints(wide):
    made = vcomp.ir.compare_systems(WIDE)
    assert output_of("compare-systems", wide) == f"{made}\n"
    few = vcomp.ir.ScoreMatrix.drop_worst(vcomp.ir.as_score_matrix(WIDE), 0.5)
    tukey = vcomp.ir.compare_systems(few, "tukey", alpha=0.1)
    given = ("--test", "tukey", "--alpha", ".1", "--drop-worst", ".5", "--show", "3")
    assert output_of("compare-systems", wide, *given) == f"{tukey.summary(3)}\n"


def test_options_reach_the_test(wide, tmp_path):
    path = tmp_path / "long.parquet"
    LONG.to_parquet(path)
    first, second, third = map(str, WIDE.columns[:3])
    made = vcomp.ir.compare_systems(
        WIDE, "permutation", systems=[first, second, third], baseline=second,
        alternative="greater", correction="fdr_bh", n=300, rng=4,
    )  # fmt: skip
    given = ("--test", "permutation", "--systems", f"{first},{second},{third}", "--baseline",
             second, "--alternative", "greater", "--correction", "fdr_bh", "--replicates", "300",
             "--seed", "4", "--workers", "2")  # fmt: skip
    assert output_of("compare-systems", path, *given) == f"{made}\n"


def test_csv_and_json_are_the_table(wide):
    table = vcomp.ir.compare_systems(WIDE, "wilcoxon", zeros="wilcox").table
    given = ("compare-systems", wide, "--test", "wilcoxon", "--zeros", "wilcox")
    read = pd.read_csv(
        io.StringIO(output_of(*given, "--format", "csv")), dtype={"first": str, "second": str}
    )
    pd.testing.assert_frame_equal(read, table, check_dtype=False, rtol=1e-12)
    rows = json.loads(output_of(*given, "--format", "json"))
    assert [row["p_value"] for row in rows] == pytest.approx(list(table["p_value"]), rel=1e-12)
    assert rows[0]["low"] is None


@pytest.mark.parametrize("kind", ["groups", "p_values"])
def test_pictures(wide, tmp_path, kind):
    path = tmp_path / "picture.svg"
    output_of("compare-systems", wide, "--plot", path, "--kind", kind)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--test", "tukey", "--correction", "holm"], "its p-values need no correction="),
        (["--test", "z"], "test must be 't', 'wilcoxon'"),
        (["--replicates", "99"], "test='t' has none"),
        (["--baseline", "nobody"], "there is no system 'nobody'"),
        (["--plot", "x.doc"], "its ending has to be one of"),
    ],
)
def test_mistakes(wide, given, message):
    done = CliRunner().invoke(cli, ["compare-systems", str(wide), *given])
    assert isinstance(done.exception, VcompError)
    assert message in str(done.exception)
