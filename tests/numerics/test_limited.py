# ruff: noqa: E501
"""Work under ``ulimit -v`` ends in the answer, or in a refusal with advice."""

import os
import subprocess
import sys

import pytest

from tests.numerics.limited import WORK

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
FEW = [("bootstrap", 3), ("henderson3", 3)]


def cases():
    if "VCOMP_LONG" in os.environ:
        return [(name, limit) for name in WORK for limit in (2, 3, 4, 6)]
    return FEW


@pytest.mark.parametrize(("name", "limit"), cases())
def test_limited_memory_ends_in_the_answer_or_in_advice(name, limit):
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, ({limit}*2**30,)*2)\n"
        f"sys.argv = ['limited', {name!r}]; runpy.run_module('tests.numerics.limited', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True, text=True, timeout=600, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(("answer", "refused")), done.stdout
