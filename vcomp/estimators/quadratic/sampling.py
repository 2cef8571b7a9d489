"""The sampling covariance of Method I's estimates: exact, or by Monte Carlo with its error.

Let K be the coefficients of E[T − T_μ] and C the covariance of T − T_μ at the estimates. The
covariance of the estimates is K⁻¹ C K⁻ᵀ (docs/explanation/mathematics.md, eq. (2.6)). C is exact
if its chains of pair tables are affordable. Otherwise it is estimated by random probes, eq. (2.8)
(Hutchinson 1990), with a Monte Carlo error that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators.quadratic.quadratic_forms import (
    CHAIN_LIMITS,
    ChainLimits,
    StratumPart,
    TooLargeError,
    contrast_with_mean,
    quadratic_covariance,
    stratum_parts,
    stratum_quadratic_covariance,
)
from vcomp.numerics import covariance_of_solution, solve
from vcomp.numerics.sparse import Rademacher
from vcomp.statistics import CrossProducts, Statistics

_ALL_GROUPS_UP_TO = 128
"""Total number of groups of the smallest terms up to which their traces are exact."""

_COLUMNS_AT_ONCE = 8
_ELEMENTS_AT_ONCE = 60_000_000
"""Largest number of elements of the products of a term's probes with all tables."""


@dataclass(frozen=True, slots=True)
class Probing:
    """Forms averaged over probes, with the deviations of single probes.

    Attributes
    ----------
    forms : (m, m) the average
    spread : (b, m, m) the forms of each probe minus the average
    """

    forms: FloatArray
    spread: FloatArray

    @property
    def n_probes(self) -> int:
        """Number of probes."""
        return int(self.spread.shape[0])

    def variance_of_diagonal(self, rows: FloatArray) -> FloatArray:
        """Return the Monte Carlo variances of the diagonal of R F R', (r,), for R of (r, m)."""
        b = self.n_probes
        values = np.einsum("ra,bac,rc->br", rows, self.spread, rows)
        return np.square(values).sum(axis=0) / (b * (b - 1))


class ProbedForms:
    """Estimates of tr(A_a V A_b V) for some projectors from random probes.

    Parameters
    ----------
    tables : cross-products, of which only the pair tables and group sizes are used
    positions : the projectors: terms by number, ``n_terms`` for the mean, and one more for all
        observations
    v : (k + 1,) components, the residual last; some may be negative
    seed : seed of the probes
    all_up_to : groups of the smallest terms together up to which their traces are exact
    elements_at_once : largest number of elements of the products of one term's columns with all
        tables

    Attributes
    ----------
    exact : (m, m) the part of the forms that is computed without probes
    """

    def __init__(
        self,
        tables: CrossProducts,
        positions: Sequence[int],
        v: FloatArray,
        seed: int,
        all_up_to: int = _ALL_GROUPS_UP_TO,
        elements_at_once: int = _ELEMENTS_AT_ONCE,
    ) -> None:
        self._elements_at_once = elements_at_once
        self._tables, self._v, self._positions = tables, v, tuple(positions)
        self._n, self._k = float(tables.n), tables.n_terms
        self._inside = [a for a in self._positions if a < self._k]
        k = range(self._k)
        self._finer = np.array([[tables.is_finer(a, b) for b in k] for a in k], dtype=bool)
        self._signs = Rademacher(0, seed)
        by_size = sorted(range(self._k), key=lambda t: (tables.sizes[t], t))
        self._order = [t for t in by_size if v[t] != 0.0]
        sums = np.cumsum([tables.sizes[t] for t in self._order])
        n_exact = int(np.searchsorted(sums, all_up_to, side="right"))
        self._probed = self._order[n_exact:]
        self.exact: FloatArray = v[-1] ** 2 * self._traces_of_products()
        for t in self._order[:n_exact]:
            for columns in self._units(t):
                self.exact += self._over_columns(t, columns).sum(axis=0)

    @property
    def operations(self) -> float:
        """Number of multiplications of one probe."""
        return sum(self._operations_of(t) for t in self._probed)

    def _operations_of(self, t: int) -> float:
        """Return the number of multiplications of one probe of term t."""
        sizes = self._tables.sizes
        inside = [a for a in self._inside if not self._finer[a, t]]
        total = float(sum(self._entries(u, t) for u in range(self._k)))
        for u in self._after(t):
            slots = [a for a in inside if not self._finer[a, u]]
            total += sum(self._entries(u, a) for a in slots)
            total += 0.5 * sizes[u] * (len(slots) + 3) ** 2
        return total

    def _entries(self, u: int, t: int) -> int:
        """Return the number of entries of N_ut."""
        return (
            self._tables.sizes[t]
            if u == t
            else self._tables.table(min(u, t), max(u, t)).indices.size
        )

    def _after(self, t: int) -> list[int]:
        """Return the terms that are paired with term t: itself and those with more groups."""
        return self._order[self._order.index(t) :]

    def sample(self, first: int, last: int) -> FloatArray:
        """Return the probed part of the forms from probes ``first .. last − 1``, (b, m, m)."""
        m = len(self._positions)
        forms = np.zeros((last - first, m, m))
        for t in self._probed:
            step = self._step()
            for begin in range(first, last, step):
                end = min(begin + step, last)
                size = self._tables.sizes[t]
                x = self._signs.columns((t,), (size,), begin, end)
                forms[begin - first : end - first] += self._over_columns(t, x)
        return forms

    def _step(self) -> int:
        """Return the number of columns that are multiplied at once."""
        sizes = self._tables.sizes
        elements = 2 * sum(sizes) + (self._k + 3) * max(sizes)
        return int(np.clip(self._elements_at_once // max(elements, 1), 1, _COLUMNS_AT_ONCE))

    def _units(self, t: int) -> list[FloatArray]:
        """Return the unit columns of term t, some at a time: as probes they are exact."""
        eye, step = np.eye(self._tables.sizes[t]), self._step()
        return [np.ascontiguousarray(eye[:, i : i + step]) for i in range(0, len(eye), step)]

    def _over_columns(self, t: int, x: FloatArray) -> FloatArray:
        """Return the contribution of each column x of term t to the forms, (b, m, m).

        Summed over unit columns, or in expectation over random signs, this is the part of
        tr(A_a V A_b V) in which t is paired with itself, with the terms after it (counted twice,
        as pairs are symmetric), and with the residual.
        """
        v, n = self._v, self._tables.group_n
        h = [self._tables.times(u, t, x) for u in range(self._k)]
        g = {a: h[a] / n[a][:, None] for a in self._inside if not self._finer[a, t]}
        mean = n[t] @ x / self._n
        forms = np.zeros((len(self._positions), len(self._positions), x.shape[1]))
        crossed: dict[tuple[int, int], FloatArray] = {}
        for u in self._after(t):
            slots = [a for a in g if not self._finer[a, u]]
            products = self._products_of_images(u, slots, g, h[u], mean)
            at = {a: 2 + i for i, a in enumerate(slots)} | {self._k: 1}
            places = [at.get(a, 0) for a in self._positions]
            weight = v[t] * v[u] * (1.0 if u == t else 2.0)
            forms += weight * products[places][:, places]
            if u in g:
                crossed |= {(a, u): products[at[a], -1] for a in slots}
        whole = n[t] @ np.square(x)
        forms += 2.0 * v[-1] * v[t] * self._residual_part(g, h, whole, mean, crossed)
        return np.ascontiguousarray(forms.transpose(2, 0, 1))

    def _products_of_images(
        self,
        u: int,
        slots: Sequence[int],
        g: dict[int, FloatArray],
        h: FloatArray,
        mean: FloatArray,
    ) -> FloatArray:
        """Return the inner products of Z_u'A_a Z_t x for all pairs of projectors a.

        The first vector is h = Z_u'Z_t x, for all observations and for projectors that are finer
        than t or u. The second is that of the mean, the others are those of `slots`. If u is one
        of the projectors in `g`, D_u⁻¹h comes last.
        """
        images = [h, self._tables.group_n[u][:, None] * mean]
        images += [self._tables.times(u, a, g[a]) for a in slots]
        if u in g:
            images.append(g[u])
        products = np.empty((len(images), len(images), mean.size))
        for i, x in enumerate(images):
            for j, y in enumerate(images[: i + 1]):
                products[i, j] = products[j, i] = np.einsum("qb,qb->b", x, y)
        return products

    def _residual_part(
        self,
        g: dict[int, FloatArray],
        h: list[FloatArray],
        whole: FloatArray,
        mean: FloatArray,
        crossed: dict[tuple[int, int], FloatArray],
    ) -> FloatArray:
        """Return x'Z_t'A_a A_b Z_t x of all pairs of projectors, (m, m, b).

        If a is finer than b, A_a A_b = A_b; then no product of tables is needed.
        """
        squares = {a: np.einsum("qb,qb->b", g[a], h[a]) for a in g}
        part = np.empty((len(self._positions), len(self._positions), mean.size))
        for i, a in enumerate(self._positions):
            for j, b in enumerate(self._positions[: i + 1]):
                if self._k in (a, b):
                    value = self._n * np.square(mean)
                elif a not in g or b not in g:
                    value = squares.get(a, squares.get(b, whole))
                elif self._finer[a, b] or self._finer[b, a]:
                    value = squares[b if self._finer[a, b] else a]
                elif (a, b) in crossed or (b, a) in crossed:
                    value = crossed[(a, b) if (a, b) in crossed else (b, a)]
                else:
                    value = np.einsum("qb,qb->b", g[b], self._tables.times(b, a, g[a]))
                part[i, j] = part[j, i] = value
        return part

    def _traces_of_products(self) -> FloatArray:
        """Return tr(A_a A_b) of all pairs of projectors."""
        m = len(self._positions)
        traces = np.ones((m, m))  # that of the mean and any projector is 1
        for i, a in enumerate(self._positions):
            for j, b in enumerate(self._positions[: i + 1]):
                if self._k not in (a, b):
                    traces[i, j] = traces[j, i] = self._trace_of_product(min(a, b), max(a, b))
        return traces

    def _trace_of_product(self, a: int, b: int) -> float:
        whole = self._k + 1
        if b == whole or a == b:
            return self._n if a == whole else float(self._tables.sizes[a])
        table, n = self._tables.pairs[a, b], self._tables.group_n
        rows = np.repeat(n[a], np.diff(table.indptr))
        return float((np.square(table.counts) / rows / n[b][table.indices]).sum())


def average_until(
    sample: Callable[[int, int], FloatArray],
    exact: FloatArray,
    enough: Callable[[Probing], bool],
    batch: int,
    limit: int,
) -> Probing:
    """Return forms averaged over probes, drawn until they are accurate or `limit` is reached.

    Parameters
    ----------
    sample : returns the forms of the probes from one number up to another
    exact : (m, m) the part without probes
    enough : returns whether an average is accurate enough
    batch : number of probes between two checks; at least 2 are drawn
    limit : largest number of probes
    """
    drawn: list[FloatArray] = []
    count = 0
    while True:
        upto = min(max(count + batch, 2), limit)
        drawn.append(sample(count, upto))
        count = upto
        forms = np.concatenate(drawn)
        mean = forms.mean(axis=0)
        probing = Probing(exact + mean, forms - mean)
        if count >= limit or enough(probing):
            return probing


_ENOUGH = 0.01
"""Relative error of every standard error at which no more probes are drawn."""

_BATCH = 32
_LIMIT = 1024
_OPERATIONS = 2e10
"""Number of multiplications (half a minute) after which no more probes are drawn. One batch is
drawn in any case."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """A covariance matrix of estimates with its Monte Carlo error.

    Attributes
    ----------
    covariance : (k + 1, k + 1) the matrix
    errors : (k + 1,) relative Monte Carlo errors of the standard errors; zeros if the matrix is
        exact
    n_probes : number of probes, 0 if it is exact
    clipped : whether negative eigenvalues were set to zero
    """

    covariance: FloatArray
    errors: FloatArray
    n_probes: int = 0
    clipped: bool = False

    def errors_of(self, names: tuple[str, ...]) -> dict[str, float]:
        """Return the errors by component, empty if the matrix is exact."""
        return dict(zip(names, self.errors.tolist(), strict=True)) if self.n_probes else {}

    @property
    def sentence(self) -> str:
        """The sentence for the status, after a space; empty if the matrix is exact."""
        if not self.n_probes:
            return ""
        known = self.errors[np.isfinite(self.errors)]
        text = f" Standard errors by Monte Carlo ({self.n_probes} probes)"
        text += (
            f", with a Monte Carlo error of {display.number(100.0 * known.max(), 2)} % or less."
            if known.size
            else "."
        )
        if known.size < self.errors.size:
            text += " Estimates whose estimated sampling variance is negative have none."
        if self.clipped and known.size:
            text += (
                " Their covariance matrix had negative eigenvalues, as it can at negative "
                "estimates: they were set to zero and the diagonal was kept."
            )
        return text


def sampling_covariance(
    stats: Statistics,
    coefficients: FloatArray,
    values: FloatArray,
    n_probes: int | None = None,
    seed: int = 0,
) -> Sampling:
    """Return the covariance of Method I's estimates under normality, with V at the estimates.

    Parameters
    ----------
    stats : sums of the data
    coefficients : (k + 1, k + 1) K, of the components (columns) in E[T − T_μ]
    values : (k + 1,) estimates; negative ones are not set to zero
    n_probes : number of probes; None computes the covariance exactly if that is affordable, else
        by as many probes as reduce the errors of all standard errors to 1 %, within limits of time
    seed : seed of the probes
    """
    if not values.any():
        return Sampling(np.zeros_like(coefficients), np.zeros(values.size))
    if n_probes is None:
        try:
            return exact_sampling(stats, coefficients, values)
        except TooLargeError:
            pass
    return probed_sampling(stats, coefficients, values, n_probes, seed)


def exact_sampling(
    stats: Statistics,
    coefficients: FloatArray,
    values: FloatArray,
    limits: ChainLimits = CHAIN_LIMITS,
) -> Sampling:
    """Return the covariance of :func:`sampling_covariance`, computed exactly.

    Parameters
    ----------
    stats, coefficients, values : as for :func:`sampling_covariance`
    limits : sizes up to which chains are evaluated

    Raises
    ------
    TooLargeError
        If that would need too much memory or time.
    """
    if stats.strata is not None:
        quadratic = stratum_quadratic_covariance(stats.strata, values, limits)
    else:
        quadratic = quadratic_covariance(stats.cross_products, values, limits)
    return Sampling(covariance_of_solution(coefficients, quadratic), np.zeros(values.size))


def probed_sampling(
    stats: Statistics,
    coefficients: FloatArray,
    values: FloatArray,
    n_probes: int | None,
    seed: int,
    *,
    all_up_to: int = _ALL_GROUPS_UP_TO,
) -> Sampling:
    """Return the covariance of :func:`sampling_covariance`, estimated by random probes.

    Parameters
    ----------
    stats, coefficients, values, n_probes, seed : as for :func:`sampling_covariance`
    all_up_to : groups of the smallest terms together up to which their traces are exact
    """
    rows = solve(coefficients, contrast_with_mean(values.size - 1))
    probing = _averaged(_forms(stats, values, seed, all_up_to), rows, n_probes)
    covariance = 2.0 * rows @ probing.forms @ rows.T
    errors = _relative_errors(probing, rows)
    covariance, clipped = nearest_covariance(0.5 * (covariance + covariance.T))
    return Sampling(covariance, errors, probing.n_probes, clipped)


def nearest_covariance(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Return a positive semidefinite matrix with the same diagonal, and whether it was changed.

    Negative eigenvalues of the correlation matrix are set to zero, and its diagonal is rescaled to
    one. Rows and columns of variances that are not positive are nan.
    """
    variances = np.diagonal(matrix)
    known = variances > 0.0
    scale = np.sqrt(variances[known])
    inside = np.ix_(known, known)
    values, vectors = np.linalg.eigh(matrix[inside] / np.outer(scale, scale))
    if known.all() and (not values.size or values[0] > -1e-12):
        return matrix, False
    correlation = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale /= np.sqrt(np.diagonal(correlation))
    nearest = np.full_like(matrix, np.nan)
    nearest[inside] = correlation * np.outer(scale, scale)
    return nearest, True


def _relative_errors(probing: Probing, rows: FloatArray) -> FloatArray:
    """Return the relative Monte Carlo errors of the standard errors, nan without a variance.

    They are half of those of the variances; a variance that is not positive has no standard error.
    """
    variances = np.einsum("ra,ac,rc->r", rows, probing.forms, rows)
    positive = np.where(variances > 0.0, variances, np.nan)
    return 0.5 * np.sqrt(probing.variance_of_diagonal(rows)) / positive


def _averaged(forms: _Forms, rows: FloatArray, n_probes: int | None) -> Probing:
    sample, exact, operations = forms
    limit = int(np.clip(_OPERATIONS / max(operations, 1.0), _BATCH, _LIMIT))

    def enough(probing: Probing) -> bool:
        return not bool((_relative_errors(probing, rows) > _ENOUGH).any())

    batch, limit = (_BATCH, limit) if n_probes is None else (n_probes, n_probes)
    return average_until(sample, exact, enough, batch, limit)


_Forms: TypeAlias = tuple[Callable[[int, int], FloatArray], FloatArray, float]


def _forms(stats: Statistics, values: FloatArray, seed: int, all_up_to: int) -> _Forms:
    """Return the sampler of probed forms, their exact part, and the multiplications of a probe."""
    if stats.strata is None:
        tables = stats.cross_products
        whole = ProbedForms(tables, range(tables.n_terms + 2), values, seed, all_up_to)
        return whole.sample, whole.exact, whole.operations
    tables = stats.strata.remainder.tables
    parts: list[tuple[StratumPart, ProbedForms]] = []
    for number, part in enumerate(stratum_parts(stats.strata, values)):
        # Strata are independent, and so are their probes.
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        parts.append((part, ProbedForms(tables, part.positions, part.v, own_seed, all_up_to)))

    def sample(first: int, last: int) -> FloatArray:
        return sum(  # type: ignore[return-value]
            part.spread(forms.sample(first, last)) for part, forms in parts
        )

    exact: FloatArray = np.sum([part.spread(forms.exact) for part, forms in parts], axis=0)
    return sample, exact, sum(forms.operations for _, forms in parts)
