"""Statistics by the command line: made, merged and fitted; rows in batches; mistakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers import command_line
from vcomp.cli.main import cli
from vcomp.statistics.batches import passes

FORMULA = "score ~ (1|sys) + (1|topic)"


def run(*arguments, code=0):
    """Return what a command prints; with a code its error, which has to be one of ours."""
    done = CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)
    if code:
        assert isinstance(done.exception, vcomp.VcompError) or (
            type(done.exception).__module__ == "click.exceptions"
        )
        error = done.exception
        return getattr(error, "message", None) or str(error)
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """Return a folder with two days of scores, in a file each, and their statistics."""
    folder = tmp_path_factory.mktemp("merged")
    frame = vcomp.datasets.load("docsearch")
    first = frame["topic"].isin(frame["topic"].unique()[:70])
    for name, part in (("monday", frame[first]), ("tuesday", frame[~first])):
        part.to_parquet(folder / f"{name}.parquet", index=False)
    statistics(folder)
    other = folder / "other.vcomp"
    run("accumulate", "score ~ (1|sys)", folder / "monday.parquet", "--out", other)
    return folder


@pytest.fixture
def days(merged, tmp_path):
    """Return a folder with two days of scores, in a file each."""
    for name in ("monday.parquet", "tuesday.parquet"):
        shutil.copy(merged / name, tmp_path)
    return tmp_path


def statistics(days):
    for name in ("monday", "tuesday"):
        run("accumulate", FORMULA, days / f"{name}.parquet", "--out", days / f"{name}.vcomp")
    run("merge", days / "monday.vcomp", days / "tuesday.vcomp", "--out", days / "week.vcomp")
    return days / "week.vcomp"


def test_days_are_accumulated_merged_and_fitted(days):
    week = statistics(days)
    assert sorted(os.listdir(days)) == [
        "monday.parquet", "monday.vcomp", "tuesday.parquet", "tuesday.vcomp", "week.vcomp",
    ]  # fmt: skip
    res = vcomp.fit(FORMULA, vcomp.datasets.load("docsearch"))
    printed = run("fit", "--statistics", week)
    assert "robust modified large sample" in " ".join(printed.split())
    printed = run(
        "fit", "--statistics", week, "--dstudy", "topic=50,100", "--tau", "--interval", "mls",
        "--json", days / "fit.json",
    )  # fmt: skip
    assert str(res.summary(interval="mls")) in printed
    assert str(res.dstudy(topic=[50, 100], interval="mls").summary()) in printed
    assert "Correlation of a ranking by n topic" in printed
    loaded = vcomp.VarianceComponentsResults.from_json(days / "fit.json")
    np.testing.assert_allclose(loaded.vcomp, res.vcomp, rtol=1e-11)


def test_it_says_what_was_summed(days):
    said = run("accumulate", FORMULA, days / "*.parquet", "--out", days / "all")
    assert said.endswith(
        "all: statistics of 13,200 scores in 6,600 cells of 44 sys × 150 topics\n"
    )
    several = run(
        "accumulate", FORMULA, days / "monday.parquet", days / "tuesday.parquet", "--out",
        days / "all",
    )  # fmt: skip
    assert several == said


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_rows_in_batches_and_their_residuals(days, stream):
    out = days / "residuals.parquet"
    printed = run("fit", FORMULA, days / "*day.parquet", stream, "--augment", out)
    res = vcomp.fit(FORMULA, days / "*day.parquet")
    assert str(res.summary()) in printed
    found = pd.read_parquet(out)
    assert list(found) == ["score", "sys", "topic", "fitted", "resid"]
    np.testing.assert_allclose(found["resid"], res.resid, rtol=0, atol=1e-12)


def test_a_bar_is_shown_if_asked_for(days):
    done = CliRunner().invoke(
        cli, ["fit", FORMULA, str(days / "monday.parquet"), "--stream", "--progress"]
    )
    assert "pass 2: 100%" in done.output
    assert "rows/s" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit"], "give FORMULA and DATA, or --statistics FILE"),
        (["fit", FORMULA], "give one of DATA and --dataset"),
        (["fit", FORMULA, "--statistics", "week.vcomp"], "which has the formula"),
        (["fit", "--statistics", "week.vcomp", "--stream"], "--stream needs rows"),
        (["fit", "--statistics", "week.vcomp", "--augment", "a.parquet"], "--augment needs rows"),
        (["fit", "--statistics", "week.vcomp", "--dataset", "docsearch"], "--dataset needs rows"),
        (["fit", "--statistics", "week.vcomp", "--missing", "raise"], "--missing needs rows"),
        (["fit", "--statistics", "monday.parquet"], "does not hold statistics"),
        (["fit", "--statistics", "sunday.vcomp"], "there is no file 'sunday.vcomp'"),
        (["accumulate", FORMULA, "sunday.csv", "--out", "a"], "no file 'sunday.csv'"),
        (["accumulate", FORMULA, "monday.parquet", "--out", "no/a"], "there is no such folder"),
        (["accumulate", "score ~ (1|system)", "monday.parquet", "--out", "a"], "'system'"),
        (["merge", "week.vcomp", "week.vcomp", "--out", "a"], "given twice"),
        (["merge", "week.vcomp", "./week.vcomp", "--out", "a"], "given twice"),
        (["merge", "week.vcomp", "monday.vcomp", "--out", "."], "it is a folder; name a file in"),
        (["merge", "week.vcomp", "sunday.vcomp", "--out", "a"], "no file 'sunday.vcomp'"),
        (
            ["accumulate", FORMULA, "monday.parquet", "--out", "."],
            "it is a folder; name a file in",
        ),
        (["accumulate", FORMULA, "monday.parquet", "--out", ""], "it is a folder; name a file in"),
        (["accumulate", FORMULA, ".", "--out", "./monday.parquet"], "is a file of the data"),
        (["fit", FORMULA, ".", "--augment", "monday.parquet"], "is a file of the data"),
        (
            [
                "gstudy",
                ".",
                "--design",
                "sys x topic",
                "--response",
                "score",
                "--augment",
                "monday.parquet",
            ],
            "is a file of the data",
        ),
        (["fit", FORMULA, "sunday", "--augment", "a.csv"], "does not end in .parquet"),
        (["fit", FORMULA, "sunday", "--augment", "no/a.parquet"], "there is no such folder"),
        (["merge", "week.vcomp", "other.vcomp", "--out", "a"], "'other.vcomp' is not merged: "),
    ],
)
def test_mistakes_are_sentences(merged, monkeypatch, arguments, words):
    monkeypatch.chdir(merged)
    before = sorted(os.listdir(merged))
    assert words in run(*arguments, code=2)
    assert sorted(os.listdir(merged)) == before


def test_an_interruption_is_said_and_leaves_nothing(days, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(passes.CompleteRows, "of", interrupted)
    before = sorted(os.listdir(days))
    out = str(days / "a.vcomp")
    done = command_line.run("accumulate", FORMULA, str(days), "--out", out, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "vcomp: interrupted")
    assert sorted(os.listdir(days)) == before


@pytest.mark.skipif(os.name == "nt", reason="modes of files are Unix's")
def test_statistics_can_be_read_by_whom_the_user_lets(days):
    before = os.umask(0o022)
    try:
        assert statistics(days).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_helps_have_examples():
    for command in ("fit", "accumulate", "merge"):
        assert f"vcomp {command}" in run(command, "--help").partition("Examples:")[2]


@pytest.mark.parametrize("value", ["drop", "raise"])
def test_missing_values_are_of_rows(merged, value):
    said = run("fit", "--statistics", merged / "week.vcomp", "--missing", value, code=2)
    assert said == "--missing needs rows; saved statistics contain none"


_AFTER_THE_WARM_UP = """
from click.testing import CliRunner
import numpy as np, pandas as pd, vcomp
from vcomp.cli.main import cli
from vcomp.numerics.kernels.compilation import COMPILATIONS, _KEPT

def known():
    return {(kept.py_func.__name__, str(types)) for kept in _KEPT for types in kept.signatures}

def run(*arguments):
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.exit_code == 0, done.output

run("warm-up")
before, count = known(), COMPILATIONS.count
formula = "score ~ (1|sys*topic)"
run("fit", formula, "--dataset", "docsearch", "--dstudy", "topic=50,100,150", "--tau")
rows = vcomp.datasets.load("docsearch")
vcomp.fit(formula, rows).bootstrap(20, rng=1, progress=False)
vcomp.fit(formula, rows.iloc[:-7]).summary()
table = rows.groupby(["topic", "sys"], observed=True).score.mean().unstack("sys").to_numpy()
vcomp.ir.accuracy(table, ["tau", "tau_ap", "Erho2", "rmse", "sens_abs"], [75, 150], rng=1)
parts = {"p": .0075, "i": .016, "a": 0, "pi": .0126, "pa": .00002, "ia": .0014, "pia": .0018}
study = vcomp.from_components(parts).dstudy(i=50, a=1)
study.optimize("5*i + i:a", budget=700, designs=["p x i x a"])
rng = np.random.default_rng(2)
ratings = pd.DataFrame({f: rng.integers(0, n, 20_000) for f, n in (("s", 900), ("d", 400))})
ratings["y"] = rng.integers(1, 6, 20_000)
vcomp.fit("y ~ (1|s) + (1|d)", ratings).summary()
for users, films in ((50_000, 35_000), (9_000, 2_000)):  # single ratings, and repeated ones
    at = {f: q * rng.random(200_000) ** 3 for f, q in (("u", users), ("f", films))}
    ratings = pd.DataFrame(at).astype(int)
    ratings["y"] = 1.0 * rng.integers(1, 6, 200_000)
    vcomp.fit("y ~ (1|u) + (1|f)", ratings).summary()
print(sorted(known() - before))
"""


def test_after_the_warm_up_nothing_is_compiled():
    """The work whose first start the benchmark ``startup`` measures; code may be kept already."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _AFTER_THE_WARM_UP],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
