"""Inference on components: quantities and their intervals, profiles, tests and resampling.

``VarianceComponents`` is the value that passes from an estimation, or a published table, to
everything after it. Formulas are in docs/explanation/mathematics.md, sections 10 and 11.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
