import numpy as np
import pandas as pd
import pytest

from tests.helpers.gstudies import BODOFF_LI
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError, VcompError
from vcomp.gtheory.plan import gstudy_design
from vcomp.gtheory.published import from_components

CORRELATION_OF_TWO = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
"""The difference of the first two has the variance 1 + 1 − 2 × 2."""

WITH_UNKNOWN = np.where(np.eye(3)[2] + np.eye(3)[:, [2]] > 0.0, np.nan, CORRELATION_OF_TWO)
"""The same, where the third is not known."""


def read(*names, **fields):
    return from_components(dict.fromkeys(names, 1.0), **fields).components


def terms(*names):
    return ["".join(sorted(f)) for f in read(*names).facets]


def test_concatenated_letters():
    assert terms(*BODOFF_LI) == ["p", "i", "a", "ip", "ap", "ai", "aip"]


@pytest.mark.parametrize("sign", [":", " x ", " × ", "×", "*", ",", " : ", ", "])
def test_separators(sign):
    assert terms("p", "i", f"p{sign}i") == ["p", "i", "ip"]
    components = read("sys", "index", f"sys{sign}index")
    assert components.facets[-1] == {"sys", "index"}


@pytest.mark.parametrize(
    "residual", ["Residual", "residual", "pi,e", "p:i,e", "p x i, e", "(p:i)"]
)
def test_the_residual(residual):
    assert terms("p", "i", residual) == ["p", "i", "ip"]


def test_a_facet_may_be_called_e_or_x():
    assert terms("p", "e", "p,e") == ["p", "e", "ep"]
    assert terms("x", "i", "x:i") == ["x", "i", "ix"]
    assert terms("x", "i", "x x i") == ["x", "i", "ix"]


def test_the_residual_goes_last_with_its_covariances():
    cov = np.diag([1.0, 2.0, 3.0])
    g = from_components({"Residual": 1.0, "p": 2.0, "i": 3.0}, cov).components
    assert g.names == ("p", "i", "Residual")
    np.testing.assert_array_equal(g.values, [2, 3, 1])
    np.testing.assert_array_equal(np.diagonal(g.cov), [2, 3, 1])
    assert g.facet_names == ("p", "i")


def test_nesting_is_inferred():
    g = read("p", "i", "a:i", "p:i", "Residual")
    assert g.nested_in["a"] == {"i"}
    assert str(gstudy_design(g)) == "p x (a:i)"
    g = read("p", "h", "i:h", "ph", "pi:h")
    assert g.facets[-1] == {"p", "i", "h"}
    assert str(gstudy_design(g)) == "p x (i:h)"
    assert str(gstudy_design(read("p", "i:p"))) == "i:p"


def test_a_residual_below_the_highest_interaction_is_replicates():
    published = from_components(
        {"p": 1.0, "i": 1.0, "pi": 1.0, "Residual": 8.0}, sizes={"replicate": 2}
    )
    assert published.components.facets[-1] == {"p", "i", "replicate"}
    assert published.dstudy(i=4).table["rel_err_var"][0] == pytest.approx(1 / 4 + 8 / 8)


def test_covariances_by_name():
    names = ["p", "i", "Residual"]
    cov = pd.DataFrame(np.diag([1.0, 2.0, 3.0]), names, names)
    shuffled = cov.loc[["i", "Residual", "p"], ["Residual", "p", "i"]]
    for given in (cov, shuffled, cov.to_numpy().tolist()):
        g = from_components(dict.fromkeys(names, 1.0), given).components
        np.testing.assert_array_equal(np.diagonal(g.cov), [1, 2, 3])


def test_sizes_of_the_gstudy():
    published = from_components(BODOFF_LI, sizes={"i": 49, "a": 2})
    assert published.dstudy().table[["i", "a"]].to_numpy().tolist() == [[49, 2]]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["p", "i", "p:i", "i:p"], "'p:i' and 'i:p' have the same facets"),
        (["p", "i", "pi", "p x i"], "'pi' and 'p x i' have the same facets"),
        (["p", "i", "p:p", "Residual"], "'p:p' names facet 'p' twice"),
        (["p", "i", "pp", "Residual"], "'pp' names facet 'p' twice"),
        (["p", "i"], "no component has all facets"),
        (["p", "pi"], "no component has all facets"),
        (["p", "i", "pi", "e"], "no component has all facets"),
        (["p", "i", "p i"], "cannot read component 'p i'"),
        (["p", "i", "p:"], "cannot read component 'p:'"),
        (["p", "", "Residual"], "cannot read component ''"),
        (["p", "a:i", "p:a:i"], "'a' and 'i' always occur together"),
        (["Residual"], "no component names a facet"),
        (["g", "g[x]", "Residual"], r"component 'g\[x\]' is of a random slope"),
        (
            ["g", "g[(Intercept),x]", "i", "Residual"],
            "give the components of a model of intercepts",
        ),
        (["p", 3], "named by text"),
    ],
)
def test_names_that_cannot_be(names, message):
    with pytest.raises(PlanError, match=message) as error:
        read(*names)
    assert isinstance(error.value, VcompError)


@pytest.mark.parametrize("value", [np.nan, np.inf, "1", None, True])
def test_values_that_cannot_be(value):
    with pytest.raises(PlanError, match="component 'i' must be a finite number"):
        from_components({"p": 1.0, "i": value, "Residual": 1.0})


@pytest.mark.parametrize("values", [{}, None, [1.0, 2.0]])
def test_no_mapping(values):
    with pytest.raises(PlanError, match="components are a mapping"):
        from_components(values)


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        (np.eye(2), "must be 3 × 3"),
        (np.triu(np.ones((3, 3))), "symmetric"),
        (np.diag([1.0, np.inf, 1.0]), "finite"),
        (np.diag([1.0, -1.0, 1.0]), "negative variance for component 'i'"),
        (np.diag([0.0, -1.0, 1.0]), "negative variance for component 'i'"),
        (np.diag([1.0, 1.0, -0.5]), "negative variance for component 'Residual'"),
        (np.diag([-1.0, 1.0, -1.0]), "negative variance for component 'p'"),
        (pd.DataFrame(np.eye(3), list("pia"), list("pia")), "as rows and columns"),
        (pd.DataFrame(np.eye(3), list("pia"), ["p", "i", "Residual"]), "as rows and columns"),
        (pd.DataFrame(np.eye(3), ["p", "i", "Residual"], list("pia")), "as rows and columns"),
        (CORRELATION_OF_TWO, "some combination has a negative variance"),
        (WITH_UNKNOWN, "some combination has a negative variance"),
    ],
)
def test_covariances_that_do_not_fit(cov, message):
    with pytest.raises(PlanError, match=message):
        read("p", "i", "Residual", cov=cov)


def test_a_covariance_matrix_may_be_singular():
    cov = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(read("p", "i", "Residual", cov=cov).cov, cov)


def test_covariances_may_be_unknown():
    cov = np.array([[1.0, np.nan, 0.2], [np.nan, np.nan, np.nan], [0.2, np.nan, 0.5]])
    np.testing.assert_array_equal(read("p", "i", "Residual", cov=cov).cov, cov)


def test_sizes_that_do_not_fit():
    with pytest.raises(PlanError, match="sizes has 'a'; the facets are i, p"):
        read("p", "i", "Residual", sizes={"a": 3})
    with pytest.raises(PlanError, match="size of 'i' must be a positive number"):
        read("p", "i", "Residual", sizes={"i": 0})


def test_the_printed_table_is_that_of_the_gstudy():
    published = from_components(
        {"p": 2.0, "i": 1.0, "pi": 4.0},
        sizes={
            "p": 10,
            "i": 4,
        },
    )
    table, printed = published.gstudy(), printed_columns(published.summary())
    assert printed["estimate"] == [f"{x:.3f}" for x in table["estimate"]]
    assert printed["std. err."] == [f"{x:.2f}" for x in table["se"]]
    assert printed["share"] == [f"{x:.1f} %" for x in 100 * table["estimate"] / 7]
    other = printed_columns(published.summary(alpha=0.2))["80 % interval"]
    for cells, alpha in ((printed["95 % interval"], 0.05), (other, 0.2)):
        ends = [[float(x) for x in cell.strip("[]").split(",")] for cell in cells]
        wanted = published.gstudy(alpha)[["low", "high"]]
        np.testing.assert_allclose(ends, wanted, rtol=6e-3, atol=1e-12)
    lines = [line for line in str(published.summary()).splitlines() if "█" in line]
    assert len(lines) == 3
    assert len({line.index("█") for line in lines}) == 1
    words = printed_words(published.summary())
    assert "from the mean squares of 10 p, 4 i." in words
    squares = published.anova_table()
    assert squares["df"].tolist() == [9, 3, 27]
    np.testing.assert_allclose(squares["mean_sq"], [12.0, 14.0, 4.0], rtol=1e-14)
    np.testing.assert_allclose(squares["sum_sq"], [108.0, 42.0, 108.0], rtol=1e-14)


def test_printing():
    published = from_components({"p": 0.5, "i": 0.2, "Residual": 1.3})
    assert repr(published) == "PublishedComponents('p x i', p=0.5, i=0.2, Residual=1.3)"
    assert "65.0 %" in str(published)
    assert "<table" in published._repr_html_()
    assert "–" in str(from_components({"p": 0.0, "Residual": 0.0}))


def test_a_covariance_of_small_components_beside_large_ones_is_checked():
    """Correlated at 2, whatever the variance of another component is."""
    for large in (1e-16, 1.0, 1e16):
        cov = np.array([[large, 0.0, 0.0], [0.0, 1e-8, 2e-8], [0.0, 2e-8, 1e-8]])
        with pytest.raises(PlanError, match="some combination has a negative variance"):
            from_components({"p": 1.0, "i": 1e-3, "Residual": 1e-3}, cov=cov)
