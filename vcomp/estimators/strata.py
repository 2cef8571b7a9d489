"""The likelihood of a design with fully crossed facets, by its orthogonal strata.

The strata are independent, and the components of each are linear in those of the model, c_s = M_s
σ². Value, score and informations therefore add up over strata:

    ℓ = Σ_s ℓ_s(M_s σ²),   ∂ℓ = Σ_s M_s' ∂ℓ_s,   I = Σ_s M_s' I_s M_s

and, with columns of X in several strata, X'V⁻¹X does so too. Nothing is divided by a component but
the residual: zeros need no special treatment.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.blocked_covariance import BlockedCovariance
from vcomp.estimators.engine import (
    Derivatives,
    ExactEngine,
    InformationKind,
    Solution,
    SummedEngine,
)
from vcomp.estimators.fixed_forms import FixedForms, forms_of_totals
from vcomp.estimators.forms import Columns, Covariance
from vcomp.estimators.nested import NestedCovariance
from vcomp.estimators.strata_effects import strata_solution
from vcomp.estimators.totals import Totals
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve
from vcomp.statistics.strata import Stratum, StratumStatistics

__all__ = ["StrataLikelihood", "stratum_covariance"]


class StrataLikelihood(SummedEngine, ExactEngine):
    """Restricted or full log-likelihood from the statistics of orthogonal strata.

    Parameters
    ----------
    stats : the strata
    reml : restricted likelihood, or the full one (ML)
    """

    stats: StratumStatistics
    name: ClassVar[str] = "strata"
    kinds: ClassVar[tuple[InformationKind, ...]] = ("observed", "expected", "average")

    def __init__(self, stats: StratumStatistics, *, reml: bool) -> None:
        self.stats = stats
        self.reml = reml
        self.covariances = [stratum_covariance(stats, s) for s in stats.strata]
        self._last: tuple[bytes, Totals] | None = None

    @property
    def reason(self) -> str:
        """Why this engine serves these data."""
        n, k = len(self.stats.strata), len(self.stats.shape)
        rest = "nested" if self.stats.remainder.parents is not None else "crossed"
        if not k:
            return "nested groups, eliminated from the innermost on"
        facets = "a fully crossed facet gives" if k == 1 else f"{k} fully crossed facets give"
        if self.stats.remainder.n_groupings == 1:
            return f"{facets} {n} orthogonal strata"
        return f"{facets} {n} orthogonal strata, the rest is {rest}"

    @cached_property
    def rss(self) -> float:
        """What ordinary least squares on X leaves of it."""
        return self._ordinary.rss

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative.

        They solve Σ_u tr(Q V_t Q V_u) σ²_u = y'Q V_t Q y with the residual maker Q of X.
        """
        return solve(self.quadratic_forms(), self._ordinary.quadratics)

    def quadratic_forms(self) -> FloatArray:
        """Return tr(Q V_t Q V_u), whose rank says which components can be told apart."""
        return self._ordinary.expected(reml=True)

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return self._ordinary.beta.copy()

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        v = np.asarray(v, dtype=float)
        if self._last is not None and self._last[0] == v.tobytes():
            return self._loglike(self._last[1])
        totals = Totals(v.size, 1 + self.n_fixed)
        for stratum, covariance in zip(self.stats.strata, self.covariances, strict=True):
            log_det, gram = covariance.log_det_and_gram(stratum.coefficients @ v)
            columns = _places(stratum)
            totals.log_det += stratum.multiplicity * log_det
            totals.gram[np.ix_(columns, columns)] += gram
        return self._loglike(totals)

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`, zeros allowed."""
        totals = self._at(v)
        traces = totals.traces - totals.fixed_traces() if self.reml else totals.traces
        score = 0.5 * (totals.quadratics - traces)
        return Derivatives(self._loglike(totals), score, 0.5 * totals.average())

    def information(
        self,
        v: FloatArray,
        kind: InformationKind = "observed",
        *,
        positive_only: bool = False,
    ) -> FloatArray:
        """Return an information matrix of the components at `v`.

        ``"expected"`` is ½ tr(P V_t P V_u) (for ML with V⁻¹ in place of P), ``"average"`` is
        ½ y'P V_t P V_u P y, and the observed one, −∂²ℓ, is twice the average less the expected.

        Parameters
        ----------
        positive_only : of no effect, as components at zero cost nothing here
        """
        totals = self._at(v)
        if kind == "average":
            return 0.5 * totals.average()
        expected = 0.5 * totals.expected(reml=self.reml)
        return expected if kind == "expected" else totals.average() - expected

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`."""
        totals = self._at(v)
        return totals.beta.copy(), totals.XVX.inverse()

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return forms of X in V⁻¹ at `v`, the second ones if asked for."""
        return forms_of_totals(self._at(v), second=second)

    @property
    def gives_effects(self) -> bool:
        """Whether :meth:`solution` can serve: not single cells of facets that are crossed."""
        return self.stats.remainder.parents is not None or self.stats.cells is None

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`.

        Raises
        ------
        EstimationError
            If a term has single cells as groups and the facets that are no axes are crossed.
        """
        if not self.gives_effects:
            raise EstimationError(
                "effects of single cells come from strata only where the other facets are nested; "
                "use engine='blocked'"
            )
        v = np.asarray(v, dtype=float)
        beta, cov_beta = self.fixed_effects(v)
        return strata_solution(self.stats, self.covariances, v, beta, cov_beta)

    # One point ------------------------------------------------------------------------------

    @cached_property
    def _ordinary(self) -> Totals:
        """The forms at V = I."""
        v = np.zeros(self.stats.n_terms + 1)
        v[-1] = 1.0
        return self._evaluate(v)

    def _at(self, v: FloatArray) -> Totals:
        v = np.asarray(v, dtype=float)
        if self._last is None or self._last[0] != v.tobytes():
            self._last = v.tobytes(), self._evaluate(v)
        return self._last[1]

    def _evaluate(self, v: FloatArray) -> Totals:
        totals = Totals(v.size, 1 + self.n_fixed)
        for stratum, covariance in zip(self.stats.strata, self.covariances, strict=True):
            M = stratum.coefficients
            totals.add(covariance.forms(M @ v), M, stratum.multiplicity, _places(stratum))
        return totals

    def _loglike(self, totals: Totals) -> float:
        return -0.5 * totals.deviance(self.n, reml=self.reml)


def _places(stratum: Stratum) -> list[int]:
    """Return the places of a stratum's columns among y and all of X."""
    return [0, *(1 + j for j in stratum.fixed)]


def stratum_covariance(stats: StratumStatistics, stratum: Stratum) -> Covariance:
    """Return what gives the forms of a stratum: a recursion over nested groups, or equations."""
    columns, remainder = stratum.columns, stats.remainder
    if remainder.parents is not None:
        return NestedCovariance(remainder, columns)
    sums = tuple(
        n[:, None, None] * means
        for n, means in zip(remainder.tables.group_n, columns.means, strict=True)
    )
    return BlockedCovariance(remainder.tables, Columns(sums, columns.within))
