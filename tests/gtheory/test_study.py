import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, TREC3, gstudy
from vcomp.codec import from_plain, to_plain
from vcomp.exceptions import EstimationError, PlanError
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components
from vcomp.inference.quantities import VarianceComponents

QUANTITIES = ["universe_var", "rel_err_var", "abs_err_var", "Erho2", "Phi"]


def test_columns_of_the_table():
    table = dstudy(TREC3, topic=[25, 50]).table
    rest = [f"{q}_{end}" for q in QUANTITIES[1:] for end in ("se", "low", "high")]
    assert list(table.columns) == ["topic", *QUANTITIES, *rest]
    assert table["topic"].dtype == np.int64
    assert table.index.tolist() == [0, 1]
    assert list(dstudy(PER_DOCUMENT).table.columns[:2]) == ["topic", "doc"]
    assert list(dstudy(REPLICATED).table.columns[:2]) == ["topic", "replicate"]
    assert dstudy(TREC3, topic=[4.77, 5]).table["topic"].dtype == float


def test_a_table_may_be_changed_without_harm():
    study = dstudy(TREC3, topic=50)
    table = study.table
    table.loc[0, "Erho2"] = 0.0
    assert study.table["Erho2"][0] > 0.9


def test_plans_do_not_depend_on_one_another():
    many, one = dstudy(TREC3, topic=[25, 50, 75]).table, dstudy(TREC3, topic=50).table
    np.testing.assert_array_equal(many.iloc[1].to_numpy(), one.iloc[0].to_numpy())


def test_facets_whose_names_are_no_parameters():
    g = gstudy({"object": 1.0, "a b": 1.0, "Residual": 2.0})
    study = dstudy(g, object="object", sizes={"a b": 4})
    assert study.table["a b"][0] == 4
    with pytest.raises(PlanError, match="the size of 'topic' is given twice"):
        dstudy(TREC3, sizes={"topic": 5}, topic=6)


def test_stored_components_give_the_same_study():
    stored = from_plain(VarianceComponents, to_plain(TREC3))
    ours, theirs = dstudy(TREC3, topic=[10, 50]).table, dstudy(stored, topic=[10, 50]).table
    np.testing.assert_array_equal(ours.to_numpy(), theirs.to_numpy())
    for g in (PER_DOCUMENT, REPLICATED, from_components(BODOFF_LI).components):
        assert to_plain(from_plain(VarianceComponents, to_plain(g))) == to_plain(g)


def test_pickle():
    study = dstudy(TREC3, topic=[10, 50])
    again = pickle.loads(pickle.dumps(study))
    assert str(again) == str(study)


def test_summary_in_one_look():
    lines = str(dstudy(TREC3, topic=[50, 100, 150])).splitlines()
    assert lines[0].rstrip() == "D-study sys × topic; object of measurement: sys"
    assert lines[2].split() == (
        ["topic", "Eρ²", "95", "%", "interval", "Φ", "95", "%", "interval", "σ²(δ)", "σ²(Δ)"]
    )
    assert lines[4].split()[:7] == [
        "50",
        "0.933",
        "[0.893,",
        "0.963]",
        "0.786",
        "[0.661,",
        "0.880]",
    ]
    text = "\n".join(lines)
    assert "For Eρ² = 0.95, 69 topics are needed (95 %: 37 to 114)." in text
    assert "For Φ = 0.95, 259 topics are needed (95 %: 130 to 487)." in text
    assert "exact F of the mean squares (Feldt 1965)" in text
    assert max(map(len, lines)) <= 92


def test_summary_without_intervals():
    text = str(from_components(BODOFF_LI | {"a": -0.001}).dstudy("p x (a:i)", i=[20, 50], a=3))
    assert text.startswith("D-study p × (a:i); object of measurement: p")
    assert "interval" not in text.splitlines()[2]
    assert "σ²(a) = -0.001 is replaced by 0" in text


def test_summary_elsewhere():
    study = dstudy(TREC3, topic=50, alpha=0.1)
    assert "90 % interval" in str(study)
    assert "<table" in study._repr_html_()
    assert repr(study) == "DStudy(object='sys', design='sys x topic', plans=1)"


def test_import_stays_cheap():
    code = "import sys, vcomp.gtheory; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pandas", "scipy", "statsmodels", "numba"} & set(loaded)


@pytest.mark.parametrize("plan", [True, 1.0, -1, 2, "0", [1], None])
def test_plans_have_numbers(plan):
    study = dstudy(TREC3, topic=[25, 50])
    with pytest.raises(PlanError, match="there is no plan"):
        study.effects(plan)
    assert study.effects(np.int64(1))["n"].max() == 50


def test_sizes_that_no_integer_holds_stay_numbers():
    study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 1e300])
    assert study.table["i"].tolist() == [10, 1e300]
    with pytest.raises(PlanError, match="must be a positive number"):
        from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10**400)


@pytest.mark.parametrize("name", ["Phi", "Erho2_low", "universe_var"])
def test_facets_do_not_take_the_place_of_columns(name):
    study = from_components({"p": 0.5, name: 0.2, "Residual": 1.0}).dstudy(sizes={name: 10})
    for draw in (lambda: study.table, study.plot):
        with pytest.raises(PlanError, match=f"no place for the sizes of the facet '{name}'"):
            draw()
    assert study.columns["Phi"][0] == pytest.approx(0.5 / (0.5 + 0.12))


def test_nor_of_those_of_single_quantities():
    g = from_components({"p": 0.5, "se": 0.2, "Residual": 1.0})
    with pytest.raises(PlanError, match="no place for the sizes of the facet 'se'"):
        g.dstudy(se=10).quantity("Phi")
    g = from_components({"p": 0.5, "cut": 0.2, "Residual": 1.0}, sizes={"p": 5, "cut": 5}, mean=2)
    with pytest.raises(PlanError, match="no place for the sizes of the facet 'cut'"):
        g.dstudy(cut=10).phi_lambda(1.5)


@pytest.mark.parametrize("name", [["Phi"], None, 3])
def test_quantities_have_names(name):
    study = dstudy(TREC3, topic=25)
    with pytest.raises(PlanError, match="unknown quantity"):
        study.quantity(name)
    with pytest.raises(PlanError, match="coefficient is 'Erho2' or 'Phi'"):
        study.required(0.9, name)


def test_what_gives_no_intervals_is_refused():
    g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    with pytest.raises(EstimationError, match=r"interval must be the name of an .* not 3"):
        g.dstudy(i=10, interval=3)


def test_an_object_of_all_facets_leaves_nothing_to_generalize_over():
    g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    with pytest.raises(PlanError, match="the object of measurement, p:i, comprises all facets"):
        g.dstudy(object=["p", "i"])
