"""Unbiased quadratic estimators: Henderson's methods, sequential sums of squares, MINQUE.

They make an ``Estimate`` from sufficient statistics by solving linear equations; the formulas are
derived in docs/explanation/mathematics.md, section 2.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
