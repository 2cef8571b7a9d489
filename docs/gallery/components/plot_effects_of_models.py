"""
Predicted effects of a facet
============================

Which models are better than the average model, and which of the differences exceed their error. A
dot is the predicted effect (BLUP) of a level, the line its interval; intervals that do not reach
the line at 0 belong to models that differ from the average.
"""

import vcomp

data = vcomp.datasets.load("digits").query("seed == 1")
res = vcomp.fit("score ~ (1|model) + (1|image)", data)
ax = res.plot("effects", term="model")
