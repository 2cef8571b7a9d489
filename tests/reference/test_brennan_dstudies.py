"""D-studies of Brennan's (2001) synthetic data: what the book prints, and what follows exactly.

``dstudy_*`` files were computed with fractions from the rules of the book's chapters 4 and 5.
"""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import formula_of, frame_of

RULES = {
    "universe_var": "tau", "rel_err_var": "sigma2_delta", "abs_err_var": "sigma2_Delta",
    "Erho2": "Erho2", "Phi": "Phi", "rel_sem": "sem_rel", "abs_sem": "sem_abs",
    "rel_signal_noise": "sn_rel", "abs_signal_noise": "sn_abs",
}  # fmt: skip


@pytest.fixture(scope="module")
def fits():
    """Return results by number, as they are made."""
    return {}


@pytest.fixture
def fitted(fits, reference, shared_data):
    """Return a function that gives the fit of a table."""

    def get(number):
        if number not in fits:
            fits[number] = fit(number, reference, shared_data)
        return fits[number]

    return get


def fit(number, reference, shared_data):
    stored = reference(f"anova_brennan_synthetic{number}")
    return vcomp.fit(formula_of(stored), frame_of(stored, shared_data), method="anova")


def check(study, row):
    for name, key in RULES.items():
        found = study.quantity(name)["estimate"].iloc[0]
        assert found == pytest.approx(row[key], rel=1e-10), name


@pytest.mark.parametrize(
    ("number", "block", "sizes", "options"),
    [
        (1, "p_x_I", {"item": "n_i"}, {}),
        (1, "I_nested_in_p", {"item": "n_i"}, {"design": "item:person"}),
        (2, "I_nested_in_p", {"replicate": "n_i"}, {}),
        (3, "random", {"i": "n_i", "o": "n_o"}, {}),
        (3, "i_fixed", {"i": "n_i", "o": "n_o"}, {"fixed": "i"}),
        (3, "o_fixed", {"i": "n_i", "o": "n_o"}, {"fixed": "o"}),
        (3, "nested", {"i": "n_i", "o": "n_o"}, {}),
        (4, "random", {"t": "n_t", "r": "n_r"}, {}),
        (4, "t_fixed", {"t": "n_t", "r": "n_r"}, {"fixed": "t"}),
    ],
)
def test_every_dstudy_from_the_scores(number, block, sizes, options, reference, fitted):
    """All nine quantities of every other plan, from the rows of the data to the D-study."""
    res = fitted(number)
    rows = reference(f"dstudy_brennan_synthetic{number}")["values"][block]
    assert rows
    for row in rows[::4]:
        plan = {facet: row[key] for facet, key in sizes.items()}
        design = options.get("design")
        if "design" in row:
            design = row["design"].lower().replace("p", "person")
        more = {k: v for k, v in options.items() if k != "design"}
        check(res.dstudy(design, object="person", **plan, **more), row)


def test_synthetic_1_as_printed(reference, fitted):
    res = fitted(1)
    printed = reference("brennan_published_synthetic1")["values"]["published"]
    row = res.dstudy(object="person").table.iloc[0]
    assert f"{row['Erho2']:.3f}" == f"{printed['Erho2']:.3f}"
    assert f"{row['Phi']:.3f}" == f"{printed['Phi']:.3f}"
    for n, (erho2, phi) in printed["d_study"].items():
        row = res.dstudy(item=int(n)).table.iloc[0]
        # The book divides components of four decimals.
        assert row["Erho2"] == pytest.approx(erho2, abs=1.1e-3)
        assert row["Phi"] == pytest.approx(phi, abs=1.1e-3)


def test_synthetic_4_with_fixed_tasks_as_printed(reference, fitted):
    res = fitted(4)
    printed = reference("brennan_published_synthetic4")["values"]["published"]
    row = res.dstudy(object="person", fixed="t").table.iloc[0]
    assert f"{row['Erho2']:.2f}" == f"{printed['tasks_fixed']['Erho2']:.2f}"
    assert f"{row['Phi']:.2f}" == f"{printed['tasks_fixed']['Phi']:.2f}"


def test_synthetic_4_as_persons_by_ratings_has_its_intervals(reference, shared_data):
    """Twelve ratings of every person as items: Feldt's interval of Eρ², Arteaga's of Φ, 80 %."""
    printed = reference("brennan_published_synthetic4")["values"]["published"]["as_p_x_i"]
    data = frame_of(reference("anova_brennan_synthetic4"), shared_data)
    data = data.assign(item=data["t"].astype(str) + "-" + data["r"].astype(str))
    assert data["item"].nunique() == 12
    score = formula_of(reference("anova_brennan_synthetic4")).partition("~")[0].strip()
    res = vcomp.fit(f"{score} ~ (1|person) + (1|item)", data, method="anova")
    components = {"person": "var_s", "item": "var_q", "Residual": "var_e"}
    squares = {"person": "ms_s", "item": "ms_q", "Residual": "ms_e"}
    for term, key in components.items():
        assert f"{res.vcomp[term]:.4f}" == f"{printed[key]:.4f}"
        mean_square = res.anova_table().loc[term, "mean_sq"]
        assert f"{mean_square:.4f}" == f"{printed[squares[term]]:.4f}"
    row = res.dstudy(object="person", item=12, alpha=0.2, interval="f").table.iloc[0]
    for name in ("Erho2", "Phi"):
        ends = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
        expected = [printed[name], *printed[f"{name}_80ci"]]
        np.testing.assert_allclose(ends, expected, rtol=0, atol=5.1e-4)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_every_facet_as_object(number, reference, fitted):
    """GeneralizIT prints Eρ² and Φ of every effect as object of measurement, to four decimals."""
    res = fitted(number)
    run = reference(f"brennan_published_synthetic{number}")["values"]["generalizit_run"]
    printed = run["g_coeffs"]
    for name, phi, erho2 in zip(printed["index"], printed["phi^2"], printed["rho^2"], strict=True):
        object_ = name.replace(" x ", ":")
        row = res.dstudy(object=object_).table.iloc[0]
        # It divides components that it has rounded: .0574 is known to one in a thousand.
        assert row["Erho2"] == pytest.approx(erho2, abs=2e-4), name
        assert row["Phi"] == pytest.approx(phi, abs=2e-4), name


def test_effective_numbers_of_narayanan(reference, shared_data):
    published = reference("narayanan2010_published")["values"]["effective_n"]
    stored = reference("anova_narayanan2010")
    formula = "rating ~ (1|doctor) + (1|doctor:patient) + (1|item) + (1|doctor:item)"
    res = vcomp.fit(formula, frame_of(stored, shared_data), method="anova")
    for key, printed in published.items():
        inverse = res.components.inverse_n[key.partition("=")[2]]
        for term, n in printed.items():
            ours = "Residual" if term == "residual" else term
            assert 1 / inverse[ours] == pytest.approx(n, abs=5.1e-4), (key, term)
