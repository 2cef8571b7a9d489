"""
A gauge study
=============

How much of the variation of measurements is due to the gauge and its operators, and how much to
the parts. Rows are sources and their sums; the variance is in squared units of the measurements,
here mm².
"""

import vcomp

res = vcomp.fit("mm ~ (1|part*operator)", vcomp.datasets.load("gauge"))
ax = vcomp.presets.gauge_rr(res, "part", "operator").plot()
