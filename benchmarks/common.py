"""What all benchmarks share: timing, simulated data, and the table of ratios."""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from patsy import EvalEnvironment

from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.design.design import Chunk, Design
from vcomp.exceptions import VcompError
from vcomp.formula import parse
from vcomp.formula.formula_terms import Formula
from vcomp.statistics.statistics import Statistics

Answer = TypeVar("Answer")

_LONG = 2.0
_MEMORY = 8 * 2**30
_PATIENCE = 20.0
"""A process that waits for others, or for ever, is ended after so many times its limit."""
_FORK = multiprocessing.get_context("fork")

FULL_MODEL = "score ~ " + " + ".join(
    f"(1|{term})"
    for term in ("p", "a", "i", "d", "p:a", "p:i", "a:i", "p:d", "a:d", "p:a:i")
)  # fmt: skip
"""All 11 components of p × a × (d:i): participants, assessors, documents within topics."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How large and how long."""

    quick: bool = False
    limit: float = 60.0
    gpboost: Path | None = None
    most_rows: int = 1_000_000
    data: tuple[str, ...] = ()

    @property
    def repeat(self) -> int:
        """How often to time a call."""
        return 1 if self.quick else 7

    @property
    def repeat_of_r(self) -> int:
        """How often to time a call of plain R, which takes long."""
        return 1 if self.quick else 7

    def rows(self, full: int) -> int:
        """Return a number of rows, a tenth where it has to be quick."""
        return full // 10 if self.quick else full


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two programs that did the same work, in seconds."""

    stage: str
    name: str
    seconds: float
    peer_name: str
    peer_seconds: float

    @property
    def ratio(self) -> float:
        """Time relative to the peer's: 0.1 is ten times as fast."""
        return self.seconds / self.peer_seconds


@dataclass(slots=True)
class Report:
    """Prints comparisons as they come, and keeps them for a JSON file."""

    comparisons: list[Comparison] = field(default_factory=list)
    stage: str = ""

    def __call__(self, name: str, seconds: float, peer_name: str, peer_seconds: float) -> None:
        """Print one comparison."""
        one = Comparison(self.stage, name, seconds, peer_name, peer_seconds)
        self.comparisons.append(one)
        print(
            f"  {name:<44} {_duration(seconds):>9}   {peer_name:<37} "
            f"{_duration(peer_seconds):>9} {one.ratio:>9.3g}",
            flush=True,
        )

    def section(self, title: str) -> None:
        """Print the head of a table."""
        self.stage = title
        print(f"\n{title:<46} {'vcomp':>9}   {'peer':<37} {'':>9} {'ratio':>9}", flush=True)

    def omit(self, name: str, reason: str) -> None:
        """Say in one line what was not compared."""
        print(f"  {name:<44} omitted: {reason}", flush=True)

    def write(self, path: Path) -> None:
        """Store the comparisons as JSON."""
        rows = [{**asdict(one), "ratio": one.ratio} for one in self.comparisons]
        path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def best_of(function: Callable[[], Any], repeat: int) -> float:
    """Return the least time of a call in seconds.

    The first call of `repeat` + 1 warms up. It counts only where it takes longer than
    two seconds, and is then the only one.
    """
    first = _seconds(function)
    return first if first > _LONG else min(_seconds(function) for _ in range(repeat))


def attempt(work: Callable[[], Answer], limit: float, memory: int = _MEMORY) -> Answer | str:
    """Do `work` in a child process that is ended after `limit` seconds of processor time.

    Parameters
    ----------
    memory : bytes of address space that the process may have

    Returns
    -------
    its answer, or why there is none, in a few words
    """
    answer: Answer | str = answer_of(_FORK, _answer, (memory, work), limit)
    return answer


def answer_of(
    context: Any, target: Callable[..., None], arguments: tuple[Any, ...], limit: float
) -> Any:
    """Return what `target` sends from a child process, or why it sends nothing, in a few words.

    Parameters
    ----------
    context : of multiprocessing
    target : called with a connection to send to, and the arguments
    limit : seconds of processor time after which the process is ended: those of the clock depend
        on what else the machine does
    """
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_within, args=(limit, target, send, *arguments))
    child.start()
    send.close()
    try:
        if not receive.poll(wall_limit(limit)):
            return f"not done in {wall_limit(limit):.0f} s of the clock"
        return receive.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            return not_done(limit)
        return f"ended with exit code {child.exitcode}"
    finally:
        child.kill()
        child.join()


def wall_limit(limit: float) -> float:
    """Return the seconds of the clock after which a process is ended in any case."""
    return _PATIENCE * limit + 60.0


def not_done(limit: float) -> str:
    """Return the reason why a process with a limit of processor time has no answer."""
    return f"not done in {limit:.3g} s of processor time (--limit)"


def limit_processor_time(limit: float, pid: int = 0) -> None:
    """End a process, by default this one, by SIGXCPU after so many seconds of processor time."""
    seconds = math.ceil(limit)
    resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds + 5))


def _within(limit: float, target: Callable[..., None], *arguments: Any) -> None:
    limit_processor_time(limit)
    target(*arguments)


def memory_pass(arrays: Iterable[NDArray[Any]], repeat: int) -> float:
    """Return the seconds of adding up arrays once: what reading them from memory costs."""
    held = list(arrays)
    return best_of(lambda: [array.sum() for array in held], repeat)


def agree(ours: Any, theirs: Any, *, rtol: float = 1e-9, atol: float = 0.0) -> None:
    """Stop if two programs that are about to be compared do not give the same answer."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=rtol, atol=atol)


def crossed(
    n_rows: int, n_a: int, n_b: int, *, kind: str = "integer", seed: int = 1
) -> pd.DataFrame:
    """Return scores of levels of a and b that meet at random.

    Parameters
    ----------
    kind : of the columns a and b: ``"integer"``, ``"text"`` or ``"category"``
    """
    rng = np.random.default_rng(seed)
    a, b = _every_level(rng, n_rows, n_a), _every_level(rng, n_rows, n_b)
    y = 5.0 + _effects(rng, 1.0, a) + _effects(rng, 0.5, b) + rng.normal(size=n_rows)
    return pd.DataFrame({"y": y, "a": _as_kind(a, "a", kind), "b": _as_kind(b, "b", kind)})


def complete(sizes: Mapping[str, int], *, seed: int = 1) -> pd.DataFrame:
    """Return one 0/1 score of every combination of levels, with effects of facets and pairs."""
    rng = np.random.default_rng(seed)
    shape = tuple(sizes.values())
    codes = dict(zip(sizes, (c.ravel() for c in np.indices(shape, dtype=np.int32)), strict=True))
    value = rng.normal(size=codes[next(iter(sizes))].size)
    for some in (*combinations(sizes, 1), *combinations(sizes, 2)):
        if len(some) < len(sizes):
            value += _effects(rng, 0.5, *(codes[facet] for facet in some))
    return pd.DataFrame({"y": (value > 0.0).astype(float), **codes})


def nested(
    n_p: int, n_a: int, n_i: int, n_d: int, *, balanced: bool = False, seed: int = 1
) -> pd.DataFrame:
    """Return scores of the design p × a × (d:i): one for each of the n_p·n_a·n_d combinations.

    Topics i differ in their number of documents d, unless they are to be balanced.
    """
    rng = np.random.default_rng(seed)
    topic_of = np.arange(n_d) % n_i if balanced else _every_level(rng, n_d, n_i)
    p, a, d = (axis.ravel() for axis in np.indices((n_p, n_a, n_d), dtype=np.int32))
    i = topic_of[d]
    sds = (
        (1.0, p), (0.3, a), (1.2, i), (0.8, d), (0.3, p, a), (0.7, p, i), (0.25, a, i),
        (0.5, p, d), (0.35, a, d), (0.4, p, a, i),
    )  # fmt: skip
    score = 3.0 + rng.normal(size=p.size) + sum(_effects(rng, sd, *codes) for sd, *codes in sds)
    return pd.DataFrame({"score": score, "p": p, "a": a, "i": i, "d": d})


def score_matrix(n_topics: int, n_systems: int, *, seed: int = 1) -> NDArray[np.float64]:
    """Return scores of every system (columns) on every topic (rows), between 0 and 1."""
    rng = np.random.default_rng(seed)
    systems, topics = rng.normal(size=n_systems), rng.normal(size=n_topics)
    noise = rng.normal(size=(n_topics, n_systems))
    scores: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-(0.3 * systems + topics[:, None] + noise)))
    return scores


@dataclass(frozen=True, slots=True)
class Piped:
    """A frame on its way down the pipe, at every stage."""

    formula: Formula
    rows: Rows
    environment: Any
    design: Design
    chunk: Chunk
    stats: Statistics

    @property
    def names(self) -> tuple[str, ...]:
        """The components, the residual last."""
        return (*(term.name for term in self.design.terms), "Residual")


def pipe(formula: str, data: Any) -> Piped:
    """Take data through the stages from text to statistics."""
    parsed, environment = parse(formula), EvalEnvironment.capture(0)
    rows = Rows.select(parsed, data, Reading(environment))
    design = learn(parsed, rows, environment)
    chunk = design.encode(rows)
    return Piped(parsed, rows, environment, design, chunk, summed(design, chunk))


def summed(design: Design, chunk: Chunk) -> Statistics:
    """Return the statistics that a model makes of its rows."""
    return Statistics.from_rows(chunk, design.grid, design.partial_grid)


def _every_level(rng: np.random.Generator, n: int, n_levels: int) -> NDArray[np.int32]:
    """Return n random levels, each of them at least once."""
    rest = rng.integers(0, n_levels, n - n_levels)
    return rng.permutation(np.concatenate([np.arange(n_levels), rest])).astype(np.int32)


def _effects(
    rng: np.random.Generator, sd: float, *codes: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return one normal effect for each combination of levels, spread over the rows."""
    shape = tuple(int(c.max()) + 1 for c in codes)
    effects: NDArray[np.float64] = rng.normal(scale=sd, size=shape)[codes]
    return effects


def _as_kind(codes: NDArray[np.int32], prefix: str, kind: str) -> Any:
    if kind == "integer":
        return codes
    names = [f"{prefix}{level:06d}" for level in range(int(codes.max()) + 1)]
    if kind == "category":
        return pd.Categorical.from_codes(codes, pd.Index(names))
    return pd.Series(np.array(names, dtype=object)[codes]).astype("str")


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _answer(send: Any, memory: int, work: Callable[[], Any]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        send.send(work())
    except MemoryError:
        send.send(f"needs more than {memory / 2**30:.3g} GiB")
    except VcompError as error:
        send.send(f"{type(error).__name__}: {error}"[:110])


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"
