"""The interface of a likelihood engine, and the values that engines return.

An engine is made from sufficient statistics and computes value, score, information and predicted
effects at any non-negative components. ``maximisation`` maximises it, and ``likelihood`` makes an
estimate of the maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import FixedErrors, StepKind
from vcomp.estimators.likelihood.starts import EffectForms
from vcomp.exceptions import EstimationError
from vcomp.statistics import CrossProducts

if TYPE_CHECKING:
    from vcomp.estimators.likelihood.surface import NodeValues
    from vcomp.statistics import (
        Statistics,
    )

InformationKind = Literal["observed", "expected", "average"]

Cancellation = Literal["none", "equations", "levels"]
"""Where digits of a small residual cancel: nowhere, in Henderson's equations, in blocks of
levels."""


@dataclass(frozen=True, slots=True)
class FixedForms:
    """Forms of the columns of X in V⁻¹ at one point, on the centred scale.

    Attributes
    ----------
    cov_beta : (p, p) Φ = (X'V⁻¹X)⁻¹
    first : (k + 1, p, p) X'V⁻¹V_t V⁻¹X, the residual last
    second : (k + 1, k + 1, p, p) X'V⁻¹V_t V⁻¹V_u V⁻¹X; None if the engine does not compute it
    """

    cov_beta: FloatArray
    first: FloatArray
    second: FloatArray | None = None

    @property
    def slopes(self) -> FloatArray:
        """The derivatives ∂Φ/∂σ²_t, (k + 1, p, p)."""
        slopes: FloatArray = self.cov_beta @ self.first @ self.cov_beta
        return 0.5 * (slopes + slopes.swapaxes(1, 2))


@dataclass(frozen=True, slots=True)
class Derivatives:
    """The log-likelihood with its gradient and average information at one point."""

    loglike: float
    score: FloatArray
    average: FloatArray


_MOST_CHANGE = 4.0
"""Largest factor by which a trace may change between the two points."""


@dataclass(frozen=True, slots=True, eq=False)
class Squares:
    """Squares ‖Z_t'QZ_u‖² of the expected information, exact or carried from another point.

    Where equations are eliminated they cost more than an evaluation. As they do not depend on the
    response, and change less than the components do, those of one point serve the steps of a whole
    climb, and of climbs for other responses (docs/explanation/mathematics.md, section 6.1).

    Attributes
    ----------
    v : (k + 1,) components, the residual last
    traces : (k,) tr(Z_t'QZ_t) at `v`, exact
    squares : (k, k) ‖Z_t'QZ_u‖², nan for terms at zero
    is_exact : whether they were computed at `v`
    decrement : Newton decrement at `v`, inf if not known
    """

    v: FloatArray
    traces: FloatArray
    squares: FloatArray
    is_exact: bool = True
    decrement: float = np.inf

    def carried(self, v: FloatArray, traces: FloatArray) -> Squares | None:
        """Return the squares carried to other components; None if these are too far away.

        In proportion to the traces, ‖Z_t'QZ_u‖² ∝ tr(Z_t'QZ_t) tr(Z_u'QZ_u), they are exact for
        balanced data with a mean square for each term. The rest of the change in the traces
        corrects them (Powell's symmetric update).

        Parameters
        ----------
        v : (k + 1,) components
        traces : (k,) exact traces there
        """
        positive = self.v[:-1] > 0.0
        if (positive != (v[:-1] > 0.0)).any():
            return None
        known = np.diagonal(self.squares)[positive]
        if not ((known > 0.0) & (self.traces[positive] > 0.0)).all():
            return None
        ratio = np.ones(positive.size)
        ratio[positive] = traces[positive] / self.traces[positive]
        if not ((ratio > 1.0 / _MOST_CHANGE) & (ratio < _MOST_CHANGE)).all():
            return None
        if (v == self.v).all():
            return self
        moved = Squares(v, traces, self.squares * np.outer(ratio, ratio), is_exact=False)
        at = np.ix_(positive, positive)
        moved.squares[at] += _correction(self, moved, positive)
        return moved if (np.diagonal(moved.squares)[positive] > 0.0).all() else None


def _correction(here: Squares, moved: Squares, positive: BoolArray) -> FloatArray:
    """Return Powell's symmetric update of the carried squares, from the change in the traces.

    With x_t = log σ²_t/σ²_e the slopes of τ_t = tr(QV_t)σ²_t are δ_tu τ_t − σ²_tσ²_u‖Z_t'QZ_u‖².
    Their mean over both ends leaves a rest of the change in τ. The same correction at both ends
    explains it.
    """
    v, unit = moved.v[:-1][positive], np.sqrt(np.diagonal(moved.squares)[positive])
    x = np.log(v / moved.v[-1]) - np.log(here.v[:-1][positive] / here.v[-1])
    tau, slopes = zip(*(_slopes(at, positive) for at in (here, moved)), strict=True)
    rest = tau[1] - tau[0] - 0.5 * (slopes[0] + slopes[1]) @ x
    z, q = unit * v * x, rest / (unit * v)
    length = z @ z
    if not length > 0.0:
        return np.zeros((v.size, v.size))
    update: FloatArray = (
        np.outer(q, z) + np.outer(z, q) - (q @ z) / length * np.outer(z, z)
    ) / length
    return -update * np.outer(unit, unit)


def _slopes(at: Squares, positive: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return τ and its slopes by the logarithms of the ratios."""
    v = at.v[:-1][positive]
    tau = v * at.traces[positive]
    return tau, np.diag(tau) - at.squares[np.ix_(positive, positive)] * np.outer(v, v)


@dataclass(frozen=True, slots=True, eq=False)
class Curvature:
    """The information matrix of a step, if it is better than the average information.

    Attributes
    ----------
    kind : of the step
    information : (k + 1, k + 1), may be nan for components at zero
    squares : for the next step, if the engine carries squares
    """

    kind: StepKind
    information: FloatArray
    squares: Squares | None = None


@contextmanager
def predicting() -> Iterator[None]:
    """Replace a failed factorisation by the reason why effects cannot be predicted."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise EstimationError(
            "effects cannot be predicted: next to the other components σ²(Residual) is too small "
            "to solve for them, and may be rounding error"
        ) from error


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of Henderson's equations at one point, on the centred scale.

    Attributes
    ----------
    beta, cov_beta : generalised least squares estimate and its covariance matrix
    effects : for each term the (q_t,) predicted effects
    variances : returns `prediction_var` and `conditional_var`, which may cost far more
    """

    beta: FloatArray
    cov_beta: FloatArray
    effects: tuple[FloatArray, ...]
    variances: Callable[[], tuple[Sequence[FloatArray], Sequence[FloatArray]]]

    @cached_property
    def _both(self) -> tuple[Sequence[FloatArray], Sequence[FloatArray]]:
        with predicting():
            return self.variances()

    @property
    def prediction_var(self) -> Sequence[FloatArray]:
        """For each term the (q_t,) variances of prediction, û − u."""
        return self._both[0]

    @property
    def conditional_var(self) -> Sequence[FloatArray]:
        """The same with the fixed effects treated as known, as in lme4."""
        return self._both[1]


class Likelihood(Protocol):
    """Objective of the maximiser: a log-likelihood of the components, the residual last."""

    @property
    def reml(self) -> bool:
        """Whether the likelihood is the restricted one."""

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The kinds of information that the engine computes; ``"average"`` is one of them."""

    @property
    def exact_value(self) -> bool:
        """Whether :meth:`loglike` is exact and cheap enough to control steps.

        If not, steps are controlled by the Newton decrement, and the ``loglike`` of
        :class:`Derivatives` may be nan.
        """

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows: of a row's variance, the residual has its part by it."""

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`."""

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return value, score and average information at `v`; components may be 0."""

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return an information matrix; if `positive_only`, nan for components at zero."""

    def curvature(
        self, v: FloatArray, decrement: float, squares: Squares | None = None
    ) -> Curvature | None:
        """Return the information of the next step, None if the average one is to be used.

        Parameters
        ----------
        v : components
        decrement : Newton decrement by the average information, in standard errors
        squares : those that were returned at the point before
        """

    def started(self, v: FloatArray) -> Likelihood:
        """Return the likelihood whose iterative solves start from the solutions at `v`.

        Values depend on their point and on that start, not on what was evaluated between.
        """


class LikelihoodEngine(Likelihood, Protocol):
    """A restricted or full log-likelihood of the components, the residual last."""

    @property
    def name(self) -> str:
        """``"strata"``, ``"levels"``, ``"blocked"`` or ``"iterative"``."""

    @property
    def reason(self) -> str:
        """Why this engine was chosen for these data: a clause for the result."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of random effects of the terms."""

    @property
    def yy(self) -> float:
        """Sum of squares of the centred response."""

    @property
    def rss(self) -> float:
        """Residual sum of squares of ordinary least squares on X."""

    @property
    def seconds(self) -> float:
        """Expected time of an evaluation in seconds; 0 if not known."""

    @property
    def bytes(self) -> float:
        """Expected memory of an evaluation; 0 if not known."""

    @property
    def gives_effects(self) -> bool:
        """Whether :meth:`solution` is available."""

    @property
    def solves_many(self) -> bool:
        """Whether one factorisation serves many responses, by :meth:`node_values`."""

    @property
    def cancellation(self) -> Cancellation:
        """Where digits are lost if the residual is far smaller than the other components."""

    @property
    def rounding_decrement(self) -> float:
        """Newton decrement above which rounding error has ended an iteration early."""

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, from which iterations start; they may be negative."""

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""

    def effect_forms(self, v: FloatArray, terms: Sequence[int]) -> EffectForms | None:
        """Return forms of the effects of terms with few levels; None if they are not cheap."""

    def expects_cheaply(self, v: FloatArray) -> bool:
        """Return whether the expected information of all components costs a few evaluations."""

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`, on the centred scale."""

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return the forms of X in V⁻¹ at `v`, on the centred scale.

        The second forms are included if `second` and if the engine computes them.
        """

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""

    def prepared(self, v: FloatArray) -> LikelihoodEngine:
        """Return the engine for many evaluations near `v`, with shared computations."""

    def with_response(self, stats: Statistics) -> LikelihoodEngine:
        """Return the engine of the same rows with another response.

        The two may share working memory, so that only one of them can be used at a time.

        Parameters
        ----------
        stats : statistics that differ in their response only
        """

    def recombined(
        self, columns: FloatArray, like: LikelihoodEngine | None = None
    ) -> LikelihoodEngine:
        """Return the ML engine of the same rows with other columns, (1 + p, 1 + p*).

        Parameters
        ----------
        columns : maps [y X] to [y* X*]
        like : the engine of the same X* with another y*, whose analysis is shared

        Raises
        ------
        EstimationError
            If the engine has no columns that can be recombined.
        """

    def reach(self, errors: FloatArray) -> FloatArray:
        """Return half the widths of boxes in which node values are exact enough.

        Parameters
        ----------
        errors : (k,) standard errors of logarithms of ratios
        """

    def node_values(
        self, sums: Sequence[CrossProducts], centre: FloatArray, width: FloatArray
    ) -> Callable[[FloatArray], NodeValues]:
        """Return the values of many responses of the same rows as a function of (k,) ratios.

        Only of engines that solve for many responses (`solves_many`).

        Parameters
        ----------
        sums : of the same rows with several responses
        centre, width : (k,) ratios in the middle of the box, zero of terms that are at zero, and
            half its width in logarithms
        """

    def expanded(self, v: FloatArray, held: BoolArray) -> LikelihoodEngine:
        """Return the engine, or a polynomial near its maximum if values have a Monte Carlo error.

        Parameters
        ----------
        v : (k + 1,) the maximum
        held : (k + 1,) components that were not estimated

        Raises
        ------
        EstimationError
            If a component is estimated at zero, or the polynomial takes too long.
        """

    def rough(self) -> LikelihoodEngine | None:
        """Return a faster engine for the way to the maximum; None if this one is exact."""

    def after(self, rough: Any) -> LikelihoodEngine:
        """Return the engine whose solves start where those of the rough one ended."""

    def with_more_probes(self, v: FloatArray) -> LikelihoodEngine | None:
        """Return the engine with more random probes if the error at `v` is large, else None."""

    def monte_carlo(self, v: FloatArray) -> FloatArray | None:
        """Return the (k + 1, k + 1) Monte Carlo covariance of the estimates at `v`, eq. (8.6).

        None if the engine has no random probes.
        """

    def loglike_error(self, v: FloatArray) -> float:
        """Return the Monte Carlo standard error of :meth:`loglike`, 0 without random probes."""


AnyPoint = TypeVar("AnyPoint")


class LastPoint(Generic[AnyPoint]):
    """Cache of the last evaluated point, for its value, derivatives and information."""

    _last: tuple[bytes, AnyPoint] | None = None

    def _at(self, v: FloatArray) -> AnyPoint:
        v = np.asarray(v, dtype=float)
        if self._last is None or self._last[0] != v.tobytes():
            self._last = None  # its memory is free for the next
            self._last = v.tobytes(), self._evaluated(v)
        return self._last[1]

    def _evaluated(self, v: FloatArray) -> AnyPoint:
        raise NotImplementedError


class SummedEngine:
    """Base of engines: sizes and sums of squares of their statistics, of whatever kind."""

    stats: Any
    name: ClassVar[str]
    cancellation: ClassVar[Cancellation] = "none"
    rounding_decrement: ClassVar[float] = np.inf

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.stats.n

    @property
    def mean_weight(self) -> float:
        """Return 1: rows count alike."""
        return 1.0

    @property
    def seconds(self) -> float:
        """Return 0: evaluations are short, or their time is not known."""
        return 0.0

    @property
    def bytes(self) -> float:
        """Return 0: the memory of an evaluation is not known."""
        return 0.0

    @property
    def gives_effects(self) -> bool:
        """Whether :meth:`solution` is available."""
        return True

    @property
    def solves_many(self) -> bool:
        """Return False: each response needs its own evaluation."""
        return False

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return self.stats.n_fixed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of random effects of the terms."""
        return self.stats.sizes

    @property
    def yy(self) -> float:
        """Sum of squares of the centred response."""
        return self.stats.yy

    def expects_cheaply(self, v: FloatArray) -> bool:
        """Return whether the expected information of all components costs a few evaluations."""
        return True

    def effect_forms(self, v: FloatArray, terms: Sequence[int]) -> EffectForms | None:
        """Return None: each value of a component needs an evaluation."""
        return None

    def started(self, v: FloatArray) -> Self:
        """Return the engine: it has no iterative solves."""
        return self

    def prepared(self, v: FloatArray) -> Self:
        """Return the engine whose solves, if it has any, start from those at `v`."""
        return self.started(v)

    def recombined(
        self, columns: FloatArray, like: LikelihoodEngine | None = None
    ) -> LikelihoodEngine:
        """Refuse: the engine cannot recombine columns."""
        raise EstimationError(
            f"the {self.name} engine has no profile of fixed effects; use engine='blocked' or a "
            "Wald interval"
        )

    def reach(self, errors: FloatArray) -> FloatArray:
        """Return infinity: values are exact everywhere."""
        return np.full(errors.shape, np.inf)

    def node_values(
        self, sums: Sequence[CrossProducts], centre: FloatArray, width: FloatArray
    ) -> Callable[[FloatArray], NodeValues]:
        """Refuse: each response needs its own evaluation."""
        raise NotImplementedError

    def expanded(self, v: FloatArray, held: BoolArray) -> LikelihoodEngine:
        """Return the engine."""
        return cast("LikelihoodEngine", self)

    def with_more_probes(self, v: FloatArray) -> LikelihoodEngine | None:
        """Return None: there are no probes."""
        return None

    def rough(self) -> LikelihoodEngine | None:
        """Return None: all steps are exact."""
        return None

    def after(self, rough: Any) -> LikelihoodEngine:
        """Return the engine: it has no iterative solves."""
        return cast("LikelihoodEngine", self)

    def curvature(
        self, v: FloatArray, decrement: float, squares: Squares | None = None
    ) -> Curvature | None:
        """Return None: all steps are by the average information."""
        return None


class ExactEngine:
    """Base of engines without random probes."""

    exact_value: ClassVar[bool] = True

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The kinds of information that are computed."""
        return ("observed", "expected", "average")

    @property
    def newton_below(self) -> float:
        """Newton decrement, in standard errors, below which steps are Newton's.

        It is low where the observed information costs much more than the value.
        """
        return 0.05

    def curvature(
        self, v: FloatArray, decrement: float, squares: Squares | None = None
    ) -> Curvature | None:
        """Return the observed information near the maximum, else None."""
        if decrement >= self.newton_below or "observed" not in self.kinds:
            return None
        return Curvature("Newton", self.information(v, "observed", positive_only=True))

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return an information matrix of the components at `v`."""
        raise NotImplementedError

    def monte_carlo(self, v: FloatArray) -> FloatArray | None:
        """Return None: there is no Monte Carlo error."""
        return None

    def loglike_error(self, v: FloatArray) -> float:
        """Return 0: there is no Monte Carlo error."""
        return 0.0


_MOST_SLOPES = 10_000_000
"""Number of elements of the derivatives above which they are not computed."""


def errors_of_fixed(engine: LikelihoodEngine, v: FloatArray) -> FixedErrors | None:
    """Return the derivatives of the covariance of the fixed effects at components `v`.

    Degrees of freedom are left empty. None if there are no fixed effects, or too many.
    """
    p = engine.n_fixed
    if not p or v.size * p**2 > _MOST_SLOPES:
        return None
    return FixedErrors(engine.fixed_forms(v).slopes, np.zeros(0))
