"""D-studies from the command line: universes, layouts, cut scores, allocation."""

from __future__ import annotations

import pytest

import vcomp
from tests.helpers.command_line import run
from vcomp.cli.inputs import names_argument, numbers_argument, single_sizes
from vcomp.exceptions import PlanError

TREC = "p=.00751 i=.01596 a=0 pi=.01258 pa=.00002 ia=.00143 pia=.00176"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("planning") / "fit.json"
    data = vcomp.datasets.load("bodoff2007_alpha")
    path.write_text(vcomp.fit("score ~ (1|sys) + (1|topic)", data).to_json(), encoding="utf-8")
    return path


def test_fixed_facets_and_finite_universes():
    out = run(
        "dstudy", "--components", TREC, "i=20", "a=3", "--fixed", "a", "--universe", "i=500"
    ).stdout
    assert "Fixed: the universe has only the planned levels of a." in out
    assert "The universe of i has 500 levels." in out


def test_a_fit_takes_them_too(tmp_path):
    table = tmp_path / "scores.csv"
    vcomp.datasets.load("bodoff2007_alpha").to_csv(table, index=False)
    formula = "score ~ (1|sys) + (1|topic)"
    out = run("fit", formula, str(table), "--dstudy", "topic=6", "--universe", "topic=12").stdout
    assert "The universe of topic has 12 levels." in out


def test_objects_of_several_facets():
    components = "c=.2 p:c=.5 i=.3 c:i=.1 Residual=1"
    out = run(
        "dstudy", "--components", components, "i=20", "--object", "p", "--within", "c"
    ).stdout
    assert "object of measurement: c:p" in out
    assert "Objects are compared within the levels of c." in out


def test_layouts_are_files(tmp_path):
    layout = tmp_path / "plan.csv"
    layout.write_text("i,a\n1,A\n2,A\n2,B\n", encoding="utf-8")
    out = run("dstudy", "--components", TREC, "--object", "p", "--layout", str(layout)).stdout
    assert "exact effective size in the layout" in out


def test_cut_scores_of_a_stored_fit(stored):
    out = run("dstudy", str(stored), "topic=6", "--cut", "0.5,0.7").stdout
    assert "Decisions by a cut score λ" in out
    assert "0.975" in out  # by hand in the docstring of DStudy.phi_lambda


def test_the_best_design_for_a_budget(tmp_path):
    picture = tmp_path / "frontier.svg"
    out = run(
        "dstudy", "--components", TREC, "i=50", "a=1", "--cost", "5*i + i:a", "--budget", "1000",
        "--alternative", "p x (a:i)", "--plot", str(picture),
    ).stdout  # fmt: skip
    assert "Recommended is p × (a:i): 166 i, 1 a in each i; costs 996" in out
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_objects_that_cost():
    out = run(
        "dstudy", "--components", TREC, "i=50", "a=1", "--cost", "i*a", "--budget", "120",
        "--alternative", "(i:p) x a", "--n-objects", "10",
    ).stdout  # fmt: skip
    assert "(i:p) × a" in out
    assert "i = 12, a = 1; Eρ² is lower" in out


def test_the_cheapest_design_for_a_goal():
    out = run(
        "dstudy", "--components", TREC, "i=50", "a=1", "--cost", "5*i + i:a", "--goal", ".97",
        "--coefficient", "Phi",
    ).stdout  # fmt: skip
    assert "Φ = 0.970" in out
    assert "are needed" not in out.split("Recommended")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "10"], "--budget needs --cost"),
        (["--alternative", "p x (a:i)"], "--alternative needs --cost"),
        (["--cost", "i"], "--cost needs one of --budget and --goal"),
        (["--n-objects", "9"], "--n-objects needs --cost"),
        (["--cost", "i*a", "--budget", "9", "--plot", "a.doc"], "cannot draw 'a.doc'"),
        (["--cost", "i*a", "--budget", "9", "--plot", "no such/a.png"], "cannot write"),
        (["--universe", "i=5,6"], "give one size of 'i', not 2"),
        (["--fixed", "q"], "unknown facet 'q'"),
        (["--cut", "low"], "is not a number"),
        (["--cut", "0.2"], "Φ(λ) compares the mean of all scores"),
        (["--cost", "i +", "--budget", "10"], "^"),
        (["--layout", "missing.csv"], "not both"),
        (["--facet", "i"], "--facet needs --goal"),
        (["--facet", "i", "--goal", ".9", "--cost", "i"], "--facet needs --goal"),
        (["--coefficient", "Phi"], "--coefficient needs --goal"),
        (["--coefficient", "phi", "--goal", ".9", "--facet", "i"], "'Erho2' or 'Phi'"),
    ],
)
def test_mistakes(arguments, message):
    done = run("dstudy", "--components", TREC, "i=20", "a=3", *arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_goal_of_one_coefficient():
    plan = ("dstudy", "--components", TREC, "i=20", "a=3", "--goal", ".95", "--facet", "i")
    both, one = run(*plan).stdout, run(*plan, "--coefficient", "Phi").stdout
    assert "For Eρ² = 0.95" in both
    assert "For Φ = 0.95" in both
    assert "For Eρ² = 0.95" not in one
    assert "For Φ = 0.95" in one


def test_texts():
    assert names_argument(["a, o", "i"]) == ["a", "o", "i"]
    assert single_sizes(["i=500"]) == {"i": 500}
    assert numbers_argument("0.5,1") == [0.5, 1.0]
    with pytest.raises(PlanError, match="not a size"):
        single_sizes(["i"])


SQUARES = "p=.7485 i=1.1274 a=0 pi=.0269 pa=.00251 ia=.04884 pia=.00176"
DEGREES = "p=32 i=47 a=1 pi=1504 pa=32 ia=47 pia=1504"


def test_published_mean_squares():
    by_df = run("dstudy", "--mean-squares", SQUARES, "--df", DEGREES, "i=50", "a=1").stdout
    by_sizes = run(
        "dstudy", "--mean-squares", SQUARES, "--sizes", "p=33 i=48 a=2", "i=50", "a=1"
    ).stdout
    assert by_df == by_sizes
    assert "33 p, 48 i, 2 a" in by_df  # Bodoff and Li (2007), Tables 1 and 4
    assert "0.961   [" in by_df
    assert "0.920   [" in by_df


def test_published_components_with_sizes_have_intervals():
    known = ("dstudy", "--components", TREC, "--sizes", "p=33 i=48 a=2", "i=50", "a=1")
    out = run(*known, "--mean", ".25", "--cut", ".2").stdout
    assert "std. err." in out
    assert "0.961   [" in out
    assert "Decisions by a cut score" in out
    satterthwaite = run(*known, "--interval", "robust", check=False)
    assert "needs the rows of a fit" in satterthwaite.stderr
    unknown = run("dstudy", "--components", TREC, "--sizes", "p=33", "i=50", "a=1").stdout
    assert "No standard errors: sizes= has no size of a, i" in unknown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--df", "p=3"], "--df needs --components or --mean-squares"),
        (["--sizes", "p=3"], "--sizes needs --components or --mean-squares"),
        (["--components", TREC, "--mean-squares", SQUARES], "give one of --components and"),
        (["--components", TREC, "--df", "p=3"], "--df needs --mean-squares"),
        (["--components", TREC, "--sizes", "p=x"], "'p=x' is not a size; write FACET=N"),
        (["--mean-squares", SQUARES], "mean squares need --df, or --sizes"),
        (["--mean-squares", SQUARES, "--df", "p=32 p=33"], "df 'p' is given twice"),
    ],
)
def test_published_options_that_do_not_fit(arguments, message):
    done = run("dstudy", *arguments, "i=20", "a=3", check=False)
    assert done.returncode == 2
    assert message in done.stderr
