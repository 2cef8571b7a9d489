"""Comparisons with plain R: the same answers where R is there, and a sentence where it is not."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pandas as pd
import pytest

from benchmarks import bench_reliability
from benchmarks.common import Report, Settings, attempt, score_matrix
from benchmarks.compare import fit_lme4, reliability
from benchmarks.compare.script import run_script
from vcomp.ir.splits import Halves

QUICK = Settings(quick=True, limit=60.0)
with_r = pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")


def pretend(monkeypatch, folder, shell):
    """Put an Rscript of our own in the place of any that is installed."""
    program = folder / "Rscript"
    program.write_text(f"#!/bin/sh\n{shell}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_without_r_a_sentence_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = Report()
    bench_reliability.run(report, QUICK)
    assert report.comparisons == []
    omitted = [line for line in capsys.readouterr().out.splitlines() if "omitted" in line]
    assert len(omitted) == 9
    assert all(line.endswith("plain R: Rscript is not installed") for line in omitted)


def test_without_r_no_model_is_fitted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = fit_lme4("y ~ (1|a)", pd.DataFrame({"y": [1.0], "a": [1]}), reml=True, limit=1.0)
    assert peer == "lme4: Rscript is not installed"


def test_the_error_of_r_is_the_reason(monkeypatch, tmp_path):
    pretend(
        monkeypatch, tmp_path, "echo 'Error in library(ks): no package' >&2; echo x >&2; exit 1"
    )
    found = reliability.simulate(np.eye(3), 3, repeats=1, limit=9.0)
    assert found == "plain R: Error in library(ks): no package"


def test_scripts_that_take_too_long_are_given_up(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, "while :; do :; done")
    found = run_script("Rscript", "reliability.R", "R", limit=0.5)
    assert found == "R not done in 0.5 s of processor time (--limit)"


def test_work_is_given_up_by_its_processor_time_and_memory():
    def turn():
        while True:
            pass

    assert attempt(turn, 0.5) == "not done in 0.5 s of processor time (--limit)"
    # A process that waits uses none.
    assert attempt(lambda: time.sleep(1.2) or "waited", 0.5) == "waited"
    few = 2**30
    assert attempt(lambda: np.ones(few), 5.0, memory=few) == "needs more than 1 GiB"


def test_what_r_does_not_know_is_nan(monkeypatch, tmp_path):
    pretend(
        monkeypatch,
        tmp_path,
        """echo '{"accuracies": {"tau": [0.5, null]}, "predicted": {"tau": {"exp1": [1]}},
        "seconds": 2}'""",
    )
    halves = [Halves.of([[0]], [[1]]), Halves.of([[0, 1]], [[2, 3]])]
    found = reliability.split_half(
        np.eye(4), halves, ["tau"], [5], anew=False, repeats=1, limit=9.0
    )
    np.testing.assert_array_equal(found.accuracies["tau"], [0.5, np.nan])
    np.testing.assert_array_equal(found.predicted["tau"]["exp1"], [1.0])
    assert found.seconds == 2.0


@with_r
def test_expected_tau_of_r_is_that_of_two_systems():
    # Two systems: Eτ = 1 - 2 Φ(-√n D̄ / s), D̄ = 0.2 and s = 0.1 here.
    scores = np.array([[0.1, 0.2], [0.1, 0.3], [0.1, 0.4]])
    found = reliability.expect_tau(scores, [1, 4], repeats=1, limit=60.0)
    np.testing.assert_allclose(found.estimate, [0.954499736103642, 0.999936657516334], atol=1e-12)
    w = (1.0 - found.estimate) / 2.0
    np.testing.assert_allclose(found.variance, 4.0 * w * (1.0 - w), atol=1e-12)


@with_r
@pytest.mark.parametrize(
    ("measures", "anew", "lines"),
    [
        (("tau_ap",), False, 1),
        (("tau", "tau_ap", "sens_abs", "sens_rel"), False, 2),
        (("tau", "sens_rel"), True, 1),
    ],
)
def test_r_and_vcomp_agree_on_halves(measures, anew, lines, capsys):
    report = Report()
    bench_reliability._compare_halves(report, QUICK, score_matrix(20, 6), measures, anew=anew)
    assert len(report.comparisons) == lines, capsys.readouterr().out


@with_r
def test_r_and_vcomp_make_the_same_of_the_same_normals(capsys):
    report = Report()
    bench_reliability._compare_simulation(report, QUICK, score_matrix(20, 6))
    printed = capsys.readouterr().out
    if "package" in printed:
        pytest.skip(printed.strip())
    assert len(report.comparisons) == 2, printed
