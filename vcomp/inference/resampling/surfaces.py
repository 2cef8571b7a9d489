"""Refits of many data sets that are alike, from likelihoods that are computed at a few points.

A factor of Henderson's equations serves all responses that are drawn for the same rows, and with
a small correction all data without one level of a facet: deleted rows are columns of X that take
up one row each, so that y'P y and the determinants change by the block of P of these rows
(docs/explanation/mathematics.md, section 7.4; Christensen, Pearson and Johnson 1992, Case-deletion
diagnostics for mixed models). Between the points likelihoods are interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood import (
    LikelihoodEngine,
    LikelihoodMethod,
    NodeValues,
    surface_maxima,
)
from vcomp.exceptions import EstimationError
from vcomp.inference.resampling.draws import Responses
from vcomp.inference.resampling.refits import (
    TOLERANCE,
    Recipe,
    Refitted,
    engine_of_refits,
    seconds_of_refit,
)
from vcomp.statistics import CrossProducts, Statistics

_CERTAIN = 6.0
"""Components, in standard errors, from which maxima are expected inside a box."""

_SPREAD = 4.5
"""Half the width of a box in standard errors of what varies."""

_WIDEST_BOX = 1.5

PRODUCT_SECONDS = 1e-10
"""Time of a multiplication in products and factors of dense matrices."""

_POINT_SECONDS = 5e-4
"""Time of a point at least."""

_FEWEST_NODES = 5
"""In each direction, however small the box: an error is estimated from the last of them."""

_BYTES, _MOST = 4e8, 1000
"""Memory of drawn data sets that are refitted at once, and their largest number."""

_TOLERANCE, _TOLERANCE_AT_ONCE = 1e-6, 1e-4
"""Largest errors of maxima, in standard errors; a likelihood ratio errs by the latter's square."""


@dataclass(frozen=True, slots=True)
class SurfaceLimits:
    """Where likelihoods on a surface are faster than refits one by one.

    Attributes
    ----------
    slow : time of an evaluation in seconds from which they are
    evaluations : of a refit; fewer than it has
    effects : up to which an inverse or factor is dense
    kept_bytes : memory in which the parts of blocks that do not depend on components are kept
    """

    slow: float = 4e-3
    evaluations: int = 3
    effects: int = 3000
    kept_bytes: float = 2e8


LIMITS = SurfaceLimits()
"""Those of fits."""


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """The box in which maxima are expected, and the engine that computes likelihoods in it.

    Attributes
    ----------
    engine : of the rows
    terms : (k,) positions of the components that are not held
    centre, errors : (k,) logarithms of their ratios + `shift`, and their standard errors; where
        a component may be zero, the middle and a part of half the width of its box
    shift : (k,) zero, or what lets the box of a component begin at zero
    """

    engine: LikelihoodEngine
    terms: LongArray
    centre: FloatArray
    errors: FloatArray
    shift: FloatArray

    @classmethod
    def of(
        cls,
        stats: Statistics,
        recipe: Recipe,
        v: FloatArray,
    ) -> Surface | None:
        """Return the box around components; None where it may not contain all maxima.

        Parameters
        ----------
        stats : of the data
        recipe : its estimator and options
        v : (k + 1,) components, from which maxima are not far
        """
        options = recipe.estimator
        own = stats.strata is not None or stats.blocks is not None
        if not isinstance(options, LikelihoodMethod) or own:
            return None
        held = options.known(recipe.names).held
        terms = np.flatnonzero(~held[:-1])
        usual = options.engine in ("auto", "blocked", "iterative") and terms.size > 0
        usual = usual and v[-1] > 0.0 and not v[held].any()
        usual = usual and (options.tol is None or options.tol >= TOLERANCE)
        if not usual or stats.make_cells is None:
            return None
        try:
            engine = engine_of_refits(stats, options, recipe.names)
            # The average information is of these scores, which a null hypothesis need not fit.
            information = engine.information(v, "expected" if recipe.once else "average")
            cov = np.linalg.inv(information[np.ix_(~held, ~held)])
        except (EstimationError, np.linalg.LinAlgError):
            return None
        variances = np.diagonal(cov)
        if not (variances > 0.0).all():
            return None
        if not recipe.once and (v[~held] < _CERTAIN * np.sqrt(variances)).any():
            return None
        ratio = v[terms] / v[-1]
        jump = np.hstack([np.eye(terms.size), -ratio[:, None]])
        errors = np.sqrt(np.diagonal(jump @ cov @ jump.T)) / v[-1]
        near = _SPREAD * errors >= ratio if recipe.once else np.zeros(terms.size, dtype=bool)
        # The precision of a group's mean is at most its number of rows.
        most = np.array([stats.cross_products.group_n[t].max() for t in terms])
        shift = np.where(near, 1.0 / most, 0.0)
        centre, errors = _coordinates(ratio, errors, shift)
        return cls(engine, terms, centre, errors, shift)

    @property
    def may_be_zero(self) -> BoolArray:
        """(k,) whether the box of a component begins at zero."""
        return self.shift > 0.0

    def placed(self, ratios: FloatArray) -> FloatArray:
        """Return the ratios of all terms, zero where they are held."""
        found = np.zeros(len(self.engine.sizes))
        found[self.terms] = ratios
        return found

    def seconds(self, limits: SurfaceLimits) -> float:
        """Return the expected time of a refit by the engine of the fit; little if not known."""
        return seconds_of_refit(self.engine, limits.evaluations)

    def n_nodes(self, width: FloatArray, digits: float = 10.0) -> int:
        """Return the number of points in each direction for about so many digits.

        Likelihoods have their nearest singularities at γ < 0, that is at log γ ± iπ.
        """
        far = np.pi / width.max()
        rate = far + np.sqrt(far**2 + 1.0)
        return max(_FEWEST_NODES, int(np.ceil(digits * np.log(10.0) / np.log(rate))))

    def refitted(
        self,
        values: Callable[[FloatArray], NodeValues],
        width: FloatArray,
        degrees: FloatArray,
        tolerance: float,
        *,
        digits: float = 10.0,
    ) -> list[Refitted | None]:
        """Return the maxima; None where one is not certain."""
        made = surface_maxima(
            values,
            self.centre,
            width,
            degrees,
            n_nodes=self.n_nodes(width, digits),
            tolerance=tolerance,
            shift=self.shift,
            bounded=self.may_be_zero,
        )
        v = np.zeros((len(made.ratios), len(self.engine.sizes) + 1))
        v[:, self.terms], v[:, -1] = made.ratios, 1.0
        v *= made.residual[:, None]
        return [
            Refitted(v[b], made.beta[b], float(made.loglike[b])) if found else None
            for b, found in enumerate(made.found)
        ]


def _coordinates(
    ratio: FloatArray, errors: FloatArray, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the centre of boxes and what `_SPREAD` times is half their width."""
    near = shift > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.log(shift), np.log(ratio + _SPREAD * errors + shift)
        centre = np.where(near, 0.5 * (low + high), np.log(ratio))
        return centre, np.where(near, 0.5 * (high - low) / _SPREAD, errors / ratio)


class Absorbing:
    """Henderson's equations of one term after another, S = Z₂'Z₂ + Γ₂⁻¹ − Z₂'Z₁D⁻¹Z₁'Z₂, dense.

    Parameters
    ----------
    sums : of the rows
    lead : term 1, which is absorbed: D = Z₁'Z₁ + 1/γ₁
    rest : terms 2
    """

    def __init__(self, sums: CrossProducts, lead: int, rest: Sequence[int]) -> None:
        from scipy.sparse import csr_array, hstack

        self.sums, self.lead, self.rest = sums, lead, rest
        tables = [sums.gram(lead, t) for t in self.rest]
        self.across = hstack(tables, format="csr") if tables else csr_array((sums.sizes[lead], 0))
        self.transposed = self.across.T.tocsr()
        rows = [np.hstack([dense_table(sums.gram(t, u)) for u in self.rest]) for t in self.rest]
        self._others = np.vstack(rows) if rows else np.zeros((0, 0))
        self._complements: dict[bytes, FloatArray] = {}

    def factor(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return the lower Cholesky factor of S, D, and log|V| of a residual variance of 1.

        Parameters
        ----------
        ratios : of all terms, those in S and D positive

        Raises
        ------
        numpy.linalg.LinAlgError
            If S is not positive definite.
        """
        from scipy.linalg.lapack import dpotrf

        sums = self.sums
        D: FloatArray = sums.group_n[self.lead] + 1.0 / ratios[self.lead]
        used = [self.lead, *self.rest]
        log_det = float(np.log(D).sum() + np.log(ratios[used]) @ np.array(sums.sizes)[used])
        if not self.rest:
            return np.zeros((0, 0)), D, log_det
        S = self._complement(D)
        diagonal = [np.full(sums.sizes[t], 1.0 / ratios[t]) for t in self.rest]
        S[np.diag_indices_from(S)] += np.concatenate(diagonal)
        # Symmetric, so that its transpose is the array in the order of LAPACK.
        lower, failed = dpotrf(S.T, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the equations are not positive definite")
        return lower, D, log_det + 2.0 * float(np.log(np.diagonal(lower)).sum())

    def halved(self, lower: FloatArray, right: FloatArray) -> FloatArray:
        """Return L⁻¹ right, whose products are those with S⁻¹."""
        from scipy.linalg import solve_triangular

        if not lower.size:
            return right
        return solve_triangular(lower, right, lower=True, check_finite=False)

    def _complement(self, D: FloatArray) -> FloatArray:
        """Return Z₂'Z₂ − Z₂'Z₁D⁻¹Z₁'Z₂; points have few different D, one after the other."""
        made, key = self._complements, D.tobytes()
        if key not in made:
            made.clear()
            scaled = self.across.multiply((1.0 / D)[:, None]).tocsr()
            made[key] = self._others - dense_table(self.transposed @ scaled)
        return made[key].copy()


class DrawnSurface:
    """Refits of responses that are drawn for the same rows.

    Parameters
    ----------
    surface : around the components at which they are drawn
    limits : where surfaces are faster
    tolerance : largest error of a maximum in standard errors
    """

    def __init__(
        self, surface: Surface, limits: SurfaceLimits = LIMITS, tolerance: float = _TOLERANCE
    ) -> None:
        self._surface, self._limits = surface, limits
        self._width = np.minimum(_SPREAD * surface.errors, _WIDEST_BOX)
        self._is_dense = self._n_rest(surface.engine.sizes) <= limits.effects
        if not self._is_dense:
            self._width = np.minimum(self._width, surface.engine.reach(surface.errors))
        self._tolerance = tolerance

    @classmethod
    def of(
        cls,
        stats: Statistics,
        recipe: Recipe,
        v: FloatArray,
        n: int,
        limits: SurfaceLimits = LIMITS,
        *,
        alone: float | None = None,
    ) -> DrawnSurface | None:
        """Return the refits, None if `n` of them are as fast otherwise.

        Parameters
        ----------
        stats : of the data
        recipe : its estimator and options
        v : (k + 1,) components at which responses are drawn
        n : number of responses
        limits : where surfaces are faster
        alone : seconds that a refit takes otherwise; None for one by the engine of the fit
        """
        if (len(v) - 1) ** 2 > n:
            return None
        surface = Surface.of(stats, recipe, v)
        if surface is None:
            return None
        found = cls(surface, limits, _TOLERANCE_AT_ONCE if recipe.once else _TOLERANCE)
        if (found._width < _SPREAD * surface.errors)[surface.may_be_zero].any():
            return None
        points = surface.n_nodes(found._width) ** surface.terms.size
        n, engine = min(n, found.most(stats)), surface.engine
        if found._is_dense:
            rest = float(found._n_rest(stats.sizes))
            seconds = points * (_POINT_SECONDS + PRODUCT_SECONDS * rest**2 * (rest / 3.0 + n))
            alone = surface.seconds(limits) if alone is None else alone
            return found if seconds < n * alone else None
        slow = engine.solves_many and engine.seconds >= limits.slow
        return found if slow and points < limits.evaluations * n else None

    def _n_rest(self, sizes: Sequence[int]) -> int:
        """Return the number of effects of the terms that are not absorbed."""
        used = [int(sizes[t]) for t in self._surface.terms]
        return sum(used) - max(used)

    @staticmethod
    def most(stats: Statistics) -> int:
        """Return the number of responses that are refitted at once."""
        numbers = 3.0 * stats.n + 4.0 * sum(stats.sizes)
        return int(np.clip(_BYTES / (8.0 * numbers), 1, _MOST))

    def with_responses(self, drawn: Responses) -> list[Refitted | None]:
        """Return the estimates from statistics of all rows with other responses."""
        surface, sums = self._surface, [stats.cross_products for stats in drawn]
        engine, terms = surface.engine, surface.terms.tolist()
        degrees = engine.n - engine.n_fixed * engine.reml
        values: Callable[[FloatArray], NodeValues]
        if self._is_dense:
            forms = drawn.shared(f"dense forms of {terms}", lambda: _DenseForms(sums, terms))
            values = partial(forms.values, reml=engine.reml)
        else:
            of_all, width = surface.placed(np.exp(surface.centre)), surface.placed(self._width)
            values = engine.node_values(sums, of_all, width)
        whole = np.full(len(sums), float(degrees))
        try:
            return surface.refitted(
                lambda ratios: values(surface.placed(ratios)), self._width, whole, self._tolerance
            )
        except np.linalg.LinAlgError:  # a corner of the box has no likelihood
            return [None] * len(drawn)


class _DenseForms:
    """The forms of drawn responses, all solved for by one matrix; they are made once for a point.

    Parameters
    ----------
    sums : of the same rows with several responses
    terms : whose components are not held at zero
    """

    def __init__(self, sums: Sequence[CrossProducts], terms: Sequence[int]) -> None:
        lead = max(terms, key=lambda t: sums[0].sizes[t])
        rest = [t for t in terms if t != lead]
        self._absorbing = absorbing = Absorbing(sums[0], lead, rest)
        self._XX = sums[0].XX
        self._Xy, self._yy = np.column_stack([s.Xy for s in sums]), np.array([s.yy for s in sums])
        right = [
            np.column_stack([sums[0].ZX[t], *(s.Zy[t] for s in sums)])
            for t in (lead, *absorbing.rest)
        ]
        width = self._XX.shape[0] + self._yy.size
        self._own, self._others = right[0], np.concatenate([np.zeros((0, width)), *right[1:]])
        self._made: dict[bytes, tuple[FloatArray, FloatArray, float, float]] = {}

    def values(self, ratios: FloatArray, *, reml: bool) -> NodeValues:
        """Return the values of all responses at ratios of components."""
        key = ratios.tobytes()
        if key not in self._made:
            self._made[key] = self._at(ratios)
        rss, beta, log_v, log_fixed = self._made[key]
        log_det = log_v + log_fixed if reml else log_v
        return NodeValues(rss, np.full(rss.size, log_det), beta)

    def _at(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
        """Return y'Py, β̂, log|V| and log|X'V⁻¹X| of a residual variance of 1."""
        absorbing, own, p = self._absorbing, self._own, self._XX.shape[0]
        lower, D, log_v = absorbing.factor(ratios)
        scaled = own / D[:, None]
        half = absorbing.halved(lower, self._others - absorbing.transposed @ scaled)
        # The forms of X with X and y, and of y with itself.
        with_X = scaled[:, :p].T @ own + half[:, :p].T @ half
        XX, mixed = self._XX - with_X[:, :p], self._Xy - with_X[:, p:]
        beta = np.linalg.solve(XX, mixed) if p else mixed
        rss = self._yy - (scaled[:, p:] * own[:, p:]).sum(axis=0)
        rss -= np.square(half[:, p:]).sum(axis=0)
        rss -= (mixed * beta).sum(axis=0)
        log_fixed = float(np.linalg.slogdet(XX)[1]) if p else 0.0
        return rss, np.asarray(beta.T, dtype=float), log_v, log_fixed


def dense_table(matrix: Any) -> FloatArray:
    """Return a table of pairs as an array."""
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
