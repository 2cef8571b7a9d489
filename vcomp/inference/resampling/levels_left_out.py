"""Influence of the levels of a facet: what leaving one out does to the estimates.

The fit is repeated without the rows of each level. Cook's distance compares the fixed effects with
those of all rows, in the metric of their covariance matrix; components have relative changes
(docs/explanation/mathematics.md, section 10.9).

References
----------
Cook (1977), Detection of influential observation in linear regression; Demidenko and Stukel
(2005), Influence analysis for linear mixed-effects models; Loy and Hofmann (2014), HLMdiag: a
suite of diagnostics for hierarchical linear models in R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.exceptions import warn
from vcomp.inference.resampling.collection import GeneratingFit, replicates_of, report_failures
from vcomp.inference.resampling.delete_one import levels_in_words, without_each
from vcomp.inference.resampling.facet import check_levels
from vcomp.inference.resampling.row_samples import Levels, Sample, check_facets
from vcomp.numerics import check_count, solve_positive

if TYPE_CHECKING:
    import pandas as pd

_FEWEST = 3
"""Smallest number of levels: without one of two, a facet has a single level."""

_LARGE = 4.0
"""A Cook's distance of more than this over the number of levels is large (Van der Meer et al.
2010)."""

_LISTED = 5
"""Levels that a summary has."""

_MOST_COLUMNS = 200
"""Columns of X up to which levels that they need are searched for; else the fits fail."""

_USED = 1e-6
"""Share of the largest weight of a column below which another weight is rounding error."""

_DETERMINED = 1e-9
"""Share of a direction of X that other levels have, below which it is rounding error."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class LevelInfluence(display.Printed):
    """Estimates without each level of a facet, and how far they are from those of all rows.

    Attributes
    ----------
    facet : whose levels were left out
    levels : the level that each row is without, as text
    counts : (J,) scores of each level
    names, fixed_names : of the components and of the fixed effects
    covariances : names of the components that are covariances of slopes
    whole, whole_beta : (k + 1,) and (p,) components and fixed effects from all rows
    values, beta : (J, k + 1) and (J, p) those without each level; nan where a fit failed, and for
        the residual variance of a level that is left out
    distances : (J,) Cook's distances; nan where a fit failed or there is no fixed part
    converged : (J,) whether the fit without the level converged

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> left_out = res.influence("sys")
    >>> left_out.components["topic"].round(5).tolist()
    [0.00027, 0.00107, 0.00104, 0.00252, 0.00391]
    """

    facet: str
    levels: tuple[str, ...]
    counts: LongArray
    names: tuple[str, ...]
    fixed_names: tuple[str, ...]
    covariances: tuple[str, ...]
    whole: FloatArray
    whole_beta: FloatArray
    values: FloatArray
    beta: FloatArray
    distances: FloatArray
    converged: BoolArray

    def __repr__(self) -> str:
        return f"<influence of {len(self.levels)} {display.levels_of(self.facet)}>"

    @property
    def cooks_distance(self) -> pd.Series:
        """Cook's distance of each level, (β̂₍ⱼ₎ − β̂)'cov(β̂)⁻¹(β̂₍ⱼ₎ − β̂)/p."""
        import pandas as pd

        return pd.Series(self.distances, self._index, name="cooks_distance")

    @property
    def table(self) -> pd.DataFrame:
        """One row per level: scores, cooks_distance, largest_change, component, converged.

        ``largest_change`` is the relative change of a variance that is largest in size, and
        ``component`` its name.
        """
        import pandas as pd

        variances = self.relative_changes.drop(columns=list(self.covariances))
        changes = variances.to_numpy()
        most = np.abs(np.nan_to_num(changes)).argmax(axis=1)
        columns = {
            "scores": self.counts,
            "cooks_distance": self.distances,
            "largest_change": changes[np.arange(most.size), most],
            "component": variances.columns.to_numpy()[most],
            "converged": self.converged,
        }
        return pd.DataFrame(columns, self._index)

    @property
    def fixed_effects(self) -> pd.DataFrame:
        """The fixed effects without each level."""
        import pandas as pd

        return pd.DataFrame(self.beta, self._index, self.fixed_names)

    @property
    def dfbeta(self) -> pd.DataFrame:
        """Changes of the fixed effects without each level, β̂₍ⱼ₎ − β̂."""
        return self.fixed_effects - self.whole_beta

    @property
    def components(self) -> pd.DataFrame:
        """The components without each level."""
        import pandas as pd

        return pd.DataFrame(self.values, self._index, self.names)

    @property
    def relative_changes(self) -> pd.DataFrame:
        """Relative changes of the components without each level, σ²₍ⱼ₎/σ² − 1.

        Those of a component that is 0 in all rows are nan.
        """
        import pandas as pd

        size = np.where(self.whole == 0.0, np.nan, np.abs(self.whole))
        return pd.DataFrame((self.values - self.whole) / size, self._index, self.names)

    def plot(self, ax: Any | None = None) -> Any:
        """Draw Cook's distances of the levels, or the largest changes without a fixed part.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        VcompError
            If matplotlib is not installed.
        """
        values, name = self._measure
        limit = _LARGE / len(self.levels) if self.fixed_names else None
        return plots.influence(values, self.facet, name, limit=limit, ax=ax)

    def summary(self) -> Any:
        """Return the levels with the largest influence."""
        values, _ = self._measure
        order = values.sort_values(ascending=False, kind="stable").index[:_LISTED]
        frame = self.table.loc[order]
        cells = {
            "scores": [display.count(n) for n in frame["scores"]],
            "Cook's distance": display.fixed(frame["cooks_distance"], significant=3),
            "largest change": [display.percent(x) for x in frame["largest_change"]],
            "of": frame["component"].tolist(),
        }
        if not self.fixed_names:
            del cells["Cook's distance"]
        title = f"Estimates without one of {display.counted(len(self.levels), self.facet)}"
        table = display.column_table(
            cells, title=title, stubs=list(order), align="rrrl"[-len(cells) :]
        )
        return display.summary([table], self._notes())

    def _notes(self) -> list[str]:
        notes = ["Largest change: of a variance, relative to that of all scores."]
        if self.fixed_names:
            limit = _LARGE / len(self.levels)
            far = self.cooks_distance[self.distances > limit].sort_values(ascending=False)
            named = display.listed([str(level) for level in far.index[:_LISTED]])
            more = f" and {display.count(len(far) - _LISTED)} more" if len(far) > _LISTED else ""
            above = f"above 4/{len(self.levels)} = {display.number(limit, 2)}"
            where = f"{above} without {named}{more}" if len(far) else f"nowhere {above}"
            notes.append(f"Cook's distance is {where}.")
        failed = [level for level, ok in zip(self.levels, self.converged, strict=True) if not ok]
        if failed:
            notes.append(f"There are no estimates without {display.listed(failed[:_LISTED])}.")
        return notes

    @property
    def _measure(self) -> tuple[pd.Series, str]:
        """The values by which levels are compared, and their name."""
        if self.fixed_names:
            return self.cooks_distance, "Cook's distance"
        return self.table["largest_change"].abs(), "largest relative change of a variance"

    @property
    def _index(self) -> pd.Index:
        import pandas as pd

        return pd.Index(self.levels, name=self.facet)


def level_influence(
    fit: GeneratingFit,
    design: Design,
    cov_beta: FloatArray,
    facet: str,
    *,
    workers: int = 1,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> LevelInfluence:
    """Return the estimates without each level of a facet, with Cook's distances.

    Parameters
    ----------
    fit : the fit that is repeated, with the statistics of its rows
    design : of its data
    cov_beta : (p, p) covariance matrix of the fixed effects of the centred columns
    facet : whose levels are left out; of a nested one those within each level of the outer facets
    workers : number of threads
    progress : whether to show a bar; None shows one if stderr is a terminal
    time_limit : expected seconds up to which fits are made one by one; None stands for ten minutes

    Raises
    ------
    EstimationError
        If the facet is not one of the random part, or has fewer than three levels (two in some
        group, if nested); if more time is expected; or if no refit succeeded.

    Warns
    -----
    VcompWarning
        If an estimate is missing: its row is nan.
    """
    (name,) = check_facets(design, facet)
    workers = check_count(workers, "workers")
    rows, structure = fit.stats.separable_rows, design.structure
    whole = Sample.whole(rows)
    levels = Levels.of(whole, structure.facets, structure.nested_in, name)
    check_levels(design, levels, 2 if structure.nested_in[name] else _FEWEST)
    every = np.arange(levels.n)
    words = levels_in_words(design, levels, whole, every)
    needed = _needed_levels(rows, [levels.rows(int(b)) for b in every])
    for b, columns in needed.items():
        listed = display.listed([fit.fixed_names[j] for j in columns])
        warn(
            f"without {name} {words[b]} the other scores do not determine the fixed effects "
            f"{listed}: its row is nan"
        )
    fitted = np.array([b for b in every if b not in needed], dtype=np.int64)
    parts = without_each(
        fit, design, levels, fitted, workers=workers, progress=progress, time_limit=time_limit
    )
    made = replicates_of(fit, parts, "influence", {}, 0, fitted.size)
    report_failures(made, parts.values(), f"fits without one {name}")
    found = np.zeros(levels.n, dtype=bool)
    found[fitted] = made.converged
    values, beta = (np.full((levels.n, m), np.nan) for m in (fit.values.size, fit.beta.size))
    values[found], beta[found] = made.values[made.converged], made.beta[made.converged]
    distances = np.full(levels.n, np.nan)
    if fit.beta.size:
        changes = np.array([parts[b].beta for b in range(fitted.size)])[made.converged] - fit.beta
        squares = changes * solve_positive(cov_beta, changes.T).T
        distances[found] = squares.sum(axis=1) / fit.beta.size
    return LevelInfluence(
        facet=name,
        levels=words,
        counts=_scores_of(rows, levels),
        names=fit.recipe.names,
        fixed_names=fit.fixed_names,
        covariances=fit.recipe.names[len(fit.stats.sizes) : -len(design.formula.residual_names)],
        whole=fit.values,
        whole_beta=fit.uncentre(fit.beta),
        values=values,
        beta=beta,
        distances=distances,
        converged=found,
    )


def _scores_of(rows: Chunk, levels: Levels) -> LongArray:
    """Return the number of scores of each level, (J,)."""
    counts = np.ones(levels.order.size) if rows.counts is None else rows.counts[levels.order]
    return np.add.reduceat(counts, levels.starts[:-1]).round().astype(np.int64)


def _needed_levels(rows: Chunk, parts: Sequence[LongArray]) -> dict[int, LongArray]:
    """Return the levels without which X has not full rank, with the columns that they determine.

    They have an eigenvalue 1 of L⁻¹X_j'X_jL⁻ᵀ, where X'X = LL'.
    """
    p = rows.n_fixed
    if not 0 < p <= _MOST_COLUMNS:
        return {}
    X: FloatArray = rows.X
    if rows.multiplicity is not None:
        X = X * np.sqrt(rows.multiplicity)[:, None]
    inside = np.zeros((p, p, 0)) if rows.products is None else rows.products[1 : p + 1, 1 : p + 1]
    scale = np.sqrt(np.square(X).sum(axis=0) + np.einsum("jji->j", inside))
    X, inside = X / scale, inside / np.outer(scale, scale)[:, :, None]
    L = np.linalg.cholesky(X.T @ X + inside.sum(axis=2))
    needed = {}
    for b, part in enumerate(parts):
        half = np.linalg.solve(L, X[part].T)
        shares = half @ half.T
        if rows.products is not None:
            own = np.linalg.solve(L, inside[:, :, part].sum(axis=2))
            shares += np.linalg.solve(L, own.T)
        lengths, directions = np.linalg.eigh(shares)
        if lengths[-1] > 1.0 - _DETERMINED:
            weights = np.abs(np.linalg.solve(L.T, directions[:, -1]))
            needed[b] = np.flatnonzero(weights > _USED * weights.max())
    return needed
