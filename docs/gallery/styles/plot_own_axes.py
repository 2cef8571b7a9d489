"""
Two pictures in one figure
==========================

Components and a D-study, side by side for a paper. Each method draws on the axes that you pass as
``ax=``, and returns them for titles and limits of your own.
"""

import matplotlib.pyplot as plt

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
res.plot(ax=left).set_title("Components")
res.dstudy(topic=[25, 50, 100, 200]).plot(ax=right, goal=0.95).set_title("D-study")
plt.show()
