# ruff: noqa: E501
"""Random texts, and small changes of texts, bytes and JSON."""

from __future__ import annotations

import contextlib
import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator

ODD = [
    "", " ", "nan", "NaN", "inf", "-inf", "1e400", "-0.0", "1e-320", "NA", "None", "True", "é", "\u200b",
    "𝔘", "\x00", "'", '"', "\\", "\n", "%s", "{}", "../x", "9" * 40, "Σ", "\ufeff", "Q('a b')", "=1+1",
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**70), 0.5, 1e308, -1e-320, "", "a", "Intercept", [], {}, [None],
    [[1.0]], {"infinite": 1}, {"infinite": "x"}, ["a", "a"], [1, "a"], 1e400, -3, 10**400,
]  # fmt: skip


def pick(rng: Rng, values: Any) -> Any:
    """Return one of some values."""
    return values[int(rng.integers(len(values)))]


def words(rng: Rng, tokens: list[str], longest: int = 12) -> str:
    """Return some tokens, joined with and without blanks."""
    chosen = [pick(rng, tokens) for _ in range(int(rng.integers(1, longest)))]
    return pick(rng, ["", " "]).join(chosen)


def changed_text(rng: Rng, text: str, tokens: list[str]) -> str:
    """Return a text after one to four insertions, deletions, repetitions or exchanges."""
    for _ in range(int(rng.integers(1, 5))):
        a, b = sorted(int(x) for x in rng.integers(0, len(text) + 1, 2))
        b = min(b, a + 8)
        new = pick(rng, [*tokens, *ODD])
        text = pick(
            rng,
            [
                text[:a] + new + text[a:],
                text[:a] + text[b:],
                text[:b] + text[a:],
                text[:a] + new + text[b:],
            ],
        )
    return text


def changed_bytes(rng: Rng, content: bytes) -> bytes:
    """Return bytes after some were replaced, cut out, repeated or cut off."""
    new = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        if not new:
            break
        at, much = int(rng.integers(len(new))), int(rng.integers(1, 9))
        match int(rng.integers(5)):
            case 0 | 1:
                new[at : at + much] = rng.bytes(much)
            case 2:
                del new[at : at + much]
            case 3:
                new[at:at] = new[max(0, at - much) : at]
            case 4:
                if rng.random() < 0.2:
                    del new[at:]
                else:
                    new[at] ^= 1 << int(rng.integers(8))
    return bytes(new)


def changed_json(rng: Rng, document: Any) -> Any:
    """Return a JSON document with one to three values replaced, removed, added or exchanged."""
    document = copy.deepcopy(document)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(document))
        if not places:
            break
        holder, key = pick(rng, places)
        match int(rng.integers(6)):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(pick(rng, VALUES))
            case 3:
                del holder[key]
            case 4:
                other, name = pick(rng, places)
                holder[key] = copy.deepcopy(other[name])
            case 5:
                value = holder[key]
                if isinstance(value, bool) or not isinstance(value, int | float | list):
                    holder[key] = pick(rng, VALUES)
                elif isinstance(value, list):
                    holder[key] = value[:-1] if rng.random() < 0.5 else [*value, *value[:1]]
                else:
                    factor = pick(rng, [-1, 0, 2, 1e-300, 1e300, 1.0000001])
                    with contextlib.suppress(OverflowError):  # 10**400 is no float
                        holder[key] = value * factor
    return document


def _places(document: Any) -> Any:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def changed_archive(rng: Rng, source: Path, target: Path, header: str) -> None:
    """Write a zip archive with its header, an array or a member changed."""
    with zipfile.ZipFile(source) as old:
        members = {name: old.read(name) for name in old.namelist()}
    name = pick(rng, [header, *members])
    match int(rng.integers(5)):
        case 0:
            members[header] = _json(changed_json(rng, json.loads(members[header])))
        case 1 if name != header:
            del members[name]
        case 2 if name.endswith(".npy"):
            members[name] = _array(rng, members[name])
        case 3:
            members[name] = changed_bytes(rng, members[name])
        case _:
            members[header] = _json(changed_json(rng, json.loads(members[header])))
    how = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(target, "w", how) as new:
        for member, content in members.items():
            new.writestr(member, content)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _array(rng: Rng, stored: bytes) -> bytes:
    """Return a stored array with other values, another type or another shape."""
    import io

    array = np.load(io.BytesIO(stored))
    match int(rng.integers(4)):
        case 0 if array.size:
            flat = array.reshape(-1).copy()
            odd = [0, 1, 255, -1, np.nan, np.inf, 1e300, -1e300]
            with np.errstate(all="ignore"):
                flat[int(rng.integers(flat.size))] = np.array(pick(rng, odd)).astype(array.dtype)
            array = flat.reshape(array.shape)
        case 1:
            kind = pick(rng, ["f4", "i8", "u1", "b", "c16", "U3", "M8[s]", ">f8"])
            with (
                np.errstate(all="ignore"),
                contextlib.suppress(RuntimeError),
            ):  # of times as short texts
                array = array.astype(kind)
        case 2:
            array = array[..., :-1] if array.ndim else array
        case _:
            array = np.stack([array, array])
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
