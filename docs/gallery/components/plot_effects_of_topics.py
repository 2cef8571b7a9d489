"""
Predicted effects of many levels
================================

How much topics differ in difficulty. If there are more levels than can be named, the axis is their
rank. Of more than a hundred levels, a hundred are drawn, evenly spaced by rank.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("docsearch"))
ax = res.plot("effects", term="topic")
