"""
A nested design
===============

Images are nested in digits, because each image shows one digit: the circle of images lies within
that of digits. There are fewer areas than in a crossed design, so that fewer effects can be
estimated.
"""

import vcomp

data = vcomp.datasets.load("digits")
res = vcomp.gstudy("model x seed x (image:digit)", data, "score", method="anova")
ax = res.design.plot()
