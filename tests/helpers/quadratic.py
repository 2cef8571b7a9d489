"""A likelihood engine whose log-likelihood is quadratic."""

from types import SimpleNamespace

from vcomp.estimators.likelihood.engine import Derivatives


def quadratic(A, top, average=1.0, *, observed=True):
    """Return an engine with the value −½(v − top)'A(v − top).

    Parameters
    ----------
    A, top : the observed information, and the maximum
    average : times A, the average information
    observed : whether the observed information is available
    """

    def derivatives(v):
        value = -0.5 * float((v - top) @ A @ (v - top))
        return Derivatives(value, A @ (top - v), average * A)

    return SimpleNamespace(
        n=100,
        kinds=("observed", "average") if observed else ("average",),
        derivatives=derivatives,
        information=lambda v, kind, positive_only=False: A,
    )
