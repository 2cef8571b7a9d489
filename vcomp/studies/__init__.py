"""Studies of a kind: of tests and their items, gauges and laboratories, measures and documents.

Some fit several times, and others name and sum the components of a result.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
