"""Intraclass correlations of Shrout and Fleiss and of McGraw and Wong, with F intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp.exceptions import (
    DataError,
    PlanError,
    check_alpha,
    check_known,
    check_one_of,
    guarded,
    is_real,
    is_whole,
)
from vcomp.formula import REPLICATE, in_formula
from vcomp.inference import Quantities, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.intervals import FromComponents
from vcomp.numerics import f_quantile
from vcomp.studies.item_scores import (
    ItemScores,
    ScoresOfItems,
    complete_rows,
    mean_squares_of,
    one_way_components,
    read_scores,
    two_way_components,
)

if TYPE_CHECKING:
    import pandas as pd


NAMES = {
    # Shrout and Fleiss, McGraw and Wong, cases of the latter, coefficient of a D-study
    ("1", 1): ("ICC(1,1)", "ICC(1)", "1", "Eρ² (r:p), n′ = 1"),
    ("A", 1): ("ICC(2,1)", "ICC(A,1)", "2, 2A, 3, 3A", "Φ (p × r), n′ = 1"),
    ("C", 1): ("ICC(3,1)", "ICC(C,1)", "2, 2A, 3, 3A", "Eρ² (p × r), n′ = 1"),
    ("1", 2): ("ICC(1,k)", "ICC(k)", "1", "Eρ² (r:p), n′ = k"),
    ("A", 2): ("ICC(2,k)", "ICC(A,k)", "2, 2A, 3A", "Φ (p × r), n′ = k"),
    ("C", 2): ("ICC(3,k)", "ICC(C,k)", "2, 2A, 3A", "Eρ² (p × r), n′ = k"),
}
"""(kind, 1 for one rating or 2 for the mean of k) → its names."""

_KINDS = (
    "1: raters of one object are not those of another. 2, A: absolute agreement, differences "
    "between raters are error. 3, C: consistency, they are not. k: of the mean of k ratings."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntraclassCorrelations(display.Printed):
    """The ten intraclass correlations of McGraw and Wong, six formulae; ``print`` it.

    ``found["ICC(A,1)"]`` and ``found["ICC(2,1)"]`` are a row of :attr:`table`.

    Attributes
    ----------
    table : index ``icc``, the names of Shrout and Fleiss, with the columns

        ``mcgraw_wong``, ``cases``
            McGraw and Wong's name, and those of their cases that it is for
        ``dstudy``
            which coefficient of a D-study it is
        ``estimate``, ``low``, ``high``
            with the interval; nan where the reason is in `notes`
        ``F``, ``df1``, ``df2``, ``p_value``
            test of the null value `r0` against larger ones
    mean_squares : of ``objects``, ``raters``, ``residual`` and ``within`` objects; empty where
        cells are missing
    n_objects, n_raters : of the data; None if the components do not determine them
    k : ratings that are averaged in the last three
    r0 : the null value
    interval_method : in words
    alpha : intervals have confidence 1 − alpha
    missing : how missing cells were treated, in words; empty where there are none
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.ctt import icc
    >>> found = icc([[1, 2, 2], [3, 4, 5], [2, 2, 3], [5, 5, 7]])
    >>> print(found["ICC(A,1)"]["estimate"].round(3))
    0.807
    """

    table: pd.DataFrame
    mean_squares: Mapping[str, float]
    n_objects: int | None
    n_raters: int | None
    k: int
    r0: float
    interval_method: str
    alpha: float
    missing: str = ""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> pd.Series:
        by_name = {n: i for i, names in enumerate(NAMES.values()) for n in names[:2]}
        check_known(name, by_name, "there is no {}; they are", DataError)
        return self.table.iloc[by_name[name]]

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        frame = self.table
        tested = bool(frame["F"].notna().any())
        rows = []
        for name, row in zip(frame.index, frame.to_dict("records"), strict=True):
            cells = [row["mcgraw_wong"], display.coefficient(row["estimate"])]
            cells.append(display.coefficient_interval(row["low"], row["high"]))
            if tested:
                cells += [
                    display.number(row["F"]),
                    display.degrees_of_freedom([row["df1"], row["df2"]]),
                    display.p_values([row["p_value"]])[0],
                ]
            rows.append([str(name), *cells, row["dstudy"]])
        interval = f"{display.level(self.alpha)} interval"
        headers = ["", "estimate", interval, *(["F", "df", "p"] if tested else []), "D-study"]
        data = ""
        if self.n_objects is not None and self.n_raters is not None:
            objects, raters = display.count(self.n_objects), display.count(self.n_raters)
            data = f": {objects} objects, {raters} raters"
        title = f"Intraclass correlations{data}; k = {display.count(self.k)}"
        table = display.simple_table(
            [row[1:] for row in rows],
            headers,
            title=title,
            stubs=[row[0] for row in rows],
            align="l" + "r" * (len(headers) - 2) + "l",
        )
        return display.summary([table], self._explanations(tested))

    def _explanations(self, tested: bool) -> list[str]:
        lines = [self.missing] if self.missing else []
        lines += [_KINDS, f"Intervals: {self.interval_method}."]
        if tested:
            lines.append(f"F tests whether a coefficient is above {display.number(self.r0)}.")
        return lines + list(self.notes)

    def __repr__(self) -> str:
        return f"IntraclassCorrelations(objects={self.n_objects}, raters={self.n_raters})"


@dataclass(frozen=True, slots=True)
class Coefficient:
    """An intraclass correlation of one rating, as odds.

    Attributes
    ----------
    odds, low, high : the estimate and the ends of its interval; ∞ where there is no error
    F, df1, df2, p_value : test of the null value, one-sided: whether the coefficient is larger
    """

    odds: float
    low: float
    high: float
    F: float
    df1: float
    df2: float
    p_value: float


def one_way(ms: TwoWayMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(1): raters of one object are not those of another.

    Parameters
    ----------
    ms : mean squares
    null_odds : of the null hypothesis
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, case 1: exact.
    """
    df = (ms.n_rows - 1.0, ms.n_rows * (ms.n_columns - 1.0))
    return _exact(ms.ms_rows, _within(ms), ms.n_columns, df, null_odds, alpha)


def consistency(ms: TwoWayMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(C,1): differences between raters do not matter.

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, cases 2 and 3: exact.
    """
    df = (ms.n_rows - 1.0, (ms.n_rows - 1.0) * (ms.n_columns - 1.0))
    return _exact(ms.ms_rows, ms.ms_residual, ms.n_columns, df, null_odds, alpha)


def agreement(ms: TwoWayMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(A,1): differences between raters are error.

    The degrees of freedom v are Satterthwaite's of aC + bE: at the estimate for the interval, at
    the null value for the test. (irr::icc in R up to 0.84.1 uses those of the estimate for both.)
    Satterthwaite's formula needs a ≥ 0. For an estimate below 0 the degrees of freedom are those
    at 0, as the printed formula would put upper limits below the estimate.

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, cases 2 and 3: approximate; after Fleiss, J. L. and
    Shrout, P. E. (1978), *Psychometrika*, 43(2), 259-262.
    """
    n, k, R, C, E = ms.n_rows, ms.n_columns, ms.ms_rows, ms.ms_columns, ms.ms_residual
    W, df1 = _within(ms), n - 1.0

    def degrees(a: float) -> float:
        """Return v for a, and b = 1 + (n − 1)a."""
        both = [(a * C, k - 1.0), ((1.0 + (n - 1.0) * a) * E, (n - 1.0) * (k - 1.0))]
        below = sum(x**2 / df for x, df in both)
        if below == 0.0:  # both are zero: as without raters
            return (n - 1.0) * (k - 1.0)
        return sum(x for x, _ in both) ** 2 / below

    a0 = k * null_odds / n
    below, df2 = a0 * C + (1.0 + (n - 1.0) * a0) * E, degrees(a0)
    F = _ratio(R, below)
    p_value = _upper_tail(F, df1, df2)
    if W == 0.0:
        return Coefficient(math.inf, math.inf, math.inf, F, df1, df2, p_value)
    odds = (R - E) / (k * W)
    v = degrees(max(R - E, 0.0) / (n * W))
    low = (R / f_quantile(1.0 - alpha / 2.0, df1, v) - E) / (k * W)
    high = (R * f_quantile(1.0 - alpha / 2.0, v, df1) - E) / (k * W)
    return Coefficient(odds, low, high, F, df1, df2, p_value)


def _within(ms: TwoWayMeanSquares) -> float:
    """Return the mean square within objects: of raters and residual together."""
    return (ms.ms_columns + (ms.n_rows - 1) * ms.ms_residual) / ms.n_rows


def _exact(
    above: float, below: float, k: int, df: tuple[float, float], null_odds: float, alpha: float
) -> Coefficient:
    ratio = _ratio(above, below)
    ends = (float(f_quantile(tail, *df)) for tail in (1.0 - alpha / 2.0, alpha / 2.0))
    odds, low, high = ((F - 1.0) / k for F in (ratio, *(ratio / end for end in ends)))
    F = ratio / (1.0 + k * null_odds)
    return Coefficient(odds, low, high, F, *df, _upper_tail(F, *df))


def _ratio(above: float, below: float) -> float:
    if below > 0.0:
        return above / below
    return math.inf if above > 0.0 else math.nan


def _upper_tail(F: float, df1: float, df2: float) -> float:
    from scipy.special import fdtrc

    return 0.0 if math.isinf(F) else float(fdtrc(df1, df2, F))


KINDS = ("1", "A", "C")
"""McGraw and Wong's letters: one-way, absolute agreement, consistency."""

_EXACT = "F (McGraw and Wong 1996), exact but for agreement"

Found: TypeAlias = Mapping[str, Coefficient]


@guarded
def icc(
    scores: ScoresOfItems | VarianceComponents | Any,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    rater: str | None = None,
    score: str | None = None,
    k: int | None = None,
    r0: float = 0.0,
    alpha: float = 0.05,
    missing: Literal["reml", "listwise", "raise"] = "reml",
) -> IntraclassCorrelations:
    """Return the intraclass correlations of Shrout and Fleiss, and of McGraw and Wong.

    ========  =========  =======================================  ===========
    S. & F.   McG. & W.  raters                                   D-study
    ========  =========  =======================================  ===========
    ICC(1,1)  ICC(1)     different for each object (one-way)      Eρ², r:p
    ICC(2,1)  ICC(A,1)   the same; absolute agreement             Φ, p × r
    ICC(3,1)  ICC(C,1)   the same; consistency                    Eρ², p × r
    ========  =========  =======================================  ===========

    and ICC(1,k), ICC(2,k), ICC(3,k) (ICC(k), ICC(A,k), ICC(C,k)) of the mean of k ratings:
    ICC(C,k) is Cronbach's alpha. In McGraw and Wong's cases 2 and 2A raters are a sample, in 3
    and 3A the only ones of interest; in 2A and 3A they do not interact with objects. The
    estimates have different names, but are the same; averages have no estimate in case 3.

    Parameters
    ----------
    scores : long table with its columns named, :class:`vcomp.ir.ScoreMatrix` (of which systems
        are the objects and topics the raters), or matrix, **one row per object and one column
        per rater**; or variance components of two crossed facets: ``res.components``, a result of
        :func:`vcomp.fit`, or :func:`vcomp.from_components`
    object, rater, score : columns of a long table. If one of them is given, each other is the
        column of its own name. Of components `object` alone, the object of measurement
    k : ratings that are averaged; by default as many as there are raters
    r0 : null value of the F-tests, from 0 to below 1; that of averages is the same number
    alpha : intervals have confidence 1 − alpha
    missing : what to do where cells are missing: ``"reml"`` estimates variance components from
        the available ones, with intervals of modified large samples and without F-tests;
        ``"listwise"`` leaves out the objects with missing ones; ``"raise"`` is an error

    Returns
    -------
    IntraclassCorrelations

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two objects and two raters, a score is
        infinite, all are equal, or too few cells have a score; if long data have two scores of one
        object by one rater.
    PlanError
        If `missing`, `k`, `r0` or `alpha` is not one that can be, or components are not those of
        two crossed facets.

    Warns
    -----
    VcompWarning
        If REML did not converge.

    References
    ----------
    Shrout, P. E. and Fleiss, J. L. (1979). Intraclass correlations: uses in assessing rater
    reliability. *Psychological Bulletin*, 86(2), 420-428.

    McGraw, K. O. and Wong, S. P. (1996). Forming inferences about some intraclass correlation
    coefficients. *Psychological Methods*, 1(1), 30-46, with the correction on p. 390.

    Examples
    --------
    Six targets and four judges (Shrout and Fleiss, 1979, Table 2):

    >>> ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9],
    ...            [6, 2, 4, 7]]
    >>> icc(ratings).table[["mcgraw_wong", "estimate", "low", "high"]].round(2)
             mcgraw_wong  estimate   low  high
    icc
    ICC(1,1)      ICC(1)      0.17 -0.13  0.72
    ICC(2,1)    ICC(A,1)      0.29  0.02  0.76
    ICC(3,1)    ICC(C,1)      0.71  0.34  0.95
    ICC(1,k)      ICC(k)      0.44 -0.88  0.91
    ICC(2,k)    ICC(A,k)      0.62  0.07  0.93
    ICC(3,k)    ICC(C,k)      0.91  0.68  0.99
    """
    check_alpha(alpha)
    check_one_of("missing", missing, ("reml", "listwise", "raise"))
    if not is_real(r0) or not 0.0 <= r0 < 1.0:
        raise PlanError(f"r0 is a number from 0 to below 1, not {r0!r}")
    if k is not None and (not is_whole(k) or k < 1):
        raise PlanError(f"k, the number of ratings that are averaged, is 1 or more, not {k!r}")
    requested = (None if k is None else int(k), float(r0), float(alpha))
    given: Any = scores
    components = getattr(given, "components", given)
    if isinstance(components, VarianceComponents):
        if rater is not None or score is not None:
            raise PlanError("of variance components object= alone is needed, not the columns")
        return _of_given(components, object, requested)
    matrix = read_scores(given, object, rater, score, item_name="rater", what="icc")
    words = ""
    if matrix.n_missing:
        there = matrix.missing_in_words
        if missing == "raise":
            raise matrix.incomplete("'reml' uses")
        if missing == "reml":
            _check_no_test(r0)
            matrix = matrix.with_scores()
            if not len(matrix.values):
                raise DataError("no object has a score of any rater")
            lowest, highest = (f(matrix.values, axis=1) for f in (np.nanmin, np.nanmax))
            if not (lowest == highest).all() or np.ptp(lowest) == 0.0:
                return _of_incomplete(matrix, there, requested)
            _check_repeated(matrix)
            # All ratings of an object are equal, and so would those be that are missing.
            matrix = replace(matrix, values=np.repeat(lowest[:, None], len(matrix.items), axis=1))
            words = f"{there}: the ratings of an object are all equal."
            return _of_mean_squares(mean_squares_of(matrix), requested, words)
        matrix, words = complete_rows(matrix)
    return _of_mean_squares(mean_squares_of(matrix), requested, words)


def _of_mean_squares(
    ms: TwoWayMeanSquares, requested: tuple[int | None, float, float], words: str = ""
) -> IntraclassCorrelations:
    k, r0, alpha = requested
    k = ms.n_columns if k is None else k
    null = r0 / (1.0 - r0)
    formulae = {"1": one_way, "A": agreement, "C": consistency}
    single = {kind: formulae[kind](ms, null, alpha) for kind in KINDS}
    # The null value of an average is that of a single rating with odds a k-th as large.
    average = {kind: formulae[kind](ms, null / k, alpha) for kind in KINDS}
    notes = []
    if ms.ms_rows == 0.0:
        notes.append(
            "All objects have the same mean: there are no intervals, and averages have no "
            "coefficient."
        )
        single, average = _without_limits(single), _without_limits(average)
    if ms.ms_residual == 0.0:
        notes.append("Raters differ by constants alone: the residual is 0, and F infinite.")
    table = _table(single, average, k)
    if ms.ms_rows > 0.0 and table["estimate"].isna().any():
        names = ", ".join(table.index[table["estimate"].isna()])
        notes.append(f"{names}: none, as the coefficient of one rating is too negative.")
    return IntraclassCorrelations(
        table=table,
        mean_squares={
            "objects": ms.ms_rows, "raters": ms.ms_columns, "residual": ms.ms_residual,
            "within": _within(ms),
        },
        n_objects=ms.n_rows,
        n_raters=ms.n_columns,
        k=k,
        r0=r0,
        interval_method=_EXACT,
        alpha=alpha,
        missing=words,
        notes=tuple(notes),
    )  # fmt: skip


def _table(single: Found, average: Found, k: int) -> pd.DataFrame:
    """Return the six coefficients; of averages with k times the odds."""
    import pandas as pd

    records = []
    for (kind, size), (_, other, cases, dstudy) in NAMES.items():
        c, times = (single[kind], 1) if size == 1 else (average[kind], k)
        low, value, high = (_share(times * odds) for odds in (c.low, c.odds, c.high))
        if math.isnan(low) and not math.isnan(c.low) and not math.isnan(value):
            low = -math.inf
        tested = (c.F, c.df1, c.df2, c.p_value)
        records.append((other, cases, dstudy, value, *tested, low, high))
    index = pd.Index([names[0] for names in NAMES.values()], name="icc")
    tests = ["F", "df1", "df2", "p_value"]
    columns = ["mcgraw_wong", "cases", "dstudy", "estimate", *tests, "low", "high"]
    return pd.DataFrame(records, index=index, columns=columns)


def _without_limits(found: Found) -> dict[str, Coefficient]:
    return {kind: replace(c, low=math.nan, high=math.nan) for kind, c in found.items()}


def _share(odds: float) -> float:
    """Return ω/(1 + ω); nan where no average has these odds."""
    if math.isinf(odds):
        return 1.0 if odds > 0 else math.nan
    return odds / (1.0 + odds) if 1.0 + odds > 0.0 else math.nan


def _check_repeated(matrix: ItemScores) -> None:
    """Refuse ratings where no object has two."""
    if (np.isfinite(matrix.values).sum(axis=1) < 2).all():
        raise DataError(
            f"each of {len(matrix.values):,} objects has one rating, so that raters cannot be "
            "compared: some objects need ratings of two raters"
        )


def _of_incomplete(
    matrix: ItemScores, there: str, requested: tuple[int | None, float, float]
) -> IntraclassCorrelations:
    _check_repeated(matrix)
    n, raters = matrix.values.shape
    one, two = one_way_components(matrix), two_way_components(matrix)
    return _of_components(
        one, two, (n, raters), requested, f"{there}: variance components are by REML."
    )


def _of_given(
    components: VarianceComponents, object_: str | None, requested: tuple[int | None, float, float]
) -> IntraclassCorrelations:
    facets = [f for f in components.facet_names if f != REPLICATE]
    crossed = len(facets) == 2 and not any(components.nested_in.get(f) for f in facets)
    single = REPLICATE not in components.facet_names
    main = {next(iter(f)) for f in components.facets if len(f) == 1}
    if not crossed or not single or main != set(facets) or len(components.names) != 3:
        first = in_formula(facets[0]) if facets else "object"
        raise PlanError(
            "intraclass correlations are of two crossed facets with one score a cell, such as "
            f"(1|{first}) + (1|rater), and their residual; the components are "
            f"{', '.join(components.names)}. A D-study has Eρ² and Φ of any design"
        )
    if object_ is None:
        raise PlanError(f"object= is the object of measurement: {facets[0]!r} or {facets[1]!r}")
    said = "there is no facet {}; they are"
    check_known(object_, facets, said, quoted=True, column=object_)
    if components.mean_squares is not None:
        return _of_mean_squares(components.mean_squares.oriented(object_), requested)
    _check_no_test(requested[1])
    rater = next(f for f in facets if f != object_)
    size = components.sizes.get(rater)
    if requested[0] is None and (size is None or not float(size).is_integer()):
        raise PlanError("k= is needed: these components do not say how many raters there were")
    numbers = [components.sizes.get(f) for f in (object_, rater)]
    order = [components.facets.index(frozenset({f})) for f in (object_, rater)]
    return _of_components(
        None, components, (_whole(numbers[0]), _whole(numbers[1])), requested, "", order
    )


def _of_components(
    one: VarianceComponents | None,
    two: VarianceComponents,
    sizes: tuple[int | None, int | None],
    requested: tuple[int | None, float, float],
    words: str,
    order: list[int] | None = None,
) -> IntraclassCorrelations:
    k, r0, alpha = requested
    k = (sizes[1] or 1) if k is None else k
    objects, raters = order or [0, 1]
    residual = ({0, 1, 2} - {objects, raters}).pop()
    error_c = np.eye(3)[residual]
    single = {
        "A": _from_components(two, objects, error_c + np.eye(3)[raters], alpha),
        "C": _from_components(two, objects, error_c, alpha),
    }
    notes = ["There is no F-test: mean squares of these data have no F distribution."]
    if one is None:
        single["1"] = Coefficient(*(math.nan,) * 7)
        notes.append("ICC(1,1) and ICC(1,k) need a fit without raters: pass the scores.")
    else:
        single["1"] = _from_components(one, 0, np.array([0.0, 1.0]), alpha)
    source = FromComponents(two).limits(Quantities("linear", np.eye(3)), alpha)
    return IntraclassCorrelations(
        table=_table(single, single, k),
        mean_squares={},
        n_objects=sizes[0],
        n_raters=sizes[1],
        k=k,
        r0=r0,
        interval_method=source.interval_method
        or "none, as there is no covariance of the components",
        alpha=alpha,
        missing=words,
        notes=tuple(notes),
    )


def _from_components(
    components: VarianceComponents, objects: int, error: np.ndarray, alpha: float
) -> Coefficient:
    """Return σ²_p over the variance of the error, with its interval."""
    top = np.zeros((1, error.size))
    top[0, objects] = 1.0
    ratio = Quantities("ratio", top, error[None, :])
    limits = FromComponents(components).limits(ratio, alpha)
    value = float(ratio.values(components.values)[0])
    nothing = (math.nan,) * 4
    return Coefficient(value, float(limits.low[0]), float(limits.high[0]), *nothing)


def _check_no_test(r0: float) -> None:
    if r0 != 0.0:
        raise PlanError(
            "r0= is the null value of F-tests, which need complete ratings; "
            "missing='listwise' has F-tests of the objects with all scores"
        )


def _whole(size: float | None) -> int | None:
    return int(size) if size is not None and float(size).is_integer() else None
