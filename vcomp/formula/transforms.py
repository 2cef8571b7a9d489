"""Functions that formulas may use without an import: R's, with R's arguments, and numpy's.

``scale`` and ``poly`` depend on all rows, which patsy passes to them in batches; new rows are
transformed by the numbers of the fit.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from vcomp._typing import FloatArray


class _Standardisation:
    """R's ``scale``: the mean and the sum of squares are merged batch by batch."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, np.zeros(()), np.zeros(())

    def memorize_chunk(self, x: Any, center: bool = True, scale: bool = True) -> None:
        x = np.asarray(x, dtype=float)
        if not len(x):
            return
        before, self.n = self.n, self.n + len(x)
        mean = x.mean(axis=0)
        shift = mean - self.mean
        self.squares = (
            self.squares + np.square(x - mean).sum(axis=0) + shift**2 * (before * len(x) / self.n)
        )
        self.mean = self.mean + shift * (len(x) / self.n)

    def memorize_finish(self) -> None:
        pass

    def transform(self, x: Any, center: bool = True, scale: bool = True) -> FloatArray:
        x = np.asarray(x, dtype=float) - (self.mean if center else 0.0)
        if not scale:
            return x
        squares = self.squares if center else self.squares + self.n * self.mean**2
        return x / np.sqrt(squares / (self.n - 1))


class _OrthogonalPolynomials:
    """R's ``poly``: orthonormal over the rows of the fit, by the three-term recurrence."""

    def __init__(self) -> None:
        self.parts: list[FloatArray] = []
        self.degree, self.centre = 1, 0.0
        self.shifts: list[float] = []
        self.squares: list[float] = []

    def memorize_chunk(self, x: Any, degree: int = 1, raw: bool = False) -> None:
        if not isinstance(degree, Integral) or degree < 1:
            raise ValueError(f"the degree of poly() must be a whole number from 1, not {degree!r}")
        self.parts.append(np.asarray(x, dtype=float))
        self.degree = int(degree)

    def memorize_finish(self) -> None:
        x, self.parts = np.concatenate(self.parts), []
        if np.unique(x).size <= self.degree:
            raise ValueError(f"poly() of degree {self.degree} needs more than as many values")
        self.centre = float(x.mean())
        x = x - self.centre
        for p in self._polynomials(x):
            self.squares.append(float(p @ p))
            self.shifts.append(float((x * p) @ p) / self.squares[-1])

    def _polynomials(self, x: FloatArray) -> Any:
        """Yield the polynomials by degree; the coefficients of each are needed for the next."""
        before, p = np.zeros_like(x), np.ones_like(x)
        for k in range(self.degree + 1):
            yield p
            ratio = self.squares[k] / self.squares[k - 1] if k else 0.0
            before, p = p, (x - self.shifts[k]) * p - ratio * before

    def transform(self, x: Any, degree: int = 1, raw: bool = False) -> FloatArray:
        x = np.asarray(x, dtype=float)
        if raw:
            return np.stack([x**k for k in range(1, degree + 1)], axis=-1)
        polynomials = list(self._polynomials(x - self.centre))[1:]
        lengths = np.sqrt(np.array(self.squares[1:]))
        return np.stack(polynomials, axis=-1) / lengths


def log(x: Any, base: float | None = None) -> Any:
    """Return the logarithm, the natural one without a base."""
    return np.log(x) if base is None else np.log(x) / np.log(base)


def _of_all_rows(transformation: Any, *args: Any, **options: Any) -> Any:
    """Return what a transformation makes of rows that are all there."""
    transformation.memorize_chunk(*args, **options)
    transformation.memorize_finish()
    return transformation.transform(*args, **options)


# Functions of a module can be pickled, as patsy's own wrappers of transforms cannot.
def scale(x: Any, center: bool = True, scale: bool = True) -> Any:
    """Return x less its mean, over its standard deviation (of n - 1)."""
    return _of_all_rows(_Standardisation(), x, center, scale)


def poly(x: Any, degree: int = 1, raw: bool = False) -> Any:
    """Return orthogonal polynomials of x, or its powers."""
    return _of_all_rows(_OrthogonalPolynomials(), x, degree, raw)


scale.__patsy_stateful_transform__ = _Standardisation  # type: ignore[attr-defined]
poly.__patsy_stateful_transform__ = _OrthogonalPolynomials  # type: ignore[attr-defined]

TRANSFORMS = {
    "np": np,
    "log": log,
    "scale": scale,
    "poly": poly,
    **{name: getattr(np, name) for name in ("log2", "log10", "log1p", "exp", "sqrt")},
}
"""What formulas may use without an import, unless the caller has something of the same name."""
