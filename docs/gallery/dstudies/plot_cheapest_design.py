"""
The cheapest design for a goal
==============================

What a relative error variance that is small enough costs. The line falls with the cost, and the
diamond is the cheapest plan that reaches the dotted goal; the whisker is its interval.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.gstudy(data, "sys x topic x query", "score")
study = res.dstudy(topic=50, query=2)
found = study.optimize("5*topic + 2*topic:query", goal=0.001, coefficient="rel_err_var")
ax = found.plot()
