"""Maximise a log-likelihood over non-negative components.

:meth:`Place.climb` is the iteration of every maximum of a likelihood: of components here, of
matrices in ``multivariate`` and along a profile in ``inference``. Here each step maximises the
quadratic model s'd − ½ d'Id above the bounds (docs/explanation/mathematics.md, eq. (6.1)): with
the average information (AI) far from the maximum and with the observed one (Newton) near it, where
convergence is quadratic. If the likelihood would fall, the step is halved or replaced by an EM
step. A start of the wrong scale is first rescaled, which has a closed form.

Where a likelihood may have several maxima, :meth:`Place.highest` climbs again from other starts.
A maximum without residual variance is refused, or has the zeros of a response that X reproduces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Estimate, Iteration, Maximum, StepKind
from vcomp.estimators.likelihood.climbing import INSIDE, OTHER_STEPS, STUCK, Place
from vcomp.estimators.likelihood.engine import Curvature, Derivatives, Likelihood, LikelihoodEngine
from vcomp.estimators.likelihood.starts import OtherStarts, starts_on_grid
from vcomp.estimators.options import Known
from vcomp.exceptions import EstimationError
from vcomp.numerics import bounded_step, is_positive
from vcomp.statistics import Statistics

_AS_LIKELY = 1e-6
"""Relative difference of log-likelihoods at which a model without a residual is as likely."""


def check_weights(
    stats: Statistics,
    names: tuple[str, ...],
    llf: float,
    estimate: Callable[[Statistics, tuple[str, ...]], Estimate | None],
) -> None:
    """Refuse weighted scores whose residual goes to zero, as a term with one row a group has all.

    Only weights distinguish its component from the residual. Without a residual the model is
    that of scores that count alike, with the term as the residual.

    Parameters
    ----------
    stats, names : of the model
    llf : log-likelihood of its fit
    estimate : returns the estimate of the other model, which may raise an ``EstimationError``

    Raises
    ------
    EstimationError
        If the likelihood of that model is not below that of the fit.
    """
    single = next((t for t, size in enumerate(stats.sizes) if size == stats.n), None)
    if stats.log_weights is None or stats.blocks is not None or single is None:
        return
    rows = stats.cells
    if rows.counts is not None:
        return
    terms = (*rows.terms[:single], *rows.terms[single + 1 :])
    others = (*names[:single], *names[single + 1 :])
    alike = Statistics.from_rows(replace(rows, terms=terms, weights=None), None)
    try:
        alone = estimate(alike, others)
    except EstimationError:
        return
    if alone is not None and alone.converged and alone.llf >= llf - _AS_LIKELY * abs(llf):
        raise EstimationError(
            f"the residual goes to zero: term {names[single]!r} has one row in each group and "
            "takes its variance, whatever the weights are; leave out that term and weights=, "
            "which gives the same likelihood, with its variance as the residual",
            term=names[single],
        )


def no_variance(likelihood: LikelihoodEngine, names: tuple[str, ...], known: Known) -> Estimate:
    """Return zeros for a response that the fixed part reproduces, such as a constant one.

    Parameters
    ----------
    likelihood, names, known : of the model

    Raises
    ------
    EstimationError
        If components are held.
    """
    k, p = len(names), likelihood.n_fixed
    what = "the response is constant" if likelihood.yy == 0.0 else "the fixed part fits exactly"
    if known.held.any():
        raise EstimationError(
            f"{what}: with components held the likelihood has no maximum; "
            "hold the residual as well, or no component"
        )
    beta = likelihood.least_squares()
    nothing = np.full((k, k), np.nan)
    return Estimate(
        method="reml" if likelihood.reml else "ml",
        names=names,
        values=np.zeros(k),
        covariances=dict.fromkeys(("observed", "expected", "average"), nothing),
        beta=beta,
        cov_beta=np.zeros((p, p)),
        llf=np.inf,
        converged=False,
        status=f"Not converged: {what}, so that the likelihood rises without limit as all "
        "components go to 0; they are given as 0, without standard errors.",
        engine="none: there is nothing to estimate",
    )


_HALVINGS = 12

VANISHED = 1e-20
"""A residual below this fraction of the total variance is zero: responses have 16 digits."""

_SAME = 0.3
"""Distance in standard errors within which a climb leads to a known maximum."""

_SATURATED = 1e-5
"""Share of the total up to which a residual without degrees of freedom goes to zero."""

_ROUNDED = 1e-14
"""Mean square of the residuals, relative to the total, up to which it is rounding error."""

_GONE = 1e-9
"""Share of the total at which a climb with such a residual ends."""

_UNKNOWN = 1e-8
"""Component, in standard errors, up to which the average information says nothing about it."""

_HIDDEN = 1e-4
"""Newton decrement below which rounding may hide the gain of a step in the value."""

_FALL = 1e-9
"""Relative fall of the value at such a step that is rounding error."""

_EXCHANGED_BELOW = 50
"""Levels below which a term that is not in doubt has to be part of a scan for other maxima."""


@dataclass(frozen=True, slots=True)
class _Iterate(Place):
    """A point with its derivatives, the next step, and the kind and fraction of the last one."""

    v: FloatArray
    derivatives: Derivatives
    kind: StepKind
    step: FloatArray
    reached_by: StepKind
    fraction: float
    curvature: Curvature | None = None

    @property
    def value(self) -> float:
        """The log-likelihood."""
        return self.derivatives.loglike

    def leads_to(self, end: _Iterate) -> bool:
        """Whether the step from here ends near a known maximum, with the same terms at zero.

        Where errors are large, maxima with other terms at zero are less than one apart.
        """
        reached = self.v + self.step
        unit = np.sqrt(np.maximum(np.diagonal(end.derivatives.average), 0.0))
        near = bool((np.abs(reached - end.v) * unit).max() <= _SAME)
        return near and bool(((reached > 0.0) == (end.v > 0.0)).all())

    @property
    def is_unbounded(self) -> bool:
        """Whether the likelihood rises by ½ log of the residual or faster as that goes to zero."""
        return bool(self.vanishes and 2.0 * self.v[-1] * self.derivatives.score[-1] <= -0.5)

    @property
    def vanishes(self) -> bool:
        """Whether the residual goes to zero; False if it is only far above its maximum."""
        share = self.v[-1] / self.v.sum()
        freedom = 2.0 * self.v[-1] ** 2 * self.derivatives.average[-1, -1]
        return bool(share <= _SATURATED and freedom < 0.1 and freedom * share <= _ROUNDED)


def residual_share(v: FloatArray, mean_weight: float) -> float:
    """Return the share of the residual in the variance of a row of mean weight.

    Parameters
    ----------
    v : components, the residual last
    mean_weight : of the rows, whose residual variances are σ²_e / w
    """
    return float(v[-1] / (mean_weight * v[:-1].sum() + v[-1]))


def maximise(
    likelihood: LikelihoodEngine,
    start: FloatArray,
    group_sizes: FloatArray,
    *,
    held: BoolArray | None = None,
    max_iter: int = 200,
    tol: float = 1e-10,
    once: bool = False,
    unseen: float = 0.0,
) -> Maximum:
    """Return the maximum over non-negative components.

    Parameters
    ----------
    likelihood : the engine: value, score and information
    start : (k + 1,) first values, not negative; the residual is last and positive (it is raised if
        it is too small relative to the others for the likelihood to be computed)
    group_sizes : (k + 1,) numbers of random effects, for EM steps
    held : (k + 1,) components that keep their start; none if not given
    max_iter : largest number of steps
    tol : Newton decrement, in standard errors, at which the iteration ends
    once : whether one climb is enough, though there may be a higher maximum
    unseen : the last step is not evaluated if it is expected to leave this decrement: components
        and log-likelihood are those that it leads to, the rest is at the last point of the log

    Raises
    ------
    numpy.linalg.LinAlgError
        If the likelihood cannot be computed at the start.
    """
    known = np.zeros(start.size, dtype=bool) if held is None else held
    search = _Maximisation(likelihood, group_sizes, known, tol, max_iter, unseen)
    path, done = search.climbed(search.first(start.astype(float)))
    others: list[_Iterate] = []
    # Without an exact value maxima cannot be compared.
    if not once and likelihood.exact_value:
        v, average = path[-1].v, path[-1].derivatives.average
        inner = (
            partial(_observed, likelihood, path[-1]) if "observed" in likelihood.kinds else None
        )
        starts = OtherStarts(known, group_sizes, likelihood.n_fixed)
        doubtful = starts.doubtful(v, average, inner) if done else starts.free
        if doubtful.any():
            elsewhere = None
            if not starts.are_along_components:
                elsewhere = search.on_grid(likelihood, v)
            elif done:
                elsewhere = search.elsewhere(likelihood, path[-1], starts, doubtful)
            if elsewhere is None or not done:
                # No point of the grid need lead to the maximum that a slow climb approached.
                elsewhere = [*(elsewhere or ()), *(v.sum() * starts.elsewhere(v, doubtful))]
            path, done, others = search.again(path, done, elsewhere)
    here, log = path[-1], tuple(search.logged(point) for point in path)
    v, loglike = here.v, here.value
    before = path[-2].decrement if len(path) > 1 else np.inf
    if done and here.is_one_step_away(before, unseen):
        v, loglike = _moved(here, 1.0), loglike + 0.5 * here.decrement**2
    return Maximum(
        v=v,
        loglike=loglike,
        score=here.derivatives.score,
        held=known,
        newton_decrement=here.decrement,
        kkt_residual=log[-1].kkt_residual,
        converged=done,
        at_limit=not done and len(log) > max_iter,
        evaluations=search.evaluations,
        log=log,
        others=tuple((end.value, end.v) for end in others if not end.vanishes),
        iterations=len(log) - 1,
        saturated=not known[-1] and any(end.vanishes for end in (here, *others)),
        engine=search.likelihood,
    )


@dataclass(slots=True)
class _Maximisation:
    """One maximisation: its fixed arguments and the number of evaluations."""

    likelihood: Likelihood
    group_sizes: FloatArray
    held: BoolArray
    tol: float
    max_iter: int
    unseen: float = 0.0
    evaluations: int = 0
    last: FloatArray | None = None

    def climbed(
        self, start: _Iterate, known: Sequence[_Iterate] = ()
    ) -> tuple[list[_Iterate], bool]:
        """Return the path from a start, and whether it reached a maximum."""
        # Scores must be small, too: an information of rounding error makes the decrement small.
        path, done = start.climb(
            self.move,
            sought=(self.tol, max(1e-4, self.unseen)),
            stalled=(max(self.tol, 1e-6), max(1e-4, self.unseen)),
            max_iter=min(self.max_iter, OTHER_STEPS) if known else self.max_iter,
            known=known,
            unseen=self.unseen,
        )
        if not (done and path):
            return path, done
        # Components within 1e-7 standard errors of zero are at their bound.
        here = path[-1]
        with np.errstate(invalid="ignore"):
            distance = here.v * np.sqrt(np.diagonal(here.derivatives.average))
        near = (here.v > 0.0) & (distance <= 1e-7) & ~self.held
        near[-1] = False
        if near.any():
            v = np.where(near, 0.0, here.v)
            at_bound = self.at(v, here.reached_by, here.fraction, here.curvature)
            if at_bound.decrement <= max(self.tol, here.decrement, 1e-7):
                path[-1] = at_bound
        return path, done

    def elsewhere(
        self, engine: LikelihoodEngine, here: _Iterate, starts: OtherStarts, doubtful: BoolArray
    ) -> Sequence[FloatArray] | None:
        """Return starts at the other maxima along single components.

        None if the likelihood along them is not cheap.
        """
        terms = np.flatnonzero(starts.with_few_levels).tolist()
        forms = engine.effect_forms(here.v, terms)
        if forms is None:
            # Terms with more levels may be left out, as those with many levels are.
            terms = [t for t in terms if doubtful[t] or self.group_sizes[t] < _EXCHANGED_BELOW]
            forms = engine.effect_forms(here.v, terms)
        if forms is None:
            return None
        degrees = float(engine.n - engine.n_fixed * engine.reml)
        # Σ σ²_t s_t = ½ (y'Py − df)
        form = degrees + 2.0 * float(here.v @ here.derivatives.score)
        return forms.other_maxima(doubtful, form, None if self.held.any() else degrees)

    def on_grid(self, engine: LikelihoodEngine, v: FloatArray) -> Sequence[FloatArray] | None:
        """Return starts at the other maxima of a small table; None if they are not cheap."""
        alone = np.zeros(v.size)
        alone[-1] = v.sum()
        forms = engine.effect_forms(alone, range(v.size - 1))
        if forms is None:
            return None
        self.evaluations += 1
        degrees = float(engine.n - engine.n_fixed * engine.reml)
        return starts_on_grid(forms, engine.rss, degrees, v, self.held)

    def again(
        self, path: list[_Iterate], done: bool, elsewhere: Iterable[FloatArray]
    ) -> tuple[list[_Iterate], bool, list[_Iterate]]:
        """Climb from other starts; return the highest climb with the other maxima."""
        starts = self.started(elsewhere, path[-1].v)
        path, done, others = Place.highest((path, done), starts, self.climbed)
        here, kept = path[-1], []
        for end in others:
            is_maximum = max(end.decrement, end.violation) <= STUCK
            other = is_maximum and not end.leads_to(here)
            higher = Place.is_higher(end.value, here.value) or end.is_unbounded
            if higher if end.vanishes else other:
                kept.append(end)
        return path, done, sorted(kept, key=lambda end: -end.value)

    def started(self, points: Iterable[FloatArray], v: FloatArray) -> Iterator[_Iterate]:
        """Yield other starts, with the held components of `v`."""
        for point in points:
            try:
                yield self.at(np.where(self.held, v, point))
            except np.linalg.LinAlgError:
                continue

    def first(self, v: FloatArray) -> _Iterate:
        """Return the start, with its residual raised until the likelihood can be computed."""
        while True:
            try:
                return self.at(v)
            except np.linalg.LinAlgError:
                if self.held[-1] or v[-1] > v.sum() / v.size:
                    raise
            v = np.append(v[:-1], 1e3 * v[-1])

    def at(
        self,
        v: FloatArray,
        reached_by: StepKind = "start",
        fraction: float = np.nan,
        before: Curvature | None = None,
    ) -> _Iterate:
        """Return the derivatives at `v` and the next step, given the previous curvature."""
        if self.last is not None:
            self.likelihood = self.likelihood.started(self.last)
        derivatives = self.likelihood.derivatives(v)
        self.evaluations += 1
        self.last = None if self.likelihood.exact_value else v
        score, average = derivatives.score, derivatives.average
        # A component at zero stays there if its score is not above the tolerance.
        unit = np.sqrt(np.maximum(np.diagonal(average), 0.0))
        moves = ~self.held & ((v > 0.0) | ~(score <= self.tol * unit))
        # A component without average information, such as that of groups with equal means, is set
        # to zero: EM steps would approach zero more and more slowly.
        falls = moves & (score < 0.0) & (unit * v <= _UNKNOWN)
        falls[-1] = False
        moves &= ~falls
        kind: StepKind = "AI"
        if not is_positive(average[np.ix_(moves, moves)], least=-1e-8):
            # Far from the maximum the average information may be rounding error. The information
            # of the effects themselves gives the EM step.
            moves &= v > 0.0
            kind = "EM"
            average = np.diag(0.5 * self.group_sizes / np.square(np.where(moves, v, 1.0)))
        step, decrement = _step(average, score, v, moves)
        curvature: Curvature | None = None
        if kind == "AI" and (v[moves] > 0.0).all() and moves.any():
            squares = None if before is None else before.squares
            curvature = self.likelihood.curvature(v, decrement, squares)
            if curvature and is_positive(curvature.information[np.ix_(moves, moves)], least=1e-10):
                kind = curvature.kind
                step, decrement = _step(curvature.information, score, v, moves)
        if falls.any():
            step[falls] = -v[falls]
            decrement = math.sqrt(decrement**2 + 2.0 * float(step[falls] @ score[falls]))
        relative = np.abs(v * score)[~self.held]
        return _Iterate(
            v=v,
            derivatives=derivatives,
            kind=kind,
            step=step,
            decrement=decrement,
            violation=float(relative.max(initial=0.0) / np.sqrt(self.likelihood.n)),
            rate=0.2 if kind == "Newton" else 0.9,
            reached_by=reached_by,
            fraction=fraction,
            curvature=curvature,
        )

    def move(self, here: _Iterate) -> _Iterate | None:
        """Return the next point; None if no step is better or the residual has gone to zero."""
        share = residual_share(here.v, self.likelihood.mean_weight)
        gone = share <= VANISHED or (share <= _GONE and here.vanishes)
        if gone and not self.held[-1]:
            return None
        factor = self._scale_factor(here)
        if not 0.5 <= factor <= 2.0:
            return self.at(factor * here.v, "scale", 1.0, here.curvature)
        if self.likelihood.exact_value:
            return self._uphill(here)
        return self._towards_zero_score(here)

    def logged(self, here: _Iterate) -> Iteration:
        """Return the entry of the log for a point."""
        return Iteration(
            step=here.reached_by,
            fraction=here.fraction,
            loglike=here.derivatives.loglike,
            newton_decrement=here.decrement,
            kkt_residual=_kkt_residual(here.v, here.derivatives.score, self.held),
            n_bound=int(((here.v == 0.0) & ~self.held).sum()),
            components=tuple(here.v.tolist()),
        )

    # Parts of a step --------------------------------------------------------------------------

    def _scale_factor(self, here: _Iterate) -> float:
        """Return ρ = y'Py/df, the best factor of all components: Σ σ²_t s_t = ½ (y'Py − df)."""
        if self.held.any():
            return 1.0
        degrees = self.likelihood.n - self.likelihood.n_fixed * self.likelihood.reml
        factor = 1.0 + 2.0 * float(here.v @ here.derivatives.score) / degrees
        # If components are far too large, rounding may leave y'Py at zero or below.
        return factor if np.isfinite(factor) and factor > 0.0 else 1.0

    def _uphill(self, here: _Iterate) -> _Iterate | None:
        """Return the first higher point of the step, its halves and the EM step, else None."""
        value, n = here.derivatives.loglike, self.likelihood.n
        gain = float(here.step @ here.derivatives.score)
        # Almost every full step is accepted, and its derivatives are then needed anyway.
        whole = self._tried(_moved(here, 1.0), here.kind, 1.0, here.curvature)
        least = Place.required(value, gain, here.decrement, n)
        if whole is not None and (
            whole.derivatives.loglike >= least or _ends_better(here, whole, n)
        ):
            return whole
        # EM is best if a component is far too large, a shorter step almost always otherwise.
        half, em = _moved(here, 0.5), self._em(here)
        of_half, of_em = self._loglike(half), self._loglike(em)
        if max(of_half, of_em) > value:
            if of_em > of_half:
                return self.at(em, "EM", 1.0, here.curvature)
            return self.at(half, here.kind, 0.5, here.curvature)
        for halving in range(2, _HALVINGS):
            fraction = 0.5**halving
            trial = _moved(here, fraction)
            if self._loglike(trial) >= Place.required(value, fraction * gain, here.decrement, n):
                return self.at(trial, here.kind, fraction, here.curvature)
        return None

    def _towards_zero_score(self, here: _Iterate) -> _Iterate | None:
        """Return the first point of smaller decrement of the step, its halves and the EM step.

        Used without an exact value. If no decrement is smaller, the smallest of all is used: far
        from the maximum it may grow in good steps, too.
        """
        # With an information of rounding error, steps may exceed the largest possible component.
        most = self.likelihood.n * here.v.sum()
        whole, half, *shorter = (
            (np.minimum(_moved(here, 0.5**h), most), here.kind, 0.5**h) for h in range(4)
        )
        # EM is best if a component is far too large, a shorter step almost always otherwise.
        tried: list[_Iterate] = []
        for trials in ([whole], [half, (self._em(here), "EM", 1.0)], *([one] for one in shorter)):
            tried += [reached for trial in trials if (reached := self._tried(*trial)) is not None]
            best = min(tried, key=lambda point: point.decrement, default=here)
            if best.decrement < here.decrement:
                return best
        return best if tried else None

    def _tried(
        self, v: FloatArray, kind: StepKind, fraction: float, before: Curvature | None = None
    ) -> _Iterate | None:
        """Return the derivatives at `v`, or None if they cannot be computed."""
        try:
            return self.at(v, kind, fraction, before)
        except np.linalg.LinAlgError:
            return None

    def _em(self, here: _Iterate) -> FloatArray:
        """Return σ² + 2σ⁴ s/q, which never lowers the likelihood."""
        v, score = here.v, here.derivatives.score
        moved = np.maximum(v + 2.0 * v**2 * score / self.group_sizes, 0.0)
        moved[-1] = max(moved[-1], INSIDE * v[-1])
        return np.where(self.held, v, moved)

    def _loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood, −∞ if it cannot be computed."""
        self.evaluations += 1
        try:
            value = self.likelihood.loglike(v)
        except np.linalg.LinAlgError:
            return -np.inf
        return value if np.isfinite(value) else -np.inf


def _observed(likelihood: Likelihood, end: _Iterate) -> FloatArray:
    """Return the observed information at the end of a climb, from its next step if known."""
    if end.curvature is not None and end.curvature.kind == "Newton":
        return end.curvature.information
    return likelihood.information(end.v, "observed", positive_only=True)


def _ends_better(here: _Iterate, following: _Iterate, n: int) -> bool:
    """Whether the gradient shows progress that rounding hides in the log-likelihood.

    With nearly dependent fixed effects, the value loses more digits than the gradient.
    """
    fall = here.value - following.value
    near = here.kind == "Newton" and here.decrement < _HIDDEN
    return (
        near
        and following.decrement <= 0.1 * here.decrement
        and fall <= _FALL * max(abs(here.value), n)
    )


def _moved(here: _Iterate, fraction: float) -> FloatArray:
    """Return the point after a fraction of the step, with rounding below zero cut off."""
    return np.maximum(here.v + fraction * here.step, 0.0)


def _step(
    information: FloatArray, score: FloatArray, v: FloatArray, moves: BoolArray
) -> tuple[FloatArray, float]:
    """Return the bounded step on the components that move, and the Newton decrement."""
    step = np.zeros_like(v)
    step[moves], decrement = bounded_step(
        information[np.ix_(moves, moves)], score[moves], Place.lowest_step(v)[moves]
    )
    return step, decrement


def _kkt_residual(v: FloatArray, score: FloatArray, held: BoolArray) -> float:
    interior = np.abs(v * score)[(v > 0.0) & ~held].max(initial=0.0)
    at_bound = (v.sum() * np.maximum(score, 0.0))[(v == 0.0) & ~held].max(initial=0.0)
    return float(max(interior, at_bound))
