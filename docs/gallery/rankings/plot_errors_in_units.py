"""
Errors in units of the scores
=============================

How large the error ε of a mean score is, and how large a difference of two systems must be to be
safe (the absolute sensitivity, ``sens_abs``). Measures in units of the scores have an axis each;
less is better.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
accuracy = vcomp.ir.accuracy(data, ["rmse", "sens_abs"], [25, 50, 100, 150], system="sys", rng=1)
axes = accuracy.plot()
