"""How reliable the total of a test is: all coefficients of internal consistency together."""

from __future__ import annotations

import math

import numpy as np

from vcomp import display
from vcomp.ctt.alpha import check_totals, feldt_limits
from vcomp.ctt.coefficients import coefficients_of, kuder_richardson
from vcomp.ctt.covariances import ItemCovariances, from_complete, from_pairs, pair_counts
from vcomp.ctt.matrix import (
    ItemScores,
    ScoresOfItems,
    check_choice,
    complete_rows,
    read_scores,
)
from vcomp.ctt.reliability_result import BINARY, SYMBOLS, Reliability
from vcomp.ctt.reml import two_way_components
from vcomp.exceptions import DataError, check_alpha
from vcomp.uncertainty import FromComponents, Quantities
from vcomp.uncertainty.two_way import FELDT

__all__ = ["reliability"]

_ABOVE_ONE = (
    "α above 1 is that of no complete data: the covariances of pairs are of different objects; "
    "missing='reml' has none of this."
)

_NEEDS_ALL = "for complete scores; missing='pairwise' or 'listwise' gives them here"


def reliability(
    scores: ScoresOfItems,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    response: str | None = None,
    alpha: float = 0.05,
    missing: str = "reml",
) -> Reliability:
    """Return coefficients of internal consistency: how reliable the total over items is.

    Cronbach's alpha with its interval, alpha of standardised items, Kuder and Richardson's
    formulae 20 and 21 (items scored 0 or 1), Guttman's λ₁ to λ₆ and the standard errors of
    measurement s_X √(1 − α).

    Parameters
    ----------
    scores : matrix with **a row for each object measured** (person, system) **and a column for
        each item** (question, topic): 2-D array, nested lists, pandas or polars frame. That is
        the transpose of the topic × system matrix of :mod:`vcomp.ir`. Or long data, a row a
        score, as any container that :func:`vcomp.fit` reads
    object, item, response : columns of long data: all three, or none
    alpha : the interval has confidence 1 − alpha
    missing : what to do where cells are missing:

        * ``"reml"``: alpha is kσ²_p/(kσ²_p + σ²_pi), with variance components by REML from the
          cells that are there, and has the interval of modified large samples. Other coefficients
          need covariances of items and are not given;
        * ``"pairwise"``: every covariance is of the objects that have both items. Such
          covariances may be those of no complete data; the interval of alpha is Feldt's with the
          harmonic mean of the numbers of objects of pairs, which is too wide where much is
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
        infinite, all totals are equal, or too few cells are there for the treatment; if long data
        have two scores of one object on one item.
    PlanError
        If `alpha` is not between 0 and 1.

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
    >>> found = reliability(data, object="sys", item="topic", response="score")
    >>> round(found.alpha, 4)
    0.8094
    >>> found.table["estimate"].round(3)[["lambda2", "standardised_alpha"]].to_dict()
    {'lambda2': 0.812, 'standardised_alpha': 0.842}
    """
    check_alpha(alpha)
    check_choice("missing", missing, ("reml", "pairwise", "listwise", "raise"))
    matrix = read_scores(scores, object, item, response, what="reliability")
    n_missing, n_cells = matrix.n_missing, matrix.values.size
    if not n_missing:
        return _of_complete(matrix, alpha, 0, "")
    there = f"{display.count(n_missing)} of {display.count(n_cells)} cells are missing"
    if missing == "raise":
        raise DataError(
            f"{there}; missing='reml' and 'pairwise' use those that are there, 'listwise' leaves "
            "out the objects that have any"
        )
    if missing == "listwise":
        kept = complete_rows(matrix)
        left_out = len(matrix.objects) - len(kept.objects)
        words = f"{there}: {display.count(left_out)} objects were left out (listwise)."
        return _of_complete(kept, alpha, n_missing, words)
    matrix = matrix.with_scores()
    empty = np.isnan(matrix.values).all(axis=0)
    if empty.any():
        raise DataError(
            f"item {str(matrix.items[int(empty.argmax())])!r} has no score; leave it out"
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
        notes = ("KR-20 is α of items scored 0 or 1; KR-21 takes them as equally difficult.",)
    else:
        reasons |= dict.fromkeys(BINARY, why)
    return _result(
        found,
        reasons,
        feldt_limits(found["alpha"], n, k, alpha),
        FELDT,
        covariances,
        matrix,
        (alpha, n_missing, words, notes),
    )


def _of_pairs(matrix: ItemScores, alpha: float, n_missing: int, there: str) -> Reliability:
    counts = pair_counts(matrix.values)
    try:
        covariances = from_pairs(matrix, counts)
    except DataError as error:
        raise DataError(f"{error}; missing='reml' needs none") from None
    if covariances.total <= 0.0:
        raise DataError(
            "the covariances of pairs add up to a variance of the total that is not above 0; "
            "take missing='reml'"
        )
    k = covariances.k
    found, reasons = coefficients_of(covariances, int(counts.min()))
    reasons |= dict.fromkeys(BINARY, "are for scores of which none is missing")
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
        alpha=found["alpha"],
        alpha_low=limits[0],
        alpha_high=limits[1],
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
        significance=alpha,
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
        alpha=value,
        alpha_low=float(limits.low[0]),
        alpha_high=float(limits.high[0]),
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
        interval_method=limits.method,
        significance=alpha,
        notes=(as_they_are, *(f"Interval: {note}." for note in limits.notes)),
    )
