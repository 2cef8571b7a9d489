"""
Two facets at once
==================

Whether more tasks or more raters make grades of essays more reliable. Each number of raters has a
line. The intervals of more than twelve points would hide each other: they are drawn at the largest
number of tasks, side by side. ``study.table`` has all of them.
"""

import vcomp

data = vcomp.datasets.load("essays")
res = vcomp.fit("score ~ (1|person) + (1|task) + (1|rater) + (1|person:task)", data)
study = res.dstudy(task=[1, 2, 4, 8, 16], rater=[1, 2, 4])
ax = study.plot(coefficient="Phi")
