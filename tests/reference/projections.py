"""Designs as dense matrices, analyses of variance by projections, Henderson I by fractions.

Nothing of vcomp is used here: these numbers check it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from tests.reference.tables import table

Matrix = NDArray[np.float64]


def constant(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"(Intercept)": np.ones(len(frame))})


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    female, age = (frame["Sex"] == "Female").astype(float), frame["age"].astype(float)
    columns = {"SexFemale": female, "age": age, "SexFemale:age": female * age}
    return constant(frame).assign(**columns)


# The fixed parts of the stored formulas, in R's treatment contrasts.
FIXED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "1": constant,
    "Days": lambda frame: constant(frame).assign(Days=frame["Days"].astype(float)),
    "service": lambda frame: constant(frame).assign(service1=frame["service"].astype(float)),
    "Sex*age": growth,
}


class Design:
    """The response, the fixed part and the indicator matrices of a stored formula."""

    def __init__(self, formula: str, name: str) -> None:
        frame = table(name)
        response, _, right = formula.replace(" ", "").partition("~")
        self.terms = re.findall(r"\(1\|([^)]*)\)", right)
        fixed = FIXED[right.partition("+(")[0]](frame)
        self.y = frame[response].to_numpy(dtype=float)
        self.decimals = [Fraction(str(value)) for value in frame[response].tolist()]
        self.fixed_names, self.X = list(fixed.columns), fixed.to_numpy(dtype=float)
        self.cells: dict[str, Any] = {}
        self.labels: dict[str, list[str]] = {}
        for term in self.terms:
            text = frame[term.split(":")].astype(str).agg(":".join, axis=1)
            self.cells[term], labels = pd.factorize(text)
            self.labels[term] = list(labels)
        self.n = len(self.y)
        self.names = [*self.terms, "Residual"]

    def Z(self, term: str) -> Any:
        """Return the (n, levels) indicator matrix of a term, sparse."""
        rows, cells = np.arange(self.n), self.cells[term]
        shape = (self.n, len(self.labels[term]))
        return sparse.csr_array((np.ones(self.n), (rows, cells)), shape=shape)


# Henderson's Method I ----------------------------------------------------------------------------


def t_terms(design: Design, exact: bool) -> tuple[list[Any], list[list[Any]]]:
    """Return uncorrected sums of squares (terms, total, mean) and their expectations.

    A sum over the cells of one grouping: the squared total of a cell over its rows. Its
    expectation has, for each other grouping, the squares of the counts in the cell over its rows.
    """
    number: Callable[[Any], Any] = Fraction if exact else float
    y = design.decimals if exact else design.y.tolist()
    groups = {name: design.cells[name].tolist() for name in design.terms}
    groups |= {"Residual": list(range(design.n)), "mean": [0] * design.n}
    sums, coefficients = [], []
    for rows in groups.values():
        total: dict[int, Any] = {}
        size: dict[int, int] = {}
        for cell, value in zip(rows, y, strict=True):
            total[cell] = total.get(cell, number(0)) + value
            size[cell] = size.get(cell, 0) + 1
        sums.append(sum(value * value / size[cell] for cell, value in total.items()))
        row = []
        for columns in groups.values():
            counts: dict[tuple[int, int], int] = {}
            for pair in zip(rows, columns, strict=True):
                counts[pair] = counts.get(pair, 0) + 1
            row.append(sum(number(k * k) / size[cell] for (cell, _), k in counts.items()))
        coefficients.append(row)
    return sums, coefficients


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Return the solution of linear equations in fractions, by Gauss and Jordan."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def henderson1(design: Design, exact: bool, covariance: bool) -> dict[str, Any]:
    """Return T terms, components and their normal-theory covariance, as ``hm1`` stores them."""
    sums, coefficients = t_terms(design, exact)
    lines = [*design.names, "mean"]
    values: list[Any]
    if exact:
        values = solved(coefficients, sums)
    else:
        values = np.linalg.solve(np.array(coefficients), np.array(sums)).tolist()
    found: dict[str, Any] = {
        "T": dict(zip(lines, map(float, sums), strict=True)),
        "T_exact": dict(zip(lines, map(str, sums), strict=True)) if exact else None,
        "coef_rows": lines,
        "coef_cols": [*design.names, "mu^2"],
        "coef": [[float(c) for c in row] for row in coefficients],
        "vc": dict(zip(design.names, map(float, values[:-1]), strict=True)),
        "vc_exact": dict(zip(design.names, map(str, values[:-1]), strict=True)) if exact else None,
        "mu2": float(values[-1]),
    }
    if covariance:
        inverse = np.linalg.inv(np.array(coefficients, dtype=float))[:-1]
        projections = [mean_over(design.Z(term).toarray()) for term in design.terms]
        projections += [np.eye(design.n), mean_over(np.ones((design.n, 1)))]
        forms = [sum(c * Q for c, Q in zip(row, projections, strict=True)) for row in inverse]
        found |= _of_covariance(design, forms, found["vc"])
    return found


def mean_over(Z: Matrix) -> Matrix:
    return Z / Z.sum(axis=0) @ Z.T


def _of_covariance(design: Design, forms: list[Any], vc: dict[str, float]) -> dict[str, Any]:
    """Return 2 tr(AVBV) of quadratic forms A, B that the mean does not enter."""
    V = vc["Residual"] * np.eye(design.n)
    for term in design.terms:
        Z = design.Z(term).toarray()
        V += vc[term] * Z @ Z.T
    products = [form @ V for form in forms]
    covariance = np.array([[2.0 * np.sum(A * B.T) for B in products] for A in products])
    se = np.sqrt(np.diagonal(covariance))
    return {"cov_vc": covariance.tolist(), "se": dict(zip(design.names, se.tolist(), strict=True))}


# Sums of squares by projections ------------------------------------------------------------------


def basis(A: Matrix, known: Matrix) -> Matrix:
    """Return an orthonormal basis of what the columns of A add to those of a known basis."""
    rest = A
    for _ in range(2):  # once more, for what rounding left
        rest = rest - known @ (known.T @ rest)
    U, s, _ = np.linalg.svd(rest, full_matrices=False)
    new: Matrix = U[:, s > 1e-8 * np.linalg.norm(A)]
    return new


def type1(design: Design, order: list[str]) -> dict[str, Any]:
    """Return sequential sums of squares, their expectations, components and covariance."""
    known, forms, df = basis(design.X, np.zeros((design.n, 0))), [], []
    for term in order[:-1]:
        new = basis(design.Z(term).toarray(), known)
        forms.append(new @ new.T)
        df.append(new.shape[1])
        known = np.hstack([known, new])
    forms.append(np.eye(design.n) - known @ known.T)
    df.append(design.n - known.shape[1])
    found = _components(design, forms, order)
    ms = [ss / k for ss, k in zip(found["ss"].values(), df, strict=True)]
    ems = np.array(found["ss_coef"]) / np.array(df)[:, None]
    inverse = np.linalg.inv(np.array(found["ss_coef"]))
    of_components = [sum(c * M for c, M in zip(row, forms, strict=True)) for row in inverse]
    return {
        **found,
        "df": dict(zip(order, df, strict=True)),
        "ms": dict(zip(order, ms, strict=True)),
        "ems_coef": ems.tolist(),
        **_of_covariance(design, of_components, found["vc"]),
    }


def each_last(design: Design, order: list[str]) -> dict[str, Any]:
    """Return the sums of squares of each term adjusted for all others: Henderson III."""
    matrices = {term: design.Z(term).toarray() for term in order[:-1]}
    forms = []
    for term in order[:-1]:
        others = [design.X, *(Z for name, Z in matrices.items() if name != term)]
        known = basis(np.hstack(others), np.zeros((design.n, 0)))
        new = basis(matrices[term], known)
        forms.append(new @ new.T)
    known = basis(np.hstack([design.X, *matrices.values()]), np.zeros((design.n, 0)))
    forms.append(np.eye(design.n) - known @ known.T)
    return _components(design, forms, order)


def _components(design: Design, forms: list[Matrix], order: list[str]) -> dict[str, Any]:
    squares = [float(design.y @ M @ design.y) for M in forms]
    matrices = [design.Z(term).toarray() for term in order[:-1]] + [np.eye(design.n)]
    coefficients = [[float(np.sum(Z * (M @ Z))) for Z in matrices] for M in forms]
    values = np.linalg.solve(np.array(coefficients), np.array(squares))
    return {
        "order": order,
        "ss": dict(zip(order, squares, strict=True)),
        "ss_coef": coefficients,
        "vc": dict(zip(order, values.tolist(), strict=True)),
    }
