"""The bar: shown where it was asked for, or on a terminal once something takes long."""

from __future__ import annotations

import io
import sys

import pytest

from vcomp.data.reading import check_progress
from vcomp.exceptions import DataError
from vcomp.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(progress, stream, monkeypatch, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(progress, 3_000_000, "pass 1", unit=" rows", **options) as bar:
        for _ in range(3):
            bar(1_000_000)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("progress", "stream", "delay", "shown"),
    [
        (True, io.StringIO, 3600.0, True),
        (None, Terminal, 0.0, True),
        (None, Terminal, 3600.0, False),
        (None, io.StringIO, 0.0, False),
        (False, Terminal, 0.0, False),
    ],
)
def test_where_a_bar_is_shown(progress, stream, delay, shown, monkeypatch):
    said = printed(progress, stream(), monkeypatch, delay=delay)
    assert bool(said) == shown
    if shown:
        assert "pass 1: 100%" in said
        assert "3.00M/3.00M" in said
        assert "rows/s" in said


def test_a_total_that_nobody_knows(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(True, None, "pass 2", unit=" rows") as bar:
        bar(1500)
    assert "1.50k rows" in stream.getvalue()


def test_what_is_refused():
    for allowed in (True, False, None):
        check_progress(allowed)
    with pytest.raises(DataError, match="progress=2 is not known; it is True, False or None"):
        check_progress(2)
    for allowed in (False, None):
        check_progress(allowed, on_dask=True)
    with pytest.raises(DataError, match="Dask shows its own"):
        check_progress(True, on_dask=True)
