"""Logs of Inspect: archives (.eval) and JSON, finished or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count, groupby, islice, starmap
from typing import Any, BinaryIO

import numpy as np

from vcomp.evals.archives import (
    Members,
    archive_members,
    member_content,
    member_pieces,
    members_before_damage,
)
from vcomp.evals.inspect_summaries import (
    Summaries,
    is_whole,
    number_of,
    parsed_together,
    shortened,
)
from vcomp.evals.json_records import (
    UNREADABLE,
    UnreadableError,
    document_or_none,
    in_parts,
    mapping,
    parsed,
    records,
)
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import (
    COLUMNS,
    NOT_SCORED,
    Run,
    SampleRows,
    Unscored,
    Wanted,
    as_text,
    content_hash,
    first_line,
    within,
)
from vcomp.numerics import ahead

NAME = "inspect"

_START, _HEADER, _SUMMARIES = "_journal/start.json", "header.json", "summaries.json"

_WITH_CHOICES = (0, 3, 156)
"""The first version whose summaries have choices; it marks logs with invalidated samples."""

_TOGETHER = 1 << 12
"""Summaries that are parsed at once."""

_IN_FOLDER = re.compile(r"(samples/.+_epoch_\d+)/(.+)")
"""A file of a sample that is a folder."""

_FAILED = "failed: "

_NO_LABEL = ((None, None, None),)
"""Metric, scorer and judge of a sample without scores."""


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is a log, by its header or its first member."""
    if file.is_zip:
        if _START.encode() in file.head or _HEADER.encode() in file.head:
            return True
        try:
            names = archive_members(file.path).places
            return _START in names or _HEADER in names
        except UnreadableError:
            return False
    spec = file.first.get("eval")
    return isinstance(spec, dict) and {"model", "task"} <= spec.keys()


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a log."""
    if file.is_zip:
        yield _read_archive(file, damage, wanted)
        return
    log = _Log(file.first, wanted)
    for k, sample in enumerate(file.records(), 1):
        with damage.at(f"sample {k}"):
            log.add(mapping(sample, "a sample"))
    yield log.run(file.name, damage, 0)


def _read_archive(file: LogFile, damage: Damage, wanted: Wanted) -> Run:
    try:
        members = archive_members(file.path)
    except UnreadableError as error:
        damage.add("the archive", str(error))
        members = members_before_damage(file.path)
    with file.path.open("rb") as stored:
        start = members.get(_HEADER) or members.get(_START)
        if start is None:
            raise UnreadableError(f"there is neither {_HEADER} nor {_START}")
        header = parsed(member_content(stored, start))
        names = members.places
        samples = [n for n in names if n.startswith("samples/") and n.endswith(".json")]
        log = _of_summaries(stored, members, samples, header, wanted)
        if log is None:
            log = _of_samples(stored, members, samples, header, wanted, damage)
    return log.run(file.name, damage, members.n - len(names))


def _of_samples(
    stored: BinaryIO,
    found: Members,
    samples: Iterable[str],
    header: Mapping[str, Any],
    wanted: Wanted,
    damage: Damage,
) -> _Log:
    log = _Log(header, wanted)
    for name in samples:
        folder = _IN_FOLDER.fullmatch(name)
        if folder is not None and folder[2] != "sample.json":
            continue
        with damage.at(name):
            sample = parsed(member_content(stored, found.entry(found.places[name])))
            more = found.get(f"{folder[1]}/metadata.json") if folder else None
            if more is not None:
                sample["metadata"] = parsed(member_content(stored, more))
            log.add(sample)
    return log


def _of_summaries(
    stored: BinaryIO,
    found: Members,
    samples: list[str],
    header: Mapping[str, Any],
    wanted: Wanted,
) -> _Log | None:
    """Return what the samples say, from their summaries; None if these may say something else."""
    member = found.get(_SUMMARIES)
    if member is None or wanted.metadata or not _summarises(header):
        return None
    log = _Log(header, wanted)

    def add(summary: dict[str, Any]) -> None:
        name = samples[log.n]
        if name != f"samples/{summary['id']}_epoch_{summary['epoch']}.json":
            raise UnreadableError("its summary is that of another sample")
        if not is_whole(summary):
            summary = parsed(member_content(stored, found.entry(found.places[name])))
        elif "error" in summary:
            summary["error"] = {"message": summary["error"]}
        log.add(summary)

    # The thread has read all bytes of the member before the first part is here.
    texts = records(member_pieces(stored, member), [()], shortened)
    some = iter(lambda: list(islice(texts, _TOGETHER)), [])
    try:
        for part in chain.from_iterable(ahead(map(_parts, some))):
            if isinstance(part, list):
                for one in part:
                    add(_one(one))
            elif part.names == samples[log.n : log.n + len(part.names)]:
                log.add_together(part, lambda one: add(_one(one)))
            else:
                return None
    except (*UNREADABLE, IndexError):  # of a sample more than there are
        return None
    return log if log.n == len(samples) else None


def _parts(some: list[Any]) -> list[Any]:
    """Return summaries that are parsed together, and lists of others."""
    parts: list[Any] = []
    for are_texts, own in groupby(some, lambda one: isinstance(one, tuple)):
        texts = [*own]
        parts += in_parts(texts, parsed_together) if are_texts else [texts]
    return parts


def _one(found: Any) -> Any:
    """Return a summary that may be its shortened text and its text."""
    if not isinstance(found, tuple):
        return found
    value = document_or_none(found[0])
    return value if isinstance(value, dict) else parsed(found[1])


def _summarises(header: Mapping[str, Any]) -> bool:
    """Return whether the version that wrote a log gives summaries all that is read."""
    version = str(within(header, "eval", "packages", "inspect_ai") or "")
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    is_new = numbers is not None and tuple(map(int, numbers.groups())) >= _WITH_CHOICES
    return is_new and not header.get("invalidated")


class _Log:
    """Rows of the samples of a log."""

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
        of_samples = ("item", "epoch", "content", *self._metadata)
        self.rows = SampleRows(of_samples, ("metric", "scorer", "judge"), constant)
        self._judges = _judges(spec)
        self.n, self._failed = 0, 0

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
        more: tuple[Any, ...] = ()
        if self._metadata:
            more = tuple(map((sample.get("metadata") or {}).get, self._metadata))
        own = (sample["id"], epoch, _content(sample), *more)
        self.n += 1
        error, invalid = sample.get("error"), sample.get("invalidation")
        self._failed += bool(error)
        if invalid or not scores:
            why = "invalidated" if invalid else NOT_SCORED
            if error and not scores:
                message = error.get("message", "") if isinstance(error, dict) else error
                why = _FAILED + first_line(message)
            self.rows.add(own, [Unscored(why)], _NO_LABEL)
            return
        labels: list[tuple[str, str, Any]] = []
        values: list[Any] = []
        for scorer, score in scores.items():
            value = score.get("value") if isinstance(score, dict) else score
            parts: dict[Any, Any] = {None: value}
            if isinstance(value, dict):
                parts = value
            elif isinstance(value, list):
                parts = dict(enumerate(value, 1))
            labels += [self._label(scorer, key) for key in parts]
            values += map(number_of, parts.values())
        if values:
            self.rows.add(own, values, tuple(labels))

    def _label(self, scorer: str, key: str | int | None) -> tuple[str, str, Any]:
        """Return metric, scorer and judge of a score, by its key or place in a value."""
        metric, judge = self._judges.get(scorer, (scorer, None))
        if isinstance(key, int):
            return scorer, scorer, key
        return metric if key is None else key, scorer, judge

    def add_together(self, some: Summaries, odd: Callable[[Any], None]) -> None:
        """Add summaries; those that are odd by a function of their texts."""
        labels = tuple(starmap(self._label, some.labels))
        start, n = 0, len(some.texts)
        for k in [*np.flatnonzero(some.is_odd).tolist(), n]:
            if start < k:
                own = [values[start:k] for values in (some.items, some.epochs, some.contents)]
                self.rows.add_together(own, some.scores[start:k], labels)
                self.n += k - start
            if k < n:
                odd(some.texts[k])
            start = k + 1

    def run(self, file: str, damage: Damage, replaced: int) -> Run:
        """Return the run with all samples."""
        notes = []
        status = self._header.get("status", "started")
        if status != "success":
            notes.append(f"The run did not end: its status is {status!r}.")
        if not self.n and not damage.named:
            notes.append("The log has no samples: it was written without them.")
        return Run(
            file,
            NAME,
            self.rows.frame(),
            identity=self._identity() or file,
            order=str(self._spec.get("created", "")),
            samples=self.n,
            failed=self._failed,
            duplicates=replaced,
            unreadable=damage.named,
            notes=notes,
        )


def _judges(spec: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the metric and the model that grades, by scorer, where the log names the model.

    A scorer that is used several times has a number behind its name from the second time on.
    If each time another model grades, all are one metric by several judges.
    """
    roles = spec.get("model_roles") or {}
    models: dict[str, dict[str, Any]] = {}
    used: set[str] = set()
    for scorer in spec.get("scorers") or []:
        options = scorer.get("options") or {}
        name = str(scorer.get("name", "")).rpartition("/")[2]
        model = options.get("model")
        if model is None and "model_graded" in name:
            role = roles.get(options.get("model_role") or "grader") or {}
            model = role.get("model") if isinstance(role, dict) else role
            model = model or spec.get("model")
        unique = next(x for x in chain([name], (f"{name}{k}" for k in count(1))) if x not in used)
        used.add(unique)
        models.setdefault(name, {})[unique] = None if model is None else as_text(model)
    found: dict[str, tuple[str, str]] = {}
    for name, of_uses in models.items():
        by_judges = len({*of_uses.values()} - {None}) == len(of_uses)
        known = {unique: model for unique, model in of_uses.items() if model is not None}
        found |= {unique: (name if by_judges else unique, known[unique]) for unique in known}
    return found


def _content(sample: Mapping[str, Any]) -> int:
    """Return the hash of the question and its answer, without the ids of messages."""
    asked = sample.get("input")
    if isinstance(asked, list):
        asked = [[m.get("role"), m.get("content")] for m in asked if isinstance(m, dict)]
    if asked is None:
        return 0
    return content_hash(asked, sample.get("choices"), sample.get("target"))
