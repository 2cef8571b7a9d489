"""Inference on components: quantities and their intervals, profiles, tests and resampling.

``VarianceComponents`` is the value that passes from an estimation, or a published table, to
everything after it. Formulas are in docs/explanation/mathematics.md, sections 10 and 11.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
