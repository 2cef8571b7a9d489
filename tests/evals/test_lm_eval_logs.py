"""Logs of lm-evaluation-harness: its own means and standard errors, from its own files."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

import vcomp
from tests.helpers.printed_tables import printed_words
from vcomp.evals.run_rows import SampleRows

LOGS = Path(__file__).parent / "logs"
VERSIONS = ("lm_eval_0.4.10", "lm_eval_0.4.13")

LINE = {
    "doc_id": 0, "doc": {"q": "2 + 2", "passage": "p"}, "target": "4", "arguments": {},
    "resps": [["4"]], "filtered_resps": ["4"], "filter": "none", "metrics": ["em"],
    "doc_hash": f"{7:064x}", "em": 1.0,
}  # fmt: skip
DATE = "2026-01-01T00-00-00.000000"


def write(folder, lines, *, task="t", date=DATE, model="m", results=True):
    """Write a file of samples, with the results of its run."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"samples_{task}_{date}.jsonl"
    path.write_text("".join(json.dumps(LINE | line) + "\n" for line in lines), "utf-8")
    if results:
        content = {"results": {task: {}}, "configs": {}, "versions": {}, "model_name": model}
        (folder / f"results_{date}.json").write_text(json.dumps(content), "utf-8")
    return path


def stored(folder):
    """Return the results that lm_eval wrote, by model."""
    found = [json.loads(path.read_text("utf-8")) for path in folder.glob("*/results_*.json")]
    return {one["model_name"]: one["results"] for one in found}


@pytest.mark.parametrize("version", VERSIONS)
def test_its_own_means_and_standard_errors(version):
    logs = vcomp.evals.read(LOGS / version)
    groups = logs.table.groupby(["model", "task", "filter", "metric"], observed=True)["score"]
    results, seen = stored(LOGS / version), 0
    for (model, task, how, metric), scores in groups:
        own = results[model][task]
        np.testing.assert_allclose(scores.mean(), own[f"{metric},{how}"], rtol=1e-12)
        np.testing.assert_allclose(scores.sem(), own[f"{metric}_stderr,{how}"], rtol=1e-12)
        seen += 1
    # two metrics of the choices, two filters of the texts
    assert seen == 2 * (2 + 2)
    assert logs.report["samples"].tolist() == [18] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_a_score_of_a_document_is_named(version):
    notes = " ".join(vcomp.evals.read(LOGS / version).notes)
    assert "'f1' is not a score of a document" in notes
    assert "Documents have 3 responses and one score" in notes
    assert "3 filters (none, first, digits)" in notes


def test_keys_of_documents_become_columns():
    table = vcomp.evals.read(LOGS / VERSIONS[1], metadata=["passage"]).table
    assert table["passage"].nunique() == 6
    sizes = table.groupby("passage", observed=True)["item"].nunique()
    assert set(sizes) == {3}


def test_both_versions_read_alike():
    tables = [vcomp.evals.read(LOGS / version).table for version in VERSIONS]
    names = ["model", "task", "filter", "metric", "item"]
    one, other = (t.astype(dict.fromkeys(names, str)).sort_values(names) for t in tables)
    np.testing.assert_array_equal(one["item"], other["item"])


# Lines -----------------------------------------------------------------------------------------


def test_scores_of_repetitions_are_epochs(tmp_path):
    line = {"resps": [["4", "5", "4"]], "em": [1.0, 0.0, None]}
    logs = vcomp.evals.read(write(tmp_path, [line]))
    assert logs.table[["epoch", "score"]].to_numpy().tolist() == [[1, 1.0], [2, 0.0]]
    assert logs.unscored[["epoch", "problem"]].to_numpy().tolist() == [[3, "not scored"]]


def test_scores_without_repetitions_are_of_the_first_epoch(tmp_path):
    write(tmp_path / "one", [{}], model="one")
    write(tmp_path / "two", [{"resps": [["4", "5"]], "em": [1.0, 0.0]}], model="two")
    table = vcomp.evals.read(tmp_path).table
    assert table["epoch"].tolist() == [1, 1, 2]


def test_a_file_of_many_lines(tmp_path):
    n = 3000  # more than are kept as Python objects
    lines = [{"doc_id": k if k % 2 else str(k), "em": float(k % 3 == 0)} for k in range(n)]
    lines[n // 2] |= {"resps": [["4", "5"]], "em": [1.0, 0.0]}
    table = vcomp.evals.read(write(tmp_path, lines)).table
    assert table["item"].tolist() == [str(k) for k in sorted([*range(n), n // 2])]
    assert table["epoch"].value_counts().to_dict() == {1: n, 2: 1}
    assert table["score"].sum() == n // 3 + (n // 2 % 3 != 0)


def test_a_pair_of_a_corpus_metric_is_not_two_repetitions(tmp_path):
    lines = [{"resps": [["a", "b"]], "metrics": ["em", "f1"], "f1": [1, 0]}]
    logs = vcomp.evals.read(write(tmp_path, lines))
    assert logs.table["metric"].tolist() == ["em"]
    assert "'f1'" in logs.notes[0]


def test_log_likelihoods_are_not_repetitions(tmp_path):
    lines = [{"resps": [[["-2.3", "False"]], [["-1.3", "True"]]]}]
    assert not vcomp.evals.read(write(tmp_path, lines)).notes


def test_only_corpus_metrics_are_an_error_with_their_name(tmp_path):
    path = write(tmp_path, [{"metrics": ["word_perplexity"], "word_perplexity": [-9.0, 12]}])
    with pytest.raises(vcomp.DataError, match=r"no scores.*'word_perplexity' is not a score"):
        vcomp.evals.read(path)


def test_an_appended_file_counts_each_sample_once(tmp_path):
    lines = [{"doc_id": k, "em": 0.0} for k in range(3)]
    path = write(tmp_path, [*lines, {"doc_id": 1, "em": 1.0}])
    logs = vcomp.evals.read(path)
    assert logs.table.set_index("item")["score"].to_dict() == {"0": 0.0, "1": 1.0, "2": 0.0}
    assert logs.report["duplicates"].tolist() == [1]


def test_a_copy_of_a_run_counts_once(tmp_path):
    write(tmp_path / "a", [{"doc_id": k} for k in range(3)])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    logs = vcomp.evals.read(tmp_path)
    assert len(logs.table) == 3
    assert logs.report["duplicates"].sum() == 3


def test_runs_of_one_model_stay_apart(tmp_path):
    write(tmp_path, [{"doc_id": k} for k in range(3)])
    write(tmp_path, [{"doc_id": k} for k in range(3)], date="2026-01-02T00-00-00.000000")
    table = vcomp.evals.read(tmp_path).table
    assert len(table) == 6
    assert table["run"].nunique() == 2


def test_items_are_named_by_content_where_ids_clash(tmp_path):
    write(tmp_path / "a", [{"doc_id": k, "doc_hash": f"{k + 1:064x}"} for k in range(3)])
    shifted = [{"doc_id": k, "doc_hash": f"{k + 2:064x}"} for k in range(3)]
    # The hash begins with its first digits; make them differ there.
    for folder, model, lines in (
        ("a", "m", [{"doc_id": k, "doc_hash": f"{k + 1}" * 64} for k in range(3)]),
        ("b", "n", [line | {"doc_hash": f"{line['doc_id'] + 2}" * 64} for line in shifted]),
    ):
        write(tmp_path / folder, lines, model=model)
    logs = vcomp.evals.read(tmp_path)
    assert logs.table["item"].nunique() == 4
    assert logs.table.groupby("item", observed=True)["model"].nunique().tolist() == [1, 2, 2, 1]
    assert "hash of their content" in " ".join(logs.notes)


def test_a_run_without_results_is_named_by_its_folder(tmp_path):
    write(tmp_path / "org__m", [{}], results=False)
    logs = vcomp.evals.read(tmp_path)
    assert logs.table["model"].tolist() == ["org__m"]
    assert "named by the folder" in logs.notes[0]


def test_tasks_without_samples_are_named(tmp_path):
    write(tmp_path, [{}])
    path = tmp_path / f"results_{DATE}.json"
    content = json.loads(path.read_text("utf-8"))
    content["results"]["gsm8k"] = {"acc,none": 0.5}
    path.write_text(json.dumps(content), "utf-8")
    assert "no samples of gsm8k" in vcomp.evals.read(tmp_path).notes[0]


def with_results(folder, **more):
    """Add to the results of a run."""
    path = folder / f"results_{DATE}.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | more), "utf-8")


def test_samples_that_only_the_results_have_are_counted(tmp_path):
    for model, n, by in (("whole", 12, 3), ("half", 5, 2)):
        lines = [{"doc_id": k, "em": float(k % by == 0)} for k in range(n)]
        write(tmp_path / model, lines, model=model)
        with_results(tmp_path / model, **{"n-samples": {"t": {"original": 40, "effective": 12}}})
    logs = vcomp.evals.read(tmp_path)
    assert logs.report.set_index("model")["missing"].to_dict() == {"half": 7, "whole": 0}
    assert "The results count 12 samples of t, and the log of half has 5." in " ".join(logs.notes)
    found = vcomp.evals.study(logs)
    said = " ".join(found.left_out)
    assert "Results count samples that the logs do not have: half 7." in said
    assert "Of 12 items these lack scores: half 7." in said


def test_results_that_contradict_the_samples_are_named(tmp_path):
    write(tmp_path, [{"doc_id": k, "em": float(k < 3)} for k in range(4)])
    with_results(tmp_path, results={"t": {"em,none": 0.75}})
    assert vcomp.evals.read(tmp_path).notes == ()
    with_results(tmp_path, results={"t": {"em,none": 0.5}})
    said = "The results have em = 0.5, and the mean of the samples is 0.75."
    logs = vcomp.evals.read(tmp_path, metadata=["passage"])
    assert said in logs.notes[0]
    # The page of a study has the notes too, metadata that do not vary among them.
    found = vcomp.evals.study(logs)
    assert found.notes == logs.notes
    assert "metadata 'passage' is 'p' in all samples, and no column." in found.notes
    assert said in printed_words(found)
    assert found.notes[-1] in printed_words(found)
    assert found.to_dict()["notes"] == list(logs.notes)
    assert vcomp.evals.study(logs.table).notes == ()


def test_choices_that_a_study_has_made_are_not_advised():
    logs = vcomp.evals.read(LOGS / VERSIONS[-1])
    # One task has this metric: that tasks have the same items says nothing of the comparison.
    made = [note for note in logs.notes if re.search("choose one of each|the same items", note)]
    assert len(made) == 2
    found = vcomp.evals.study(logs, metric="acc")
    assert found.notes == tuple(note for note in logs.notes if note not in made)


def test_logs_that_name_no_prompt_are_of_one(tmp_path):
    rng = np.random.default_rng(2)
    for model in ("m", "n"):
        lines = [{"doc_id": k, "em": float(rng.random() < 0.5)} for k in range(30)]
        write(tmp_path / model, lines, model=model)
    found = vcomp.evals.study(tmp_path, prices={"prompt": 3.0})
    (prompt,) = (one for one in found.unknown if one.facet == "prompt")
    assert prompt.why.startswith("The logs name no prompt: how much scores change with another")
    assert prompt.cost == pytest.approx(3.0 * prompt.levels, rel=1e-12)
    # Of a table its columns are all that is known.
    table = vcomp.evals.read(tmp_path).table
    assert "prompt" not in [one.facet for one in vcomp.evals.study(table).unknown]


def test_results_alone_have_no_samples(tmp_path):
    write(tmp_path, [{}])
    with pytest.raises(vcomp.DataError, match="these files have no samples; give the folder"):
        vcomp.evals.read(tmp_path / f"results_{DATE}.json")


def test_metadata_that_are_no_column_are_named(tmp_path):
    write(tmp_path, [{"doc_id": k} for k in range(3)])
    with pytest.warns(vcomp.VcompWarning, match="no sample has metadata 'nosuch'"):
        vcomp.evals.read(tmp_path, metadata=["nosuch"])
    constant = vcomp.evals.read(tmp_path, metadata=["passage"])
    assert constant.notes[-1] == "metadata 'passage' is 'p' in all samples, and no column."


# Damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"doc_id": 5, "doc": {', "half-written"),
        ("nonsense", "not JSON"),
        ("[1, 2]", "not an object"),
        ('{"doc_id": 5, "metrics": ["em"]}', "no value of the metric 'em'"),
        ("{}", "no doc_id"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_unreadable_lines_are_named_or_left_out(tmp_path, text, why):
    path = write(tmp_path, [{"doc_id": k} for k in range(3)])
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
    with pytest.raises(vcomp.DataError, match=f"line 4: .*{why}.*unreadable='skip'"):
        vcomp.evals.read(path)
    logs = vcomp.evals.read(path, unreadable="skip")
    assert len(logs.table) == 3
    assert logs.report["unreadable"].tolist() == [1]
    assert why in " ".join(logs.notes)


def test_a_damaged_first_line_does_not_hide_the_format(tmp_path):
    path = write(tmp_path, [{"doc_id": k} for k in range(3)])
    path.write_text('{"doc_id": 9, "d\n' + path.read_text("utf-8"), "utf-8")
    with pytest.raises(vcomp.DataError, match="line 1"):
        vcomp.evals.read(path)
    assert len(vcomp.evals.read(path, unreadable="skip").table) == 3


def test_scores_that_are_not_there_are_not_zeros(tmp_path):
    path = write(
        tmp_path,
        [{"doc_id": 1, "em": None}, {"doc_id": 2, "em": float("nan")}, {"doc_id": 3},
         {"doc_id": 4, "em": "good"}, {"doc_id": 5, "em": float("inf")}],
    )  # fmt: skip
    logs = vcomp.evals.read(path)
    assert logs.table["item"].tolist() == ["3"]
    assert logs.unscored["problem"].tolist() == [
        "not scored", "not scored", "not a number: 'good'", "not finite: inf"
    ]  # fmt: skip
    assert logs.report[["scores", "unscored"]].to_numpy().tolist() == [[1, 4]]
    assert "not scored (2)" in str(logs)


# Names of items ---------------------------------------------------------------------------------


def items_of(folder, tasks):
    """Write a task a list of documents, and return the items that are read, by task."""
    for k, (task, documents) in enumerate(tasks.items()):
        lines = [{"doc_id": n, "doc_hash": f"{doc:x}" * 64} for n, doc in enumerate(documents)]
        write(folder / str(k), lines, task=task)
    table = vcomp.evals.read(folder).table
    return {task: table.loc[table["task"] == task, "item"].tolist() for task in tasks}


def test_equal_names_of_items_are_equal_items(tmp_path):
    other = items_of(tmp_path / "a", {"law": [1, 2], "maths": [3, 4]})
    assert other == {"law": ["law/0", "law/1"], "maths": ["maths/0", "maths/1"]}
    same = items_of(tmp_path / "b", {"plain": [1, 2], "upper": [1, 2]})
    assert same == {"plain": ["0", "1"], "upper": ["0", "1"]}
    # A part of the documents, which have other places there.
    part = items_of(tmp_path / "c", {"all": [1, 2, 3], "hard": [3, 2], "else": [4]})
    assert part["hard"] == [part["all"][2], part["all"][1]]
    assert part["all"][1] == "2" * 16
    assert part["else"] == ["0"]


def test_tasks_with_the_same_documents_share_items(tmp_path):
    rng = np.random.default_rng(1)
    for model in "mn":
        for task in ("plain", "upper"):
            lines = [
                {"doc_id": k, "doc_hash": f"{k + 1:x}" * 64, "em": k + rng.normal()}
                for k in range(9)
            ]
            write(tmp_path / model / task, lines, task=task, model=model)
    found = vcomp.evals.study(tmp_path)
    assert (found.roles.levels["item"], found.roles.shares_items) == (9, True)


# Tasks that are forms of the same items ---------------------------------------------------------


def forms(folder, order=(0, 1, 2, 3), noise=0.0):
    """Write two forms of 4 documents, of which the second has them in an order of its own."""
    rng = np.random.default_rng(1)
    for model in "ab":
        for task, places in {"plain": range(4), "upper": order}.items():
            lines = [
                {"doc_id": k, "doc_hash": f"{doc + 1:x}" * 64, "em": doc + noise * rng.random()}
                for k, doc in enumerate(places)
            ]
            write(folder / model, lines, task=task, model=model)
    return folder


def test_tasks_with_the_same_documents_are_read_as_prompts(tmp_path):
    path = forms(tmp_path, noise=1.0)
    logs = vcomp.evals.read(path)
    said = "The tasks 'plain' and 'upper' have the same items."
    assert said in " ".join(logs.notes)
    table = vcomp.evals.read(path, columns={"prompt": "task"}).table
    assert "task" not in table
    assert sorted(table["prompt"].unique()) == ["plain", "upper"]
    found = vcomp.evals.study(path, columns={"prompt": "task"})
    assert (found.roles.levels["item"], found.roles.levels["prompt"]) == (4, 2)
    with pytest.raises(vcomp.PlanError, match="read without columns"):
        vcomp.evals.study(logs, columns={"prompt": "task"})


def test_documents_of_prompts_are_the_same_by_content(tmp_path):
    logs = vcomp.evals.read(forms(tmp_path, order=(2, 0, 3, 1)), columns={"prompt": "task"})
    assert logs.table["item"].nunique() == 4
    scores = logs.table.pivot_table("score", ["model", "item"], "prompt", observed=True)
    assert (scores["plain"] == scores["upper"]).all()
    assert "an id names different items" in " ".join(logs.notes)


def test_columns_of_logs_that_do_not_exist(tmp_path):
    path = forms(tmp_path)
    with pytest.raises(vcomp.DataError, match=r"no column 'taks' \(did you mean 'task'\?\)"):
        vcomp.evals.read(path, columns={"prompt": "taks"})
    by_passage = vcomp.evals.read(path, metadata=["passage"], columns={"judge": "passage"})
    assert set(by_passage.table["judge"]) == {"p"}


# Lines that are read together ------------------------------------------------------------------


def read_lines(path, lines, **options):
    """Return what is read of lines of text."""
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return vcomp.evals.read(path, unreadable="skip", **options)


def one_by_one(line):
    """Return a line that means the same, and that is not read together with others."""
    return line.replace('{"doc_id"', '{"doc_id": null, "doc_id"', 1)


CHOICES = [[["-2.5", "False"]], [["-1.5", "True"]]]

ODD_LINES = {
    "plain": {},
    "null": {"em": None},
    "nan": {"em": float("nan")},
    "infinite": {"em": float("inf")},
    "too large": {"em": 10**400},
    "whole number": {"em": 1},
    "large": {"em": 2**60 + 1},
    "true": {"em": True},
    "text": {"em": "0.5"},
    "word": {"em": "good"},
    "object": {"em": {"a": 1}},
    "list": {"em": [1.0]},
    "metric without a value": {"metrics": ["em", "more"]},
    "two metrics": {"metrics": ["em", "f1"], "f1": [0, 1]},
    "the same metric twice": {"metrics": ["em", "em"]},
    "no metric": {"metrics": [], "acc": 0.5},
    "metrics of no text": {"metrics": [["em"]]},
    "no filter": {"filter": None},
    "other filter": {"filter": "first"},
    "no hash": {"doc_hash": None},
    "short hash": {"doc_hash": "ab_c"},
    "text as id": {"doc_id": "é\U0001f600\0"},
    "half a character as id": {"doc_id": "\ud800"},
    "list as id": {"doc_id": [1, 2]},
    "no id": {"doc_id": None},
    "large id": {"doc_id": 2**70},
    "fraction as id": {"doc_id": 1.5},
    "no responses": {"resps": []},
    "responses of another type": {"resps": "4"},
    "pairs": {"resps": [["-2.5", "False"], ["-1.5", "True"]]},
    "choices": {"resps": CHOICES},
    "three responses": {"resps": [["4", "5", "6"]]},
    "scored repetitions": {"resps": [["4", "5"]], "em": [1.0, 0]},
    "repetitions of which one has no score": {"resps": [["4", "5"]], "em": [1.0, None]},
    "a list of another length": {"resps": [["4", "5"]], "em": [1.0, 0.0, 0.5]},
    "another passage": {"doc": {"passage": 7}},
    "passage with parts": {"doc": {"passage": {"a": [1, "b"]}}},
    "no document": {"doc": None},
    "deep document": {"doc": {"passage": "q", "resps": [{"doc_id": 3, "metrics": ["x"]}]}},
}


@pytest.mark.parametrize("metadata", [(), ("passage",)], ids=["", "metadata"])
@pytest.mark.parametrize("base", ["plain", "two metrics", "scored repetitions", "choices"])
def test_lines_that_are_read_together_mean_what_each_means(tmp_path, base, metadata):
    lines = [json.dumps(LINE | ODD_LINES[base] | {"doc_id": k, "em": k / 8}) for k in range(20)]
    if base == "scored repetitions":
        lines = [json.dumps(LINE | ODD_LINES[base] | {"doc_id": k}) for k in range(20)]
    for k, odd in enumerate(ODD_LINES.values()):
        lines += [json.dumps(LINE | ODD_LINES[base] | {"doc_id": 100 + k} | odd)]
        lines += [json.dumps(LINE | ODD_LINES[base] | odd | {"doc_id": 200 + k})] * (k % 3)
    lines += [lines[0][:60], lines[1][:90] + lines[2], lines[3] + lines[4], "[]", lines[5] + " "]
    lines += lines[6:20]
    found = read_lines(tmp_path / "a.jsonl", lines, metadata=metadata)
    expected = read_lines(tmp_path / "a.jsonl", map(one_by_one, lines), metadata=metadata)
    for name in ("table", "unscored", "report"):
        assert_frame_equal(getattr(found, name), getattr(expected, name), check_exact=True)
    assert [n for n in found.notes if "line" not in n] == [
        n for n in expected.notes if "line" not in n
    ]
    assert found.report["unreadable"].tolist() > [3]


@pytest.mark.parametrize("name", list(ODD_LINES))
def test_lines_alike_mean_what_each_means(tmp_path, name):
    lines = [json.dumps(LINE | {"doc_id": k} | ODD_LINES[name]) for k in range(18)]
    lines.append(json.dumps(LINE | {"doc_id": 99}))  # whatever the others have, there is a score
    found = read_lines(tmp_path / "a.jsonl", lines)
    expected = read_lines(tmp_path / "a.jsonl", map(one_by_one, lines))
    for frame in ("table", "unscored", "report"):
        assert_frame_equal(getattr(found, frame), getattr(expected, frame), check_exact=True)
    assert [n for n in found.notes if "line" not in n] == [
        n for n in expected.notes if "line" not in n
    ]


@pytest.mark.parametrize("base", ["plain", "two metrics", "scored repetitions"])
def test_lines_without_a_list_of_metrics_mean_what_each_means(tmp_path, base):
    """Older versions have none: the keys that remain are metrics."""
    older = {name: value for name, value in (LINE | ODD_LINES[base]).items() if name != "metrics"}
    odd = [o for o in ODD_LINES.values() if "metrics" not in o]
    odd += [{"acc": 1}, {"metrics": ["em"]}, {"metrics": None}, {"metrics": []}, {"acc": None}]
    lines = [json.dumps(older | {"doc_id": k}) for k in range(40)]
    for k, one in enumerate(odd):
        lines += [json.dumps(older | {"doc_id": 100 + k} | one), *lines[k : k + 12]]
    found = read_lines(tmp_path / "a.jsonl", lines)
    expected = read_lines(tmp_path / "a.jsonl", map(one_by_one, lines))
    for name in ("table", "unscored", "report"):
        assert_frame_equal(getattr(found, name), getattr(expected, name), check_exact=True)


@pytest.mark.parametrize("with_list", [True, False])
def test_lines_are_read_together(tmp_path, monkeypatch, with_list):
    alone, add = [], SampleRows.add
    monkeypatch.setattr(
        SampleRows, "add", lambda self, own, *rest: (alone.append(own[0]), add(self, own, *rest))
    )
    lines = [LINE | {"doc_id": k, "em": None if k % 7 == 3 else k / 8} for k in range(3000)]
    lines[5] |= {"em": "word"}
    if not with_list:
        lines = [{name: v for name, v in line.items() if name != "metrics"} for line in lines]
    logs = read_lines(tmp_path / "a.jsonl", map(json.dumps, lines))
    assert len(logs.table) + len(logs.unscored) == 3000
    assert logs.report["unscored"].tolist() == [430]
    assert 5 in alone
    assert len(alone) < 16


def test_a_number_that_is_too_large_among_others(tmp_path):
    lines = [json.dumps(LINE | {"doc_id": k, "em": 10**400 if k == 7 else 0.5}) for k in range(99)]
    logs = read_lines(tmp_path / "a.jsonl", lines)
    assert logs.unscored["problem"].tolist() == ["not a number: it is too large"]


def test_the_order_of_keys_does_not_matter(tmp_path):
    text = 'a ", "resps": [["x", "y"]], "doc_id": 9, "doc": {'
    documents = [{"resps": 1, "filter": 2, "doc": {"doc": 3}}, {"text": text}, [{"x": 1}], None]
    lines = [
        json.dumps(LINE | {"doc_id": k, "doc": doc, "em": k / 80, "resps": [[text]]})
        for k, doc in enumerate(documents * 20)
    ]
    sorted_lines = [json.dumps(json.loads(line), sort_keys=True) for line in lines]
    found = read_lines(tmp_path / "a.jsonl", lines)
    expected = read_lines(tmp_path / "a.jsonl", sorted_lines)
    assert_frame_equal(found.table, expected.table)
    assert found.table["score"].tolist() == [k / 80 for k in range(80)]
    assert found.table["item"].tolist() == [str(k) for k in range(80)]


def test_a_line_that_begins_within_another_is_unreadable(tmp_path):
    whole = json.dumps(LINE | {"doc_id": 1})
    for end in range(10, len(whole) - 1, 7):
        cut = json.dumps(LINE | {"doc_id": 2})[:end] + whole
        logs = read_lines(tmp_path / "a.jsonl", [whole] * 16 + [cut])
        assert logs.report[["samples", "unreadable"]].to_numpy().tolist() == [[1, 1]]
