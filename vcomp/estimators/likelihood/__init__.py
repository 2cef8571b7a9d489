"""REML and ML: engines that evaluate the likelihood, its maximisation and its certificate.

``choose_engine`` selects the engine for the data, ``maximise`` runs the iteration, and ``REML``
and ``ML`` turn the maximum into an estimate (docs/explanation/mathematics.md, sections 3 to 9).
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
