"""Multivariate generalizability theory: several dependent scores of the same objects.

Every term of a design has a matrix of variances and covariances of the variables (subtests,
criteria, measures), estimated by analysis of variance or by REML, for facets that the variables
share and facets that they do not. From these come composites, their D-studies, correlations free
of error, and profiles (Cronbach et al. 1972; Brennan 2001, chaps. 9 to 12).
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
