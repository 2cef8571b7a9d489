"""Reliability of the total of a test: all coefficients of internal consistency together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp.exceptions import DataError, PlanError, check_alpha, check_one_of, guarded, is_real
from vcomp.inference import Quantities
from vcomp.inference.intervals import F_INTERVALS, FromComponents
from vcomp.studies.alpha_coefficients import (
    ItemCovariances,
    check_totals,
    coefficients_of,
    feldt_limits,
    from_complete,
    from_pairs,
    kuder_richardson,
    pair_counts,
)
from vcomp.studies.item_scores import (
    ItemScores,
    ScoresOfItems,
    complete_rows,
    read_scores,
    two_way_components,
)

if TYPE_CHECKING:
    import pandas as pd

SYMBOLS = {
    "alpha": "α (Cronbach)",
    "standardised_alpha": "α of standardised items",
    "KR20": "KR-20",
    "KR21": "KR-21",
    "lambda1": "λ₁ (Guttman)",
    "lambda2": "λ₂",
    "lambda4": "λ₄ (best halves)",
    "lambda5": "λ₅",
    "lambda6": "λ₆",
    "mean_correlation": "mean correlation of two items",
}
"""The coefficients in order, and how they are printed."""

BINARY = ("KR20", "KR21")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reliability(display.Printed):
    """Coefficients of internal consistency; ``print`` it.

    Attributes
    ----------
    cronbach_alpha, low, high : Cronbach's alpha and its interval
    coefficients : all of them by name, those of :attr:`table`; nan where there is none
    reasons : name → why there is none
    sem_total, sem_mean : standard error of measurement s_X √(1 − α) of the total and of the mean
        over items, in the units of the scores
    mean, sd_total : mean score, and standard deviation of the totals (nan where they are not of
        the same items)
    n_objects, n_items : that were used
    n_missing : cells without a score
    missing : how they were treated, in words; empty where there are none
    interval_method : of the interval of Cronbach's alpha, in words
    alpha : the interval has confidence 1 − alpha
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.ctt import reliability
    >>> found = reliability([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1]])
    >>> found.table["estimate"].round(3)[["alpha", "KR20", "KR21"]].to_dict()
    {'alpha': 0.794, 'KR20': 0.794, 'KR21': 0.706}
    """

    cronbach_alpha: float
    low: float
    high: float
    coefficients: Mapping[str, float]
    reasons: Mapping[str, str]
    sem_total: float
    sem_mean: float
    mean: float
    sd_total: float
    n_objects: int
    n_items: int
    n_missing: int
    missing: str
    interval_method: str
    alpha: float
    notes: tuple[str, ...] = ()

    @property
    def standardised_alpha(self) -> float:
        """Alpha of the items with their variances made equal."""
        return self.coefficients["standardised_alpha"]

    @property
    def table(self) -> pd.DataFrame:
        """One row per coefficient: ``estimate``, ``low``, ``high``, and ``reason`` if it is nan.

        Rows are ``alpha``, ``standardised_alpha``, ``KR20`` and ``KR21`` (of items scored 0 or 1),
        ``lambda1``, ``lambda2``, ``lambda4``, ``lambda5``, ``lambda6`` (λ₃ is alpha) and
        ``mean_correlation``. Alpha has an interval, and so has KR-20, which is the same number.
        """
        import pandas as pd

        names = list(self.coefficients)
        ends = {"alpha": (self.low, self.high)}
        ends["KR20"] = ends["alpha"]
        nothing = (math.nan, math.nan)
        return pd.DataFrame(
            {
                "estimate": [self.coefficients[name] for name in names],
                "low": [ends.get(name, nothing)[0] for name in names],
                "high": [ends.get(name, nothing)[1] for name in names],
                "reason": [self.reasons.get(name, "") for name in names],
            },
            index=pd.Index(names, name="coefficient"),
        )

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = []
        own = {"alpha", "KR20"}
        for name, value in self.coefficients.items():
            if not math.isnan(value):
                interval = display.coefficient_interval(self.low, self.high)
                ends = interval if name in own else ""
                rows.append((SYMBOLS[name], display.coefficient(value), ends))
        rows.append(("standard error of the total", display.number(self.sem_total), ""))
        rows.append(("standard error of the mean score", display.number(self.sem_mean), ""))
        title = (
            f"Reliability of scores over {display.count(self.n_items)} items; "
            f"{display.count(self.n_objects)} objects"
        )
        headers = ["estimate", f"{display.level(self.alpha)} interval"]
        table = display.simple_table(
            [row[1:] for row in rows], headers, title=title, stubs=[row[0] for row in rows]
        )
        return display.summary([table], self._explanations())

    def _explanations(self) -> list[str]:
        lines = [
            "α is the generalizability coefficient Eρ² of objects × items, with as many items.",
            f"{display.level(self.alpha)} interval of α: {self.interval_method}.",
        ]
        if self.missing:
            lines.insert(0, self.missing)
        by_reason: dict[str, list[str]] = {}
        for name, why in self.reasons.items():
            if name in BINARY:
                continue  # not reported for scores other than 0 and 1
            by_reason.setdefault(why, []).append(SYMBOLS[name])
        lines += [f"Not given: {', '.join(names)}: {why}." for why, names in by_reason.items()]
        return lines + list(self.notes)

    def __repr__(self) -> str:
        value = display.coefficient(self.cronbach_alpha)
        return (
            f"Reliability(cronbach_alpha={value}, objects={self.n_objects}, items={self.n_items})"
        )


_ABOVE_ONE = (
    "α is above 1, which complete scores cannot give: pairwise covariances are of different "
    "objects. missing='reml' avoids this."
)

_NEEDS_ALL = "these need complete scores; use missing='pairwise' or 'listwise'"


@guarded
def reliability(
    scores: ScoresOfItems,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    score: str | None = None,
    alpha: float = 0.05,
    missing: Literal["reml", "pairwise", "listwise", "raise"] = "reml",
) -> Reliability:
    """Return coefficients of internal consistency: how reliable the total over items is.

    A bare matrix has **one row per object of measurement and one column per item**.

    Cronbach's alpha with its interval, alpha of standardised items, Kuder and Richardson's
    formulae 20 and 21 (items scored 0 or 1), Guttman's λ₁ to λ₆ and the standard errors of
    measurement s_X √(1 − α).

    Parameters
    ----------
    scores : long table, one row per score, with its columns named, as any container that
        :func:`vcomp.fit` reads; :class:`vcomp.ir.ScoreMatrix`, of which systems are the objects
        and topics the items; or matrix: 2-D array, nested lists, pandas or polars frame
    object, item, score : columns of a long table. If one of them is given, each other is the
        column of its own name, ``"object"``, ``"item"`` or ``"score"``
    alpha : the interval has confidence 1 − alpha
    missing : what to do where cells are missing:

        * ``"reml"``: alpha is kσ²_p/(kσ²_p + σ²_pi), with variance components by REML from the
          available cells, and has the interval of modified large samples. Other coefficients
          need covariances of items and are not given;
        * ``"pairwise"``: every covariance is of the objects that have both items. The matrix
          of such covariances need not be positive definite; the interval of alpha is Feldt's with
          the harmonic mean of the numbers of objects of pairs, which is too wide where much is
          missing;
        * ``"listwise"``: objects without a score on every item are left out;
        * ``"raise"``: an error.

        With 10 % and 30 % of cells missing at random (300 simulated tests each of 40 objects and
        10 items, alike or not), REML has the smaller mean squared error of the two that use all
        cells; its 95 % intervals cover in 94 to 95 %, those of pairs in 95 to 99.7 %.

    Returns
    -------
    Reliability

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two objects and two items, a score is
        infinite, all totals are equal, or too few cells have a score for the treatment; if long
        data have two scores of one object on one item.
    PlanError
        If `alpha` is not between 0 and 1, or `missing` is not one of those above.

    Warns
    -----
    VcompWarning
        If REML did not converge.

    See Also
    --------
    item_analysis : which items make it less reliable
    spearman_brown : what more items would give

    References
    ----------
    Cronbach, L. J. (1951). *Psychometrika*, 16(3), 297-334.

    Feldt, L. S. (1965). *Psychometrika*, 30(3), 357-370.

    Guttman, L. (1945). A basis for analyzing test-retest reliability. *Psychometrika*, 10(4),
    255-282.

    Kuder, G. F. and Richardson, M. W. (1937). *Psychometrika*, 2(3), 151-160.

    Examples
    --------
    Five algorithms on three queries (Bodoff and Li, 2007, figure 2):

    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> found = reliability(data, object="sys", item="topic", score="score")
    >>> round(found.cronbach_alpha, 4)
    0.8094
    >>> found.table["estimate"].round(3)[["lambda2", "standardised_alpha"]].to_dict()
    {'lambda2': 0.812, 'standardised_alpha': 0.842}
    """
    check_alpha(alpha)
    check_one_of("missing", missing, ("reml", "pairwise", "listwise", "raise"))
    matrix = read_scores(scores, object, item, score, what="reliability")
    n_missing, there = matrix.n_missing, matrix.missing_in_words
    if not n_missing:
        return _of_complete(matrix, alpha, 0, "")
    if missing == "raise":
        raise matrix.incomplete("'reml' and 'pairwise' use")
    if missing == "listwise":
        kept, words = complete_rows(matrix)
        return _of_complete(kept, alpha, n_missing, words)
    matrix = matrix.with_scores()
    empty = np.isnan(matrix.values).all(axis=0)
    if empty.any():
        raise DataError(
            f"item {str(matrix.items[int(empty.argmax())])!r} has no score; leave it out",
            level=matrix.items[int(empty.argmax())],
        )
    if missing == "pairwise":
        return _of_pairs(matrix, alpha, n_missing, there)
    return _of_components(matrix, alpha, n_missing, there)


def _of_complete(matrix: ItemScores, alpha: float, n_missing: int, words: str) -> Reliability:
    check_totals(matrix.values)
    n, k = matrix.values.shape
    covariances = from_complete(matrix.values)
    found, reasons = coefficients_of(covariances, n)
    binary, why = kuder_richardson(matrix)
    found |= binary
    notes: tuple[str, ...] = ()
    if binary:
        notes = ("KR-20 is α of items scored 0 or 1; KR-21 assumes equal difficulty.",)
    else:
        reasons |= dict.fromkeys(BINARY, why)
    return _result(
        found,
        reasons,
        feldt_limits(found["alpha"], n, k, alpha),
        F_INTERVALS["Erho2"].words,
        covariances,
        matrix,
        (alpha, n_missing, words, notes),
    )


def _of_pairs(matrix: ItemScores, alpha: float, n_missing: int, there: str) -> Reliability:
    counts = pair_counts(matrix.values)
    try:
        covariances = from_pairs(matrix, counts)
    except DataError as error:
        raise DataError(f"{error}; missing='reml' needs no covariances") from None
    if covariances.total <= 0.0:
        raise DataError(
            "the covariances of pairs add up to a variance of the total that is not above 0; "
            "use missing='reml'"
        )
    k = covariances.k
    found, reasons = coefficients_of(covariances, int(counts.min()))
    reasons |= dict.fromkeys(BINARY, "need complete scores")
    of_pairs = counts[~np.eye(k, dtype=bool)]
    n = float(1.0 / np.mean(1.0 / of_pairs))
    words = (
        f"{there}: covariances are of the objects that have both items, "
        f"{display.count(of_pairs.min())} to {display.count(of_pairs.max())} of them (pairwise)."
    )
    how = f"F (Feldt 1965) as if of {display.count(n)} objects, approximate"
    limits = feldt_limits(found["alpha"], n, k, alpha)
    notes: tuple[str, ...] = ()
    if found["alpha"] > 1.0:
        notes = (_ABOVE_ONE,)
    record = (alpha, n_missing, words, notes)
    return _result(found, reasons, limits, how, covariances, matrix, record)


def _result(
    found: dict[str, float],
    reasons: dict[str, str],
    limits: tuple[float, float],
    how: str,
    covariances: ItemCovariances,
    matrix: ItemScores,
    record: tuple[float, int, str, tuple[str, ...]],
) -> Reliability:
    alpha, n_missing, words, notes = record
    sem = math.sqrt(max(1.0 - found["alpha"], 0.0) * covariances.total)
    return Reliability(
        cronbach_alpha=found["alpha"],
        low=limits[0],
        high=limits[1],
        coefficients={name: found[name] for name in SYMBOLS if name in found},
        reasons=reasons,
        sem_total=sem,
        sem_mean=sem / covariances.k,
        mean=float(np.nanmean(matrix.values)),
        sd_total=math.sqrt(covariances.total),
        n_objects=len(matrix.objects),
        n_items=covariances.k,
        n_missing=n_missing,
        missing=words,
        interval_method=how,
        alpha=alpha,
        notes=notes,
    )


def _of_components(matrix: ItemScores, alpha: float, n_missing: int, there: str) -> Reliability:
    components = two_way_components(matrix)
    k = len(matrix.items)
    per_object = (~np.isnan(matrix.values)).sum(axis=1)
    typical = float(1.0 / np.mean(1.0 / per_object))
    sizes = np.array([k, typical])
    universe = np.tile([1.0, 0.0, 0.0], (2, 1))
    error = np.column_stack([np.zeros(2), np.zeros(2), 1.0 / sizes])
    share = Quantities("share", universe, error)
    source = FromComponents(components)
    value, as_tested = (float(x) for x in share.values(components.values))
    limits = source.limits(share, alpha)
    residual = float(components.values[-1])
    as_they_are = (
        f"Objects have {display.count(typical)} items each (harmonic mean of "
        f"{display.count(per_object.min())} to {display.count(per_object.max())}): their mean "
        "scores, adjusted for which items they have, have Eρ² = "
        f"{display.coefficient(as_tested)}."
    )
    others = [name for name in SYMBOLS if name not in ("alpha", *BINARY)]
    return Reliability(
        cronbach_alpha=value,
        low=float(limits.low[0]),
        high=float(limits.high[0]),
        coefficients={"alpha": value} | dict.fromkeys(others, math.nan),
        reasons=dict.fromkeys([*others, *BINARY], _NEEDS_ALL),
        sem_total=math.sqrt(k * residual),
        sem_mean=math.sqrt(residual / k),
        mean=float(np.nanmean(matrix.values)),
        sd_total=math.nan,
        n_objects=len(matrix.objects),
        n_items=k,
        n_missing=n_missing,
        missing=f"{there}: α is of variance components by REML, for all {display.count(k)} items.",
        interval_method=limits.interval_method,
        alpha=alpha,
        notes=(as_they_are, *(f"Interval: {note}." for note in limits.notes)),
    )


def spearman_brown(reliability: Any, factor: float = 2.0) -> Any:
    """Return the reliability of a test that is `factor` times as long.

        ρ' = m ρ / (1 + (m − 1) ρ)

    It is what a D-study does with one facet: n' = m n items of the same kind.

    Parameters
    ----------
    reliability : ρ, a number or an array of them, at most 1; of two halves their correlation
    factor : m, how many times as long, above 0; 2 makes a test of two halves

    Returns
    -------
    float, or an array of the shape of `reliability`

    Raises
    ------
    PlanError
        If a reliability is above 1 or so negative that no longer test has one (1 + (m − 1)ρ is
        not positive), or the factor is not a positive number.

    See Also
    --------
    spearman_brown_factor : how much longer a test has to be

    References
    ----------
    Spearman, C. (1910). Correlation calculated from faulty data. *British Journal of Psychology*,
    3, 271-295; Brown, W. (1910), pp. 296-322.

    Examples
    --------
    >>> round(spearman_brown(0.7), 4)
    0.8235
    >>> round(spearman_brown(0.9, factor=0.5), 4)
    0.8182
    """
    m = _positive(factor, "factor")
    rho = _reliability(reliability)
    below = 1.0 + (m - 1.0) * rho
    if np.any(below <= 0.0):
        raise PlanError(
            f"a reliability of {display.number(float(np.min(rho)))} is too negative for a test "
            f"{display.number(m)} times as long: 1 + (factor − 1) reliability is not above 0"
        )
    longer = m * rho / below
    return float(longer) if longer.ndim == 0 else longer


def spearman_brown_factor(reliability: float, goal: float) -> float:
    """Return how many times as long a test has to be for a reliability of `goal`.

        m = ρ' (1 − ρ) / (ρ (1 − ρ'))

    Parameters
    ----------
    reliability : ρ of the test as it is, above 0 and below 1
    goal : ρ', above 0 and below 1

    Returns
    -------
    float
        Times the number of items, rounded up, it is the number needed.

    Raises
    ------
    PlanError
        If one of them is not between 0 and 1.

    References
    ----------
    Lord, F. M. and Novick, M. R. (1968). *Statistical theories of mental test scores*, eq. 5.10.1.

    Examples
    --------
    >>> round(spearman_brown_factor(0.8, 0.9), 4)
    2.25
    """
    for name, value in (("reliability", reliability), ("goal", goal)):
        if not is_real(value) or not 0.0 < value < 1.0:
            raise PlanError(f"{name} lies between 0 and 1, not at {value!r}")
    odds = [float(x) / (1.0 - float(x)) for x in (goal, reliability)]
    return odds[0] / odds[1]


def _positive(value: Any, name: str) -> float:
    if not is_real(value) or not math.isfinite(value) or value <= 0.0:
        raise PlanError(f"{name} is a number above 0, not {value!r}")
    return float(value)


def _reliability(value: Any) -> Any:
    try:
        rho = np.asarray(value)
        if rho.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError):
        raise PlanError(f"reliability is a number, not {value!r}") from None
    rho = rho.astype(float)
    if np.any(rho > 1.0) or np.isinf(rho).any():
        raise PlanError(f"reliability is at most 1, not {display.number(float(np.max(rho)))}")
    return rho
