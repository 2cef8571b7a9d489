"""
A crossed design
================

Which effects three crossed facets have, and where the variance of each goes. A circle is a facet,
and an area is an effect. The colour says whether the effect has a component of its own, is in the
residual, or is left out of the formula.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.fit("score ~ (1|sys) + (1|topic) + (1|query) + (1|sys:topic)", data)
ax = res.design.plot()
