"""Replicates as a value: frames, files, and jobs that make them."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from vcomp.exceptions import DataError
from vcomp.inference.resampling.replicates import Replicates, check_same
from vcomp.numerics.parallel import run, stream


def made(n=4, **changes):
    rng = np.random.default_rng(0)
    values = rng.random((n, 2)) * 1e-200
    values[1] = np.nan
    replicates = Replicates(
        kind="parametric",
        names=("a", "Residual"),
        fixed_names=("Intercept",),
        numbers=np.array([0, 1, 3, 6][:n]),
        values=values,
        beta=rng.random((n, 1)),
        llf=np.array([-1.5, np.nan, -np.inf, 2.0][:n]),
        converged=np.array([True, False, True, True][:n]),
        seed=2**40,
        requested=7,
        fingerprint={"formula": "y ~ (1|a)", "estimates": [1.0, float("nan")]},
    )
    return replace(replicates, **changes)


@pytest.mark.parametrize("adjusted", [None, np.eye(4)[:, :2]])
def test_a_file_gives_back_every_digit(tmp_path, adjusted):
    one = made(adjusted=adjusted)
    one.save(tmp_path / "file.with.any.ending")
    two = Replicates.load(tmp_path / "file.with.any.ending")
    for name in ("numbers", "values", "beta", "llf", "converged"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert (two.adjusted is None) == (adjusted is None)
    if adjusted is not None:
        np.testing.assert_array_equal(two.adjusted, adjusted)
    for name in ("kind", "names", "fixed_names", "seed", "requested"):
        assert getattr(two, name) == getattr(one, name)
    check_same(two, "parametric", one.fingerprint, "it")
    assert [p.name for p in tmp_path.iterdir()] == ["file.with.any.ending"]


def test_frame():
    frame = made(adjusted=np.ones((4, 2))).frame
    assert frame.columns.tolist() == [
        "Intercept", "var(a)", "var(Residual)", "adjusted(a)", "adjusted(Residual)", "llf",
        "converged",
    ]  # fmt: skip
    assert frame.index.tolist() == [0, 1, 3, 6]
    assert frame.index.name == "replicate"
    assert made().frame.shape == (4, 5)


def test_first():
    first = made(adjusted=np.ones((4, 2))).first(4)
    assert first.numbers.tolist() == [0, 1, 3]
    assert made().first(3).numbers.tolist() == [0, 1]
    assert len(first) == first.requested - 1 == first.adjusted.shape[0] == first.llf.size


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 not a zip", None])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "file"
    if content is None:
        with path.open("wb") as file:
            np.savez(file, about=np.array("{}"), values=np.zeros(3))
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match="does not hold replicates"):
        Replicates.load(path)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        Replicates.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("kind", "changed", "named"),
    [
        ("jackknife", {}, "kind is 'parametric', and this fit's is 'jackknife'"),
        ("parametric", {"formula": "y ~ (1|b)"}, "formula"),
        ("parametric", {"estimates": [1.1, float("nan")]}, "estimates"),
        ("parametric", {"estimates": [1.0]}, "estimates"),
        ("parametric", {"new": 1}, "new"),
    ],
)
def test_what_differs_is_named(kind, changed, named):
    with pytest.raises(DataError, match=named):
        check_same(made(), kind, {**made().fingerprint, **changed}, "it")


def test_rounding_is_not_another_fit():
    check_same(made(), "parametric", {"estimates": [1.0 + 1e-12, float("nan")]}, "it")
    named = made(fingerprint={"facets": ["a", "b"]})
    check_same(named, "parametric", {"facets": ["a", "b"]}, "it")
    with pytest.raises(DataError, match="facets"):
        check_same(named, "parametric", {"facets": ["a", "c"]}, "it")
    numbers = np.array([3.0, 1e-3, float("nan"), float("inf")])
    for unit in (1e-30, 1.0, 1e30):
        known = made(fingerprint={"estimates": (unit * numbers).tolist()})
        for moved, same in ((1e-6, True), (-1e-6, True), (1e-5, False), (-1e-5, False)):
            others = {"estimates": (unit * (numbers + moved)).tolist()}
            if same:
                check_same(known, "parametric", others, "it")
            else:
                with pytest.raises(DataError, match="estimates"):
                    check_same(known, "parametric", others, "it")


@pytest.mark.parametrize(
    "changed",
    [
        {"values": np.ones((4, 3))}, {"values": np.ones((3, 2))}, {"beta": np.ones((4, 2))},
        {"llf": np.ones(3)}, {"converged": np.ones(5, dtype=bool)}, {"numbers": np.arange(3)},
        {"adjusted": np.ones((4, 1))},
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_refused(tmp_path, changed):
    made(**changed).save(tmp_path / "file")
    with pytest.raises(DataError, match="does not hold replicates"):
        Replicates.load(tmp_path / "file")


def test_streams_differ_by_seed_and_number():
    drawn = {stream(s, b).standard_normal() for s in range(5) for b in range(5)}
    assert len(drawn) == 25
    assert stream(3, 2).standard_normal() in drawn


@pytest.mark.parametrize("workers", [1, 3])
def test_every_number_is_worked_on_once(workers):
    seen, lock = [], threading.Lock()

    def make():
        def one(number):
            with lock:
                seen.append(number)
            return number**2

        return one

    done = run(make, range(5, 300), workers=workers, progress=False)
    assert sorted(seen) == list(range(5, 300))
    assert done == {n: n**2 for n in range(5, 300)}


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_save_what_is_done(workers):
    saved = {}

    def one(number):
        if number == 40:
            raise ArithmeticError
        return number

    with pytest.raises(ArithmeticError):
        run(lambda: one, range(2000), workers=workers, progress=False, save=saved.update)
    assert saved
    assert 40 not in saved


def test_now_and_then_it_is_saved():
    sizes = []

    def save(done):
        sizes.append(len(done))

    run(lambda: abs, range(100), progress=False, save=save, save_seconds=0.0)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 100


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_short_work_is_shared_out(workers):
    """However quick a replicate is, no worker is given what others could do."""
    from vcomp.numerics.parallel import _Queue

    queue = _Queue(range(20), None, workers)
    queue.took(1e-9)
    batches = []
    while batch := queue.next():
        assert len(batch) <= max(1, -(-(20 - sum(map(len, batches))) // workers))
        batches.append(list(batch))
    assert [number for batch in batches for number in batch] == list(range(20))
    assert len(batches[0]) == {1: 20, 2: 10, 3: 7}[workers]
