"""REML and ML: engines that evaluate the likelihood, its maximisation and its certificate.

``choose_engine`` selects the engine for the data, ``maximise`` runs the iteration, and ``REML``
and ``ML`` turn the maximum into an estimate (docs/explanation/mathematics.md, sections 3 to 9).
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
