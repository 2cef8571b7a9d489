"""Random tables with one term of two to four levels and covariates, and their highest maximum.

The likelihood has one ratio to maximise over. A dense scan of its logarithm, from sums by level
and nothing of the library, cannot miss a maximum.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from tests.fuzz.oracle import Highest
from tests.fuzz.small_tables import Case

_LOGS = np.linspace(np.log(1e-5), np.log(1e7), 700)
"""Scanned logarithms of the ratio, 0.04 apart: the information on one is at most 3/2."""


def one_term_case(number, seed=0):
    """Return a case by its number: REML for even numbers, ML for odd ones."""
    rng = np.random.default_rng([1, seed, number])
    while True:
        n, levels = int(np.exp(rng.uniform(np.log(8.0), np.log(120.0)))), int(rng.integers(2, 5))
        share = rng.dirichlet(np.full(levels, rng.choice([0.5, 2.0, 20.0])))
        h, fixed, X = rng.choice(levels, size=n, p=share), [], [np.ones(n)]
        data = pd.DataFrame({"h": h})
        for name, size in (("f", 4), ("e", 3)):
            if rng.random() < 0.5:
                data[name] = rng.integers(0, int(rng.integers(2, size + 1)), n)
                fixed.append(f"C({name})")
                X += [data[name] == level for level in np.unique(data[name])[1:]]
        for name in "xzw"[: rng.integers(0 if fixed else 1, 4)]:
            tied = rng.choice([0.0, 0.0, 2.0])  # a covariate that differs between levels
            data[name] = (rng.normal(size=n) + tied * rng.normal(size=levels)[h]).round(2)
            fixed.append(name)
            X.append(data[name])
        X = np.column_stack(X).astype(float)
        Z = np.eye(levels)[h]
        rank = np.linalg.matrix_rank(np.hstack([X, Z]))
        full = np.linalg.matrix_rank(X) == X.shape[1] < rank < n - 1
        if full and np.unique(h).size == levels:
            break
    y = rng.choice([0.0, 0.3, 1.0, 3.0]) * rng.normal(size=levels)[h] + rng.normal(size=n)
    if rng.random() < 0.2:
        y += 0.5 * rng.standard_t(2, size=n)
    data["y"] = (y + X @ rng.normal(size=X.shape[1])).round(int(rng.choice([1, 2, 9])))
    return Case(number, data, (("h",),), " + ".join(["1", *fixed]), X, number % 2 == 0)


def highest(dense):
    """Return the highest maximum of a :class:`~tests.fuzz.oracle.Dense` likelihood of one term."""
    Z, df = dense.Z[0], dense.df
    sizes = Z.sum(axis=0)
    columns = np.column_stack([dense.r, dense.Q])
    gram, sums = columns.T @ columns, Z.T @ columns

    def profiled(logs):
        ratio = np.exp(np.atleast_1d(logs))
        shrink = ratio[:, None] / (1.0 + ratio[:, None] * sizes)
        grams = gram - np.einsum("gl,lb,lc->gbc", shrink, sums, sums)
        inner, side = grams[:, 1:, 1:], grams[:, 1:, :1]
        left = grams[:, 0, 0] - (side * np.linalg.solve(inner, side)).sum(axis=(1, 2))
        log_det = np.log1p(ratio[:, None] * sizes).sum(axis=1)
        if dense.reml:
            log_det += np.linalg.slogdet(inner)[1] + dense.log_XX
        scale = left / df
        return -0.5 * (log_det + df * (np.log(2.0 * np.pi * scale) + 1.0)), scale

    logs = np.concatenate([[-np.inf], _LOGS])
    values, scales = profiled(logs)
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    ends = [(values[0], 0.0, scales[0])]
    peaks = (values >= padded[:-2]) & (values >= padded[2:])
    # A maximum is at most ½ · 3/2 · 0.02² above the nearest value.
    for i in np.flatnonzero(peaks & (values > values.max() - 0.01)):
        if i > 0:
            low, high = _LOGS[max(i - 2, 0)], _LOGS[min(i, _LOGS.size - 1)]
            best = minimize_scalar(
                lambda x: -profiled(x)[0][0],
                bounds=(low, high),
                method="bounded",
                options={"xatol": 1e-8},
            ).x
            ends.append((profiled(best)[0][0], np.exp(best), profiled(best)[1][0]))
    ends.sort(key=lambda end: -end[0])
    value, ratio, scale = ends[0]
    others = tuple(float(end[0]) for end in ends[1:])
    return Highest(float(value), np.array([ratio * scale, scale]), False, others)
