"""
Residuals
=========

A normal probability plot with a simulated envelope, and the residuals against the fitted values
with the means of groups of them.
"""

import matplotlib.pyplot as plt

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
sample = next(s for s in res.diagnose().samples if s.name == "residuals")
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
vcomp.plots.qq(sample.deviates, sample.name, envelope=sample.envelope, ax=left)
ax = vcomp.plots.residuals_against(res.fittedvalues, res.resid, "fitted value", ax=right)
