"""
Predicted effects of a facet
============================

Which models are better than the average model, and which of the differences exceed their error. A
dot is the predicted effect (BLUP) of a level, the line its interval. A model whose interval does
not reach the line at 0 differs from the average.
"""

import vcomp

data = vcomp.datasets.load("digits").query("seed == 1")
res = vcomp.fit("score ~ (1|model) + (1|image)", data)
ax = res.plot("effects", term="model")
