"""The groups of every term by variable: numbers of scores, and the groups that variables share.

All estimators of covariance components work on a :class:`VariableLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import number_combinations
from vcomp.formula import REPLICATE, RESIDUAL, closure
from vcomp.multivariate.variables import Scores


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Pairs of groups of two terms with common scores.

    Attributes
    ----------
    rows, columns : (c,) group of the one and of the other term
    counts : (c, v) numbers of scores of every variable
    """

    rows: LongArray
    columns: LongArray
    counts: FloatArray


def sums_of(groups: LongArray, size: int) -> Any:
    """Return the (size, n) matrix that adds the rows of each group."""
    from scipy.sparse import csr_array

    n = groups.size
    return csr_array((np.ones(n), (groups, np.arange(n))), shape=(size, n))


@dataclass(frozen=True)
class VariableLayout:
    """Terms with the groups of all scores; groups of the residual are the observed units.

    Attributes
    ----------
    scores : the scores
    names : of the terms, the residual last
    facets : of each term, see :class:`~vcomp.inference.quantities.VarianceComponents`
    groups : for each term the (n,) group of every score
    sizes : numbers of groups
    """

    scores: Scores
    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    groups: tuple[IntArray, ...]
    sizes: tuple[int, ...]

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.scores.variables)

    @cached_property
    def y(self) -> FloatArray:
        """The scores minus the mean of their variable, (n,)."""
        y = self.scores.y.copy()
        for a in range(self.n_variables):
            y[self.scores.of(a)] -= y[self.scores.of(a)].mean()
        return y

    @cached_property
    def scale(self) -> FloatArray:
        """The standard deviation of every variable, 1 for a constant one, (v,)."""
        spreads = [float(self.y[self.scores.of(a)].std()) for a in range(self.n_variables)]
        return np.array([s if s > 0.0 else 1.0 for s in spreads])

    @cached_property
    def counts(self) -> tuple[FloatArray, ...]:
        """For each term the (q, v) numbers of scores of its groups in every variable."""
        v = self.n_variables
        return tuple(
            np.bincount(g.astype(np.int64) * v + self.scores.variable, minlength=q * v)
            .reshape(q, v)
            .astype(float)
            for g, q in zip(self.groups, self.sizes, strict=True)
        )

    @cached_property
    def shared(self) -> FloatArray:
        """Number of groups of each term that two variables share, (k + 1, v, v)."""
        occurs = [(n > 0.0).astype(float) for n in self.counts]
        return np.array([o.T @ o for o in occurs])

    @cached_property
    def linked(self) -> BoolArray:
        """Whether two variables share at least two groups of a term, which a covariance needs."""
        return np.asarray(self.shared >= 2.0)

    @cached_property
    def same_rows(self) -> bool:
        """Whether all variables were observed in every unit."""
        return bool((self.counts[-1] == 1.0).all())

    def incidence(self, term: int) -> Any:
        """Return the (n, q v) incidence of a term's groups in every variable."""
        from scipy.sparse import csr_array

        v, n = self.n_variables, self.scores.n
        columns = self.groups[term].astype(np.int64) * v + self.scores.variable
        return csr_array((np.ones(n), columns, np.arange(n + 1)), shape=(n, self.sizes[term] * v))

    def joint(self, t: int, u: int) -> Joint:
        """Return the pairs of groups of two terms that have scores in common."""
        if t > u:
            made = self.joint(u, t)
            return Joint(made.columns, made.rows, made.counts)
        if (t, u) not in self._joints:
            self._joints[t, u] = self._joined(t, u)
        return self._joints[t, u]

    @cached_property
    def _joints(self) -> dict[tuple[int, int], Joint]:
        return {}

    def _joined(self, t: int, u: int) -> Joint:
        if t == u:
            own = np.arange(self.sizes[t])
            return Joint(own, own, self.counts[t])
        v, size = self.n_variables, self.sizes[u]
        keys, pairs = number_combinations(self.groups[t], self.sizes[t], self.groups[u], size)
        codes = pairs.astype(np.int64) * v + self.scores.variable
        counts = np.bincount(codes, minlength=keys.size * v).reshape(-1, v).astype(float)
        return Joint(keys // size, keys % size, counts)

    def table(self, t: int, u: int, variable: int) -> Any:
        """Return how many scores of a variable each pair of groups of two terms shares."""
        from scipy.sparse import csr_array

        pairs, shape = self.joint(t, u), (self.sizes[t], self.sizes[u])
        n = pairs.counts[:, variable]
        there = n > 0.0
        return csr_array((n[there], (pairs.rows[there], pairs.columns[there])), shape=shape)

    def inverse_n(self, term: int) -> FloatArray:
        """Return Σ_h n_gh(a) n_gh(b)/(n_g(a) n_g(b)) of every term h, averaged over groups g.

        They are the coefficients of the covariances of the terms in that of the means of two
        variables (Brennan 2001, eq. 7.28, for one variable); (k + 1, v, v), over their common
        groups.
        """
        v, means = self.n_variables, []
        for u in range(len(self.names)):
            means.append(self.shares(term, u))
        both = self.counts[term] > 0.0
        result = np.zeros((len(self.names), v, v))
        for u, shares in enumerate(means):
            for a in range(v):
                for b in range(v):
                    here = both[:, a] & both[:, b]
                    result[u, a, b] = shares[here, a, b].mean() if here.any() else 0.0
        return result

    def shares(self, term: int, other: int) -> FloatArray:
        """Return Σ_h n_gh(a) n_gh(b)/(n_g(a) n_g(b)) for each group g of a term, (q, v, v)."""
        v, n, pairs = self.n_variables, self.counts[term], self.joint(term, other)
        shares = pairs.counts / np.where(n > 0.0, n, 1.0)[pairs.rows]
        sums = sums_of(pairs.rows, self.sizes[term])
        result = np.empty((self.sizes[term], v, v))
        for a in range(v):
            result[:, a] = sums @ (shares[:, [a]] * shares)
        return result


def lay_out(scores: Scores) -> VariableLayout:
    """Return the layout of the terms of all variables."""
    structure = scores.models[0].design.structure
    nested_in = structure.nested_in
    sizes = [len(levels) for levels in scores.levels]
    names, facets, groups, counts = [], [], [], []
    for term in scores.models[0].design.formula.random:
        places = [scores.facets.index(f) for f in term.facets]
        codes, size = scores.codes[places[0]], sizes[places[0]]
        for place in places[1:]:
            keys, codes = number_combinations(codes, size, scores.codes[place], sizes[place])
            size = keys.size
        names.append(term.name)
        facets.append(closure(frozenset(term.facets), nested_in))
        groups.append(codes)
        counts.append(size)
    everything = frozenset(structure.facets)
    if any(model.design.structure.replicated for model in scores.models):
        everything |= {REPLICATE}
    return VariableLayout(
        scores=scores,
        names=(*names, RESIDUAL),
        facets=(*facets, everything),
        groups=(*groups, scores.unit),
        sizes=(*counts, scores.n_units),
    )
