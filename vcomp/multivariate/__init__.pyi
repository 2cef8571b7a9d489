from .fit_covariances import fit_multivariate as fit_multivariate
from .results import MultivariateResults as MultivariateResults
