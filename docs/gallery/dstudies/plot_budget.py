"""
The best design for a budget
============================

What a budget buys if a topic and a formulation of its query have a price. Each step is the best
plan at that cost. A line is a design: formulations are shared by all topics, or written for each
topic.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.gstudy("sys x topic x query", data, "score")
designs = ["sys x topic x query", "sys x (query:topic)"]
found = res.dstudy(topic=50, query=2).optimize(
    "5*topic + 2*topic:query", budget=1000, coefficient="Phi", designs=designs
)
ax = found.plot()
