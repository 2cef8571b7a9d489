"""Random small unbalanced tables with one to three random terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Case:
    """One table with its model.

    Attributes
    ----------
    number : of the case, which gives its seed
    data : columns y, x and facets
    terms : tuples of facets
    fixed : text of the fixed part
    X : (n, p) its columns
    reml : whether it is fitted by REML
    """

    number: int
    data: pd.DataFrame
    terms: tuple[tuple[str, ...], ...]
    fixed: str
    X: np.ndarray
    reml: bool

    @property
    def formula(self):
        """The model as the library reads it."""
        return f"y ~ {self.fixed} + " + " + ".join(f"(1|{':'.join(t)})" for t in self.terms)

    @property
    def labels(self):
        """Labels of the rows by term."""
        return [_joined(self.data, term) for term in self.terms]


_TERMS = {
    1: [("a",)],
    2: [("a",), ("b",)],
    3: [("a",), ("b",), ("c",)],
    4: [("a",), ("a", "b")],
    5: [("a",), ("b",), ("a", "b")],
    6: [("a",), ("a", "b"), ("a", "b", "c")],
}


def case(number, seed=0):
    """Return a case by its number, with terms that the rows can tell apart."""
    rng = np.random.default_rng([seed, number])
    while True:
        made = _drawn(rng, number)
        if _is_estimable(made):
            return made


def _drawn(rng, number):
    terms = tuple(_TERMS[int(rng.choice(6, p=[0.25, 0.3, 0.15, 0.1, 0.1, 0.1])) + 1])
    n = int(rng.integers(5, 26))
    data = pd.DataFrame({f: _codes(rng, n) for f in "abc"})
    data["x"] = rng.normal(size=n).round(2)
    y = _noise(rng, n)
    for term in terms:
        codes = np.unique(_joined(data, term), return_inverse=True)[1]
        y = y + rng.choice([0.0, 0.3, 1.0, 3.0]) * _noise(rng, codes.max() + 1)[codes]
    digits = int(rng.choice([0, 1, 2, 9], p=[0.1, 0.2, 0.4, 0.3]))
    data["y"] = (y + rng.choice([0.0, 10.0])).round(digits)
    fixed = str(rng.choice(["1", "1 + x", "0"], p=[0.75, 0.15, 0.1]))
    ones, x = np.ones(n), data["x"].to_numpy()
    X = {"1": np.c_[ones], "1 + x": np.c_[ones, x], "0": np.zeros((n, 0))}[fixed]
    return Case(number, data, terms, fixed, X, bool(rng.random() < 0.6))


def _joined(data, term):
    return ["/".join(map(str, row)) for row in zip(*(data[f] for f in term), strict=True)]


def _is_estimable(made):
    """Whether the covariance matrices of the terms are different functions of the rows."""
    n, p = made.X.shape
    Z = [np.unique(c, return_inverse=True)[1] for c in made.labels]
    if min(c.max() + 1 for c in Z) < 2 or max(c.max() + 1 for c in Z) == n:
        return False
    same = [(c[:, None] == c[None, :]).astype(float) for c in Z] + [np.eye(n)]
    Q = np.linalg.qr(made.X, mode="complete")[0][:, p:]
    forms = np.array([(Q.T @ K @ Q).ravel() for K in same])
    sizes = np.linalg.norm(forms, axis=1, keepdims=True)
    if not (sizes > 1e-8).all() or n - p < len(forms):
        return False
    return np.linalg.svd(forms / sizes, compute_uv=False)[-1] > 1e-6


def _codes(rng, n):
    """Return codes of 2 to n levels, equally or very unequally often."""
    levels = int(rng.integers(2, max(3, min(n, 11)) + 1))
    share = rng.dirichlet(np.full(levels, rng.choice([0.3, 1.0, 10.0])))
    return rng.choice(levels, size=n, p=share)


def _noise(rng, n):
    kind = rng.integers(4)
    if kind == 0:
        return rng.standard_t(2, size=n)
    if kind == 1:
        return rng.exponential(size=n) - 1.0
    return rng.normal(size=n)
