"""Files are complete or as they were; links, devices and pipes are written through."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

import vcomp
from tests.helpers.command_line import run
from vcomp.data import replacing

unix = pytest.mark.skipif(os.name != "posix", reason="links, modes and pipes of Unix")


@pytest.fixture(scope="module")
def res():
    return vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


@unix
def test_a_link_stays_and_its_file_is_replaced_with_the_same_mode(res, tmp_path):
    target, link = tmp_path / "result.json", tmp_path / "link.json"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    text = res.to_json(link)
    assert link.is_symlink()
    assert target.read_text() == text
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@unix
def test_an_unfinished_file_is_not_readable_by_others(tmp_path):
    target = tmp_path / "scores.json"
    target.write_text("before")
    target.chmod(0o600)
    with replacing(target) as unfinished:
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600


@unix
def test_a_link_to_a_file_that_is_not_there_makes_it(res, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    text = res.to_json(tmp_path / "link")
    assert (tmp_path / "new").read_text() == text


@unix
def test_a_link_to_itself_is_refused(res, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(vcomp.DataError, match="loop"):
        res.to_json(tmp_path / "loop")


@unix
def test_a_device_stays_a_device(res):
    before = os.stat(os.devnull).st_rdev
    res.to_json(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert os.stat(os.devnull).st_rdev == before


@unix
def test_a_pipe_is_written_to(res, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    text = res.to_json(pipe)
    reader.join()
    assert read == [text]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@unix
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_an_error(res):
    with pytest.raises(vcomp.DataError, match="cannot write '/dev/full': No space left"):
        res.to_json("/dev/full")


@pytest.mark.parametrize(
    ("path", "message"), [("", "is empty"), ("a\0b", "is not the path"), (3, "is not the path")]
)
def test_what_is_no_path_is_refused(res, path, message):
    with pytest.raises(vcomp.DataError, match=message):
        res.to_json(path)


def test_the_data_are_not_replaced(tmp_path):
    rows, formula = tmp_path / "d.csv", "score ~ (1|sys) + (1|topic)"
    vcomp.datasets.load("bodoff2007_alpha").to_csv(rows, index=False)
    before = rows.read_bytes()
    for stream in (False, True):
        with pytest.raises(vcomp.DataError, match="is a file of the data"):
            vcomp.fit(formula, rows, stream=stream).to_json(rows)
    for given in (rows, tmp_path / "*.csv"):
        done = run("fit", formula, str(given), "--json", str(rows), check=False)
        assert done.returncode == 2
        assert "is a file of the data" in done.stderr
        assert not done.stdout
    assert rows.read_bytes() == before


@unix
def test_a_picture_is_complete_or_as_it_was(tmp_path):
    limited = (
        "import resource, signal, sys\n"
        # Python 3.11 keeps byte code that the limit has cut, for every later process.
        "sys.dont_write_bytecode = True\n"
        "from vcomp.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "main()\n"
    )
    picture = tmp_path / "old.png"
    picture.write_bytes(b"the old picture")
    fit = ["fit", "score ~ (1|sys)", "--dataset", "bodoff2007_alpha", "--plot", str(picture)]
    done = subprocess.run(
        [sys.executable, "-c", limited, *fit], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"cannot write '{picture}': File too large" in done.stderr
    assert picture.read_bytes() == b"the old picture"
    assert os.listdir(tmp_path) == ["old.png"]


@unix
def test_a_link_to_itself_in_a_folder_is_refused_as_a_file(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(vcomp.DataError, match=r"a\.csv.*symbolic links"):
        vcomp.fit("score ~ (1|sys)", tmp_path)


@unix
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error():
    program = "from vcomp.cli import main; main()"
    for redirect, reason in ((">/dev/full", "No space left"), (">&-", "output is closed")):
        line = f'exec "$0" -c "$1" datasets {redirect}'
        done = subprocess.run(
            ["sh", "-c", line, sys.executable, program],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("vcomp: error: cannot write: ")
        assert reason in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\u202e", "\r"])
def test_names_cannot_change_a_terminal(character):
    data = vcomp.datasets.load("bodoff2007_alpha")
    named = data.assign(sys=["a" + character + "]0;b" + str(x) for x in data["sys"]])
    fitted = vcomp.fit("score ~ (1|sys) + (1|topic)", named)
    pairs = fitted.compare_levels("sys")
    with pytest.raises(vcomp.DataError) as caught:
        fitted.compare_levels("sys", baseline="none")
    printed = [str(pairs), pairs.summary().as_latex(), pairs._repr_html_(), str(caught.value)]
    for text in [*printed, str(vcomp.VcompError(f"a{character}"))]:
        assert character not in text
