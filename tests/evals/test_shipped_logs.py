"""The logs of the tutorial: what lm_eval and Inspect say of them, and what they do not say."""

import json
import re
import tarfile

import pytest

import vcomp
from tests.helpers.pages import ROOT

ARCHIVE = ROOT / "docs" / "tutorials" / "languages.tar.xz"
PROGRAMS = ("langdetect", "whatlang")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    with tarfile.open(ARCHIVE) as packed:
        kept = [m for m in packed.getmembers() if any(name in m.name for name in PROGRAMS)]
        packed.extractall(folder, kept, filter="data")
    return folder


def test_means_of_tasks_are_those_of_the_harness(logs):
    table = vcomp.evals.read(logs / "forms").table
    means = table.groupby(["model", "seed", "task"], observed=True)["score"].agg(["mean", "size"])
    assert len(means) == 16
    assert (means["size"] == 400).all()
    for path in (logs / "forms").glob("*/results_*.json"):
        stored = json.loads(path.read_text("utf-8"))
        for task, of_task in stored["results"].items():
            ours = means.loc[(stored["model_name"], str(stored["config"]["random_seed"]), task)]
            assert ours["mean"] == pytest.approx(of_task["exact_match,none"], rel=1e-12)


def test_accuracies_are_those_of_inspect(logs):
    for path in (logs / "judges").glob("*.json"):
        table = vcomp.evals.read(path).table
        scores = json.loads(path.read_text("utf-8"))["results"]["scores"]
        stored = {of["name"]: of["metrics"]["accuracy"]["value"] for of in scores}
        means = table.groupby("metric", observed=True)["score"].mean()
        assert means.to_dict() == pytest.approx(stored, rel=1e-12)


def test_no_log_names_a_folder_of_the_machine_that_wrote_it(logs):
    for path in filter(lambda path: path.is_file(), logs.rglob("*")):
        assert not re.search(r'"/\w+/|[A-Z]:\\\\|file://', path.read_text("utf-8")), path.name
