"""``vcomp evals-judges`` and ``vcomp evals-repetitions``: pages, tables, families, mistakes."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcomp
from vcomp.cli.main import cli


def invoked(*arguments):
    return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    m, i, j = (a.ravel() for a in np.indices((3, 10, 2)))
    x = rng.integers(1, 5, (3, 10))[m, i] + rng.integers(0, 2, m.size)
    table = pd.DataFrame({"model": np.array(["g", "c", "l"])[m], "item": i,
                          "judge": np.array(["g-judge", "other"])[j], "score": x})  # fmt: skip
    table["gold"] = np.where(i < 4, table["score"].where(j == 0).ffill(), np.nan)
    path = tmp_path_factory.mktemp("judges") / "ratings.csv"
    table.to_csv(path, index=False)
    return path


def test_the_page_and_the_tables_of_a_card(path, tmp_path):
    options = ("--families", "g=G,g-judge=G", "--human", "gold")
    picture = tmp_path / "bias.png"
    found = invoked("evals-judges", path, *options, "--plot", picture)
    card = vcomp.evals.judges(path, families={"g": "G", "g-judge": "G"}, human="gold")
    assert found.exit_code == 0, found.output
    said = str(card).replace("repeated= names", "--repeated names")
    assert "--repeated names" in found.stdout
    assert found.stdout.rstrip() == said.rstrip()
    assert picture.stat().st_size > 0
    table = invoked("evals-judges", path, *options, "--table", "anchored", "--format", "json")
    rows = pd.DataFrame(json.loads(table.stdout))
    np.testing.assert_allclose(rows["estimate"], card.anchored["estimate"], rtol=1e-12)
    assert rows["model"].tolist() == ["g", "c", "l"]
    judges = pd.read_csv(io.StringIO(invoked("evals-judges", path, "--format", "csv").stdout))
    assert judges["judge"].tolist() == ["g-judge", "other"]


def test_each_family_has_a_name(path):
    refused = invoked("evals-judges", path, "--families", "g=G,g-judge")
    assert "'g=G,g-judge' has no names; write NAME=NAME" in str(refused.exception)
    spaced = invoked("evals-judges", path, "--families", "g = G, g-judge = G")
    assert spaced.stdout == invoked("evals-judges", path, "--families", "g=G,g-judge=G").stdout


def test_repetitions(path):
    arguments = ("evals-repetitions", path, "--passes-from", "3", "--format", "csv")
    refused = invoked(*arguments)
    assert isinstance(refused.exception, vcomp.DataError)
    table = pd.read_csv(path).drop(columns=["judge", "gold"])
    table["epoch"] = table.groupby(["model", "item"]).cumcount() + 1
    table.to_csv(path.with_name("runs.csv"), index=False)
    found = invoked(arguments[0], path.with_name("runs.csv"), *arguments[2:])
    made = vcomp.evals.repetitions(path.with_name("runs.csv"), passes_from=3)
    printed = pd.read_csv(io.StringIO(found.stdout))
    np.testing.assert_allclose(printed["estimate"], made.consistency["estimate"], rtol=1e-12)
    assert "Identical runs of 3 models" in invoked(arguments[0], path.with_name("runs.csv")).stdout


def test_names_of_columns(path):
    table = pd.read_csv(path).drop(columns="gold")
    table.rename(columns={"item": "question", "judge": "who"}).to_csv(
        path.with_name("named.csv"), index=False
    )
    names = ("--columns", "item=question,judge=who")
    found = invoked("evals-judges", path.with_name("named.csv"), *names, "--format", "csv")
    shown = pd.read_csv(io.StringIO(found.stdout)).set_index("judge")
    card = vcomp.evals.judges(table)
    np.testing.assert_allclose(shown["bias"], card.table["bias"], rtol=1e-12)
    runs = table.drop(columns="judge").assign(take=table.groupby(["model", "item"]).cumcount())
    runs.rename(columns={"item": "question"}).to_csv(path.with_name("named.csv"), index=False)
    names = ("--columns", "item=question,epoch=take", "--format", "csv")
    found = invoked("evals-repetitions", path.with_name("named.csv"), *names)
    shown = pd.read_csv(io.StringIO(found.stdout))
    made = vcomp.evals.repetitions(runs.rename(columns={"take": "epoch"})).consistency
    np.testing.assert_allclose(shown["estimate"], made["estimate"], rtol=1e-12)


@pytest.mark.parametrize("option", ["--human", "--repeated"])
@pytest.mark.parametrize("name", ["score", "model", "judge", "nosuch"])
def test_columns_that_are_no_labels_or_numbers_of_judgements(path, option, name):
    refused = invoked("evals-judges", path, option, name).exception
    assert isinstance(refused, vcomp.PlanError)
    assert refused.column == name
    said = "two roles" if name != "nosuch" else "no"
    assert said in str(refused)


def test_items_are_no_labels(path):
    assert "'item' has two roles" in str(
        invoked("evals-judges", path, "--human", "item").exception
    )


def test_judgements_numbered_by_a_column_with_gaps(path):
    """Of text with missing values: no error, and nothing is repeated."""
    found = invoked("evals-judges", path, "--repeated", "gold", "--format", "json")
    plain = pd.read_csv(path).drop(columns="gold")
    shown = pd.DataFrame(json.loads(found.stdout))
    expected = vcomp.evals.judges(plain).table
    np.testing.assert_allclose(shown["bias"], expected["bias"], rtol=1e-12)
    assert (shown["repeated"] == 0).all()


@pytest.mark.parametrize("name", ["evals", "evals-judges", "evals-repetitions", "evals-read"])
def test_words_for_scores(path, name):
    table = pd.read_csv(path).drop(columns="gold")
    words = table.assign(verdict=np.where(table["score"] > 2, "correct", "incorrect"))
    file = path.with_name("words.csv")
    words.drop(columns="score").to_csv(file, index=False)
    refused = invoked(name, file, "--columns", "score=verdict").exception
    assert isinstance(refused, vcomp.DataError)
    assert "write 1 and 0 for the words in column 'verdict'" in str(refused)
    # As advised, in the file; or another column.
    numbers = words.assign(verdict=(words["verdict"] == "correct").astype(int))
    numbers["epoch"] = numbers.groupby(["model", "item"]).cumcount()
    numbers = (
        numbers.drop(columns="judge")
        if name == "evals-repetitions"
        else numbers.drop(columns="epoch")
    )
    numbers.drop(columns="score").to_csv(file, index=False)
    assert not invoked(name, file, "--columns", "score=verdict").exception


def test_scores_of_another_column_of_a_file(path):
    table = pd.read_csv(path).drop(columns="gold").rename(columns={"score": "points"})
    file = path.with_name("points.csv")
    table.assign(score=1).to_csv(file, index=False)
    made = vcomp.evals.study(table, score="points")
    found = invoked("evals", file, "--score", "points", "--format", "csv")
    np.testing.assert_allclose(
        pd.read_csv(io.StringIO(found.stdout))["mean"], made.table["mean"], rtol=1e-12
    )


def test_scorers_of_an_inspect_log_are_judges():
    logs = Path(__file__).parents[1] / "evals" / "logs" / "inspect_0.3.285"
    path = next(logs.glob("*graded*"))
    table = vcomp.evals.read(path).table.pivot(index="item", columns="metric", values="score")
    options = ("--columns", "judge=metric", "--format", "json")
    card = json.loads(invoked("evals-judges", path, *options).stdout)
    means = {row["judge"]: row["mean"] for row in card}
    assert means == table.mean().to_dict() == {"match": 0.75, "model_graded_qa": 0.25}
    (row,) = json.loads(invoked("evals", path, *options).stdout)
    assert row["mean"] == pytest.approx(table.to_numpy().mean(), rel=1e-12)
    # Mean squares of items × scorers: items and scorers both are in the error.
    X = table.to_numpy()
    of_items, of_scorers = 2 * X.mean(axis=1).var(ddof=1), 4 * X.mean(axis=0).var(ddof=1)
    rest = (((X - X.mean(axis=1, keepdims=True) - X.mean(axis=0) + X.mean()) ** 2).sum()) / 3
    assert min(of_items, of_scorers) > rest
    assert row["std_error"] ** 2 == pytest.approx((of_items + of_scorers - rest) / 8, rel=1e-6)
