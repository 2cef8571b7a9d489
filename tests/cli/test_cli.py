"""The command line as a shell sees it: text, files, exit codes."""

from __future__ import annotations

import json
import re

import click
import pandas as pd
import pytest

import vcomp
from tests.helpers.command_line import run, run_process
from tests.helpers.designs import balanced
from vcomp.cli.main import cli

FORMULA = "y ~ (1|a) + (1|b)"


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "scores.csv"
    _, data = balanced("crossed", seed=1)
    data.to_csv(path, index=False)
    return path


def test_every_option_is_explained():
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command.name == name
        for option in command.params:
            if isinstance(option, click.Option):
                assert re.search(r"\w", option.help or ""), (name, option.name)
                assert "``" not in option.help
                assert ":func:" not in option.help
    assert cli.get_command(context, "nonsense") is None


def test_the_main_job():
    done = run_process(
        "fit", "score ~ (1|sys) + (1|topic)", "--dataset", "docsearch",
        "--dstudy", "topic=50,100,150", "--tau",
    )  # fmt: skip
    for line in (
        "Variance components by REML",
        "44 sys × 150 topics, fully crossed, balanced",
        "D-study sys × topic; object of measurement: sys",
        "For Eρ² = 0.95",
        "Correlation of a ranking by n topics with the true ranking",
    ):
        assert line in done.stdout
    assert done.stderr == ""


def test_fit_prints_what_python_prints(scores):
    res = vcomp.fit(FORMULA, scores)
    done = run("fit", FORMULA, str(scores), "--dstudy", "b=5,10", "--object", "a")
    assert str(res.summary()) in done.stdout
    assert str(res.dstudy(object="a", b=[5, 10]).summary()) in done.stdout


@pytest.mark.parametrize("method", ["reml", "ml", "anova"])
def test_methods_and_parquet(scores, tmp_path, method):
    path = tmp_path / "scores.parquet"
    pd.read_csv(scores).to_parquet(path)
    done = run("fit", FORMULA, str(path), "--method", method)
    assert str(vcomp.fit(FORMULA, scores, method=method).summary()) in done.stdout


def test_options_of_a_method(scores):
    given = run(
        "fit", FORMULA, str(scores), "--hold", "a=0.5", "--start", "b=3 Residual=0.1",
        "--max-iter", "50", "--tol", "1e-8", "--engine", "blocked", "--dstudy", "b=5",
        "--object", "a",
    )  # fmt: skip
    res = vcomp.fit(
        FORMULA, scores, hold={"a": 0.5}, start={"b": 3.0, "Residual": 0.1}, max_iter=50, tol=1e-8,
        engine="blocked",
    )  # fmt: skip
    assert str(res.summary()) in given.stdout
    assert str(res.dstudy(object="a", b=5).summary()) in given.stdout
    assert "σ²(a) is held at 0.5" in given.stdout


def test_fits_with_columns_of_rows(tmp_path):
    path = tmp_path / "rows.csv"
    frame = pd.DataFrame({"y": [1, 2, 3.5, 2.5, 0.5, 1.9], "g": list("aabbcc")})
    frame = frame.assign(n=[2, 3, 1, 4, 2, 5], o=[0.5, 0.1, 0.3, 0.9, 0.2, 0.4])
    frame.to_csv(path, index=False)
    for options, known in [
        (("--weights", "n", "--offset", "o"), {"weights": "n", "offset": "o"}),
        (("--frequency", "n"), {"frequency": "n"}),
        (("--known-variance", "o"), {"known_variance": "o"}),
    ]:
        done = run("fit", "y ~ (1|g)", str(path), *options)
        assert str(vcomp.fit("y ~ (1|g)", frame, **known).summary()) in done.stdout


def test_refit_without_negative_terms(tmp_path):
    path = tmp_path / "scores.csv"
    pairs = [("a", 1), ("a", 3), ("b", 1.5), ("b", 2.5)]
    path.write_text("g,y\n" + "".join(f"{g},{y}\n" for g, y in pairs))
    done = run("fit", "y ~ (1|g)", str(path), "--method", "anova", "--negative", "refit")
    res = vcomp.fit("y ~ (1|g)", path, method="anova", negative="refit")
    assert str(res.summary()) in done.stdout
    assert "Terms with negative estimates were dropped" in done.stdout


def test_options_of_probes_and_of_minque(scores):
    done = run(
        "fit", FORMULA, str(scores), "--engine", "iterative", "--probes", "8", "--seed", "3"
    )
    res = vcomp.fit(FORMULA, scores, engine="iterative", n_probes=8, rng=3)
    assert str(res.summary()) in done.stdout
    minque = ("fit", FORMULA, str(scores), "--method", "minque")
    res = vcomp.fit(FORMULA, scores, method="minque", iterated=True)
    assert str(res.summary()) in run(*minque, "--iterated").stdout
    weights = {name: k + 1.0 for k, name in enumerate(res.vcomp.index)}
    given = [x for name, w in weights.items() for x in ("--prior", f"{name}={w}")]
    res = vcomp.fit(FORMULA, scores, method="minque", prior=weights)
    assert str(res.summary()) in run(*minque, *given).stdout


def test_a_fit_that_did_not_converge_says_so(scores):
    done = run(
        "fit", FORMULA, str(scores), "--max-iter", "0", "--start", "a=1e4", warnings_are="default"
    )
    assert "NOT CONVERGED" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("vcomp: warning: Not converged: the limit of 0 steps was reached")


def test_json_is_a_stored_result_with_its_tables(scores, tmp_path):
    path = tmp_path / "fit.json"
    run("fit", FORMULA, str(scores), "--dstudy", "b=5", "--tau", "--json", str(path))
    res = vcomp.fit(FORMULA, scores)
    loaded = vcomp.VarianceComponentsResults.from_json(path)
    pd.testing.assert_series_equal(loaded.vcomp, res.vcomp)
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["dstudy"]["table"][0]["Erho2"] == pytest.approx(
        res.dstudy(b=5).table["Erho2"].item()
    )
    assert stored["rank_accuracy"]["expected_tau"][0]["estimate"] == pytest.approx(
        res.expected_tau(b=5)["estimate"].item()
    )
    done = run("dstudy", str(path), "b=20", "--goal", "0.9")
    assert str(res.dstudy(b=20).summary()) in done.stdout
    assert "For Eρ² = 0.9" in done.stdout


@pytest.mark.parametrize(
    ("interval", "method"),
    [*((name, "reml") for name in ("mls", "robust", "profile", "satterthwaite")),
     ("bootstrap", "anova")],
)  # fmt: skip
def test_intervals_by_any_method(interval, method, scores):
    given = "fit", FORMULA, str(scores), "--method", method
    printed = run(*given, "--dstudy", "b=5", "--interval", interval).stdout
    res = vcomp.fit(FORMULA, str(scores), method=method)
    assert str(res.summary(interval=interval)) in printed
    # Satterthwaite has none of coefficients.
    other = "auto" if interval == "satterthwaite" else interval
    assert str(res.dstudy(b=5, interval=other).summary()) in printed


def test_json_on_the_screen_is_json_alone(scores):
    done = run("fit", FORMULA, str(scores), "--json", "-")
    assert json.loads(done.stdout)["formula"] == FORMULA


def test_dstudy_of_published_components():
    done = run(
        "dstudy", "--components", "p=.00751 i=.01596 a=0 pi=.01258 pa=.00002 ia=.00143 pia=.00176",
        "i=20", "a=3",
    )  # fmt: skip
    row = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["20", "3"])
    assert row.split()[2:4] == ["0.919", "0.835"]  # Bodoff & Li (2007), p. 371


def test_tau_of_a_matrix(scores, tmp_path):
    matrix = pd.read_csv(scores).pivot(index="b", columns="a", values="y")
    matrix.columns = [f"s{c}" for c in matrix.columns]
    expected = vcomp.ir.expected_tau(matrix, [5, 50])["estimate"]
    with_names = tmp_path / "matrix.csv"
    matrix.rename_axis("topic").to_csv(with_names)
    without = tmp_path / "plain.csv"
    matrix.to_csv(without, index=False)
    for path in (with_names, without):
        done = run("tau", str(path), "--topics", "5,50")
        assert f"{expected[0]:.3f}" in done.stdout
        assert f"{expected[1]:.3f}" in done.stdout


def test_datasets():
    listed = run("datasets").stdout
    assert "docsearch" in listed
    assert "digits" in listed
    printed = run("datasets", "bodoff2007_alpha").stdout.splitlines()
    assert printed[0] == "sys,topic,score"
    assert len(printed) == 16


def test_help_shows_examples():
    for command in ([], ["fit"], ["dstudy"], ["tau"]):
        text = run(*command, "--help").stdout
        assert 'vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv' in text
    assert run("--version").stdout.strip() == f"vcomp, version {vcomp.__version__}"


MISTAKES = {
    "there is no column 'aa' in the data (did you mean 'a'?)": ["fit", "y ~ (1|aa)", "FILE"],
    "a random term without effects": ["fit", "y ~ (0|a)", "FILE"],
    "there is no file": ["fit", FORMULA, "absent.csv"],
    "give one of DATA and --dataset": ["fit", FORMULA],
    "--interval boot is not known; intervals are 'auto'": [
        "fit",
        FORMULA,
        "FILE",
        "--interval",
        "boot",
    ],
    "did you mean 'docsearch'?": ["fit", FORMULA, "--dataset", "docserch"],
    "--method remel is not known": ["fit", FORMULA, "FILE", "--method", "remel"],
    "hold names component 'c', which is not in the model": [
        "fit",
        FORMULA,
        "FILE",
        "--hold",
        "c=1",
    ],
    "component 'a' is given twice": ["fit", FORMULA, "FILE", "--start", "a=1", "--start", "a=2"],
    "'a' is not a component; write NAME=": ["fit", FORMULA, "FILE", "--hold", "a"],
    "tol must be a number between 0 and 1": ["fit", FORMULA, "FILE", "--tol", "2"],
    "--tol is given 2 times, and takes one value": ["fit", FORMULA, "FILE", *["--tol", "0.1"] * 2],
    "add files with `vcomp merge`": ["fit", *["--statistics", "absent.vcomp"] * 2],
    "--engine fast is not known": ["fit", FORMULA, "FILE", "--engine", "fast"],
    "use --method reml or ml": [
        *["fit", "y ~ b + (1|a)", "FILE", "--method", "anova"],
    ],
    "not 'tol'": ["fit", FORMULA, "FILE", "--method", "anova", "--tol", "0.1"],
    "--negative drop is not known": ["fit", FORMULA, "FILE", "--negative", "drop"],
    "'b5' is not a size; write FACET=N": ["fit", FORMULA, "FILE", "--dstudy", "b5"],
    "a size that is not a number": ["fit", FORMULA, "FILE", "--dstudy", "b=x"],
    "'c'": ["fit", FORMULA, "FILE", "--dstudy", "c=5"],
    "must be a positive number": ["fit", FORMULA, "FILE", "--dstudy", "b=0"],
    "'p' is not a component": ["dstudy", "--components", "p", "i=5"],
    "give one of RESULT.json, --components and --mean-squares": ["dstudy", "i=5"],
    "cannot write": ["fit", FORMULA, "FILE", "--json", "absent/folder/fit.json"],
    "No such option": ["fit", FORMULA, "FILE", "--nonsense"],
    "not a result that vcomp stored": ["dstudy", "JSON", "i=5"],
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(message, scores, tmp_path):
    other = tmp_path / "other.json"
    other.write_text("{}")
    given = {"FILE": str(scores), "JSON": str(other)}
    done = run(*(given.get(a, a) for a in MISTAKES[message]), check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_warnings_are_one_line(scores, tmp_path):
    data = pd.read_csv(scores)
    data.loc[3, "y"] = None
    path = tmp_path / "missing.csv"
    data.to_csv(path, index=False)
    done = run("fit", FORMULA, str(path), warnings_are="default")
    (line,) = done.stderr.splitlines()
    assert line.startswith("vcomp: warning: 1 of 63 rows have a missing value (y 1)")


def test_pictures_are_files(scores, tmp_path):
    study, components = tmp_path / "study.SVG", tmp_path / "components.png"
    run("fit", FORMULA, str(scores), "--dstudy", "b=5,10", "--object", "a", "--plot", str(study))
    run("fit", FORMULA, str(scores), "--plot", str(components))
    assert "levels of b" in study.read_text(encoding="utf-8")
    assert components.read_bytes().startswith(b"\x89PNG")
    for file, message in (
        (str(tmp_path / "a.doc"), "its ending has to be one of"),
        (str(tmp_path / "no" / "a.png"), "there is no such folder"),
    ):
        done = run("fit", FORMULA, str(scores), "--plot", file, check=False)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_g_study_by_its_design(tmp_path):
    path = tmp_path / "ratings.csv"
    formula, data = balanced("crossed and nested", seed=2)
    data.rename(columns={"a": "person", "b": "task", "c": "my rater"}).to_csv(path, index=False)
    given = (
        "gstudy", str(path), "--design", "p x (r:t)", "--response", "y", "--facet", "p=person",
        "--facet", "t=task", "--facet", "r=my rater",
    )  # fmt: skip
    done = run(*given, "--method", "anova", "--dstudy", "r=2,4", "--object", "p")
    columns = {"p": "person", "t": "task", "r": "my rater"}
    res = vcomp.gstudy("p x (r:t)", path, "y", facets=columns, method="anova")
    assert str(res.summary()) in done.stdout
    assert str(res.dstudy(object="p", r=[2, 4]).summary()) in done.stdout
    same = vcomp.fit(formula, data, method="anova")
    assert res.vcomp.tolist() == same.vcomp.tolist()
    crossed = run(*given, "--dstudy-design", "p x R x T", check=False)
    assert crossed.returncode == 2
    assert "needs them separately" in crossed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--design", "p x", "--response", "y"), "expected a facet"),
        (("--response", "y"), "--design"),
        (("--design", "a x b"), "--response"),
        (("--design", "a x b", "--response", "y", "--facet", "a"), "write NAME=COLUMN"),
        (
            ("--design", "a x b", "--response", "y", "--facet", "a=a", "--facet", "a=b"),
            "the column of 'a' is given twice",
        ),
        (("--design", "a x b", "--response", "z"), "there is no column 'z'"),
        (("--design", "a x q", "--response", "y"), "there is no column 'q'"),
    ],
)
def test_g_studies_that_cannot_be(scores, arguments, message):
    done = run("gstudy", str(scores), *arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
