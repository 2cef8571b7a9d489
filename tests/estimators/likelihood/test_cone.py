from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize

from tests.helpers.cases import alternately
from tests.helpers.multivariate_scores import (
    crossed,
    layout_of,
    positive,
    specification,
    unit_matrices,
    vector,
)
from vcomp.estimators.likelihood import elements
from vcomp.estimators.likelihood.cone import ConeSearch, maximise_in_cone
from vcomp.estimators.likelihood.cone_parts import (
    bends_of,
    newton_decrement,
    null_space,
    updated_information,
    without_rotations,
)
from vcomp.multivariate.mixed_equations import EquationsLikelihood
from vcomp.multivariate.strata_covariances import (
    MeanProductsLikelihood,
    find_strata,
    polarised_components,
)

WIDE = "a + b + c ~ (1|p) + (1|i)"


def likelihood_of(layout, reml=True):
    strata = find_strata(layout)
    if strata is None:
        return EquationsLikelihood(layout, reml=reml)
    return MeanProductsLikelihood(strata, layout.linked, reml=reml)


LAYOUTS = {
    "inside": lambda: layout_of(WIDE, crossed(28, n_p=30, n_i=12)),
    "few objects": lambda: layout_of(WIDE, crossed(12, n_p=3, n_i=6)),
    "no object variance": lambda: layout_of(WIDE, nothing_of_objects()),
    "rows missing": lambda: layout_of(WIDE, crossed(13).drop(index=[0, 8, 22])),
    "values missing": lambda: layout_of(
        "y ~ (1|p) + (1|i)",
        specification(16, n_p=12, n_i=(5, 5, 5), missing=0.2, linked=True),
        variable="test",
    ),
    "specification": lambda: layout_of(
        "y ~ (1|p) + (1|i)", specification(14, missing=0.2), variable="test"
    ),
}


def nothing_of_objects():
    data = crossed(15)
    means = data.groupby("p")[list("abc")].transform("mean")
    data[list("abc")] -= means - means.mean() - 1e-3 * (means - means.mean())
    return data


def dense_maximum(layout, reml, starts):
    """Return the largest dense likelihood that a general optimiser finds over Cholesky factors."""
    y, D = layout.y / layout.scale[layout.scores.variable], unit_matrices(layout)
    k, v, _ = layout.linked.shape
    rows, columns = np.tril_indices(v)
    kept = layout.linked[:, rows, columns]
    places = elements(layout.linked)
    X = np.eye(v)[layout.scores.variable]

    def factors(x):
        L, full = np.zeros((k, v, v)), np.zeros(kept.shape)
        full[kept] = x
        L[:, rows, columns] = full
        return L

    def minus(x):
        L = factors(x)
        S = np.einsum("tab,tcb->tac", L, L)
        V = np.einsum("m,mij->ij", vector(S, layout), D)
        sign, log_det = np.linalg.slogdet(V)
        if sign <= 0:
            return 1e10, np.zeros_like(x)
        inverse = np.linalg.inv(V)
        XVX = X.T @ inverse @ X
        P = inverse - inverse @ X @ np.linalg.solve(XVX, X.T @ inverse)
        deviance = log_det + y @ P @ y + (np.linalg.slogdet(XVX)[1] if reml else 0.0)
        Q, Py = (P if reml else inverse), P @ y
        G = np.zeros_like(L)
        for (t, a, b), d in zip(places, D, strict=True):
            slope = 0.5 * ((Q * d).sum() - Py @ d @ Py)
            G[t, a, b] = G[t, b, a] = slope if a == b else 0.5 * slope
        return 0.5 * deviance, 2.0 * np.einsum("tab,tbc->tac", G, L)[:, rows, columns][kept]

    found = []
    for start in starts:
        x = np.linalg.cholesky(start)[:, rows, columns][kept]
        for _ in range(2):
            x = minimize(minus, x, method="BFGS", jac=True).x
        found.append(minus(x)[0])
    free = y.size - (v if reml else 0)
    return -min(found) - 0.5 * free * np.log(2.0 * np.pi)


@pytest.mark.parametrize(
    ("name", "reml"),
    alternately(["few objects", "no object variance", "rows missing"], True, False),
)
def test_a_general_optimiser_finds_nothing_better(name, reml):
    layout = LAYOUTS[name]()
    likelihood = likelihood_of(layout, reml)
    start = positive(layout)
    found = maximise_in_cone(likelihood, start)
    assert found.converged
    other = dense_maximum(layout, reml, [found.S + 1e-3 * np.eye(3), start])
    # Towards a bound it comes slowly, in the factors of what is zero there.
    assert other <= found.loglike + 1e-8
    assert other == pytest.approx(found.loglike, abs=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_conditions_of_a_maximum_hold(name):
    layout = LAYOUTS[name]()
    likelihood = likelihood_of(layout)
    found = maximise_in_cone(likelihood, positive(layout))
    assert found.converged
    G = likelihood.gradient(found.S)
    for S, g in zip(found.S, G, strict=True):
        assert np.linalg.eigvalsh(S)[0] >= -1e-14
        # G is not positive in any direction, and zero in those that Σ has.
        assert np.abs(g @ S).max() < 1e-5
        assert np.linalg.eigvalsh(g)[-1] < 1e-5


@pytest.mark.parametrize("name", LAYOUTS)
def test_where_it_starts_does_not_matter(name):
    layout = LAYOUTS[name]()
    likelihood = likelihood_of(layout)
    one, other = (maximise_in_cone(likelihood, positive(layout, seed)) for seed in range(2))
    assert other.loglike == pytest.approx(one.loglike, abs=1e-7)
    np.testing.assert_allclose(other.S, one.S, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "reml"),
    alternately(["few objects", "rows missing", "specification", "values missing"], True, False),
)
def test_updates_lead_to_the_maximum_of_exact_curvatures(name, reml):
    """Without the observed information the last steps are those of Broyden's class."""
    layout = LAYOUTS[name]()
    exact = maximise_in_cone(EquationsLikelihood(layout, reml=reml), positive(layout))
    likelihood = EquationsLikelihood(layout, reml=reml, dense_below=0)
    found = maximise_in_cone(likelihood, positive(layout))
    assert found.converged
    assert found.ranks == exact.ranks
    assert found.loglike == pytest.approx(exact.loglike, abs=1e-10)
    np.testing.assert_allclose(found.S, exact.S, atol=1e-6)


def test_an_update_has_the_curvature_along_the_step():
    rng = np.random.default_rng(5)
    A, d = rng.normal(size=(4, 7)), rng.normal(size=4)
    B, O = A @ A.T, A @ A.T + np.eye(4)  # noqa: E741
    found = updated_information(B, d, O @ d)
    np.testing.assert_allclose(found @ d, O @ d, rtol=1e-12)
    # In directions that neither B nor O maps to the step it is still B.
    rest = np.linalg.svd(np.array([B @ d, O @ d]))[2][2:]
    np.testing.assert_allclose(found @ rest.T, B @ rest.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(updated_information(B, 0.0 * d, d), B)


@pytest.mark.parametrize("curvature", [-1.0, 0.0, 0.1])
def test_an_update_stays_positive_where_the_likelihood_does_not_curve(curvature):
    rng = np.random.default_rng(6)
    A, d = rng.normal(size=(4, 7)), rng.normal(size=4)
    B = A @ A.T
    found = updated_information(B, d, curvature * B @ d)
    assert np.linalg.eigvalsh(found)[0] > 0.0
    assert d @ found @ d == pytest.approx(0.2 * d @ B @ d, rel=1e-12)


def test_ranks_are_named():
    found = maximise_in_cone(
        likelihood_of(LAYOUTS["no object variance"]()), positive(LAYOUTS["few objects"]())
    )
    assert found.ranks[0] == 0
    assert not found.S[0].any()
    few = LAYOUTS["few objects"]()
    assert maximise_in_cone(likelihood_of(few), positive(few)).ranks[0] <= 2  # 3 − 1 objects


def test_inside_it_is_the_closed_form():
    """Balanced data: where the ANOVA matrices are positive definite they maximise REML."""
    layout = LAYOUTS["inside"]()
    closed = polarised_components(layout, "anova") / np.outer(layout.scale, layout.scale)
    assert all(np.linalg.eigvalsh(S)[0] > 0 for S in closed)
    found = maximise_in_cone(likelihood_of(layout), positive(layout))
    np.testing.assert_allclose(found.S, closed, rtol=1e-7, atol=1e-9)


def test_an_end_before_the_maximum_is_not_called_one():
    layout = LAYOUTS["rows missing"]()
    found = maximise_in_cone(likelihood_of(layout), positive(layout), max_iter=1)
    assert not found.converged
    assert found.iterations == 1


def test_the_tangent_keeps_ranks():
    layout = LAYOUTS["few objects"]()
    found = maximise_in_cone(likelihood_of(layout), positive(layout))
    assert found.tangent.shape[0] == len(elements(layout.linked))
    # 3 × 3 matrices of rank r have 3r − r(r − 1)/2 degrees of freedom.
    free = sum(3 * r - r * (r - 1) // 2 for r in found.ranks)
    assert np.linalg.matrix_rank(found.tangent, tol=1e-7) == free


def test_a_lower_maximum_is_left():
    """Single climbs end at two maxima, 0.23 apart; from each of their ends the higher is found."""
    rng = np.random.default_rng(22)
    n = int(rng.integers(8, 16))
    data = pd.DataFrame({"p": rng.integers(0, 5, n), "i": rng.integers(0, 4, n)})
    for name in "ab":
        noise = rng.standard_t(3, size=n).round(2)
        of_p = rng.choice([0, 1.0, 3.0]) * rng.normal(size=5)[data["p"]]
        of_i = rng.choice([0, 1.0, 3.0]) * rng.normal(size=4)[data["i"]]
        data[name] = noise + of_p + of_i
    likelihood = likelihood_of(layout_of("a + b ~ (1|p) + (1|i)", data))
    search = ConeSearch(likelihood)
    ends = []
    whole = maximise_in_cone(likelihood, np.array([np.eye(2)] * 3) / 3.0)
    for place in search.elsewhere(whole.S):
        path, done = place.climb(
            search.move, sought=(1e-9, 1e-7), stalled=(1e-5, 1e-5), max_iter=99
        )
        assert done
        ends.append(path[-1])
    values = np.array([end.value for end in ends])
    lowest = ends[int(values.argmin())]
    assert values.max() - values.min() > 0.2
    # A little inside the cone, so that the ranks may change.
    found = maximise_in_cone(likelihood, lowest.S + 1e-3 * np.eye(2))
    assert found.loglike == pytest.approx(values.max(), abs=1e-7)
    assert found.drops == pytest.approx([values.max() - values.min()], abs=1e-4)


def test_columns_vanish_where_the_likelihood_falls_with_them():
    """Not those of the residual, without which there is no likelihood."""
    search = ConeSearch(likelihood_of(LAYOUTS["few objects"]()))
    rng = np.random.default_rng(3)
    L = rng.normal(size=(3, 4))
    L /= np.sqrt((L**2).sum(axis=0))
    lengths = np.array([0.0, 0.99e-11, 1.01e-11, 1.0])  # squared
    factors = tuple(L * np.sqrt(lengths) for _ in search.blocks)
    terms = len(search.blocks)
    assert terms == 3
    short = [True, True, False, False]
    for sign, gone in ((-1.0, short), (0.0, short), (1.0, [True, False, False, False])):
        gradients = tuple(sign * np.eye(3) for _ in range(terms))
        found = [columns.tolist() for columns in search._gone(factors, gradients)]
        assert found == [gone, gone, [False] * 4]


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_null_space_of_a_factor(rank):
    """Columns of a length of rounding count as none."""
    rng = np.random.default_rng(rank)
    root = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    for more in ([], [0.9e-7], [0.0]) if rank < 3 else ([],):
        lengths = np.array([1.0, 0.5, 2e-7][:rank] + more)
        null = null_space(root[:, : lengths.size] * lengths)
        expected = root[:, rank:] if rank else root  # of zeros it is the whole space
        if rank == 0 and more == [0.9e-7]:
            expected = root[:, 1:]  # there is no larger column
        np.testing.assert_allclose(null @ null.T, expected @ expected.T, atol=1e-12)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_first_order_conditions_in_the_cone(rank):
    """L'GL is zero, and G has no positive eigenvalue in the null space of LL'."""
    rng = np.random.default_rng(rank)
    root = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    L = root[:, :rank] * np.array([2.0, 1.0, 0.5][:rank])
    search = ConeSearch(SimpleNamespace(linked=np.ones((1, 3, 3), dtype=bool), n=25))
    for slopes in ([0.0, 0.0, -7.0], [0.0, 0.3, -7.0], [-0.2, 0.0, 0.1], [0.4, -0.1, 0.2]):
        G = root @ np.diag(slopes) @ root.T
        own = np.abs(np.array(slopes)[:rank] * np.array([4.0, 1.0, 0.25])[:rank])
        expected = max(0.0, *own, *slopes[rank:]) / 5.0
        assert search._violation((L,), (G,)) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("ranks", [(1, 1), (2, 1), (3, 2), (0, 3)])
def test_steps_do_not_rotate_factors(ranks):
    """L + dL with dL L' + L dL' = 0 is the same matrix to first order."""
    rng = np.random.default_rng(sum(ranks))
    factors = tuple(
        np.linalg.qr(rng.normal(size=(3, 3)))[0][:, :r] * np.array([2.0, 1.0, 0.5])[:r]
        for r in ranks
    )
    size = 3 * sum(ranks)
    half = rng.normal(size=(size, size + 2))
    H, g = 1e-4 * half @ half.T, rng.normal(size=size)
    found, slope = without_rotations(factors, H, g)
    rotations, first = [], 0
    for L in factors:
        for c, d in combinations(range(L.shape[1]), 2):
            dL = np.zeros_like(L)
            dL[:, c], dL[:, d] = L[:, d], -L[:, c]
            np.testing.assert_allclose(dL @ L.T + L @ dL.T, 0.0, atol=1e-15)
            whole = np.zeros(size)
            whole[first : first + L.size] = dL.T.ravel() / np.linalg.norm(dL)
            rotations.append(whole)
        first += L.size
    W = np.reshape(rotations, (-1, size))
    P = np.eye(size) - W.T @ W
    np.testing.assert_allclose(slope, P @ g, atol=1e-13)
    np.testing.assert_allclose(found, H + np.trace(H) / size * (np.eye(size) - P), rtol=1e-12)


def test_bends_of_a_product_of_factors():
    """tr F LL' has the second derivatives 2F in every column of L."""
    rng = np.random.default_rng(2)
    factors = rng.normal(size=(3, 2)), rng.normal(size=(2, 1)), np.zeros((2, 0))
    falls = [half + half.T for half in (rng.normal(size=(n, n)) for n in (3, 2, 2))]
    expected = block_diag(2.0 * falls[0], 2.0 * falls[0], 2.0 * falls[1])
    np.testing.assert_array_equal(bends_of(factors, falls), expected)


@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_a_decrement_in_any_units(rank, unit):
    """√(g'H⁻¹g), along directions with information only."""
    rng = np.random.default_rng(rank)
    units = 10.0 ** np.array([-3.0, 0.0, 2.0, 4.0])[: max(rank, 1)]
    half = rng.normal(size=(rank, rank + 2))
    H, step = half @ half.T, 1e-3 * rng.normal(size=rank)
    expected = np.sqrt(step @ H @ step)
    units = unit * units[:rank]
    H, g = H * np.outer(units, units), H @ step * units
    # A direction without information.
    more = np.pad(H, (0, 1)), np.append(g, 0.0)
    assert newton_decrement(H, g) == pytest.approx(expected, rel=1e-8)
    if rank:
        assert newton_decrement(*more) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", ["inside", "few objects", "rows missing"])
def test_evaluations_are_those_of_the_likelihood(name):
    """Matrices at which it was evaluated, those of steps that are not taken too."""
    likelihood, seen = likelihood_of(LAYOUTS[name]()), set()

    def counted(of):
        def made(S, *arguments):
            seen.add(S.tobytes())
            return of(S, *arguments)

        return made

    found = maximise_in_cone(
        SimpleNamespace(
            n=likelihood.n,
            linked=likelihood.linked,
            kinds=likelihood.kinds,
            loglike=counted(likelihood.loglike),
            gradient=counted(likelihood.gradient),
            information=likelihood.information,
            curvature=likelihood.curvature,
        ),
        100.0 * positive(LAYOUTS[name]()),
    )
    assert found.converged
    assert found.evaluations == len(seen)


def test_the_jacobian_of_a_product_of_factors():
    """LL' changes by L dL' + dL L' with the columns of L, one after another."""
    linked = np.ones((3, 3, 3), dtype=bool)
    linked[1, 2, :2] = linked[1, :2, 2] = False  # {a, b}, {c}
    linked[2] = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]])  # {a, c}, {b}
    search = ConeSearch(SimpleNamespace(linked=linked, n=9))
    rng = np.random.default_rng(8)
    ranks = {3: 2, 2: 2, 1: 1}
    factors = tuple(rng.normal(size=(len(i), ranks[len(i)])) for _, i in search.blocks)
    size = sum(L.size for L in factors)
    J = search.jacobian(factors)
    assert J.shape == (len(elements(linked)), size)
    first = 0
    for place, L in enumerate(factors):
        for k in range(L.size):
            dL = np.zeros(L.size)
            dL[k] = 1.0
            dL = dL.reshape(L.shape, order="F")
            changes = [np.zeros_like(other) for other in factors]
            changes[place] = dL
            dS = search.matrices(tuple(L + d for L, d in zip(factors, changes, strict=True)))
            dS -= search.matrices(tuple(L - d for L, d in zip(factors, changes, strict=True)))
            expected = [0.5 * dS[e] for e in elements(linked)]
            np.testing.assert_allclose(J[:, first + k], expected, rtol=1e-12, atol=1e-14)
        first += L.size
