"""
A design of five facets
=======================

Which effects five facets have. Five facets and more are drawn as a lattice: every box is an
effect, and lines lead down from it to the effects that contain its facets. A sum in a box names
the effects that the data confound.
"""

import itertools

import numpy as np
import pandas as pd

import vcomp

facets = {"school": 4, "class": 2, "pupil": 5, "item": 4, "rater": 2}
rows = itertools.product(*map(range, facets.values()))
data = pd.DataFrame(rows, columns=list(facets))
data["score"] = np.random.default_rng(1).normal(size=len(data))
res = vcomp.gstudy("(pupil:class:school) x item x rater", data, "score", method="anova")
ax = res.design.plot()
