"""Solutions, traces and forms of the iterative engine at one value of the components.

The formulas are those of docs/explanation/mathematics.md, section 8. V_o is the covariance matrix
of the large terms and the residual; the small terms are added by eqs. (8.1) and (8.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.iterative_context import Context
from vcomp.estimators.likelihood.sparse_equations import (
    NearInverse,
    Reduced,
    Samples,
    SparseSystem,
)
from vcomp.estimators.likelihood.totals import FormsOfTerms
from vcomp.numerics import slices, solve_positive
from vcomp.numerics.sparse import SparseTable, log_quadrature
from vcomp.statistics import CrossProducts

_COMBINATIONS = 65_536
"""Combinations of effects whose variances are held at once."""

_OF_FORMS = 100.0
"""Factor of the tolerance where only forms are needed, whose errors are of second order."""


@dataclass(frozen=True, slots=True)
class OfResponses:
    """What derivatives of the likelihoods of B responses consist of.

    Attributes
    ----------
    rss, beta : (B,) y'P y, and (p, B) generalised least squares estimates
    u : (q_t, B) Z_t'P y of the terms
    h : for terms t and w the (q_w, B) Z_w'PZ_tZ_t'P y
    """

    rss: FloatArray
    beta: FloatArray
    u: dict[int, FloatArray]
    h: dict[int, dict[int, FloatArray]]


@dataclass(frozen=True, slots=True)
class _SolvedTogether:
    """What follows from solutions that are computed together, in several threads.

    Attributes
    ----------
    projections : Z_t'V_o⁻¹W of each large term, for W = [y X Z_s …]
    forms : W'V_o⁻¹W
    constant, by_probes : S⁻¹DU, and S⁻¹z of the probes
    """

    projections: dict[int, FloatArray]
    forms: FloatArray
    constant: FloatArray
    by_probes: FloatArray


class IterativePoint(FormsOfTerms):
    """Solutions, traces and forms at components `v`, each computed when first used."""

    def __init__(self, context: Context, system: SparseSystem, v: FloatArray) -> None:
        self.context = context
        self.system = system
        self.v = self.components = v
        self._stats = context.stats

    @property
    def active(self) -> tuple[int, ...]:
        """The terms with positive components, largest first."""
        return self.system.equations.active

    @property
    def residual(self) -> float:
        """The residual component σ²_e."""
        return float(self.v[-1])

    # Forms without probes ---------------------------------------------------------------------

    @cached_property
    def _solved(self) -> _SolvedTogether:
        at_zero, reduced = self._reduce(self.context.right())
        sides = {
            "columns": reduced.tail,
            "constant": self.system.diagonal[:, None] * self._constant,
            "probes": self._probes(),
        }
        of_columns, (constant, _), (by_probes, _) = self.context.solve(self.system, sides)
        projections, forms = self._applied(at_zero, reduced, *of_columns)
        whole = (self.context.gram - forms) / self.residual
        return _SolvedTogether(projections, whole, constant, by_probes)

    def _rows(self, term: int) -> FloatArray:
        """Return Z_t'V_o⁻¹W of a term."""
        if term in self.context.small:
            return self._solved.forms[self.context.small[term]]
        return self._solved.projections[term]

    def _outer(self, *, with_fixed: bool = True) -> tuple[LongArray, FloatArray]:
        """Return the positions of H = [X Z_s …] in W, and E = H'V_o⁻¹H + Γ⁻¹, eq. (8.1).

        If not `with_fixed`, H is without X.
        """
        ridge = np.zeros(len(self._solved.forms))
        for t, place in self.context.small.items():
            ridge[place] = 1.0 / self.v[t] if self.v[t] > 0.0 else np.inf
        first = 1 if with_fixed else 1 + self._stats.n_fixed
        places = first + np.flatnonzero(np.isfinite(ridge[first:]))
        return places, self._solved.forms[np.ix_(places, places)] + np.diag(ridge[places])

    @cached_property
    def _theta(self) -> FloatArray:
        """The solution of the equations with matrix E: β̂, then û of the small terms."""
        places, M = self._outer()
        return solve_positive(M, self._solved.forms[places, 0])

    @property
    def beta(self) -> FloatArray:
        """The generalised least squares estimate."""
        return self._theta[: self._stats.n_fixed]

    @cached_property
    def cov_beta(self) -> FloatArray:
        """(X'V⁻¹X)⁻¹."""
        _, M = self._outer()
        p = self._stats.n_fixed
        return solve_positive(M, np.eye(M.shape[0])[:, :p])[:p]

    @property
    def yPy(self) -> float:
        """The quadratic form y'P y, eq. (8.1)."""
        forms, (places, _) = self._solved.forms, self._outer()
        return float(forms[0, 0] - forms[0, places] @ self._theta)

    @cached_property
    def PZy(self) -> list[FloatArray]:
        """Z_t'P y of each term."""
        return self._less(0, self._outer()[0], self._theta)

    def fixed_gram(self) -> tuple[FloatArray, FloatArray]:
        """Return X'V⁻¹X and its inverse."""
        places, M = self._outer(with_fixed=False)
        forms, X = self._solved.forms, slice(1, 1 + self._stats.n_fixed)
        between = forms[np.ix_(places, np.arange(X.start, X.stop))]
        gram: FloatArray = forms[X, X] - between.T @ solve_positive(M, between)
        return 0.5 * (gram + gram.T), self.cov_beta

    def projected_fixed(self) -> list[FloatArray]:
        """Return Z_t'V⁻¹X of every term, (q_t, p)."""
        places, M = self._outer(with_fixed=False)
        X = np.arange(1, 1 + self._stats.n_fixed)
        solved = solve_positive(M, self._solved.forms[np.ix_(places, X)])
        return self._less(X, places, solved)

    def _less(
        self, columns: int | LongArray, places: LongArray, solved: FloatArray
    ) -> list[FloatArray]:
        """Return Z_t'V_o⁻¹(w − Hs) of each term, for columns w and H of W and solutions s."""
        rows = {t: self._rows(t)[:, columns] for t in range(self._stats.n_terms)}
        return list(self._without_fixed(rows, places, solved).values())

    def _of_small(self, term: int, places: LongArray) -> BoolArray | None:
        """Return which positions in W are of this term; None if it is at zero or not small."""
        place = self.context.small.get(term)
        if place is None or self.v[term] == 0.0:
            return None
        return (places >= place.start) & (places < place.stop)

    @property
    def _slices(self) -> tuple[slice, ...]:
        return self.system.equations.slices

    def _reduce(self, right: dict[int, FloatArray]) -> tuple[dict[int, FloatArray], Reduced]:
        """Return right-hand sides b = Z'w of terms at zero, and those of the others reduced."""
        nothing = np.zeros((0, next(iter(right.values())).shape[1]))
        lead = right.pop(self.active[0]) if self.active else nothing
        tail = np.concatenate([nothing, *(right.pop(t) for t in self.active[1:])])
        return right, self.system.reduce(lead, tail)

    def _solve(
        self, right: dict[int, FloatArray], name: str, tol: float = 0.0
    ) -> tuple[dict[int, FloatArray], Reduced, FloatArray, FloatArray]:
        """Return what :meth:`_reduce` does, and the solution and the residual of S."""
        at_zero, reduced = self._reduce(right)
        (solved,) = self.context.solve(self.system, {name: reduced.tail}, tol)
        return at_zero, reduced, *solved

    def of_responses(self, sums: Sequence[CrossProducts]) -> OfResponses:
        """Return y'P y, β̂, Z_t'P y and Z_u'PZ_tZ_t'P y of other responses of the same rows."""
        places, M = self._outer()
        p, active = self._stats.n_fixed, [t for t in self.active if t in self.context.levels]
        Zy = {t: np.column_stack([s.Zy[t] for s in sums]) for t in range(self._stats.n_terms)}
        right = {t: Zy[t] for t in self.context.levels}
        projections, forms = self._applied(*self._solve(right, "responses"))
        Hy = np.column_stack([s.Xy for s in sums])
        Hy = np.vstack([Hy, *(Zy[t] for t in self.context.small if self.v[t] > 0.0)])
        for t in active:
            Hy = Hy - self.v[t] * self._rows(t)[:, places].T @ Zy[t]
        theta = solve_positive(M, Hy / self.residual)
        rss = (np.array([s.yy for s in sums]) - np.diagonal(forms)) / self.residual
        rss -= (Hy * theta).sum(axis=0) / self.residual
        u, h = self._without_fixed(projections, places, theta), {}
        for t in np.flatnonzero(self.v[:-1] > 0.0).tolist():
            right = {w: self._stats.times(w, t, u[t]) for w in self.context.levels}
            solved = self._solve(right, f"response {t}", tol=_OF_FORMS * self.context.tol)
            projections, _ = self._applied(*solved)
            theta_t = solve_positive(M, self._rows(t)[:, places].T @ u[t])
            h[t] = self._without_fixed(projections, places, theta_t)
        return OfResponses(rss, theta[:p], u, h)

    def _applied(
        self,
        at_zero: Mapping[int, FloatArray],
        reduced: Reduced,
        x: FloatArray,
        residual: FloatArray,
    ) -> tuple[dict[int, FloatArray], FloatArray]:
        """Return Z_t'V_o⁻¹w of every large term and b'C⁻¹b, from b = Z'w and its solution."""
        effects = dict(zip(self.active[1:], (x[s] for s in self._slices), strict=True))
        if self.active:
            effects[self.active[0]] = self.system.back(reduced, x)
        projections = {t: e / self.v[t] for t, e in effects.items()}
        for t, b in at_zero.items():
            of_effects = [self._stats.times(t, u, e) for u, e in effects.items()]
            projections[t] = (b - sum(of_effects)) / self.residual
        return projections, self.system.forms(reduced, x, residual)

    def _without_fixed(
        self, projections: dict[int, FloatArray], places: LongArray, theta: FloatArray
    ) -> dict[int, FloatArray]:
        """Return Z_t'V_o⁻¹(w − Hθ) of each term from Z_t'V_o⁻¹w of the large ones."""
        found = {}
        for t in range(self._stats.n_terms):
            mine = self._of_small(t, places)
            if mine is not None:
                found[t] = theta[mine] / self.v[t]
            elif t in projections:
                found[t] = projections[t] - self._rows(t)[:, places] @ theta
        return found

    # Average information ------------------------------------------------------------------

    @cached_property
    def forms(self) -> FloatArray:
        """The matrix of f_t'P f_u of the terms, with f_t = V_t P y."""
        k, f = self._stats.n_terms, self.PZy
        Zf = {
            t: np.column_stack([self._stats.times(t, u, f[u][:, None]) for u in range(k)])
            for t in range(k)
        }
        ff = np.array([f[t] @ Zf[t] for t in range(k)])
        right = {t: Zf[t] for t in self.context.levels}
        solved = self.system.forms(*self._solve(right, "average")[1:])
        places, M = self._outer()
        Df = np.column_stack([self._rows(t)[:, places].T @ f[t] for t in range(k)])
        forms: FloatArray = (0.5 * (ff + ff.T) - solved) / self.residual
        return forms - Df.T @ solve_positive(M, Df)

    # Traces -------------------------------------------------------------------------------

    def traces(self, *, reml: bool) -> FloatArray:
        """Return tr(P V_t) of each term from each probe, (k, probes); V⁻¹ for P in ML."""
        samples = self._samples
        places, M = self._outer(with_fixed=reml)
        inverse = solve_positive(M, np.eye(places.size))
        exact = np.zeros(self._stats.n_terms)
        for t in range(exact.size):
            rows, mine, v = self._rows(t), self._of_small(t, places), self.v[t]
            if mine is not None:
                exact[t] = (rows.shape[0] - np.diagonal(inverse)[mine].sum() / v) / v
                continue
            if t in self.context.small:
                exact[t] = rows[:, self.context.small[t]].trace()
            H = rows[:, places]
            exact[t] -= np.einsum("ij,ji->", inverse, H.T @ H)
        return samples + exact[:, None]

    @cached_property
    def _samples(self) -> FloatArray:
        """tr(V_o⁻¹V_t) of each large term from each probe, (k, probes); 0 for small terms."""
        found: dict[int, FloatArray] = dict(self._active_traces())
        for t in self.context.levels:
            if t not in found:
                found[t] = self._trace_at_zero(t)
        width = max(x.size for x in found.values())
        samples = np.zeros((self._stats.n_terms, width))
        for t, x in found.items():
            # Unit vectors differ in number between terms; their means are exact.
            samples[t] = x if x.size == width else x.mean()
        return samples

    def _active_traces(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the traces of the terms in the equations, with tr C^tt by eqs. (8.3) and (8.4)."""
        if not self.active:
            return
        some = map(self._by_term, self._samples_at_once())
        samples = [[each.sum(axis=0) for each in of_terms] for of_terms in some]
        for place, (t, known) in enumerate(zip(self.active, self._known_diagonals, strict=True)):
            parts, v = [each[place] for each in samples], self.v[t]
            # With one large term the equations are diagonal.
            inverse = known.sum() + (np.concatenate(parts) if parts else np.zeros(1))
            yield t, self._stats.sizes[t] / v - self.residual * inverse / v**2

    @cached_property
    def _near(self) -> NearInverse:
        """The parts of S⁻¹ that are known without probes."""
        return NearInverse(self.system, self._constant, self._solved.constant)

    @property
    def _constant(self) -> FloatArray:
        """A constant column for each term that is not eliminated, U in eq. (8.3)."""
        return np.repeat(np.eye(len(self._slices)), self.system.equations.sizes[1:], axis=0)

    def _probes(self) -> FloatArray:
        """Return the probes of the terms in S, without keeping them."""
        sizes = self.system.equations.sizes[1:]
        count = self.context.probes.count(sizes) if sizes else 0
        return self.context.probes.columns(self.active[1:], sizes, 0, count)

    def _trace_at_zero(self, term: int) -> FloatArray:
        """Return tr(Z_t'V⁻¹Z_t) of a term at zero, from each probe."""
        size = (self._stats.sizes[term],)
        z = self.context.probes.columns((term,), size, 0, self.context.probes.count(size))
        right = {u: self._stats.times(u, term, z) for u in (term, *self.active)}
        forms = np.einsum("ij,ij->j", z, right[term])
        solved = self.system.forms(*self._solve(right, f"zero {term}")[1:])
        return (forms - np.diagonal(solved)) / self.residual

    # Variances of effects -----------------------------------------------------------------

    @cached_property
    def _known_diagonals(self) -> list[FloatArray]:
        """The known part of the diagonal of C⁻¹ of each active term."""
        near = self._near
        known = self.system.inverse_lead + near.lead_diagonal
        return [known, *(near.diagonal[s] for s in self._slices)]

    def _samples_at_once(self) -> Iterator[Samples]:
        """Yield what the probes add to C⁻¹, few at a time."""
        z = self._probes()
        for some in slices(z.shape[1], SparseTable.width):
            yield self._near.samples(z[:, some], self._solved.by_probes[:, some])

    def combination_variances(
        self, groups: LongArray, X: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return variances of x'β̂ + z'û − x'β − z'u; with β known; and their Monte Carlo errors.

        See docs/explanation/mathematics.md, eq. (8.4a).

        Parameters
        ----------
        groups : (m, k) group of each term, −1 for none and of terms at zero
        X : (m, p) fixed part, centred as in the statistics
        """
        whole, conditional, count = np.empty(len(groups)), np.empty(len(groups)), 0
        places, M = self._outer()
        p, sums = self._stats.n_fixed, np.zeros((2, len(groups)))
        inverse = solve_positive(M, np.eye(places.size))
        of_small = solve_positive(M[p:, p:], np.eye(places.size - p))
        parts = list(slices(len(groups), _COMBINATIONS))
        for part in parts:
            weights, known = self._known(groups[part], X[part], places)
            whole[part] = np.einsum("ij,jk,ik->i", weights, inverse, weights)
            small = weights[:, p:]
            conditional[part] = np.einsum("ij,jk,ik->i", small, of_small, small)
            whole[part] += self.residual * known
            conditional[part] += self.residual * known
        for samples in self._samples_at_once():
            count += samples.z.shape[1]
            for part in parts:
                of_probes = self._sampled(samples, groups[part])
                sums[:, part] += of_probes.sum(axis=1), np.square(of_probes).sum(axis=1)
        n = max(count, 2)
        spread = np.maximum(sums[1] - sums[0] ** 2 / n, 0.0) / (n * (n - 1.0))
        rest = self.residual * sums[0] / n
        return whole + rest, conditional + rest, self.residual * np.sqrt(spread)

    def _known(
        self, groups: LongArray, X: FloatArray, places: LongArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the weights of combinations in E⁻¹, and the known parts of their forms in C⁻¹."""
        weights, known = np.zeros((len(groups), places.size)), np.zeros(len(groups))
        weights[:, : X.shape[1]] = X
        for t in range(self._stats.n_terms):
            has = np.flatnonzero(groups[:, t] >= 0)
            some, mine = groups[has, t], self._of_small(t, places)
            if mine is not None:
                weights[has, np.flatnonzero(mine)[some]] += 1.0
            elif has.size:
                weights[has] -= self.v[t] * self._rows(t)[some][:, places]
                known[has] += self._known_diagonals[self.active.index(t)][some]
        for has, a, b, with_lead in self._pairs_in(groups):
            between = self._near.crossed_with_lead if with_lead else self._near.crossed
            known[has] += 2.0 * between(a, b)
        return weights, known

    def _sampled(self, samples: Samples, groups: LongArray) -> FloatArray:
        """Return what each probe adds to the forms of combinations in C⁻¹."""
        found = np.zeros((len(groups), samples.z.shape[1]))
        for t, diagonal in zip(self.active, self._by_term(samples), strict=True):
            has = np.flatnonzero(groups[:, t] >= 0)
            found[has] += diagonal[groups[has, t]]
        z, rest = samples.z, samples.rest
        for has, a, b, with_lead in self._pairs_in(groups):
            if with_lead:
                found[has] += 2.0 * samples.between[a] * z[b]
            else:
                found[has] += rest[a] * z[b] + z[a] * rest[b]
        return found

    def _by_term(self, samples: Samples) -> list[FloatArray]:
        """Return what probes add to the diagonal of C⁻¹ of each active term."""
        return [samples.lead, *(samples.tail[s] for s in self._slices)]

    def _pairs_in(
        self, groups: LongArray
    ) -> Iterator[tuple[LongArray, LongArray, LongArray, bool]]:
        """Yield which combinations have effects of two terms, these effects, and if one is lead.

        Effects are numbered as in S, those of the eliminated term by themselves.
        """
        starts = (0, *(s.start for s in self._slices))
        for (i, t), (j, u) in combinations(enumerate(self.active), 2):
            has = np.flatnonzero((groups[:, t] >= 0) & (groups[:, u] >= 0))
            if has.size:
                yield has, groups[has, t] + starts[i], groups[has, u] + starts[j], i == 0

    # Likelihood ---------------------------------------------------------------------------

    def log_determinants(self, *, reml: bool) -> FloatArray:
        """Return log|V| from each probe, for REML plus log|X'V⁻¹X|, eq. (8.2)."""
        total = 0.0
        for t in self.context.small:
            if self.v[t] > 0.0:
                total += self._stats.sizes[t] * np.log(self.v[t])
        _, M = self._outer(with_fixed=reml)
        return self._log_large + total + float(np.linalg.slogdet(M)[1])

    @cached_property
    def _log_large(self) -> FloatArray:
        """log|V_o| from each probe, eq. (8.5).

        Each is a quadrature with D^-½ S D^-½, which has a unit diagonal. The error of its first
        moment is therefore known; it is the first-order error of the logarithm, and is removed. So
        is that along a constant that moves between terms, which grows with the ratios.
        """
        system, s2 = self.system, self.residual
        log_V = self._stats.n * np.log(s2) - self._stats.log_weights
        log_V += np.log(system.lead).sum()
        log_V += np.log(system.diagonal).sum()
        for t in self.active:
            log_V += self._stats.sizes[t] * np.log(self.v[t] / s2)
        z = self._probes()
        if not z.size:
            return np.array([log_V])
        W, along = self._near.log_along()
        a = W.T @ z
        z *= np.sqrt(system.diagonal)[:, None]
        solved = system.solve(z, None, float(np.sqrt(self.context.tol)))
        self.context.products.setdefault("likelihood", []).append(solved.iterations)
        logs, firsts = log_quadrature(solved)
        known = np.einsum("ic,ij,jc->c", a, along, a) - along.trace()
        return log_V + len(z) * (logs - (firsts - 1.0)) - known
