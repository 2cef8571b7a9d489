"""The diagnosis of a fit: tests, effect sizes, what they matter for, and a page of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.inference.assumptions.samples import AssumptionTest, EffectSample, skewness
from vcomp.inference.assumptions.two_way_table import TableFindings
from vcomp.inference.assumptions.verdicts import (
    Deviation,
    MissingSlope,
    OutlyingRows,
    Verdict,
    verdicts_of,
)
from vcomp.inference.intervals import BelowZero
from vcomp.inference.pairwise import adjusted

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Distances that differ by less than this, relative to their size, are equal."""

_FEWEST = 3.0
"""Residual degrees of freedom that a level needs for its variance to count."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelSpread:
    """Residual variances of the levels of a facet.

    Attributes
    ----------
    facet : its name
    labels : (k,) levels
    variances : (k,) residual variances
    df : (k,) their degrees of freedom
    log_sd : standard deviation over levels of the logarithm of the true variance, estimated:
        sampling error, larger with heavy tails, is taken off
    """

    facet: str
    labels: tuple[str, ...]
    variances: FloatArray
    df: FloatArray
    log_sd: float


class LevelStatistic:
    """Brown and Forsythe's statistic of residuals by the levels of a facet, others as blocks.

    Levene's F of distances from the median of the level. Distances from the mean, which is zero,
    depend on its error in the first order if the distribution is skewed, and the test rejects too
    often.

    Parameters
    ----------
    codes : (n,) level of each row
    blocks : for each other facet the level of each row; the distances of its levels are brought to
        one mean first, so that only differences between levels of the facet count

    References
    ----------
    Brown, M. B. and Forsythe, A. B. (1974). Robust tests for the equality of variances. *Journal
    of the American Statistical Association*, 69, 364-367.
    """

    def __init__(self, codes: LongArray, blocks: Sequence[LongArray]) -> None:
        self.codes, self.counts = codes, np.bincount(codes)
        self.order = np.argsort(codes, kind="stable")
        self.matrix = summing(codes)
        self.blocks = [(block, np.bincount(block), summing(block)) for block in blocks]

    def __call__(self, e: FloatArray) -> FloatArray:
        """Return the F ratio of each column of residuals, (n, m)."""
        w = np.abs(e - self._medians(e)[self.codes])
        nothing = np.maximum(_ROUNDING**2 * np.square(w).sum(axis=0), 1e-300)
        for codes, counts, matrix in self.blocks:
            w = w - ((matrix @ w) / counts[:, None])[codes]
        means = (self.matrix @ w) / self.counts[:, None]
        total = w.mean(axis=0)
        between = (self.counts[:, None] * (means - total) ** 2).sum(axis=0)
        within = ((w - total) ** 2).sum(axis=0) - between
        k, n = len(self.counts), len(w)
        between = np.where(between > nothing, between, 0.0)
        return np.asarray(
            (between / max(k - 1, 1)) / (np.maximum(within, nothing) / max(n - k, 1))
        )

    def _medians(self, e: FloatArray) -> FloatArray:
        """Return the medians of the levels, (k, m)."""
        if np.ptp(self.counts) == 0:
            parts = self.order.reshape(self.counts.size, -1)
            return _medians_of(e[self.order].T.reshape(e.shape[1], *parts.shape)).T
        starts = np.cumsum(self.counts)[:-1]
        return np.stack([_medians_of(e[part].T) for part in np.split(self.order, starts)])


def _medians_of(samples: FloatArray) -> FloatArray:
    """Return the medians along the last axis: small samples are sorted faster than split."""
    n = samples.shape[-1]
    ordered = np.ascontiguousarray(samples)
    ordered.sort(axis=-1)
    return np.asarray(0.5 * (ordered[..., (n - 1) // 2] + ordered[..., n // 2]))


def permuted(e: FloatArray, groups: LongArray, m: int, rng: np.random.Generator) -> FloatArray:
    """Return residuals in random order within groups of rows, (n, m).

    Parameters
    ----------
    e : (n,) residuals
    groups : (n,) rows of one group exchange their residuals
    m : number of orders
    rng : random numbers
    """
    own = np.argsort(groups, kind="stable")
    order = np.argsort(groups + rng.random((m, e.size)), axis=1)
    out = np.empty((e.size, m))
    out[own] = e[order].T
    return out


def summing(codes: LongArray, factors: FloatArray | None = None) -> Any:
    """Return the matrix of sums of rows by group, each times a factor if these are given.

    Parameters
    ----------
    codes : (n,) group of each row
    factors : (n,) of the rows
    """
    from scipy.sparse import csr_array

    values = np.ones(codes.size) if factors is None else factors
    return csr_array((values, (codes, np.arange(codes.size))))


def level_spread(
    facet: str,
    labels: Sequence[str],
    codes: LongArray,
    e: FloatArray,
    df: float,
    kurtosis: float,
) -> LevelSpread:
    """Return the residual variances of the levels of a facet.

    Parameters
    ----------
    facet, labels : names
    codes : (n,) level of each row
    e : (n,) residuals
    df : degrees of freedom of all residuals, shared out by the number of rows
    kurtosis : excess kurtosis of the residuals
    """
    from scipy.special import digamma, polygamma

    counts = np.bincount(codes).astype(float)
    own = counts * (df / e.size)
    variances = np.bincount(codes, e * e) / np.maximum(own, 1e-300)
    enough = (own >= _FEWEST) & (variances > 0.0)
    log_sd = float("nan")
    if enough.sum() >= 2:
        half = 0.5 * own[enough]
        logs = np.log(variances[enough]) - digamma(half) + np.log(half)
        chance = polygamma(1, half) * (1.0 + 0.5 * max(kurtosis, 0.0))
        log_sd = float(np.sqrt(max(logs.var(ddof=1) - float(chance.mean()), 0.0)))
    return LevelSpread(facet, tuple(labels), variances, own, log_sd)


@dataclass(frozen=True, slots=True, eq=False)
class FittedRows:
    """The rows of a fit with their fitted values and residuals.

    Attributes
    ----------
    names : of the rows
    score : (n,) response
    fitted : (n,) fixed part plus predicted effects
    facets : for each facet the (n,) levels
    covariates : numerical columns of the fixed part and of slopes, (n,) each
    sd : (n,) residual standard deviations by which pictures divide residuals; None where all
        scores have one
    """

    names: Any
    score: FloatArray
    fitted: FloatArray
    facets: Mapping[str, Any]
    covariates: Mapping[str, FloatArray]
    sd: FloatArray | None = None

    @property
    def resid(self) -> FloatArray:
        """(n,) scores minus fitted values."""
        return self.score - self.fitted


_LISTED = 5
"""Outliers and pairs that a summary names."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagnosis(display.Printed):
    """Which assumptions a fit meets, and which numbers depend on those that it does not.

    Attributes
    ----------
    title : what was diagnosed
    n_scores : number of scores
    sizes : number of levels of each facet
    tests : of all assumptions
    samples : predicted effects of the terms, and the residuals
    spreads : residual variances of the levels of each facet
    tables : of every two crossed facets, with correlations and additivity
    not_tested : what could not be tested, and why
    outlying_rows : by which the residual variance is large; None if there are none
    slopes : tests of slopes that the model has not
    rows : with their fitted values; None without
    has_slopes : whether the model has random slopes
    negative : components that are below zero without bounds
    """

    title: str
    n_scores: int
    sizes: Mapping[str, int]
    tests: tuple[AssumptionTest, ...]
    samples: tuple[EffectSample, ...]
    spreads: tuple[LevelSpread, ...]
    tables: tuple[TableFindings, ...]
    not_tested: tuple[str, ...]
    outlying_rows: OutlyingRows | None = None
    slopes: tuple[MissingSlope, ...] = ()
    rows: FittedRows | None = None
    has_slopes: bool = False
    negative: tuple[BelowZero, ...] = ()

    def __repr__(self) -> str:
        return f"<diagnosis of {self.title}: {len(self.tests)} tests>"

    @property
    def table(self) -> pd.DataFrame:
        """One row per test: assumption, of, statistic, p_value, p_holm, effect, effect_name, test.

        ``p_holm`` is adjusted for all tests of the diagnosis.
        """
        import pandas as pd

        rows = [
            {
                "assumption": t.assumption,
                "of": t.of,
                "statistic": t.statistic,
                "p_value": t.p_value,
                "p_holm": p,
                "effect": t.effect,
                "effect_name": t.effect_name,
                "test": t.test,
            }
            for t, p in zip(self.tests, self._adjusted, strict=True)
        ]
        return pd.DataFrame(rows)

    @property
    def shapes(self) -> pd.DataFrame:
        """One row per term and the residuals: n, skewness, excess kurtosis, known.

        ``known`` is the share of the variance of the effects that their predictions have. With
        little of it, predictions show the normal distribution of the errors rather than theirs.
        """
        import pandas as pd

        from vcomp.inference.assumptions.samples import excess_kurtosis

        rows = [
            {
                "of": s.name,
                "n": s.values.size,
                "skewness": skewness(s.values),
                "kurtosis": excess_kurtosis(s.values),
                "known": s.known,
            }
            for s in self.samples
        ]
        return pd.DataFrame(rows).set_index("of")

    @property
    def outliers(self) -> pd.DataFrame:
        """One row per outlying effect or residual: of, label, deviate in standard deviations."""
        import pandas as pd

        rows = [(s.name, label, z) for s in self.samples for label, z in s.outliers]
        return pd.DataFrame(rows, columns=["of", "label", "deviate"])

    @property
    def outlying_scores(self) -> pd.DataFrame:
        """One row per outlying score: levels of the facets, score, fitted, resid, deviate.

        The index has the labels of the rows. ``fitted`` is the fixed part plus predicted effects,
        ``deviate`` the residual without all effects, in standard deviations; the largest is first.
        """
        import pandas as pd

        found = next((s for s in self.samples if s.name == "residuals"), None)
        at = np.array([] if found is None or self.rows is None else found.places, dtype=np.int64)
        rows = self.rows or FittedRows((), np.zeros(0), np.zeros(0), {}, {})
        columns = {name: np.asarray(levels)[at] for name, levels in rows.facets.items()}
        columns |= {"score": rows.score[at], "fitted": rows.fitted[at], "resid": rows.resid[at]}
        columns["deviate"] = np.array([z for _, z in found.outliers] if at.size and found else [])
        names = pd.Index(rows.names)
        return pd.DataFrame(columns, index=names[at] if len(names) else None)

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row per kind of number: matters, because.

        ``matters`` is "no", "slightly" or "yes", and "strongly" where one cell makes half of the
        residual sum of squares or more.
        """
        import pandas as pd

        rows = [(v.number, v.matters, v.because) for v in self._verdicts()]
        return pd.DataFrame(rows, columns=["number", "matters", "because"]).set_index("number")

    def variances(self, facet: str) -> pd.DataFrame:
        """Return residual variances by level: variance, df and sd.

        They are of scores of weight 1; of a model with residual variances by the levels of
        another facet, in units of these.

        Parameters
        ----------
        facet : its name

        Raises
        ------
        PlanError
            If there is no such facet.
        """
        import pandas as pd

        found = {s.facet: s for s in self.spreads}
        if facet not in found:
            raise PlanError(
                f"no facet {facet!r}{did_you_mean(facet, found)}; there are residual variances by "
                f"{', '.join(found) or 'none'}",
                column=facet,
            )
        spread = found[facet]
        index = pd.Index(spread.labels, name=facet)
        columns = {"variance": spread.variances, "df": spread.df, "sd": np.sqrt(spread.variances)}
        return pd.DataFrame(columns, index=index)

    def correlations(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.DataFrame:
        """Return the correlation of the residuals of every two levels, the largest first.

        Parameters
        ----------
        object : facet of the levels; that of the first table if None

        Returns
        -------
        pandas.DataFrame with columns first, second, r, and p_value adjusted for all pairs

        Raises
        ------
        PlanError
            If no table has this facet in its columns.
        """
        import pandas as pd

        columns = ["first", "second", "r", "p_value"]
        return pd.DataFrame(self._table_of(object).pairs(), columns=columns)

    def with_effects(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.DataFrame:
        """Return the correlation of each level's residuals with the effects of the other facet.

        A negative one is of a level that differs less between easy and hard topics than others.

        Parameters
        ----------
        object : facet of the levels, such as systems; that of the first table if None

        Returns
        -------
        pandas.DataFrame indexed by level, with the column r

        Raises
        ------
        PlanError
            If no table has this facet in its columns.
        """
        import pandas as pd

        table = self._table_of(object).table
        index = pd.Index(table.columns, name=table.column)
        return pd.DataFrame({"r": table.row_correlations}, index=index)

    def plot(self, ax: Any | None = None) -> list[Any]:
        """Draw a page of pictures.

        Residuals against fitted values, with the means of groups of them, and divided by the
        standard deviation of each score if these differ; normal probability plots
        of the effects of each term and of the residuals, with an envelope that holds 95 % of the
        draws of normal ones at each place; residuals against each covariate; residual standard
        deviations by level; and pictures as Fig. 1 of Urbano (2016) of the first two crossed
        facets.

        Parameters
        ----------
        ax : matplotlib axes, as many as pictures; those of a new figure if None

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        DataError
            If there are more or fewer axes than pictures.
        VcompError
            If matplotlib is not installed.

        References
        ----------
        Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Figure 1, page 316.
        Atkinson, A. C. (1985). *Plots, Transformations and Regression*. Section 4.2, envelopes.
        """
        from vcomp import plots

        rows = self.rows
        against = {} if rows is None else {"fitted value": rows.fitted, **rows.covariates}
        drawn = plots.assumptions(
            {s.name: s.deviates for s in self.samples},
            {s.facet: np.sqrt(s.variances) for s in self.spreads},
            [self._drawn(found) for found in self.tables[:1]],
            envelopes={s.name: s.envelope for s in self.samples if s.envelope is not None},
            residuals={}
            if rows is None
            else {name: (x, rows.resid / (1.0 if rows.sd is None else rows.sd))
                  for name, x in against.items()},
            ax=ax,
        )  # fmt: skip
        if rows is not None and rows.sd is not None:
            for panel in drawn[: len(against)]:
                panel.set_ylabel("standardised residual")
        return drawn

    def summary(self) -> Any:
        """Return the tests, the outliers, and the numbers that deviations affect."""
        head = display.plain_table(
            [(f"Assumptions of {self.title}", f"{display.count(self.n_scores)} scores")]
        )
        cells = {
            "of": [t.of for t in self.tests],
            "effect size": [_effect(t) for t in self.tests],
            "p": display.p_values([t.p_value for t in self.tests], decimals=3),
            "p (Holm)": display.p_values(self._adjusted, decimals=3),
        }
        stubs = [t.assumption for t in self.tests]
        tests = display.column_table(cells, stubs=stubs, align="llr")
        notes = [f"{v.number}: {v.matters}. {v.because}" for v in self._verdicts()]
        return display.summary(
            [head, tests],
            ["What it matters for:", *notes, *self._named(), *self.not_tested, _NOT_SEEN],
        )

    # Parts --------------------------------------------------------------------------------------

    @property
    def _adjusted(self) -> FloatArray:
        return adjusted(np.array([t.p_value for t in self.tests]), "holm")

    def _verdicts(self) -> list[Verdict]:
        deviations = [
            Deviation(t.assumption, t.of, t.effect, float(p), self._skewness(t))
            for t, p in zip(self.tests, self._adjusted, strict=True)
        ]
        inflation = {s.name: s.inflation for s in self.samples}
        return verdicts_of(
            deviations, self.sizes, self.tables, inflation, self.outlying_rows, self.slopes,
            has_slopes=self.has_slopes,
        )  # fmt: skip

    def _skewness(self, test: AssumptionTest) -> float:
        found = {s.name: s for s in self.samples}
        if test.assumption != "normality":
            return 0.0
        return skewness(found[test.of].values)

    def _named(self) -> list[str]:
        """Return sentences on negative components, outliers, correlated pairs, unknown effects."""
        lines = [str(of) for of in self.negative if of.is_sure]
        for s in self.samples:
            if s.outliers:
                shown = ", ".join(
                    f"{label} ({display.number(z, 2)} s.d.)" for label, z in s.outliers[:_LISTED]
                )
                more = len(s.outliers) - _LISTED
                rest = f" and {display.count(more)} more" if more > 0 else ""
                lines.append(f"Outlying in {s.name}: {shown}{rest}.")
            if s.known < 0.5:
                lines.append(
                    f"Predicted effects of {s.name} have {display.percent(s.known, 0)} of the "
                    "variance of the effects: they show little of their distribution."
                )
        for found in self.tables:
            sure = [pair for pair in found.pairs() if display.snapped(pair[3], 0.05) <= 0.05][
                :_LISTED
            ]
            if sure:
                shown = ", ".join(f"{a} and {b} ({display.number(r, 2)})" for a, b, r, _ in sure)
                lines.append(f"Most correlated residuals of {found.table.column}: {shown}.")
        return lines

    def _table_of(self, facet: str | None) -> TableFindings:
        by_facet = {found.table.column: found for found in reversed(self.tables)}
        if facet is None and self.tables:
            return self.tables[0]
        if facet not in by_facet:
            raise PlanError(
                f"there is no table of levels of {facet!r}{did_you_mean(facet, by_facet)}; there "
                f"are those of {', '.join(by_facet) or 'no facet'}",
                column=facet,
            )
        return by_facet[facet]

    def _drawn(self, found: TableFindings) -> dict[str, Any]:
        table = found.table
        first, second, r, _ = found.pairs()[0]
        steepest = int(np.abs(table.row_correlations).argmax())
        upper = np.triu_indices(len(table.columns), 1)
        place = {name: k for k, name in enumerate(table.columns)}
        return {
            "object": table.column,
            "facet": table.row,
            "effects": table.effects[0],
            "steepest": (table.columns[steepest], table.residuals[:, steepest],
                         float(table.row_correlations[steepest])),
            "pair": (first, table.residuals[:, place[first]],
                     second, table.residuals[:, place[second]], r),
            "correlations": table.correlations[upper],
            "rows": len(table.rows),
        }  # fmt: skip


_NOT_SEEN = (
    "Whether the levels of facets are a random sample of their universe cannot be seen in scores."
)


def _effect(test: AssumptionTest) -> str:
    value = test.effect
    number = display.count(value) if value.is_integer() and value else display.number(value, 2)
    return f"{test.effect_name} {number}"
