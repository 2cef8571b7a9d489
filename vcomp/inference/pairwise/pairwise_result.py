"""Comparisons of levels in pairs as a result: table, summary, plot and compact letter display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import LongArray
from vcomp.exceptions import PlanError, check_margin, check_one_of, did_you_mean, is_whole
from vcomp.inference.pairwise.level_pairs import (
    CorrectionName,
    adjusted,
    by_level,
    equivalence_p,
    groups_of,
    letters,
    one_sided_p,
    two_sided_p,
)
from vcomp.inference.pairwise.tails import probabilities_of_best, root_of_differences
from vcomp.markup import encodable

if TYPE_CHECKING:
    import pandas as pd


CORRECTED = {
    "none": "not adjusted for the number of pairs",
    "bonferroni": "adjusted by Bonferroni",
    "holm": "adjusted by Holm",
    "fdr_bh": "adjusted by Benjamini and Hochberg",
    "fdr_by": "adjusted by Benjamini and Yekutieli",
}
"""Corrections of p-values in words."""

_OF_DISTRIBUTIONS = ("W+", "positive")
"""Symbols of tests that are not of means."""

_MOST_LEVELS = 60
"""More levels than this are not listed in a summary."""


@dataclass(frozen=True, slots=True, eq=False)
class PairwiseComparisons(display.Printed):
    """Differences between pairs of levels, with tests; ``print`` shows them.

    Attributes
    ----------
    table : a row for each pair: ``first`` and ``second``, the number of observations (such as
        ``n_topics``), ``difference`` (first − second), ``std_error`` and ``df`` if it is from a
        fit, ``statistic``, ``p_value`` of the test by itself, ``p_adjusted`` for the number of
        pairs, ``significant`` (whether this is at most alpha), and ``low`` and ``high``, the
        interval of the difference; nan where the test has no interval. A test of all pairs at
        once, such as Tukey's, adjusts for their number itself: both p-values are the same
    means : mean of each level, by its name
    facet : whose levels are compared
    test : the test in words
    symbol : of the statistic
    correction : how p-values were adjusted; None if the test itself is one of all pairs at once
    alpha : level of significance; intervals have confidence 1 − alpha
    notes : sentences on the test and its limits
    plural : word for several levels; ``"systems"`` if the facet is ``"system"``, unless given
    observed : word for an observation of a pair, in place of that of its column in the table
    """

    table: pd.DataFrame
    means: pd.Series
    facet: str
    test: str
    symbol: str
    correction: CorrectionName | None
    alpha: float
    notes: tuple[str, ...] = ()
    plural: str = ""
    observed: str = ""

    def __repr__(self) -> str:
        pairs = len(self.table)
        n = int(self.table["significant"].sum())
        what = f"{display.count(n)} of {display.count(pairs)} pairs of {self.facet} distinct"
        return encodable(f"<PairwiseComparisons: {self.test}, {what}>")

    @property
    def is_of_all_pairs(self) -> bool:
        """Whether every two levels were compared, not only some pairs."""
        k = len(self.means)
        return len(self.table) == k * (k - 1) // 2

    @property
    def groups(self) -> pd.DataFrame:
        """Levels from the largest mean to the smallest, with the groups that they belong to.

        Two levels share a letter if, and only if, their difference is not significant.

        Returns
        -------
        pandas.DataFrame
            Index: the levels; columns ``mean`` and ``group``, letters.

        Raises
        ------
        PlanError
            If not all pairs were compared.
        """
        import pandas as pd

        order = self._order()
        distinct = self._square(self.table["significant"].to_numpy(), order)
        groups = groups_of(distinct)
        index = pd.Index(self.means.index[order], name=self.facet)
        values = {"mean": self.means.to_numpy()[order], "group": letters(groups, len(order))}
        return pd.DataFrame(values, index=index)

    def ranks(
        self,
        kind: Literal["simultaneous", "marginal"] = "simultaneous",
        *,
        best: Literal["largest", "smallest"] = "largest",
    ) -> pd.DataFrame:
        """Return the rank of each level with its confidence set.

        A level may have any rank that the significant differences leave it: with the mean of 2 of
        9 others significantly larger, and of 4 smaller, a rank from 3 to 6.

        Parameters
        ----------
        kind : ``"simultaneous"``: all sets contain the true ranks with confidence 1 − alpha, for
            statements on the whole order; ``"marginal"``: each does, for statements on one level,
            from the t-tests of its own pairs by Holm's method; never wider where the correction
            is Holm's
        best : which mean has rank 1; ``"smallest"`` for errors and ranks

        Returns
        -------
        pandas.DataFrame
            Index: the levels, from the best mean on; columns ``mean``, ``rank`` (equal means share
            the smallest), and ``low`` and ``high``, the ends of the set.

        Raises
        ------
        PlanError
            If not all pairs were compared; if the test is not one of means; if p-values are not
            adjusted so that the chance of any wrong decision is at most alpha; or, for marginal
            sets, if there are no p-values of single pairs.

        References
        ----------
        Mogstad, M., Romano, J. P., Shaikh, A. M. and Wilhelm, D. (2024). Inference for ranks with
        applications to mobility across neighbourhoods and academic achievement across countries.
        *Review of Economic Studies*, 91, 476-518.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> res.compare_levels("sys").ranks()["high"].tolist()
        [4, 5, 5, 5, 5]
        """
        import pandas as pd

        check_one_of("kind", kind, ("simultaneous", "marginal"))
        check_one_of("best", best, ("largest", "smallest"))
        order = self._order()
        if self.symbol in _OF_DISTRIBUTIONS:
            raise PlanError(
                f"ranks are those of means, and the {self.test} is not of means; use test='t'"
            )
        if kind == "marginal" and self.correction is None and "std_error" not in self.table:
            raise PlanError(
                "marginal sets need p-values of single pairs, and this test has those of all "
                f"pairs at once ({self.test}); use test='t'"
            )
        if kind == "simultaneous" and self.correction not in (None, "holm", "bonferroni"):
            raise PlanError(
                f"simultaneous sets need p-values of all pairs at once, and these are "
                f"{CORRECTED[str(self.correction)]}; use correction='holm'"
            )
        order, sign = (order, 1.0) if best == "largest" else (order[::-1], -1.0)
        differ = self._square(self.table["significant"].to_numpy(), order)
        if kind == "marginal":
            differ = by_level(self._square(self._p_of_single(), order, diagonal=True), self.alpha)
        ahead = sign * self._values("difference", order, is_odd=True)
        # By rows, since the decisions on the pairs of a level are its own in marginal sets.
        low = 1 + (differ & (ahead < 0.0)).sum(axis=1)
        high = len(order) - (differ & (ahead > 0.0)).sum(axis=1)
        means = self.means.to_numpy(dtype=float)[order]
        rank = 1 + ((ahead < 0.0) & (means != means[:, None])).sum(axis=1)
        index = pd.Index(self.means.index[order], name=self.facet)
        return pd.DataFrame({"mean": means, "rank": rank, "low": low, "high": high}, index=index)

    def probability_of_best(
        self, best: Literal["largest", "smallest"] = "largest"
    ) -> pd.DataFrame:
        """Return the probability that each level has the best true mean.

        It is that of a flat prior: without other knowledge the true means are about the estimates
        as these are about the true means, with the covariance of the fit and the degrees of
        freedom of each difference to the best. Such probabilities add up to 1; they are no levels
        of significance.

        Parameters
        ----------
        best : which mean is the best; ``"smallest"`` for errors

        Returns
        -------
        pandas.DataFrame
            Index: the levels, from the best mean on; columns ``mean``, ``probability``, and
            ``error``, the numerical standard error of the probability.

        Raises
        ------
        PlanError
            If not all pairs were compared, or the test is not one of a fit.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> res.compare_levels("sys").probability_of_best()["probability"].round(2).tolist()
        [0.92, 0.06, 0.02, 0.0, 0.0]
        """
        import pandas as pd

        check_one_of("best", best, ("largest", "smallest"))
        order = self._order()
        if "std_error" not in self.table:
            raise PlanError(
                f"the probability of being the best needs errors of a fit, which {self.test} has "
                "not; use res.compare_levels(…)"
            )
        order, sign = (order, 1.0) if best == "largest" else (order[::-1], -1.0)
        variances = np.square(self._values("std_error", order))
        np.fill_diagonal(variances, 0.0)
        df = np.nan_to_num(self._values("df", order)[0], nan=np.inf)
        means = self.means.to_numpy(dtype=float)[order]
        p, error = probabilities_of_best(sign * means, root_of_differences(variances), df)
        index = pd.Index(self.means.index[order], name=self.facet)
        return pd.DataFrame({"mean": means, "probability": p, "error": error}, index=index)

    def equivalent(self, margin: float) -> pd.DataFrame:
        """Return which pairs differ by less than a margin, by two one-sided t-tests.

        A difference that is not significant may be large or small. This tests that it is small:
        two levels are equivalent if the hypothesis of a difference of at least `margin` is
        rejected, in either direction. Comparisons by Tukey's or max-T tests, as of studies, have
        these t-tests with Holm's correction.

        Parameters
        ----------
        margin : the smallest difference that matters, above 0, on the scale of the scores

        Returns
        -------
        pandas.DataFrame
            A row for each pair: ``first``, ``second``, ``difference``, ``p_value``,
            ``p_adjusted`` as in `table`, and ``equivalent``.

        Raises
        ------
        PlanError
            If the margin is not above 0, or the test is not a t-test of a fit.

        References
        ----------
        Schuirmann, D. J. (1987). A comparison of the two one-sided tests procedure and the power
        approach for assessing the equivalence of average bioavailability. *Journal of
        Pharmacokinetics and Biopharmaceutics*, 15, 657-680.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ query + (1|sys) + (1|topic)", data)
        >>> res.compare_levels("query").equivalent(0.1)["equivalent"].tolist()
        [True]
        """
        self._check_margin(margin)
        rows = self.table[["first", "second", "difference"]].copy()
        d, se, df = self.table[["difference", "std_error", "df"]].to_numpy(dtype=float).T
        rows["p_value"] = equivalence_p(d, se, df, float(margin))
        correction = self.correction or "holm"
        rows["p_adjusted"] = adjusted(rows["p_value"].to_numpy(), correction)
        rows["equivalent"] = display.snapped(rows["p_adjusted"], self.alpha) <= self.alpha
        return rows

    def noninferior(
        self, margin: float, *, best: Literal["largest", "smallest"] = "largest"
    ) -> pd.DataFrame:
        """Return which levels are worse than the best one by less than a margin, if at all.

        A level is non-inferior if one-sided t-tests reject for each other level that this one is
        better by at least `margin`. So the level with the best estimate need not be the best one.
        p-values are adjusted for the number of levels, by Holm's method after Tukey's or max-T
        tests: any choice among non-inferior levels, as of the cheapest, keeps the confidence.

        Parameters
        ----------
        margin : the smallest difference that matters, above 0, on the scale of the scores
        best : which mean is the best; ``"smallest"`` for errors

        Returns
        -------
        pandas.DataFrame
            Index: the levels, from the best mean on; columns ``mean``, ``behind`` (how far it is
            worse than the best of the others; below 0 if it is better), ``p_value``, the largest
            of its tests, ``p_adjusted``, and ``noninferior``.

        Raises
        ------
        PlanError
            If the margin is not above 0, the test is not a t-test of a fit, or not all pairs were
            compared.

        References
        ----------
        Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling.
        *Technometrics*, 24, 295-300.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> res.compare_levels("sys").noninferior(0.1)["noninferior"].tolist()
        [True, False, False, False, False]
        """
        import pandas as pd

        check_one_of("best", best, ("largest", "smallest"))
        self._check_margin(margin)
        order = self._order()[:: -1 if best == "smallest" else 1]
        sign = 1.0 if best == "largest" else -1.0
        # Rows: the level; columns: the others.
        behind = -sign * self._values("difference", order, is_odd=True)
        p = one_sided_p(
            float(margin) - behind, self._values("std_error", order), self._values("df", order)
        )
        for square, least in ((behind, -np.inf), (p, 0.0)):
            np.fill_diagonal(square, least)
        rows = pd.DataFrame(
            {
                "mean": self.means.to_numpy(dtype=float)[order],
                "behind": behind.max(axis=1),
                "p_value": p.max(axis=1),
            },
            index=pd.Index(self.means.index[order], name=self.facet),
        )
        rows["p_adjusted"] = adjusted(rows["p_value"].to_numpy(), self.correction or "holm")
        rows["noninferior"] = display.snapped(rows["p_adjusted"], self.alpha) <= self.alpha
        return rows

    def _check_margin(self, margin: object) -> None:
        check_margin(margin)
        if "std_error" not in self.table:
            raise PlanError(
                f"differences are tested against a margin by t-tests of a fit, not by {self.test};"
                " use res.compare_levels(…, test='t')"
            )

    def _p_of_single(self) -> Any:
        """Return the p-value of each pair for itself."""
        if self.correction is not None:
            return self.table["p_value"].to_numpy()
        d, se, df = self.table[["difference", "std_error", "df"]].to_numpy(dtype=float).T
        return two_sided_p(d, se, df)

    def matrix(self, column: str = "p_adjusted") -> pd.DataFrame:
        """Return a column of the table as a square, from the largest mean to the smallest.

        Parameters
        ----------
        column : ``"p_adjusted"``, ``"p_value"``, ``"difference"`` (row less column) or
            ``"significant"``

        Returns
        -------
        pandas.DataFrame
            Of levels × levels; nan on the diagonal, or False.

        Raises
        ------
        PlanError
            If not all pairs were compared, or there is no such column.
        """
        import pandas as pd

        if column not in _COLUMNS:
            raise PlanError(
                f"there is no square of {column!r}{did_you_mean(column, _COLUMNS)}; there are "
                f"{', '.join(map(repr, _COLUMNS))}"
            )
        order = self._order()
        if column == "significant":
            square = self._square(self.table[column].to_numpy(), order)
        else:
            square = self._values(column, order, is_odd=column == "difference")
        names = pd.Index(self.means.index[order], name=self.facet)
        return pd.DataFrame(square, index=names, columns=names)

    def summary(self, show: int = 20) -> Any:
        """Return a printable summary: the means with their groups, and pairs by their p-values.

        Parameters
        ----------
        show : number of pairs that are listed, those with the smallest p-values

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Raises
        ------
        PlanError
            If `show` is not a whole number, 0 or more.
        """
        if not is_whole(show) or show < 0:
            raise PlanError(f"show is a whole number of pairs, 0 or more, not {show!r}")
        tables, notes = [], [self._how()]
        n, k = len(self.table), len(self.means)
        if self.is_of_all_pairs and 2 < k <= _MOST_LEVELS:
            tables.append(self._means_table())
            notes.append(
                f"Two {self._levels} share a letter if their difference is not significant."
            )
        if show or not tables:
            title = "Pairs with the smallest p-values" if tables else self._title()
            tables.append(self._pairs_table(max(int(show), 1), title))
        if show < n:
            notes.append(
                f"{display.count(show)} of {display.count(n)} pairs are listed; "
                "the attribute table has all."
            )
        return display.summary(tables, [*notes, *self.notes])

    def plot(
        self, kind: Literal["groups", "p_values", "ranks"] = "groups", *, ax: Any | None = None
    ) -> Any:
        """Draw the levels with their groups, the p-values of all pairs, or ranks.

        Parameters
        ----------
        kind : ``"groups"`` draws the means in order, and joins the levels of each group by a line;
            ``"p_values"`` a square of all pairs, coloured by adjusted p-value and sign;
            ``"ranks"`` the rank of each level with its simultaneous set, largest mean first
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If `kind` is not one of these, not all pairs were compared, or there are no ranks.
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        check_one_of("kind", kind, ("groups", "p_values", "ranks"))
        words: dict[str, Any] = {"facet": self.facet, "plural": self._levels}
        if kind == "ranks":
            return plots.rank_sets(self.ranks(), **words, ax=ax)
        if kind == "groups":
            return plots.alike_groups(self.groups, **words, ax=ax)
        p, difference = self.matrix("p_adjusted"), self.matrix("difference")
        return plots.pair_p_values(p, difference, alpha=self.alpha, facet=self.facet, ax=ax)

    @property
    def _levels(self) -> str:
        return self.plural or display.levels_of(self.facet)

    @property
    def _is_turned(self) -> bool:
        """Whether the summary may turn pairs round: the order of two levels says nothing."""
        is_two_sided = not self.test.endswith((", greater", ", less"))
        return is_two_sided and self.is_of_all_pairs and len(self.table) > 1

    def _order(self) -> LongArray:
        if not self.is_of_all_pairs:
            raise PlanError(
                f"groups and squares need all pairs; these are {display.count(len(self.table))} "
                f"pairs of {display.count(len(self.means))} {self._levels}, with one baseline"
            )
        return np.argsort(-self.means.to_numpy(dtype=float), kind="stable")

    def _square(
        self,
        values: Any,
        order: LongArray,
        *,
        diagonal: bool = False,
        is_odd: bool = False,
    ) -> Any:
        """Return a square of values in some order, its diagonal nan or False."""
        place = dict(zip(self.means.index[order], range(len(order)), strict=True))
        i = self.table["first"].map(place).to_numpy()
        j = self.table["second"].map(place).to_numpy()
        square = np.full((len(order), len(order)), np.nan if diagonal else False)
        square[i, j] = values
        square[j, i] = -values if is_odd else values
        return square

    def _values(self, column: str, order: LongArray, *, is_odd: bool = False) -> Any:
        """Return a column of numbers as a square, its diagonal nan."""
        return self._square(self.table[column].to_numpy(), order, diagonal=True, is_odd=is_odd)

    def _how(self) -> str:
        level = display.number(self.alpha)
        if len(self.table) == 1:
            return f"Significant if p is at most {level}."
        words = "of all pairs at once" if self.correction is None else CORRECTED[self.correction]
        name = "p" if self.correction == "none" else "p adj."
        return f"{name}: {words}; significant if it is at most {level}."

    def _means_table(self) -> Any:
        groups = self.groups
        cells = {"mean": display.fixed(groups["mean"]), "group": list(groups["group"])}
        return display.column_table(
            cells, title=self._title(), stubs=list(map(str, groups.index)), align="rl"
        )

    def _title(self) -> str:
        return f"Differences between {self._levels}: {self.test}"

    def _pairs_table(self, show: int, title: str) -> Any:
        size = -np.abs(self.table["difference"].to_numpy(dtype=float))
        p = self.table["p_adjusted"].to_numpy(dtype=float)
        # Adjusted p-values may be equal where the others are not.
        alone = self.table["p_value"].to_numpy(dtype=float) if "p_value" in self.table else p
        rows = self.table.iloc[np.lexsort((size, alone, p))[:show]]
        counted = [str(c) for c in rows.columns if str(c).startswith("n_")]
        word = display.levels_of(self.observed) if self.observed else ""
        names = {c: word if word and c == "n_topics" else c.removeprefix("n_") for c in counted}
        cells = {name: [display.count(n) for n in rows[c]] for c, name in names.items()}
        rows = _from_the_larger(rows) if self._is_turned else rows
        cells["difference"] = display.fixed(rows["difference"])
        if rows[["low", "high"]].notna().to_numpy().any():
            ends = display.short_intervals(rows["low"], rows["high"])
            cells[f"{display.level(self.alpha)} interval"] = ends
        if "std_error" in rows:
            cells["std err"] = display.fixed(rows["std_error"])
            df = rows["df"].to_numpy(dtype=float)
            if np.isfinite(df).all() and np.ptp(df) > _SAME * df.max():
                cells["df"] = [display.number(x) for x in df]
        if self.symbol != "difference":
            cells[self.symbol] = [display.number(x) for x in rows["statistic"]]
        is_one = len(self.table) == 1 or self.correction == "none"
        if self.correction is not None and not is_one:
            cells["p"] = display.p_values(rows["p_value"])
        cells["p" if is_one else "p adj."] = display.p_values(rows["p_adjusted"])
        cells[" "] = ["*" if s else "" for s in rows["significant"]]
        stubs = [f"{a} − {b}" for a, b in zip(rows["first"], rows["second"], strict=True)]
        return display.column_table(cells, title=title, stubs=stubs)


def _from_the_larger(rows: pd.DataFrame) -> pd.DataFrame:
    """Return pairs with the level of the larger mean first, so that no difference is negative."""
    turned = rows["difference"].to_numpy(dtype=float) < 0.0
    swapped = {"first": "second", "second": "first", "low": "high", "high": "low"}
    rows = rows.copy()
    was = rows.copy()
    for column, source in swapped.items():
        rows.loc[turned, column] = was.loc[turned, source]
    odd = np.sign(was["statistic"]) == np.sign(was["difference"])
    rows.loc[turned & odd, "statistic"] *= -1.0
    rows.loc[turned, ["difference", "low", "high"]] *= -1.0
    return rows


_SAME = 1e-8
"""Relative difference up to which degrees of freedom are printed once, in a note."""

_COLUMNS = ("p_adjusted", "p_value", "difference", "significant")
