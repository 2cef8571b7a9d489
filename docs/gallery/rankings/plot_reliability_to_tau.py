"""
From Eρ² to τ
=============

Which rank correlation of two tests goes with a generalizability coefficient. A point is a half of
a collection, and the line is the fitted curve. The bands hold 90 and 95 % of the pairs of halves.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
collections = dict(list(data.groupby("query")))
study = vcomp.ir.fit_mapping(collections, "tau", system="sys", smallest={"Erho2": 0.4}, rng=1)
ax = study.plot()
