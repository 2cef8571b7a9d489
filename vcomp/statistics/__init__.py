"""Rows → sufficient statistics that add up; nothing below sees a row again."""

from vcomp.statistics.accumulate import accumulate, tabulate
from vcomp.statistics.cross_products import CrossProducts, PairTable
from vcomp.statistics.score_table import ScoreTable

__all__ = ["CrossProducts", "PairTable", "ScoreTable", "accumulate", "tabulate"]
