"""The memory that is there: of the system, of control groups, and of the process."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from vcomp.exceptions import EstimationError
from vcomp.numerics import available_bytes, check_memory, limited_blas, parallel, slices

GIB = 2.0**30


def system(folder, files):
    """Return a folder like ``/`` with 8 GiB of free memory and the given files."""
    files = {"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 8388608 kB\n", **files}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"{folder}/"


def test_without_control_groups_the_system_says_what_is_free(tmp_path):
    assert available_bytes(system(tmp_path, {})) == 8 * GIB


NO_COLON = pytest.mark.skipif(sys.platform == "win32", reason="names of files have no colon")


@pytest.mark.parametrize(
    "inside", ["/jobs/mine", "/", pytest.param("/user.slice:job:7", marks=NO_COLON)]
)
def test_a_control_group_of_version_2(tmp_path, inside):
    group = f"sys/fs/cgroup{inside}".rstrip("/")
    files = {
        "proc/self/cgroup": f"0::{inside}\n",
        f"{group}/memory.max": f"{2**31}\n",
        f"{group}/memory.current": f"{2**30}\n",
        f"{group}/memory.stat": f"anon 5\nfile 7\ninactive_file {2**28}\n",
    }
    assert available_bytes(system(tmp_path, files)) == 1.25 * GIB


def test_the_least_of_the_groups_above_counts(tmp_path):
    files = {"proc/self/cgroup": "0::/jobs/mine\n"}
    for group, most in (("jobs", str(2**32)), ("jobs/mine", "max")):
        files[f"sys/fs/cgroup/{group}/memory.max"] = most
        files[f"sys/fs/cgroup/{group}/memory.current"] = str(2**30)
        files[f"sys/fs/cgroup/{group}/memory.stat"] = "inactive_file 0\n"
    assert available_bytes(system(tmp_path, files)) == 3 * GIB


@pytest.mark.parametrize("path", ["/docker/0123", "/../../docker/0123", "/"])
def test_a_control_group_of_version_1_seen_from_a_container(tmp_path, path):
    files = {
        "proc/self/cgroup": f"9:cpu:/docker\n8:memory:{path}\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**30}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2**29}\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 1\ninactive_file 3\ntotal_inactive_file 4096\n",
    }
    assert available_bytes(system(tmp_path, files)) == 0.5 * GIB + 4096


def test_a_group_without_a_limit_is_none(tmp_path):
    files = {
        "proc/self/cgroup": "8:memory:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    assert available_bytes(system(tmp_path, files)) == 8 * GIB


def test_a_group_that_uses_more_than_its_limit_leaves_nothing(tmp_path):
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "4096\n",
        "sys/fs/cgroup/memory.current": "8192\n",
        "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
    }
    root = system(tmp_path, files)
    assert available_bytes(root) == 0.0
    with pytest.raises(EstimationError, match=r"a table needs 1.0 GiB, and .* are free; go on"):
        check_memory(GIB, "a table needs", "go on", free_bytes=lambda: available_bytes(root))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
def test_a_limit_of_address_space_counts():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "from vcomp.numerics import available_bytes; print(available_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.1 * GIB < float(done.stdout) < 1.9 * GIB


@pytest.mark.parametrize(("most", "free"), [(2**31, 2**31), (2**32, 2**32), (-1, None)])
def test_the_rest_of_the_address_space_but_a_quarter_of_a_gibibyte(
    tmp_path, monkeypatch, most, free
):
    """The process uses 1,000 pages; a limit of −1 is none."""
    limits = SimpleNamespace(RLIMIT_AS=9, RLIM_INFINITY=-1, getrlimit=lambda kind: (most, kind))
    monkeypatch.setattr(parallel, "resource", limits)
    root = system(tmp_path, {"proc/self/statm": "1000 20 3 4 0 5 0\n"})
    used = 1000 * os.sysconf("SC_PAGE_SIZE") + 2**28
    assert available_bytes(root) == (8 * GIB if free is None else free - used)
    root = system(tmp_path / "hidden", {})  # nothing is known of its pages
    assert available_bytes(root) == (8 * GIB if free is None else free - 2**28)


def test_four_fifths_of_the_free_memory_may_be_used():
    check_memory(800.0, "a table needs", "go on", free_bytes=lambda: 1000.0)
    with pytest.raises(EstimationError, match="a table needs"):
        check_memory(801.0, "a table needs", "go on", free_bytes=lambda: 1000.0)


def test_a_limit_of_version_1_from_2_to_the_60_on_is_none(tmp_path):
    for limit, expected in ((2**33 - 1, 2**33 - 1), (2**60, 8 * 2**30)):
        files = {
            "proc/self/cgroup": "8:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{limit}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "0\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
        }
        assert available_bytes(system(tmp_path / str(limit), files)) == expected


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
def test_slices_cover_a_range_once(count):
    found = list(slices(count, 3))
    assert [k for part in found for k in range(part.start, part.stop)] == list(range(count))
    assert all(part.stop - part.start == 3 for part in found[:-1])


def threads():
    """Return the numbers of threads of BLAS."""
    from threadpoolctl import threadpool_info

    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    from threadpoolctl import threadpool_limits

    np.ones((64, 64)) @ np.ones((64, 64))
    with threadpool_limits(2, "blas"):
        yield


def test_small_matrices_have_one_thread_of_blas(two_threads):
    with limited_blas(9999):
        assert threads() == {1}
        with limited_blas(3):
            assert threads() == {1}
        with limited_blas(10_000):  # a large one among them has all
            assert threads() == {2}
        assert threads() == {1}
    assert threads() == {2}


def test_threads_that_leave_in_any_order_restore_what_was_before(two_threads):
    """Each would restore the one thread that the other had set."""
    first, second = limited_blas(0), limited_blas(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == {2}


def test_threads_are_limited_from_the_first_part_on_until_the_last_is_left(two_threads):
    limits = parallel._Threads()
    with limits.part(limited=True):
        assert threads() == {1}
        with limits.part(limited=False):
            assert threads() == {2}
        assert threads() == {1}
    assert threads() == {2}


def test_a_library_that_is_loaded_while_another_is_limited_is_limited_too(
    two_threads, monkeypatch
):
    """SciPy brings one of its own, whose threads nothing has limited yet."""
    import scipy.linalg
    from threadpoolctl import threadpool_limits

    limits = parallel._Threads()
    monkeypatch.delitem(sys.modules, "scipy.linalg")
    with limits.part(limited=True):
        monkeypatch.setitem(sys.modules, "scipy.linalg", scipy.linalg)
        threadpool_limits(2, "blas")
        with limits.part(limited=True):
            assert threads() == {1}
    assert threads() == {2}


def test_where_the_system_says_nothing_four_gigabytes_are_assumed(tmp_path, monkeypatch):
    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(parallel, "resource", None)
    root = f"{tmp_path}/"
    assert available_bytes(root) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    monkeypatch.setattr(os, "sysconf", unknown)
    assert available_bytes(root) == 4 * GIB
