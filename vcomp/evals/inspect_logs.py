"""Logs of Inspect: archives (.eval) and JSON, finished or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vcomp.evals.log_files import (
    Damage,
    LogFile,
    UnreadableError,
    archive_members,
    mapping,
    member_content,
    members_before_damage,
    parsed,
)
from vcomp.evals.run_rows import (
    COLUMNS,
    NOT_SCORED,
    Run,
    SampleRows,
    Wanted,
    content_hash,
    first_line,
    number_or_problem,
)

NAME = "inspect"

_START, _HEADER = "_journal/start.json", "header.json"

_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "no": 0.0}
"""Scores that are words: correct, partially correct, incorrect, no answer."""

_IN_FOLDER = re.compile(r"(samples/.+_epoch_\d+)/(.+)")
"""A file of a sample that is a folder."""

_FAILED = "failed: "


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is a log, by its header or its first member."""
    if file.is_zip:
        if _START.encode() in file.head or _HEADER.encode() in file.head:
            return True
        try:
            return any(m.filename in (_START, _HEADER) for m in archive_members(file.path))
        except UnreadableError:
            return False
    spec = file.first.get("eval")
    return isinstance(spec, dict) and {"model", "task"} <= spec.keys()


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a log."""
    if file.is_zip:
        yield _read_archive(file, damage, wanted)
        return
    header = file.first
    log = _Log(header, wanted)
    samples = header.get("samples") or []
    for k, sample in enumerate(samples, 1):
        with damage.at(f"sample {k}"):
            log.add(mapping(sample, "a sample"))
    yield log.run(file.name, damage, 0)


def _read_archive(file: LogFile, damage: Damage, wanted: Wanted) -> Run:
    try:
        members = archive_members(file.path)
    except UnreadableError as error:
        damage.add("the archive", str(error))
        members = members_before_damage(file.path)
    found = {info.filename: info for info in members}
    with file.path.open("rb") as stored:
        start = found.get(_HEADER) or found.get(_START)
        if start is None:
            raise UnreadableError(f"there is neither {_HEADER} nor {_START}")
        header = parsed(member_content(stored, start))
        log = _Log(header, wanted)
        for name, info in found.items():
            folder = _IN_FOLDER.fullmatch(name)
            is_sample = name.startswith("samples/") and name.endswith(".json")
            if not is_sample or (folder is not None and folder[2] != "sample.json"):
                continue
            with damage.at(name):
                sample = parsed(member_content(stored, info))
                more = found.get(f"{folder[1]}/metadata.json") if folder else None
                if more is not None:
                    sample["metadata"] = parsed(member_content(stored, more))
                log.add(sample)
    return log.run(file.name, damage, len(members) - len(found))


class _Log:
    """Rows of the samples of a log."""

    NAMES = ("item", "epoch", "content", "metric", "scorer", "judge", "score", "problem")

    def __init__(self, header: Mapping[str, Any], wanted: Wanted) -> None:
        self._header = header
        self._spec = spec = mapping(header.get("eval"), "eval in the header")
        self._metadata = wanted.metadata
        arguments = spec.get("task_args") or {}
        constant = {
            **{k: v for k, v in arguments.items() if k not in (*COLUMNS, "score", "run")},
            "model": spec.get("model"),
            "task": spec.get("task"),
            "prompt": arguments.get("prompt"),
            "solver": spec.get("solver"),
            "run": self._identity(),
        }
        self.rows = SampleRows((*self.NAMES, *self._metadata), constant)
        self._judges = _judges(spec)
        self._n, self._failed = 0, 0

    def _identity(self) -> str:
        """Return the id that a run shares with its retries."""
        names = ("task_id", "eval_id", "run_id")
        return next((str(self._spec[name]) for name in names if self._spec.get(name)), "")

    def add(self, sample: dict[str, Any]) -> None:
        """Add the scores of a sample, or the reason why it has none."""
        if "id" not in sample:
            raise UnreadableError("there is no id")
        epoch = sample.get("epoch", 1)
        if not isinstance(epoch, int):
            raise UnreadableError(f"the epoch is {epoch!r}")
        scores = sample.get("scores")
        if scores is None and sample.get("score") is not None:  # of very old versions
            scores = {"score": sample["score"]}
        scores = mapping(scores or {}, "scores")
        own = sample.get("metadata") or {}
        more = tuple(own.get(name) for name in self._metadata)
        first = (sample["id"], epoch, _content(sample))
        self._n += 1
        error, invalid = sample.get("error"), sample.get("invalidation")
        self._failed += bool(error)
        if error and not scores:
            message = error.get("message", "") if isinstance(error, dict) else error
            self.rows.add(*first, None, None, None, None, _FAILED + first_line(message), *more)
            return
        if invalid or not scores:
            why = "invalidated" if invalid else NOT_SCORED
            self.rows.add(*first, None, None, None, None, why, *more)
            return
        for scorer, score in scores.items():
            value = score.get("value") if isinstance(score, dict) else score
            for metric, judge, one in _leaves(scorer, value, self._judges.get(scorer)):
                self.rows.add(*first, metric, scorer, judge, *_as_number(one), *more)

    def run(self, file: str, damage: Damage, replaced: int) -> Run:
        """Return the run with all samples."""
        notes = []
        status = self._header.get("status", "started")
        if status != "success":
            notes.append(f"The run did not end: its status is {status!r}.")
        if not self._n and not damage.named:
            notes.append("The log has no samples: it was written without them.")
        return Run(
            file,
            NAME,
            self.rows.frame(),
            identity=self._identity() or file,
            order=str(self._spec.get("created", "")),
            samples=self._n,
            failed=self._failed,
            duplicates=replaced,
            unreadable=damage.named,
            notes=notes,
        )


def _leaves(scorer: str, value: Any, judge: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield metric, judge and value: of a dict a metric a key, of a list a judge a place."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key, judge, one
    elif isinstance(value, list):
        for k, one in enumerate(value, 1):
            yield scorer, k, one
    else:
        yield scorer, judge, value


def _as_number(value: Any) -> tuple[float, str | None]:
    """Return a score as Inspect's metrics have it, or nan and the reason."""
    if isinstance(value, str):
        word = value if value in _WORDS else value.lower()
        if word in _WORDS and (word == value or len(word) > 1):
            return _WORDS[word], None
    return number_or_problem(value)


def _judges(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model that grades, by scorer, where the log names it."""
    roles = spec.get("model_roles") or {}
    found = {}
    for scorer in spec.get("scorers") or []:
        options = scorer.get("options") or {}
        name = str(scorer.get("name", "")).rpartition("/")[2]
        model = options.get("model")
        if model is None and "model_graded" in name:
            role = roles.get(options.get("model_role") or "grader") or {}
            model = role.get("model") if isinstance(role, dict) else role
            model = model or spec.get("model")
        if model is not None:
            found[name] = model
    return found


def _content(sample: Mapping[str, Any]) -> int:
    """Return the hash of the question and its answer, without the ids of messages."""
    asked = sample.get("input")
    if isinstance(asked, list):
        asked = [[m.get("role"), m.get("content")] for m in asked if isinstance(m, dict)]
    if asked is None:
        return 0
    return content_hash(asked, sample.get("choices"), sample.get("target"))
