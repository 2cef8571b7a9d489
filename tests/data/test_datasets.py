"""What the shipped data promise: shape, design, range, and agreement with the printed numbers."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import vcomp
from vcomp.datasets import available, load
from vcomp.exceptions import DataError

NAMES = list(available().index)
SCRIPTS = Path(__file__).parents[2] / "tools" / "datasets"
MISSING = {"trec_collections": 1}  # a misprint of the source, see PROVENANCE
CROSSED = {
    "docsearch": ["sys", "topic", "query"],
    "digits": ["model", "seed", "image"],
    "assay": ["sample", "day", "run", "replicate"],
    "gauge": ["part", "operator", "trial"],
    "bodoff2007_alpha": ["sys", "topic"],
}
RANGES = {
    "docsearch": (0, 1),
    "digits": (0, 1),
    "essays": (1, 6),
    "bodoff2007_alpha": (0, 1),
}
SIMULATED = ["essays", "assay", "gauge"]


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: load(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_available_tells_the_truth(name, frames):
    stated = available().loc[name]
    assert len(frames[name]) == stated["rows"]
    assert ", ".join(frames[name].columns) == stated["columns"]
    assert all(stated[["description", "source", "licence"]])


def test_available_lists_every_file():
    shipped = [entry.name for entry in files("vcomp.data").joinpath("shipped").iterdir()]
    data = [name for name in shipped if name not in ("PROVENANCE.md", "datasets.toml")]
    assert sorted(name.split(".")[0] for name in data) == sorted(NAMES)


def test_provenance_speaks_of_every_dataset():
    text = files("vcomp.data").joinpath("shipped", "PROVENANCE.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in NAMES)


def test_files_are_small():
    data = files("vcomp.data").joinpath("shipped")
    assert sum(len(entry.read_bytes()) for entry in data.iterdir()) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_only_a_misprint_is_missing(name, frames):
    assert frames[name].isna().sum().sum() == MISSING.get(name, 0)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_not_repeated(name, frames):
    assert not frames[name].duplicated().any()


@pytest.mark.parametrize("name", NAMES)
def test_every_load_is_a_fresh_frame(name, frames):
    spoilt = load(name)
    spoilt.iloc[:, -1] = 0
    del spoilt[spoilt.columns[0]]
    pd.testing.assert_frame_equal(load(name), frames[name])


@pytest.mark.parametrize(("name", "facets"), CROSSED.items())
def test_facets_are_fully_crossed(name, facets, frames):
    data = frames[name]
    assert not data.duplicated(facets).any()
    assert len(data) == data[facets].nunique().prod()


@pytest.mark.parametrize(("name", "limits"), RANGES.items())
def test_scores_are_in_their_range(name, limits, frames):
    assert frames[name]["score"].between(*limits).all()


@pytest.mark.parametrize("name", {**CROSSED, **RANGES})
def test_data_with_scores_have_a_formula_and_others_not(name, frames):
    formulas = available()["formula"]
    assert formulas[name].startswith(f"{frames[name].columns[-1]} ~ ")
    assert "(1|" in formulas[name]
    assert set(formulas.index[formulas != ""]) == {*CROSSED, *RANGES}


# -------------------------------------------------------------------------------------- docsearch


def test_docsearch_formulations(frames):
    assert set(frames["docsearch"]["query"]) == {"sentence", "keywords"}
    assert list(frames["docsearch"].nunique()[["sys", "topic", "query"]]) == [44, 150, 2]


def test_docsearch_systems_differ_and_topics_tell_them_apart(frames):
    cells = frames["docsearch"].pivot_table(
        index=["topic", "query"], columns="sys", values="score", sort=True
    )
    assert not cells.T.duplicated().any()
    assert (cells.max(axis=1) > cells.min(axis=1)).all()


def test_docsearch_is_a_reliable_test(frames):
    scores = frames["docsearch"].pivot_table(index="topic", columns="sys", values="score")
    y = scores.to_numpy()
    n_topics, n_sys = y.shape
    sys, topic = y.mean(axis=0), y.mean(axis=1, keepdims=True)
    ms_error = ((y - sys - topic + y.mean()) ** 2).sum() / ((n_topics - 1) * (n_sys - 1))
    ms_sys = n_topics * sys.var(ddof=1)
    assert 0.95 < 1 - ms_error / ms_sys < 0.97


# ----------------------------------------------------------------------------------------- digits


def test_digits_design(frames):
    data = frames["digits"]
    assert list(data.nunique()) == [22, 5, 10, 899, 2]
    assert len(data[["digit", "image"]].drop_duplicates()) == data["image"].nunique()
    assert data.groupby("digit")["image"].nunique().between(87, 92).all()


def test_digits_scores(frames):
    data = frames["digits"]
    assert set(data["score"]) == {0, 1}
    accuracy = data.groupby("model")["score"].mean()
    assert accuracy.between(0.5, 0.99).all()
    assert accuracy["svm-rbf"] > accuracy["tree-depth4"] + 0.2


# -------------------------------------------------------------------------------------- simulated


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_data_are_called_simulated(name):
    stated = available().loc[name]
    assert stated["description"].startswith("Simulated: ")
    assert stated["source"].startswith("simulated for vcomp")


@pytest.mark.parametrize("name", SIMULATED)
def test_the_formula_of_simulated_data_can_be_fitted(name, frames):
    res = vcomp.fit(available()["formula"][name], frames[name])
    assert res.converged


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SIMULATED)
def test_scripts_of_simulated_data_make_them(name, frames, tmp_path, capsys):
    made = script(name)
    path = tmp_path / made.OUTPUT.name
    made.main(path)
    pd.testing.assert_frame_equal(pd.read_csv(path), frames[name])
    assert capsys.readouterr().out.startswith(str(len(frames[name])))


def test_essays_design(frames):
    data = frames["essays"]
    assert list(data.nunique()) == [60, 2, 4, 3, 6]
    assert len(data[["genre", "task"]].drop_duplicates()) == 4
    assert not data.duplicated(["person", "task", "rater"]).any()
    graded = data.groupby(["person", "task"]).size()
    assert 0 < 60 * 4 - len(graded) < 20  # essays that were not handed in
    assert 0 < (graded < 3).sum() < 30


def test_essays_components_are_near_those_simulated(frames):
    res = vcomp.fit(available()["formula"]["essays"], frames["essays"])
    sd = script("essays").SD
    for component, name in [("person", "person"), ("person:genre:task", "person:task")]:
        low, high = np.sqrt(res.conf_int().loc[f"var({component})"])
        assert low < sd[name] < high


def test_assay_components_are_near_those_simulated(frames):
    made = script("assay")
    for sample, data in frames["assay"].groupby("sample"):
        res = vcomp.fit("result ~ (1|day/run)", data)
        sd = np.array(made.CV[sample]) * made.MEANS[sample] / 100
        limits = np.sqrt(res.conf_int().iloc[1:].to_numpy())
        assert (limits[:, 0] < sd).all()
        assert (sd < limits[:, 1]).all()


def test_gauge_components_are_near_those_simulated(frames):
    res = vcomp.fit("mm ~ (1|part*operator)", frames["gauge"])
    limits = np.sqrt(res.conf_int())
    for component, name in [("part", "part"), ("part:operator",) * 2, ("Residual", "trial")]:
        low, high = limits.loc[f"var({component})"]
        assert low < script("gauge").SD[name] < high


# ----------------------------------------------------------------------------------------- papers


def test_alpha_example_gives_the_printed_alpha(frames):
    scores = frames["bodoff2007_alpha"].pivot_table(index="sys", columns="topic", values="score")
    cov = np.cov(scores.to_numpy().T)
    k = len(cov)
    alpha = k / (k - 1) * (1 - np.trace(cov) / cov.sum())
    assert_allclose(np.diag(cov), [0.00847, 0.01828, 0.02305], atol=5.1e-6)
    assert_allclose(alpha, 0.80942, atol=5.1e-6)


@pytest.mark.parametrize("name", ["bodoff2007_gstudy", "bodoff2006_gstudy"])
def test_percentages_agree_with_the_variances(name, frames):
    table = frames[name].set_index("component")
    assert list(table.index) == ["p", "i", "a", "pi", "pa", "ia", "pia"]
    assert_allclose(table["percent"].sum(), 100, atol=0.2)
    share = 100 * table["variance"] / table["variance"].sum()
    assert_allclose(share, table["percent"], atol=0.15)


@pytest.mark.parametrize(
    ("name", "n_queries"), [("bodoff2007_gstudy", 48), ("bodoff2006_gstudy", 5)]
)
def test_mean_squares_agree_with_the_variances(name, n_queries, frames):
    table = frames[name].set_index("component")
    v, n = table["variance"], {"p": 33, "i": n_queries, "a": 2}
    for term in ["p", "i", "pi", "ia"]:
        others = [c for c in v.index if set(term) <= set(c)]
        expected = sum(v[c] * np.prod([n[f] for f in n if f not in c]) for c in others)
        assert_allclose(expected, table["mean_square"][term], rtol=0.08)


def test_dstudy_table_follows_from_the_gstudy(frames):
    v = frames["bodoff2007_gstudy"].set_index("component")["variance"]
    table = frames["bodoff2007_dstudy"]
    i, a = table["n_queries"], table["n_assessors"]
    relative = v["pi"] / i + v["pa"] / a + v["pia"] / (i * a)
    absolute = relative + v["i"] / i + v["a"] / a + v["ia"] / (i * a)
    assert_allclose(v["p"] / (v["p"] + relative), table["Erho2"], atol=1e-3)
    assert_allclose(v["p"] / (v["p"] + absolute), table["Phi"], atol=1e-3)


def test_trec_intervals_contain_their_points(frames):
    table = frames["trec_collections"]
    for coefficient in ["Erho2", "Phi"]:
        low, high = (table[f"{coefficient}_{end}"] for end in ("low", "high"))
        assert ((low <= table[coefficient]) | low.isna()).all()
        assert (table[coefficient] <= high).all()
    assert (table["Phi"] <= table["Erho2"]).all()


def test_trec_averages_are_those_of_the_text(frames):  # Urbano et al. (2013), section 5
    table = frames["trec_collections"]
    assert_allclose(table[["Erho2", "Phi"]].mean(), [0.88, 0.74], atol=5e-3)
    assert not table.duplicated(["track", "measure"]).any()


def test_alphas_of_trec(frames):
    table = frames["trec_cronbach_alpha"]
    assert list(table["trec"]) == [f"TREC {n}" for n in range(3, 11)]
    assert table["alpha"].between(0.85, 0.94).all()


# ------------------------------------------------------------------------------ errors and import


@pytest.mark.parametrize(
    ("wrong", "near"), [("digit", "digits"), ("DocSearch", "docsearch"), ("trec", "trec_")]
)
def test_unknown_name_is_told_the_nearest_and_all(wrong, near):
    with pytest.raises(DataError, match=f"did you mean '{near}") as error:
        load(wrong)
    assert all(repr(name) in str(error.value) for name in NAMES)


def test_importing_the_datasets_imports_no_pandas():
    code = (
        "import sys, vcomp.datasets\n"
        "print([m for m in ('pandas', 'pyarrow', 'scipy', 'statsmodels') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_scripts_are_in_the_source_tree():
    for name in ["docsearch", "digits", *SIMULATED]:
        text = SCRIPTS.joinpath(f"{name}.py").read_text(encoding="utf-8")
        assert 'if __name__ == "__main__":' in text
