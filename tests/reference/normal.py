"""REML and ML of a normal mixed model by its cross-products: likelihood, derivatives, maximum.

Nothing of vcomp is used here: these numbers check it. With G the Gram matrix of all indicator
columns, the fixed part and the response, A'V⁻¹B of any two of its blocks follows from the blocks
of terms that are not at zero (Woodbury); P = V⁻¹ − V⁻¹X(X'V⁻¹X)⁻¹X'V⁻¹, and PVP = P gives A'PPB.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse, stats
from scipy.optimize import brentq

from tests.reference.projections import Design, Matrix


class Likelihood:
    """The normal likelihood of a design, restricted or not, from its Gram matrix."""

    def __init__(self, design: Design, reml: bool) -> None:
        self.design, self.reml, self.n = design, reml, design.n
        self.shift = float(design.y.mean())
        y = design.y - self.shift
        blocks = [design.Z(term) for term in design.terms]
        columns = sparse.hstack([*blocks, design.X, y[:, None]], format="csr")
        self.G = (columns.T @ columns).toarray()
        self.sizes = [Z.shape[1] for Z in blocks]
        ends = np.cumsum([0, *self.sizes]).tolist()
        self.blocks = [slice(a, b) for a, b in pairwise(ends)]
        self.q, self.p = ends[-1], design.X.shape[1]

    def without(self, column: int, value: float) -> Likelihood:
        """Return the likelihood with one coefficient of the fixed part held at a value."""
        other = Likelihood(self.design, self.reml)
        T = np.eye(len(self.G))
        at = self.q + column
        T[at, -1] = -value
        other.G = np.delete(np.delete(T.T @ self.G @ T, at, axis=0), at, axis=1)
        other.p = self.p - 1
        return other

    def at(self, vc: Matrix) -> dict[str, Any]:
        """Return the log-likelihood at given components, its derivatives and the effects."""
        G, q, sigma2 = self.G, self.q, vc[-1]
        n, p = self.n, self.p
        scale = np.repeat(vc[:-1], self.sizes)
        used = np.flatnonzero(scale)
        M = np.eye(used.size) + G[np.ix_(used, used)] * scale[used] / sigma2
        S = (G - (G[:, used] * scale[used]) @ np.linalg.solve(M, G[used]) / sigma2) / sigma2
        xx = S[q : q + p, q : q + p]
        cov_beta = np.linalg.inv(xx)
        P = S - S[:, q : q + p] @ cov_beta @ S[q : q + p]
        determinant = n * np.log(sigma2) + np.linalg.slogdet(M)[1]
        df, fixed = (n - p, np.linalg.slogdet(xx)[1]) if self.reml else (n, 0.0)
        llf = -0.5 * (df * np.log(2.0 * np.pi) + determinant + fixed + P[-1, -1])
        beta = cov_beta @ S[q : q + p, -1]
        found = {"llf": float(llf), "beta": beta, "cov_beta": cov_beta, "S": S, "P": P}
        return found | self._derivatives(vc, P if self.reml else S, P, df)

    def _derivatives(self, vc: Matrix, T: Matrix, P: Matrix, rank: int) -> dict[str, Any]:
        """Return score and informations; T is P of REML and V⁻¹ of ML."""
        blocks, sigma2 = self.blocks, vc[-1]
        k = len(blocks)
        Py = [P[b, -1] for b in blocks]
        # y'PPy and Z'PPy, tr(T), tr(Z'TTZ) and tr(TT) by PVP = P and TVT = T.
        PPy = [
            (Py[i] - sum(vc[j] * P[blocks[i], blocks[j]] @ Py[j] for j in range(k))) / sigma2
            for i in range(k)
        ]
        yPPy = (P[-1, -1] - sum(vc[j] * Py[j] @ Py[j] for j in range(k))) / sigma2
        yPPPy = (yPPy - sum(vc[j] * Py[j] @ PPy[j] for j in range(k))) / sigma2
        trace = np.array([np.trace(T[b, b]) for b in blocks])
        squares = np.array([[np.sum(T[a, b] ** 2) for b in blocks] for a in blocks])
        whole = (rank - vc[:k] @ trace) / sigma2
        twice = (trace - squares @ vc[:k]) / sigma2
        expected, average = np.empty((k + 1, k + 1)), np.empty((k + 1, k + 1))
        expected[:k, :k] = squares / 2.0
        expected[k, :k] = expected[:k, k] = twice / 2.0
        expected[k, k] = (whole - vc[:k] @ twice) / sigma2 / 2.0
        for i in range(k):
            for j in range(k):
                average[i, j] = Py[i] @ P[blocks[i], blocks[j]] @ Py[j] / 2.0
            average[i, k] = average[k, i] = Py[i] @ PPy[i] / 2.0
        average[k, k] = yPPPy / 2.0
        forms = np.array([*(v @ v for v in Py), yPPy])
        return {
            "score": (forms - np.array([*trace, whole])) / 2.0,
            "forms": forms,
            "expected": expected,
            "average": average,
            "observed": 2.0 * average - expected,
            "Py": Py,
        }

    def maximum(
        self, start: Matrix | None = None, held: int | None = None, bound: bool = True
    ) -> Matrix:
        """Return the components at the maximum, one of them held if an index is given."""
        k = len(self.blocks) + 1
        vc = np.full(k, self.G[-1, -1] / self.n / k) if start is None else start.copy()
        here = self.at(vc)
        for _ in range(200):
            active = (vc > 0.0) | (here["score"] > 0.0) if bound else np.ones(k, dtype=bool)
            if held is not None:
                active[held] = False
            if not active.any():
                break
            at, score = np.ix_(active, active), here["score"][active]
            information = here["observed"][at]
            if np.linalg.eigvalsh(information)[0] <= 0.0:
                information = here["expected"][at]
            step = np.zeros(k)
            step[active] = np.linalg.solve(information, score)
            vc, here, moved = self._climb(vc, here, step, bound)
            if not moved or step[active] @ score < 1e-24 * self.n:
                break
        return vc

    def _climb(
        self, vc: Matrix, here: dict[str, Any], step: Matrix, bound: bool
    ) -> tuple[Matrix, dict[str, Any], bool]:
        """Return the first of the halved steps that is no descent."""
        rounding = 1e-12 * max(1.0, abs(here["llf"]))
        for halving in range(40):
            new = vc + step / 2.0**halving
            if bound:
                new[:-1] = np.maximum(new[:-1], 0.0)
            if new[-1] > 0.0:
                there = self.at(new)
                if there["llf"] >= here["llf"] - rounding:
                    return new, there, True
        return vc, here, False

    def interval(self, k: int, alpha: float, vc: Matrix) -> list[float]:
        """Return the ends of the profile interval of a component; `vc` is the maximum."""
        top, limit = self.at(vc)["llf"], stats.chi2.ppf(1.0 - alpha, 1)

        def excess(log_value: float) -> float:
            start = vc.copy()
            start[k] = np.exp(log_value)
            return float(2.0 * (top - self.at(self.maximum(start, k))["llf"]) - limit)

        middle = np.log(vc[k] if vc[k] > 0.0 else 1e-6 * vc.sum())
        low = 0.0
        if k == vc.size - 1 or (vc[k] > 0.0 and excess(-np.inf) > 0.0):
            low = np.exp(_root(excess, middle, -0.5))
        return [float(low), float(np.exp(_root(excess, middle, 0.5)))]


def _root(excess: Any, middle: float, step: float) -> float:
    near, far = middle, middle + step
    while excess(far) < 0.0:
        near, far = far, far + step
    return float(brentq(excess, near, far, xtol=1e-12, rtol=1e-13))


def fixed_interval(engine: Likelihood, column: int, alpha: float, vc: Matrix) -> list[float]:
    """Return the ends of the profile interval of one coefficient of the fixed part."""
    here = engine.at(vc)
    limit = stats.chi2.ppf(1.0 - alpha, 1)
    beta, se = here["beta"][column], np.sqrt(here["cov_beta"][column, column])

    def excess(value: float) -> float:
        part = engine.without(column, value)
        return float(2.0 * (here["llf"] - part.at(part.maximum(vc))["llf"]) - limit)

    shift = engine.shift if column == 0 else 0.0  # the response was centred
    return [
        float(brentq(excess, beta, beta + sign * 10.0 * se, xtol=1e-12)) + shift
        for sign in (-1.0, 1.0)
    ]
