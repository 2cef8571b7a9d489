"""A likelihood in the components of terms with few levels, the others as they are.

Other values of these components change V by a matrix of the rank of their effects. So value, score
and information follow from small matrices of one point, without another evaluation
(docs/explanation/mathematics.md, eq. (6.4)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.engine import Derivatives, ExactEngine, InformationKind
from vcomp.numerics import solve


@dataclass(frozen=True)
class FewLevels(ExactEngine):
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

    @cached_property
    def _members(self) -> FloatArray:
        """1 where an effect is of a term, (k + 1, q)."""
        return np.asarray(np.arange(self.v.size)[:, None] == self.term, dtype=float)

    def _changed(self, v: FloatArray, matrix: FloatArray) -> FloatArray:
        """Return I + AD of the change D of the components."""
        found = matrix * (v - self.v)[self.term]
        found.flat[:: len(found) + 1] += 1.0
        return found

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`."""
        change = (v - self.v)[self.term]
        sign, log_det = np.linalg.slogdet(self._changed(v, self.full))
        if sign <= 0.0:
            raise np.linalg.LinAlgError("V is not positive definite")
        shrunk = solve(self._changed(v, self.within), self.fitted)
        return float(self.loglike_there - 0.5 * log_det + 0.5 * (self.fitted * change) @ shrunk)

    def _forms(self, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Z'PZ, its full form, and Z'Py at components `v`."""
        both = np.column_stack([self.within, self.fitted])
        solved = solve(self._changed(v, self.within), both)
        within, fitted = solved[:, :-1], solved[:, -1]
        full = within
        if self.full is not self.within:
            full = solve(self._changed(v, self.full), self.full)
        return within, full, fitted

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return value, score and average information at `v`, zero for the other terms."""
        within, full, fitted = self._forms(v)
        score = 0.5 * self._members @ (np.square(fitted) - np.diagonal(full))
        return Derivatives(self.loglike(v), score, self._average(within, fitted))

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return an information matrix, zero for the other terms; all of it costs little."""
        within, full, fitted = self._forms(v)
        average = self._average(within, fitted)
        if kind == "average":
            return average
        expected: FloatArray = 0.5 * self._members @ np.square(full) @ self._members.T
        return expected if kind == "expected" else 2.0 * average - expected

    def _average(self, within: FloatArray, fitted: FloatArray) -> FloatArray:
        weighted = self._members * fitted
        average: FloatArray = 0.5 * weighted @ within @ weighted.T
        return average
