"""Summaries of samples in archives of Inspect, which have no events and messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.evals.json_records import columns_of_lines, document_or_none, kind_of
from vcomp.evals.run_rows import content_hashes, number_or_problem

_LONG = 1 << 14
"""Characters of a summary in which its end is looked for."""

_SHORTENED = "(content truncated)"
"""End of a text that a summary shortens."""

_NEXT = re.compile(r'\},\{"id":(?:-?\d+|"(?:[^"\\]|\\.)*"),"epoch":')
"""Between two summaries; messages have an id and no epoch."""

_OTHER = re.compile(r"\([A-Z][a-z_]*\)$")
"""Content of a message that is no text: its kind instead of it."""

_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "no": 0.0}
"""Scores that are words: correct, partially correct, incorrect, no answer."""

_OF_SAMPLES = {"error", "invalidation", "score", "metadata"}
"""Keys that are read of a sample alone."""


def shortened(text: str, start: int) -> tuple[list[tuple[str, str]], int]:
    """Return summaries without metadata and what follows their scores, and whole.

    Text has its quotes escaped, so that these are keys; deeper ones leave text that is no JSON.

    Parameters
    ----------
    text : of summaries
    start : where one of them begins

    Returns
    -------
    found : those from there on, each shortened and whole
    end : where one begins that does not end in the text, or has keys in another order
    """
    found, find = list[tuple[str, str]](), text.find
    while True:
        cut = find(',"model_usage":{', start, start + _LONG)
        end = _end(text, cut)
        scores = text.rfind(',"scores":', start, cut)
        if end < 0 or scores < 0 or find('"error":', cut, end) >= 0:
            return found, start
        if find('"started_at":"', cut, end) < 0:
            return found, start
        more = text.rfind(',"metadata":', start, scores)
        own = text[start:cut] if more < 0 else text[start:more] + text[scores:cut]
        found.append((own + ',"started_at":""}', text[start : end + 1]))
        start = end + 2


def _end(text: str, cut: int) -> int:
    """Return where a summary ends whose usage of models begins at a place; -1 if unknown."""
    end = text.find('},{"id":', cut, cut + _LONG) if cut >= 0 else -1
    while end >= 0 and not _NEXT.match(text, end):
        end = text.find('},{"id":', end + 1, cut + _LONG)
    return end


def is_whole(summary: Mapping[str, Any]) -> bool:
    """Return whether input and target of a sample are not shortened in its summary.

    An earlier version, from which a retry copies samples, gave no time of the start.
    """
    if "started_at" not in summary:
        return False
    asked, target = summary["input"], summary["target"]
    texts = _texts(asked)
    if isinstance(asked, list) and any(text and _OTHER.match(text) for text in texts):
        return False
    texts += target if isinstance(target, list) else [target]
    return not any(
        text is None or text.endswith(_SHORTENED) or text.startswith("data:") for text in texts
    )


def _texts(asked: str | list[Any]) -> list[Any]:
    """Return the texts of a question, or of its messages."""
    if isinstance(asked, str):
        return [asked]
    contents = [message.get("content") for message in asked]
    parts = [part for c in contents for part in (c if isinstance(c, list) else [c])]
    return [part.get("text") if isinstance(part, dict) else part for part in parts]


def number_of(value: Any) -> Any:
    """Return the score of a word as Inspect's metrics have it; others as they are."""
    if isinstance(value, str):
        word = value if value in _WORDS else value.lower()
        if word in _WORDS and (word == value or len(word) > 1):
            return _WORDS[word]
    return value


class Summaries(NamedTuple):
    """Summaries that are read together.

    Attributes
    ----------
    texts : of each, shortened and whole
    names : of the files of the samples
    items, epochs, contents : columns of the samples
    labels : scorer, and key or place of its value
    scores : (samples, labels)
    is_odd : which samples are read one by one, by their texts
    """

    texts: Sequence[tuple[str, str]]
    names: list[str]
    items: Any
    epochs: Any
    contents: Any
    labels: list[tuple[str, str | int | None]]
    scores: FloatArray
    is_odd: BoolArray


def parsed_together(texts: Sequence[tuple[str, str]]) -> Summaries | None:
    """Return summaries whose values have the types of the first; None if one may differ.

    Parameters
    ----------
    texts : each shortened and whole
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    first = document_or_none(texts[0][0])
    kinds = _kinds(first) if isinstance(first, dict) else None
    lines = "\n".join(text for text, _ in texts).encode()
    columns = None if kinds is None else columns_of_lines(lines, kinds, others=True)
    if columns is None or not _OF_SAMPLES.isdisjoint(columns):
        return None
    items, epochs = columns["id"], columns["epoch"]
    if items.null_count or epochs.null_count or items.type not in (pa.int64(), pa.string()):
        return None
    found = _scores(columns["scores"], first["scores"])
    if found is None:
        return None
    labels, scores, is_odd = found
    target, choices = (_joined(columns[name]) for name in ("target", "choices"))
    is_odd |= _may_differ(columns["input"], pc.starts_with, pc.ends_with)
    # Targets are joined, and may begin and end anywhere.
    is_odd |= _may_differ(target, pc.match_substring, pc.match_substring)
    is_odd |= is_odd.sum() * _MANY > len(texts)
    join = pc.binary_join_element_wise
    names = join(
        "samples/", items.cast(pa.string()), "_epoch_", epochs.cast(pa.string()), ".json", ""
    )
    contents = join(columns["input"], choices.fill_null(""), target, "\x1f").fill_null("")
    hashes = content_hashes(contents.cast(pa.binary()).to_pylist())
    return Summaries(
        texts, names.to_pylist(), items, epochs.to_numpy(), hashes, labels, scores, is_odd
    )


_MANY = 8
"""If more than one by this number of samples is odd, all of a part are read one by one."""


def _may_differ(texts: Any, begins: Callable[..., Any], ends: Callable[..., Any]) -> BoolArray:
    """Return which texts may be others than those of the samples, as :func:`is_whole` has it."""
    from pyarrow import compute as pc

    found: BoolArray = _numpy(pc.or_(begins(texts, "data:"), ends(texts, _SHORTENED)))
    return found | _numpy(texts.is_null())


def _numpy(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)


def _joined(values: Any) -> Any:
    """Return texts, and lists of texts as :func:`content_hash` joins them."""
    import pyarrow as pa
    from pyarrow import compute as pc

    return pc.binary_join(values, "\x1e") if pa.types.is_list(values.type) else values


def _kinds(first: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return Arrow's types of the keys; None of a summary without scores, or with messages."""
    import pyarrow as pa

    text, scores = pa.string(), first.get("scores")
    if not (isinstance(scores, dict) and scores and isinstance(first.get("input"), str)):
        return None
    if not all(isinstance(score, dict) for score in scores.values()):
        return None
    of_scores = [
        (name, pa.struct([("value", _kind(score.get("value")))])) for name, score in scores.items()
    ]
    return {
        "id": kind_of(first.get("id")),
        "epoch": pa.int64(),
        "input": text,
        "target": pa.list_(text) if isinstance(first.get("target"), list) else text,
        "choices": pa.list_(text),
        "started_at": text,
        "scores": pa.struct(of_scores),
    }


def _kind(value: Any) -> Any:
    """Return Arrow's type of the value of a score; whole numbers may be fractions elsewhere."""
    import pyarrow as pa

    if isinstance(value, dict):
        return pa.struct([(key, _kind(own)) for key, own in value.items()])
    if isinstance(value, list):
        return pa.list_(_kind(value[0] if value else None))
    return pa.float64() if value is None or type(value) is int else kind_of(value)


def _scores(
    scores: Any, first: Mapping[str, Any]
) -> tuple[list[tuple[str, str | int | None]], FloatArray, BoolArray] | None:
    """Return labels, scores, and which samples lack one; None if samples differ."""
    import pyarrow as pa
    from pyarrow import compute as pc

    labels: list[tuple[str, str | int | None]] = []
    columns: list[FloatArray] = []
    is_odd = np.zeros(len(scores), bool)
    if {field.name for field in scores.type} != first.keys():
        return None
    for scorer, own in first.items():
        values = pc.struct_field(scores, [scorer, "value"])
        is_odd |= _numpy(values.is_null())
        parts: dict[str | int | None, Any] = {None: values}
        if pa.types.is_struct(values.type):
            if {field.name for field in values.type} != own["value"].keys():
                return None
            parts = {key: pc.struct_field(values, key) for key in own["value"]}
        elif pa.types.is_list(values.type):
            n = len(own["value"])
            if values.null_count or (np.diff(values.offsets) != n).any():
                return None
            parts = {k + 1: pc.list_element(values, k) for k in range(n)}
        for key, part in parts.items():
            numbers = _numbers(part)
            if numbers is None:
                return None
            is_odd |= _numpy(part.is_null())
            labels.append((scorer, key))
            columns.append(numbers)
    return (labels, np.column_stack(columns), is_odd) if labels else None


def _numbers(values: Any) -> FloatArray | None:
    """Return the scores of values, nan for null; None if one is no number."""
    import pyarrow as pa

    if pa.types.is_string(values.type):
        found = values.dictionary_encode()
        pairs = [number_or_problem(number_of(word)) for word in found.dictionary.to_pylist()]
        if any(problem for _, problem in pairs):
            return None
        table = np.array([number for number, _ in pairs] or [np.nan])
        return table[_numpy(found.indices.fill_null(0))]
    if not (pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        return None
    numbers: FloatArray = _numpy(values.cast(pa.float64()))
    return None if np.isinf(numbers).any() else numbers
