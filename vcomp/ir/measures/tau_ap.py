"""Average-precision correlation τ_AP: Kendall's τ, but swaps among the best count more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_one_of
from vcomp.ir.agreement import MeanRows
from vcomp.ir.kernels.rank_agreement import above_in_both, mean_share_above, ordinal_ranks
from vcomp.ir.measures.tau import CorrelationOfRankings
from vcomp.ir.rank import TauEstimator, TauVariant, check_tau_estimator


@dataclass(frozen=True, slots=True, repr=False)
class TauAP(CorrelationOfRankings):
    """Average-precision correlation (Yilmaz, Aslam and Robertson, 2008; Urbano, 2016, eq. 6).

    Each system is compared with those ranked above it. With C(i) the systems above the one at rank
    i that are above it in the other ranking too

        τ_AP = 2/(k-1) Σ_{i≥2} C(i)/(i-1) - 1.

    Parameters
    ----------
    variant : of τ_AP where systems have equal means

        * ``"a"``: a measure of accuracy, for ties in one of the rankings τ_AP,a of Urbano and
          Marrero (2017, eq. 5);
        * ``"b"``: τ_AP,b of Urbano and Marrero (2017), a measure of agreement: two rankings with
          the same ties agree perfectly. It is the mean over both rankings of comparisons of each
          system with those above its ties, and symmetric even without ties.

        Means are tied if they differ by rounding alone.
    ties : how ties are treated by ``variant="a"``

        * ``"average"``: the mean over all orders of the tied systems, in both rankings;
        * ``"first"``: tied systems stay in the order in which they came. What Urbano's (2016)
          code computes; it depends on the order of the columns.
    ranked_by : whose ranks i are: ``"truth"``, the default, as in the code of Urbano (2016), or
        ``"collection"``, as in Yilmaz et al. (2008) and Urbano and Marrero (2017). Not to be given
        with ``variant="b"``, which uses both
    estimator : of its expectation, see :class:`Tau`

    Raises
    ------
    PlanError
        If `variant`, `ties`, `ranked_by` or `estimator` does not have one of these values, or
        `ties` or `ranked_by` is given for ``variant="b"``.

    Notes
    -----
    With ``variant="b"`` it is undefined (nan) if all systems are tied in one of the rankings; with
    ``variant="a"`` it is then zero.

    References
    ----------
    Yilmaz, E., Aslam, J. A. and Robertson, S. (2008). A new rank correlation coefficient for
    information retrieval. *Proc. ACM SIGIR*, 587-594.

    Urbano, J. and Marrero, M. (2017). The treatment of ties in AP correlation.
    *Proc. ACM ICTIR*, 321-324.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> TauAP().actual(scores, [0.4, 0.3, 0.1])
    0.0
    >>> TauAP().estimate(scores, [3, 30]).round(3)
    array([0.748, 0.904])
    """

    variant: Literal["a", "b"] = "a"
    ties: Literal["average", "first"] = "average"
    ranked_by: Literal["truth", "collection"] | None = None
    estimator: TauEstimator | None = None

    name: ClassVar[str] = "tau_ap"
    symbol: ClassVar[str] = "τ_AP"
    expected: ClassVar[TauVariant] = "ap"

    def __post_init__(self) -> None:
        check_one_of("variant", self.variant, ("a", "b"))
        if self.estimator is not None:
            check_tau_estimator(self.estimator)
        check_one_of("ties", self.ties, ("average", "first"))
        if self.ranked_by not in (None, "truth", "collection"):
            raise PlanError(f"ranked_by must be 'truth' or 'collection', not {self.ranked_by!r}")
        if self.variant == "b" and self.ranked_by is not None:
            raise PlanError("variant='b' uses the ranks of both rankings: leave ranked_by out")
        if self.variant == "b" and self.ties != "average":
            raise PlanError("variant='b' has its own treatment of ties: leave ties out")

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return τ_AP of each row."""
        by_means, by_truth = rows.swaps[1]
        swapped = by_means if self.ranked_by == "collection" else by_truth
        if self.variant == "b":
            swapped = (by_means + by_truth) / 2.0
        return rows.filled(1.0 - 2.0 * swapped / max(rows.n_systems - 1, 1), self._of_tied)

    def _of_tied(self, rows: MeanRows) -> FloatArray:
        """Return τ_AP of each row, with or without ties."""
        x, y, tolerances = rows.means, rows.truth, rows.tolerances
        if self.variant == "b":
            return (_above_ties(x, y, *tolerances) + _above_ties(y, x, *tolerances[::-1])) / 2.0
        if self.ties == "first":
            x, y = (-ordinal_ranks(a, e) for a, e in zip((x, y), tolerances, strict=True))
            tolerances = np.zeros(len(x)), np.zeros(len(x))
        if self.ranked_by == "collection":
            x, y, tolerances = y, x, tolerances[::-1]
        return 2.0 * mean_share_above(x, y, *tolerances) / (x.shape[1] - 1) - 1.0


def _above_ties(x: FloatArray, y: FloatArray, ex: FloatArray, ey: FloatArray) -> FloatArray:
    """Return 2/(k - t₁) Σ C/(p-1) - 1 over systems below the t₁ best of `y`; C excludes ties."""
    above, both = above_in_both(x, y, ex, ey)
    below = (above > 0).sum(axis=1)
    share = (both / np.maximum(above, 1)).sum(axis=1)
    mean = np.divide(share, below, out=np.full(len(x), np.nan), where=below > 0)
    return 2.0 * mean - 1.0
