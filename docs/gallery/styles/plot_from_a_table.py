"""
A picture from a table
======================

Every picture draws a table that vcomp also returns as a pandas frame. Standard errors of
measurement have no picture of their own; here you draw them from such a frame.
"""

import pandas as pd

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
study = res.dstudy(topic=[10, 20, 40, 80, 160])
names = {"rel_sem": "of differences, σ(δ)", "abs_sem": "of scores, σ(Δ)"}
errors = {
    label: study.quantity(name).set_index("topic")["estimate"] for name, label in names.items()
}
ax = pd.DataFrame(errors).plot(marker="o", ylabel="standard error of a mean score")
