"""G-studies of rows in batches and in partitions: the same as of rows in memory, also in words."""

import warnings
from dataclasses import dataclass, field
from itertools import product

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.brennan_designs import DESIGNS, balanced_data, small_designs
from tests.helpers.cases import alternately
from tests.helpers.examples import examples
from tests.helpers.readings import study_of
from vcomp.cli.main import cli
from vcomp.formula.brennan import parse_design

WAYS = ["in batches", "stored", "Dask", "Dask, by level"]


@dataclass
class Outcome:
    """A result, or the error in its place, and what was warned of."""

    res: object = None
    error: tuple = ()
    warnings: list = field(default_factory=list)


def outcome(data, design, response="score", study=vcomp.gstudy, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", vcomp.VcompWarning)
        try:
            found = Outcome(study(design, data, response, **options))
        except vcomp.VcompError as error:
            found = Outcome(error=(type(error), str(error)))
    found.warnings = [str(w.message) for w in caught]
    return found


def read_by(way, data, design, response="score", **options):
    """Return what comes of the data where they are not kept."""
    if way.startswith("Dask"):
        return in_partitions(way, data, design, response, **options)
    reading = {"stream": True, "batch_rows": 7}
    if way == "stored":
        reading["large_share"] = 0.0
    return outcome(data, design, response, study_of, **reading, **options)


def in_partitions(way, data, design, response, **options):
    dask = pytest.importorskip("dask", reason="Dask is not installed (extra dask)")
    dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    parts = [data.iloc[k : k + 7] for k in range(0, max(len(data), 1), 7)]
    if way.endswith("by level") and len(data):
        # Partitions with whole levels of the last facet.
        parts = [part for _, part in data.groupby(data.columns[-2], sort=False, dropna=False)]
    made = dd.from_map(lambda k: parts[k], range(len(parts)), meta=data.iloc[:0])
    with dask.config.set(scheduler="synchronous"):
        return outcome(made, design, response, **options)


def same(kept, found):
    assert found.warnings == kept.warnings
    assert found.error == kept.error
    if kept.res is None:
        return
    a, b = kept.res, found.res
    assert b.formula == a.formula
    assert b.design == a.design
    assert list(b.vcomp.index) == list(a.vcomp.index)
    # Components that are estimated as zero are so to the scale of the others.
    scale = a.vcomp.abs().max()
    np.testing.assert_allclose(b.vcomp, a.vcomp, rtol=1e-9, atol=1e-11 * scale)


def check(data, design, response="score", ways=WAYS, **options):
    """Compare ways with rows in memory, and return what those come to."""
    return check_ways(data, design, response, ways, **options)[0]


def check_ways(data, design, response="score", ways=WAYS, **options):
    """Compare ways with rows in memory; return what those come to, and the results of the ways."""
    kept, results = outcome(data, design, response, **options), []
    for way in ways:
        found = read_by(way, data, design, response, **options)
        same(kept, found)
        results.append(found.res)
    return kept, results


def data_of(text, n=2, replicates=1, unique=(), seed=0):
    design = parse_design(text)
    sizes = {f: n + k % 2 for k, f in enumerate(design.facets)}
    return balanced_data(design, sizes, replicates, seed, unique)


def nested(text):
    design = parse_design(text)
    return tuple(f for f in design.facets if design.nested_in[f])


@pytest.mark.parametrize(
    ("case", "how"),
    alternately(
        [(text, "apart" if k % 2 and nested(text) else "anew") for k, text in enumerate(DESIGNS)],
        *product(WAYS, (2, 1)),
    ),
)
def test_balanced_data_of_any_design(case, how):
    """Labels of nested facets start anew or do not; what is printed is the same to a letter."""
    (text, labels), (way, replicates) = case, how
    unique = nested(text) if labels == "apart" else ()
    data = data_of(text, replicates=replicates, unique=unique)
    kept, (found,) = check_ways(data, text, ways=[way], method="anova")
    assert kept.res is not None
    assert str(found.summary()) == str(kept.res.summary())
    table, planned = found.dstudy().table, kept.res.dstudy().table
    pd.testing.assert_frame_equal(table, planned, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("text", "how"), alternately(DESIGNS[::2], *product(("reml", "anova"), (1, 2), WAYS))
)
def test_unbalanced_data_of_any_design(text, how):
    method, replicates, way = how
    data = data_of(text, n=3, replicates=replicates, seed=3)
    rng = np.random.default_rng(5)
    some = data[rng.random(len(data)) > 0.1].reset_index(drop=True)
    kept = check(some, text, ways=[way], method=method)
    assert kept.res is not None


@settings(max_examples=examples(12), deadline=None)
@given(small_designs(most=3), st.data())
def test_any_rows(design, data):
    """Also those that contradict the design, or confound its effects."""
    n = data.draw(st.integers(10, 24))
    columns = {
        f: data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)) for f in design.facets
    }
    frame = pd.DataFrame({**columns, "score": np.random.default_rng(0).normal(size=n)})
    kept = outcome(frame, str(design), method="anova")
    for way in ("in batches", "stored", "Dask"):
        same(kept, read_by(way, frame, str(design), method="anova"))


def latin_square():
    rows = [(p, i, (p + i) % 5) for p in range(5) for i in range(5)]
    return pd.DataFrame(rows, columns=[*"pio"])


def partly_crossed():
    rows = [(p, i, (p + i) % 3, j) for p in range(6) for i in range(6) for j in range(2)]
    return pd.DataFrame(rows, columns=[*"pioj"])


CONFOUNDED = {
    "one level": ("p x i x o", data_of("p x i", n=4).assign(o="once")),
    "one level in each": ("p x (i:h)", data_of("p x h", n=4).assign(i=0)),
    "one label in each": ("p x (i:h)", data_of("p x h", n=4).assign(i=lambda d: d["h"] * 7)),
    "in the middle": ("d:i:h", data_of("d:h", n=3, replicates=2).assign(i=1)),
    "one to one": (
        "p x i x judge",
        data_of("p x i", n=4).assign(judge=lambda d: "judge " + d["i"].astype(str)),
    ),
    "nested in one of two": (
        "p x i x (d:judge)",
        data_of("p x (d:i)", n=3).assign(judge=lambda d: d["i"] + 10),
    ),
    "latin square": ("p x i x o", latin_square()),
    "one occasion": ("p x i x o x j", partly_crossed()),
    "scores of a cell": ("i:p", data_of("i:p", n=4)),
    "scores of a cell, labelled": ("i:p", data_of("i:p", n=4, unique=["i"])),
    "scores of cells": ("i:(p x h)", data_of("i:(p x h)", n=3, unique=["i"])),
}


REPEATED = [
    pytest.param(name, how, marks=pytest.mark.rounding if name == "one occasion" else ())
    for name, how in alternately(CONFOUNDED, *product(WAYS, ("reml", "anova")))
]


@pytest.mark.parametrize(("name", "how"), REPEATED)
def test_what_the_data_cannot_tell_apart(name, how):
    way, method = how
    design, data = CONFOUNDED[name]
    if "score" not in data.columns:
        data = data.assign(score=np.random.default_rng(1).normal(size=len(data)))
    kept, (found,) = check_ways(data, design, ways=[way], method=method)
    assert kept.res is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        assert str(found.summary()) == str(kept.res.summary())
        assert str(found.design) == str(kept.res.design)


SIX = pd.DataFrame({"p": range(6), "q": 1, "i": range(6), "score": np.arange(6.0) ** 2})


@pytest.mark.parametrize(
    ("design", "data"),
    [
        ("p x i x h", data_of("p x (i:h)", n=3, unique=["i"])),
        ("r x p x t", data_of("r:(p x t)", n=3, unique=["r"]).sample(frac=1.0, random_state=1)),
        ("p x (h:i)", data_of("p x (i:h)", n=3, unique=["i"])),
        ("p", SIX),
        ("q", SIX),
        ("i:q", SIX),
    ],
)
def test_designs_that_the_data_contradict(design, data):
    assert check(data, design).error[0] is vcomp.DesignError


CROSSED = data_of("p x i", n=3).rename(columns={"p": "person", "i": "item"})


@pytest.mark.parametrize(
    ("design", "options"),
    [
        ("persn x item", {}),
        ("p x item", {}),
        ("z x item", {}),
        ("p x item", {"facets": {"p": "persn"}}),
        ("p x i", {"facets": {"q": "person"}}),
        ("p x i", {"facets": "person"}),
        ("p x i", {"facets": {"person": "p"}}),
        ("p x item", {"facets": {"p": 3}}),
        ("p x item", {"facets": {"p": "item"}}),
        ("person x", {}),
        ("person x replicate", {}),
        ("person x score", {}),
        ("person x item", {"response": "scor"}),
        ("person x item", {"response": "person_name"}),
        ("person x item", {"response": 3}),
        ("person x item", {"response": ""}),
        ("person x item", {"response": "score +"}),
        ("person x item", {"missing": "mend"}),
        ("person x item", {"nonsense": 1}),
    ],
)
def test_designs_and_columns_that_do_not_fit(design, options):
    assert check(CROSSED, design, **options).error


@pytest.mark.parametrize("data", [CROSSED.iloc[:0], CROSSED.assign(score=np.nan)])
def test_data_without_scores(data):
    assert check(data, "person x item").error[0] is vcomp.DataError


def test_options_that_make_no_sense():
    for options, text in (
        ({"stream": "yes"}, "stream='yes' is not known"),
        ({"progress": 3}, "progress=3 is not known"),
    ):
        assert text in outcome(CROSSED, "person x item", **options).error[1]


def test_other_names_and_missing_values():
    """Rows are left out as in memory, also where what they lack is told apart by nothing."""
    data = data_of("p x (i:h)", n=4).rename(columns={"p": "person", "i": "exam item"})
    data = data.assign(once="once", p=np.arange(len(data)))
    data.loc[3, "score"] = np.nan
    data.loc[[8, 9], "once"] = None
    names = {"p": "person", "i": "exam item"}
    kept = check(data, "p x (i:h) x once", "score", facets=names)
    assert kept.res.nobs == len(data) - 3
    assert "3 of" in kept.warnings[0]
    assert check(data, "p x (i:h)", "score", facets=names, missing="raise").error
    assert check(data, "p x (i:h)", "I(score + 3)", facets=names).res.nobs == len(data) - 1


def test_fitted_values_are_of_the_facets_of_the_design(tmp_path):
    """Column p is no facet here, facet p is column person."""
    data = data_of("p x (i:h)", n=4).rename(columns={"p": "person"}).assign(p=1.0, once="once")
    data.loc[[8, 9], "once"] = None
    options = {"facets": {"p": "person"}, "design": "p x (i:h) x once", "response": "score"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        kept = vcomp.gstudy(data=data, **options)
        found = study_of(data=data, **options, stream=True, batch_rows=7)
    path = found.augment(path=tmp_path / "rows.parquet")
    written, expected = pd.read_parquet(path), kept.augment().reset_index(drop=True)
    assert list(written.columns) == list(expected.columns) == [
        "score", "p", "h", "i", "fitted", "resid",
    ]  # fmt: skip
    for name in written.columns:
        np.testing.assert_allclose(written[name].astype(float), expected[name], rtol=1e-9)


def test_effects_of_cells_that_were_put_away():
    data = data_of("p x a x (d:i)", n=4, unique=["d"])
    kept = vcomp.gstudy("p x a x (d:i)", data, "score")
    found = study_of("p x a x (d:i)", data, stream=True, large_share=0.0)
    assert found.random_effects.keys() == kept.random_effects.keys()
    for name, effects in kept.random_effects.items():
        pd.testing.assert_frame_equal(found.random_effects[name], effects, rtol=1e-7, atol=1e-9)


def test_files_and_what_can_be_read_once(tmp_path):
    data = data_of("p x (i:h)", n=4)
    for k, part in data.groupby("h"):
        part.to_parquet(tmp_path / f"part{k}.parquet")
    kept = outcome(data, "p x (i:h)")
    same(kept, outcome(tmp_path, "p x (i:h)", stream=True))
    once = (part for _, part in data.groupby("h"))
    assert "can be read only once" in outcome(once, "p x (i:h)", stream=True).error[1]
    same(kept, outcome((part for _, part in data.groupby("h")), "p x (i:h)"))


class Frames:
    """Frames that can be gone through again, and how often they were."""

    def __init__(self, frames):
        self.frames, self.times = frames, 0

    def __iter__(self):
        self.times += 1
        return iter(self.frames)


def test_rows_are_read_no_more_often_than_for_a_formula():
    """Whatever has to be found out of the design."""
    frames = [Frames([data_of("p x (i:h)", n=4)]) for _ in range(2)]
    vcomp.gstudy("p x (i:h)", frames[0], "score", stream=True)
    vcomp.fit("score ~ (1|p) + (1|h/i)", frames[1], stream=True)
    assert frames[0].times == frames[1].times


def test_variables_of_the_scope():
    frame = data_of("p x i", n=3)
    p, i, score = (frame[c].to_numpy() for c in ("p", "i", "score"))
    assert p.size == i.size == score.size
    found = vcomp.gstudy("p x i", None, "score", method="anova", stream=True)
    np.testing.assert_allclose(
        found.vcomp, vcomp.gstudy("p x i", frame, "score", method="anova").vcomp, rtol=1e-11
    )


# In a shell -------------------------------------------------------------------------------------


def run(*arguments):
    done = CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_files_on_the_command_line(tmp_path):
    data = data_of("p x (i:h)", n=4).rename(columns={"p": "person"})
    files = [tmp_path / f"part{k}.parquet" for k in range(4)]
    for file, (_, part) in zip(files, data.groupby("h"), strict=True):
        part.to_parquet(file)
    asked = ["--design", "p x (i:h)", "--response", "score", "--facet", "p=person"]
    kept = run("gstudy", tmp_path, *asked, "--dstudy", "i=3,9", "--no-stream")
    written = tmp_path / "out" / "rows.parquet"
    written.parent.mkdir()
    streamed = run(
        "gstudy", *files, *asked, "--dstudy", "i=3,9", "--stream", "--no-progress",
        "--augment", written,
    )  # fmt: skip
    assert (
        streamed == kept == run("gstudy", f"{tmp_path}/part*.parquet", *asked, "--dstudy", "i=3,9")
    )
    assert pd.read_parquet(written).columns.tolist() == ["score", "p", "h", "i", "fitted", "resid"]
    assert run("gstudy", *files[:2], *asked) != run("gstudy", *files, *asked)


def test_a_command_without_data():
    with pytest.raises(click.UsageError, match="give one of DATA and --dataset"):
        run("gstudy", "--design", "p x i", "--response", "score")


def test_limits_are_those_of_rows_in_memory_to_rounding():
    """Sums in another order change degrees of freedom of 2 in the last bits, and no limit."""
    sizes = {"r": 2, "i": 3, "v": 3, "p": 9, "k": 2}
    codes = (a.ravel() for a in np.indices(tuple(sizes.values())))
    data = pd.DataFrame(dict(zip(sizes, codes, strict=True)))
    rng = np.random.default_rng(23)
    data["y"] = rng.normal(size=len(data)) + rng.normal(size=20)[data["p"]]
    columns = [f"{c}_{end}" for c in ("Erho2", "Phi") for end in ("low", "high")]
    found = [
        vcomp.gstudy("v:(r x i) x p", data, "y", method="anova", stream=stream)
        .dstudy(object="p")
        .table[columns]
        for stream in (False, True)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
