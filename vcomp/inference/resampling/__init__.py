"""Bootstrap, resampling of levels and the jackknife.

Sections 10.7 to 10.9 of docs/explanation/mathematics.md.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
