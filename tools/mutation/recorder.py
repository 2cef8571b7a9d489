"""Plugins of pytest for the search for mutants: what tests enter, and tests that end early."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

EXAMPLES = 20
"""Examples of a property test, where it does not set their number."""

RECORDED = 3
"""Examples of a property test that are recorded."""


@dataclass(frozen=True, slots=True)
class Known:
    """A test that passes on the unchanged code.

    Attributes
    ----------
    test : node id
    seconds : of processor time that it took
    functions : of the rooms' modules that it enters, as ``module:function``
    """

    test: str
    seconds: float
    functions: frozenset[str]


class Recorder:
    """A plugin of pytest that records which functions each test enters."""

    def __init__(self, slow: float) -> None:
        self.known: list[Known] = []
        self.slow: list[str] = []
        self._limit = slow
        self._times = 1.0
        self.entered: set[str] = set()
        # Fixtures and constants of modules are made once, and used by many tests.
        self._made: dict[Any, set[str]] = {}
        self._uses: tuple[Any, ...] = ()
        self._failed = False
        self._begun = 0.0

    def _making(self, what: Any) -> Generator[None, Any, Any]:
        before = set(self.entered)
        self.entered.clear()
        try:
            return (yield)
        finally:
            self._made.setdefault(what, set()).update(self.entered)
            self.entered |= before

    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, Any]:
        return (yield from self._making(collector.path))

    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        return (yield from self._making(fixturedef))

    def pytest_runtest_protocol(self, item: Any) -> None:
        self._times = _fewer_examples(item)
        of = getattr(item, "_fixtureinfo", None)  # examples of docstrings have none
        fixtures = of.name2fixturedefs.values() if of else ()
        self._uses = (item.path, *(each for of in fixtures for each in of))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._failed, self._begun = False, time.process_time()
        self.entered.clear()
        signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, self._limit)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed |= report.outcome != "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        seconds = time.process_time() - self._begun
        if self._failed and seconds > 0.9 * self._limit:
            self.slow.append(nodeid)
        elif not self._failed:
            entered = self.entered.union(*(self._made.get(of, ()) for of in self._uses))
            self.known.append(Known(nodeid, self._times * seconds, frozenset(entered)))


def _fewer_examples(item: Any) -> float:
    """Let a property test draw few examples; return how many times as many it draws else."""
    from hypothesis import settings

    name = "_hypothesis_internal_use_settings"
    function = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    own = getattr(function, name, None)
    if own is None or own.max_examples <= RECORDED:
        return 1.0
    setattr(function, name, settings(own, max_examples=RECORDED))
    return float(own.max_examples) / RECORDED


def _too_slow(*_: object) -> None:
    import pytest

    pytest.fail("the test is too slow")


class Quick:
    """A plugin of pytest: property tests stop at the first example that fails."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants",
            phases=phases,
            derandomize=True,
            deadline=None,
            database=None,
            max_examples=EXAMPLES,
        )
        settings.load_profile("mutants")
