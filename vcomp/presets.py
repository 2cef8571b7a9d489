"""Variance components in the words of a field: gauge studies, precision of laboratories.

Functions of a result: the same components, summed and named as engineers and laboratories do. The
code is in :mod:`vcomp.studies`.
"""

from vcomp.studies import GaugeStudy, Precision, gauge_rr, precision

__all__ = ["GaugeStudy", "Precision", "gauge_rr", "precision"]
