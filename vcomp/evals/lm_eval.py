"""Logs of lm-evaluation-harness: a line of samples_*.jsonl for each document and filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, IntArray
from vcomp.evals.json_records import (
    UnreadableError,
    columns_of_lines,
    document_or_none,
    kind_of,
    parsed,
)
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import NO_ROWS, Run, SampleRows, Wanted
from vcomp.exceptions import is_real

if TYPE_CHECKING:
    import pandas as pd

NAME = "lm_eval"

_SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl")
_DATE = re.compile(r"_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.json")

_CLOSE = 1e-6
"""Differences of means, as a share, that rounding explains."""

_FIELDS = {
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash",
}  # fmt: skip
"""Keys of a line that are not metrics."""

_OF_CORPUS = {
    "f1", "mcc", "bleu", "chrf", "ter",
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte",
}  # fmt: skip
"""Metrics whose values of documents are pairs, from which one value of the corpus is made."""


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether these are samples, or the results of a run."""
    first = file.first
    return {"doc_id", "doc", "resps"} <= first.keys() or (
        "results" in first and {"configs", "versions"} <= first.keys()
    )


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a file of samples; of results only what they lack."""
    if "results" in file.first:
        yield _without_samples(file)
    else:
        yield _read_samples(file, damage, wanted.metadata)


def _read_samples(file: LogFile, damage: Damage, metadata: tuple[str, ...]) -> Run:
    named = _SAMPLES.fullmatch(file.path.name)
    task, date = (named["task"], named["date"]) if named else (file.path.stem, "")
    results = _results_of(file.path, date)
    model = results.get("model_name") or _model_of(results)
    notes = []
    if model is None:
        model = file.path.absolute().parent.name
        notes.append(
            "There are no results_*.json of a run beside its samples: the model is named by the "
            "folder."
        )
    config = _dict(results.get("config"))
    constant = {
        "model": model,
        "task": task,
        "run": date or file.path.name,
        "group": _group_of(task, results),
        "n_shot": _dict(results.get("n-shot")).get(task),
        "seed": config.get("random_seed"),
        "model_args": config.get("model_args"),
    }
    rows_of = SampleRows(("item", "filter", "content", *metadata), ("metric", "epoch"), constant)
    samples = _SampleLines(rows_of, metadata)
    file.objects(damage, samples.add, samples.parsed_together)
    rows, n = samples.rows.frame(), len(samples.seen)
    counted = _dict(_dict(results.get("n-samples")).get(task)).get("effective")
    counted = counted if isinstance(counted, int) else 0
    missing = max(counted - n, 0)
    if missing:
        notes.append(
            f"The results count {display.counted(counted, 'sample')} of {task}, and the log of "
            f"{model} has {display.count(n)}."
        )
    else:
        notes += _other_means(rows, _dict(_dict(results.get("results")).get(task)))
    return Run(
        file.name,
        NAME,
        rows,
        identity=f"{model} {task} {date}" if date else file.name,
        order=date,
        samples=n,
        missing=missing,
        unreadable=damage.named,
        notes=[*notes, *samples.notes()],
    )


class _SampleLines:
    """Rows of the lines, and what was refused in them."""

    def __init__(self, rows: SampleRows, metadata: tuple[str, ...]) -> None:
        self.rows, self._metadata = rows, metadata
        self.seen: set[Any] = set()
        self._refused: dict[str, int] = {}
        self._repeats = 0

    def add(self, line: dict[str, Any]) -> None:
        """Add the scores of a line: one a metric, and repetition if these are scored."""
        if "doc_id" not in line:
            raise UnreadableError("there is no doc_id")
        item = line["doc_id"]
        names = line.get("metrics") or [name for name in line if name not in _FIELDS]
        try:
            values = [line[name] for name in names]
        except KeyError as error:
            raise UnreadableError(f"there is no value of the metric {error}") from None
        self.seen.add(item if isinstance(item, int | str) else repr(item))
        more: tuple[Any, ...] = ()
        if self._metadata:
            more = tuple(map(_dict(line.get("doc")).get, self._metadata))
        sample = (item, line.get("filter"), _hash(line.get("doc_hash")), *more)
        scores: list[Any] = []
        labels: list[tuple[str, int | None]] = []
        n = _repeats(line.get("resps"))
        scored_repeats = False
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, list | tuple | dict):
                scores.append(value)
                labels.append((name, None))
            elif name in _OF_CORPUS or n < 2 or not _are_repeats(value, n):
                self._refused[name] = self._refused.get(name, 0) + 1
            else:
                scored_repeats = True
                scores += value
                labels += [(name, epoch) for epoch in range(1, n + 1)]
        if scores:
            self.rows.add(sample, scores, tuple(labels))
        if n > 1 and not scored_repeats:
            self._repeats = max(self._repeats, n)

    def parsed_together(self, text: bytes) -> Callable[[], int] | None:
        """Return what adds lines whose values have the types of the first; None if one may differ.

        Logs of older versions have no list of metrics: these are the keys that remain.
        """
        import pyarrow as pa

        first = document_or_none(text[: text.find(b"\n") + 1])
        if not isinstance(first, dict):
            return None
        listed = first.get("metrics")
        names = [name for name in first if name not in _FIELDS] if listed is None else listed
        if not names or not isinstance(names, list) or not _FIELDS.isdisjoint(names):
            return None
        kinds = self._kinds(first, names)
        columns = kinds and columns_of_lines(text, kinds, others=listed is None)
        if not columns or not _have_names(columns, names, listed is None):
            return None
        items, repeats = columns["doc_id"], _repeats_of(columns["resps"])
        found = None if repeats is None else _scores_of(columns, names, repeats)
        is_named = items.type in (pa.int64(), pa.string()) and not items.null_count
        if found is None or repeats is None or not is_named:
            return None
        odd = [columns[name].is_null().to_numpy(zero_copy_only=False) for name in names]
        if not _have_keys(text, names, np.logical_or.reduce(odd)):
            return None
        own = [items, columns["filter"], _hashes(columns["doc_hash"])]
        if self._metadata:
            own += columns["doc"].flatten()
        return partial(self._add, own, found, int(repeats.max()))

    def _add(self, own: list[Any], found: _Scores, repeats: int) -> int:
        """Add parsed lines: their columns, their scores, and the most responses."""
        if found.labels:
            self.rows.add_together(own, np.column_stack(found.values), tuple(found.labels))
        self.seen.update(own[0].to_pylist())
        for name in found.refused:
            self._refused[name] = self._refused.get(name, 0) + len(own[0])
        if repeats > 1 and all(epoch is None for _, epoch in found.labels):
            self._repeats = max(self._repeats, repeats)
        return len(own[0])

    def _kinds(self, first: dict[str, Any], names: list[str]) -> dict[str, Any] | None:
        """Return Arrow's types of the keys that are read; None of metadata with parts."""
        import pyarrow as pa

        text, doc = pa.string(), _dict(first.get("doc"))
        kinds = {"filter": text, "doc_hash": text, "metrics": pa.list_(text)}
        if self._metadata:
            fields = {name: kind_of(doc.get(name)) for name in self._metadata}
            if any(map(pa.types.is_nested, fields.values())):
                return None
            kinds["doc"] = pa.struct(list(fields.items()))
        kinds |= {name: kind_of(first.get(name)) for name in ("doc_id", "resps", *names)}
        number = pa.float64()
        wider = {pa.int64(): number, pa.null(): number, pa.list_(pa.int64()): pa.list_(number)}
        return kinds | {name: wider.get(kinds[name], kinds[name]) for name in names}

    def notes(self) -> Iterator[str]:
        """Yield sentences on what was not read."""
        for name, n in self._refused.items():
            yield (
                f"{name!r} is not a score of a document but a part of a value of the whole corpus "
                f"({display.counted(n, 'document')}): it is not read."
            )
        if self._repeats:
            yield (
                f"Documents have {self._repeats} responses and one score: the responses are not "
                "scored one by one, so that there are no epochs."
            )


def _have_names(columns: Mapping[str, Any], names: list[str], are_keys: bool) -> bool:
    """Return whether all lines have the metrics of these names, in their list or as keys."""
    from pyarrow import compute as pc

    lists = columns["metrics"]
    if are_keys:
        return lists.null_count == len(lists) and columns.keys() <= {*_FIELDS, *names}
    if lists.null_count or (np.diff(lists.offsets) != len(names)).any():
        return False
    return all(
        pc.all(pc.equal(pc.list_element(lists, k), name)).as_py() for k, name in enumerate(names)
    )


def _have_keys(text: bytes, names: list[str], at: BoolArray) -> bool:
    """Return whether some lines have a value of each metric, if only null."""
    if not at.any():
        return True
    lines = text.split(b"\n")
    return all(parsed(lines[k]).keys() >= set(names) for k in np.flatnonzero(at))


class _Scores(NamedTuple):
    """Labels and columns of scores, and metrics without scores."""

    labels: list[tuple[str, int | None]]
    values: list[Any]
    refused: list[str]


def _scores_of(columns: Mapping[str, Any], names: list[str], repeats: IntArray) -> _Scores | None:
    """Return the scores, nan for null; None if lines differ."""
    import pyarrow as pa

    found, n = _Scores([], [], []), int(repeats[0])
    for name in names:
        values = columns[name]
        is_list = pa.types.is_list(values.type)
        if is_list and (values.null_count or (repeats != n).any()):
            return None
        if is_list and n > 1 and name not in _OF_CORPUS:
            if (np.diff(values.offsets) != n).any():
                return None
            values = values.flatten()
            found.labels.extend((name, epoch) for epoch in range(1, n + 1))
        elif is_list or pa.types.is_struct(values.type):
            if values.null_count:
                return None
            found.refused.append(name)
            continue
        else:
            found.labels.append((name, None))
        if not (pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
            return None
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if np.isinf(numbers).any():  # or a whole number that is too large
            return None
        found.values.append(numbers.reshape(len(repeats), -1))
    return found


def _repeats_of(responses: Any) -> IntArray | None:
    """Return :func:`_repeats` of each element of an array; None if they are of another type."""
    import pyarrow as pa
    from pyarrow import compute as pc

    kind = responses.type
    if not (pa.types.is_list(kind) and pa.types.is_list(kind.value_type)):
        return None
    if responses.null_count or (np.diff(responses.offsets) < 1).any():
        return None
    first, one = pc.list_element(responses, 0), kind.value_type.value_type
    if first.null_count or not (pa.types.is_string(one) or pa.types.is_list(one)):
        return None
    n = first.value_lengths().to_numpy().astype(np.int64)
    if pa.types.is_string(one):
        two = n == 2
        second = pc.list_element(first.filter(pa.array(two)), 1)
        n[two] -= pc.is_in(second, pa.array(["True", "False"])).to_numpy(zero_copy_only=False)
    return n


def _other_means(rows: pd.DataFrame, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on means of complete samples that the results of the run contradict."""
    if not {"metric", "filter", "score"} <= set(rows) or rows["score"].isna().any():
        return
    by = rows.groupby(["metric", "filter"], observed=True)["score"]
    for (metric, how), scores in by:
        value, mean = results.get(f"{metric},{how}"), float(scores.mean())
        if is_real(value) and abs(value - mean) > _CLOSE * max(1.0, abs(mean)):
            yield (
                f"The results have {metric} = {display.number(value)}, and the mean of the "
                f"samples is {display.number(mean)}."
            )


def _repeats(responses: Any) -> int:
    """Return the number of repeated responses to the first request."""
    if isinstance(responses, list) and responses and isinstance(responses[0], list):
        first = responses[0]
        # Log-likelihoods are pairs, as text: ["-2.30", "False"].
        is_pair = len(first) == 2 and first[1] in ("True", "False", True, False)
        return 1 if is_pair else len(first)
    return 1


def _are_repeats(value: Any, n: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == n
        and all(v is None or isinstance(v, int | float) for v in value)
    )


def _hashes(texts: Any) -> list[int] | IntArray:
    """Return :func:`_hash` of each element of an array."""
    from pyarrow import compute as pc

    with suppress(ValueError, TypeError):  # of a text that is no hash, or none
        first = "".join(pc.utf8_slice_codeunits(texts, 0, 16).to_pylist())
        numbers = np.frombuffer(bytes.fromhex(first), ">u8")
        if len(numbers) == len(texts) and len(first) == 16 * len(texts):
            return numbers.astype(np.uint64)
    return [_hash(text) for text in texts.to_pylist()]


def _hash(text: Any) -> int:
    """Return the hash of a document as a number; 0 if it has no hash."""
    try:
        return int(str(text)[:16], 16)
    except ValueError:
        return 0


# Results ---------------------------------------------------------------------------------------


def _results_of(samples: Path, date: str) -> dict[str, Any]:
    """Return the results of the run that wrote the samples; empty without them."""
    beside = sorted(samples.parent.glob("*.json"))
    if date:
        beside = [path for path in beside if path.name.endswith(f"_{date}.json")]
    found = [
        first
        for path in beside
        if isinstance((first := LogFile(path, path.name).first).get("results"), dict)
    ]
    return found[0] if len(found) == 1 else {}


def _model_of(results: Mapping[str, Any]) -> Any:
    """Return the model of results without its name, as older versions write them."""
    config = _dict(results.get("config"))
    given = str(config.get("model_args") or "")
    named = re.search(r"(?:^|,)(?:pretrained|model|engine)=([^,]+)", given)
    return named[1] if named else config.get("model")


def _group_of(task: str, results: Mapping[str, Any]) -> Any:
    groups = _dict(results.get("group_subtasks"))
    found = [name for name, tasks in groups.items() if name != task and task in (tasks or ())]
    return found[0] if len(found) == 1 else None


def _without_samples(file: LogFile) -> Run:
    """Return no rows, and the names of the tasks whose samples are missing."""
    results, date = file.first, _DATE.search(file.path.name)
    groups = _dict(results.get("group_subtasks"))
    tasks = [name for name in _dict(results["results"]) if not groups.get(name)]
    written = f"_{date['date']}.jsonl" if date else ".jsonl"
    missing = [
        t for t in tasks if not any(file.path.parent.glob(f"samples_{_escaped(t)}*{written}"))
    ]
    notes = []
    if missing:
        notes.append(
            f"There are no samples of {display.listed(missing)}; lm_eval writes them if it is "
            "called with --log_samples."
        )
    return Run(file.name, NAME, NO_ROWS.frame(), notes=notes)


def _escaped(task: str) -> str:
    from glob import escape

    return escape(task)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
