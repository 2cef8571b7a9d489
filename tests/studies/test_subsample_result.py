"""What a study of subsets says, for subsets whose coefficients are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.gtheory import first_two_way
from vcomp.studies.subsample_result import _covered, _part, required_sizes

CELLS = np.array([[3, 4], [3, 9], [5, 4], [5, 9], [8, 2]])
TRIALS = 9


@pytest.fixture(scope="module")
def fitted():
    return vcomp.subsample_study(
        "y ~ (1|a) + (1|b)", balanced("crossed", 4)[1], sizes={"a": 3, "b": 4}, trials=2, rng=3,
        dstudy={"b": 20}, goal=0.9,
    )  # fmt: skip


def given(fitted, erho2, phi, converged=None):
    """Return a study whose subsets, (cells, trials), have these coefficients with 20 levels of b.

    With σ²(a) = ρ, σ²(e)/20 = 1 − ρ and σ²(b)/20 = ρ/Φ − 1 these are ρ and Φ.
    """
    rho, phi = (np.asarray(x, dtype=float).ravel() for x in (erho2, phi))
    values = np.column_stack([rho, 20 * (rho / phi - 1), 20 * (1 - rho)])
    made, n = fitted.replicates, len(rho)
    kept = np.ones(n, dtype=bool) if converged is None else converged
    values[~kept] = np.nan
    replicates = replace(
        made, numbers=np.arange(n), values=values, beta=np.zeros((n, 1)), llf=np.zeros(n),
        converged=kept, requested=n,
    )  # fmt: skip
    return replace(fitted, cells=CELLS, trials=TRIALS, replicates=replicates)


def coefficients(lengths, middle):
    """Return values of each cell whose 2.5 % and 97.5 % quantiles are so far apart."""
    at = np.linspace(-0.5, 0.5, TRIALS) / 0.95
    return middle + np.outer(lengths, at)


LENGTHS = np.array([0.3, 0.0999, 0.2, 0.1001, 0.05])


def test_subsets_without_mean_squares_have_no_intervals(fitted):
    """Of σ²(a), σ²(b) and σ²(e): intervals divide by the mean squares of b and of the residual."""
    made = vcomp.subsample_study(
        "y ~ (1|a) + (1|b)", balanced("crossed", 4)[1], sizes={"a": 3, "b": 4}, trials=2, rng=3,
        dstudy={"b": 20}, method="anova",
    )  # fmt: skip
    for subset, known in (
        ([1.0, 0.5, 2.0], True), ([1.0, 0.5, 0.0], False), ([1.0, -0.5, 1.5], False),
        ([1.0, -0.4, 1.5], True), ([0.0, 0.5, -0.1], False),
    ):  # fmt: skip
        replicates = replace(made.replicates, values=np.array([subset, subset]))
        covered = _covered(replace(made, replicates=replicates), "Erho2")
        assert np.isfinite(covered).tolist() == [known]


@pytest.mark.parametrize(("a", "expected"), [(0.01, 1.0), (-0.02475, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
def test_intervals_that_end_at_zero_cover_a_coefficient_of_zero(a, expected, coefficient):
    """Subsets of 3 × 40, whose mean squares are 1 + 40 σ²(a), 4 and 1, from data without a."""
    data = balanced("crossed", 4)[1].copy()
    data["y"] -= 0.99 * data.groupby("a")["y"].transform("mean")
    made = vcomp.subsample_study(
        "y ~ (1|a) + (1|b)", data, sizes={"a": 3, "b": 4}, trials=1, dstudy={"b": 20},
    )  # fmt: skip
    assert made.full(coefficient) == 0.0
    replicates = replace(made.replicates, values=np.array([[a, 1.0, 1.0]]))
    part = replace(made, replicates=replicates, cells=np.array([[3, 40]]))
    assert _covered(part, coefficient).tolist() == [expected]


def test_representations_count_sizes(fitted):
    several = replace(fitted, cells=CELLS, trials=TRIALS)
    assert repr(several) == "<SubsampleStudy: 9 subsets of each of 5 sizes of a, b>"
    assert repr(fitted) == "<SubsampleStudy: 2 subsets of one size of a, b>"


def test_given_coefficients_are_those_of_the_subsets(fitted):
    rho, phi = coefficients(LENGTHS, 0.8), coefficients(0.5 * LENGTHS, 0.6)
    study = given(fitted, rho, phi)
    np.testing.assert_allclose(study.values("Erho2"), rho, rtol=1e-12)
    np.testing.assert_allclose(study.values("Phi"), phi, rtol=1e-12)
    # Φ(n) ≥ 0.9 needs n = 20 · 0.9/0.1 · (1 − Φ)/Φ levels.
    for name, values in (("n_Erho2", rho), ("n_Phi", phi)):
        needed = np.ceil(180.0 * (1 - values) / values * (1 - 1e-9))
        np.testing.assert_array_equal(study.values(name), np.maximum(needed, 1.0))


def test_the_table_and_its_summary(fitted):
    rho, phi = coefficients(LENGTHS, 0.8), coefficients(2.0 * LENGTHS, 0.6)
    kept = np.ones(CELLS.shape[0] * TRIALS, dtype=bool)
    kept[[3, 17, 18]] = False
    study = given(fitted, rho, phi, kept)
    table, printed = study.table, printed_columns(study.summary())
    words, full = printed_words(study.summary()), {c: study.full(c) for c in ("Erho2", "Phi")}
    kept = kept.reshape(len(CELLS), TRIALS)
    for name, values, symbol, again in (("Erho2", rho, "Eρ²", ""), ("Phi", phi, "Φ", " #2")):
        rows = table[table["quantity"] == name]
        for place, row in enumerate(rows.itertuples()):
            own = values[place, kept[place]]
            low, median, high = np.quantile(own, [0.025, 0.5, 0.975])
            assert (row.a, row.b, row.n) == (*CELLS[place], own.size)
            assert (row.low, row.median, row.high) == pytest.approx((low, median, high), rel=1e-12)
            assert (row.mean, row.sd) == pytest.approx((own.mean(), own.std(ddof=1)), rel=1e-11)
            assert row.span == pytest.approx(high - low, rel=1e-9)
            near = np.abs(own - full[name]) <= 0.05
            assert row.within == pytest.approx(near.mean())
            assert printed[symbol][place] == f"{median:.3f}"
            assert printed[f"95 % of subsets{again}"][place] == f"[{low:.3f}, {high:.3f}]"
            sizes = study.values(f"n_{name}")[place]
            low, high = np.quantile(sizes[kept[place]], [0.025, 0.975])
            assert printed[f"n for {symbol}"][place] == f"{np.floor(low):g} to {np.ceil(high):g}"
        assert f"{symbol} = {full[name]:.3f}" in words
        assert f"{study.full(f'n_{name}'):g} for {symbol}" in words
    assert printed["a"] == [str(n) for n in CELLS[:, 0]]
    assert printed["b"] == [str(n) for n in CELLS[:, 1]]
    assert "of a test with b = 20" in words
    assert "levels of b needed for 0.9 in 95 %" in words
    assert "3 subsets gave no estimates: left out." in words
    assert "left out" not in printed_words(given(fitted, rho, phi).summary())


def test_mean_squares_of_replicated_tables_are_those_of_cell_means():
    """Of all the data and of a part, from its components: σ²(ab) + σ²(e)/r and so on."""
    formula, frame = balanced("crossed, replicated", 3)
    made = vcomp.subsample_study(
        formula, frame, sizes={"a": 3, "b": [4, 6]}, trials=1, dstudy={"b": 20}, method="anova",
    )  # fmt: skip
    table = first_two_way(made.dstudy.components, made.dstudy.plan)
    a, b, ab, e = made.results.vcomp
    assert table.n_replicates == 3
    for place, (n_a, n_b) in enumerate(made.cells):
        part = _part(table, made, place, made.results.vcomp.to_numpy())
        residual = ab + e / 3.0
        assert (part.n_rows, part.n_columns) == (n_a, n_b)
        assert part.ms_residual == pytest.approx(residual, rel=1e-12)
        assert part.ms_rows == pytest.approx(residual + n_b * a, rel=1e-12)
        assert part.ms_columns == pytest.approx(residual + n_a * b, rel=1e-12)
    assert table.ms_residual == pytest.approx(ab + e / 3.0, rel=1e-10)


def test_sizes_with_one_subset_or_none(fitted):
    values = coefficients(LENGTHS, 0.8)
    kept = np.ones(values.shape, dtype=bool)
    kept[1] = False
    kept[2, 1:] = False
    kept[3, 1:], values[3, 0] = False, fitted.full("Erho2")
    study = given(fitted, values, values * 0.5, kept.ravel())
    rows = study.table.query("quantity == 'Erho2'")
    assert rows["n"].tolist() == [9, 0, 1, 1, 9]
    far = float(abs(values[2, 0] - fitted.full("Erho2")) <= 0.05)
    np.testing.assert_array_equal(rows["within"].iloc[1:4], [np.nan, far, 1.0])
    assert rows["sd"].iloc[1:4].isna().all()
    assert printed_columns(study.summary())["Eρ²"][1] == "–"


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (LENGTHS, "is within 0.1 from 3 a × 9 b or 8 a × 2 b on."),
        ([0.3, 0.0999, 0.2, 0.05, 0.2], "is within 0.1 from 3 a × 9 b on."),
        ([0.3, 0.2, 0.09, 0.08, 0.05], "is within 0.1 from 5 a × 4 b or 8 a × 2 b on."),
        ([0.05] * 5, "is within 0.1 from 3 a × 4 b or 8 a × 2 b on."),
        ([0.2] * 5, "At none of these sizes is Eρ² of 95 % of subsets within 0.1."),
    ],
)
def test_the_smallest_sizes_at_which_subsets_agree(fitted, lengths, said):
    values = coefficients(lengths, 0.8)
    text = printed_words(given(fitted, values, values * 0.5).summary())
    assert said in text
    if "At none" not in said:
        assert f"Eρ² of 95 % of subsets {said}" in text


def test_sizes_that_are_never_enough(fitted):
    """Components without an object, and a goal that is reached with one level."""
    study = fitted.dstudy
    v = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 2.0]])
    found = required_sizes(study, v, 0.9, "Phi", "b")
    np.testing.assert_array_equal(found, [np.inf, 1.0, 9.0, 27.0])
    np.testing.assert_array_equal(
        required_sizes(study, v, 0.9, "Erho2", "b"), [np.inf, 1.0, 9.0, 18.0]
    )
    # However small it is, an object without rounding error has a size that is enough.
    small = required_sizes(study, np.array([[2.0**-50, 1.0, 2.0]]), 0.75, "Phi", "b")
    np.testing.assert_allclose(small, 9.0 * 2.0**50, rtol=2e-9)
