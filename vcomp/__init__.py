"""Variance components and Generalizability Theory.

>>> import vcomp
>>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
>>> res.dstudy(topic=50).table["Erho2"].round(2).item()
0.99
"""

import os

from lazy_loader import attach_stub

from vcomp.exceptions import is_address_space_limited

if is_address_space_limited():
    # The usual allocator of pyarrow reserves a gibibyte of addresses at once.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
