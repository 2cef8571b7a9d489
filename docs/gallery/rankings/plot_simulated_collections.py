"""
Bias of an estimate, from simulated collections
===============================================

How far two estimates of τ are from the actual τ of a collection. The actual τ is known because the
scores are simulated from known true means. A box holds the middle half of the simulated
collections. With few topics, the published estimator is too high.
"""

import pandas as pd

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
collection = vcomp.ir.ScoreMatrix.from_long(data, system="sys").drop_worst(0.25)
simulator = vcomp.ir.fit_collection(collection)
tau = vcomp.ir.measures.get("tau")
errors = []
for n in (25, 100):
    drawn = simulator.simulate(n, n=40, rng=1)
    for scores in drawn:
        truth = tau.actual(scores, drawn.true_means)
        published = vcomp.ir.expected_tau(scores, estimator="urbano")["estimate"].item()
        shrunken = tau.estimate(scores, n).item()
        errors.append({"topics": n, "published": published - truth, "shrunken": shrunken - truth})
axes = pd.DataFrame(errors).plot.box(
    by="topics", figsize=(8, 4), layout=(1, 2), sharey=True, xlabel="topics", grid=True
)
axes["published"].set_ylabel("estimate of τ − true τ")
