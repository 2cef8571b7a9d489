"""What a likelihood engine offers, whatever it computes with.

An engine is made from sufficient statistics and answers at any non-negative components: value,
score, information, predicted effects. :mod:`vcomp.estimators.maximise` climbs on it,
:mod:`vcomp.estimators.likelihood` makes an estimate of where that ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from vcomp._typing import FloatArray
from vcomp.estimators.fixed_forms import FixedForms
from vcomp.statistics import CrossProducts, StratumStatistics

__all__ = [
    "Derivatives",
    "ExactEngine",
    "InformationKind",
    "LikelihoodEngine",
    "Solution",
    "SummedEngine",
]

InformationKind = Literal["observed", "expected", "average"]


@dataclass(frozen=True, slots=True)
class Derivatives:
    """The log-likelihood with its gradient and average information at one point."""

    loglike: float
    score: FloatArray
    average: FloatArray


@dataclass(frozen=True, slots=True)
class Solution:
    """The solution of Henderson's equations at one point, on the centred scale.

    Attributes
    ----------
    beta, cov_beta : generalised least squares estimate and its covariance matrix
    effects : for each term the (q_t,) predicted effects
    prediction_var : for each term the (q_t,) variances of prediction, û − u
    conditional_var : the same with the fixed effects taken as known, as lme4 gives them
    """

    beta: FloatArray
    cov_beta: FloatArray
    effects: tuple[FloatArray, ...]
    prediction_var: tuple[FloatArray, ...]
    conditional_var: tuple[FloatArray, ...]


class LikelihoodEngine(Protocol):
    """A restricted or full log-likelihood of the components, the residual last."""

    @property
    def name(self) -> str:
        """``"strata"``, ``"blocked"`` or ``"iterative"``."""

    @property
    def reason(self) -> str:
        """Why this engine serves these data: half a sentence for the result."""

    @property
    def reml(self) -> bool:
        """Restricted likelihood, or the full one (ML)."""

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The informations that it can give; ``"average"`` is always among them."""

    @property
    def exact_value(self) -> bool:
        """Whether :meth:`loglike` is exact and cheap enough to control steps by.

        Where it is not, steps are controlled by the Newton decrement, and the ``loglike`` of
        :class:`Derivatives` may be nan.
        """

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of random effects of the terms."""

    @property
    def yy(self) -> float:
        """Sum of squares of the centred response."""

    @property
    def rss(self) -> float:
        """What ordinary least squares on X leaves of it."""

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative: where iterations start."""

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`."""

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return value, score and average information at `v`, zeros allowed."""

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return an information matrix, nan where a component is zero if `positive_only`."""

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`, on the centred scale."""

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return what the error of the fixed effects depends on at `v`, on the centred scale.

        The second forms are there if they were asked for and the engine has them.
        """

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""

    def monte_carlo(self, v: FloatArray) -> FloatArray | None:
        """Return the (k + 1, k + 1) covariance that random probes give the estimates at `v`.

        None where nothing is random.
        """

    def loglike_error(self, v: FloatArray) -> float:
        """Return the standard error that random probes give :meth:`loglike`, else 0."""


class SummedEngine:
    """What engines say of the sums that they are made from."""

    stats: CrossProducts | StratumStatistics

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.stats.n

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


class ExactEngine:
    """What engines without random probes have in common."""

    exact_value: ClassVar[bool] = True

    def monte_carlo(self, v: FloatArray) -> FloatArray | None:
        """Return None: nothing is random."""
        return None

    def loglike_error(self, v: FloatArray) -> float:
        """Return 0: nothing is random."""
        return 0.0
