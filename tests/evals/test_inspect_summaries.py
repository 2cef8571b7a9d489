"""Summaries of Inspect's archives, which are read instead of samples where both say the same."""

import json
import zipfile
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import vcomp
from vcomp.evals.archives import archive_members
from vcomp.evals.run_rows import SampleRows

LOGS = Path(__file__).parent / "logs"

SPEC = {
    "task": "t", "task_id": "T", "run_id": "R", "eval_id": "E", "model": "m", "task_args": {},
    "created": "2026-01-01T00:00:00", "packages": {"inspect_ai": "0.3.156"},
}  # fmt: skip
HEADER = {"version": 2, "status": "success", "eval": SPEC, "invalidated": False}


def sample(item, value="C", **more):
    """Return a sample, or its summary."""
    scores = {"s": {"value": value}}
    return {"id": item, "epoch": 1, "input": f"q{item}", "target": "", "scores": scores} | more


def summary(item, value="I", **more):
    """Return a summary, which has another score than the sample."""
    return sample(item, value, started_at="2026-01-01T00:00:00") | more


def archive(path, samples, summaries, header=HEADER):
    """Write a log."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for one in samples:
            file.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
        text = summaries if isinstance(summaries, str) else json.dumps(summaries)
        file.writestr("summaries.json", text)
        file.writestr("header.json", json.dumps(header))
    return path


def scores(path, **options):
    """Return the score of each item."""
    table = vcomp.evals.read(path, **options).table
    return dict(zip(table["item"], table["score"], strict=True))


@pytest.mark.parametrize("path", sorted(LOGS.glob("inspect_*/*.eval")), ids=lambda path: path.name)
def test_they_say_what_the_samples_of_logs_say(tmp_path, path):
    found = vcomp.evals.read(path)
    content = path.read_bytes()
    without = tmp_path / path.name
    without.write_bytes(content.replace(b"summaries.json", b"summaries.none"))
    expected = vcomp.evals.read(without)
    assert_frame_equal(found.table, expected.table)
    assert_frame_equal(found.unscored, expected.unscored)
    assert_frame_equal(found.report.drop(columns="file"), expected.report.drop(columns="file"))
    assert len(found.notes) == len(expected.notes)
    if "0.3.285" in str(path):  # samples are not opened: without them the log is the same
        changed = bytearray(content)
        members = archive_members(path)
        for name in members.places:
            if name.startswith("samples/"):
                member = members.get(name)
                changed[member.start + 30 + len(member.name) + member.packed // 2] ^= 255
        without.write_bytes(changed)
        assert_frame_equal(vcomp.evals.read(without).table, found.table)


def test_scores_are_those_of_the_summaries(tmp_path):
    path = archive(tmp_path / "a.eval", [sample(1), sample(2)], [summary(1), summary("2")])
    assert scores(path) == {"1": 0.0, "2": 0.0}


@pytest.mark.parametrize(
    "summaries",
    [
        [summary(1)],
        [summary(1), summary(2), summary(3)],
        [summary(2), summary(1)],
        [summary(1), summary(2, epoch=2)],
        [summary(1), {"id": 2}],
        [summary(1), 5],
        {"1": summary(1)},
        "[" + json.dumps(summary(1)),
    ],
    ids=["lacks one", "one more", "order", "epoch", "no scores", "number", "object", "cut"],
)
def test_samples_are_read_if_summaries_are_of_others(tmp_path, summaries):
    path = archive(tmp_path / "a.eval", [sample(1), sample(2)], summaries)
    assert scores(path) == {"1": 1.0, "2": 1.0}


@pytest.mark.parametrize(
    "more",
    [
        {"invalidated": True},
        {"eval": SPEC | {"packages": {"inspect_ai": "0.3.155"}}},
        {"eval": SPEC | {"packages": {}}},
    ],
    ids=["invalidated", "old", "unknown"],
)
def test_samples_are_read_if_summaries_may_lack_what_they_say(tmp_path, more):
    path = archive(tmp_path / "a.eval", [sample(1)], [summary(1)], HEADER | more)
    assert scores(path) == {"1": 1.0}


def test_samples_are_read_for_their_metadata(tmp_path):
    more = {"metadata": {"passage": "p"}}
    both = [sample(1, **more), sample(2)], [summary(1, **more), summary(2)]
    assert scores(archive(tmp_path / "a.eval", *both), metadata=["passage"]) == {
        "1": 1.0,
        "2": 1.0,
    }


@pytest.mark.parametrize(
    "more",
    [
        {"input": "long...\n(content truncated)"},
        {"target": ["short", "long...\n(content truncated)"]},
        {"input": [{"role": "user", "content": "long...\n(content truncated)"}]},
        {"input": [{"role": "user", "content": [{"type": "text", "text": "(Image)"}]}]},
        {"input": [{"role": "user", "content": "data:image/png;base64,AAAA"}]},
        {"started_at": None},
    ],
    ids=["input", "target", "message", "image", "data", "copied"],
)
def test_a_sample_is_read_if_its_summary_is_shortened(tmp_path, more):
    one = {name: value for name, value in summary(2, **more).items() if value is not None}
    samples = [sample(1), sample(2, input="a" * 6000)]
    path = archive(tmp_path / "a.eval", samples, [summary(1), one])
    assert scores(path) == {"1": 0.0, "2": 1.0}


def test_items_are_those_of_logs_without_summaries(tmp_path):
    asked = [{"id": "x", "role": "user", "content": [{"type": "text", "text": "what?"}]}]
    samples = [sample(1, choices=["a", "b"]), sample(2, input="a" * 6000), sample(3, input=asked)]
    summaries = [
        summary(1, choices=["a", "b"]),
        summary(2, input="a" * 5120 + "...\n(content truncated)"),
        summary(3, input=asked),
    ]
    archive(tmp_path / "a.eval", samples, summaries)
    other = HEADER | {"eval": SPEC | {"model": "n", "task_id": "U"}}
    archive(tmp_path / "b.eval", samples, "[]", other)
    logs = vcomp.evals.read(tmp_path)
    assert logs.table["item"].tolist() == ["1", "2", "3"] * 2
    assert logs.notes == ()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metadata": {"a": 1, "model_usage": {"b": 2}, "c": [{"d": 3}, {"id": 4}]}},
        {"input": 'what? ,"model_usage":{ },{"id":5,"scores":'},
        {"input": [{"role": "user", "content": "a"}, {"id": 6, "role": "user", "content": "b"}]},
        {"metadata": {"a": {"scores": {"s": {"value": "C"}}}, "scores": 1}},
        {"metadata": {"a": 1, "scores": {"s": 1}}, "scores": {}},
        {"metadata": {"a": 1, "scores": {"s": 1}}, "scores": None},
        {"metadata": {"a": 1}, "scores": {"s": {"value": {"a": 1, "scores": 0.5}}}},
        {"input": [{"role": "user", "content": "a", "metadata": {"a": 1}}, {"role": "user"}]},
        {"role_usage": {"a": [{"b": 1}, {"id": 2}]}},
        {"error": "boom", "scores": {}},
        {"started_at": None},
    ],
    ids=[
        "plain",
        "metadata",
        "text",
        "messages",
        "scores inside",
        "no scores",
        "none",
        "deep scores",
        "metadata of messages",
        "roles",
        "error",
        "copied",
    ],
)
def test_what_follows_the_scores_does_not_matter(tmp_path, more):
    names = (
        "id", "epoch", "input", "target", "metadata", "scores", "model_usage", "role_usage",
        "started_at", "error",
    )  # fmt: skip
    parts = ({}, more, {}, more)
    summaries = [
        {name: known[name] for name in names if known.get(name) is not None}
        for k, part in enumerate(parts)
        for known in [summary(k, model_usage={"m": {"n": 1}}, role_usage={}) | part]
    ]
    samples = [sample(k, **{n: v for n, v in more.items() if n == "input"}) for k in range(4)]
    tables = []
    for separators in ((",", ":"), (", ", ": ")):  # the second is parsed whole
        text = json.dumps(summaries, separators=separators)
        logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples, text))
        tables.append((logs.table, logs.unscored, logs.report))
    for found, expected in zip(*tables, strict=True):
        assert_frame_equal(found, expected)
    assert tables[0][2]["samples"].tolist() == [4]


def test_errors_of_samples_are_those_of_their_summaries(tmp_path):
    samples = [sample(1), sample(2, error={"message": "boom"}) | {"scores": {}}]
    summaries = [summary(1), summary(2, error="boom\nat line 3") | {"scores": {}}]
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples, summaries))
    assert logs.unscored["problem"].tolist() == ["failed: boom"]
    assert logs.report["failed"].tolist() == [1]


# Summaries that are read together ---------------------------------------------------------------

NAMES = ("id", "epoch", "input", "choices", "target", "metadata", "scores", "model_usage",
         "role_usage", "started_at", "error")  # fmt: skip
PARTS = {"s": {"value": {"a": 1, "b": 0.25}}}
JUDGES = {"s": {"value": [1, 0.5]}}
ODD = {
    "plain": {},
    "number": {"scores": {"s": {"value": 0.5}}},
    "whole number": {"scores": {"s": {"value": 1}}},
    "large": {"scores": {"s": {"value": 2**60 + 1}}},
    "too large": {"scores": {"s": {"value": 10**400}}},
    "true": {"scores": {"s": {"value": True}}},
    "word": {"scores": {"s": {"value": "Yes"}}},
    "another word": {"scores": {"s": {"value": "good"}}},
    "nan": {"scores": {"s": {"value": float("nan")}}},
    "infinite": {"scores": {"s": {"value": float("inf")}}},
    "null": {"scores": {"s": {"value": None}}},
    "no value": {"scores": {"s": {"history": []}}},
    "parts": {"scores": PARTS},
    "other parts": {"scores": {"s": {"value": {"a": 1, "c": None}}}},
    "fewer parts": {"scores": {"s": {"value": {"a": "C"}}}},
    "judges": {"scores": JUDGES},
    "another judge": {"scores": {"s": {"value": [1, 0.5, 0]}}},
    "no judge": {"scores": {"s": {"value": []}}},
    "no score": {"scores": {}},
    "no scores": {"scores": None},
    "null score": {"scores": {"s": None}},
    "a number as score": {"scores": {"s": 1}},
    "another scorer": {"scores": {"t": {"value": "C"}}},
    "two scorers": {"scores": {"s": {"value": "C"}, "t": {"value": "I"}}},
    "explained": {"scores": {"s": {"value": "C", "answer": "4", "metadata": {"a": "b"}}}},
    "otherwise explained": {"scores": {"s": {"value": "C", "metadata": {"a": [1, {}]}}}},
    "metadata": {"metadata": {"a": 1, "model_usage": {"b": 2}, "c": [{"d": 3}, {"id": 4}]}},
    "metadata with scores": {"metadata": {"a": 1, "scores": {"s": {"value": "C"}}}},
    "date": {"metadata": {"a": "2026-01-01"}, "target": "2026-01-01"},
    "message": {"input": [{"id": "x", "role": "user", "content": "2026-01-01"}]},
    "half a character": {"input": "\ud800"},
    "other characters": {"input": 'é\U0001f600\0 ,"model_usage":{ },{"id":5,"scores":'},
    "text as id": {"id": 'a", "b'},
    "empty": {"input": "", "target": "", "choices": []},
    "no choices": {"choices": None},
    "list as target": {"target": ["a", "(A)"]},
    "target": {"target": "(A)"},
    "other target": {"target": "data: 1"},
    "error": {"error": "boom"},
    "error alone": {"error": "boom", "scores": {}},
    "epoch": {"epoch": 2},
    "copied": {"started_at": None},
}


def summaries_of(base, odd, n=20):
    """Return summaries alike, with others between and behind them."""
    some = [ODD[base] for _ in range(n)]
    for k, one in enumerate(odd):
        some += [ODD[base] | one] + [ODD[base]] * (k % 3)
    some += [ODD[base]] * n
    plain = {"choices": ["a", "b"], "target": "A", "model_usage": {"m": {"n": 1}}}
    whole = [
        summary(k, input=f"q{k // 2}", role_usage={}) | plain | more for k, more in enumerate(some)
    ]
    return [{name: one[name] for name in NAMES if one.get(name) is not None} for one in whole]


def both_ways(tmp_path, summaries):
    """Return what is read of summaries, and of the same written otherwise, read one by one.

    The samples themselves have no scores.
    """
    samples = [{"id": one["id"], "epoch": one["epoch"], "input": "long"} for one in summaries]
    found = []
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(summaries, separators=separators)
        logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples, text))
        found.append((logs.table, logs.unscored, logs.report))
    return zip(*found, strict=True)


@pytest.mark.parametrize(
    "base", ["plain", "number", "parts", "judges", "two scorers", "explained"]
)
def test_summaries_that_are_read_together_mean_what_each_means(tmp_path, base):
    for found, expected in both_ways(tmp_path, summaries_of(base, ODD.values())):
        assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("name", list(ODD))
def test_summaries_alike_mean_what_each_means(tmp_path, name):
    summaries = [*summaries_of(name, []), *summaries_of("plain", [])]
    for k, one in enumerate(summaries):
        one["id"] = k
    for found, expected in both_ways(tmp_path, summaries):
        assert_frame_equal(found, expected, check_exact=True)


def test_summaries_are_read_together(tmp_path, monkeypatch):
    odd = {"scores": {"s": {"value": None}}}
    summaries = summaries_of("explained", [odd], 3000)
    path = archive(tmp_path / "a.eval", summaries, json.dumps(summaries, separators=(",", ":")))
    alone, add = [], SampleRows.add
    monkeypatch.setattr(
        SampleRows, "add", lambda self, own, *rest: (alone.append(own[0]), add(self, own, *rest))
    )
    logs = vcomp.evals.read(path)
    assert len(logs.table) == 6000
    assert alone == [3000, 6000]  # the odd one, and the last, which no other follows
