"""Options of ``vcomp tau`` are those of the functions, and what they mean is said."""

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
from vcomp.exceptions import PlanError, VcompError

SAID = {
    "test": "Intervals are for the correlations of one such ranking.",
    "expectation": "Intervals are for the expected correlations themselves.",
    "independent": "Intervals treat swaps as independent, which they are not: they are too short.",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "urbano"},
        {"target": "expectation", "alpha": 0.2},
        {"threshold": 0.03, "variant": "b", "rng": 4},
        {"estimator": "urbano", "interval": "draws"},
        {"estimator": "urbano", "target": "expectation"},
        {"interval": "independent"},
    ],
    ids=str,
)
@pytest.mark.parametrize("topics", [None, "10,40"])
def test_numbers_and_notes(wide, options, topics):
    named = {"seed" if name == "rng" else name: value for name, value in options.items()}
    given = [text for name, value in named.items() for text in (f"--{name}", value)]
    given += [] if topics is None else ["--topics", topics]
    n = None if topics is None else [10, 40]
    expected = vcomp.ir.expected_tau(WIDE, n, **options)
    records = json.loads(output_of("tau", wide, *given, "--format", "json"))
    for record, row in zip(records, expected.itertuples(), strict=False):
        assert record["measure"] == "tau"
        for name in ("n", "estimate", "variance", "low", "high"):
            assert record[name] == pytest.approx(getattr(row, name), rel=1e-12, abs=1e-14)
        assert record["estimator"] == options.get("estimator", "shrunken")
    estimator, target = options.get("estimator", "shrunken"), options.get("target", "test")
    published = options.get("interval") == "independent" or options == {"estimator": "urbano"}
    printed = output_of("tau", wide, *given)
    assert SAID["independent" if published else target] in printed
    assert f"Estimator: {estimator}, " in printed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--estimator", "urban"], r"not 'urban' \(did you mean 'urbano'\?\)"),
        (["--estimator", "split_half"], "not 'split_half'; vcomp.ir.split_half and"),
        (["--interval", "normal"], "interval must be 'auto', 'draws' or 'independent'"),
        (["--target", "mean"], "target must be 'test' or 'expectation'"),
        (["--variant", "c"], "variant must be 'a' or 'b'"),
        (["--threshold", "-1"], "threshold is the largest difference of equal systems"),
    ],
)
def test_other_options_are_refused(wide, given, message):
    with pytest.raises(PlanError, match=message):
        output_of("tau", wide, *given)


def test_a_fit_without_sizes_has_the_interval_of_the_test_at_hand():
    printed = output_of(
        "fit", "score ~ (1|sys) + (1|topic)", "--dataset", "bodoff2007_alpha", "--tau"
    )
    data = vcomp.datasets.load("bodoff2007_alpha")
    row = vcomp.fit("score ~ (1|sys) + (1|topic)", data).expected_tau().iloc[0]
    assert f"{row['estimate']:.3f}   [{row['low']:.3f}, {row['high']:.3f}]" in printed


def test_a_fit_has_the_estimator_that_is_requested():
    given = ("fit", "score ~ (1|sys) + (1|topic)", "--dataset", "bodoff2007_alpha", "--tau")
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    for estimator in ("shrunken", "urbano"):
        printed = output_of(*given, "--estimator", estimator)
        row = res.expected_tau(estimator=estimator).iloc[0]
        assert f"{row['estimate']:.3f}   [{row['low']:.3f}, {row['high']:.3f}]" in printed
        assert f"Estimator: {estimator}, " in printed
    with pytest.raises(PlanError, match=r"not 'urban' \(did you mean 'urbano'\?\)"):
        output_of(*given, "--estimator", "urban")
    done = CliRunner().invoke(cli, [*given[:-1], "--estimator", "urbano"])
    assert done.exit_code == 2
    assert "--estimator applies to Eτ and Eτ_AP, and needs --tau" in done.output


def test_a_fit_of_several_facets_has_their_sizes():
    formula = "score ~ (1|sys*topic) + (1|query) + (1|sys:query)"
    given = ("fit", formula, "--dataset", "docsearch", "--method", "anova", "--tau")
    given += ("--dstudy", "topic=20,150", "--dstudy", "query=2")
    res = vcomp.fit(formula, vcomp.datasets.load("docsearch"), method="anova")
    for fixed in ((), ("--fixed", "query")):
        printed = output_of(*given, *fixed)
        table = res.expected_tau(topic=[20, 150], query=2, fixed=fixed[1:])
        assert "Correlation of a ranking by n topics × queries with the true ranking" in printed
        assert "Estimator: shrunken, " in printed
        for row in table.itertuples():
            assert f"{row.estimate:.3f}   [{row.low:.3f}, {row.high:.3f}]" in printed
    stored = json.loads(output_of(*given, "--json", "-"))["rank_accuracy"]
    assert stored["facet"] == ["topic", "query"]
    done = CliRunner().invoke(cli, [*given, "--within", "sys"])
    assert done.exit_code == 2
    assert "--tau ranks all objects" in done.output


def test_one_system_of_each_group_is_ranked(wide, tmp_path):
    groups = {str(name): "AB"[k % 2] + str(k // 4) for k, name in enumerate(WIDE.columns)}
    made = vcomp.ir.expected_tau(WIDE, [20, 50], groups=groups)
    given = ("--topics", "20,50", "--format", "csv")
    file = tmp_path / "groups.csv"
    pd.DataFrame({"run": list(groups), "by": list(groups.values())}).to_csv(file, index=False)
    read = pd.read_csv(io.StringIO(output_of("tau", wide, *given, "--groups", file)))
    tau = read[read["measure"] == "tau"] if "measure" in read else read.iloc[: len(made)]
    np.testing.assert_allclose(tau["estimate"], made["estimate"], rtol=1e-12)
    whole = vcomp.ir.expected_tau(WIDE, [20, 50])
    assert not np.allclose(whole["estimate"], made["estimate"], atol=1e-6)
    long = tmp_path / "long.csv"
    system = next(c for c in LONG.columns if c in ("system", "sys", "run"))
    LONG.assign(org=LONG[system].astype(str).map(groups)).to_csv(long, index=False)
    by_column = pd.read_csv(io.StringIO(output_of("tau", long, *given, "--groups", "org")))
    pd.testing.assert_frame_equal(by_column, read, rtol=1e-12)


def test_groups_that_cannot_be(wide, tmp_path):
    file = tmp_path / "groups.csv"
    file.write_text("run,by,more\n1,A,x\n")
    for text, message in (
        ("org", "for a matrix give a file with a column of systems"),
        (str(file), "groups need two, of levels and of their groups"),
    ):
        done = CliRunner().invoke(cli, ["tau", str(wide), "--groups", text])
        assert isinstance(done.exception, VcompError)
        assert message in str(done.exception)
    file.write_text("run,by\n1,A\n1,B\n")
    done = CliRunner().invoke(cli, ["tau", str(wide), "--groups", str(file)])
    assert "'1' has several groups in column 'by'" in str(done.exception)
