"""What a covariance matrix V = Σ c_l K_l + c_e I gives of itself and of some columns.

The orthogonal strata of a design each have such a matrix on the cells of the facets that are not
fully crossed. Value, score and all informations of the likelihood follow from these forms: a
recursion computes them where those facets are nested, blocked elimination elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vcomp._typing import FloatArray

__all__ = ["Columns", "Covariance", "Forms"]


@dataclass(frozen=True, slots=True)
class Forms:
    """Forms of V⁻¹ at one point; the residual is the last of the L + 1 components.

    The b columns B (y and the columns of X) may each consist of r replicates, independent vectors
    with the same V; forms in B are summed over replicates, the others are of one V.

    Attributes
    ----------
    log_det : log|V|
    traces : (L + 1,) tr(V⁻¹K_l)
    squares : (L + 1, L + 1) tr(V⁻¹K_l V⁻¹K_m)
    gram : (b, b) B'V⁻¹B
    first : (L + 1, b, b) B'V⁻¹K_l V⁻¹B
    second : (L + 1, L + 1, b, b) B'V⁻¹K_l V⁻¹K_m V⁻¹B
    """

    log_det: float
    traces: FloatArray
    squares: FloatArray
    gram: FloatArray
    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, slots=True)
class Columns:
    """The b columns B that a covariance matrix is applied to, each of r replicates.

    Attributes
    ----------
    ZB : for each term the (q_t, b, r) sums of the columns within its groups
    BB : (b, b) cross-products of the columns, summed over replicates
    """

    ZB: tuple[FloatArray, ...]
    BB: FloatArray


class Covariance(Protocol):
    """A family of covariance matrices with the columns that it is applied to."""

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B only: all that the value of a likelihood needs."""

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`: the residual, the last, positive, others ≥ 0."""

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every term, (q_l, b, r)."""

    def unexplained(self, c: FloatArray, grouping: int, own: float, others: float) -> FloatArray:
        """Return 1 − own · diag(Z_l'V⁻¹Z_l) of one grouping, (q_l,).

        The share of a component's variance that is left of its effects, given the data.

        Parameters
        ----------
        c : components
        grouping : the l of the component
        own, others : what it and all others with this grouping make of c_l, own + others
        """
