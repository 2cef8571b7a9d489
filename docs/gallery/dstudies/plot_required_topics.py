"""
How many topics for a goal
==========================

How many topics you need for a reliability of 0.95. The dotted lines lead from the goal down to the
numbers of topics, which the legend lists with their intervals.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
study = res.dstudy(topic=[25, 50, 100, 200])
ax = study.plot(goal=0.95)
print(study.required(0.95))
