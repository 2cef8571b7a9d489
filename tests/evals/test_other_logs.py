"""Logs of other frameworks, on small files after their schemas."""

import copy
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp


def write(path, content):
    """Write JSON, or an object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list) and path.suffix == ".jsonl":
        text = "".join(json.dumps(line) + "\n" for line in content)
    else:
        text = json.dumps(content, indent=2)
    path.write_text(text, "utf-8")
    return path


def rows(logs, *names):
    """Return columns of the table as lists."""
    return logs.table[list(names)].astype(object).to_numpy().tolist()


# HELM ------------------------------------------------------------------------------------------


def stat(name, total, count=1, **more):
    """Return a statistic of HELM."""
    return {"name": {"name": name, "split": "test", **more}, "count": count, "sum": total}


HELM = [
    {"instance_id": "id1", "train_trial_index": 0, "stats": [stat("em", 1.0), stat("f1", 1.5, 2)]},
    {"instance_id": "id2", "train_trial_index": 0, "stats": [stat("em", 0.0)]},
    {"instance_id": "id1", "perturbation": {"name": "typos"}, "train_trial_index": 0,
     "stats": [stat("em", 0.0)]},
    {"instance_id": "id1", "train_trial_index": 0, "stats": [stat("tokens", 7)]},
    {"instance_id": "id2", "train_trial_index": 0, "stats": [stat("tokens", 9)]},
]  # fmt: skip


@pytest.fixture
def helm(tmp_path):
    folder = tmp_path / "mmlu:subject=law,model=org_m"
    write(folder / "per_instance_stats.json", HELM)
    spec = {"name": "mmlu:subject=law,model=org_m", "adapter_spec": {"model": "org/m"}}
    write(folder / "run_spec.json", spec)
    write(folder / "stats.json", [stat("em", 0.5)])
    return folder


def test_helm(helm):
    logs = vcomp.evals.read(helm)
    table = logs.table
    assert table[["model", "task"]].drop_duplicates().to_numpy().tolist() == [
        ["org/m", "mmlu:subject=law"]
    ]
    plain = table[table["perturbation"] == "none"]
    scores = plain.set_index(["item", "metric"])["score"].to_dict()
    assert scores == {
        ("id1", "em"): 1.0, ("id1", "f1"): 0.75, ("id2", "em"): 0.0,
        ("id1", "tokens"): 7.0, ("id2", "tokens"): 9.0,
    }  # fmt: skip
    assert logs.report["samples"].tolist() == [3]
    # Other files of the run may be large: they are not opened.
    (helm / "scenario_state.json").write_text('{"half')
    assert "not logs" not in " ".join(vcomp.evals.read(helm).notes)


def test_helm_after_its_summary(helm):
    """``helm-summarize`` adds predictions, whose statistics are numbers by name."""
    before = vcomp.evals.read(helm)
    shown = {"instance_id": "id1", "train_trial_index": 0, "stats": {"em": 1.0}}
    for name in ("display_predictions.json", "display_requests.json"):
        write(helm / name, [shown])
    after = vcomp.evals.read(helm)
    pd.testing.assert_frame_equal(after.table, before.table)
    assert after.notes == before.notes
    (helm / "per_instance_stats.json").unlink()
    with pytest.raises(vcomp.DataError, match=r"no scores .*were not read: .*display_predictions"):
        vcomp.evals.read(helm)


def test_statistics_that_helm_left_out_are_not_scored(helm):
    missing = vcomp.evals.read(helm).unscored
    assert missing[["item", "metric", "problem"]].to_numpy().tolist() == [
        ["id2", "f1", "not scored"]
    ]


def test_helm_without_its_specification(helm):
    (helm / "run_spec.json").unlink()
    logs = vcomp.evals.read(helm)
    assert rows(logs, "model", "task")[0] == ["org_m", "mmlu:subject=law"]
    assert "no run_spec.json" in logs.notes[0]


# OpenAI evals ----------------------------------------------------------------------------------


def event(kind, item, **data):
    """Return an event."""
    return {"run_id": "r", "event_id": 0, "sample_id": item, "type": kind, "data": data}


OPENAI = [
    {"spec": {"completion_fns": ["gpt"], "eval_name": "sums.dev.v0", "run_id": "r"}},
    event("sampling", "s.0", prompt="?"),
    event("match", "s.0", correct=True, expected="4", picked="4"),
    {"final_report": {"accuracy": 0.5}},
    event("match", "s.1", correct=False),
    event("metrics", "s.1", bleu=0.25, rating="B"),
    event("sampling", "s.2", prompt="?"),
    event("error", "s.3", message="time is up"),
]


def test_openai_evals(tmp_path):
    logs = vcomp.evals.read(write(tmp_path / "log.jsonl", OPENAI))
    assert rows(logs, "model", "task", "item", "metric", "score") == [
        ["gpt", "sums.dev.v0", "s.0", "match", 1.0],
        ["gpt", "sums.dev.v0", "s.1", "match", 0.0],
        ["gpt", "sums.dev.v0", "s.1", "bleu", 0.25],
    ]
    assert logs.unscored["problem"].tolist() == [
        "not a number: 'B'", "not scored", "failed: time is up"
    ]  # fmt: skip
    assert logs.report[["samples", "failed"]].to_numpy().tolist() == [[4, 1]]
    assert not [note for note in logs.notes if "did not end" in note]


def test_repeated_events_are_epochs_and_a_missing_report_is_named(tmp_path):
    lines = [OPENAI[0], *(event("match", "s.0", correct=k) for k in (1, 0))]
    logs = vcomp.evals.read(write(tmp_path / "log.jsonl", lines))
    assert rows(logs, "epoch", "score") == [[1, 1.0], [2, 0.0]]
    assert "did not end" in logs.notes[0]


# promptfoo -------------------------------------------------------------------------------------


def answer(test, prompt, score, *, model="m", **more):
    """Return a row of promptfoo."""
    return {
        "testIdx": test, "promptIdx": 0, "promptId": prompt, "vars": {"q": f"q{test // 2}"},
        "provider": {"id": "file://p.js", "label": model}, "score": score, "success": score == 1,
        "failureReason": 0, "gradingResult": {}, "namedScores": {}, **more,
    }  # fmt: skip


ANSWERS = [
    answer(0, "p", 1.0), answer(1, "p", 0.0), answer(2, "p", 0.5, namedScores={"tone": 1}),
    answer(3, "p", 0, failureReason=2, error="no answer\nat", gradingResult=None),
    answer(0, "p", 0.0, model="n"),
]  # fmt: skip


def export(answers=ANSWERS, **more):
    """Return an export with two repetitions."""
    return {
        "evalId": "e", "results": {"version": 3, "timestamp": "t", "results": answers},
        "config": {"description": "sums"}, "runtimeOptions": {"repeat": 2}, **more,
    }  # fmt: skip


def test_promptfoo(tmp_path):
    logs = vcomp.evals.read(write(tmp_path / "out.json", export()))
    assert rows(logs, "model", "task", "item", "epoch", "prompt", "metric", "score") == [
        ["m", "sums", "0", 1, "p", "score", 1.0],
        ["m", "sums", "0", 2, "p", "score", 0.0],
        ["m", "sums", "1", 1, "p", "score", 0.5],
        ["m", "sums", "1", 1, "p", "tone", 1.0],
        ["n", "sums", "0", 1, "p", "score", 0.0],
    ]
    assert logs.unscored[["item", "epoch", "problem"]].to_numpy().tolist() == [
        ["1", 2, "failed: no answer"]
    ]
    assert logs.report[["samples", "failed"]].to_numpy().tolist() == [[5, 1]]


def test_an_answer_to_another_prompt_is_no_retry(tmp_path):
    """A failed answer is listed, though the same test was answered with another prompt."""
    answers = [
        answer(0, "p", 0, failureReason=2, error="no answer", gradingResult=None),
        answer(0, "q", 1.0),
    ]
    logs = vcomp.evals.read(write(tmp_path / "out.json", export(answers)))
    assert logs.unscored[["item", "prompt"]].to_numpy().tolist() == [["0", "p"]]
    assert logs.report[["scores", "unscored", "duplicates"]].to_numpy().tolist() == [[1, 1, 0]]


def test_rows_of_promptfoo_without_their_export(tmp_path):
    """The number of repetitions is missing there: equal variables are repetitions."""
    logs = vcomp.evals.read(write(tmp_path / "out.jsonl", ANSWERS))
    scores = logs.table[logs.table["metric"] == "score"]
    assert scores[["model", "item", "epoch"]].to_numpy().tolist() == [
        ["m", "0", 1], ["m", "0", 2], ["m", "2", 1], ["n", "0", 1],
    ]  # fmt: skip


def test_an_export_that_does_not_say_how_often_tests_ran(tmp_path):
    """Exports of older versions lack the options of the run: they are read as their rows are."""
    content = export()
    del content["runtimeOptions"]
    logs = vcomp.evals.read(write(tmp_path / "out.json", content))
    alone = vcomp.evals.read(write(tmp_path / "rows" / "out.jsonl", ANSWERS))
    names = ["model", "item", "epoch", "metric", "score"]
    assert rows(logs, *names) == rows(alone, *names)
    # Options that name no repetitions have none.
    logs = vcomp.evals.read(write(tmp_path / "out.json", content | {"runtimeOptions": {}}))
    assert "epoch" not in logs.table or set(logs.table["epoch"]) == {1}
    assert logs.table["item"].unique().tolist() == ["0", "1", "2"]


# lighteval -------------------------------------------------------------------------------------


def test_lighteval(tmp_path):
    date, task = "2026-01-01T00-00-00", "lighteval|gsm8k|5"
    path = tmp_path / "details" / "org" / "m" / date / f"details_{task}_{date}.parquet"
    path.parent.mkdir(parents=True)
    documents = [
        {"id": str(k), "query": f"q{k}", "task_name": task, "num_samples": 4} for k in range(3)
    ]
    metrics = [{"em": 1.0, "pass": 0.5}, {"em": 0.0, "pass": None}, {"em": 1.0, "pass": 1.0}]
    pq.write_table(
        pa.table({"doc": documents, "metric": metrics, "model_response": [1, 2, 3]}), path
    )
    logs = vcomp.evals.read(tmp_path)
    assert rows(logs, "model", "task", "item", "metric", "score")[:3] == [
        ["org/m", task, "0", "em", 1.0],
        ["org/m", task, "0", "pass", 0.5],
        ["org/m", task, "1", "em", 0.0],
    ]
    assert logs.unscored["metric"].tolist() == ["pass"]
    assert "4 answers" in logs.notes[0]


# MTEB ------------------------------------------------------------------------------------------


def test_mteb(tmp_path):
    folder = tmp_path / "results" / "org__m" / "rev"
    scores = {"test": [{"main_score": 0.5, "hf_subset": s, "languages": []} for s in ("de", "en")]}
    write(folder / "STS.json", {"task_name": "STS", "mteb_version": "2", "scores": scores})
    logs = vcomp.evals.read(tmp_path)
    assert rows(logs, "model", "task", "subset", "score") == [
        ["org/m", "STS", "de", 0.5],
        ["org/m", "STS", "en", 0.5],
    ]
    assert "not of items" in " ".join(logs.notes)
    write(folder / "model_meta.json", {"name": "org/other", "revision": "rev"})
    assert vcomp.evals.read(tmp_path).table["model"].unique().tolist() == ["org/other"]
    scores["test"][1] = "lost"
    write(folder / "STS.json", {"task_name": "STS", "mteb_version": "2", "scores": scores})
    with pytest.raises(vcomp.DataError, match="test, score 2: a score is"):
        vcomp.evals.read(tmp_path)


@pytest.mark.parametrize("has_meta", [True, False])
def test_experiments_of_mteb(tmp_path, has_meta):
    """MTEB 2.26 stores a model with other arguments in folders of their own."""
    revision = tmp_path / "results" / "org__m" / "rev"
    for folder, score in ((revision, 0.5), (revision / "experiments" / "dim_64", 0.4)):
        scores = {"test": [{"main_score": score, "hf_subset": "default", "languages": []}]}
        write(folder / "STS.json", {"task_name": "STS", "mteb_version": "2", "scores": scores})
        if has_meta:
            write(folder / "model_meta.json", {"name": "org/m", "revision": "rev"})
    table = vcomp.evals.read(tmp_path).table.astype(object)
    found = table.sort_values("score")[["model", "experiment", "score"]]
    expected = [["org/m", "dim_64", 0.4], ["org/m", "none", 0.5]]
    assert found.to_numpy().tolist() == expected


# Every Eval Ever -------------------------------------------------------------------------------


def instance(item, score, result="acc", **more):
    """Return a line of Every Eval Ever."""
    return {
        "schema_version": "0.3", "evaluation_id": "e", "model_id": "org/m",
        "evaluation_name": "sums", "evaluation_result_id": result, "sample_id": item,
        "interaction_type": "single_turn", "input": {"raw": f"q{item}", "reference": ["4"]},
        "answer_attribution": [], "evaluation": {"score": score, "is_correct": score > 0}, **more,
    }  # fmt: skip


PROMPTFOO_CSV = """question,[openai:a] Say {{question}},[b] Say {{question}}
"2 + 2,\nplease","[PASS] (1.00, style: 0.50)\n\n4, yes","[FAIL] (0.25)\n\nfive\n\nFail Reason: no"
3 + 3,"[PASS] 6","[ERROR] (0.00)\n\ntimeout"
3 + 3,"[FAIL] 7","[PASS] (1.00)\n\n6"
"""


PROMPTFOO_CSV_OF_2026 = '''question,[a] Say {{question}},Status,Score,Named Scores,\
Metric: exact,Grader Reason,Comment,[b] Say {{question}},Status,Score,Named Scores,Metric: exact,\
Grader Reason,Comment
1 + 1,2,PASS,1.00,"{""exact"":1}",1.00,All assertions passed,,wrong,FAIL,0.50,\
"{""exact"":0}",0.00,"Expected output ""wrong"" to equal ""2""",
9 + 9,18,PASS,1.00,,,No assertions,,,ERROR,0.00,,,,
'''
"""As promptfoo 0.123.1 writes it."""


def test_promptfoo_csv_with_columns_behind_each_output(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(PROMPTFOO_CSV_OF_2026, "utf-8")
    logs = vcomp.evals.read(path)
    assert rows(logs, "model", "item", "metric", "score") == [
        ["a", "0", "score", 1.0],
        ["a", "0", "exact", 1.0],
        ["b", "0", "score", 0.5],
        ["b", "0", "exact", 0.0],
        ["a", "1", "score", 1.0],
    ]
    assert logs.report[["format", "samples", "failed"]].to_numpy().tolist() == [
        ["promptfoo", 4, 1]
    ]
    assert logs.unscored["problem"].tolist() == ["failed: the CSV does not say why"]
    for good, bad, words in (
        ("FAIL,0.50", "MAYBE,0.50", "row 1: the status of an output is 'MAYBE', not PASS"),
        ('"{""exact"":1}"', "exact", "row 1: "),
    ):
        path.write_text(PROMPTFOO_CSV_OF_2026.replace(good, bad), "utf-8")
        with pytest.raises(vcomp.DataError, match=words):
            vcomp.evals.read(path)


def test_promptfoo_csv(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(PROMPTFOO_CSV, "utf-8")
    logs = vcomp.evals.read(path, metadata=["question"])
    assert rows(logs, "model", "item", "epoch", "metric", "question", "score") == [
        ["openai:a", "0", 1, "score", "2 + 2,\nplease", 1.0],
        ["openai:a", "0", 1, "style", "2 + 2,\nplease", 0.5],
        ["b", "0", 1, "score", "2 + 2,\nplease", 0.25],
        ["openai:a", "1", 1, "score", "3 + 3", 1.0],
        ["openai:a", "1", 2, "score", "3 + 3", 0.0],
        ["b", "1", 2, "score", "3 + 3", 1.0],
    ]
    assert logs.unscored["problem"].tolist() == ["failed: timeout"]
    assert logs.report[["format", "samples", "failed"]].to_numpy().tolist() == [
        ["promptfoo", 6, 1]
    ]
    path.write_text(PROMPTFOO_CSV.replace('"[PASS] 6"', "six"), "utf-8")
    with pytest.raises(vcomp.DataError, match="row 2: an output begins 'six'"):
        vcomp.evals.read(path)
    assert len(vcomp.evals.read(path, unreadable="skip").table) == 5
    # A variable whose name is like the head of an output.
    path.write_text(PROMPTFOO_CSV.replace("question,", "[a] question,", 1), "utf-8")
    again = vcomp.evals.read(path, metadata=["[a] question"]).table
    pd.testing.assert_frame_equal(again.rename(columns={"[a] question": "question"}), logs.table)
    # Without variables the head begins as a list in JSON does.
    for name in ("openai:a", "3b", "null"):
        path.write_text(f"[{name}] answer,[b] answer\n[PASS] (1.00) 4,[FAIL] (0.50) 5\n", "utf-8")
        assert rows(vcomp.evals.read(path), "model", "score") == [[name, 1.0], ["b", 0.5]]
    path.write_text("q,[a] x,score\n1,2,1\n", "utf-8")
    assert vcomp.evals.read(path).report["format"].item() == "table"


INSTANCES = [
    instance("a", 1.0), instance("a", 0.25, "f1"), instance("b", 0.0, error="timeout"),
    instance("b", 0.5, "f1"), instance("a", 0.0, evaluation_id="again"),
]  # fmt: skip


def test_epochs_that_the_converter_of_inspect_keeps_as_metadata(tmp_path):
    epochs = ("1", "2", "10")
    lines = [instance("a", k / 4, metadata={"epoch": e}) for k, e in enumerate(epochs)]
    logs = vcomp.evals.read(write(tmp_path / "x.jsonl", lines))
    assert rows(logs, "item", "epoch", "score") == [["a", 1, 0.0], ["a", 2, 0.25], ["a", 10, 0.5]]
    assert logs.report["duplicates"].tolist() == [0]
    lines.append(instance("b", 1.0, metadata={"epoch": "last"}))
    with pytest.raises(vcomp.DataError, match=r"line 4: .*'last'"):
        vcomp.evals.read(write(tmp_path / "x.jsonl", lines))


def test_every_eval_ever(tmp_path):
    logs = vcomp.evals.read(write(tmp_path / "x.jsonl", INSTANCES))
    assert rows(logs, "model", "task", "item", "metric", "evaluation", "score") == [
        ["org/m", "sums", "a", "acc", "e", 1.0],
        ["org/m", "sums", "a", "f1", "e", 0.25],
        ["org/m", "sums", "b", "f1", "e", 0.5],
        ["org/m", "sums", "a", "acc", "again", 0.0],
    ]
    assert logs.unscored["problem"].tolist() == ["failed: timeout"]
    assert logs.report[["samples", "failed"]].to_numpy().tolist() == [[3, 1]]


# Values at wrong places ------------------------------------------------------------------------

LM_EVAL = [
    {
        "doc_id": k, "doc": {"q": "?"}, "target": "4", "resps": [["4"]], "filter": "none",
        "metrics": ["em"], "doc_hash": "ab", "em": 1.0,
    }
    for k in range(2)
]  # fmt: skip
INSPECT = {
    "version": 2, "status": "success",
    "eval": {"task": "t", "model": "m", "task_id": "T", "task_args": {"a": 1},
             "model_roles": {"grader": {"model": "g"}}, "scorers": [{"name": "s", "options": {}}]},
    "samples": [{"id": 1, "epoch": 1, "input": [{"role": "user", "content": "q"}], "target": "",
                 "scores": {"s": {"value": {"a": 1}}}, "metadata": {"p": 1}}],
}  # fmt: skip
CONTENTS = {
    "helm.json": HELM, "openai.jsonl": OPENAI, "promptfoo.json": export(),
    "answers.jsonl": ANSWERS, "instances.jsonl": INSTANCES, "inspect.json": INSPECT,
    "samples_t_2026-01-01T00-00-00.0.jsonl": LM_EVAL,
    "mteb.json": {"task_name": "T", "scores": {"test": [{"main_score": 0.5}]}},
    "aggregate.json": {"evaluation_id": "e", "model_info": {"id": "m"}, "evaluation_results": [
        {"evaluation_name": "t", "metric_config": {}, "score_details": {"score": 1.0}}]},
}  # fmt: skip
WRONG = (None, True, -1, 1e400, "text", "", [], [[]], {}, {"name": {}}, 10**400)


def places(value, path=()):
    """Yield the paths of all values within a value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@pytest.mark.filterwarnings("ignore:no sample has metadata")
@pytest.mark.parametrize("name", CONTENTS)
def test_wrong_values_are_errors_or_named(tmp_path, name):
    """Any value of any log may be another one, by turns."""
    rng, found = np.random.default_rng(5), list(places(CONTENTS[name]))[1:]
    for k in rng.permutation(len(found))[:6]:
        content = copy.deepcopy(CONTENTS[name])
        *path, last = found[k]
        holder = content
        for key in path:
            holder = holder[key]
        holder[last] = WRONG[k % len(WRONG)]
        path = write(tmp_path / name, content)
        for how in ("raise", "skip"):
            try:
                str(vcomp.evals.read(path, unreadable=how, metadata=["q"]))
            except vcomp.VcompError as error:
                assert str(error)  # noqa: PT017


def test_levels_of_any_type_are_text_in_a_parquet_file_as_in_a_list(tmp_path):
    columns = {
        "model": ["a", "b", None, ""],
        "item": [7, 8, 7, 8],
        "judge": [1.0, None, 1.5, 2.0],
        "prompt": pd.Categorical(["p", "q", "p", None], ["q", "p", "unused"]),
        "is_hard": [True, False, True, True],
        "score": [1, 0, 1, 1],
    }
    pd.DataFrame(columns).to_parquet(tmp_path / "scores.parquet")
    found = vcomp.evals.read(tmp_path / "scores.parquet").table
    expected = {
        "model": ["a", "b", None, None],
        "item": ["7", "8", "7", "8"],
        "prompt": ["p", "q", "p", None],
        "judge": ["1", None, "1.5", "2"],
        "is_hard": ["True", "False", "True", "True"],
    }
    for name, levels in expected.items():
        assert [None if pd.isna(v) else v for v in found[name].tolist()] == levels
        assert "unused" not in found[name].cat.categories
    assert found["score"].tolist() == [1.0, 0.0, 1.0, 1.0]


def test_bytes_that_are_no_log_are_refused(tmp_path):
    """Bytes that begin as the table of promptfoo may, and are not CSV."""
    for name in ("scores.csv", "scores.dat"):
        (tmp_path / name).write_bytes(b"[a] x,y\x8f\r\x01z\n\xff\r7")
        with pytest.raises(vcomp.DataError, match=f"{name}' has no known format of a log"):
            vcomp.evals.read(tmp_path / name)
    path = tmp_path / "cut.csv"
    path.write_text(PROMPTFOO_CSV + "3,a\rb,[PASS] (1.00) 1\n", "utf-8", newline="")
    with pytest.raises(vcomp.DataError, match="it is not CSV"):
        vcomp.evals.read(path)


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "scores.csv").symlink_to(tmp_path / "scores.csv")
    with pytest.raises(vcomp.DataError, match="is a link to a file or folder that does not exist"):
        vcomp.evals.read(tmp_path / "scores.csv")
