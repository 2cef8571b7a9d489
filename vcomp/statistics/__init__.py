"""Rows → sufficient statistics that add up; nothing below sees a row again."""

from vcomp.statistics.accumulate import accumulate, tabulate
from vcomp.statistics.cross_products import CrossProducts, PairTable
from vcomp.statistics.group_sums import GroupSums
from vcomp.statistics.score_table import ScoreTable
from vcomp.statistics.statistics import Statistics
from vcomp.statistics.strata import StratumStatistics

__all__ = [
    "CrossProducts",
    "GroupSums",
    "PairTable",
    "ScoreTable",
    "Statistics",
    "StratumStatistics",
    "accumulate",
    "tabulate",
]
