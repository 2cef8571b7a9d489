"""``vcomp compare-levels``: what Python prints, tables, pictures, mistakes."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.command_line import output_of
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError

FORMULA = "y ~ C(g) * h + (1|block)"


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    n = 90
    return pd.DataFrame(
        {
            "g": rng.integers(1, 5, n), "h": rng.choice(["u", "v"], n),
            "block": rng.integers(0, 9, n), "y": rng.normal(size=n),
        }
    )  # fmt: skip


@pytest.fixture
def path(data, tmp_path):
    data.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_it_prints_what_python_prints(data, path):
    res = vcomp.fit(FORMULA, data)
    assert output_of("compare-levels", "g", FORMULA, path) == f"{res.compare_levels('g')}\n"
    made = res.compare_levels("g", "tukey", levels=[4, 2, 1], alpha=0.1, ddf="kenward-roger")
    given = ("--test", "tukey", "--levels", "4,2,1", "--alpha", ".1", "--ddf", "kenward-roger",
             "--show", "2")  # fmt: skip
    assert output_of("compare-levels", "g", FORMULA, path, *given) == f"{made.summary(2)}\n"
    made = res.compare_levels("g", baseline=2, correction="fdr_bh", cov_type="robust")
    given = ("--baseline", "2", "--correction", "fdr_bh", "--cov-type", "robust")
    assert output_of("compare-levels", "g", FORMULA, path, *given) == f"{made}\n"


def test_a_random_term_of_a_data_set_as_csv():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
    given = ("sys", "score ~ (1|sys) + (1|topic)", "--dataset", "bodoff2007_alpha",
             "--method", "anova", "--format", "csv")  # fmt: skip
    read = pd.read_csv(io.StringIO(output_of("compare-levels", *given)))
    pd.testing.assert_frame_equal(
        read, res.compare_levels("sys").table, check_dtype=False, rtol=1e-12
    )


def test_a_picture(path, tmp_path):
    picture = tmp_path / "groups.svg"
    output_of("compare-levels", "g", FORMULA, path, "--plot", picture)
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["k", FORMULA], "'k' is neither a factor of the fixed part nor a random term"),
        (["g", FORMULA, "--levels", "1,9"], "g has no level '9'"),
        (["g", FORMULA, "--plot", "x.doc"], "its ending has to be one of"),
    ],
)
def test_mistakes(path, given, message):
    facet, formula, *options = given
    done = CliRunner().invoke(cli, ["compare-levels", facet, formula, str(path), *options])
    assert isinstance(done.exception, VcompError)
    assert message in str(done.exception)


def test_data_are_needed():
    done = CliRunner().invoke(cli, ["compare-levels", "g", FORMULA])
    assert "give one of DATA and --dataset" in done.output
