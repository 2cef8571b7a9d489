"""The result of :mod:`~vcomp.ctt.intraclass`: a table of correlations and its summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.exceptions import DataError, did_you_mean

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
        if name not in by_name:
            raise DataError(
                f"there is no {name!r}{did_you_mean(name, by_name)}; they are {', '.join(by_name)}"
            )
        row: pd.Series = self.table.iloc[by_name[name]]
        return row

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
        title = f"Intraclass correlations; k = {display.count(self.k)}"
        if self.n_objects is not None and self.n_raters is not None:
            data = (
                f"{display.count(self.n_objects)} objects, {display.count(self.n_raters)} raters"
            )
            title = f"Intraclass correlations: {data}; k = {display.count(self.k)}"
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
class RatingMeanSquares:
    """Mean squares of complete ratings of n objects (rows) by k raters (columns)."""

    n: int
    k: int
    rows: float
    columns: float
    residual: float

    @property
    def within(self) -> float:
        """Mean square within objects: of raters and residual together."""
        return (self.columns + (self.n - 1) * self.residual) / self.n


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


def one_way(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
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
    df = (ms.n - 1.0, ms.n * (ms.k - 1.0))
    return _exact(ms.rows, ms.within, ms.k, df, null_odds, alpha)


def consistency(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(C,1): differences between raters do not matter.

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, cases 2 and 3: exact.
    """
    df = (ms.n - 1.0, (ms.n - 1.0) * (ms.k - 1.0))
    return _exact(ms.rows, ms.residual, ms.k, df, null_odds, alpha)


def agreement(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
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
    n, k, R, C, E = ms.n, ms.k, ms.rows, ms.columns, ms.residual
    W, df1 = ms.within, n - 1.0

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
    low = (R / _quantile(1.0 - alpha / 2.0, df1, v) - E) / (k * W)
    high = (R * _quantile(1.0 - alpha / 2.0, v, df1) - E) / (k * W)
    return Coefficient(odds, low, high, F, df1, df2, p_value)


def _exact(
    above: float, below: float, k: int, df: tuple[float, float], null_odds: float, alpha: float
) -> Coefficient:
    ratio = _ratio(above, below)
    ends = (_quantile(tail, *df) for tail in (1.0 - alpha / 2.0, alpha / 2.0))
    odds, low, high = ((F - 1.0) / k for F in (ratio, *(ratio / end for end in ends)))
    F = ratio / (1.0 + k * null_odds)
    return Coefficient(odds, low, high, F, *df, _upper_tail(F, *df))


def _ratio(above: float, below: float) -> float:
    if below > 0.0:
        return above / below
    return math.inf if above > 0.0 else math.nan


def _quantile(tail: float, df1: float, df2: float) -> float:
    from scipy.special import fdtri

    return float(fdtri(df1, df2, tail))


def _upper_tail(F: float, df1: float, df2: float) -> float:
    from scipy.special import fdtrc

    return 0.0 if math.isinf(F) else float(fdtrc(df1, df2, F))
