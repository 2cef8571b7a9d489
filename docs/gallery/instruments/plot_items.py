"""
Items of a test
===============

Which items of a test do not measure what the others measure. An item is a point at its
difficulty and its correlation with the other items. Flagged items have names; item 8 was scored
with the wrong key.
"""

import numpy as np
import pandas as pd

import vcomp

rng = np.random.default_rng(1)
ability = rng.normal(size=(300, 1))
correct = ability + rng.normal(size=(300, 25)) > np.linspace(-2, 2, 25)
correct[:, 7] = ~correct[:, 7]
scores = pd.DataFrame(correct.astype(int), columns=[f"item {k}" for k in range(1, 26)])
ax = vcomp.item_analysis(scores).plot()
