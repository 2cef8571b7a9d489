"""Scores of several variables for tests, and their likelihood written out densely."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from patsy import EvalEnvironment

import vcomp
from vcomp.estimators.likelihood import elements
from vcomp.multivariate.variables import lay_out, read_scores

SMALL = pd.DataFrame(
    {
        "p": [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4],
        "i": [1, 2, 3] * 4,
        "x": [2, 4, 3, 5, 6, 4, 1, 3, 2, 6, 8, 4],
        "y": [1, 5, 2, 4, 7, 7, 2, 2, 3, 5, 6, 9],
    }
)
"""Four persons, three items, two variables of whole numbers."""


def alone_of(formula, data, **options):
    """Return the fit of one variable; Method I's warning on crossing is not of interest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(formula, data, **options)


def layout_of(formula, data, **options):
    """Return the layout of made scores; missing ones are left out beforehand."""
    return lay_out(read_scores(formula, data, EvalEnvironment.capture(0), **options))


def crossed(seed=0, n_p=8, n_i=5, v=3, spread=1.0):
    """Return wide data of a complete p × i design with v variables a, b, c, …"""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, v, v)) * spread
    p, i = rng.normal(size=(n_p, v)) @ root[0], rng.normal(size=(n_i, v)) @ root[1]
    y = p[:, None] + i[None] + rng.normal(size=(n_p, n_i, v)) @ root[2]
    data = pd.DataFrame(y.reshape(-1, v), columns=list("abcdef"[:v]))
    data["p"], data["i"] = np.repeat(np.arange(n_p), n_i), np.tile(np.arange(n_i), n_p)
    return data


def specification(seed=0, n_p=8, n_i=(3, 4, 5), missing=0.0, linked=False):
    """Return long data: each variable (column ``test``) has items of its own, or the same ones."""
    rng = np.random.default_rng(seed)
    v = len(n_i)
    p = rng.normal(size=(n_p, v)) @ rng.normal(size=(v, v))
    rows, first = [], 0
    for a, n in enumerate(n_i):
        items = rng.normal(size=n)
        for k in range(n):
            rows += [
                ("abcdef"[a], q, k if linked else first + k, p[q, a] + items[k] + rng.normal())
                for q in range(n_p)
            ]
        first += n
    data = pd.DataFrame(rows, columns=["test", "p", "i", "y"])
    return data[rng.random(len(data)) >= missing].reset_index(drop=True)


def long_of(wide, variables):
    """Return wide data in long form."""
    facets = [c for c in wide.columns if c not in variables]
    return wide.melt(id_vars=facets, value_vars=list(variables), var_name="test", value_name="y")


def positive(layout, seed=0, least=0.2):
    """Return positive definite matrices with zeros where variables are not linked."""
    rng = np.random.default_rng(seed)
    k, v, _ = layout.linked.shape
    A = rng.normal(size=(k, v, v))
    S = np.einsum("tab,tcb->tac", A, A) / v + (least + v) * np.eye(v)
    return np.where(layout.linked, S, 0.0)


def unit_matrices(layout):
    """Return ∂V/∂θ of every element between all scores, (m, n, n)."""
    w = layout.scores.variable
    made = []
    for t, a, b in elements(layout.linked):
        same = layout.groups[t][:, None] == layout.groups[t][None, :]
        pair = (w == a)[:, None] & (w == b)[None, :]
        made.append((same & (pair | pair.T)).astype(float))
    return np.array(made)


def vector(S, layout):
    """Return the elements of matrices."""
    return np.array([S[e] for e in elements(layout.linked)])


def dense_parts(theta, layout, y):
    """Return V, P, and the log-likelihoods (REML, ML) of scores y at elements θ."""
    V = np.einsum("m,mij->ij", theta, unit_matrices(layout))
    X = np.eye(layout.n_variables)[layout.scores.variable]
    inverse = np.linalg.inv(V)
    XVX = X.T @ inverse @ X
    P = inverse - inverse @ X @ np.linalg.solve(XVX, X.T @ inverse)
    n, p = X.shape
    common = np.linalg.slogdet(V)[1] + y @ P @ y
    reml = common + np.linalg.slogdet(XVX)[1] + (n - p) * np.log(2 * np.pi)
    return V, P, (-0.5 * reml, -0.5 * (common + n * np.log(2 * np.pi)))
