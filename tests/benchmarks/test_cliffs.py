"""The benchmark of growth measures all public functions that take data."""

import inspect

import numpy as np

import vcomp
from benchmarks.bench_cliffs import Point, Series
from benchmarks.cliff_tasks import NOT_MEASURED, tasks


def public():
    """Return public functions, and methods of results, without ``vcomp.``."""
    for prefix, place in {
        "": vcomp,
        "ir.": vcomp.ir,
        "io.": vcomp.io,
        "simulate.": vcomp.simulate,
        "presets.": vcomp.presets,
        "datasets.": vcomp.datasets,
    }.items():
        for name in place.__all__:
            if inspect.isfunction(getattr(place, name)):
                yield f"{prefix}{name}"
    for name, member in inspect.getmembers(vcomp.VarianceComponentsResults):
        if not name.startswith("_") and inspect.isroutine(member):
            yield f"results.{name}"


def test_every_public_function_of_data_is_measured():
    covered = {task.function for task in tasks()} | set(NOT_MEASURED.split())
    assert set(public()) - covered == set()


def test_every_measured_or_excepted_name_exists():
    properties = {f"results.{name}" for name in dir(vcomp.VarianceComponentsResults)}
    named = {task.function for task in tasks()} | set(NOT_MEASURED.split())
    assert named - set(public()) - properties == set()


def test_names_of_tasks_differ():
    names = [task.name for task in tasks()]
    assert len(names) == len(set(names))


def test_what_is_remarkable_about_a_series():
    def series(seconds, complete):
        points = [
            [Point("fit", "p", 100 * 2**i, 100 * 2**i, s, 1.0) for i, s in enumerate(column)]
            for column in (seconds, complete)
        ]
        return Series.of(*points)

    steep = series([0.1, 0.4, 1.6], [0.1, 0.2, 0.4])
    assert np.isclose(steep.slope, 2.0)
    assert steep.flags == ["rows to the power of 2.00"]
    assert series([1.0, 0.2, 0.4], [1.0, 0.2, 0.4]).flags == ["faster on more rows"]
    assert series([2.0, 3.0, 4.0], [0.1, 0.2, 0.3]).flags == ["20 times the complete table"]
    assert series([0.1], [0.1]).flags == ["one size only"]
