"""``vcomp accuracy`` and ``vcomp tau``: wide and long scores, tables, pictures, mistakes."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.command_line import output_of, run
from tests.helpers.rank_scores import LONG, WIDE
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError


@pytest.fixture
def long(tmp_path):
    path = tmp_path / "long.parquet"
    LONG.to_parquet(path)
    return path


def test_it_prints_what_python_prints(wide):
    made = vcomp.ir.accuracy(WIDE, None, [10, 40], alpha=0.1, drop_worst=0.25)
    printed = output_of(
        "accuracy", wide, "--topics", "10,40", "--alpha", ".1", "--drop-worst", ".25"
    )
    assert printed == f"{made}\n".replace('negative="keep"', "--negative keep")


def test_long_data_are_the_same(wide, long):
    expected = output_of("accuracy", wide, "--topics", "25")
    assert output_of("accuracy", long, "--topics", "25") == expected
    assert output_of("tau", long, "--topics", "25") == output_of("tau", wide, "--topics", "25")


def test_columns_of_any_name(long, tmp_path, wide):
    path = tmp_path / "other.csv"
    LONG.rename(columns={"system": "who", "topic": "what", "score": "AP"}).to_csv(path)
    named = ("--system", "who", "--topic", "what", "--score", "AP")
    for verb in ("accuracy", "tau"):
        found, expected = output_of(verb, path, *named), output_of(verb, wide)
        assert re.findall(r"\d[\d.]*", found) == re.findall(r"\d[\d.]*", expected)
    assert "6 whos × 16 whats" in output_of("accuracy", path, *named)


def test_data_sets_and_formulas():
    data = vcomp.datasets.load("bodoff2007_alpha")
    matrix = data.pivot(index="topic", columns="sys", values="score")
    printed = output_of("tau", "--dataset", "bodoff2007_alpha", "--topics", "5,9")
    assert f"{vcomp.ir.expected_tau(matrix, 5)['estimate'].item():.3f}" in printed
    formula = "score ~ (1|sys*topic)"
    res = vcomp.fit(formula, vcomp.datasets.load("docsearch"))
    made = res.accuracy(["tau", "Phi"], topic=[50])
    given = ("accuracy", "--dataset", "docsearch", "--formula", formula, "--measures", "tau,Phi")
    assert output_of(*given, "--topics", "50") == f"{made}\n"
    assert output_of(*given) == f"{res.accuracy(['tau', 'Phi'])}\n"
    assert output_of(*given, "--facet", "sys") == f"{res.accuracy(['tau', 'Phi'], sys=44)}\n"


def test_measures_and_halves(wide):
    made = vcomp.ir.accuracy(
        WIDE, ["tau", "swap_rate"], 30, estimator="split_half", model="exp1", trials=9, rng=4
    )
    printed = output_of(
        "accuracy", wide, "--topics", 30, "--measures", "tau", "--measures", "swap_rate",
        "--estimator", "split_half", "--model", "exp1", "--trials", 9, "--seed", 4,
    )  # fmt: skip
    assert printed == f"{made}\n"


def test_tables(wide):
    expected = vcomp.ir.accuracy(WIDE, ["tau", "rmse"], [10, 40]).table
    given = ("accuracy", wide, "--measures", "tau,rmse", "--topics", "10,40", "--format")
    read = pd.read_csv(io.StringIO(output_of(*given, "csv")))
    pd.testing.assert_frame_equal(read, expected, check_dtype=False)
    records = json.loads(output_of(*given, "json"))
    assert records[0]["measure"] == "tau"
    assert records[3]["high"] == pytest.approx(expected["high"].iloc[3], rel=1e-14)


def test_tables_of_tau(wide):
    read = pd.read_csv(io.StringIO(output_of("tau", wide, "--topics", "10,40", "--format", "csv")))
    assert read["measure"].tolist() == ["tau", "tau", "tau_ap", "tau_ap"]
    assert read["n"].tolist() == [10, 40, 10, 40]
    for name, variant in (("tau", "a"), ("tau_ap", "ap")):
        mine = read[read["measure"] == name].reset_index(drop=True)
        expected = vcomp.ir.expected_tau(WIDE, [10, 40], variant=variant)
        np.testing.assert_allclose(mine["estimate"], expected["estimate"], rtol=1e-12)
        np.testing.assert_allclose(mine["high"], expected["high"], rtol=1e-12)


def test_pictures(wide, tmp_path):
    path = tmp_path / "accuracy.svg"
    output_of("accuracy", wide, "--topics", "10,40", "--plot", path)
    text = path.read_text(encoding="utf-8")
    assert "<svg" in text


def test_help_has_examples_and_every_measure():
    text = output_of("accuracy", "--help")
    assert "vcomp accuracy matrix.csv --topics 25,50,100" in text
    for name in vcomp.ir.measures.available():
        assert name in text
    assert "vcomp accuracy matrix.csv" in output_of("--help")


MISTAKES = {
    "no measure 'taw' (did you mean 'tau'?)": ["accuracy", "WIDE", "--measures", "tau,taw"],
    "'x' has a size that is not a number": ["accuracy", "WIDE", "--topics", "x"],
    "the number of topics must be positive, not 0": ["tau", "WIDE", "--topics", "0"],
    "there is no file 'absent.csv'": ["accuracy", "absent.csv"],
    "there is no column 'sistem' in the data (did you mean 'system'?)": [
        *["accuracy", "LONG", "--system", "sistem"],
    ],
    "name that of the systems with --system": ["accuracy", "--dataset", "digits"],
    "name that of the scores with --score": ["tau", "WIDE", "--system", "run 1"],
    "on topic 'argparse', one for each query. Means over them": ["tau", "--dataset", "docsearch"],
    "there is no facet 'topics' (did you mean 'topic'?)": [
        *["accuracy", "LONG", "--formula", "score ~ (1|system) + (1|topic)"],
        *["--facet", "topics", "--topics", "5"],
    ],
    "there is no facet 'topik' (did you mean 'topic'?)": [
        *["accuracy", "LONG", "--formula", "score ~ (1|system) + (1|topic)", "--facet", "topik"],
    ],
    "drop_worst must be at least 0 and less than 1": ["tau", "WIDE", "--drop-worst", "2"],
    "estimator must be 'shrunken', 'urbano' or 'split_half', not 'own'": [
        "accuracy",
        "WIDE",
        "--estimator",
        "own",
    ],
    "estimator='urbano' applies to τ and τ_AP": [
        "accuracy",
        "WIDE",
        "--estimator",
        "urbano",
        "--measures",
        "Phi",
    ],
    "trials= applies to measures that are extrapolated": ["accuracy", "WIDE", "--trials", "5"],
    "alpha must be between 0 and 1": ["accuracy", "WIDE", "--alpha", "2"],
    "cannot draw 'a.doc'": ["accuracy", "WIDE", "--plot", "a.doc"],
    "column 'word' does not hold the scores of a system: the first": ["tau", "TEXT"],
    "all scores are equal": ["accuracy", "EQUAL"],
    "at least two topics (rows) and two systems": ["accuracy", "SINGLE"],
    "1 of 12 are missing, that of system 'b' on topic 't2'": [
        *["accuracy", "HOLES", "--measures", "sens_rel"],
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accuracy")
    LONG.to_csv(folder / "LONG.csv", index=False)
    WIDE.to_csv(folder / "WIDE.csv")
    texts = {
        "TEXT": "topic,a,word\n1,0.1,x\n2,0.2,y\n",
        "EQUAL": "topic,a,b\n1,0.5,0.5\n2,0.5,0.5\n3,0.5,0.5\n",
        "SINGLE": "topic,a,b\n1,0.5,0.4\n",
        "HOLES": "topic,a,b,c\nt1,.1,.2,.3\nt2,.2,,.4\nt3,.3,.5,.1\nt4,.4,.1,.2\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(message, files):
    arguments = [
        str(files / f"{a}.csv") if (files / f"{a}.csv").exists() else a for a in MISTAKES[message]
    ]
    with pytest.raises(VcompError) as caught:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert message in str(caught.value)


USAGE = {
    "give one of SCORES and --dataset": ["accuracy"],
    "--facet needs --formula": ["accuracy", "WIDE", "--facet", "topic"],
    "--drop-worst cannot be used with --formula": [
        *["accuracy", "LONG", "--formula", "score ~ (1|system) + (1|topic)"],
        *["--drop-worst", ".2"],
    ],
    "--score cannot be used with --formula": [
        *["accuracy", "LONG", "--formula", "score ~ (1|system) + (1|topic)", "--score", "score"],
    ],
    "is not one of 'text', 'csv', 'json'": ["tau", "WIDE", "--format", "xml"],
}


@pytest.mark.parametrize("message", USAGE)
def test_options_that_do_not_go_together(message, files):
    arguments = [
        str(files / f"{a}.csv") if (files / f"{a}.csv").exists() else a for a in USAGE[message]
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_mistake_is_one_line_without_traceback(files):
    done = run("accuracy", str(files / "WIDE.csv"), "--measures", "taw", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("vcomp: error: no measure 'taw'")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
