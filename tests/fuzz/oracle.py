"""The highest maximum of a likelihood, from n × n matrices: nothing of the library is used.

V = v_e (Σ γ_t Z_t Z_t' + I), where the best v_e for given ratios γ has a closed form. The
likelihood is evaluated on a grid of ratios that contains every face of zeros, and climbed on the
scale of square roots from the highest points of the grid that are local maxima of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from scipy.optimize import minimize

_RATIOS = {1: 60, 2: 20, 3: 11}
"""Number of positive ratios on the grid, by the number of terms."""

_SMALLEST, _LARGEST = 1e-4, 1e7
_CLIMBS = 14
_RANK = 1e-10


@dataclass(frozen=True)
class Highest:
    """What a search over all maxima has found.

    Attributes
    ----------
    loglike : the largest log-likelihood with a residual above zero, or its limit
    values : components there, the residual last
    unbounded : whether the log-likelihood has no upper limit
    others : log-likelihoods of the other ends of climbs, in falling order
    """

    loglike: float
    values: np.ndarray
    unbounded: bool
    others: tuple[float, ...]


class Dense:
    """A linear model with random effects, by n × n matrices.

    Parameters
    ----------
    y : (n,) response
    X : (n, p) columns of the fixed part, of full rank
    labels : for each term the labels of its rows
    reml : whether the likelihood is the restricted one
    """

    def __init__(self, y, X, labels, *, reml):
        self.X, self.reml, self.n, self.p = np.asarray(X, float), reml, *np.shape(X)
        self.y = np.asarray(y, float)
        self.Z = [_indicators(column) for column in labels]
        self.K = np.array([Z @ Z.T for Z in self.Z])
        # The least-squares residual has the same likelihood and fewer digits to lose.
        self.Q = np.linalg.qr(self.X)[0] if self.p else np.zeros((self.n, 0))
        self.r = self.y - self.Q @ (self.Q.T @ self.y)
        self.df = self.n - self.p * reml
        self.log_XX = float(np.linalg.slogdet(self.X.T @ self.X)[1]) if self.p else 0.0

    def value(self, v):
        """Return the log-likelihood at components, the residual last."""
        V = np.tensordot(v[:-1], self.K, 1) + v[-1] * np.eye(self.n)
        L = np.linalg.cholesky(V)
        W = np.linalg.solve(L, np.column_stack([self.r, self.Q]))
        w, A = W[:, 0], W[:, 1:]
        gram = A.T @ A
        left = w - A @ np.linalg.solve(gram, A.T @ w) if self.p else w
        deviance = 2.0 * np.log(np.diagonal(L)).sum() + left @ left + self.df * np.log(2 * np.pi)
        if self.reml and self.p:
            deviance += np.linalg.slogdet(gram)[1] + self.log_XX
        return -0.5 * float(deviance)

    def effects(self, v):
        """Return estimates with standard errors at components: of X, and of each term's levels.

        They solve Henderson's equations in their form with V; levels are in order of their labels.
        """
        V = np.tensordot(v[:-1], self.K, 1) + v[-1] * np.eye(self.n)
        solved = np.linalg.solve(V, np.column_stack([self.y, self.X]))
        covariance = np.linalg.inv(self.X.T @ solved[:, 1:])
        fixed = covariance @ (self.X.T @ solved[:, 0])
        P = np.linalg.inv(V) - solved[:, 1:] @ covariance @ solved[:, 1:].T
        found = [(fixed, np.sqrt(np.diagonal(covariance)))]
        for Z, component in zip(self.Z, v[:-1], strict=True):
            explained = component * np.einsum("ij,ik,kj->j", Z, P, Z)
            error = np.sqrt(component * np.maximum(1.0 - explained, 0.0))
            found.append((component * (Z.T @ (P @ self.y)), error))
        return found

    def profiled(self, ratios):
        """Return the log-likelihoods at the best scale for rows of ratios to the residual."""
        ratios = np.atleast_2d(ratios)
        V = np.tensordot(ratios, self.K, 1) + np.eye(self.n)
        values, vectors = np.linalg.eigh(V)
        # All eigenvalues are at least 1.
        values = np.maximum(values, 1.0)
        W = vectors.swapaxes(1, 2) @ np.column_stack([self.r, self.Q])
        W /= np.sqrt(values)[:, :, None]
        gram = W.swapaxes(1, 2) @ W
        log_det = np.log(values).sum(axis=1)
        quadratic = gram[:, 0, 0].copy()
        if self.p:
            inner, side = gram[:, 1:, 1:], gram[:, 1:, :1]
            solved = np.linalg.solve(inner, side)
            left = W[:, :, :1] - W[:, :, 1:] @ solved
            quadratic = np.square(left[:, :, 0]).sum(axis=1)
            if self.reml:
                log_det = log_det + np.linalg.slogdet(inner)[1] + self.log_XX
        scale = np.maximum(quadratic, 1e-300) / self.df
        value = -0.5 * (log_det + self.df * (np.log(2.0 * np.pi * scale) + 1.0))
        return value, scale

    def slopes(self, ratio):
        """Return minus the profiled log-likelihood and its gradient by the ratios."""
        V = np.tensordot(ratio, self.K, 1) + np.eye(self.n)
        inverse = np.linalg.inv(V)
        P = inverse
        value = np.linalg.slogdet(V)[1]
        if self.p:
            side = inverse @ self.Q
            gram = self.Q.T @ side
            P = inverse - side @ np.linalg.solve(gram, side.T)
            if self.reml:
                value += np.linalg.slogdet(gram)[1] + self.log_XX
        Pr = P @ self.r
        quadratic = max(float(self.r @ Pr), 1e-300)
        value += self.df * (np.log(2.0 * np.pi * quadratic / self.df) + 1.0)
        trace = np.einsum("ij,tji->t", P if self.reml else inverse, self.K)
        form = np.einsum("i,tij,j->t", Pr, self.K, Pr)
        return 0.5 * value, 0.5 * (trace - self.df * form / quadratic)

    def is_unbounded(self):
        """Whether some terms and the fixed part fit the response, and more than it has to be.

        The full likelihood then rises with the directions that the terms do not reach, the
        restricted one with those that the fixed part does not reach either.
        """
        size = np.linalg.norm(self.r)
        if size <= 1e-9 * np.linalg.norm(self.y):
            return True
        for count in range(1, len(self.Z) + 1):
            for chosen in combinations(self.Z, count):
                both, terms = np.hstack([self.Q, *chosen]), np.hstack(chosen)
                U, s, _ = np.linalg.svd(both)
                rank = int((s > _RANK * s[0]).sum())
                reached = rank if self.reml else int(np.linalg.matrix_rank(terms))
                fits = np.linalg.norm(U[:, rank:].T @ self.r) <= 1e-9 * size
                if reached < self.n and fits:
                    return True
        return False

    def highest(self):
        """Return the highest maximum over all faces."""
        k = len(self.K)
        if self.is_unbounded():
            return Highest(np.inf, np.full(k + 1, np.nan), True, ())
        steps = np.concatenate([[0.0], np.geomspace(_SMALLEST, _LARGEST, _RATIOS[k])])
        grid = np.array(list(product(steps, repeat=k)))
        values = self.profiled(grid)[0].reshape((steps.size,) * k)
        found = []
        for place in _peaks(values)[:_CLIMBS]:
            found.append(self._climbed(np.array([steps[i] for i in place])))
        found.sort(key=lambda end: -end[0])
        best, ratio = found[0]
        scale = float(self.profiled(ratio)[1][0])
        others = tuple(value for value, _ in found[1:])
        return Highest(best, scale * np.append(ratio, 1.0), False, others)

    def _climbed(self, ratio):
        """Return the profiled log-likelihood and the ratios at the end of climbs from a point."""
        best, at = float(self.profiled(ratio)[0][0]), ratio
        for face in (ratio > 0.0, np.ones(ratio.size, dtype=bool)):
            # A square root of zero has no slope: it starts a little above it.
            start = np.sqrt(np.where(face, np.maximum(at, 1e-3), 0.0))

            def turned(root):
                value, slope = self.slopes(np.square(root))
                return value, 2.0 * root * slope

            end = minimize(
                turned,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=[(0.0, 1e6 if f else 0.0) for f in face],
                options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500},
            )
            value = float(self.profiled(np.square(end.x))[0][0])
            if value > best:
                best, at = value, np.square(end.x)
        return best, at


def _indicators(labels):
    codes = np.unique(np.asarray(labels), return_inverse=True)[1].ravel()
    return np.eye(codes.max() + 1)[codes]


def _peaks(values):
    """Return the places of a grid that are not below their neighbours, the highest first."""
    padded = np.pad(values, 1, constant_values=-np.inf)
    inner = tuple(slice(1, -1) for _ in values.shape)
    peak = np.ones(values.shape, dtype=bool)
    for axis in range(values.ndim):
        for shift in (-1, 1):
            peak &= values >= np.roll(padded, shift, axis)[inner]
    places = np.argwhere(peak)
    return places[np.argsort(-values[peak], kind="stable")]
