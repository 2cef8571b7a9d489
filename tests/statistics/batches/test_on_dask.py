"""Rows in partitions come to the same result as rows in memory, whatever happens to a worker."""

import gc
import multiprocessing
import os
import warnings
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patsy import EvalEnvironment

import vcomp
from tests.helpers.designs import GRIDS, gridded, unbalanced
from tests.helpers.examples import examples
from tests.helpers.readings import model_of
from tests.statistics.batches.test_gather import few_repeats
from vcomp.data.reading import Reading
from vcomp.formula import parse
from vcomp.statistics.batches import on_dask as module

dask = pytest.importorskip("dask", reason="Dask is not installed (extra dask)")
dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed (extra dask)")
distributed = pytest.importorskip("distributed", reason="Dask has no workers (extra dask)")

# Which older versions say in the tests that come after those with a cluster.
pytestmark = pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")


@pytest.fixture(autouse=True)
def _here():
    """Partitions are worked on in this process, where no cluster is asked for."""
    with dask.config.set(scheduler="synchronous"):
        yield


def _started_fast():
    """Return how workers are started: as copies of a process with all imports, where there are."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return {}
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(method):
        context = distributed.utils.get_mp_context()
    context.set_forkserver_preload(
        ["distributed", "vcomp.statistics.batches.on_dask", "dask.dataframe"]
    )
    return method


@contextmanager
def two_workers(folder):
    """Give the client of two worker processes."""
    with (
        dask.config.set(_started_fast()),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=folder
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client
    with warnings.catch_warnings():
        # Sockets of workers that were killed, before another test is blamed for them.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two worker processes that live as long as the tests of this module."""
    with two_workers(str(tmp_path_factory.mktemp("dask"))) as client:
        yield client


@pytest.fixture
def on_cluster(cluster):
    with dask.config.set(scheduler="distributed"):  # the client of the fixture
        yield cluster


@pytest.fixture
def on_mortal_cluster(tmp_path):
    """Two worker processes of one test, since Dask may fail to restart those that are killed."""
    with two_workers(str(tmp_path)) as client, dask.config.set(scheduler="distributed"):
        yield client


def partitioned(data, by=None):
    """Return rows in partitions: one for every level of a column, or of every few rows."""
    if by is None:
        return dd.from_pandas(data.reset_index(drop=True), npartitions=5, sort=False)
    parts = [part for _, part in data.groupby(by, sort=False)]
    return dd.from_map(lambda k: parts[k], range(len(parts)), meta=data.iloc[:0])


def same(kept, found, tolerance=1e-11):
    """As for batches: components to a share of the largest, and what is printed to a letter."""
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(found.vcomp, kept.vcomp, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(found.llf, kept.llf, rtol=tolerance, atol=tolerance * kept.nobs)
    np.testing.assert_allclose(found.fe_params, kept.fe_params, rtol=1e2 * tolerance, atol=1e-10)
    assert str(found.design) == str(kept.design)


@pytest.mark.filterwarnings("ignore:.*not fully crossed:vcomp.VcompWarning")
@pytest.mark.parametrize("name", sorted(GRIDS)[::4])
def test_complete_grids(name):
    formula, data = gridded(name, seed=4)
    same(vcomp.fit(formula, data), vcomp.fit(formula, partitioned(data)))


@pytest.mark.filterwarnings("ignore:.*not fully crossed:vcomp.VcompWarning")
@pytest.mark.parametrize("name", ["crossed, replicated", "nested", "crossed and nested"])
def test_other_designs(name):
    formula, data = unbalanced(name)
    same(vcomp.fit(formula, data), vcomp.fit(formula, partitioned(data)))


@pytest.mark.filterwarnings("ignore:.*not connected:vcomp.VcompWarning")
def test_rows_of_a_large_empty_table_stay_rows():
    data = few_repeats(20)
    res = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", dd.from_pandas(data, npartitions=5))
    assert res.statistics.cells.counts is None
    expected = vcomp.fit("y ~ (1|a) + (1|b)", data)
    np.testing.assert_allclose(res.fit().vcomp, expected.vcomp, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*not connected:vcomp.VcompWarning")
def test_cells_about_as_many_as_the_rows_are_added_by_the_client(on_cluster):
    data = few_repeats(200)
    frame, begun = dd.from_pandas(data, npartitions=5), []
    fit = vcomp.fit("y ~ (1|a) + (1|b)", frame)
    same(vcomp.fit("y ~ (1|a) + (1|b)", data), fit)
    record = dask.callbacks.Callback(pretask=lambda key, *_: begun.append(str(key)))
    with dask.config.set(scheduler="synchronous"), record:
        vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", frame)
    assert len([key for key in begun if key.startswith("_added")]) == 1  # of the surveys


def test_rows_are_put_away_in_either_way():
    """Partitions with many cells that are not complete, and with few that are."""
    formula, data = gridded("deep, replicated", seed=4)
    kept = vcomp.fit(formula, data)
    same(kept, vcomp.fit(formula, partitioned(data.sample(frac=1.0, random_state=2))))
    same(kept, vcomp.fit(formula, partitioned(data.sort_values(list("abcd")))))


@settings(max_examples=examples(10), deadline=None)  # Dask makes a graph
@given(seed=st.integers(0, 99), cuts=st.sets(st.integers(0, 79), max_size=12))
def test_any_partitioning_gives_the_same(seed, cuts):
    """Also partitions without rows, and more of them than one task adds up."""
    formula, data = gridded("per document", seed=seed % 3)
    shuffled = data.sample(frac=1.0, random_state=seed)
    ends = [0, *sorted(cuts), *([79] if seed % 2 else []), len(shuffled)]
    parts = [shuffled.iloc[a:b] for a, b in pairwise(ends)]
    made = dd.from_map(lambda k: parts[k], range(len(parts)), meta=data.iloc[:0])
    same(vcomp.fit(formula, data), vcomp.fit(formula, made))


@pytest.mark.parametrize("fixed", ["C(g) + x", "0 + xd + np.log(shift + x**2)"])
def test_fixed_parts_and_names_of_the_caller(fixed):
    shift = 2.5
    formula, data = gridded("per document", seed=1)
    data["g"] = data["i"].map({0: "a", 1: "b", 2: "b", 3: "c"})
    formula = formula.replace("y ~", f"I(y / shift) ~ {fixed} +").replace("(1|i) + ", "")
    same(vcomp.fit(formula, data), vcomp.fit(formula, partitioned(data)))
    assert shift == 2.5


STATEFUL = [
    "center(x)",
    "standardize(x)",
    "bs(x, df=4)",
    "0 + cr(x, df=3)",
    "scale(x):C(k) + C(k)",
    "C(k)",
    "0 + C(k)",
    "C(k, Sum)",
    "C(k > 1)",
    "standardize(center(x) + shift)",
    "center(np.log(shift + x**2)) + g",
]


def with_numbers(data):
    """Add a number with five values, of which each partition by i has some, and a factor."""
    return data.assign(one=1.0, k=data["d"] % 5, g=data["i"].map({0: "a", 1: "b", 2: "b", 3: "c"}))


@cache
def kept_with(fixed):
    """Return formula, data and the fit of rows in memory."""
    shift = 2.5
    formula, data = gridded("per document", seed=1)
    data = with_numbers(data)
    formula = formula.replace("~", f"~ {fixed} +").replace("(1|i) + ", "")
    kept = vcomp.fit(formula, data)
    assert shift == 2.5
    return formula, data, kept


@pytest.mark.parametrize(
    ("fixed", "by"),
    [*((fixed, "i") for fixed in STATEFUL[::3]), *((f, None) for f in STATEFUL[1::5])],
)
def test_fixed_parts_that_depend_on_all_rows(fixed, by):
    shift = 2.5
    formula, data, kept = kept_with(fixed)
    found = vcomp.fit(formula, partitioned(data, by))
    assert list(found.fe_params.index) == list(kept.fe_params.index)
    same(kept, found, 1e-10)
    np.testing.assert_allclose(found.bse_fe, kept.bse_fe, rtol=1e-8)
    assert shift == 2.5


@pytest.mark.parametrize("fixed", ["bs(x, df=4) + standardize(center(k))", "C(k) + g"])
def test_such_fixed_parts_on_workers(fixed, on_cluster):
    formula, data = gridded("per document", seed=1)
    data = with_numbers(data)
    formula = formula.replace("~", f"~ {fixed} +").replace("(1|i) + ", "")
    same(vcomp.fit(formula, data), vcomp.fit(formula, partitioned(data, "i")), 1e-10)


def test_splines_that_few_rows_do_not_tell():
    """In batches, too, where coding is learned of few rows first."""
    formula, data = gridded("per document", seed=1)
    formula = formula.replace("~", "~ 0 + cr(x, df=3) +").replace("(1|i) + ", "")
    streamed = model_of(formula, data, stream=True, batch_rows=7).fit()
    same(vcomp.fit(formula, data), streamed, 1e-10)


@pytest.mark.parametrize("fixed", ["cr(one, df=3)", "center(g)", "float(x)"])
def test_fixed_parts_that_cannot_be_learned(fixed):
    formula, data = gridded("per document", seed=1)
    data, formula = with_numbers(data), formula.replace("~", f"~ {fixed} +")
    errors = []
    for options in ({"data": data}, {"data": data, "stream": True}, {"data": partitioned(data)}):
        with pytest.raises(vcomp.FormulaError, match="an expression of the formula: ") as caught:
            vcomp.fit(formula, **options)
        errors.append(str(caught.value))
    assert len(set(errors)) == 1


def test_such_fixed_parts_with_empty_partitions_and_missing_values():
    formula, data = gridded("per document", seed=1)
    data = with_numbers(data)
    data.loc[[2, 5], "x"] = np.nan
    parts = [data.iloc[:0], data.iloc[:40], data.iloc[40:40], data.iloc[40:]]
    made = dd.from_map(lambda k: parts[k], range(4), meta=data.iloc[:0])
    formula = formula.replace("~", "~ center(x) + C(k) +").replace("(1|i) + ", "")
    with pytest.warns(vcomp.VcompWarning, match="2 of 80 rows"):
        kept = vcomp.fit(formula, data)
    with pytest.warns(vcomp.VcompWarning, match="2 of 80 rows"):
        same(kept, vcomp.fit(formula, made), 1e-10)


def test_columns_of_one_partition_after_another_are_fetched():
    """Those of the fixed part alone, and one ahead."""
    formula, data = gridded("per document", seed=1)
    made = [part for _, part in data.groupby("i", sort=False)]
    fetched, used = [], []

    def read(k):
        fetched.append(len(made[k]))
        assert len(fetched) - len(used) <= 2
        return made[k]

    parts = module._Partitions(
        parse(formula.replace("~", "~ center(x) +")),
        dd.from_map(read, range(len(made)), meta=data.iloc[:0]),
        Reading(EvalEnvironment([{}])),
    )
    for part in parts.each():
        assert list(part.frame.columns) == ["x"]
        used.append(part.y.size)
    assert used == fetched == [32, 8, 16, 24]


def test_statistics_of_partitions_can_be_added():
    formula, data = gridded("per document", seed=1)
    first, second = data[data["i"] < 2], data[data["i"] >= 2]
    whole = vcomp.accumulate(formula, partitioned(first)) + vcomp.accumulate(formula, second)
    same(vcomp.fit(formula, data), whole.fit())


def test_complete_partitions_can_be_added_as_well():
    """Nothing is collapsed, though each of the two fills a grid of nested groups."""
    formula, data = gridded("nested, balanced", seed=1)
    first, second = data[data["p"] < 2], data[data["p"] >= 2]
    whole = vcomp.accumulate(formula, partitioned(first)) + vcomp.accumulate(formula, second)
    same(vcomp.fit(formula, data), whole.fit())


def test_missing_values_are_counted_over_all_partitions():
    formula, data = gridded("crossed")
    data.loc[[0, 7, 19], "y"] = np.nan
    text = r"3 of 20 rows have a missing value \(y 3\) and were left out"
    with pytest.warns(vcomp.VcompWarning, match=text):
        found = vcomp.fit(formula, partitioned(data))
    with pytest.warns(vcomp.VcompWarning, match=text):
        same(vcomp.fit(formula, data), found)
    with pytest.raises(vcomp.DataError, match="missing='drop' leaves them out"):
        vcomp.fit(formula, partitioned(data), missing="raise")


def test_text_of_any_kind_is_levels():
    formula, data = gridded("crossed")
    data["p"] = data["p"].map(lambda k: f"person {k}")
    kept = vcomp.fit(formula, data)
    same(kept, vcomp.fit(formula, partitioned(data)))
    same(kept, vcomp.fit(formula, partitioned(data.astype({"p": "category"}), by="q")))


@pytest.mark.skipif(
    tuple(map(int, dask.__version__.split(".")[:2])) < (2026, 1),
    reason="older versions of Dask may read in a task of its own",
)
@pytest.mark.parametrize("fixed", ["1", "center(x) + C(g)"])
def test_rows_are_read_and_summed_in_one_task(fixed):
    """No task hands rows on, but for columns of the fixed part that are fetched."""
    formula, data = gridded("per document", seed=1)
    formula = formula.replace("~", f"~ {fixed} +").replace("(1|i) + ", "")
    handed_on = []

    def note(key, value, *_):
        value = value.frame if isinstance(value, module._Read) else value
        handed_on.extend([value] if isinstance(value, pd.DataFrame) else [])

    parts = partitioned(with_numbers(data), "i")
    with dask.callbacks.Callback(posttask=note):
        model_of(formula, parts, kept_bytes=0.0)
    assert [sorted(rows.columns) for rows in handed_on] == [["g", "x"]] * len(handed_on)
    assert (len(handed_on) > 0) == (fixed != "1")


@pytest.mark.parametrize(("large", "fixed"), [("none", "center(x)"), ("one", "1"), ("all", "x")])
def test_few_rows_are_read_once_and_many_in_every_pass(large, fixed):
    """They stay where they are, unless a partition has more than its share of what is kept."""
    formula, data = gridded("per document", seed=1)
    data = with_numbers(data)
    formula = formula.replace("~", f"~ {fixed} +").replace("(1|i) + ", "")
    parts = [part for _, part in data.groupby("i")]
    used = [name for name in data.columns if name in formula]
    sizes = [part[used].memory_usage(index=False, deep=True).sum() for part in parts]
    share = {"none": max(sizes), "one": max(sizes), "all": 0.0}[large]
    if large == "one":
        parts[0] = pd.concat([parts[0], parts[0]])
    n_bytes = float(share * len(parts))
    calls, case = [], (large, fixed)

    def read(k, case=case):  # Dask takes functions that are alike for the same
        calls.append(k)
        return parts[k]

    made = dd.from_map(read, range(len(parts)), meta=data.iloc[:0])
    with dask.config.set(scheduler="synchronous"):
        found = model_of(formula, made, kept_bytes=n_bytes).fit()
    same(vcomp.fit(formula, pd.concat(parts)), found, 1e-10)
    times = [calls.count(k) for k in range(len(parts))]
    assert max(times) == 1 if large == "none" else min(times) > 1


# What is wrong is said as for any other data -----------------------------------------------------


def refused(data, text, formula="y ~ x + (1|p) + (1|q)", **options):
    with pytest.raises(vcomp.DataError, match=text) as caught:
        model_of(formula, data, **options)
    return caught.value


def test_columns_that_are_not_there():
    _, data = gridded("crossed")
    refused(partitioned(data), r"no column 'pp' in the data \(did you mean 'p'\?\)", "y ~ (1|pp)")


@pytest.mark.parametrize("where", ["here", "on_cluster"])
def test_infinite_scores_are_counted(where, request):
    if where == "on_cluster":
        request.getfixturevalue("on_cluster")
    _, data = gridded("crossed")
    data.loc[[3, 17], "y"] = np.inf
    refused(partitioned(data), "response 'y' is infinite in 2 of 20 rows")


def test_text_in_some_partitions_and_numbers_in_others():
    _, data = gridded("crossed")
    parts = [data.iloc[:10], data.iloc[10:].assign(x="high")]
    mixed = dd.from_map(lambda k: parts[k], [0, 1], meta=data.iloc[:0])
    refused(mixed, "column 'x' holds numbers in some rows and text in others")
    parts[1] = data.iloc[10:].assign(y="high")
    refused(mixed, "response 'y' is not numeric: it holds 'high'")


def test_errors_of_workers_are_sentences(on_cluster):
    _, data = gridded("crossed")
    texts = partitioned(data.astype({"y": str}).assign(y="much"))
    refused(texts, "response 'y' is not numeric")


def test_partitions_that_change_between_the_passes():
    formula, data = gridded("crossed")
    calls = []

    def part(k):
        calls.append(k)
        return data.iloc[: 10 + len(calls)]

    changing = dd.from_map(part, [0], meta=data.iloc[:0])
    refused(changing, "the first pass read [0-9,]+ rows, and", formula, kept_bytes=0.0)


@pytest.mark.parametrize("name", ["crossed", "per document"])
def test_scores_that_change_between_the_passes(name):
    """Also where documents are put away on the workers."""
    formula, data = gridded(name)
    calls = []

    def part(k):
        calls.append(k)
        return data.assign(y=data["y"] + 1e-3 * len(calls))

    changing = dd.from_map(part, [0], meta=data.iloc[:0])
    refused(changing, "the scores changed between the passes", formula, kept_bytes=0.0)


def test_other_collections_and_no_rows():
    _, data = gridded("crossed")
    array = dask.delayed(lambda: 1)()
    refused(array, "give a dask.dataframe.DataFrame")
    refused(partitioned(data)["y"], "give a dask.dataframe.DataFrame")
    refused(partitioned(data.iloc[:0]), "the data have no rows")


def test_options_that_make_no_sense():
    _, data = gridded("crossed")
    refused(partitioned(data), "stream='yes' is not known", stream="yes")
    refused(partitioned(data), "missing='mend' is not known", missing="mend")


# On workers in other processes -------------------------------------------------------------------


@pytest.mark.parametrize("by", ["i", None])
def test_workers_in_two_processes(by, on_cluster):
    formula, data = gridded("per document", seed=2)
    kept = vcomp.fit(formula.replace("~", "~ x +"), data)
    with warnings.catch_warnings(record=True) as said:
        found = vcomp.fit(formula.replace("~", "~ x +"), partitioned(data, by))
    assert not said
    same(kept, found)
    ours, theirs = (r.dstudy(i=[5, 9], d=3).table for r in (kept, found))
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-8)
    assert "robust" in str(found.summary())


@pytest.mark.parametrize("fatal", [18, 25])
def test_a_worker_that_dies_in_mid_pass(fatal, request, tmp_path):
    """The call of this number ends its process; there are twelve in each pass.

    The response of each of four partitions is computed once, and twice of a few of its rows.
    """
    request.getfixturevalue("on_mortal_cluster" if fatal < 25 else "on_cluster")
    formula, data = gridded("per document", seed=3)
    log = str(tmp_path / "calls")

    def score(y):
        with open(log, "ab", buffering=0) as file:
            file.write(b".")
            calls = file.tell()
        if calls == fatal:
            os._exit(1)
        return y

    kept = vcomp.fit(formula, data)
    found = vcomp.fit(formula.replace("y ~", "score(y) ~"), partitioned(data, "i"))
    # 25 calls are never reached if nothing is done twice.
    assert os.path.getsize(log) >= 25 if fatal < 25 else os.path.getsize(log) == 24
    same(kept, found)


def test_all_workers_lost_between_the_passes(on_mortal_cluster, monkeypatch):
    """What the first pass left on the workers, rows included, is made again by other workers."""
    formula, data = gridded("per document", seed=3)
    learn = module.learn_in_passes

    def learned(*arguments, **options):
        made = learn(*arguments, **options)
        lost = [worker.process.process for worker in on_mortal_cluster.cluster.workers.values()]
        # The others come first: a computation without any worker waits forever.
        on_mortal_cluster.cluster.scale(4)
        on_mortal_cluster.wait_for_workers(4, timeout=120)
        for process in lost:
            process.kill()
        return made

    monkeypatch.setattr(module, "learn_in_passes", learned)
    found = model_of(formula, partitioned(data, "i"), kept_bytes=2.0**28).fit()
    same(vcomp.fit(formula, data), found)


def test_levels_are_sent_once_and_to_workers_alone(on_cluster, monkeypatch):
    """What is sent with the second pass does not grow with the data."""
    import pickle

    sizes = {}
    without = module._Work.without_survey

    def recorded(work):
        sent = without(work)
        sizes.setdefault(n, []).append(len(pickle.dumps(sent)))
        return sent

    monkeypatch.setattr(module._Work, "without_survey", recorded)
    for n in (50, 5_000):
        d = np.arange(4 * n) % n
        data = pd.DataFrame({"p": np.arange(4 * n) // n, "d": d, "i": d // (n // 5)})
        data["y"] = np.random.default_rng(n).normal(size=4 * n)
        vcomp.VarianceComponentsModel("y ~ (1|p) + (1|i) + (1|d)", partitioned(data, "i"))
    assert len(sizes[50]) == len(sizes[5_000]) == 1
    assert max(sizes[5_000]) < 10_000
