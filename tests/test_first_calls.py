"""First calls of users who know other libraries: they work, or the message has what to call."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from statsmodels.iolib.summary2 import summary_col

import vcomp
from tests.helpers.command_line import output_of

RNG = np.random.default_rng(0)
GRID = pd.DataFrame(
    [(s, q, a) for s in range(6) for q in range(8) for a in range(3)],
    columns=["system", "topic", "assessor"],
)
GRID["x"] = RNG.normal(size=len(GRID))
GRID["score"] = (
    RNG.normal(size=6)[GRID["system"]]
    + 0.5 * RNG.normal(size=8)[GRID["topic"]]
    + RNG.normal(size=len(GRID))
)


@pytest.fixture(scope="module")
def two_way():
    return vcomp.fit("score ~ x + (1|system) + (1|topic)", GRID)


@pytest.fixture(scope="module")
def three_way():
    return vcomp.fit("score ~ (1|system*topic) + (1|assessor) + (1|system:assessor)", GRID)


# statsmodels ------------------------------------------------------------------------------------


def test_summary_col(two_way):
    text = str(summary_col([two_way]))
    for name in two_way.params.index:
        assert name in text
    assert f"({two_way.bse['x']:.4f})" in text


def test_t_and_p_values_are_those_of_the_table(two_way):
    table = two_way.fixed_effects()
    np.testing.assert_allclose(two_way.tvalues[:2], table["t"], rtol=1e-12)
    np.testing.assert_allclose(two_way.pvalues[:2], table["p_value"], rtol=1e-12)
    assert two_way.tvalues[2:].isna().all()
    assert list(two_way.pvalues.index) == list(two_way.params.index)


def test_augmented_rows_have_their_covariates(two_way, tmp_path):
    rows = two_way.augment()
    pd.testing.assert_series_equal(rows["x"], GRID["x"])
    again = vcomp.fit("score ~ x + C(assessor) + (1|system)", GRID, stream=True)
    path = again.augment(path=tmp_path / "rows.parquet")
    read = pd.read_parquet(path)
    np.testing.assert_array_equal(read["x"], GRID["x"])
    np.testing.assert_array_equal(read["assessor"], GRID["assessor"])


def test_intervals_of_replicates(two_way):
    replicates = two_way.bootstrap(40)
    expected = two_way.conf_int(interval=replicates)
    found = replicates.conf_int()
    components = [name for name in expected.index if name.startswith("var(")]
    np.testing.assert_allclose(found.loc[components], expected.loc[components], rtol=1e-12)
    low, high = np.quantile(replicates.beta[replicates.converged], [0.025, 0.975], axis=0)
    np.testing.assert_allclose(found.iloc[:2], np.column_stack([low, high]), rtol=1e-12)
    left_out = two_way.jackknife("topic")
    expected = two_way.conf_int(interval=left_out)
    np.testing.assert_allclose(left_out.conf_int(), expected.loc[components], rtol=1e-12)


def test_names_of_the_package():
    names = set(dir(vcomp))
    assert names >= {"fit", "gstudy", "ir", "datasets"}
    assert not names.intersection({"os", "attach_stub", "is_address_space_limited"})


# Plans ------------------------------------------------------------------------------------------


def test_a_design_may_come_first():
    res = vcomp.gstudy("system x topic", GRID[GRID["assessor"] == 0], "score")
    expected = res.expected_tau(topic=25)
    columns = ["estimate", "low", "high"]
    found = res.expected_tau("system x topic", topic=25)
    np.testing.assert_array_equal(found[columns], expected[columns])
    assert res.expected_tau("system x topic", topic=25, variant="ap")[
        "estimate"
    ].item() == pytest.approx(
        res.expected_tau(topic=25, variant="ap")["estimate"].item(), rel=1e-12
    )


def test_accuracy_of_several_facets(three_way):
    with pytest.raises(vcomp.PlanError) as caught:
        three_way.accuracy("tau", topic=[25, 50], assessor=3)
    call = re.search(r"expected_tau\((.*?)\)", str(caught.value))[1]
    assert call == "topic=[25, 50], assessor=3"
    assert len(three_way.expected_tau(topic=[25, 50], assessor=3)) == 2


def test_the_size_at_which_an_error_variance_is_reached(three_way):
    study = three_way.dstudy(topic=20, assessor=2)
    n = int(study.required(0.15, "rel_err_var", "topic").n)
    variances = three_way.dstudy(topic=[n - 1, n], assessor=2).table["rel_err_var"]
    assert variances[0] > 0.15 >= variances[1]


@pytest.mark.parametrize("name", ["alpha", "object"])
def test_facets_with_names_of_options(name):
    data = GRID.rename(columns={"topic": name})
    res = vcomp.fit(f"score ~ (1|system) + (1|{name})", data)
    for call in (res.dstudy, res.expected_tau, lambda **n: res.quantity("Phi", **n)):
        with pytest.raises(vcomp.PlanError) as caught:
            call(**{name: 50})
        assert f"sizes={{'{name}': 50}}" in str(caught.value)
    assert res.dstudy(sizes={name: 50}).table[name].tolist() == [50]


def test_a_picture_of_one_panel(two_way):
    res = vcomp.fit("score ~ (1|system) + (1|topic)", GRID[GRID["assessor"] == 0])
    ax = Figure().subplots()
    assert res.accuracy("tau", topic=[5, 10]).plot(ax=ax) == [ax]


def test_sizes_after_dstudy(tmp_path):
    path = tmp_path / "rows.csv"
    GRID.to_csv(path, index=False)
    command = ["gstudy", path, "--design", "system x topic x assessor", "--response", "score"]
    unquoted = output_of(*command, "--dstudy", "topic=10,20", "assessor=2")
    assert unquoted == output_of(*command, "--dstudy", "topic=10,20 assessor=2")


def test_levels_of_several_facets(three_way):
    with pytest.raises(vcomp.PlanError) as caught:
        three_way.compare_levels(["system", "topic"])
    assert str(caught.value).endswith("compare 'system:topic'")


# Published tables -------------------------------------------------------------------------------

SQUARES = {"item": 0.00305, "operator": 0.0002722, "Residual": 0.0000913}
DEGREES = {"item": 2, "operator": 1, "Residual": 14}
SIZES = {"item": 3, "operator": 2, "replicate": 3}


@pytest.mark.parametrize(
    "given", [{"df": DEGREES}, {"sizes": SIZES}, {"df": DEGREES, "sizes": SIZES}]
)
def test_an_additive_table_with_replicates(given):
    """A gauge study without interaction: 3 items, 2 operators, 3 measurements each."""
    published = vcomp.from_mean_squares(SQUARES, **given)
    expected = [(0.00305 - 0.0000913) / 6, (0.0002722 - 0.0000913) / 9, 0.0000913]
    np.testing.assert_allclose(published.vcomp, expected, rtol=1e-12)
    assert published.vcomp.round(7).tolist() == [0.0004931, 0.0000201, 0.0000913]
    assert published.anova_table()["df"].tolist() == [2, 1, 14]
    table = published.dstudy(operator=2, replicate=3).table
    errors = [expected[2] / 6, expected[1] / 2 + expected[2] / 6]
    np.testing.assert_allclose(table[["rel_err_var", "abs_err_var"]].loc[0], errors, rtol=1e-12)


def test_additive_components_with_replicates():
    values = vcomp.from_mean_squares(SQUARES, DEGREES).vcomp.to_dict()
    table = vcomp.from_components(values, sizes=SIZES).anova_table()
    np.testing.assert_allclose(table["mean_sq"], list(SQUARES.values()), rtol=1e-12)
    assert table["df"].tolist() == [2, 1, 14]


def test_an_additive_table_as_commands():
    squares = " ".join(f"{k}={v}" for k, v in SQUARES.items())
    for further in (["--df", "item=2 operator=1 Residual=14"],
                    ["--sizes", "item=3 operator=2 replicate=3"]):  # fmt: skip
        command = ["dstudy", "--mean-squares", squares, *further, "operator=2", "replicate=3"]
        assert "0.0004931" in output_of(*command)


def test_an_additive_table_of_single_scores_keeps_its_residual():
    published = vcomp.from_mean_squares(
        {"p": 12.0, "i": 14.0, "Residual": 4.0}, {"p": 9, "i": 3, "Residual": 27}
    )
    assert published.vcomp.tolist() == [2.0, 1.0, 4.0]
    with pytest.raises(vcomp.PlanError, match="df of 'Residual' is 30"):
        vcomp.from_mean_squares(
            {"p": 12.0, "i": 14.0, "Residual": 4.0}, {"p": 9, "i": 3, "Residual": 30}
        )


# Scores and files -------------------------------------------------------------------------------

COLUMNS = {"object": "object", "rater": "rater", "score": "score"}
AGREEING = pd.DataFrame(
    [(o, r, float(o)) for o in range(6) for r in range(3)], columns=list(COLUMNS)
)


def test_complete_agreement_with_an_empty_cell():
    found = vcomp.icc(AGREEING.drop(3), **COLUMNS).table
    assert found["estimate"].tolist() == [1.0] * 6
    assert found["low"].tolist() == vcomp.icc(AGREEING, **COLUMNS).table["low"].tolist()


def test_one_rating_of_each_object():
    single = AGREEING.assign(score=np.sin(AGREEING.index)).groupby("object").head(1)
    single = single.assign(rater=[0, 1, 2] * 2)
    with pytest.raises(vcomp.DataError, match="each of 6 objects has one rating") as caught:
        vcomp.icc(single, **COLUMNS)
    assert "formula" not in str(caught.value)


@pytest.mark.parametrize("name", ["id", "ID", "student_id"])
def test_numbers_of_rows_are_no_item(name):
    items = pd.DataFrame(RNG.integers(0, 2, (20, 5)), columns=list("abcde"))
    with_id = items.assign(**{name: range(100, 120)})
    for function in (vcomp.cronbach_alpha, vcomp.reliability, vcomp.item_analysis):
        with pytest.raises(vcomp.DataError, match=f"column '{name}' looks like the labels"):
            function(with_id)
    indexed = vcomp.cronbach_alpha(with_id.set_index(name))
    assert indexed == vcomp.cronbach_alpha(items)


def test_assessors_by_another_name():
    named = GRID.rename(columns={"assessor": "judge"})
    study = vcomp.ir.assessor_study(named, "score", assessor="judge")
    expected = vcomp.ir.assessor_study(GRID, "score", role=None)
    pd.testing.assert_frame_equal(study.tests, expected.tests)
    with pytest.raises(vcomp.DataError, match="neither a column 'role' nor a column 'assessor'"):
        vcomp.ir.assessor_study(named, "score")


@pytest.mark.parametrize(
    ("ending", "reader"),
    [("xlsx", "read_excel"), ("sav", "read_spss"), ("dta", "read_stata"), ("json", "read_json")],
)
def test_files_of_other_programs(tmp_path, ending, reader):
    path = tmp_path / f"scores.{ending}"
    path.write_bytes(b"PK")
    with pytest.raises(vcomp.DataError, match=re.escape(f"pandas.{reader}(path), and give")):
        vcomp.fit("score ~ (1|topic)", path)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("scores.jsonl", True),
        ("scores.ndjson", True),
        ("scores.jsonl.gz", True),
        ("scores.json", False),
        ("scores.csv", True),
        ("scores.txt.gz", True),
        ("scores.csv", False),
    ],
)
def test_json_is_read_by_pandas(tmp_path, name, lines):
    path = tmp_path / name
    frame = pd.DataFrame({"topic": list("aabbcc"), "score": [1.0, 2.0, 4.0, 3.0, 5.0, 7.0]})
    frame.to_json(path, orient="records", lines=lines)
    with pytest.raises(vcomp.DataError, match="and give the frame") as caught:
        vcomp.fit("score ~ (1|topic)", path)
    advised = re.findall(r"pandas\.read_json\(path[^)]*\)", str(caught.value))
    (read,) = [code for code in advised if ("lines" in code) == lines]
    found = eval(read, {"pandas": pd, "path": path})
    assert vcomp.fit("score ~ (1|topic)", found).nobs == 6


# Sentences --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "several", "one"),
    [
        ("topic", "7 topics", "1 topic"),
        ("laboratory", "7 laboratories", "1 laboratory"),
        ("day", "7 days", "1 day"),
        ("batch", "7 batches", "1 batch"),
        ("class", "7 classes", "1 class"),
        ("sys", "7 levels of sys", "1 level of sys"),
        ("i", "7 levels of i", "1 level of i"),
        ("n_docs", "7 levels of n_docs", "1 level of n_docs"),
        ("Part No", "7 levels of Part No", "1 level of Part No"),
    ],
)
def test_levels_are_counted_by_the_name_of_their_column(name, several, one):
    # 7 levels reach Φ = 7/(7 + 3), 1 level Φ = 1/(1 + 3).
    values = {"p": 1.0, name: 1.0, "Residual": 2.0}
    if not name.isidentifier():
        data = GRID.rename(columns={"topic": name})
        compared = vcomp.fit(f"score ~ C(system) + (1|`{name}`)", data).compare_levels(name)
        assert f"Two levels of {name} share a letter" in str(compared)
        return
    study = vcomp.from_components(values).dstudy(sizes={name: 1})
    assert f", {several} are needed." in str(study.required(0.7, "Phi"))
    assert f", {one} is needed." in str(study.required(0.25, "Phi"))


def test_differences_name_the_column_in_the_plural(two_way):
    text = str(vcomp.fit("score ~ C(topic) + (1|system)", GRID).compare_levels("topic"))
    assert "Differences between topics:" in text
    assert "Two topics share a letter" in text
