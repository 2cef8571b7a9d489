"""The iterative engine, for data that are too large to factor: conjugate gradients and probes.

It is for crossed terms with hundreds of thousands of groups each, such as ratings of films.
Solutions, quadratic forms and the average information are exact to the tolerance of the solves.
Traces come from fixed random probes and have a Monte Carlo error, which is reported. See
docs/explanation/mathematics.md, section 8: traces follow from eq. (7.4) with tr C^tt by (8.3) and
(8.4), and the score of the residual from (5.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.engine import (
    Derivatives,
    FixedForms,
    InformationKind,
    LastPoint,
    Solution,
)
from vcomp.estimators.likelihood.expansion import (
    Series,
    log_determinant,
    node_values,
    nodes_of,
    response_series,
)
from vcomp.estimators.likelihood.fixed_part import CrossProductsEngine, forms_with_residual
from vcomp.estimators.likelihood.iterative_context import (
    LEVELS,
    OF_RESPONSE,
    PROBES,
    Context,
    SolveKind,
    iterative_memory,
    seconds_of,
    small_terms,
    tail_sizes,
)
from vcomp.estimators.likelihood.iterative_point import IterativePoint
from vcomp.estimators.likelihood.sparse_equations import SparseEquations, build_sparse_equations
from vcomp.estimators.likelihood.totals import with_last
from vcomp.exceptions import EstimationError
from vcomp.numerics import PATIENCE, available_bytes, check_memory, check_seconds
from vcomp.numerics.sparse import Probes, Rademacher
from vcomp.statistics import CrossProducts, Statistics

if TYPE_CHECKING:
    from vcomp.estimators.likelihood.surface import NodeValues

GOAL = 0.01
"""Largest Monte Carlo error of a component, in its standard errors, for which a single fit has no
more probes."""

_TOLERANCE, _ROUGH = 1e-8, 1e-4
"""Tolerance of the solves, and on the way to the maximum, where scores then err by some hundredths
of a standard error."""

_MORE = 1.5
"""Smallest factor by which their number is raised: the error is known within a third."""

_ACCURATE = 0.02
"""Largest relative Monte Carlo error of variances of predicted effects: a hundredth of their
standard errors."""

_SURE = 1.5
"""Factor of the expected number of probes: errors of eight probes are known within a third."""

_MOST_PROBES = 128
"""Largest number of probes, if the user requests no more."""

_FARTHER = 2.0
"""Factor of the reach of a surface within which a profile is traced. The value of the quantity at
a level of z errs by a quarter of what a maximum errs: by x³/(4π² SE), twice the goal."""

_SPREAD = 3.0
"""Largest half width of the box of points in standard errors: limits at 99 % need 2.6."""

_OTHERS = (
    "use a Wald or robust interval, or the parametric bootstrap; or fit with engine='blocked' if "
    "it fits into memory"
)


class IterativeLikelihood(LastPoint[IterativePoint], CrossProductsEngine):
    """Restricted or full log-likelihood of a variance components model by iterative solves.

    Parameters
    ----------
    stats : cross-products, centred
    reml : whether the likelihood is the restricted one
    n_probes : number of random probes
    goal : Monte Carlo error in standard errors above which :meth:`with_more_probes` has more
    seed : seed of the probes
    n_levels : largest number of groups of all small terms together, whose traces are exact
    tol : tolerance of the solves, relative to the right-hand side; that of `like`, or 1e-8
    probes : probes to use in place of random ones
    like : an engine of the same data, with the same products of tables and right-hand sides
    starts : where solves start; at zero if not given
    free_bytes : returns the free memory

    Raises
    ------
    EstimationError
        If the solves would not fit into memory, or `n_probes` is below 2.
    """

    stats: CrossProducts
    name: ClassVar[str] = "iterative"
    kinds: ClassVar[tuple[InformationKind, ...]] = ("average",)
    exact_value: ClassVar[bool] = False
    _shared: tuple[tuple[bytes, bytes, bool], Series] | None = None

    def __init__(
        self,
        stats: CrossProducts,
        *,
        reml: bool,
        n_probes: int = PROBES,
        goal: float = np.inf,
        seed: int = 0,
        n_levels: int = LEVELS,
        tol: float | None = None,
        probes: Probes | None = None,
        like: IterativeLikelihood | None = None,
        starts: dict[SolveKind, FloatArray] | None = None,
        free_bytes: Callable[[], float] = available_bytes,
    ) -> None:
        if n_probes < 2:
            raise EstimationError(
                f"n_probes must be at least 2, not {n_probes}: the Monte Carlo error is estimated "
                "from differences between probes"
            )
        self.stats = stats
        self.reml = reml
        self._n_probes, self._n_levels, self._goal = n_probes, n_levels, goal
        self._probes = probes or Rademacher(n_probes, seed)
        self._equations: dict[tuple[int, ...], SparseEquations] = {}
        self._context: Context
        if like is not None:
            self._context = like._context.with_probes(self._probes, tol or like._context.tol)
            self._equations = like._equations
        else:
            check_memory(
                iterative_memory(stats, n_probes, n_levels),
                "for these terms the iterative engine needs",
                "with a constant mean method='anova' needs no more than the data",
                free_bytes=free_bytes,
            )
            small = small_terms(stats.sizes, n_levels)
            self._context = Context.of(stats, self._probes, tol or _TOLERANCE, small)
        self._context.starts = starts or {}

    @property
    def seconds(self) -> float:
        """Expected time of an evaluation in seconds, from measured ones."""
        return seconds_of(self.stats, self._probes.count(tuple(tail_sizes(self.stats))))

    @property
    def reason(self) -> str:
        """The method with number and seed of the probes, so that the result can be reproduced."""
        return f"conjugate gradients, without a factorisation; traces from {self._probes}"

    @property
    def products(self) -> dict[str, tuple[int, ...]]:
        """Number of iterations of each solve so far, by kind of solve."""
        return {name: tuple(counts) for name, counts in self._context.products.items()}

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the mean over probes."""
        point = self._at(v)
        deviance = float(point.log_determinants(reml=self.reml).mean()) + point.yPy
        deviance += self._degrees * np.log(2.0 * np.pi)
        return float(-0.5 * deviance)

    def loglike_error(self, v: FloatArray) -> float:
        """Return the Monte Carlo standard error of :meth:`loglike`."""
        samples = self._at(v).log_determinants(reml=self.reml)
        return 0.5 * float(np.sqrt(_covariance_of_mean(samples[None, :])[0, 0]))

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return score and average information at `v`; the value is nan."""
        point = self._at(v)
        traces = point.traces(reml=self.reml).mean(axis=1)
        traces = with_last(traces, self._degrees, v)
        return Derivatives(np.nan, 0.5 * (point.quadratics - traces), 0.5 * point.products)

    def information(
        self, v: FloatArray, kind: InformationKind = "average", *, positive_only: bool = False
    ) -> FloatArray:
        """Return the average information at `v`, exact to the tolerance of the solves.

        Raises
        ------
        EstimationError
            If another kind is requested.
        """
        if kind != "average":
            raise EstimationError(
                f"the iterative engine computes the average information only, not the {kind} one; "
                "engine='blocked' computes all"
            )
        return 0.5 * self._at(v).products

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`."""
        point = self._at(v)
        return point.beta.copy(), point.cov_beta.copy()

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return the first forms of X in V⁻¹ at `v`; second forms are not available."""
        point = self._at(v)
        return forms_with_residual(*point.fixed_gram(), point.projected_fixed(), point.v)

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`.

        Variances of prediction are from the probes of the traces, see :meth:`effect_variances`.
        """
        point = self._at(v)
        beta, cov_beta = self.fixed_effects(v)
        return Solution(
            beta=beta,
            cov_beta=cov_beta,
            effects=tuple(s2 * f for s2, f in zip(v, point.PZy, strict=False)),
            variances=lambda: self.effect_variances(v),
        )

    def effect_variances(self, v: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return Var(û − u) of each term, and the same with the fixed effects known.

        They are nan, except for terms at zero, if their Monte Carlo error is above a fiftieth.
        """
        whole, conditional, share = self._effect_variances(v)
        if share > _ACCURATE:
            nan = [np.where(x > 0.0, np.nan, 0.0) for x in conditional]
            return nan, nan
        return whole, conditional

    def _effect_variances(self, v: FloatArray) -> tuple[list[FloatArray], list[FloatArray], float]:
        """Return both variances, and the root mean square of their errors, as shares of them."""
        stats = self.stats
        active = [t for t in range(stats.n_terms) if v[t] > 0.0]
        ends = np.cumsum([0, *(stats.sizes[t] for t in active)]).tolist()
        groups = np.full((ends[-1], stats.n_terms), -1)
        for t, part in zip(active, pairwise(ends), strict=True):
            groups[slice(*part), t] = np.arange(stats.sizes[t])
        found = self._at(v).combination_variances(groups, np.zeros((ends[-1], stats.n_fixed)))
        whole, conditional = ([np.zeros(q) for q in stats.sizes] for _ in range(2))
        largest = 0.0
        for t, part in zip(active, pairwise(ends), strict=True):
            of_fixed, of_term, errors = (x[slice(*part)] for x in found)
            # No effect is known better than if all others were, or worse than without scores.
            least = 1.0 / (stats.group_n[t] / v[-1] + 1.0 / v[t])
            shares = errors / np.maximum(of_term, least)
            largest = max(largest, float(np.sqrt(np.mean(np.square(shares)))))
            conditional[t] = np.clip(of_term, least, v[t])
            whole[t] = conditional[t] + of_fixed - of_term
        return whole, conditional, largest

    def combination_variances(
        self, v: FloatArray, groups: LongArray, X: FloatArray
    ) -> FloatArray | None:
        """Return the prediction error variances of combinations; None if their errors are large.

        Parameters
        ----------
        v : components
        groups : (m, k) group of each term, −1 for none and of terms at zero
        X : (m, p) fixed part, centred as in the statistics
        """
        found, _, errors = self._at(v).combination_variances(groups, X)
        sampled = errors > 0.0
        squares = np.square(errors[sampled] / found[sampled])
        share = float(np.sqrt(squares.sum() / max(squares.size, 1)))
        if share <= _ACCURATE:
            return found
        wanted = int(np.ceil(_SURE * self._n_probes * (share / _ACCURATE) ** 2))
        if wanted > _MOST_PROBES:
            return None
        more = self._again(self.stats, n_probes=wanted, probes=Rademacher(wanted, 0), like=self)
        return more.combination_variances(v, groups, X)

    def _again(self, stats: CrossProducts, **changes: Any) -> IterativeLikelihood:
        """Return the engine of these sums with some options changed."""
        options: dict[str, Any] = {"n_probes": self._n_probes, "n_levels": self._n_levels}
        options |= {"probes": self._probes} | changes
        return IterativeLikelihood(stats, reml=self.reml, **options)

    def started(self, v: FloatArray) -> IterativeLikelihood:
        """Return the engine whose solves start from the solutions at `v`.

        What else is known at `v` is dropped: it takes as much memory as the next point.
        """
        self.derivatives(v)
        starts, self._last = dict(self._context.solved), None
        self._context.solved.clear()
        return self._again(self.stats, goal=self._goal, like=self, starts=starts)

    def with_response(self, stats: Statistics) -> IterativeLikelihood:
        """Return the engine of the same rows with another response and the same probes."""
        kept = {k: x for k, x in self._context.starts.items() if k[0] not in OF_RESPONSE}
        return self._again(stats.cross_products, tol=self._context.tol, starts=kept)

    @property
    def solves_many(self) -> bool:
        """Return True: responses share traces, and are solved for in blocks."""
        return True

    def reach(self, errors: FloatArray) -> FloatArray:
        """Return half the widths of boxes in which node values are exact enough.

        The first derivatives that are left out, by logarithms of ratios, are smaller than the
        second ones by the square of π, the distance of the nearest singularity. Where they move a
        maximum by `GOAL` standard errors, 2 x³/(π² SE) = `GOAL`.
        """
        return np.cbrt(0.5 * GOAL * np.pi**2 * errors)

    def node_values(
        self, sums: Sequence[CrossProducts], centre: FloatArray, width: FloatArray
    ) -> Callable[[FloatArray], NodeValues]:
        """Return the values of many responses of the same rows as a function of (k,) ratios."""
        responses = response_series(self._at(np.append(centre, 1.0)), sums)
        return node_values(self.log_determinant(centre, width), responses, centre)

    def log_determinant(
        self, centre: FloatArray, width: FloatArray, *, with_value: bool = True
    ) -> Series:
        """Return the part of likelihoods that does not depend on the response, as a polynomial.

        Parameters
        ----------
        centre, width : as in :meth:`node_values`
        with_value : whether its value at the centre is computed; else it is 0
        """
        key = centre.tobytes(), width.tobytes(), with_value
        if self._shared is None or self._shared[0] != key:
            near = self.started(np.append(centre, 1.0))

            def slopes(ratios: FloatArray) -> FloatArray:
                return near._at(np.append(ratios, 1.0)).traces(reml=self.reml).mean(axis=1)

            value = 0.0
            if with_value:
                point = near._at(np.append(centre, 1.0))
                value = float(point.log_determinants(reml=self.reml).mean())
            self._shared = key, log_determinant(slopes, value, centre, width)
        return self._shared[1]

    def expanded(self, v: FloatArray, held: BoolArray) -> SeriesLikelihood:
        """Return the likelihood near its maximum as a polynomial, without Monte Carlo noise.

        Raises
        ------
        EstimationError
            If a component is estimated at zero.
        """
        return SeriesLikelihood(self, v, held)

    def rough(self) -> IterativeLikelihood | None:
        """Return the engine for the way to the maximum: a probe, and solves to few digits."""
        if not isinstance(self._probes, Rademacher) or self._context.tol > _ROUGH:
            return None
        one = Rademacher(1, self._probes.seed)
        return self._again(self.stats, probes=one, tol=_ROUGH, like=self)

    def after(self, rough: Any) -> IterativeLikelihood:
        """Return this engine with solves for the response that start where rough ones ended."""
        return self._again(self.stats, goal=self._goal, like=self, starts=rough._of_response())

    def with_more_probes(self, v: FloatArray) -> IterativeLikelihood | None:
        """Return the engine with probes for a smaller error at `v`; None if there are enough."""
        if np.isinf(self._goal) or not isinstance(self._probes, Rademacher):
            return None
        free = v > 0.0
        noise = np.diagonal(self.monte_carlo(v))[free]
        errors = _sandwich(self.information(v), self.information(v), free)
        share = float(np.nan_to_num(np.max(noise / np.diagonal(errors))))
        most = min(_MOST_PROBES, max(sum(tail_sizes(self.stats)), self._n_probes))
        wanted = min(int(np.ceil(self._n_probes * share / self._goal**2)), most)
        if wanted <= _MORE * self._n_probes:
            return None
        return self._again(
            self.stats,
            n_probes=wanted,
            probes=Rademacher(wanted, self._probes.seed),
            goal=self._goal,
            like=self,
            starts=self._of_response(),
        )

    def _of_response(self) -> dict[SolveKind, FloatArray]:
        """Return the solutions for the response; the memory of all others is free for the next."""
        kept = {k: x.copy() for k, x in self._context.solved.items() if k[0] in OF_RESPONSE}
        self._last = None
        self._context.solved.clear()
        return kept

    def monte_carlo(self, v: FloatArray) -> FloatArray:
        """Return the Monte Carlo covariance of the estimates, eq. (8.6), 0 for terms at zero."""
        point = self._at(v)
        terms = _covariance_of_mean(point.traces(reml=self.reml))
        lift = np.vstack([-0.5 * np.eye(len(terms)), 0.5 * point.v[None, :-1] / point.residual])
        noise = lift @ terms @ lift.T
        free = point.v > 0.0
        covariance = np.zeros_like(noise)
        covariance[np.ix_(free, free)] = _sandwich(0.5 * point.products, noise, free)
        return covariance

    # At one point -------------------------------------------------------------------------

    @property
    def _degrees(self) -> int:
        return self.n - (self.n_fixed if self.reml else 0)

    def _evaluated(self, v: FloatArray) -> IterativePoint:
        self._context.solved.clear()
        positive = [t for t in self._context.levels if v[t] > 0.0]
        active = tuple(sorted(positive, key=lambda t: (-self.sizes[t], t)))
        if active not in self._equations:
            self._equations[active] = build_sparse_equations(self.stats, active)
        return IterativePoint(self._context, self._equations[active].at(v), v)


class SeriesLikelihood(IterativeLikelihood):
    """The log-likelihood of one response near its maximum, less a constant, for profiles.

    The slopes of the log-determinant at the maximum are those with which it is one: the probes of
    the fit may have been others.

    Parameters
    ----------
    engine : of the fit
    v : (k + 1,) the maximum
    held : (k + 1,) components that were not estimated
    patience : expected seconds up to which it is made

    Raises
    ------
    EstimationError
        If a component is estimated at zero, or more time is expected than that.
    """

    exact_value: ClassVar[bool] = True
    kinds: ClassVar[tuple[InformationKind, ...]] = ("observed", "average")

    def __init__(
        self,
        engine: IterativeLikelihood,
        v: FloatArray,
        held: BoolArray,
        *,
        patience: float = PATIENCE,
    ) -> None:
        if not (v[~held] > 0.0).all():
            raise EstimationError(
                "a component is estimated at zero, from where these data are too large for a "
                f"profile; {_OTHERS}"
            )
        self._free = np.flatnonzero(v > 0.0)
        places, last = self._free[:-1], self._free.size - 1
        check_seconds(
            len(nodes_of(last)) * engine.seconds,
            "profiles of these data take",
            _OTHERS,
            patience,
        )
        super().__init__(engine.stats, reml=engine.reml, like=engine)
        self._to_ratios = np.eye(last + 1)
        self._to_ratios[:last, last] = -1.0
        free, estimated = v[self._free], ~held[self._free]
        information = np.outer(free, free) * engine.information(v)[np.ix_(self._free, self._free)]
        cov = np.zeros_like(information)
        cov[np.ix_(estimated, estimated)] = np.linalg.inv(
            information[np.ix_(estimated, estimated)]
        )
        errors = np.sqrt(np.diagonal(self._to_ratios @ cov @ self._to_ratios.T))[:last]
        self._centre, self._limit = v[:-1] / v[-1], _FARTHER * engine.reach(errors)
        self._errors = errors
        width = np.zeros(v.size - 1)
        width[places] = np.minimum(self._limit, _SPREAD * errors)
        point = engine._at(np.append(self._centre, 1.0))
        rss, _ = response_series(point, [self.stats])
        self._rss = Series(tuple(of_order[..., 0] for of_order in rss.derivatives))
        log_det = engine.log_determinant(self._centre, width, with_value=False)
        value, slopes, *higher = log_det.derivatives
        of_maximum = -self._rss.derivatives[1] / v[-1]
        slopes = np.where(estimated[:last], of_maximum, slopes)
        self._log_det = Series((value, slopes, *higher))
        self._average = self._in_logarithms(v)[1]

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, less a constant."""
        x, residual = self._logarithms(v), v[-1]
        deviance = self._degrees * np.log(residual) + self._log_det(x) + self._rss(x) / residual
        return float(-0.5 * deviance)

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return value, score and an information of the first order at `v`."""
        score = np.zeros(v.size)
        score[self._free] = self._in_logarithms(v)[0] / v[self._free]
        return Derivatives(self.loglike(v), score, self.information(v))

    def information(
        self, v: FloatArray, kind: InformationKind = "average", *, positive_only: bool = False
    ) -> FloatArray:
        """Return the observed information, or that of the maximum in logarithms of components."""
        free, found = v[self._free], np.zeros((v.size, v.size))
        score, observed = self._in_logarithms(v)
        matrix = self._average if kind == "average" else observed + np.diag(score)
        found[np.ix_(self._free, self._free)] = matrix / np.outer(free, free)
        return found

    def _in_logarithms(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return score and observed information by the logarithms of the components."""
        x, precision = self._logarithms(v), 1.0 / v[-1]
        slopes, rss = self._rss(x, 1) * precision, float(self._rss(x)) * precision
        score = -0.5 * np.append(self._log_det(x, 1) + slopes, self._degrees - rss)
        second = self._log_det(x, 2) + self._rss(x, 2) * precision
        observed = 0.5 * np.block([[second, -slopes[:, None]], [-slopes, rss]])
        return self._to_ratios.T @ score, self._to_ratios.T @ observed @ self._to_ratios

    def _logarithms(self, v: FloatArray) -> FloatArray:
        """Return the logarithms of ratios of the terms, from those of the maximum.

        Raises
        ------
        EstimationError
            If they are out of reach.
        """
        places = self._free[:-1]
        with np.errstate(divide="ignore"):
            x = np.log(v[places] / v[-1] / self._centre[places])
        if not (np.abs(x) <= self._limit + 1e-9).all():
            far = display.number(float((self._limit / self._errors).min()), 2)
            raise EstimationError(
                "by conjugate gradients the profile of these components is known up to "
                f"{far} standard errors, and this interval needs more; {_OTHERS}"
            )
        return x


def _covariance_of_mean(samples: FloatArray) -> FloatArray:
    """Return the covariance matrix of the means of (k, n) samples."""
    k, n = samples.shape
    if n < 2:
        return np.zeros((k, k))
    from_mean = samples - samples.mean(axis=1, keepdims=True)
    return from_mean @ from_mean.T / (n * (n - 1.0))


def _sandwich(information: FloatArray, noise: FloatArray, free: BoolArray) -> FloatArray:
    """Return I⁻¹ N I⁻¹ of the free components, with I scaled to a unit diagonal for accuracy."""
    block, diagonal = np.ix_(free, free), np.diagonal(information)[free]
    if not (diagonal > 0.0).all():  # rounding where the residual vanishes
        return np.full((diagonal.size, diagonal.size), np.nan)
    scale = np.sqrt(diagonal)
    inverse = np.linalg.inv(information[block] / np.outer(scale, scale)) / np.outer(scale, scale)
    return inverse @ noise[block] @ inverse
