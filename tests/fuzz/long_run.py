"""The long run of the fuzzers, which goes on where another one stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from tests.fuzz.apart import Apart
from tests.fuzz.driver import Counts, Fuzzer

EVERY = 20.0
"""Seconds after which the counts of a long run are stored."""


def run_long(
    fuzzers: Sequence[Fuzzer], state: Path, folder: Path, goals: dict[str, int], hours: float
) -> dict[str, Counts]:
    """Run cases until each fuzzer has reached its goal or time is up; go on from a stored state.

    The cases run in a process of their own, so that one that ends its process is counted.

    Parameters
    ----------
    state : JSON file of the counts, which is replaced every 20 seconds
    goals : number of cases of each fuzzer
    """
    found = {f.name: Counts() for f in fuzzers}
    if state.exists():
        stored = json.loads(state.read_text(encoding="utf-8"))
        found |= {name: Counts(**stored[name]) for name in found if name in stored}
    end, kept = monotonic() + 3600.0 * hours, monotonic()
    with Apart(fuzzers, folder) as apart:
        while monotonic() < end:
            open_ = [f for f in fuzzers if found[f.name].cases < goals[f.name]]
            if not open_:
                break
            # Shares of the goals are reached together: an early end leaves all kinds tested.
            name = min(open_, key=lambda f: found[f.name].cases / goals[f.name]).name
            counts = found[name]
            for _ in range(max(1, min(200, goals[name] // 1000))):
                counts.add(counts.cases, apart.ended_case(name, counts.cases))
            if monotonic() - kept > EVERY:
                kept = monotonic()
                _store(found, state)
    _store(found, state)
    return found


def _store(found: dict[str, Counts], state: Path) -> None:
    beside = state.with_suffix(".next")
    beside.write_text(json.dumps({name: asdict(c) for name, c in found.items()}, indent=1))
    os.replace(beside, state)
