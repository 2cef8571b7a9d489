"""A few cases of each fuzzer, and that each finds a bug that is planted."""

import os
import signal
import time
from unittest import mock

import pytest

import vcomp
from tests.fuzz import apart, fuzzers
from tests.fuzz.driver import Counts, Fuzzer, TooSlow, generator, run_case, run_cases
from tests.fuzz.long_run import run_long

FEW = {
    "formulas": 200, "designs": 200, "costs": 200, "expressions": 60, "json": 25, "statistics": 25,
    "replicates": 25, "csv": 25, "parquet": 25, "trec": 40, "command": 10, "tables": 15, "fits": 8,
}  # fmt: skip


@pytest.mark.parametrize("fuzzer", fuzzers.ALL, ids=lambda f: f.name)
def test_every_case_ends_in_a_result_or_a_refusal(fuzzer, tmp_path):
    counts = run_cases(fuzzer, range(1000, 1000 + FEW[fuzzer.name]), tmp_path)
    failures = [f for f in counts.failures if "TooSlow" not in f["error"]]  # compilation
    assert failures == []


class PlantedError(Exception):
    """A bug."""


def broken(*_, **__):
    raise PlantedError


# What each fuzzer must reach: a bug there is found within a few cases.
PLACES = {
    "formulas": "tests.fuzz.fuzzers.parse",
    "designs": "tests.fuzz.fuzzers.parse_design",
    "costs": "tests.fuzz.fuzzers.parse_cost",
    "expressions": "vcomp.inference.expression._QuantityReader._operation",
    "json": "vcomp.model.record.FitRecord._check",
    "statistics": "vcomp.statistics.batches.stored._checked",
    "replicates": "vcomp.inference.resampling.replicates.Replicates._check",
    "csv": "vcomp.data.files._CSV.columns",
    "parquet": "vcomp.data.parts._with_own_order",
    "trec": "vcomp.ir.topic_scores._read_eval",
    "command": "vcomp.cli.data_commands.data_of_paths",
    "tables": "vcomp.data.rows.as_levels",
    "fits": "vcomp.model.model.VarianceComponentsModel.fit",
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("parquet", 12948),  # pyarrow ended the process
        ("parquet", 16647),
        ("json", 48357),  # two fixed effects of one name
    ],
)
def test_cases_that_failed(name, case, tmp_path):
    (fuzzer,) = (f for f in fuzzers.ALL if f.name == name)
    assert run_case(fuzzer, case, tmp_path) in (None, "refused")


@pytest.mark.parametrize("fuzzer", fuzzers.ALL, ids=lambda f: f.name)
def test_each_fuzzer_finds_a_planted_bug(fuzzer, tmp_path):
    fuzzers._stored()
    fuzzers._result()
    for kind in range(3):
        fuzzers._sums_file(kind)
    with mock.patch(PLACES[fuzzer.name], broken):
        counts = run_cases(fuzzer, range(60), tmp_path)
    assert any("PlantedError" in failure["error"] for failure in counts.failures) or (
        # The readers of files take any error for damage: then nothing is a result any more.
        fuzzer.name in ("statistics", "replicates") and counts.result == 0
    )


def test_a_wrong_number_is_found(tmp_path):
    twice = Fuzzer("wrong", lambda rng, folder: _assert_same(rng))
    assert run_cases(twice, range(3), tmp_path).failed == 3


def _assert_same(rng):
    assert rng.random() < 0.0


@pytest.mark.parametrize("wait", [lambda: time.sleep(30), lambda: all(iter(lambda: True, 0))])
def test_a_hang_is_found(wait, tmp_path):
    """Whether it waits or works."""
    with pytest.raises(TooSlow):
        run_case(Fuzzer("hang", lambda rng, folder: wait()), 0, tmp_path, seconds=0.02)


def test_a_case_is_repeated_by_its_number():
    assert generator("csv", 7).random() == generator("csv", 7).random()
    assert generator("csv", 7).random() != generator("csv", 8).random()


def _some(rng, folder):
    """Note the case; end in one of all ways."""
    number = len(list(folder.parent.glob("drawn*")))
    (folder.parent / f"drawn{number}").write_text(str(rng.random()))
    match number:
        case 1:
            raise vcomp.PlanError("odd")
        case 2 | 4:
            os.write(2, b"instance of 'parquet::Error'" if number == 2 else b"an assertion")
            os.abort()
        case 3:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(1000)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signals of this kind")
def test_a_long_run_goes_on_where_it_stopped_and_after_an_end_of_the_process(tmp_path):
    """A case that aborts, or sleeps without an alarm, ends its process and is counted."""
    fuzzer = Fuzzer("some", _some)
    for goal in (3, 6):
        with mock.patch.object(apart, "LONGEST", 3.0):
            found = run_long([fuzzer], tmp_path / "state", tmp_path, {"some": goal}, 1.0)["some"]
    assert len({file.read_text() for file in tmp_path.glob("drawn*")}) == found.cases == 6
    assert (found.result, found.refused, found.failed, found.aborted) == (2, 1, 2, 1)
    ends = [(failure["case"], failure["error"].split(":")[0]) for failure in found.failures]
    assert ends == [(2, "SIGABRT"), (3, "no answer within 3 s"), (4, "SIGABRT")]
    assert "test_fuzz.py" in found.failures[0]["where"]
    assert Counts(result=1, refused=2, failed=3, aborted=1).cases == 7
