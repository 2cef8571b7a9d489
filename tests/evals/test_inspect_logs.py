"""Logs of Inspect: its own means and standard errors, from archives and JSON of two versions."""

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import vcomp
from vcomp.evals.archives import Member, archive_members, member_content
from vcomp.evals.json_records import UnreadableError

LOGS = Path(__file__).parent / "logs"
VERSIONS = ("inspect_0.3.112", "inspect_0.3.285")

SPEC = {
    "task": "t", "task_id": "T", "run_id": "R", "eval_id": "E", "model": "m",
    "created": "2026-01-01T00:00:00", "task_args": {},
}  # fmt: skip
HEADER = {"version": 2, "status": "success", "eval": SPEC}


def sample(item=1, value="C", *, epoch=1, **more):
    """Return a sample with one score."""
    scores = {"s": {"value": value}}
    return {
        "id": item,
        "epoch": epoch,
        "input": f"q{item}",
        "target": "",
        "scores": scores,
        **more,
    }


def archive(path, samples, header=HEADER, *, start=False, **members):
    """Write a log; `members` are texts by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        if start:
            file.writestr("_journal/start.json", json.dumps(header))
        for k, one in enumerate(samples):
            text = one if isinstance(one, str) else json.dumps(one)
            file.writestr(f"samples/{k}_epoch_1.json", text)
        for name, text in members.items():
            file.writestr(name, text)
        if not start:
            file.writestr("header.json", json.dumps(header))
    return path


def members(path):
    """Return the members of an archive by name."""
    found = archive_members(path)
    return {name: found.get(name) for name in found.places}


def header_of(path):
    """Return the header of a log."""
    if path.suffix == ".json":
        return json.loads(path.read_text("utf-8"))
    with path.open("rb") as file:
        return json.loads(member_content(file, members(path)["header.json"]))


def clustered(scores, clusters):
    """Return the standard error of a mean with effects of clusters, as Inspect has it."""
    sums = (scores - scores.mean()).groupby(clusters.to_numpy()).sum()
    c, n = len(sums), len(scores)
    return np.sqrt((sums**2).sum() * c / (c - 1)) / n


@pytest.mark.parametrize("path", sorted(LOGS.glob("inspect_*/*")), ids=lambda path: path.name)
def test_its_own_means_and_standard_errors(path):
    header = header_of(path)
    if header["status"] != "success":
        assert "its status is 'error'" in " ".join(vcomp.evals.read(path).notes)
        return
    table = vcomp.evals.read(path, metadata=["passage"]).table
    for own in header["results"]["scores"]:
        rows = table[table["metric"] == own["name"]]
        items = rows.groupby("item", observed=True)
        scores, passages = items["score"].mean(), items["passage"].first()
        if np.isnan(own["metrics"].get("mean", {"value": 0.0})["value"]):
            assert "0.3.112" in str(path)  # which does not leave out what is not a number
            continue
        for name, metric in own["metrics"].items():
            if name in ("accuracy", "mean"):
                found = scores.mean()
            elif (metric.get("params") or {}).get("cluster"):
                found = clustered(scores, passages)
                if np.isnan(metric["value"]):
                    # 0.3.112 has the root of a rounding error below 0 where all clusters agree.
                    metric["value"] = 0.0
            else:
                found = scores.sem()
            # 1e-16: sums of clusters are rounding errors where all agree
            np.testing.assert_allclose(found, metric["value"], rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_retry_and_its_first_run_are_one(version):
    logs = vcomp.evals.read(LOGS / version)
    retried = logs.table[logs.table["prompt"] == "other"]
    assert len(retried) == 9 * 2 * 3
    assert not retried.duplicated(["item", "epoch", "metric"]).any()
    problems = logs.unscored[logs.unscored["problem"].str.startswith("failed")]
    assert problems[["item", "epoch"]].to_numpy().tolist() == [["5", 2]]
    assert problems["prompt"].tolist() == ["plain"]
    assert logs.report["failed"].sum() >= 2


@pytest.mark.parametrize("version", VERSIONS)
def test_values_that_are_not_a_number_are_not_scored(version):
    logs = vcomp.evals.read(next((LOGS / version).glob("*lossy*")))
    assert logs.table["metric"].value_counts().to_dict() == {"close": 9, "short": 5}
    assert set(logs.unscored["metric"]) == {"short"}
    assert set(logs.unscored["problem"]) == {"not scored"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_grader_is_the_judge(version):
    table = vcomp.evals.read(next((LOGS / version).glob("*graded*"))).table
    judges = table.groupby("metric", observed=True)["judge"].unique()
    assert judges["model_graded_qa"].tolist() == ["drawn/large"]
    assert judges["match"].isna().all()


def graded_twice(path, *models):
    """Write a log whose scorer is used once with each model, as Inspect numbers the names."""
    names = ["graded", *(f"graded{k}" for k in range(1, len(models)))]
    uses = [{"name": "pack/graded", "options": {"model": m} if m else {}} for m in models]
    scores = {name: {"value": "CI"[k % 2]} for k, name in enumerate(names)}
    header = HEADER | {"eval": HEADER["eval"] | {"scorers": uses}}
    return archive(path, [sample(1) | {"scores": scores}], header)


def test_one_scorer_with_several_models_is_one_metric_by_several_judges(tmp_path):
    """The names that Inspect gives are graded and graded1; the first was by the first model."""
    labels = ["metric", "judge", "score"]

    def read(*models):
        table = vcomp.evals.read(graded_twice(tmp_path / "a.eval", *models)).table
        return table.reindex(columns=labels).astype(object).fillna("").to_numpy().tolist()

    assert read("x", "y") == [["graded", "x", 1.0], ["graded", "y", 0.0]]
    # As two scorers: with the same model, and without one.
    assert read("x", "x") == [["graded", "x", 1.0], ["graded1", "x", 0.0]]
    assert read("x", None) == [["graded", "x", 1.0], ["graded1", "", 0.0]]


def test_metadata_are_those_of_samples_not_of_summaries():
    path = next((LOGS / VERSIONS[1]).glob("*lossy*"))
    table = vcomp.evals.read(path, metadata=["long"]).table
    assert table["long"].nunique() == 3
    assert table["long"].str.len().min() > 1100


# Values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), ("yes", 1.0), ("No", 0.0), ("TRUE", 1.0),
        ("false", 0.0), ("0.25", 0.25), (True, 1.0), (3, 3.0), (0.1, 0.1),
    ],
)  # fmt: skip
def test_words_and_numbers(tmp_path, value, score):
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", [sample(value=value)]))
    assert logs.table["score"].tolist() == [score]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("c", "not a number: 'c'"), ("good", "not a number: 'good'"), (None, "not scored"),
        (float("nan"), "not scored"), ({"a": [1]}, "not a number but a list"),
    ],
)  # fmt: skip
def test_other_values_are_named_and_not_zero(tmp_path, value, problem):
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", [sample(2), sample(value=value)]))
    assert logs.unscored["problem"].tolist() == [problem]
    assert len(logs.table) == 1


def test_dictionaries_are_metrics_and_lists_are_judges(tmp_path):
    values = [{"a": 1, "b": None}, [0.5, 1.0]]
    samples = [sample(k, value) for k, value in enumerate(values)]
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples))
    rows = logs.table[["metric", "judge", "score"]].astype(object).fillna("").to_numpy().tolist()
    assert rows == [["a", "", 1.0], ["s", "1", 0.5], ["s", "2", 1.0]]
    assert logs.unscored["metric"].tolist() == ["b"]


def test_samples_without_scores(tmp_path):
    samples = [
        sample(1),
        sample(2, error={"message": "boom\nat line 3"}) | {"scores": {}},
        sample(3) | {"scores": {}},
        sample(4, invalidation={"author": "me"}),
        sample(5, limit={"type": "token", "limit": 9}),
        sample(6, error={"message": "late"}),
    ]
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples))
    assert logs.table["item"].tolist() == ["1", "5", "6"]
    assert logs.unscored["problem"].tolist() == ["failed: boom", "not scored", "invalidated"]
    assert logs.report[["samples", "failed", "unscored"]].to_numpy().tolist() == [[6, 2, 3]]


def test_one_and_its_text_are_one_item(tmp_path):
    samples = [sample(1), sample("1", epoch=2, input="q1")]
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", samples))
    assert logs.table["item"].tolist() == ["1", "1"]


def test_edited_scores_and_those_of_old_logs(tmp_path):
    edited = {"s": {"value": "C", "history": [{"value": "I"}, {"value": "UNCHANGED"}]}}
    old = {"id": 2, "epoch": 1, "score": {"value": "I"}}
    path = archive(tmp_path / "a.eval", [sample(1) | {"scores": edited}, old])
    assert vcomp.evals.read(path).table["score"].tolist() == [1.0, 0.0]


# Archives --------------------------------------------------------------------------------------


def test_samples_may_be_folders(tmp_path):
    files = {
        "samples/x_epoch_2_epoch_1/sample.json": json.dumps(sample("x_epoch_2")),
        "samples/x_epoch_2_epoch_1/metadata.json": json.dumps({"passage": "p"}),
        "samples/x_epoch_2_epoch_1/skeleton.json": "{}",
        "samples/x_epoch_2_epoch_1/messages/0.json": "[]",
        "samples/a/b_epoch_1.json": json.dumps(sample("a/b", metadata={"passage": "q"})),
    }
    path = archive(tmp_path / "a.eval", [sample(1)], **files)
    table = vcomp.evals.read(path, metadata=["passage"]).table
    assert table["item"].tolist() == ["1", "x_epoch_2", "a/b"]
    assert table["passage"].tolist()[1:] == ["p", "q"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_of_one_name_the_last_counts(tmp_path):
    path = archive(tmp_path / "a.eval", [sample(1, "I"), sample(2)], start=True)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("samples/0_epoch_1.json", json.dumps(sample(1, "C")))
    logs = vcomp.evals.read(path)
    assert logs.table["score"].tolist() == [1.0, 1.0]
    assert logs.report["duplicates"].tolist() == [1]
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"PK\1\2")])  # without its directory
    logs = vcomp.evals.read(path, unreadable="skip")
    assert logs.table["score"].tolist() == [1.0, 1.0]
    assert logs.report[["duplicates", "unreadable"]].to_numpy().tolist() == [[1, 1]]


def test_an_unfinished_run_has_a_journal(tmp_path):
    header = {"version": 2, "eval": SPEC}
    logs = vcomp.evals.read(archive(tmp_path / "a.eval", [sample(1)], header, start=True))
    assert len(logs.table) == 1
    assert "its status is 'started'" in logs.notes[0]


def with_zstd(path, name, *frames):
    """Write an archive with one member packed by zstd, in several frames."""
    packed = b"".join(pa.compress(f, "zstd", asbytes=True) for f in frames)
    whole, encoded = b"".join(frames), name.encode()
    sizes = (zlib.crc32(whole), len(packed), len(whole))
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 63, 0x800, 93, 0, 0, *sizes, len(encoded), 0)
    entry = struct.pack(
        "<4s6H3L5H2L", b"PK\1\2", 63, 63, 0x800, 93, 0, 0, *sizes, len(encoded), 0, 0, 0, 0, 0, 0
    )
    start = len(local) + len(encoded) + len(packed)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry) + len(encoded), start, 0)
    path.write_bytes(local + encoded + packed + entry + encoded + end)


def test_members_of_several_frames(tmp_path):
    path = tmp_path / "a.zip"
    frames = [b"a" * 70_000, b"bc" * 40_000, b"end"]
    with_zstd(path, "samples/ü.json", *frames)
    found = members(path)
    with path.open("rb") as file:
        assert member_content(file, found["samples/ü.json"]) == b"".join(frames)


def test_json_logs(tmp_path):
    path = tmp_path / "log.json"
    samples = [sample(1), sample(2, float("nan")), 5]
    path.write_text(json.dumps({**HEADER, "samples": samples}, indent=2), "utf-8")
    with pytest.raises(vcomp.DataError, match=r"log.json', sample 3: a sample is not an object"):
        vcomp.evals.read(path)
    logs = vcomp.evals.read(path, unreadable="skip")
    assert logs.table["item"].tolist() == ["1"]
    assert logs.report[["unscored", "unreadable"]].to_numpy().tolist() == [[1, 1]]


@pytest.mark.parametrize("indent", [None, 1])
def test_of_json_logs_a_sample_at_a_time_is_in_memory(tmp_path, indent):
    path = tmp_path / "log.json"
    # Mostly text: objects would cost the test more time and show no more.
    events = [{"event": k, "data": {"a": [k], "b": {}, "text": "t" * 5_000}} for k in range(20)]
    samples = [sample(k, messages=[], events=events) for k in range(60)]
    path.write_text(json.dumps({**HEADER, "samples": samples}, indent=indent), "utf-8")
    vcomp.evals.read(path)
    tracemalloc.start()
    try:
        logs = vcomp.evals.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(logs.table) == 60
    assert peak < 0.75 * path.stat().st_size


def test_a_log_without_samples_is_named(tmp_path):
    with pytest.raises(vcomp.DataError, match="The log has no samples"):
        vcomp.evals.read(archive(tmp_path / "a.eval", []))


def test_items_of_several_models_match_by_id(tmp_path):
    for model in "ab":
        spec = {**SPEC, "model": model, "task_id": model}
        # ids of messages are drawn anew in each run
        asked = [{"id": model, "role": "user", "content": "what?"}]
        samples = [sample(k, input=asked) for k in range(3)]
        archive(tmp_path / f"{model}.eval", samples, {**HEADER, "eval": spec})
    table = vcomp.evals.read(tmp_path).table
    assert table["item"].cat.categories.tolist() == ["0", "1", "2"]


def test_samples_without_input_are_other_items_in_another_task(tmp_path):
    for task in "ab":
        spec = {**SPEC, "task": task, "task_id": task}
        samples = [sample(k, input=None) for k in range(2)]
        archive(tmp_path / f"{task}.eval", samples, {**HEADER, "eval": spec})
    logs = vcomp.evals.read(tmp_path)
    assert logs.table["item"].tolist() == ["a/0", "a/1", "b/0", "b/1"]
    assert not any("content" in note or "same items" in note for note in logs.notes)


# Damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"id": 1', "half-written"),
        ('{"epoch": 1}', "there is no id"),
        ('{"id": 1, "epoch": "two"}', "the epoch is 'two'"),
        ('{"id": 1, "scores": [1]}', "scores is not an object"),
    ],
)
def test_unreadable_samples(tmp_path, bad, why):
    path = archive(tmp_path / "a.eval", [sample(1), bad])
    with pytest.raises(vcomp.DataError, match=f"samples/1_epoch_1.json: .*{why}"):
        vcomp.evals.read(path)
    logs = vcomp.evals.read(path, unreadable="skip")
    assert logs.report[["scores", "unreadable"]].to_numpy().tolist() == [[1, 1]]


def test_changed_bytes_of_a_member_are_found(tmp_path):
    path = archive(tmp_path / "a.eval", [sample(1), sample(2)])
    member = members(path)["samples/1_epoch_1.json"]
    start = member.start + 30 + len(member.name)
    content = bytearray(path.read_bytes())
    content[start + 5] ^= 255
    path.write_bytes(content)
    with pytest.raises(vcomp.DataError, match=r"samples/1_epoch_1.json: (it cannot|its bytes)"):
        vcomp.evals.read(path)
    assert len(vcomp.evals.read(path, unreadable="skip").table) == 1


def test_an_archive_that_is_cut_short(tmp_path):
    whole = next((LOGS / VERSIONS[1]).glob("*lossy*")).read_bytes()
    path = tmp_path / "a.eval"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(vcomp.DataError, match="half-written or cut short"):
        vcomp.evals.read(path)
    logs = vcomp.evals.read(path, unreadable="skip")
    all_of_it = vcomp.evals.read(next((LOGS / VERSIONS[1]).glob("*lossy*"))).table
    assert 0 < len(logs.table) < len(all_of_it)
    read = [(row.item, row.metric, row.score) for row in logs.table.itertuples()]
    assert set(read) < {(row.item, row.metric, row.score) for row in all_of_it.itertuples()}
    assert logs.report["unreadable"].tolist() == [1]


def test_an_archive_with_another_content(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(vcomp.DataError, match="no known format"):
        vcomp.evals.read(path)


def test_sizes_are_bounded(tmp_path):
    """A member that unpacks to more than it says is refused before it fills the memory."""
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = bomb.compress(b" " * 50_000_000) + bomb.flush()
    member = Member("x", 0, 8, 0, len(packed), 100, 0)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 0, 0, len(packed), 100, 1, 0)
    with pytest.raises(UnreadableError, match="not those that were written"):
        member_content(io.BytesIO(local + b"x" + packed), member)
    member = member._replace(size=1 << 40)
    with pytest.raises(UnreadableError, match="larger than 1 GiB"):
        member_content(io.BytesIO(local + b"x" + packed), member)
