"""Variances and covariances of several variables, a matrix for every term of the design.

The result of a multivariate G-study. Composites, error variances, score profiles and D-studies are
computed from these matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.codec import stored
from vcomp.estimators.likelihood import elements
from vcomp.exceptions import EstimationError, PlanError, check_known, is_real
from vcomp.formula import in_formula
from vcomp.gtheory import PublishedComponents
from vcomp.inference import TwoWayMeanSquares, VarianceComponents


@dataclass(frozen=True, slots=True, eq=False)
class CovarianceComponents:
    """Covariance components of v variables with their design.

    Attributes
    ----------
    variables : their names
    names : the terms as written, the residual last
    facets : for each term the facets that its effect depends on, see
        :class:`~vcomp.inference.quantities.VarianceComponents`
    values : (k + 1, v, v) a matrix Σ for each term; nan for variables that share no levels of it
    linked : (k + 1, v, v) whether they share levels
    cov : (m, m) covariance matrix of the variances and covariances, in the order of
        :func:`elements`; nan in rows without a standard error
    nested_in : for each facet those that it is nested in
    sizes : for each facet its number of levels in every variable, within those it is nested in
    inverse_n : for each possible object of measurement (k + 1, v, v) the exact 1/n of the
        G-study's own design: coefficients of the terms in the (co)variance of the objects' means
    mean_products : of complete two-way tables, those of rows, columns and residual (3, v, v), and
        the mean squares of every variable; covariances are nan if the tables are not of the same
        cells
    """

    variables: tuple[str, ...]
    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    values: FloatArray
    linked: BoolArray
    cov: FloatArray
    nested_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    inverse_n: Mapping[str, FloatArray] = field(default_factory=dict)
    mean_products: tuple[FloatArray, tuple[TwoWayMeanSquares, ...]] | None = field(
        default=None, metadata=stored(keys=("matrices", "tables"))
    )

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def elements(self) -> tuple[tuple[int, int, int], ...]:
        """Term, row and column of every variance and covariance."""
        return elements(self.linked)

    @property
    def known(self) -> FloatArray:
        """The matrices with 0 for elements that are not estimated."""
        return np.where(self.linked, self.values, 0.0)

    @property
    def standard_errors(self) -> FloatArray:
        """Standard errors of the estimates, (k + 1, v, v)."""
        errors = np.full_like(self.values, np.nan)
        t, a, b = np.array(self.elements).T
        with np.errstate(invalid="ignore"):
            errors[t, a, b] = errors[t, b, a] = np.sqrt(np.diagonal(self.cov))
        return errors

    def place(self, name: str) -> int:
        """Return the position of a term.

        Parameters
        ----------
        name : of the term
        """
        return self.names.index(name)

    def combined(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear combinations of all elements and their covariance matrix.

        Parameters
        ----------
        weights : (r, k + 1, v, v), symmetric in the last two dimensions; a covariance is weighted
            by the sum of both of its elements

        Returns
        -------
        (r,) values and (r, r) covariance; elements without a standard error are treated as known,
        and combinations of these only are nan
        """
        t, a, b = np.array(self.elements).T
        W = weights[:, t, a, b] + np.where(a == b, 0.0, weights[:, t, b, a])
        values: FloatArray = W @ self.values[t, a, b]
        unsure = ~np.isfinite(np.diagonal(self.cov))
        C = np.where(unsure[:, None] | unsure[None, :], 0.0, self.cov)
        cov: FloatArray = W @ C @ W.T
        used = W != 0.0
        lost = used.any(axis=1) & ~(used & ~unsure).any(axis=1)
        cov[lost] = np.nan
        cov[:, lost] = np.nan
        return values, cov

    def of_weights(self, weights: FloatArray) -> VarianceComponents:
        """Return the variance components of the composite Σ w_v X_v.

        Parameters
        ----------
        weights : (v,) w; the variables with a weight must have the same sizes
        """
        w = np.asarray(weights, dtype=float)
        outer = np.outer(w, w)
        k = len(self.names)
        spread = np.zeros((k, k, w.size, w.size))
        spread[np.arange(k), np.arange(k)] = outer
        values, cov = self.combined(spread)
        used = np.flatnonzero(w)
        first = int(used[0])
        inverse = {
            o: dict(zip(self.names, n[:, first, first].tolist(), strict=True))
            for o, n in self.inverse_n.items()
        }
        return VarianceComponents(
            names=self.names,
            facets=self.facets,
            values=values,
            cov=cov,
            nested_in=self.nested_in,
            sizes={f: n[first] for f, n in self.sizes.items()},
            inverse_n=inverse,
            mean_squares=self._mean_squares(w),
        )

    def _mean_squares(self, w: FloatArray) -> TwoWayMeanSquares | None:
        """Return the mean squares of a composite of tables with the same cells."""
        if self.mean_products is None:
            return None
        products, tables = self.mean_products
        used = np.flatnonzero(w)
        inside = products[:, used[:, None], used]
        if np.isnan(inside).any():
            return None
        rows, columns, residual = np.einsum("a,tab,b->t", w[used], inside, w[used]).tolist()
        like = tables[int(used[0])]
        return TwoWayMeanSquares(
            rows=like.rows,
            columns=like.columns,
            n_rows=like.n_rows,
            n_columns=like.n_columns,
            ms_rows=rows,
            ms_columns=columns,
            ms_residual=residual,
            n_replicates=like.n_replicates,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Composite(PublishedComponents):
    """The variance components of Σ w_v X_v, with the D-studies of one variable.

    Attributes
    ----------
    components : of the composite
    weights : of the variables

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").pivot(
    ...     index=["sys", "topic"], columns="query", values="score").reset_index()
    >>> res = vcomp.fit_multivariate("keywords + sentence ~ (1|sys) + (1|topic)", data)
    >>> gain = res.composite({"keywords": -1, "sentence": 1})
    >>> print(gain)  # doctest: +ELLIPSIS
    Variance components of −keywords + sentence
    ...
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def _title(self) -> str:
        return f"Variance components of {self._words()}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._words()}>"

    def _words(self) -> str:
        words = ""
        for name, w in self.weights.items():
            if w:
                sign = ("−" if w < 0.0 else "+") if words else "−"[: w < 0.0]
                size = "" if abs(w) == 1.0 else f"{display.number(abs(w))} × "
                words += f" {sign} {size}{name}" if words else f"{sign}{size}{name}"
        return words


def read_weights(weights: Any, variables: tuple[str, ...]) -> FloatArray:
    """Return a weight for every variable.

    Parameters
    ----------
    weights : a mapping by name, in which variables may be left out, numbers in the order of the
        variables, or None for equal weights that add up to 1
    variables : names

    Raises
    ------
    PlanError
        If a variable is unknown, the length is wrong, a weight is not a finite number, or all are
        zero.

    Examples
    --------
    >>> read_weights({"maths": 2}, ("verbal", "maths"))
    array([0., 2.])
    """
    if weights is None:
        return np.full(len(variables), 1.0 / len(variables))
    named = hasattr(weights, "keys")
    if named:
        given = dict(weights.items())
        for name in given:
            check_known(name, variables, "weights name {}, which is not a variable; variables are")
        values = [given.get(name, 0.0) for name in variables]
    else:
        try:
            values = list(weights)
        except TypeError:
            values = []
        if isinstance(weights, str) or len(values) != len(variables):
            raise PlanError(
                f"weights must be a mapping such as {{{variables[0]!r}: 1}}, or {len(variables)} "
                f"numbers for {', '.join(variables)}, not {weights!r}"
            )
    for name, value in zip(variables, values, strict=True):
        if not is_real(value) or not np.isfinite(float(value)):
            raise PlanError(
                f"the weight of {name!r} must be a finite number, not {value!r}", column=name
            )
    w = np.array(values, dtype=float)
    if not w.any():
        raise PlanError("at least one weight must not be zero")
    return w


def composite_of(g: CovarianceComponents, w: FloatArray) -> VarianceComponents:
    """Return the components of a composite; sizes that differ between variables are left out.

    Parameters
    ----------
    g : of all variables
    w : (v,) weights
    """
    components = g.of_weights(w)
    used = np.flatnonzero(w)
    alike = {f: n for f, n in components.sizes.items() if len({g.sizes[f][a] for a in used}) == 1}
    return replace(
        components, sizes=alike, inverse_n=components.inverse_n if is_alike(g, w) else {}
    )


def check_shared(g: CovarianceComponents, w: FloatArray) -> None:
    """Refuse a composite of variables that share no levels of any facet.

    Raises
    ------
    PlanError
        If two variables with a weight share none; the message names them.
    """
    shared = np.asarray(g.linked[:-1].any(axis=0))
    for a, b in combinations(np.flatnonzero(w).tolist(), 2):
        if not shared[a, b]:
            raise PlanError(
                f"{g.variables[a]!r} and {g.variables[b]!r} share no levels of any facet: they "
                "have no composite",
                column=g.variables[a],
            )


def is_alike(g: CovarianceComponents, w: FloatArray) -> bool:
    """Whether the variables of a composite have the same sizes and the same 1/n."""
    used = np.flatnonzero(w)
    if any(len({n[a] for a in used}) > 1 for n in g.sizes.values()):
        return False
    pairs = np.ix_(np.arange(len(g.names)), used, used)
    linked = g.linked[pairs]
    for divisors in g.inverse_n.values():
        inside = np.where(linked, divisors[pairs], np.nan)
        flat = inside.reshape(len(g.names), -1)
        for row in flat:
            known = row[~np.isnan(row)]
            if known.size and np.ptp(known) > 1e-9 * abs(known).max():
                return False
    return True


# Measurements -----------------------------------------------------------------------------------


def divisors_of(
    g: CovarianceComponents, given: Mapping[str, tuple[Any, ...]], object_: str
) -> FloatArray:
    """Return the 1/n of every (co)variance in the objects' mean scores, (k + 1, v, v).

    Without given sizes they are those of the G-study's own design.
    """
    if not given and object_ in g.inverse_n:
        return g.inverse_n[object_]
    divisors = np.ones_like(g.values)
    for t, facets in enumerate(g.facets):
        for f in facets - {object_}:
            n = np.array(given.get(f, g.sizes.get(f)), dtype=float)
            divisors[t] /= np.sqrt(np.outer(n, n))
    return divisors


def object_term(g: CovarianceComponents, object_: str | None) -> str:
    """Return the facet of the object of measurement; the first facet if None.

    Raises
    ------
    PlanError
        If there is no such facet, it has no term, or variables do not share its levels.
    """
    facets = tuple(dict.fromkeys(f for name in g.names[:-1] for f in name.split(":")))
    name = facets[0] if object_ is None else object_
    check_known(name, facets, "unknown facet {}; the G-study has", column=name)
    if name not in g.names:
        raise PlanError(
            f"the model has no term (1|{in_formula(name)}), so its levels cannot be distinguished",
            term=name,
        )
    if not g.linked[g.place(name)].all():
        raise PlanError(
            f"the variables do not all share levels of {name!r}, which therefore have no profiles",
            column=name,
        )
    return name


def own_matrices(g: CovarianceComponents, object_: str) -> FloatArray:
    """Return the covariance matrices of universe scores and of relative and absolute errors.

    They are those of the mean scores in the G-study's own design, (3, v, v); negative estimates
    are not set to zero.
    """
    divisors, S = divisors_of(g, {}, object_), g.known
    universe = np.array([f == {object_} for f in g.facets], dtype=float)
    inside = np.array([object_ in f for f in g.facets], dtype=float)
    weights = np.stack([universe, inside - universe, 1.0 - universe])
    return np.einsum("xt,tab->xab", weights, S * divisors)


def profile_variability(
    g: CovarianceComponents, object_: str, means: FloatArray
) -> dict[str, float]:
    """Return the expected variance within score profiles, and its reliability G(V).

    The variance is that of the v scores of one object about their mean, for universe scores and
    for observed mean scores; G(V) is the ratio of the two. Flat profiles have small variances.

    Parameters
    ----------
    g : the components
    object_ : the object of measurement
    means : (v,) of the variables
    """
    universe, relative, _ = own_matrices(g, object_)
    spread = float(np.square(means - means.mean()).mean())

    def within(S: FloatArray) -> float:
        return float(np.diagonal(S).mean() - S.mean()) + spread

    observed = within(universe + relative)
    true = within(universe)
    ratio = true / observed if observed > 0.0 else np.nan
    return {"universe": true, "observed": observed, "reliability": ratio}


def optimal_weights(g: CovarianceComponents, object_: str) -> FloatArray:
    """Return the weights of the composite with the largest Eρ², (v,); they add up to 1.

    They maximise w'Σw / w'(Σ + Δ)w: the first eigenvector of (Σ + Δ)⁻¹Σ.

    Parameters
    ----------
    g : the components
    object_ : the object of measurement

    Raises
    ------
    EstimationError
        If the matrix of the observed scores is not positive definite.
    """
    from scipy.linalg import eigh

    universe, relative, _ = own_matrices(g, object_)
    scale = np.sqrt(np.maximum(np.diagonal(universe + relative), 1e-300))
    units = np.outer(scale, scale)
    try:
        _, vectors = eigh(universe / units, (universe + relative) / units)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "the matrix of observed scores is not positive definite, so there are no optimal "
            "weights; use method='reml'"
        ) from None
    w: FloatArray = vectors[:, -1] / scale
    total = float(w.sum())
    if abs(total) > 1e-8 * float(np.abs(w).sum()):
        return w / total
    return w / float(np.abs(w).sum())
