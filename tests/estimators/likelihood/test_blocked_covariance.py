"""The forms of a covariance matrix by blocked elimination against dense matrices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.dense_quadratic import eliminated
from tests.helpers.designs import DESIGNS, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.likelihood.blocked_covariance import (
    BlockedCovariance,
    Eliminations,
    _without_columns,
)
from vcomp.estimators.likelihood.term_point import SquareLimits
from vcomp.estimators.likelihood.totals import Columns

ZEROS = [(), (0,), (1,), (0, 1), "all"]


class Dense:
    """V written out, and the forms by their definitions."""

    def __init__(self, incidences, c, B):
        n = B.shape[0]
        self.Z, self.B = incidences, B
        self.K = [Z @ Z.T for Z in incidences] + [np.eye(n)]
        self.V = sum(x * K for x, K in zip(c, self.K, strict=True))
        self.Vi = np.linalg.inv(self.V)
        self.ViB = np.einsum("ij,jbr->ibr", self.Vi, B)

    def forms(self):
        ViK = [self.Vi @ K for K in self.K]
        KViB = [np.einsum("ij,jbr->ibr", K, self.ViB) for K in self.K]
        ViKViB = [np.einsum("ij,jbr->ibr", self.Vi, f) for f in KViB]
        return {
            "log_det": np.linalg.slogdet(self.V)[1],
            "traces": np.array([np.trace(M) for M in ViK]),
            "squares": np.array([[np.sum(a * b.T) for b in ViK] for a in ViK]),
            "gram": np.einsum("iar,ibr->ab", self.B, self.ViB),
            "first": np.array([np.einsum("iar,ibr->ab", self.ViB, f) for f in KViB]),
            "second": np.array([[np.einsum("iar,ibr->ab", f, g) for g in ViKViB] for f in KViB]),
        }


def problem(name, seed, n_columns=2, n_replicates=3, rows=None):
    """Return statistics of a design without its y, columns, and both as dense matrices."""
    formula, data = unbalanced(name, seed=seed)
    data = data[:rows]
    model = vcomp.VarianceComponentsModel(formula, data)
    codes, sizes = model.statistics.rows.codes, model.statistics.rows.sizes
    incidences = [np.eye(size)[code] for code, size in zip(codes, sizes, strict=True)]
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(len(data), n_columns, n_replicates))
    columns = Columns(
        ZB=tuple(np.einsum("iq,ibr->qbr", Z, B) for Z in incidences),
        BB=np.einsum("iar,ibr->ab", B, B),
    )
    return model.statistics.cross_products, columns, incidences, B


def components(n_terms, zeros, seed):
    c = np.random.default_rng(seed).uniform(0.3, 2.0, size=n_terms + 1)
    c[list(range(n_terms)) if zeros == "all" else [z for z in zeros if z < n_terms]] = 0.0
    return c


def close(found, expected, name):
    scale = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * scale, err_msg=name)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from(sorted(DESIGNS)),
    st.sampled_from(ZEROS),
    st.tuples(st.integers(0, 3), st.integers(1, 3)),
    st.integers(0, 1000),
)
def test_forms(name, zeros, widths, seed):
    stats, columns, incidences, B = problem(name, seed, *widths)
    c = components(stats.n_terms, zeros, seed)
    covariance, dense = BlockedCovariance(stats, columns), Dense(incidences, c, B)
    found = covariance.forms(c)
    for form, expected in dense.forms().items():
        close(getattr(found, form), expected, form)
    log_det, gram = BlockedCovariance(stats, columns).log_det_and_gram(c)
    assert log_det == found.log_det
    np.testing.assert_array_equal(gram, found.gram)


def test_forms_of_many_vectors_are_sums():
    """All vectors are solved for in two threads, each of them in one."""
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"a": rng.integers(0, 700, 4000), "b": rng.integers(0, 600, 4000)})
    model = vcomp.VarianceComponentsModel(
        "y ~ (1|a) + (1|b)", data.assign(y=rng.normal(size=4000))
    )
    stats, r = model.statistics.cross_products, 24
    B = rng.normal(size=(4000, 1, r))
    sums = []
    for code, size in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True):
        of_groups = np.zeros((size, 1, r))
        np.add.at(of_groups, code, B)
        sums.append(of_groups)
    c = components(stats.n_terms, (), seed=3)

    def forms(some):
        columns = Columns(
            tuple(s[:, :, some] for s in sums), np.atleast_2d((B[:, 0, some] ** 2).sum())
        )
        return BlockedCovariance(stats, columns).forms(c)

    whole = forms(slice(None))
    parts = [forms(slice(j, j + 1)) for j in range(r)]
    close(whole.first, sum(p.first for p in parts), "first")
    close(whole.second, sum(p.second for p in parts), "second")


@pytest.mark.parametrize("zeros", ZEROS, ids=str)
@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_projections_and_what_is_left_of_effects(name, zeros):
    stats, columns, incidences, B = problem(name, seed=5)
    c = components(stats.n_terms, zeros, seed=5)
    covariance, dense = BlockedCovariance(stats, columns), Dense(incidences, c, B)
    for Z, projection in zip(incidences, covariance.projections(c), strict=True):
        close(projection, np.einsum("iq,ibr->qbr", Z, dense.ViB), "projection")
    for t, Z in enumerate(incidences):
        left = covariance.unexplained(c, t, 0.3 * c[t], 0.7 * c[t])
        close(left, 1.0 - 0.3 * c[t] * np.diagonal(Z.T @ dense.Vi @ Z), "unexplained")


def test_a_term_of_many_groups_at_zero_is_worked_through_in_slabs():
    stats, _, incidences, B = problem("three facets", seed=2)
    c = components(stats.n_terms, (3,), seed=2)
    limits = SquareLimits(slab_bytes=8.0 * 7 * sum(stats.sizes))
    assert stats.sizes[3] > 7
    point = Eliminations(_without_columns(stats)).at(c)
    traces = point.traces(with_fixed=False)
    squares = point.squares(traces, with_fixed=False, positive_only=False, limits=limits)
    expected = Dense(incidences, c, B).forms()
    close(traces, expected["traces"][:-1], "traces")
    close(squares, expected["squares"][:-1, :-1], "squares")


def test_no_term_at_all():
    """Where every remaining facet is at its contrasts, V is a multiple of I."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(6, 2, 2))
    model = vcomp.VarianceComponentsModel("y ~ (1|a)", {"y": B[:, 0, 0], "a": [0, 0, 0, 1, 1, 1]})
    none = replace(model.statistics.cross_products, group_n=(), pairs={}, Zy=(), ZX=())
    found = BlockedCovariance(none, Columns((), np.einsum("iar,ibr->ab", B, B))).forms(
        np.array([2.0])
    )
    for form, expected in Dense([], [2.0], B).forms().items():
        close(getattr(found, form), expected, form)


@pytest.mark.parametrize(("ratio", "rtol"), [(1e4, 1e-13), (1e7, 2e-11), (1e10, 1e-4)])
@pytest.mark.parametrize("name", ["one way", "crossed"])
def test_columns_that_the_terms_explain_but_for_little(name, ratio, rtol):
    """B'V⁻¹B keeps the digits that its sums have, here without rounding; against fractions."""
    stats, columns, incidences, B = problem(name, 3, 1, 1, rows=35)
    rng = np.random.default_rng(3)
    B = B + sum(
        np.sqrt(ratio) * np.einsum("iq,qbr->ibr", Z, rng.normal(size=(Z.shape[1], 1, 1)))
        for Z in incidences
    )
    B = np.round(64.0 * B) / 64.0
    columns = Columns(
        ZB=tuple(np.einsum("iq,ibr->qbr", Z, B) for Z in incidences),
        BB=np.einsum("iar,ibr->ab", B, B),
    )
    c = np.array([ratio] * stats.n_terms + [1.0])
    _, gram = BlockedCovariance(stats, columns).log_det_and_gram(c)
    assert gram[0, 0] == pytest.approx(exact_form(incidences, c, B[:, 0, 0]), rel=rtol)


def exact_form(incidences, c, b):
    """Return b'V⁻¹b by elimination in fractions."""
    n = b.size
    shared = [Z @ Z.T for Z in incidences] + [np.eye(n)]
    rows = [
        [sum(Fraction(x) for x, K in zip(c.tolist(), shared, strict=True) if K[i, j] > 0.0)
         for j in range(n)] + [Fraction(float(b[i]))]
        for i in range(n)
    ]  # fmt: skip
    rows = eliminated(rows)
    return float(sum(Fraction(float(x)) * row[n] for x, row in zip(b, rows, strict=True)))
