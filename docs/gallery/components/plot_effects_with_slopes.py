"""
Intercepts and slopes of the levels
===================================

A term with slopes has a panel for each of its effects. All are sorted by the first, so that their
correlation is seen.
"""

import numpy as np
import pandas as pd

import vcomp

rng = np.random.default_rng(3)
subject = np.repeat(np.arange(24), 8)
days = np.tile(np.arange(8.0), 24)
level, slope = rng.multivariate_normal([250.0, 10.0], [[600.0, 40.0], [40.0, 30.0]], size=24).T
time = level[subject] + slope[subject] * days + rng.normal(0.0, 20.0, subject.size)
data = pd.DataFrame({"time": time, "days": days, "subject": subject})
res = vcomp.fit("time ~ days + (days|subject)", data)
axes = res.plot("effects", term="subject")
