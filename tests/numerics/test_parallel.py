"""Work of several items in threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from vcomp.numerics import in_threads

MUCH = 1e12


def test_results_come_in_the_order_of_the_items():
    here = threading.get_ident()
    made = list(in_threads(lambda n: (n, threading.get_ident() != here), range(20), MUCH))
    assert made == [(n, True) for n in range(20)]


def test_little_work_has_no_thread():
    here = threading.get_ident()
    made = list(in_threads(lambda n: (n, threading.get_ident() == here), range(3), 10.0))
    assert made == [(n, True) for n in range(3)]


def test_an_error_of_the_work_is_raised():
    def work(n):
        return np.linalg.cholesky(np.array([[1.0 - n]]))

    with pytest.raises(np.linalg.LinAlgError):
        list(in_threads(work, [0, 2, 0], MUCH))


def test_few_results_wait():
    """They may be large: the next items are begun when results are taken."""
    begun = []
    results = in_threads(lambda n: begun.append(n), range(50), MUCH)
    next(results)
    assert len(begun) <= 3
    assert sum(1 for _ in results) == 49
