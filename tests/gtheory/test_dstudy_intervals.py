from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import f

from tests.helpers.gstudies import REPLICATED, TREC3, gstudy, two_way
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.inference.intervals.closed_forms import ARTEAGA, FELDT
from vcomp.inference.intervals.limits import MODIFIED_LARGE_SAMPLE
from vcomp.inference.quantities import TwoWayMeanSquares

COLLECTIONS = [
    "adhoc3", "adhoc3_drop25", "enterprise2006", "enterprise2006_drop25", "genomics2004",
    "genomics2004_drop25", "synthetic4", "web2010ap", "web2010p20",
]  # fmt: skip
ENDS = {"Erho2_low": "Erho2_lwr", "Erho2_high": "Erho2_upr", "Phi_low": "Phi_lwr",
        "Phi_high": "Phi_upr", "Erho2": "Erho2", "Phi": "Phi"}  # fmt: skip


def table_of(values):
    return two_way(*(values[k] for k in ("n_s", "n_q", "ms_s", "ms_q", "ms_e")))


@pytest.mark.parametrize("name", COLLECTIONS)
def test_coefficients_of_gt4ireval(reference, name):
    values = reference(f"gt4ireval_{name}")["values"]
    g = table_of(values)
    np.testing.assert_allclose(
        np.maximum(g.values, 0), [values[k] for k in ("var_s", "var_q", "var_e")], rtol=1e-10
    )
    for row in [*values["dstudy_by_queries"][::2], values["dstudy_default"]]:
        found = dstudy(g, topic=row["queries"], alpha=2 * row["alpha"]).table.iloc[0]
        for ours, theirs in ENDS.items():
            assert found[ours] == pytest.approx(max(row[theirs], 0.0), rel=1e-10)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_required_sizes_of_gt4ireval(reference, name):
    values = reference(f"gt4ireval_{name}")["values"]
    g = table_of(values)
    for row in [*values["dstudy_by_stability"][::2], values["dstudy_default"]]:
        for c in ("Erho2", "Phi"):
            found = dstudy(g, alpha=2 * row["alpha"]).required(row["stability"], c)
            # theirs is named after the end of the coefficient
            theirs = [row[f"n_q_{c}"], row[f"n_q_{c}_upr"], row[f"n_q_{c}_lwr"]]
            assert [found.n, found.low, found.high] == theirs


def test_trec_3():  # Urbano, Marrero and Martín (2013), Table 1, ad hoc 3
    study = dstudy(TREC3)
    row = study.table.iloc[0]
    assert row["topic"] == 50
    found = row[["Erho2", "Erho2_low", "Erho2_high", "Phi", "Phi_low", "Phi_high"]]
    np.testing.assert_allclose(
        found.to_numpy(dtype=float),
        [0.93265, 0.89311, 0.96287, 0.78613, 0.66141, 0.88039],
        atol=5e-6,
    )
    erho2, phi = study.required(0.95, "Erho2"), study.required(0.95, "Phi", "topic")
    assert (erho2.n, erho2.low, erho2.high) == (69, 37, 114)
    assert (phi.n, phi.low, phi.high) == (259, 130, 487)
    assert study.interval_methods == {
        "rel_err_var": MODIFIED_LARGE_SAMPLE, "abs_err_var": MODIFIED_LARGE_SAMPLE,
        "Erho2": FELDT, "Phi": ARTEAGA,
    }  # fmt: skip


def test_brennan_table_6_5():
    # Brennan (2001), p. 198: 80 % intervals of synthetic data set 4 as p x i
    g = two_way(10, 12, 10.296296296296296, 11.627272727272727, 2.7872053872053873)
    row = dstudy(g, topic=12, alpha=0.2).table.iloc[0]
    found = row[["Erho2", "Erho2_low", "Erho2_high", "Phi", "Phi_low", "Phi_high"]]
    np.testing.assert_allclose(
        found.to_numpy(dtype=float), [0.729, 0.541, 0.876, 0.672, 0.457, 0.845], atol=5e-4
    )


def test_either_facet_may_be_the_object():
    swapped = two_way(50, 30, 0.852955110086531, 0.150737177028966, 0.010152247097931)
    ours = dstudy(TREC3, object="topic", sys=30).table.iloc[0]
    theirs = dstudy(swapped, object="sys", topic=30).table.iloc[0]
    for column in ENDS:
        assert ours[column] == pytest.approx(theirs[column], rel=1e-12)


def test_lower_limits_end_at_zero():
    g = two_way(5, 4, 1.1, 2.0, 1.0)
    row = dstudy(g, topic=[1, 4]).table
    assert (row[["Erho2_low", "Phi_low"]] == 0).all(axis=None)
    assert (row["Erho2_high"] > 0).all()
    found = dstudy(g).required(0.9)
    assert found.high == np.inf
    assert "∞" in str(found)
    below = dstudy(two_way(5, 4, 0.001, 2.0, 1.0)).required(0.9)
    assert (below.n, below.low, below.high) == (np.inf, np.inf, np.inf)


def test_other_designs_take_modified_large_samples():
    exact, nested = dstudy(TREC3, topic=50), dstudy(TREC3, "topic:sys", object="sys", topic=50)
    assert (
        nested.interval_methods["Erho2"] == nested.interval_methods["Phi"] == MODIFIED_LARGE_SAMPLE
    )
    table = TwoWayMeanSquares("sys", "topic", 10, 20, 60.0, 30.0, 5.0, 2)
    cells = dstudy(replace(REPLICATED, mean_squares=table, cov=np.eye(4)), object="sys:topic")
    assert cells.interval_methods["Erho2"] == MODIFIED_LARGE_SAMPLE
    without = dstudy(replace(TREC3, mean_squares=None), topic=50)
    assert without.interval_methods["Phi"] == MODIFIED_LARGE_SAMPLE
    # on 1,500 scores the two roads come out close
    for column in ("Erho2_low", "Erho2_high", "Phi_low", "Phi_high"):
        assert without.table[column][0] == pytest.approx(exact.table[column][0], abs=0.04)


@pytest.mark.parametrize(
    "table",
    [
        TwoWayMeanSquares("sys", "topic", 1, 50, 1.0, 1.0, 1.0),
        TwoWayMeanSquares("sys", "topic", 30, 1, 1.0, 1.0, 1.0),
        TwoWayMeanSquares("sys", "topic", 30, 50, 1.0, 1.0, 0.0),
        TwoWayMeanSquares("sys", "topic", 30, 50, 1.0, 0.0, 1.0),
        TwoWayMeanSquares("sys", "topic", 30, 50, 0.0, 1.0, 1.0),
        TwoWayMeanSquares("sys", "judge", 30, 50, 1.0, 1.0, 1.0),
    ],
)
def test_mean_squares_without_an_f_ratio(table):
    study = dstudy(replace(TREC3, mean_squares=table), topic=50)
    assert study.interval_methods["Erho2"] == MODIFIED_LARGE_SAMPLE
    for coefficient in ("Erho2", "Phi"):
        found = study.required(0.9, coefficient)
        assert found.interval_method == MODIFIED_LARGE_SAMPLE


@pytest.mark.parametrize(("rows", "columns"), [(2, 9), (9, 2), (2, 2)])
def test_two_levels_are_enough_for_an_f_interval(rows, columns):
    study = dstudy(two_way(rows, columns, 40.0, 3.0, 0.5), topic=columns)
    assert study.interval_methods["Erho2"] == FELDT
    tails = f.ppf([0.975, 0.025], rows - 1, (rows - 1) * (columns - 1))
    expected = np.maximum(1.0 - 0.5 / 40.0 * tails, 0.0)
    found = study.table[["Erho2_low", "Erho2_high"]].iloc[0]
    np.testing.assert_allclose(found.to_numpy(dtype=float), expected, rtol=1e-10)


def test_a_model_without_one_main_effect_has_no_f_interval():
    g = gstudy({"sys": 1.0, "Residual": 1.0}, mean_squares=TREC3.mean_squares, cov=np.eye(2))
    g = replace(g, facets=(frozenset({"sys"}), frozenset({"sys", "topic"})))
    assert dstudy(g, topic=50).interval_methods["Erho2"] == MODIFIED_LARGE_SAMPLE


def test_replicates_as_in_the_table():
    table = TwoWayMeanSquares("sys", "topic", 10, 20, 42.5, 12.5, 2.5, n_replicates=2)
    g = replace(REPLICATED, mean_squares=table, cov=np.diag([0.5, 0.2, 0.05, 0.1]))
    same = dstudy(g, topic=20)
    assert same.interval_methods["Erho2"] == FELDT
    np.testing.assert_allclose(same.table["rel_err_var"], table.ms_residual / 20)
    assert dstudy(g, topic=20, replicate=1).interval_methods["Erho2"] == MODIFIED_LARGE_SAMPLE
    mixed = dstudy(g, topic=20, replicate=[1, 2])
    assert (
        mixed.interval_methods["Erho2"]
        == f"{FELDT} where replicate = 2, else {MODIFIED_LARGE_SAMPLE}"
    )
    assert mixed.table["Erho2_low"][1] == same.table["Erho2_low"][0]
    assert mixed.table["Erho2_low"][0] == dstudy(g, topic=20, replicate=1).table["Erho2_low"][0]
    assert same.required(0.9, facet="topic").interval_method == FELDT
    assert same.required(0.9, facet="replicate").interval_method in ("", MODIFIED_LARGE_SAMPLE)


def test_f_intervals_need_no_covariance_matrix():
    study = dstudy(replace(TREC3, cov=None), topic=50)
    assert study.table["Erho2_low"][0] == pytest.approx(0.89311, abs=5e-6)
    assert np.isnan(study.table["Erho2_se"][0])
    assert study.interval_methods == {"Erho2": FELDT, "Phi": ARTEAGA}
