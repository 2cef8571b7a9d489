"""The sampling covariance of Method I's estimates: exact, or by Monte Carlo with its error.

With k the coefficients of E[T] and C the covariance of the T terms at the estimates, that of the
components is k⁻¹ C k⁻ᵀ. C is exact where the chains of tables that it consists of are short work,
and by random probes (Hutchinson 1990) elsewhere: those come with their own error, which is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators.probed_forms import ProbedForms, Probing, average_until
from vcomp.estimators.quadratic_forms import (
    StratumPart,
    TooLargeError,
    contrast_with_mean,
    quadratic_covariance,
    stratum_parts,
    stratum_quadratic_covariance,
)
from vcomp.linalg.dense import covariance_of_solution, solve
from vcomp.statistics import Statistics

__all__ = [
    "Sampling",
    "exact_sampling",
    "nearest_covariance",
    "probed_sampling",
    "sampling_covariance",
]

_ENOUGH = 0.01
"""Relative error of every standard error at which no more probes are drawn."""

_BATCH = 32
_LIMIT = 1024
_OPERATIONS = 2e10
"""Multiplications after which no more probes are drawn, half a minute's; a batch is drawn
whatever it takes."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """A covariance matrix of estimates and what is known of its own error.

    Attributes
    ----------
    covariance : (k + 1, k + 1)
    errors : (k + 1,) Monte Carlo standard errors of the standard errors, relative to them; zeros
        where the matrix is exact
    n_probes : number of probes, 0 where it is exact
    clipped : whether the matrix had negative eigenvalues, which are zero now
    """

    covariance: FloatArray
    errors: FloatArray
    n_probes: int = 0
    clipped: bool = False

    def errors_of(self, names: tuple[str, ...]) -> dict[str, float]:
        """Return the errors by component, empty where the matrix is exact."""
        return dict(zip(names, self.errors.tolist(), strict=True)) if self.n_probes else {}

    @property
    def sentence(self) -> str:
        """What a status says of it, with a space before; empty where it is exact."""
        if not self.n_probes:
            return ""
        known = self.errors[np.isfinite(self.errors)]
        text = f" Standard errors by Monte Carlo ({self.n_probes} probes)"
        text += (
            f", themselves known to {display.number(100.0 * known.max(), 2)} %."
            if known.size
            else "."
        )
        if known.size < self.errors.size:
            text += " Where their variance comes out as negative there are none."
        if self.clipped and known.size:
            text += (
                " Their covariance matrix had negative eigenvalues, as it can at negative "
                "estimates: they were set to zero and its diagonal kept."
            )
        return text


def sampling_covariance(
    stats: Statistics,
    coefficients: FloatArray,
    values: FloatArray,
    n_probes: int | None = None,
    seed: int = 0,
) -> Sampling:
    """Return the covariance of components under normality, at the estimates.

    Parameters
    ----------
    stats : of the rows
    coefficients : (k + 1, k + 1) of the components (columns) in E[T] less the mean's
    values : (k + 1,) estimates, negative ones as they are
    n_probes : number of probes; None is exact where that is affordable, and elsewhere as many as
        it takes to know every standard error to 1 %, within limits of time
    seed : of the probes
    """
    if not values.any():
        return Sampling(np.zeros_like(coefficients), np.zeros(values.size))
    if n_probes is None:
        try:
            return exact_sampling(stats, coefficients, values)
        except TooLargeError:
            pass
    return probed_sampling(stats, coefficients, values, n_probes, seed)


def exact_sampling(stats: Statistics, coefficients: FloatArray, values: FloatArray) -> Sampling:
    """Return the covariance by chains of tables.

    Raises
    ------
    TooLargeError
        If one of them takes too much memory or time.
    """
    if stats.strata is not None:
        quadratic = stratum_quadratic_covariance(stats.strata, values)
    else:
        quadratic = quadratic_covariance(stats.cross_products, values)
    return Sampling(covariance_of_solution(coefficients, quadratic), np.zeros(values.size))


def probed_sampling(
    stats: Statistics,
    coefficients: FloatArray,
    values: FloatArray,
    n_probes: int | None,
    seed: int,
) -> Sampling:
    """Return the covariance by random probes; they depend on the seed and their number alone."""
    rows = solve(coefficients, contrast_with_mean(values.size - 1))
    probing = _averaged(stats, values, rows, n_probes, seed)
    covariance = 2.0 * rows @ probing.forms @ rows.T
    errors = _relative_errors(probing, rows)
    covariance, clipped = nearest_covariance(0.5 * (covariance + covariance.T))
    return Sampling(covariance, errors, probing.n_probes, clipped)


def nearest_covariance(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Return a positive semidefinite matrix with the same diagonal, and whether it is another.

    Negative eigenvalues of the correlation matrix become zero and its diagonal one again. A
    variance that is not positive is not known: its row and column are nan.
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
    """Return relative errors of square roots: half of those of the variances.

    Of a variance that is not positive there is none (nan).
    """
    variances = np.einsum("ra,ac,rc->r", rows, probing.forms, rows)
    positive = np.where(variances > 0.0, variances, np.nan)
    errors: FloatArray = 0.5 * np.sqrt(probing.variance_of_diagonal(rows)) / positive
    return errors


def _averaged(
    stats: Statistics, values: FloatArray, rows: FloatArray, n_probes: int | None, seed: int
) -> Probing:
    sample, exact, operations = _forms(stats, values, seed)
    limit = int(np.clip(_OPERATIONS / max(operations, 1.0), _BATCH, _LIMIT))

    def enough(probing: Probing) -> bool:
        return not bool((_relative_errors(probing, rows) > _ENOUGH).any())

    if n_probes is not None:
        return average_until(sample, exact, lambda _: False, n_probes, n_probes)
    return average_until(sample, exact, enough, _BATCH, limit)


def _forms(
    stats: Statistics, values: FloatArray, seed: int
) -> tuple[Callable[[int, int], FloatArray], FloatArray, float]:
    """Return what draws forms of probes, what is exact in them, and the work of one probe."""
    if stats.strata is None:
        tables = stats.cross_products
        whole = ProbedForms(tables, range(tables.n_terms + 2), values, seed)
        return whole.sample, whole.exact, whole.operations
    tables = stats.strata.remainder.tables
    parts: list[tuple[StratumPart, ProbedForms]] = []
    for number, part in enumerate(stratum_parts(stats.strata, values)):
        # Strata are independent, and so are their probes.
        own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        parts.append((part, ProbedForms(tables, part.positions, part.v, own)))

    def sample(first: int, last: int) -> FloatArray:
        total: FloatArray = sum(  # type: ignore[assignment]
            part.spread(forms.sample(first, last)) for part, forms in parts
        )
        return total

    exact: FloatArray = np.sum([part.spread(forms.exact) for part, forms in parts], axis=0)
    return sample, exact, sum(forms.operations for _, forms in parts)
