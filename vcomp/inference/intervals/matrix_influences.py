"""The scores of single rows of a model of covariance matrices, for robust intervals.

With slopes the effects of a level h are a vector, and so is u_h = Z_h'Py. The part of row i in it
is a row of generalised least squares within the level (docs/explanation/mathematics.md, eqs.
(10.22) and (10.23)), of which eqs. (10.16) and (10.17) are the case of one effect of each level.
Rows may have weights, and several residual variances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, CovarianceBlocks
from vcomp.estimators.likelihood import MatricesLikelihood
from vcomp.formula import INTERCEPT, EffectMatrix
from vcomp.statistics import Statistics

_SINGULAR = 1e-10
"""Eigenvalue of the squares of a level's columns, in the largest, that is rounding error."""


def with_matrices(stats: Statistics, names: Sequence[str]) -> Statistics:
    """Return the statistics of the same rows, whose single variances are 1 × 1 matrices.

    Parameters
    ----------
    stats : of rows in memory
    names : of the terms
    """
    if stats.blocks is not None:
        return stats
    k = len(names)
    matrices = tuple(EffectMatrix(n, (INTERCEPT,), ((t,),)) for t, n in enumerate(names))
    blocks = CovarianceBlocks(matrices, (None,) * k)
    return Statistics.from_rows(replace(stats.cells, blocks=blocks, effects=(None,) * k), None)


@dataclass(frozen=True, slots=True, eq=False)
class _Effects:
    """The effects of the levels of one set of facets, of one or several bars.

    Attributes
    ----------
    pairs : pairs of effects of each element of the bars' matrices
    codes : (n,) level of each row
    counts : (levels,) their numbers of rows
    z : (n, q) columns that the effects are multiplied by
    matrix : (q, q) Λ of all bars
    effects : (levels, q) predicted
    expected : (levels, q, q) Z_h'PZ_h
    """

    pairs: tuple[tuple[int, int], ...]
    codes: IntArray
    counts: FloatArray
    z: FloatArray
    matrix: FloatArray
    effects: FloatArray
    expected: FloatArray

    @property
    def of_rows(self) -> FloatArray:
        """The sum of the predicted effects in each row, (n,)."""
        return (self.z * self.effects[self.codes]).sum(axis=1)

    def summed(self, values: FloatArray) -> FloatArray:
        """Return the sums of the values of rows, (n, …), over levels, (levels, …)."""
        flat = values.reshape(len(values), -1)
        sums = [np.bincount(self.codes, column, self.counts.size) for column in flat.T]
        return np.array(sums, dtype=float).T.reshape(self.counts.size, *values.shape[1:])


def row_scores(
    likelihood: MatricesLikelihood, chunk: Chunk, sets: Sequence[frozenset[str]], v: FloatArray
) -> FloatArray:
    """Return the scores of single rows by the components, (n, components); they add up to zero.

    Parameters
    ----------
    likelihood : of the rows
    chunk : the rows
    sets : for each term the facets of its effects, with those that they are nested in
    v : components, the residuals positive
    """
    S = likelihood.matrices_of(v)
    terms = [sets[term[0]] for term in likelihood.terms]
    every = {s: _effects(likelihood, chunk, terms, s, v) for s in dict.fromkeys(terms)}
    beta = likelihood.fixed_effects(S)[0]
    residuals = v[v.size - likelihood.n_residuals :]
    alone = np.zeros(chunk.response.size, dtype=np.int32)
    group = alone if chunk.residual_codes is None else chunk.residual_codes
    weights = np.ones(group.size) if chunk.weights is None else chunk.weights
    error = chunk.y - chunk.X @ beta - sum(own.of_rows for own in every.values())
    precision = weights / residuals[group]
    left = np.full(group.size, 1.0 - beta.size / group.size)
    by_element: dict[tuple[int, int], FloatArray] = {}
    for chosen, own in every.items():
        finer = [other for s, other in every.items() if chosen < s]
        found, part = _scores(own, finer, error, precision)
        left -= part
        bars = [t for t, s in enumerate(terms) if s == chosen]
        named = [(t, e) for t in bars for e in range(len(likelihood.equations.pairs[t]))]
        by_element.update(zip(named, found, strict=True))
    # The derivatives by elements of centred effects, in their order, the residuals last
    factor = likelihood.unit / likelihood.weight
    scores = [factor * by_element[name] for name in sorted(by_element)]
    squares = precision * error**2 / residuals[group]
    for r, _ in enumerate(residuals):
        inside = group == r
        square, expected = squares[inside].sum(), left[inside].sum()
        ratio = square / expected if expected > 0.0 else 0.0
        scores.append(likelihood.unit * np.where(inside, squares - ratio * left, 0.0))
    half = 0.5 * np.array(scores)
    return np.ascontiguousarray(np.linalg.solve(likelihood.back.T, half).T)


def _effects(
    likelihood: MatricesLikelihood,
    chunk: Chunk,
    terms: Sequence[frozenset[str]],
    chosen: frozenset[str],
    v: FloatArray,
) -> _Effects:
    """Return the effects of all bars of a set of facets, of centred columns."""
    from scipy.linalg import block_diag

    assert chunk.effects is not None
    point, root = likelihood.at(likelihood.matrices_of(v)), np.sqrt(likelihood.weight)
    bars = [t for t, s in enumerate(terms) if s == chosen]
    columns = [c for t in bars for c in likelihood.terms[t]]
    codes = chunk.codes[columns[0]]
    counts = np.bincount(codes, minlength=chunk.sizes[columns[0]]).astype(float)
    levels, effects, pairs, q = [], [], [], 0
    for t in bars:
        own: LongArray = np.zeros(counts.size, dtype=np.int64)
        own[codes] = chunk.codes[likelihood.terms[t][0]]
        levels.append(own)
        effects.append(point.effects(t)[own] / root)
        width = len(likelihood.terms[t])
        pairs += [(q + a, q + b) for a, b in combinations_with_replacement(range(width), 2)]
        q += width
    ones = np.ones(codes.size)
    columns_of_rows = (chunk.effects[c] for c in columns)
    matrices = likelihood.blocks.centred_matrices(v)
    return _Effects(
        pairs=tuple(pairs),
        codes=codes,
        counts=counts,
        z=np.column_stack([ones if z is None else z for z in columns_of_rows]),
        matrix=block_diag(*(matrices[t] for t in bars)),
        effects=np.concatenate(effects, axis=1),
        expected=likelihood.weight * point.expected_products(bars, levels),
    )


def _scores(
    own: _Effects, finer: Iterable[_Effects], error: FloatArray, precision: FloatArray
) -> tuple[list[FloatArray], FloatArray]:
    """Return twice the scores of the elements, and the part of each row in tr(ΛZ'PZ).

    Parameters
    ----------
    own : effects whose matrices have the elements
    finer : effects of finer levels
    error : (n,) y − Xβ̂ − Zû
    precision : (n,) w/σ²
    """
    z, codes, n = own.z, own.codes, np.maximum(own.counts, 1.0)[:, None]
    scaled = z * precision[:, None]
    gram = own.summed(scaled[:, :, None] * z[:, None, :])
    back = np.linalg.pinv(gram, rcond=_SINGULAR, hermitian=True)
    rest, within = error.copy(), np.zeros_like(gram)
    for other in finer:
        rest += other.of_rows
        cross = other.summed(scaled[:, :, None] * other.z[:, None, :])
        above = np.zeros(other.counts.size, dtype=np.int64)
        above[other.codes] = codes
        np.add.at(within, above, cross @ other.matrix @ cross.swapaxes(1, 2))
    # The inverse of the variance of the levels' least squares estimates, times the gram's inverse
    whole = np.eye(z.shape[1]) + gram @ own.matrix + within @ back
    shares = np.linalg.inv(whole)
    u = own.summed(scaled * error[:, None])
    part = (shares[codes] @ (scaled * (own.of_rows + rest)[:, None])[:, :, None])[:, :, 0]
    part += ((u - own.summed(part)) / n)[codes]
    # Expectations add up to the sums of products, which differ from theirs at bounds.
    to_rows = own.expected @ back
    total, inside = u.T @ u, own.expected.sum(axis=0)
    share = np.trace(np.linalg.pinv(inside, hermitian=True) @ own.expected, axis1=1, axis2=2)
    missing = share[:, None, None] / z.shape[1] * (total - inside)
    missing = (missing + own.expected - to_rows @ gram) / n[:, :, None]
    expected = (to_rows[codes] @ scaled[:, :, None])[:, :, 0]
    found = []
    for a, b in own.pairs:
        of_rows = u[codes, a] * part[:, b] - expected[:, a] * z[:, b]
        of_rows += u[codes, b] * part[:, a] - expected[:, b] * z[:, a]
        of_rows -= (missing[:, a, b] + missing[:, b, a])[codes]
        found.append(0.5 * of_rows if a == b else of_rows)
    return found, ((z @ own.matrix) * expected).sum(axis=1)
