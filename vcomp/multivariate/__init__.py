"""Multivariate generalizability theory: several dependent scores of the same objects.

Every term of a design has a matrix of variances and covariances of the variables (subtests,
criteria, measures), estimated by analysis of variance or by REML, for facets that the variables
share and facets that they do not. From these come composites, their D-studies, correlations free
of error, and profiles (Cronbach et al. 1972; Brennan 2001, chaps. 9 to 12).
"""

from vcomp.multivariate.composite import Composite
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.multivariate.fit import fit_multivariate
from vcomp.multivariate.plans import MultivariateDStudy
from vcomp.multivariate.results import MultivariateResults

__all__ = [
    "Composite",
    "CovarianceComponents",
    "MultivariateDStudy",
    "MultivariateResults",
    "fit_multivariate",
]
