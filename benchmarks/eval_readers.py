"""Seconds and memory of reading large logs of evaluations, beside one plain pass over them.

``python -m benchmarks.eval_readers [N] [--only KIND,…]`` writes logs of N samples (10⁶) as the
frameworks write them, one kind after the other, and reads each in a process of its own. The plain
pass decodes each record by ``json.loads`` and does nothing else: the lines of lm_eval, and the
summaries of an archive of Inspect after they are unpacked. It has one thread, and its seconds and
the ratio are of processors: two cores without other work need less on the clock.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

import vcomp
from benchmarks.measure import Measured, Timing, in_fresh_process, measured
from vcomp.evals.archives import archive_members, member_pieces

_DATE = "2026-01-01T00-00-00.000000"

_WORDS = [
    "the",
    "of",
    "a",
    "rate",
    "which",
    "is",
    "not",
    "more",
    "than",
    "one",
    "when",
    "it",
    "has",
    "been",
    "given",
    "as",
    "what",
    "follows",
]

_LOCAL, _ENTRY, _ENTRIES_FOLLOW = (
    struct.Struct("<4s5H3L2H"),
    struct.Struct("<4s6H3L5H2L"),
    struct.Struct("<4sQ2H2L4Q4sLQL4s4H2LH"),
)
"""Headers of zip: of a member, its entry in the directory, and the three ends of a directory."""

_ZSTD, _ANY = 93, 0xFFFFFFFF


def _text(of: random.Random, n: int) -> str:
    """Return words of about n characters."""
    return " ".join(of.choices(_WORDS, k=n // 5))


# lm_eval ---------------------------------------------------------------------------------------


def write_lm_eval(folder: Path, n: int, files: int, metrics: tuple[str, ...]) -> None:
    """Write samples of a task of choices, n documents over all files, a model in each."""
    for k in range(files):
        below = folder / f"model-{k}"
        below.mkdir()
        results = {"results": {}, "configs": {}, "versions": {}, "model_name": f"model-{k}"}
        below.joinpath(f"results_{_DATE}.json").write_text(json.dumps(results))
        path = below / f"samples_choices_{_DATE}.jsonl"
        with path.open("w", encoding="utf-8", buffering=1 << 20) as sink:
            for line in _lines(n // files, random.Random(k), metrics):
                sink.write(line + "\n")


def _lines(n: int, of: random.Random, metrics: tuple[str, ...]) -> Iterator[str]:
    texts, choices = ([_text(random.Random(0), size) for _ in range(50)] for size in (300, 30))
    for item in range(n):
        asked = f"{item}: {texts[item % 50]}"
        offered = choices[item % 40 : item % 40 + 4]
        responses = [[f"{-10 * of.random():.15g}", "False"] for _ in offered]
        hashes = [f"{of.getrandbits(256):064x}" for _ in range(2)]
        line = {
            "doc_id": item,
            "doc": {"question": asked, "choices": offered, "label": item % 4, "answer": "n\u00e9"},
            "target": str(item % 4),
            "arguments": {
                f"gen_args_{k}": {"arg_0": asked, "arg_1": f" {one}"}
                for k, one in enumerate(offered)
            },
            "resps": [[one] for one in responses],
            "filtered_resps": responses,
            "filter": "none",
            "metrics": metrics,
            "doc_hash": f"{item * 0x9E3779B97F4A7C15 % 2**64:016x}" * 4,
            "prompt_hash": hashes[0],
            "target_hash": hashes[1],
            **{name: float(of.random() < 0.5) for name in metrics},
        }
        yield json.dumps(line, ensure_ascii=False)


def _lines_of(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open("rb") as lines:
            yield from lines


# Inspect ---------------------------------------------------------------------------------------


def write_inspect(folder: Path, n: int, files: int) -> None:
    """Write archives of a task, n samples over all of them, a model in each."""
    for k in range(files):
        _archive(folder / f"{_DATE}_task_{k}.eval", n // files, k)


def _archive(path: Path, n: int, k: int) -> None:
    of = random.Random(k)
    spec = {
        "task": "task", "task_id": f"T{k}", "run_id": f"R{k}", "eval_id": f"E{k}",
        "model": f"model-{k}", "task_args": {}, "created": "2026-01-01T00:00:00+00:00",
        "packages": {"inspect_ai": "0.3.285"},
    }  # fmt: skip
    header = {"version": 2, "status": "success", "eval": spec, "invalidated": False}
    sample = _packed(json.dumps({"events": [of.getrandbits(512) for _ in range(4)]}).encode())
    sink = pa.BufferOutputStream()
    size, crc = 0, 0
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for text in _joined(_summaries(n, of)):
            size, crc = size + len(text), zlib.crc32(text, crc)
            stream.write(text)
    with path.open("wb") as file:
        samples = ((f"samples/{item}_epoch_1.json", sample) for item in range(n))
        ends = [("_journal/start.json", header), ("header.json", header)]
        start, end = ((name, _packed(json.dumps(one).encode())) for name, one in ends)
        summaries = ("summaries.json", (sink.getvalue().to_pybytes(), size, crc))
        _write_members(file, chain([start], samples, [summaries, end]))


def _packed(text: bytes) -> tuple[bytes, int, int]:
    return pa.compress(text, "zstd", asbytes=True), len(text), zlib.crc32(text)


def _joined(texts: Iterator[str]) -> Iterator[bytes]:
    mark = "["
    for text in texts:
        yield (mark + text).encode()
        mark = ","
    yield b"]"


def _summaries(n: int, of: random.Random) -> Iterator[str]:
    texts = [_text(random.Random(0), 380) for _ in range(50)]
    for item in range(n):
        summary = {
            "id": item,
            "epoch": 1,
            "input": f"{item}: {texts[item % 50]}",
            "choices": [f"{item}", "n\u00e9", "none of these", "all of these"],
            "target": "ABCD"[item % 4],
            "metadata": {"subject": f"subject {item % 57}", "difficulty": "college"},
            "scores": {
                "choice": {
                    "value": "CI"[of.random() < 0.5],
                    "answer": "ABCD"[of.randrange(4)],
                    "explanation": f"{texts[of.randrange(50)][:200]} ANSWER: A",
                    "history": [],
                }
            },
            "model_usage": {
                "model": {
                    "input_tokens": of.randrange(300), "output_tokens": of.randrange(300),
                    "total_tokens": of.randrange(600), "input_tokens_cache_read": 0,
                }
            },
            "role_usage": {},
            "started_at": f"2026-01-01T00:{item // 60 % 60:02}:{item % 60:02}.123456+00:00",
            "completed_at": f"2026-01-01T00:{item // 60 % 60:02}:{item % 60:02}.623456+00:00",
            "total_time": round(of.random(), 3),
            "working_time": round(of.random(), 3),
            "uuid": f"{of.getrandbits(120):022x}",
            "retries": 0,
            "completed": True,
            "message_count": 2,
            "turn_count": 1,
        }  # fmt: skip
        yield json.dumps(summary, ensure_ascii=False, separators=(",", ":"))


def _write_members(file: Any, members: Iterator[tuple[str, tuple[bytes, int, int]]]) -> None:
    """Write members and their directory, with the end that more than 65,535 members need."""
    entries, at, n = [], 0, 0
    for name, (packed, size, crc) in members:
        text, n = name.encode(), n + 1
        of_both = (0, _ZSTD, 0, 33, crc, len(packed), size, len(text), 0)
        file.write(_LOCAL.pack(b"PK\3\4", 63, *of_both) + text + packed)
        entries.append(_ENTRY.pack(b"PK\1\2", 63, 63, *of_both, 0, 0, 0, 0, at) + text)
        at += _LOCAL.size + len(text) + len(packed)
    directory = b"".join(entries)
    large = (b"PK\6\6", 44, 63, 63, 0, 0, n, n, len(directory), at)
    place = (b"PK\6\7", 0, at + len(directory), 1)
    end = (b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _ANY, _ANY, 0)
    file.write(directory + _ENTRIES_FOLLOW.pack(*large, *place, *end))


def _summaries_of(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.eval")):
        member = archive_members(path).get("summaries.json")
        assert member is not None
        rest = b""
        with path.open("rb") as file:
            for piece in member_pieces(file, member):
                *whole, rest = (rest + piece).split(b',{"id":')
                for text in whole:
                    yield text if text.startswith(b"[") else b'{"id":' + text
            yield b'{"id":' + rest


# What is timed ---------------------------------------------------------------------------------

_KINDS: dict[str, tuple[str, Callable[[Path, int], None], Callable[[Path], Iterator[bytes]]]] = {
    "lm_eval": (
        "lm_eval, one file",
        partial(write_lm_eval, files=1, metrics=("acc",)),
        _lines_of,
    ),
    "lm_eval10": (
        "lm_eval, ten files, two metrics",
        partial(write_lm_eval, files=10, metrics=("acc", "acc_norm")),
        _lines_of,
    ),
    "inspect": ("Inspect, one archive", partial(write_inspect, files=1), _summaries_of),
    "inspect10": ("Inspect, ten archives", partial(write_inspect, files=10), _summaries_of),
}
"""What is printed, what writes the logs in a folder, and what yields their records as text."""


@contextmanager
def _reading(folder: Path) -> Iterator[Timing]:
    import pandas  # noqa: F401  (its import is no part of the reading)
    import pyarrow.json  # noqa: F401

    yield Timing(lambda: f"{len(vcomp.evals.read(folder).table):,} scores")


@contextmanager
def _decoding(folder: Path, records: Callable[[Path], Iterator[bytes]]) -> Iterator[Timing]:
    def work() -> str:
        size, loads = 0, json.loads
        for text in records(folder):
            size += len(text)
            loads(text.strip(b"[]\n"))
        return f"{size:,} bytes"

    yield Timing(work)


def read(folder: Path) -> Measured:
    """Return what reading takes."""
    return measured(partial(_reading, folder), 1)


def decode(folder: Path, kind: str) -> Measured:
    """Return what the plain pass takes."""
    return measured(partial(_decoding, folder, _KINDS[kind][2]), 1)


def write(folder: Path, kind: str, n: int) -> None:
    """Write the logs of a kind."""
    _KINDS[kind][1](folder, n)


def main() -> None:
    """Print a line of a table for each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eval_readers", description=__doc__)
    parser.add_argument("n", nargs="?", type=float, default=1e6, help="samples of a kind")
    parser.add_argument("--only", default=",".join(_KINDS), help=", ".join(_KINDS))
    parser.add_argument("--folder", metavar="DIR", help="for the logs, 2.5 kB a sample")
    given = parser.parse_args()
    heads = ("logs", "samples", "scores", "s", "processor s", "GiB", "plain pass, s", "ratio")
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for kind in given.only.split(","):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            folder, n = Path(name), int(given.n)
            in_fresh_process(write, folder, kind, n)
            plain = in_fresh_process(decode, folder, kind)
            found = in_fresh_process(read, folder)
        if isinstance(plain, str) or isinstance(found, str):
            print(f"{kind}: {found if isinstance(found, str) else plain}", flush=True)
            continue
        cells = (
            _KINDS[kind][0], f"{n:,}", found.shown.split()[0], f"{found.elapsed:.1f}",
            f"{found.seconds[0]:.1f}", f"{found.gib:.2f}", f"{plain.seconds[0]:.1f}",
            f"{found.seconds[0] / plain.seconds[0]:.2f}",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
