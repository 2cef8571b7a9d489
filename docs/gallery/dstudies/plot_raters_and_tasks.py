"""
Two facets at once
==================

Whether more tasks or more raters make grades of essays more reliable. Each number of raters has a
line. At each number of tasks, the intervals of the lines stand side by side.
"""

import vcomp

data = vcomp.datasets.load("essays")
res = vcomp.fit("score ~ (1|person) + (1|task) + (1|rater) + (1|person:task)", data)
study = res.dstudy(task=[1, 2, 4, 8, 16], rater=[1, 2, 4])
ax = study.plot(coefficient="Phi")
