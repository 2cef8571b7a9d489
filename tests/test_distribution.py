"""The check of built distributions finds what is missing, and what does not belong there."""

import pytest

from tools.distribution import NEEDED, OF_WHEEL, faults_of_source, faults_of_wheel

PACKAGE = {name for name in NEEDED if name.startswith("vcomp/")}
WHEEL = PACKAGE | {f"variance_components-0.1.0.dist-info/{name}" for name in OF_WHEEL}


def test_a_good_distribution_has_no_faults():
    assert faults_of_source(NEEDED) == []
    assert faults_of_wheel(WHEEL, NEEDED) == []


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_missing_source_is_found(name):
    assert faults_of_source(NEEDED - {name}) == [f"sdist: no {name}"]


@pytest.mark.parametrize(
    "name",
    [
        "docs/pictures/plot_dstudy.rst", "docs/reference/api/vcomp.fit.rst",
        "docs/sg_execution_times.rst", "docs/jupyter_execute/index.ipynb", "build/site/index.html",
        "vcomp/numerics/__pycache__/sums.cpython-311.nbi",
    ],
)  # fmt: skip
def test_what_is_built_is_found(name):
    assert faults_of_source({*NEEDED, name}) == [f"sdist: {name} is built"]


@pytest.mark.parametrize("name", sorted(WHEEL))
def test_what_a_wheel_lacks_is_found(name):
    assert len(faults_of_wheel(WHEEL - {name}, NEEDED)) == 1


def test_another_package_in_a_wheel_is_found():
    assert faults_of_wheel({*WHEEL, "tests/__init__.py"}, NEEDED) == [
        "wheel: tests/__init__.py too"
    ]
