"""``vcomp evals``: the page of a study, tables, the gate, mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from vcomp import display
from vcomp.cli.main import _with_options, cli, in_options

LOGS = Path(__file__).parents[1] / "evals" / "logs" / "lm_eval_0.4.13"


def ended(*arguments):
    return CliRunner().invoke(cli, ["evals", *map(str, arguments)])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    some = ["bm25-k1.2-b0.75", "ql-jm0.1", "overlap"]
    path = tmp_path_factory.mktemp("evals") / "scores.csv"
    data[data["sys"].isin(some)].drop(columns="query").to_csv(path, index=False)
    return path


def test_the_page_is_that_of_python():
    made = vcomp.evals.study(LOGS, metric="acc")
    shown = ended(LOGS, "--metric", "acc").output
    # Notes on the logs have advice, which is in the words of the command.
    assert " ".join(shown.split()) == in_words_of_the_command(made)
    as_python = shown.replace("--columns prompt=task", "columns={'prompt': 'task'}")
    assert as_python == f"{made}\n"


def test_the_cheapest_model_within_a_margin(table):
    options = ["--system", "sys", "--sampled", "topic"]
    prices = "bm25-k1.2-b0.75=3,ql-jm0.1=2,overlap=1"
    found = ended(table, *options, "--margin", ".1", "--model-price", prices)
    made = vcomp.evals.study(
        pd.read_csv(table), system="sys", sampled=["topic"], margin=0.1,
        model_prices={"bm25-k1.2-b0.75": 3, "ql-jm0.1": 2, "overlap": 1},
    )  # fmt: skip
    assert " ".join(found.output.split()) == in_words_of_the_command(made)
    assert made.same_quality in " ".join(found.output.split())
    assert made.cheapest == ("ql-jm0.1",)
    alone = ended(table, *options, "--model-price", prices)
    assert alone.exit_code == 1
    assert "such as margin=0.02" in str(alone.exception)
    wrong = ended(table, *options, "--margin", ".1", "--model-price", "overlap")
    assert "write MODEL=PRICE such as a=.1" in str(wrong.exception)


def in_words_of_the_command(page):
    """Return a page of Python with the options of ``vcomp evals``, on one line."""
    words = {"sampled=['task']": "--sampled task", "sampled=['task:item']": "--sampled task:item",
             "columns={'prompt': 'task'}": "--columns prompt=task"}  # fmt: skip
    text = " ".join(str(page).split())
    for python, option in words.items():
        text = text.replace(python, option)
    return re.sub(r"where=\{'(\w+)': \['(\S+)', '(\S+)'\]\}", r"--where \1=\2 --where \1=\3", text)


def test_levels_of_a_column_are_options_of_their_own():
    command = cli.get_command(click.Context(cli), "evals")
    said = in_options("a study of these two, where={'model': ['a/b', 'c']}; multiply", command)
    assert said == "a study of these two, --where model='a/b' --where model=c; multiply"


def test_advice_is_in_the_words_of_the_command(table, tmp_path):
    data = pd.read_csv(table).rename(columns={"sys": "model", "topic": "item"})
    both = pd.concat([data.assign(task="a"), data.assign(task="b", score=data["score"] ** 2)])
    both.to_csv(tmp_path / "scores.csv", index=False)
    made = vcomp.evals.study(both)
    said = " ".join(ended(tmp_path / "scores.csv").output.split())
    assert "write --sampled task;" in said
    assert "If each task has others, write --sampled task:item." in said
    assert said == in_words_of_the_command(made)
    apart = ended(tmp_path / "scores.csv", "--sampled", "task:item").output
    assert f"{data['item'].nunique() * 2} items" in apart
    said = " ".join(ended(LOGS.parent / "lm_eval_0.4.10", LOGS, "--metric", "acc").output.split())
    assert "=[" not in said


def test_tables_and_the_gate(table, tmp_path):
    given = (table,)
    made = vcomp.evals.study(pd.read_csv(table), system="sys", sampled=["topic"])
    shown = pd.read_csv(StringIO(ended(*given, "--format", "csv").output))
    expected = made.table.rename_axis("model").reset_index()
    pd.testing.assert_frame_equal(shown, expected, check_dtype=False)
    rows = json.loads(ended(*given, "--format", "json").output)
    assert [row["model"] for row in rows] == made.table.index.tolist()
    failed = ended(*given, "--fail-if-worse", "ql-jm0.1", "--plot", tmp_path / "ranks.png")
    assert failed.exit_code == 1
    assert "worse than ql-jm0.1: overlap" in failed.output
    assert (tmp_path / "ranks.png").exists()
    page = ended(*given, "--json", "-").output
    read = vcomp.evals.study([table])
    assert json.loads(page) == json.loads(read.to_json())
    passed = ["--fail-if-worse", "overlap", "--json", tmp_path / "page.json"]
    assert ended(*given, *passed, "--every-eval-ever", tmp_path / "aggregates").exit_code == 0
    assert (tmp_path / "page.json").read_text("utf-8").strip() == page.strip()
    assert len(list((tmp_path / "aggregates").iterdir())) == len(made.table)


def test_prices(table):
    budget = ["--price", "item=2", "--price", "call=.1", "--budget", 500]
    paid = ended(table, *budget, "--cov-type", "model").output
    made = vcomp.evals.study(
        pd.read_csv(table), system="sys", sampled=["topic"], prices={"topic": 2, "call": 0.1},
        budget=500, cov_type="model",
    )  # fmt: skip
    planned = made.allocation.best.study
    found = planned.detectable(n_objects=3, test="tukey")["difference"].item()
    found = display.number(found)
    assert "A budget of 500 for the whole, of which 345 are spent, is best spent" in paid
    assert f"finds a difference of {found}." in " ".join(paid.split())
    assert "write NAME=PRICE such as item=.05" in str(ended(table, "--price", "item").exception)


def test_weights_of_tasks(table, tmp_path):
    data = pd.read_csv(table).rename(columns={"sys": "model", "topic": "item"})
    data["task"] = data["item"].rank(method="dense").mod(3).gt(0).map({True: "a", False: "b"})
    data.to_csv(tmp_path / "scores.csv", index=False)
    for given, weights in (("a=3,b=1", {"a": 3.0, "b": 1.0}), ("items", "items")):
        made = vcomp.evals.study(data, task_weights=weights)
        said = ended(tmp_path / "scores.csv", "--task-weights", given).output
        assert " ".join(said.split()) == in_words_of_the_command(made)


def test_names_of_models_and_tasks_may_have_spaces(tmp_path):
    rng = np.random.default_rng(1)
    rows = [(m, t, i) for m in ("a 1", "t=0") for t in ("a b", "c") for i in range(12)]
    data = pd.DataFrame(rows, columns=["model", "task", "item"])
    data = data.assign(score=rng.random(len(data)).round(3))
    data.to_csv(tmp_path / "scores.csv", index=False)
    made = vcomp.evals.study(
        data, margin=0.9, model_prices={"a 1": 1.0, "t=0": 2.0}, task_weights={"a b": 2, "c": 1}
    )
    found = ended(
        tmp_path / "scores.csv", "--margin", ".9", "--model-price", "a 1=1, t=0=2",
        "--task-weights", "a b=2", "--task-weights", "c=1",
    )  # fmt: skip
    assert made.cheapest == ("a 1",)
    assert " ".join(found.output.split()) == in_words_of_the_command(made)


def test_mistakes(table):
    assert "several metrics" in str(ended(LOGS).exception)
    assert "no model 'x' to compare" in str(ended(table, "--fail-if-worse", "x").exception)
    assert "no column 'engine'" in str(ended(table, "--system", "engine").exception)
    assert ended().exit_code == 2


def test_the_gate_does_not_pass_what_is_not_compared(table, tmp_path):
    data = pd.read_csv(table).rename(columns={"sys": "model", "topic": "item"})
    data["task"] = data["item"].rank(method="dense").mod(2).map({0: "a", 1: "b"})
    data = data[(data["model"] != "overlap") | (data["task"] == "a")]
    data.to_csv(tmp_path / "scores.csv", index=False)
    failed = ended(tmp_path / "scores.csv", "--fail-if-worse", "ql-jm0.1")
    assert isinstance(failed.exception, vcomp.DataError)  # ends with code 2
    assert "overlap lacks scores: a mean over all tasks" in str(failed.exception)
    assert "Not compared: overlap" in failed.output
    assert ended(tmp_path / "scores.csv").exit_code == 0


def test_names_of_columns(table, tmp_path):
    data = pd.read_csv(table)
    other = data.assign(score=data["score"] ** 2)
    forms = pd.concat([data.assign(task="a"), other.assign(task="b")])
    forms.to_csv(tmp_path / "forms.csv", index=False)
    made = vcomp.evals.study(tmp_path / "forms.csv", columns={"prompt": "task"})
    assert made.roles.sampled == ("item", "prompt")
    output = ended(tmp_path / "forms.csv", "--columns", "prompt=task").output
    assert " ".join(output.split()) == in_words_of_the_command(made)
    refused = ended(table, "--columns", "prompt")
    assert "'prompt' has no names; write NAME=NAME such as prompt=task" in str(refused.exception)


def test_advice_that_is_code_is_left_out(table, tmp_path, monkeypatch):
    data = pd.read_csv(table).rename(columns={"sys": "model", "topic": "item"})
    pd.concat([data, data]).to_csv(tmp_path / "twice.csv", index=False)
    monkeypatch.setattr("sys.argv", ["vcomp", "evals", "logs"])
    said = _with_options(str(ended(tmp_path / "twice.csv").exception))
    assert said.endswith("was a run read twice? Keep one of each")


def test_a_damaged_log_is_read_as_the_error_advises(tmp_path, monkeypatch):
    folder = shutil.copytree(LOGS, tmp_path / "logs")
    path = next(folder.glob("*small/samples_arith_choice*"))
    path.write_bytes(path.read_bytes()[:-30])
    monkeypatch.setattr("sys.argv", ["vcomp", "evals", "logs"])
    said = _with_options(str(ended(folder, "--metric", "acc").exception))
    assert "or read the rest with --unreadable skip, which counts" in said
    logs = vcomp.evals.read(folder, unreadable="skip")
    page = ended(folder, "--metric", "acc", "--unreadable", "skip").output
    assert " ".join(page.split()) == in_words_of_the_command(vcomp.evals.study(logs, metric="acc"))
    assert "1 sample cannot be read." in page
    other = ended(folder, "--metric", "acc", "--log-format", "helm")
    assert isinstance(other.exception, vcomp.DataError)


def test_one_of_several_filters():
    refused = str(ended(LOGS, "--metric", "exact_match").exception)
    assert "choose one, where={'filter': 'first'}, or give" in refused
    found = ended(LOGS, "--metric", "exact_match", "--where", "filter=first").output
    made = vcomp.evals.study(LOGS, metric="exact_match", where={"filter": "first"})
    assert " ".join(found.split()) == in_words_of_the_command(made)


def test_several_levels_of_a_column(table):
    found = ended(table, "--where", "model=overlap,model=ql-jm0.1", "--format", "csv")
    assert set(pd.read_csv(StringIO(found.output))["model"]) == {"overlap", "ql-jm0.1"}
    refused = ended(table, "--where", "overlap")
    assert "'overlap' has no level; write NAME=LEVEL such as" in str(refused.exception)


def test_advice_on_lists_is_written_as_options(monkeypatch):
    monkeypatch.setattr("sys.argv", ["vcomp", "evals", "logs"])
    said = _with_options("sampled=['seed', 'heat'] or fixed=[…], columns={'prompt': 'task'}")
    assert said == "--sampled seed,heat or --fixed …, --columns prompt=task"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "vcomp", "--version"], capture_output=True, text=True, check=True
    )
    assert vcomp.__version__ in done.stdout


def test_tables_of_a_study(table):
    made = vcomp.evals.study(pd.read_csv(table), system="sys", sampled=["topic"])
    pairs = ended(table, "--table", "comparisons", "--format", "csv").output
    found = pd.read_csv(StringIO(pairs))
    np.testing.assert_allclose(
        found["p_adjusted"], made.comparisons.table["p_adjusted"], rtol=1e-9
    )
    noise = ended(table, "--table", "sources", "--format", "csv").output
    assert pd.read_csv(StringIO(noise))["variance"].tolist() == pytest.approx(
        made.sources["variance"].tolist(), rel=1e-9
    )


def test_one_model_has_no_table_of_pairs(table):
    found = ended(table, "--where", "sys=overlap", "--table", "comparisons")
    assert str(found.exception) == "there is one model: there are no pairs"


def test_a_baseline_that_does_not_exist_prints_no_page(table):
    found = ended(table, "--fail-if-worse", "overlaps")
    assert found.output == ""
    assert "there is no model 'overlaps' to compare with (did you mean" in str(found.exception)


def test_levels_with_commas(table):
    known = pd.read_csv(table)["sys"].unique()[:2].tolist()
    both = ended(table, "--where", f"sys={known[0]},{known[1]}", "--format", "csv").output
    apart = ended(
        table, "--where", f"sys={known[0]}", "--where", f"sys={known[1]}", "--format", "csv"
    )
    assert both == apart.output
    assert len(pd.read_csv(StringIO(both))) == 2
