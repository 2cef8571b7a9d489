"""Engines for tests: the blocked one with something else about it."""

from __future__ import annotations

import numpy as np

from vcomp.estimators.likelihood.blocked import BlockedLikelihood


class AverageOnly(BlockedLikelihood):
    """Has no other information than the average one."""

    kinds = ("average",)

    def information(self, v, kind="observed", *, positive_only=False):
        assert kind == "average"
        return super().information(v, kind, positive_only=positive_only)


class Probing(AverageOnly):
    """As an engine with random probes: steps cannot rest on its likelihood."""

    exact_value = False

    def monte_carlo(self, v):
        return np.diag((0.001 * v) ** 2)

    def loglike_error(self, v):
        return 0.25


class Saddle(BlockedLikelihood):
    """Says that the likelihood is convex, wherever it is asked."""

    def information(self, v, kind="observed", *, positive_only=False):
        sign = -1.0 if kind == "observed" else 1.0
        return sign * super().information(v, kind, positive_only=positive_only)


class Flat(BlockedLikelihood):
    """Says that the first two components cannot be distinguished."""

    def information(self, v, kind="observed", *, positive_only=False):
        found = super().information(v, kind, positive_only=positive_only).copy()
        found[1] = 2.0 * found[0]
        found[:, 1] = 2.0 * found[:, 0]
        return found


class Interrupted(BlockedLikelihood):
    """Is interrupted at one of its evaluations, once."""

    def __init__(self, stats, *, reml, at):
        super().__init__(stats, reml=reml)
        self.left = at

    def _count(self):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def loglike(self, v):
        self._count()
        return super().loglike(v)

    def derivatives(self, v):
        self._count()
        return super().derivatives(v)

    def information(self, v, kind="observed", *, positive_only=False):
        self._count()
        return super().information(v, kind, positive_only=positive_only)


class Slow(BlockedLikelihood):
    """Has evaluations for which steps are chosen with care."""

    seconds = 1.0
