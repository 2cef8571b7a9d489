"""Work of several items in threads."""

from __future__ import annotations

import threading
from itertools import count

import numpy as np
import pytest

from vcomp.exceptions import EstimationError
from vcomp.numerics import (
    BatchedWork,
    check_count,
    check_rng,
    check_time_limit,
    in_threads,
    run,
    seed_from,
    stream,
)
from vcomp.numerics.parallel import _Queue

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


def test_work_is_shared_from_1e8_multiplications_and_two_items_on():
    here = threading.get_ident()

    def is_here(items, multiplications):
        return set(in_threads(lambda _: threading.get_ident() == here, items, multiplications))

    assert is_here([1, 2], 1e8) == {False}
    assert is_here([1, 2], 0.999e8) == {True}
    assert is_here([1], MUCH) == {True}


# Replicates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_every_replicate_is_computed_once(workers, n):
    numbers = list(range(5, 5 + n))
    seen, made = [], []

    def make():
        made.append(threading.get_ident())
        return lambda number: seen.append(number) or number**2

    assert run(make, numbers, workers=workers) == {k: k**2 for k in numbers}
    assert sorted(seen) == numbers
    assert len(made) == len(set(made)) <= workers
    # One worker is the caller, so that an interruption reaches it.
    assert (threading.get_ident() in made) == (workers == 1)


@pytest.mark.parametrize("most", [1, 4, 100])
def test_several_replicates_are_computed_together(most):
    sizes = []

    def work(numbers):
        sizes.append(len(numbers))
        return [10 * k for k in numbers]

    found = run(lambda: BatchedWork(work, most), range(30))
    assert found == {k: 10 * k for k in range(30)}
    assert max(sizes) == min(most, 30)
    assert sum(sizes) == 30


def test_a_portion_takes_a_quarter_of_a_second():
    queue = _Queue(range(1000), None)
    for seconds, size in ((1.0, 1), (0.25, 1), (0.124, 2), (0.01, 25), (1e-3, 64), (0.0, 64)):
        queue.took(seconds)
        assert queue.size == size


def test_portions_are_an_equal_share_of_what_is_left():
    queue = _Queue(range(10), None, workers=3)
    queue.size = 64
    assert [len(queue.next()) for _ in range(6)] == [4, 2, 2, 1, 1, 0]
    assert list(_Queue(range(10), None).next()) == [0]  # how long it takes is not known yet
    few = _Queue(range(10), None, workers=3)
    few.size = 2
    assert [list(few.next()) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    few.close()
    assert few.is_late()
    assert not few.next()


@pytest.mark.parametrize("together", [False, True])
def test_nothing_begins_after_the_time_limit(together, monkeypatch):
    ticks, passed = count(), [0.0]
    clock = "vcomp.numerics.parallel.monotonic"
    monkeypatch.setattr(clock, lambda: 1e-3 * next(ticks) + passed[0])

    def slow(number):
        passed[0] += 1.2
        return number

    work = BatchedWork(lambda numbers: [slow(k) for k in numbers], 1) if together else slow
    assert run(lambda: work, range(9), time_limit=1.0) == {0: 0}
    assert run(lambda: work, range(9), time_limit=1e-9) == {}


def test_results_are_saved_at_times_and_where_work_ends():
    saved = []

    def work(number):
        if number == 30:
            raise KeyboardInterrupt
        return number

    for seconds in (0.0, 600.0):
        saved.clear()
        with pytest.raises(KeyboardInterrupt):
            run(
                lambda: work,
                range(60),
                save=lambda done: saved.append(dict(done)),
                save_seconds=seconds,
            )
        assert saved
        assert all(done == {k: k for k in done} for done in saved)
        assert (len(saved) > 1) == (seconds == 0.0)
    saved.clear()
    with pytest.raises(KeyboardInterrupt):
        run(lambda: work, [30], save=saved.append)
    assert not saved  # there is nothing to save
    assert run(lambda: work, range(20), save=saved.append) == {k: k for k in range(20)}
    assert not saved


# Arguments --------------------------------------------------------------------------------------


def test_streams_are_those_of_numpy_for_each_number():
    for seed, number in ((0, 0), (3, 0), (3, 5)):
        sequence = np.random.SeedSequence(seed, spawn_key=(number,))
        expected = np.random.Generator(np.random.PCG64(sequence)).normal(size=3)
        np.testing.assert_array_equal(stream(seed, number).normal(size=3), expected)


def test_seeds():
    assert (seed_from(None), seed_from(0), seed_from(np.int64(7))) == (0, 0, 7)
    drawn = [seed_from(np.random.default_rng(k)) for k in range(300)]
    assert drawn[4] == np.random.default_rng(4).integers(2**31)
    assert all(0 <= seed < 2**31 for seed in drawn)
    for wrong in (-1, 1.0, True, "dice"):
        with pytest.raises(EstimationError, match="rng must be a seed of at least 0 or a numpy"):
            check_rng(wrong)
        with pytest.raises(EstimationError, match="rng must be"):
            seed_from(wrong)


def test_numbers_and_times():
    assert (check_count(1, "n"), check_count(np.int32(7), "n")) == (1, 7)
    for wrong in (0, -1, 1.0, True, None, "2"):
        with pytest.raises(EstimationError, match="n must be a whole number of at least 1, not"):
            check_count(wrong, "n")
    for right in (None, 1, 0.5, np.float64(3.0)):
        check_time_limit(right)
    for wrong in (0, 0.0, -1.0, True, "1", float("nan")):
        with pytest.raises(EstimationError, match="time_limit must be a positive number"):
            check_time_limit(wrong)
