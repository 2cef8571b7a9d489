"""Pictures of the tables: components, coefficients, predicted effects, profiles, replicates.

Every function takes its numbers from a frame that the library also prints, draws them with
matplotlib on the axes that it is given (or on a new figure), and returns the axes. Nothing is
estimated here.
"""

from vcomp.plots.accuracy import accuracies
from vcomp.plots.canvas import pyplot
from vcomp.plots.caterpillar import effects
from vcomp.plots.coefficients import dstudy
from vcomp.plots.comparison import measure_curves, measures
from vcomp.plots.cut_scores import cut_scores
from vcomp.plots.dots import components
from vcomp.plots.extrapolation import accuracy_curves
from vcomp.plots.frontier import frontier
from vcomp.plots.histogram import replicates
from vcomp.plots.items import items
from vcomp.plots.mapping import reliability_map
from vcomp.plots.subsampling import subsets
from vcomp.plots.zeta import profile

__all__ = [
    "accuracies",
    "accuracy_curves",
    "components",
    "cut_scores",
    "dstudy",
    "effects",
    "frontier",
    "items",
    "measure_curves",
    "measures",
    "profile",
    "pyplot",
    "reliability_map",
    "replicates",
    "subsets",
]
