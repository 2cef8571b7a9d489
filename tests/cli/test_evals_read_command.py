"""``vcomp evals-read``: what was read, the table as text and as a file, mistakes."""

from io import StringIO
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

import vcomp
from vcomp.cli.main import cli

LOGS = Path(__file__).parents[1] / "evals" / "logs" / "lm_eval_0.4.13"


def ended(*arguments, stdin=None):
    return CliRunner().invoke(cli, ["evals-read", *map(str, arguments)], input=stdin)


def test_the_page_and_the_table():
    logs = vcomp.evals.read(LOGS)
    said = ended(LOGS).output
    assert "--columns prompt=task." in said
    assert said == f"{logs}\n".replace("columns={'prompt': 'task'}", "--columns prompt=task")
    table = pd.read_csv(StringIO(ended(LOGS, "--format", "csv").output))
    pd.testing.assert_series_equal(table["score"], logs.table["score"])


def test_the_file(tmp_path):
    path = tmp_path / "scores.parquet"
    assert not ended(LOGS, "--metadata", "passage", "--out", path).exception
    logs = vcomp.evals.read(LOGS, metadata=["passage"])
    assert len(pd.read_parquet(path)) == len(logs.table)
    again = vcomp.evals.read(path).table
    pd.testing.assert_series_equal(again["score"], logs.table["score"])
    assert list(again) == list(logs.table)


def test_standard_input_and_mistakes(tmp_path):
    lines = "model,item,score\na,1,1\na,2\n"
    assert "instead of 3" in ended("-", "--unreadable", "skip", stdin=lines).output
    assert "Expected 3 columns" in str(ended("-", stdin=lines).exception)
    assert "format must be" in str(ended(LOGS, "--log-format", "csv").exception)
    assert "--out" in str(ended(LOGS, "--out", tmp_path / "x.csv").exception)
    assert ended().exit_code == 2
