"""``vcomp documents``, ``assessors`` and ``subsamples``: what Python prints, tables, mistakes."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from tests.helpers.command_line import output_of
from vcomp.cli.main import cli
from vcomp.exceptions import VcompError

FORMULA = "score ~ (1|system) + (1|topic)"


@pytest.fixture(scope="module")
def track():
    return vcomp.ir.novelty_like_track(n_systems=5, n_topics=6, n_documents=12, rng=1)


@pytest.fixture(scope="module")
def trec(track, tmp_path_factory):
    """Return a folder with runs and qrels of a track, a file for each assessor."""
    folder = tmp_path_factory.mktemp("trec")
    for kind, table, name, line in (
        ("runs", track.retrieved, "system", "{0.topic} Q0 {0.document} 1 1.0 {0.system}"),
        ("qrels", track.judgements, "assessor", "{0.topic} 0 {0.document} {0.relevant:.0f}"),
    ):
        (folder / kind).mkdir()
        for label, rows in table.groupby(name, observed=True):
            lines = [line.format(row) for row in rows.itertuples()]
            (folder / kind / f"{label}.txt").write_text("\n".join(lines))
    return folder


def test_documents(track, trec, tmp_path):
    universe = vcomp.ir.document_universe(trec / "runs", trec / "qrels", relevant_from=1)
    made = vcomp.ir.per_document_study(
        universe, measures=["F"], topic=[20, 40], goal=0.9, beta=2.0
    )
    given = ("documents", trec / "runs", trec / "qrels", "topic=20,40", "--measures", "F",
             "--goal", ".9", "--beta", 2)  # fmt: skip
    picture = tmp_path / "documents.svg"
    assert output_of(*given, "--plot", picture) == f"{made}\n"
    assert picture.stat().st_size > 1000
    for name, table in (("runs", track.retrieved), ("judged", track.judgements)):
        table.astype(str).to_csv(tmp_path / f"{name}.csv", index=False)
    files = tmp_path / "runs.csv", tmp_path / "judged.csv"
    # The same documents and judgements: other labels of the assessors only.
    read = pd.read_csv(io.StringIO(output_of("documents", *files, *given[3:], "--format", "csv")))
    pd.testing.assert_frame_equal(read, made.table, check_dtype=False, rtol=1e-12)


def test_assessors(tmp_path):
    rng = np.random.default_rng(1)
    system, topic, judge = (axis.ravel() for axis in np.indices((5, 8, 3)))
    columns = {"system": system, "topic": topic, "judge": judge, "F": rng.normal(size=120)}
    scores = pd.DataFrame(columns)
    path = tmp_path / "scores.csv"
    scores.to_csv(path, index=False)
    made = vcomp.ir.assessor_study(pd.read_csv(path), "F", assessor="judge", alpha=0.1)
    given = ("assessors", path, "--response", "F", "--assessor", "judge", "--alpha", ".1")
    assert output_of(*given) == f"{made}\n"
    read = pd.read_csv(io.StringIO(output_of(*given, "--format", "csv")), index_col="source")
    pd.testing.assert_frame_equal(
        read, made.sources, check_dtype=False, check_names=False, rtol=1e-12
    )


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    data = data.rename(columns={"sys": "system"})[["system", "topic", "score"]]
    data.to_csv(folder / "scores.csv", index=False)
    labs = pd.DataFrame({"run": data["system"].unique()})
    labs["lab"] = labs.index // 2
    labs.to_csv(folder / "labs.csv", index=False)
    return folder / "scores.csv"


def test_subsamples(long, tmp_path):
    how = {"trials": 6, "grid": "each", "rng": 3, "goal": 0.9}
    made = vcomp.subsample_study(
        FORMULA, long, sizes={"system": [10], "topic": [5, 20]}, dstudy={"topic": 50}, **how
    )
    given = ("subsamples", FORMULA, long, "--sizes", "system=10 topic=5,20", "--trials", 6,
             "--grid", "each", "--seed", 3, "--goal", ".9", "--dstudy", "topic=50")  # fmt: skip
    picture = tmp_path / "spans.svg"
    assert output_of(*given, "--plot", picture) == f"{made}\n"
    assert picture.stat().st_size > 1000
    read = pd.read_csv(io.StringIO(output_of(*given, "--format", "csv")))
    pd.testing.assert_frame_equal(
        read, made.table.reset_index(drop=True), check_dtype=False, rtol=1e-12
    )


def test_one_system_of_each_group(long):
    labs = pd.read_csv(long.with_name("labs.csv")).astype({"run": str})
    groups = {"system": dict(zip(labs["run"], labs["lab"], strict=True))}
    made = vcomp.subsample_study(FORMULA, long, sizes={"system": 1}, trials=4, groups=groups)
    given = ("--sizes", "system=1", "--trials", 4, "--groups", f"system={long.parent}/labs.csv")
    assert output_of("subsamples", FORMULA, long, *given) == f"{made}\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["subsamples", FORMULA, "DATA", "--sizes", "topic"], "write FACET=N"),
        (["subsamples", FORMULA, "DATA", "--sizes", "topic=1"], "between 2 and 150"),
        (
            ["subsamples", FORMULA, "DATA", "--sizes", "system=1", "--groups", "system=DATA"],
            "groups need two, of levels and of their groups",
        ),
        (["assessors", "DATA", "--response", "F"], "no column 'F'"),
        (["documents", "DATA", "DATA"], "no column"),
        (["documents", "DATA", "DATA", "goal=.9"], "sizes are of topic, assessor and document"),
        (["documents", "DATA", "DATA", "--plot", "x.doc"], "its ending has to be one of"),
    ],
)
def test_mistakes(long, given, message):
    done = CliRunner().invoke(cli, [part.replace("DATA", str(long)) for part in given])
    assert isinstance(done.exception, VcompError)
    assert message in str(done.exception)
