"""The groups of the terms of several dependent variables, and what these groups share.

All estimators of covariances work on a :class:`VariableLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import number_combinations
from vcomp.formula import REPLICATE, RESIDUAL, closure
from vcomp.multivariate.variables import Scores, combined


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


def lay_out(scores: Scores) -> VariableLayout:
    """Return the layout of the terms of all variables."""
    structure = scores.models[0].design.structure
    nested_in = structure.nested_in
    sizes = [len(levels) for levels in scores.levels]
    names, facets, groups, counts = [], [], [], []
    for term in scores.models[0].design.formula.random:
        places = [scores.facets.index(f) for f in term.facets]
        codes, size = combined([scores.codes[p] for p in places], [sizes[p] for p in places])
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
