"""A likelihood in the components of terms with few levels, the others as they are.

Other values of these components change V by a matrix of the rank of their effects. So value, score
and information follow from small matrices of one point, without another evaluation
(docs/explanation/mathematics.md, eq. (6.4)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.engine import Derivatives, InformationKind


@dataclass(frozen=True)
class FewLevels:
    """The likelihood beside one point, as a function of the components of some terms.

    Attributes
    ----------
    v : (k + 1,) components of the point
    loglike_there : log-likelihood there
    term : (q,) the term of each effect of these terms
    within : (q, q) Z'PZ of the effects
    full : (q, q) Z'V⁻¹Z if the likelihood is the full one, Z'PZ for the restricted one
    fitted : (q,) Z'Py
    n, n_fixed, reml : of the likelihood
    """

    v: FloatArray
    loglike_there: float
    term: LongArray
    within: FloatArray
    full: FloatArray
    fitted: FloatArray
    n: int
    n_fixed: int
    reml: bool
    newton_below: ClassVar[float] = 0.05
    exact_value: ClassVar[bool] = True
    kinds: ClassVar[tuple[InformationKind, ...]] = ("observed", "average")

    @cached_property
    def _members(self) -> FloatArray:
        """1 where an effect is of a term, (k + 1, q)."""
        return np.asarray(np.arange(self.v.size)[:, None] == self.term, dtype=float)

    def _inverse(self, v: FloatArray, matrix: FloatArray) -> FloatArray:
        """I + DA of the change D of the components."""
        change = (v - self.v)[self.term]
        A = change[:, None] * matrix
        A.flat[:: len(A) + 1] += 1.0
        return A

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`."""
        change = (v - self.v)[self.term]
        sign, log_det = np.linalg.slogdet(self._inverse(v, self.full))
        if sign <= 0.0:
            raise np.linalg.LinAlgError("V is not positive definite")
        shrunk = np.linalg.solve(self._inverse(v, self.within), change * self.fitted)
        return float(self.loglike_there - 0.5 * log_det + 0.5 * self.fitted @ shrunk)

    def _forms(self, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Z'PZ, its full form, and Z'Py at components `v`."""
        of_within = np.linalg.inv(self._inverse(v, self.within))
        within = self.within @ of_within
        full = within
        if self.full is not self.within:
            full = self.full @ np.linalg.inv(self._inverse(v, self.full))
        return within, full, self.fitted @ of_within

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return value, score and average information at `v`, zero for the other terms."""
        within, full, fitted = self._forms(v)
        score = 0.5 * self._members @ (np.square(fitted) - np.diagonal(full))
        weighted = self._members * fitted
        return Derivatives(self.loglike(v), score, 0.5 * weighted @ within @ weighted.T)

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return the observed or the average information, zero for the other terms."""
        within, full, fitted = self._forms(v)
        weighted = self._members * fitted
        average: FloatArray = 0.5 * weighted @ within @ weighted.T
        if kind == "average":
            return average
        expected = 0.5 * self._members @ np.square(full) @ self._members.T
        return 2.0 * average - expected
