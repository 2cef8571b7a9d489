"""The diagnosis of a fit: tests, effect sizes, what they matter for, and a page of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.inference.assumptions.equal_variances import LevelSpread
from vcomp.inference.assumptions.samples import AssumptionTest, EffectSample, skewness
from vcomp.inference.assumptions.two_way_table import TableFindings
from vcomp.inference.assumptions.verdicts import (
    Deviation,
    OutlyingRows,
    Verdict,
    verdicts_of,
)
from vcomp.inference.pairwise import adjusted

if TYPE_CHECKING:
    import pandas as pd

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
    def verdicts(self) -> pd.DataFrame:
        """One row per kind of number: matters ("no", "slightly" or "yes"), because."""
        import pandas as pd

        rows = [(v.number, v.matters, v.because) for v in self._verdicts()]
        return pd.DataFrame(rows, columns=["number", "matters", "because"]).set_index("number")

    def variances(self, facet: str) -> pd.DataFrame:
        """Return residual variances by level: variance, df and sd.

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
        """Draw a page of pictures: as Fig. 1 of Urbano (2016), and normal probability plots.

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
        """
        from vcomp import plots

        return plots.assumptions(
            {s.name: s.deviates for s in self.samples},
            {s.facet: np.sqrt(s.variances) for s in self.spreads},
            [self._drawn(found) for found in self.tables[:1]],
            ax=ax,
        )

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
        notes = [f"{v.number}: {_ANSWERS[v.matters]} {v.because}" for v in self._verdicts()]
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
        return verdicts_of(deviations, self.sizes, self.tables, inflation, self.outlying_rows)

    def _skewness(self, test: AssumptionTest) -> float:
        found = {s.name: s for s in self.samples}
        if test.assumption != "normality":
            return 0.0
        return skewness(found[test.of].values)

    def _named(self) -> list[str]:
        """Return sentences on outliers, correlated pairs and little known effects."""
        lines = []
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
                f"are those of {', '.join(by_facet) or 'no facet'}"
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

_ANSWERS = {"no": "no matter.", "slightly": "slightly.", "yes": "yes."}


def _effect(test: AssumptionTest) -> str:
    value = test.effect
    number = display.count(value) if value.is_integer() and value else display.number(value, 2)
    return f"{test.effect_name} {number}"
