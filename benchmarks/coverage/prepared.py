"""A prepared design: draws and estimates data sets, and has the true values of quantities."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.coverage.cells import Cell
from benchmarks.coverage.populations import draw_scores, true_components
from vcomp import VarianceComponentsModel
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.registry import get_estimator
from vcomp.gtheory.plan import DStudyPlan, make_plans
from vcomp.gtheory.projection import quantities, weights
from vcomp.gtheory.requirement import requirement_ratio
from vcomp.inference.quantities import Quantities, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.resampling.draws import Draws, draws_of
from vcomp.inference.resampling.refits import Recipe
from vcomp.model.record import label
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics

_NEAR_ZERO = 1.0
"""Standard errors: a variance that is smaller than its own is near zero."""


@dataclass(frozen=True)
class Prepared:
    """A cell of the study with a distribution.

    Parameters
    ----------
    cell : the design and its components
    distribution : of effects and errors
    seed : of the study; every data set has a stream of its own, whoever draws it

    Notes
    -----
    Quantities are in one order everywhere: components, σ²(δ), σ²(Δ), then shares of the components
    in their sum, Eρ² and Φ, a ratio of components and a required size.
    """

    cell: Cell
    distribution: str
    seed: int

    @cached_property
    def model(self) -> VarianceComponentsModel:
        """The model of the design; its response has no meaning."""
        return VarianceComponentsModel(self.cell.formula, self.cell.frame())

    @cached_property
    def truth(self) -> FloatArray:
        """True components."""
        names = self.model.component_names
        if set(names) != set(self.cell.components):
            raise ValueError(f"{self.cell.name} has components {names}")
        return true_components(
            self.distribution, self.template.facets, self.cell.components, names
        )

    @cached_property
    def effects(self) -> FloatArray:
        """Variances that effects are drawn with."""
        return np.array([self.cell.components[name] for name in self.model.component_names])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities."""
        own = self.model.component_names
        shares = [f"share({name})" for name in own]
        return (
            *own, "rel_err_var", "abs_err_var", *shares, "Erho2", "Phi", *self._named_ratios,
        )  # fmt: skip

    @cached_property
    def linear(self) -> Quantities:
        """Components and error variances."""
        w = weights(self.template, self.plan)
        return Quantities("linear", np.vstack([np.eye(self.truth.size), w.relative, w.absolute]))

    @cached_property
    def shares(self) -> Quantities:
        """Shares and coefficients."""
        made = quantities(weights(self.template, self.plan))
        eye = np.eye(self.truth.size)
        own = [made[name] for name in ("Erho2", "Phi")]
        tops = np.vstack([eye, *(q.a for q in own)])
        return Quantities("share", tops, np.vstack([1.0 - eye, *(q.denominator for q in own)]))

    @cached_property
    def _named_ratios(self) -> dict[str, Quantities]:
        own, k = self.model.component_names, self.truth.size
        other = next(t for t in (*range(1, k), 0) if own[t] != self.cell.object)
        unit = np.eye(k)
        over = Quantities("ratio", unit[other : other + 1], unit[[own.index(self.cell.object)]])
        found = {f"{own[other]}/{self.cell.object}": over}
        facet = next((f for f in self.plan.facets if f in self.template.sizes), None)
        if facet is not None:
            # Of the goal that the design itself reaches
            goal = float(self.shares.values(self.truth)[-1])
            found[f"required {facet}"] = requirement_ratio(
                self.template, self.plan, goal if goal > 0.0 else 0.5, "Phi", facet
            )
        return found

    @cached_property
    def ratios(self) -> Quantities:
        """A ratio of components, and the size of a facet that Φ requires."""
        own = self._named_ratios.values()
        return Quantities(
            "ratio", np.vstack([q.a for q in own]), np.vstack([q.denominator for q in own])
        )

    @cached_property
    def values(self) -> FloatArray:
        """True values of the quantities."""
        kinds = (self.linear, self.shares, self.ratios)
        return np.concatenate([quantities.values(self.truth) for quantities in kinds])

    @cached_property
    def near_zero(self) -> BoolArray:
        """Which quantities are variances near zero, or shares of one.

        Standard errors are those of REML at the true components.
        """
        v = np.maximum(self.truth, 1e-9 * self.truth.max())
        cov = np.linalg.inv(self.model.information(v, information="expected"))
        small = self.truth < _NEAR_ZERO * np.sqrt(np.diagonal(cov))
        universe = small[self.template.names.index(self.cell.object)]
        of_ratios = np.full(len(self.ratios), universe)
        return np.concatenate([small, [False, False], small, [universe, universe], of_ratios])

    # Data sets ----------------------------------------------------------------------------------

    def draw(self, number: int, *, rows: bool = False) -> Statistics:
        """Return the statistics of a data set.

        Parameters
        ----------
        number : of the data set
        rows : whether rows are needed; else statistics are drawn where that is possible
        """
        key = f"{self.cell.name} {self.distribution}".encode()
        rng = stream(self.seed + zlib.crc32(key), number)
        if rows or self.distribution != "normal":
            y = draw_scores(self.model, self.effects, self.distribution, rng)
            return self.model.statistics.with_response(y)
        return self._draws.draw(self.truth, rng)

    @cached_property
    def _draws(self) -> Draws:
        return draws_of(self.model.statistics, self.recipe("reml"))

    def recipe(self, method: str) -> Recipe:
        """Return how an estimator is made."""
        return Recipe(get_estimator(method), self.model.component_names)

    def estimate(self, stats: Statistics, method: str) -> Estimate:
        """Return the estimate by a method."""
        return get_estimator(method).estimate(stats, self.model.component_names)

    # Components as intervals take them ----------------------------------------------------------

    @cached_property
    def template(self) -> VarianceComponents:
        """Components of the design, with another response."""
        fit = self.estimate(self.model.statistics, "reml")
        return label(self.model.design, self.model.statistics.group_sums, fit, None)

    @cached_property
    def plan(self) -> DStudyPlan:
        """The G-study's own sizes."""
        return make_plans(self.template, object=self.cell.object)

    def components(
        self, estimate: Estimate, stats: Statistics, kind: str | None = None
    ) -> VarianceComponents:
        """Return components as a fit has them.

        Parameters
        ----------
        estimate, stats : of a data set
        kind : of the covariance; the one for standard errors if None
        """
        covariances = estimate.covariances
        cov = next(iter(covariances.values())) if kind is None else covariances[kind]
        return replace(
            self.template,
            values=estimate.values,
            cov=cov,
            without_bounds=estimate.without_bounds,
            mean_squares=self._mean_squares(stats),
        )

    def _mean_squares(self, stats: Statistics) -> TwoWayMeanSquares | None:
        """Return the mean squares of a complete table with one score a cell, else None."""
        structure = self.model.design.structure
        if not (structure.balanced and structure.fully_crossed and len(structure.facets) == 2):
            return None
        a, b = structure.facets
        n_a, n_b = (int(structure.sizes[f]) for f in (a, b))
        # They say the same as the estimates of the analysis of variance.
        v = self.estimate(stats, "anova").values
        return TwoWayMeanSquares(a, b, n_a, n_b, v[2] + n_b * v[0], v[2] + n_a * v[1], v[2])
