"""Mean products of balanced data, and the likelihood that rests on them alone.

Where all variables were observed together in a balanced design, the space of the scores falls into
orthogonal strata. In each the mean products M_s of the variables are Wishart with d_s degrees of
freedom about Λ_s = Σ_t c_st Σ_t, whose coefficients are those of the expected mean squares of one
variable, and

    ℓ = −½ Σ_s d_s [log|Λ_s| + tr(Λ_s⁻¹ M_s)] + what does not depend on the components.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.design import number_combinations
from vcomp.exceptions import EstimationError
from vcomp.multivariate.cone import Derivatives, Kind, pair_traces
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.polarised import columns_of
from vcomp.multivariate.variable_layout import Layout

__all__ = [
    "Strata",
    "StrataLikelihood",
    "check_residual",
    "find_strata",
]


Facets = frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Mean products of balanced data.

    Attributes
    ----------
    facets : of each stratum, by position; None of what is within the cells
    df : (s,) degrees of freedom
    products : (s, v, v) mean products
    coefficients : (s, k + 1) of the components in their expectations
    mean : (k + 1,) the same of the mean
    n : observations of each variable
    """

    facets: tuple[Facets | None, ...]
    df: FloatArray
    products: FloatArray
    coefficients: FloatArray
    mean: FloatArray
    n: int


def find_strata(layout: Layout) -> Strata | None:
    """Return the mean products, None of data that are not balanced or not observed together."""
    scores = layout.scores
    if not layout.same_rows or not scores.models[0].design.structure.balanced:
        return None
    own = scores.of(0)
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
    d = np.array(df)[kept]
    return Strata(
        facets=tuple(s for s, keep in zip(facets, kept, strict=True) if keep),
        df=d,
        products=np.array(squares)[kept] / d[:, None, None],
        coefficients=coefficients[kept],
        mean=np.array([*(n / q for q in layout.sizes[:-1]), 1.0]),
        n=int(own.stop - own.start),
    )


def _places(layout: Layout, term: int) -> Facets:
    """Return the facets of a term, with those that they are nested in, by position."""
    names = layout.scores.facets
    return frozenset(names.index(f) for f in layout.facets[term])


def _closed(sets: list[Facets]) -> list[Facets]:
    """Return the sets with all their intersections, the empty one too."""
    found = {frozenset(), *sets}
    while True:
        more = {s & r for s, r in combinations(found, 2)} - found
        if not more:
            return sorted(found, key=lambda s: (len(s), sorted(s)))
        found |= more


def _codes(layout: Layout, facets: Facets) -> tuple[FloatArray, int]:
    """Return the group of every row of the first variable in some facets."""
    scores, own = layout.scores, layout.scores.of(0)
    codes, size = np.zeros(own.stop - own.start, dtype=np.int32), 1
    for place in sorted(facets):
        levels = len(scores.levels[place])
        keys, codes = number_combinations(codes, size, scores.codes[place][own], levels)
        size = keys.size
    return codes, size


def _orthogonal(codes: dict[Facets, tuple[FloatArray, int]], s: Facets, r: Facets) -> bool:
    """Whether the groups of two sets of facets are alike within those of what they share.

    Σ n_gh²/(n_g n_h) counts the groups of the intersection then, and is larger otherwise.
    """
    (a, n_a), (b, n_b) = codes[s], codes[r]
    keys, joint = number_combinations(a, n_a, b, n_b)  # type: ignore[arg-type]
    n = np.bincount(joint).astype(float)
    sizes = np.bincount(a)[keys // n_b] * np.bincount(b)[keys % n_b]
    return bool(abs((n * n / sizes).sum() - codes[s & r][1]) < 1e-6)


class StrataLikelihood:
    """Restricted or full likelihood of mean products, of scores in their scale.

    Parameters
    ----------
    strata : mean products
    reml : restricted likelihood, or the full one
    """

    kinds: tuple[Kind, ...] = ("observed", "expected", "average")

    def __init__(self, strata: Strata, *, reml: bool) -> None:
        self.strata, self.reml = strata, reml
        v = strata.products.shape[1]
        self.n = strata.n * v
        self.linked: BoolArray = np.ones((strata.mean.size, v, v), dtype=bool)
        self._df, self._C, self._M = strata.df, strata.coefficients, strata.products
        if not reml:
            # The mean takes part with its covariance matrix, and its products are zero.
            self._df = np.append(self._df, 1.0)
            self._C = np.vstack([self._C, strata.mean])
            self._M = np.concatenate([self._M, np.zeros((1, v, v))])

    @property
    def reason(self) -> str:
        """What computes it, and why."""
        return (
            f"mean products of {len(self.strata.df)} orthogonal strata, as the data are balanced"
        )

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ where a matrix is not positive definite."""
        try:
            L = np.linalg.cholesky(self._expected(S))
        except np.linalg.LinAlgError:
            return -np.inf
        logs = 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        X = np.linalg.solve(L, self._M)
        traces = np.trace(np.linalg.solve(L, X.transpose(0, 2, 1)), axis1=1, axis2=2)
        return self._constant() - 0.5 * float(self._df @ (logs + traces))

    def derivatives(self, S: FloatArray) -> Derivatives:
        """Return the log-likelihood with gradient and average information."""
        inverse, both = self._inverses(S)
        gradient = -0.5 * np.einsum("st,s,sab->tab", self._C, self._df, inverse - both)
        return Derivatives(self.loglike(S), gradient, self._traces(inverse, both))

    def information(self, S: FloatArray, kind: Kind) -> FloatArray:
        """Return the observed, expected or average information of the elements."""
        inverse, both = self._inverses(S)
        average = self._traces(inverse, both)
        if kind == "average":
            return average
        expected = self._traces(inverse, inverse)
        return expected if kind == "expected" else 2.0 * average - expected

    def _expected(self, S: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("st,tab->sab", self._C, S))

    def _inverses(self, S: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return Λ⁻¹ and Λ⁻¹MΛ⁻¹ of every stratum."""
        inverse = np.linalg.inv(self._expected(S))
        inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
        return inverse, inverse @ self._M @ inverse

    def _traces(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """Return ½ Σ_s d_s tr(E_i A_s E_j B_s) of all elements."""
        a, b = np.triu_indices(self.linked.shape[1])
        traces = pair_traces(A, B, a, b)
        found = np.einsum("s,st,su,spq->tpuq", 0.5 * self._df, self._C, self._C, traces)
        m = self._C.shape[1] * a.size
        matrix: FloatArray = found.reshape(m, m)
        assert m == len(elements(self.linked))
        return 0.5 * (matrix + matrix.T)

    def _constant(self) -> float:
        v, n = self.linked.shape[1], self.strata.n
        if self.reml:
            return float(-0.5 * v * (np.log(n) + (n - 1) * np.log(2.0 * np.pi)))
        return float(-0.5 * v * n * np.log(2.0 * np.pi))


def check_residual(strata: Strata, variables: tuple[str, ...]) -> None:
    """Refuse residuals whose mean products are singular, as the likelihood has no maximum there.

    Parameters
    ----------
    strata : mean products
    variables : names, for messages

    Raises
    ------
    EstimationError
        Naming the variables whose residuals do not vary, or depend on each other.
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
            "likelihood has no maximum; leave it out, or use method='anova'"
        )
    values, vectors = np.linalg.eigh(M / np.outer(spread, spread))
    if values[0] < 1e-10:
        used = [n for n, x in zip(variables, vectors[:, 0], strict=True) if abs(x) > 1e-3]
        raise EstimationError(
            f"the residuals of {', '.join(used)} are linearly dependent, as of variables that are "
            "the same or add up to another: the likelihood has no maximum; leave one of them "
            "out, or use method='anova'"
        )
