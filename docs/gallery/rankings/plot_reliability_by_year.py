"""
Reliability of collections by year
==================================

Eρ² of 43 TREC collections, and the shares of systems and of topics in the variance of a score.
They follow from the table that Urbano, Marrero and Martín (2013) print. A line is a task, and a
whisker the printed interval. The dashed line is the trend without the Million Query Track.
"""

import matplotlib.pyplot as plt
import numpy as np

import vcomp

table = vcomp.datasets.load("trec_collections")
number = table["track"].str.extract(r"(\d+)$")[0].astype(int)
table["year"] = number.where(number > 1000, number + 1991)  # TREC-3 was in 1994
table["task"] = table["track"].str.replace(r" ?\d+$", "", regex=True) + " " + table["measure"]
relative = table["n_queries"] * (1 / table["Erho2"] - 1)  # variances relative to that of systems
absolute = table["n_queries"] * (1 / table["Phi"] - 1)
table["systems"] = 100 / (1 + absolute)
table["topics"] = 100 * (absolute - relative).clip(lower=0) / (1 + absolute)

usual = table[~table["track"].str.startswith("1MQ")]
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
names = {"Erho2": "Eρ²", "systems": "variance of systems, %", "topics": "variance of topics, %"}
for ax, (column, label) in zip(axes, names.items(), strict=True):
    for _, task in table.groupby("task"):
        (line,) = ax.plot(task["year"], task[column], "o-", markersize=4, alpha=0.7)
        if column == "Erho2":
            ends = task["year"], task["Erho2_low"], task["Erho2_high"]
            ax.vlines(*ends, color=line.get_color(), alpha=0.3)
    slope, start = np.polyfit(usual["year"], usual[column], 1)
    years = np.array([usual["year"].min(), usual["year"].max()])
    ax.plot(years, start + slope * years, "k--")
    ax.set(xlabel="year", title=label, xticks=range(1995, 2012, 5))
