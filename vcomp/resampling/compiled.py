"""Refits of nested strata by compiled code, the ordinary engine behind it."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.options import known_components
from vcomp.kernels.nested import Strata, Tree, maximise_nested
from vcomp.resampling.by_likelihood import TOLERANCE, ByLikelihood
from vcomp.resampling.refitted import Refitted
from vcomp.statistics import Statistics, StratumStatistics

__all__ = ["Compiled", "Packed"]


class Packed:
    """The strata of a design as plain arrays, those of the response left to be filled in.

    Parameters
    ----------
    stats : strata with a nested remainder
    """

    def __init__(self, stats: StratumStatistics) -> None:
        parents, strata = stats.remainder.parents, stats.strata
        assert parents is not None
        sizes = [1, *(p.size for p in parents)]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        above = [p + first for p, first in zip(parents, offsets, strict=False)]
        parent = np.concatenate([[-1], *above]).astype(np.int64)
        self.tree: Tree = (stats.remainder.tables.group_n[-1], parent, offsets)
        self.coefficients = np.array([s.coefficients for s in strata])
        self.multiplicity = np.array([s.multiplicity for s in strata], dtype=float)
        self.n_columns = np.array([1 + len(s.fixed) for s in strata], dtype=np.int64)
        self.n_fixed = stats.n_fixed
        self.places = np.zeros((len(strata), 1 + self.n_fixed), dtype=np.int64)
        for s, stratum in enumerate(strata):
            self.places[s, 1 : 1 + len(stratum.fixed)] = [1 + j for j in stratum.fixed]

    def filled(self, stats: StratumStatistics) -> Strata:
        """Return the arrays of strata with some response, as the kernels take them."""
        tables = [s.columns.means[0].ravel() for s in stats.strata]
        starts = np.concatenate([[0], np.cumsum([t.size for t in tables])]).astype(np.int64)
        within = np.zeros((len(tables), 1 + self.n_fixed, 1 + self.n_fixed))
        for s, stratum in enumerate(stats.strata):
            b = self.n_columns[s]
            within[s, :b, :b] = stratum.columns.within
        return (
            np.concatenate(tables),
            starts,
            within,
            self.coefficients,
            self.multiplicity,
            self.places,
            self.n_columns,
        )


class Compiled:
    """REML or ML of nested strata, started where the data were generated.

    Parameters
    ----------
    stats : of the data, with nested strata
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
        assert stats.strata is not None
        known = known_components(options.hold, names)
        self._held = known.held
        self._start = np.where(known.held, known.values, start)
        self._tol = TOLERANCE if options.tol is None else float(options.tol)
        self._max_iter, self._reml = int(options.max_iter), options.is_restricted
        self._packed = Packed(stats.strata)
        self._ordinary = ByLikelihood(stats, options, names, start)

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum, the ordinary way where full and halved steps do not lead there."""
        assert stats.strata is not None
        packed = self._packed
        found, values, llf, beta = maximise_nested(
            self._start,
            self._held,
            self._tol,
            self._max_iter,
            packed.tree,
            packed.filled(stats.strata),
            packed.n_fixed,
            self._reml,
        )
        return Refitted(values, beta, llf, True) if found else self._ordinary(stats)
