"""Covariance matrices of nested groups: against dense matrices and against exact fractions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.cases import alternately
from tests.helpers.exact import exact, exact_inverse
from tests.helpers.examples import examples
from vcomp.estimators.likelihood.nested import (
    EliminatedGroups,
    NestedCovariance,
    NestedGroups,
)
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.strata import GroupedColumns, Remainder


@dataclass(frozen=True)
class Tree:
    """Nested groups of rows: codes of each level, level 0 one group of everything."""

    codes: list
    B: np.ndarray  # (n, b, r) columns with replicates

    @property
    def n(self):
        return self.codes[0].size

    def incidences(self):
        return [np.eye(int(c.max()) + 1)[c] for c in self.codes]

    def covariance(self):
        """Return the covariance matrix with the columns."""
        return NestedCovariance(*self.parts())

    def parts(self):
        """Return the groups, and means of the innermost ones with squares within them."""
        counts = [np.bincount(c).astype(float) for c in self.codes]
        parents = tuple(
            coarse[np.flatnonzero(np.diff(fine, prepend=-1))].astype(np.int32)
            for coarse, fine in zip(self.codes, self.codes[1:], strict=False)
        )
        inner = self.codes[-1]
        means = np.add.reduceat(self.B, np.flatnonzero(np.diff(inner, prepend=-1)), axis=0)
        means /= counts[-1][:, None, None]
        away = self.B - means[inner]
        columns = GroupedColumns((means,), np.einsum("nbr,ndr->bd", away, away))
        nothing = tuple(np.zeros(q.size) for q in counts)
        tables = CrossProducts(
            n=self.n,
            group_n=tuple(counts),
            pairs={},
            Zy=nothing,
            ZX=nothing,
            XX=np.zeros((0, 0)),
            Xy=np.zeros(0),
            yy=0.0,
        )
        return Remainder(tables, parents), columns


def random_tree(rng, depth, b=2, r=1, most=4):
    """Return a tree with one to `most` children everywhere: single children and single rows."""
    sizes = [np.array([int(rng.integers(2, most + 1))])]
    for _ in range(depth):
        sizes.append(rng.integers(1, most + 1, sizes[-1].sum()))
    innermost = np.repeat(np.arange(sizes[-1].size), sizes[-1])
    codes = [innermost]
    for level in range(depth - 1, -1, -1):
        parent = np.repeat(np.arange(sizes[level].size), sizes[level])
        codes.append(parent[codes[-1]])
    return Tree(codes[::-1], rng.normal(size=(innermost.size, b, r)))


def kernels_of(tree):
    """Return K_l = Z_l Z_l' of all levels, and I."""
    return [Z @ Z.T for Z in tree.incidences()] + [np.eye(tree.n)]


def dense_forms(tree, c, inverse):
    """Return all forms from V⁻¹, whatever numbers the arrays hold."""
    as_c = exact if c.dtype == object else np.asarray
    K = [as_c(k) for k in kernels_of(tree)]
    B = as_c(tree.B)
    V = sum(s * k for s, k in zip(c, K, strict=True))
    Vi = inverse(V)
    ViK = [Vi @ k for k in K]
    VB = np.tensordot(Vi, B, axes=1)

    def product(left, right):
        return sum(left[:, :, r].T @ right[:, :, r] for r in range(B.shape[2]))

    KVB = [np.tensordot(k, VB, axes=1) for k in K]
    return {
        "traces": np.array([np.trace(m) for m in ViK]),
        "squares": np.array([[(a * b.T).sum() for b in ViK] for a in ViK]),
        "gram": product(B, VB),
        "first": np.array([product(VB, f) for f in KVB]),
        "second": np.array([[product(f, np.tensordot(Vi, g, axes=1)) for g in KVB] for f in KVB]),
    }


def components(rng, n, zeros):
    c = rng.uniform(0.2, 3.0, n)
    c[:-1][rng.random(n - 1) < zeros] = 0.0
    return c


trees = st.builds(
    lambda seed, depth, b, r: (np.random.default_rng(seed), depth, b, r),
    st.integers(0, 10**6),
    st.integers(0, 4),
    st.integers(1, 3),
    st.integers(1, 3),
)


@settings(deadline=None, max_examples=examples(60))
@given(trees, st.sampled_from([0.0, 0.4, 1.0]))
def test_forms_are_those_of_dense_matrices(drawn, zeros):
    rng, depth, b, r = drawn
    tree = random_tree(rng, depth, b, r, most=4 if depth < 3 else 3)
    c = components(rng, depth + 2, zeros)
    covariance = tree.covariance()
    found, expected = covariance.forms(c), dense_forms(tree, c, np.linalg.inv)
    V = sum(s * K for s, K in zip(c, kernels_of(tree), strict=True))
    assert found.log_det == pytest.approx(np.linalg.slogdet(V)[1], rel=1e-12, abs=1e-11)
    for name, matrix in expected.items():
        atol = 1e-12 * np.abs(matrix).max()
        np.testing.assert_allclose(getattr(found, name), matrix, atol=atol, rtol=0, err_msg=name)
    log_det, gram = covariance.log_det_and_gram(c)
    assert log_det == found.log_det
    np.testing.assert_array_equal(gram, found.gram)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 10**6), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3))
def test_no_digit_of_a_data_set_depends_on_the_others(seed, depth, b, r):
    rng = np.random.default_rng(seed)
    parts = [random_tree(rng, depth, b, r).parts() for _ in range(3)]
    c = np.array([components(rng, depth + 2, 0.3) for _ in parts])
    used = range(depth + 2)

    def forms(groups, c, means, within):
        point = EliminatedGroups(groups, c)
        away = point.differences(means, depth)
        of_columns = point.gram(away, within), *point.quadratics(away, within, used)
        return [point.log_det, *point.traces_and_squares(used), *of_columns]

    groups = NestedGroups.of([remainder for remainder, _ in parts])
    means = [columns.means[0].transpose(1, 2, 0)[None] for _, columns in parts]
    within = np.array([[columns.within] for _, columns in parts])
    together = forms(groups, c.T[:, None], np.concatenate(means, axis=-1), within)
    for k, (remainder, _) in enumerate(parts):
        single = forms(NestedGroups.of([remainder]), c[k], means[k], within[k : k + 1])
        for whole, one in zip(together, single, strict=True):
            np.testing.assert_array_equal(whole[k], one[0])


@settings(deadline=None, max_examples=examples(40))
@given(trees, st.sampled_from([0.0, 0.5]))
def test_projections_and_what_is_left_of_effects(drawn, zeros):
    rng, depth, b, r = drawn
    tree = random_tree(rng, depth, b, r, most=4 if depth < 3 else 3)
    c = components(rng, depth + 2, zeros)
    covariance, incidences = tree.covariance(), tree.incidences()
    Vi = np.linalg.inv(sum(s * K for s, K in zip(c, kernels_of(tree), strict=True)))
    VB = np.tensordot(Vi, tree.B, axes=1)
    close = {"rtol": 1e-10, "atol": 1e-12 * np.abs(VB).max()}
    for level, (Z, sums) in enumerate(zip(incidences, covariance.projections(c), strict=True)):
        np.testing.assert_allclose(sums, np.tensordot(Z.T, VB, axes=1), **close)
        left = covariance.unexplained(c, level, 0.3 * c[level], 0.7 * c[level])
        expected = 1.0 - 0.3 * c[level] * np.diagonal(Z.T @ Vi @ Z)
        np.testing.assert_allclose(left, expected, **close)
    inner = tree.codes[-1]
    left = covariance.unexplained(c, len(incidences), 0.3 * c[-1], 0.7 * c[-1])[inner]
    np.testing.assert_allclose(left, 1.0 - 0.3 * c[-1] * np.diagonal(Vi), **close)
    # Columns given as means: V⁻¹x of what is constant within the innermost groups.
    means = rng.normal(size=(incidences[-1].shape[1], 2, 3))
    sums, predicted = covariance.project(c, means)
    Vx = np.tensordot(Vi, means[inner], axes=1)
    np.testing.assert_allclose((means - predicted)[inner] / c[-1], Vx, **close)
    for depth_of, Z in enumerate(incidences):
        np.testing.assert_allclose(sums[depth_of], np.tensordot(Z.T, Vx, axes=1), **close)
        values = rng.normal(size=Z.shape[1])
        spread = covariance.spread(depth_of, values)
        np.testing.assert_array_equal(spread[inner], values[tree.codes[depth_of]])


# Exact arithmetic -------------------------------------------------------------------------------


def exact_log_det(V):
    V, det = V.copy(), Fraction(1)
    for k in range(V.shape[0]):
        det *= V[k, k]
        for i in range(k + 1, V.shape[0]):
            V[i] = V[i] - V[i, k] / V[k, k] * V[k]
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(det.numerator) / Decimal(det.denominator)).ln())


SPANS = {
    "up": [1e-10, 1e-6, 1e-3, 1e4],
    "down": [1e4, 1e-1, 1e-5, 1e-10],
    "small residual": [1e4, 1.0, 1e4, 1e-10],
    "large residual": [1e-10, 1e-10, 1e-8, 1e4],
    "small between large": [1e4, 1e-10, 1e4, 1.0],
    "zeros": [0.0, 1e-10, 0.0, 1e4],
}


# Relative accuracy of every single number, small ones beside large ones included. Forms of two
# levels have sums of either sign: relative to the bound of Cauchy and Schwarz.
DIGITS = {"traces": 1e-14, "gram": 1e-14, "first": 1e-12, "squares": 1e-11, "second": 1e-11}


def drawn_spans():
    rng = np.random.default_rng(7)
    for number in range(6):
        SPANS[f"drawn {number}"] = (10.0 ** rng.uniform(-10.0, 4.0, 4)).tolist()
    return SPANS


@pytest.mark.parametrize(
    ("span", "seed"),
    [*alternately(drawn_spans(), 0, 1, 3), *alternately(drawn_spans(), 3, 0, 1)],
)
def test_components_fourteen_decades_apart(span, seed):
    tree = random_tree(np.random.default_rng(seed), 2, b=1, r=1, most=3)
    c = np.array(SPANS[span])
    found = tree.covariance().forms(c)
    for name, matrix in dense_forms(tree, exact(c), exact_inverse).items():
        got, expected = np.squeeze(getattr(found, name)), np.squeeze(matrix.astype(float))
        scale = np.abs(expected)
        if name == "second":
            scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
        assert (np.abs(got - expected) <= DIGITS[name] * scale).all(), name
    V = sum(s * K for s, K in zip(exact(c), map(exact, kernels_of(tree)), strict=True))
    assert found.log_det == pytest.approx(exact_log_det(V), rel=1e-14)
