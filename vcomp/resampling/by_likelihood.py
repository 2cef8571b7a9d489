"""REML and ML of data that were drawn again, by the ordinary engines."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.choose import choose_engine
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.maximise import maximise
from vcomp.estimators.options import known_components, seed_of
from vcomp.estimators.strata import StrataLikelihood
from vcomp.resampling.refitted import Refitted
from vcomp.statistics import Statistics

__all__ = ["TOLERANCE", "ByLikelihood"]

TOLERANCE = 1e-8
_TOLERANCE_OF_PROBES = 1e-4
"""Newton decrements, in standard errors: what is left is far below what replicates differ by."""


class ByLikelihood:
    """REML or ML, started where the data were generated.

    An engine of equations is ordered and analysed once; one worker's refits share it.

    Parameters
    ----------
    stats : of the data
    options : of the method
    names : of the components
    start : (k + 1,) where iterations begin; held components come from the options
    """

    def __init__(
        self,
        stats: Statistics,
        options: LikelihoodMethod,
        names: tuple[str, ...],
        start: FloatArray,
    ) -> None:
        known = known_components(options.hold, names)
        self._options, self._names, self._held = options, names, known.held
        self._start = np.where(known.held, known.values, start)
        # A generator has moved on since the fit, and would give every worker other probes.
        moved_on = isinstance(options.rng, np.random.Generator)
        self._seed = 0 if moved_on else seed_of(options.rng)
        self._sizes = np.array([*stats.sizes, stats.n], dtype=float)
        self._engine: LikelihoodEngine | None = None

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum of the likelihood."""
        engine = self._engine_of(stats)
        tol = self._options.tol
        if tol is None:
            tol = TOLERANCE if engine.exact_value else _TOLERANCE_OF_PROBES
        try:
            found = maximise(
                engine,
                self._start,
                self._sizes,
                held=self._held,
                max_iter=int(self._options.max_iter),
                tol=tol,
            )
            beta, _ = engine.fixed_effects(found.v)
            llf = found.loglike if engine.exact_value else engine.loglike(found.v)
        except np.linalg.LinAlgError:
            return Refitted.failed(self._start.size, stats.Xy.size)
        return Refitted(found.v, beta, llf, found.converged)

    def _engine_of(self, stats: Statistics) -> LikelihoodEngine:
        if stats.strata is not None:
            return StrataLikelihood(stats.strata, reml=self._options.is_restricted)
        if isinstance(self._engine, BlockedLikelihood):
            self._engine = self._engine.with_response(stats.cross_products)
            return self._engine
        # Which engine serves is found once; the last one is let go before the next is made.
        name = self._options.engine if self._engine is None else self._engine.name
        self._engine = None
        self._engine = choose_engine(
            stats,
            name,
            reml=self._options.is_restricted,
            names=self._names[:-1],
            n_probes=self._options.n_probes,
            seed=self._seed,
        )
        return self._engine
