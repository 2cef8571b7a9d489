"""
Errors in units of the scores
=============================

How large the error ε of a mean score is, and how large a difference between two systems must be so
that it is seldom swapped (the absolute sensitivity, ``sens_abs``). Each measure in units of the
scores has its own axis. Less is better.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
accuracy = vcomp.ir.accuracy(data, ["rmse", "sens_abs"], [25, 50, 100, 150], system="sys", rng=1)
axes = accuracy.plot()
