"""Signals, and disks that are full: no file is left half-written, and no traceback is printed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import vcomp

# A shell starts what runs in its background with SIGINT ignored, and so are these tests then.
_HEEDS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
MAIN = _HEEDS + "from vcomp.cli import main; print('begun', flush=True); main()"
pytestmark = pytest.mark.clock
unix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of Unix")


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(3)
    a, b = (axis.ravel() for axis in np.indices((40, 50)))
    path = tmp_path / "d.csv"
    pd.DataFrame({"a": a, "b": b, "y": rng.normal(size=2000)}).to_csv(path, index=False)
    return path


def ended(process, number, seconds):
    """Return exit code and errors of a program that gets a signal after some seconds."""
    time.sleep(seconds)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    return process.returncode, errors


@unix
@pytest.mark.parametrize("seconds", [0.02, 0.3, 0.8])
def test_ctrl_c_at_any_moment_prints_no_traceback(table, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "fit", "y ~ (1|a) + (1|b)", str(table)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    code, errors = ended(process, signal.SIGINT, seconds)
    assert "Traceback" not in errors
    assert code in (0, 130, -signal.SIGINT)


_MAKES_A_CLASS = """
from vcomp.cli import main
from vcomp.cli.main import cli

class Named:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt

def run(**options):
    class Made:
        name = Named()

cli.main = run
main()
"""


def test_an_interruption_while_a_class_is_made_prints_no_traceback():
    """As at an import, where Python 3.11 wraps it in a RuntimeError."""
    done = subprocess.run(
        [sys.executable, "-c", _MAKES_A_CLASS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "vcomp: interrupted\n")


_WRITES = f"""{_HEEDS}
import os, sys, time
from vcomp.data import replacing
with replacing(sys.argv[1]) as unfinished:
    unfinished.write_text("half")
    print("begun", flush=True)
    time.sleep(30)
"""


@unix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_unfinished_file(tmp_path, number):
    target = tmp_path / "result.json"
    target.write_text("before")
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITES, str(target)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    code, _ = ended(process, number, 0.0)
    assert code == -number
    assert os.listdir(tmp_path) == ["result.json"]
    assert target.read_text() == "before"


_FULL = """
import os, resource, signal, sys, tempfile
# Python 3.11 keeps byte code that the limit has cut, for every later process.
sys.dont_write_bytecode = True
import vcomp
data = vcomp.datasets.load("bodoff2007_alpha")
made = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
writes = (
    made.bootstrap(60, rng=1).save,
    made.to_json,
    vcomp.accumulate("score ~ (1|sys) + (1|topic)", data).save,
    lambda path: vcomp.io.spool(vcomp.datasets.load("docsearch"), path + ".parquet"),
)
# Loops are compiled before: their cache is on the same disk here.
with tempfile.TemporaryDirectory() as folder:
    for number, write in enumerate(writes):
        write(os.path.join(folder, str(number)))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in writes:
    try:
        write(sys.argv[1])
    except vcomp.DataError as error:
        print("refused", error)
"""


@unix
def test_a_full_disk_leaves_no_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "b")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") == 4, done.stdout
    assert os.listdir(tmp_path) == []


def test_replicates_leave_no_file_where_they_cannot_be_written(tmp_path):
    made = vcomp.fit("score ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha")).bootstrap(
        3, rng=1
    )
    with pytest.raises(vcomp.DataError, match="there is no such folder"):
        made.save(tmp_path / "none" / "b.npz")
