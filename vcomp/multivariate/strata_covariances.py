"""Mean products of complete data, and the likelihood for which they are sufficient statistics.

If all variables were observed together in a balanced design, the space of the scores is a sum of
orthogonal strata. In each the mean products M_s of the variables are Wishart with d_s degrees of
freedom about Λ_s = Σ_t c_st Σ_t, whose coefficients are those of the expected mean squares of one
variable, and

    ℓ = −½ Σ_s d_s [log|Λ_s| + tr(Λ_s⁻¹ M_s)] + a constant.

With a facet fully crossed with the others its levels are vectors of the same columns, and their
contrasts one stratum with Λ = Σ_t c_t K_t ∘ Σ_t, K_t ones where two columns share a group of t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import cast

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import number_combinations
from vcomp.estimators import ClosedForm, get_estimator
from vcomp.estimators.likelihood import InformationKind, LastPoint, elements
from vcomp.estimators.quadratic import TooLargeError, covariance_of_estimates
from vcomp.exceptions import EstimationError
from vcomp.multivariate.variables import VariableLayout, combined
from vcomp.numerics import Positive

Quadratic = Callable[[FloatArray], FloatArray]


def polarised_components(layout: VariableLayout, method: str) -> FloatArray:
    """Return the (k + 1, v, v) components from closed forms of sums and differences of variables.

    The covariance of two variables is a quarter of the difference between the components of their
    sum and of their difference.

    Parameters
    ----------
    layout : of variables that were observed together
    method : ``"anova"``, ``"type1"`` or ``"henderson3"``

    Raises
    ------
    EstimationError
        If the method cannot estimate the components of one variable.
    """
    stats = layout.scores.models[0].statistics
    points = cast(ClosedForm, get_estimator(method)).prepared(stats, layout.names)
    Y, scale = columns_of(layout), layout.scale

    def q(y: FloatArray) -> FloatArray:
        (point,) = points([stats.with_response(y)])
        return point.values

    k, v = len(layout.names), layout.n_variables
    values = np.empty((k, v, v))
    for a in range(v):
        values[:, a, a] = q(Y[:, a])
        for b in range(a):
            # In units of standard deviations neither variable loses digits in the sum.
            mixed = (q(Y[:, a] + Y[:, b]) - q(Y[:, a] - Y[:, b])) / 4.0
            values[:, a, b] = values[:, b, a] = mixed
    return values * np.outer(scale, scale)


def polarised_covariance(
    layout: VariableLayout, method: str, values: FloatArray
) -> tuple[FloatArray, str]:
    """Return the covariance matrix of these estimates under normality, or the reason why not.

    Parameters
    ----------
    layout : of variables that were observed together
    method : as for :func:`polarised_components`
    values : (k + 1, v, v) the estimates, at which it is computed
    """
    places = elements(layout.linked)
    stats = layout.scores.models[0].statistics
    try:
        tensor = _tensor(covariance_of_estimates(method, stats, layout.names), len(layout.names))
    except TooLargeError:
        nothing = np.full((len(places), len(places)), np.nan)
        return (
            nothing,
            " No standard errors: they take too much memory or time; use method='reml'.",
        )
    return covariance_of_forms(tensor, values), ""


def covariance_of_forms(tensor: FloatArray, values: FloatArray) -> FloatArray:
    """Return the covariance matrix of all elements, (m, m), from the tensor of one variable.

    Parameters
    ----------
    tensor : (k + 1, k + 1, k + 1, k + 1) C_αβtu: the covariance of components α and β is
        Σ_tu C_αβtu σ_t σ_u
    values : (k + 1, v, v) components
    """
    k, v, _ = values.shape
    a, b = np.triu_indices(v)
    # (pairs, pairs, k): σ_ac, σ_bd, σ_ad and σ_bc of pairs (a, b) and (c, d).
    ac, bd = values[:, a[:, None], a[None, :]], values[:, b[:, None], b[None, :]]
    ad, bc = values[:, a[:, None], b[None, :]], values[:, b[:, None], a[None, :]]
    covariance = np.einsum("xytu,tpq,upq->xpyq", tensor, ac, bd, optimize=True)
    covariance = 0.5 * (
        covariance + np.einsum("xytu,tpq,upq->xpyq", tensor, ad, bc, optimize=True)
    )
    matrix: FloatArray = covariance.reshape(k * a.size, k * a.size)
    return 0.5 * (matrix + matrix.T)


def columns_of(layout: VariableLayout) -> FloatArray:
    """Return the scores in standard deviations, (rows, v), rows as for the first variable."""
    scores = layout.scores
    rows = scores.unit[scores.of(0)]
    place = np.empty(scores.n_units, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    Y = np.empty((rows.size, layout.n_variables))
    for a in range(layout.n_variables):
        part = scores.of(a)
        Y[place[scores.unit[part]], a] = layout.y[part] / layout.scale[a]
    return Y


def _tensor(C: Quadratic, k: int) -> FloatArray:
    """Return the coefficients of a matrix whose elements are quadratic forms in k numbers."""
    tensor = np.empty((k, k, k, k))
    unit = np.eye(k)
    alone = [C(unit[t]) for t in range(k)]
    for t in range(k):
        tensor[:, :, t, t] = alone[t]
        for u in range(t):
            mixed = 0.5 * (C(unit[t] + unit[u]) - alone[t] - alone[u])
            tensor[:, :, t, u] = tensor[:, :, u, t] = mixed
    return tensor


Facets = frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Mean products of the columns of complete data in orthogonal strata.

    The columns of balanced data observed together are the variables. With a facet fully crossed
    with the others, a column is a variable in a cell of these.

    Attributes
    ----------
    facets : of each stratum, by position; None for the stratum within cells
    df : (s,) degrees of freedom
    products : (s, m, m) mean products of the columns
    coefficients : (s, k + 1) of the components in their expectations
    mean : (k + 1,) the same of the column means times √n
    n : observations of each column
    variable : (m,) of each column
    same : (k + 1, m, m) whether two columns share a group of a term
    means : (m,) column means times √n
    reason : which data these are, and why they serve
    """

    facets: tuple[Facets | None, ...]
    df: FloatArray
    products: FloatArray
    coefficients: FloatArray
    mean: FloatArray
    n: int
    variable: IntArray
    same: BoolArray
    means: FloatArray
    reason: str

    def covariances(self, S: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the covariance matrices Λ_s of the strata, (s, m, m), and that of the means.

        Parameters
        ----------
        S : (k + 1, v, v) covariance components
        """
        w = self.variable
        parts = self.same * S[:, w[:, None], w]
        return np.tensordot(self.coefficients, parts, 1), np.tensordot(self.mean, parts, 1)


def find_strata(layout: VariableLayout) -> Strata | None:
    """Return the mean products, None if data are not balanced or not observed together."""
    scores = layout.scores
    if not layout.same_rows or not scores.models[0].design.structure.balanced:
        return None
    rows = scores.of(0)
    sets = _closed([_places(layout, t) for t in range(len(layout.names) - 1)])
    codes = {s: _codes(layout, s) for s in sets}
    if not all(_orthogonal(codes, s, r) for s, r in combinations(sets, 2)):
        return None
    n = scores.models[0].nobs
    rest = columns_of(layout)
    rest = rest - rest.mean(axis=0)
    facets: list[Facets | None] = []
    df: list[float] = []
    squares: list[FloatArray] = []
    ranks: dict[Facets, int] = {}
    for s in sorted(sets, key=lambda s: (len(s), sorted(s))):
        group, size = codes[s]
        ranks[s] = size - sum(ranks[r] for r in ranks if r < s)
        sums = np.stack([np.bincount(group, column, size) for column in rest.T], axis=1)
        means = sums * (size / n)
        if s:
            facets.append(s)
            df.append(float(ranks[s]))
            squares.append(n / size * means.T @ means)
            rest -= means[group]
    facets.append(None)
    df.append(float(n - sum(ranks.values())))
    squares.append(rest.T @ rest)
    coefficients = np.zeros((len(facets), len(layout.names)))
    for t in range(len(layout.names) - 1):
        inside = [s is not None and s <= _places(layout, t) for s in facets]
        coefficients[inside, t] = n / layout.sizes[t]
    coefficients[:, -1] = 1.0
    kept = np.array(df) > 0.0
    d, v = np.array(df)[kept], layout.n_variables
    return Strata(
        facets=tuple(s for s, keep in zip(facets, kept, strict=True) if keep),
        df=d,
        products=np.array(squares)[kept] / d[:, None, None],
        coefficients=coefficients[kept],
        mean=np.array([*(n / q for q in layout.sizes[:-1]), 1.0]),
        n=int(rows.stop - rows.start),
        variable=np.arange(v, dtype=np.int32),
        same=np.ones((len(layout.names), v, v), dtype=bool),
        means=np.zeros(v),  # those of the variables, which are estimated
        reason=f"mean products of {d.size} orthogonal strata, as the data are balanced",
    )


def _places(layout: VariableLayout, term: int) -> Facets:
    """Return the facets of a term, with those that they are nested in, by position."""
    names = layout.scores.facets
    return frozenset(names.index(f) for f in layout.facets[term])


def _closed(sets: list[Facets]) -> list[Facets]:
    """Return the sets, their intersections and the empty set, smaller ones first."""
    closed = {frozenset(), *sets}
    while True:
        more = {s & r for s, r in combinations(closed, 2)} - closed
        if not more:
            return sorted(closed, key=lambda s: (len(s), sorted(s)))
        closed |= more


def _codes(layout: VariableLayout, facets: Facets) -> tuple[IntArray, int]:
    """Return for each row of the first variable its combination of levels of some facets."""
    scores, rows = layout.scores, layout.scores.of(0)
    if not facets:
        return np.zeros(rows.stop - rows.start, dtype=np.int32), 1
    places = sorted(facets)
    sizes = [len(scores.levels[place]) for place in places]
    return combined([scores.codes[place][rows] for place in places], sizes)


def _orthogonal(codes: dict[Facets, tuple[IntArray, int]], s: Facets, r: Facets) -> bool:
    """Whether the spaces of two sets of facets are orthogonal given that of their intersection.

    Σ n_gh²/(n_g n_h) is then the number of groups of the intersection, and is larger otherwise.
    """
    (a, n_a), (b, n_b) = codes[s], codes[r]
    keys, joint = number_combinations(a, n_a, b, n_b)
    n = np.bincount(joint).astype(float)
    sizes = np.bincount(a)[keys // n_b] * np.bincount(b)[keys % n_b]
    return bool(abs((n * n / sizes).sum() - codes[s & r][1]) < 1e-6)


@dataclass(frozen=True, slots=True, eq=False)
class _MeanProductsPoint:
    """Matrices of the strata, and of the means as the last one with one degree of freedom.

    Attributes
    ----------
    P : (s + 1, m, m) Λ⁻¹, of the means less what the variables' means explain
    Q : the same for the restricted likelihood, and all Λ⁻¹ for the full one
    PMP : Λ⁻¹MΛ⁻¹, of the means Pz(Pz)'
    """

    loglike: float
    P: FloatArray
    Q: FloatArray
    PMP: FloatArray


class MeanProductsLikelihood(LastPoint[_MeanProductsPoint]):
    """Restricted or full likelihood of mean products, scores in units of standard deviations.

    Parameters
    ----------
    strata : mean products
    linked : (k + 1, v, v) the elements of the components
    reml : restricted likelihood, or the full one
    """

    kinds: tuple[InformationKind, ...] = ("observed", "expected", "average")

    def __init__(self, strata: Strata, linked: BoolArray, *, reml: bool) -> None:
        self.strata, self.linked, self.reml = strata, linked, reml
        self.reason, self.n = strata.reason, strata.n * strata.variable.size
        self._df = np.append(strata.df, 1.0)
        self._coefficients = np.vstack([strata.coefficients, strata.mean])
        self._X = np.eye(linked.shape[1])[strata.variable]

    @cached_property
    def _units(self) -> tuple[LongArray, LongArray, BoolArray]:
        """Term and unit of each element, and the units: derivatives of Λ, (units, m, m).

        Terms with the same groups of columns have the same ones.
        """
        w, same, of = self.strata.variable, self.strata.same, elements(self.linked)
        groups = [groups_of_term.tobytes() for groups_of_term in same]
        keys = [(groups.index(groups[t]), a, b) for t, a, b in of]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        units = np.empty((len(places), w.size, w.size), dtype=bool)
        for unit, (t, a, b) in zip(units, places, strict=True):
            pair = (w == a)[:, None] & (w == b)
            np.logical_and(same[t], pair | pair.T, out=unit)
        return np.array([t for t, _, _ in of]), np.array([places[key] for key in keys]), units

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if a matrix is not positive definite."""
        try:
            return self._at(S).loglike
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient of the log-likelihood, (k + 1, v, v)."""
        point = self._at(S)
        slopes = 0.5 * self._df[:, None, None] * (point.PMP - point.Q)
        slopes = self.strata.same * np.tensordot(self._coefficients.T, slopes, 1)
        return np.where(self.linked, self._X.T @ slopes @ self._X, 0.0)

    def curvature(self, S: FloatArray) -> FloatArray:
        """Return the observed information."""
        return self.information(S, "observed")

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return the observed, expected or average information of the elements."""
        point, (terms, unit_of, units) = self._at(S), self._units
        total = np.zeros((terms.size, terms.size))
        for s, (d, c) in enumerate(zip(self._df, self._coefficients[:, terms], strict=True)):
            used = np.flatnonzero(c)
            kept, at = np.unique(unit_of[used], return_inverse=True)
            found = _information(units[kept], (point.P[s], point.Q[s], point.PMP[s]), kind)
            total[np.ix_(used, used)] += d * np.outer(c[used], c[used]) * found[np.ix_(at, at)]
        return 0.5 * (total + total.T)

    def _evaluated(self, S: FloatArray) -> _MeanProductsPoint:
        strata, v = self.strata, self.linked.shape[1]
        within, of_means = strata.covariances(S)
        factors = [Positive(V) for V in (*within, of_means)]
        Q = np.array([factor.inverse() for factor in factors])
        VX = Q[-1] @ self._X
        XVX = Positive(self._X.T @ VX)
        P = Q.copy()
        P[-1] -= VX @ XVX.solve(VX.T)
        Pz = P[-1] @ strata.means
        products = Q[:-1] @ strata.products
        PMP = np.concatenate([products @ Q[:-1], np.outer(Pz, Pz)[None]])
        deviance = float(self._df @ [factor.log_determinant() for factor in factors])
        deviance += float(strata.df @ np.trace(products, axis1=1, axis2=2) + strata.means @ Pz)
        free = self.n
        if self.reml:
            deviance += XVX.log_determinant() + v * float(np.log(strata.n))
            free -= v
        loglike = -0.5 * (deviance + free * float(np.log(2.0 * np.pi)))
        return _MeanProductsPoint(loglike, P, P if self.reml else Q, PMP)


def _information(
    units: BoolArray, at: tuple[FloatArray, FloatArray, FloatArray], kind: InformationKind
) -> FloatArray:
    """Return ½ tr(E_i P E_j PMP), ½ tr(E_i Q E_j Q) or twice the first less the second.

    Parameters
    ----------
    units : (u, m, m) matrices E
    at : P, Q and PMP
    kind : average, expected or observed
    """
    E, (P, Q, PMP) = units.astype(float), at
    EP = E @ P
    EQ = EP if np.array_equal(P, Q) else E @ Q
    if kind == "expected":
        return _half_traces(EQ, EQ)
    average = _half_traces(EP, E @ PMP)
    return average if kind == "average" else 2.0 * average - _half_traces(EQ, EQ)


def _half_traces(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return ½ tr(A_i B_j) of all matrices, (u, u)."""
    found: FloatArray = A.reshape(len(A), -1) @ B.swapaxes(1, 2).reshape(len(B), -1).T
    return 0.5 * found


def check_residual(strata: Strata, variables: tuple[str, ...]) -> None:
    """Refuse residuals with singular mean products, for which the likelihood has no maximum.

    Parameters
    ----------
    strata : mean products
    variables : names, for messages

    Raises
    ------
    EstimationError
        If residuals do not vary or are linearly dependent; the message names the variables.
    """
    M, v = strata.products[-1], len(variables)
    if strata.df[-1] < v:
        raise EstimationError(
            f"the residual has {display.count(strata.df[-1])} degrees of freedom, too few for the "
            f"{v} variables; use method='anova'"
        )
    spread = np.sqrt(np.diagonal(M))
    flat = spread < 1e-10
    if flat.any():
        raise EstimationError(
            f"variable {variables[int(np.argmax(flat))]!r} has no residual variance: the "
            "likelihood has no maximum; leave it out, or use method='anova'",
            column=variables[int(np.argmax(flat))],
        )
    values, vectors = np.linalg.eigh(M / np.outer(spread, spread))
    if values[0] < 1e-10:
        used = [n for n, x in zip(variables, vectors[:, 0], strict=True) if abs(x) > 1e-3]
        raise EstimationError(
            f"the residuals of {', '.join(used)} are linearly dependent, as of variables that are "
            "the same or add up to another: the likelihood has no maximum; leave one of them "
            "out, or use method='anova'",
            column=used[0],
        )
