"""Variance components with their design, and the quantities that are made of them.

:class:`VarianceComponents` passes from an estimation, or a published table, to inference and
D-studies. Nearly all reported quantities are linear forms of the components or ratios of two: a
component, its share, an error variance, Eρ², Φ, a required number of topics (docs/explanation/
mathematics.md, eq. (10.1)). Interval methods depend on this form only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.codec import stored
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, RESIDUAL, EffectMatrix, ResidualGroups

_ROUNDING = 64.0 * float(np.finfo(float).eps)
"""Rounding error of an effect relative to the largest score."""


@dataclass(frozen=True, slots=True)
class TwoWayMeanSquares:
    """Mean squares of a complete two-way table with one mean per cell.

    They give the exact F interval of Eρ² (Feldt 1965) and the interval of Φ of Arteaga, Jeyaratnam
    and Franklin (1982). Mean squares are of cell means: with r scores in each cell they are 1/r of
    those of the scores.
    """

    rows: str
    columns: str
    n_rows: int
    n_columns: int
    ms_rows: float
    ms_columns: float
    ms_residual: float
    n_replicates: int = 1

    @classmethod
    def of(cls, X: FloatArray, rows: str, columns: str) -> TwoWayMeanSquares:
        """Return the mean squares of a matrix; those within rounding error of zero are zero.

        Parameters
        ----------
        X : (n, k) scores, none of them missing; at least two rows and columns
        rows, columns : names of the facets

        Examples
        --------
        >>> scores = np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 7.0]])
        >>> table = TwoWayMeanSquares.of(scores, "topic", "system")
        >>> table.ms_rows, table.ms_columns, table.ms_residual
        (6.5, 13.5, 1.5)
        """
        n, k = X.shape
        # Effects are subtracted before anything is squared.
        D = X - X.mean()
        of_rows, of_columns = D.mean(axis=1), D.mean(axis=0)
        squares = (
            k * float(of_rows @ of_rows) / (n - 1),
            n * float(of_columns @ of_columns) / (k - 1),
            float(np.square(D - of_rows[:, None] - of_columns).sum()) / ((n - 1) * (k - 1)),
        )
        nothing = X.size * (_ROUNDING * float(np.abs(X).max())) ** 2
        ms_rows, ms_columns, ms_residual = (ms if ms > nothing else 0.0 for ms in squares)
        return cls(rows, columns, n, k, ms_rows, ms_columns, ms_residual)

    def oriented(self, object_: str) -> TwoWayMeanSquares:
        """Return the same table with the object of measurement as its rows."""
        if object_ == self.rows:
            return self
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            n_rows=self.n_columns,
            n_columns=self.n_rows,
            ms_rows=self.ms_columns,
            ms_columns=self.ms_rows,
        )


def object_key(objects: frozenset[str]) -> str:
    """Return the key of an object of measurement in ``inverse_n``.

    Parameters
    ----------
    objects : facets of the object, with those that they are nested in

    Examples
    --------
    >>> object_key(frozenset({"patient", "doctor"}))
    'doctor:patient'
    """
    return ":".join(sorted(objects))


NOT_CONVERGED = (
    "the fit did not converge, and standard errors, intervals and p-values are those at the "
    "components where it ended, not at the estimates of its method"
)


@dataclass(frozen=True, slots=True, eq=False)
class LevelVariances:
    """Products of influences on the components, by the levels that pairs of rows share.

    Attributes
    ----------
    information : (k, k) expected information of the components
    sets : (m,) sets of facets with those that they are nested in; the last are single rows
    sizes : (m,) number of groups of each set
    shared : (m, k, k) products of the influences of all pairs of rows that share a group of this
        set and of no finer one
    few : facets that have too few levels to be used, with their numbers of levels
    inverse : (k, k) of the information in the directions in which covariance matrices keep their
        ranks; None if all components were estimated
    of_groups : for each set but single rows the (groups, k, k) parts that the rows of its groups
        have in the covariance of the estimates, by the model, or one if all are equal; None if
        they are not known, and of a set that contains another one, such as cells, whose parts are
        added to those of that one
    """

    information: FloatArray
    sets: tuple[frozenset[str], ...]
    sizes: FloatArray
    shared: FloatArray
    few: Mapping[str, int]
    inverse: FloatArray | None = None
    of_groups: tuple[FloatArray | None, ...] | None = None

    def coarsest(self) -> dict[int, int]:
        """Return for each set that has enough levels the set in it with the fewest of these."""
        enough = [m for m, chosen in enumerate(self.sets) if not chosen <= self.few.keys()]
        order = sorted(enough, key=lambda m: self.sizes[m])
        return {m: next(u for u in order if self.sets[u] <= self.sets[m]) for m in enough}

    def combined(self, A: FloatArray) -> LevelVariances:
        """Return the products of influences on linear combinations of the components.

        Parameters
        ----------
        A : (m, k) weights
        """
        inverse = np.linalg.inv(self.information) if self.inverse is None else self.inverse
        influences = A @ inverse
        of_combined = influences @ A.T
        information = information_of(of_combined)
        to_scores = information @ influences
        shared = to_scores @ self.shared @ to_scores.T
        return replace(self, information=information, shared=shared, inverse=of_combined)


def information_of(covariance: FloatArray) -> FloatArray:
    """Return the information whose inverse is a covariance matrix, zero where that has no rank.

    Examples
    --------
    >>> information_of(np.diag([4.0, 0.0]))
    array([[0.25, 0.  ],
           [0.  , 0.  ]])
    """
    unit = np.sqrt(np.diagonal(covariance))
    unit = np.outer(unit, unit)
    unit[unit == 0.0] = 1.0
    found: FloatArray = np.linalg.pinv(covariance / unit, rcond=1e-12, hermitian=True) / unit
    return found


@dataclass(frozen=True, slots=True, eq=False)
class VarianceComponents:
    """Variance components with the design that they belong to.

    Attributes
    ----------
    names : the components as written, ``"sys"`` or ``"topic:doc"``; the last is ``"Residual"``
    facets : for each component the facets of its effect, with those that they are nested in
        (``{"topic", "doc"}``); for the residual all facets, and ``"replicate"`` if cells hold
        several scores
    values : (k,) estimates, negative ones as estimated
    cov : (k, k) their covariance matrix, None if it is not known; rows and columns of a component
        without a standard error (at its bound) are nan
    nested_in : for each facet of the G-study the facets that it is nested in (transitively)
    sizes : for each facet the number of levels in the G-study *within* the facets that it is
        nested in, a harmonic mean where that differs from group to group. Empty when not known
    inverse_n : for each possible object of measurement (see :func:`object_key`) and each
        component, the exact divisor of the G-study's own design as 1/n: the mean over the levels
        of the object of Σ n²/(Σ n)² over the groups of the component (Brennan 2001, eq. 7.28).
        Empty when not known
    mean_squares : of a complete two-way design, else None
    held : components that were given, not estimated; they are treated as known
    without_bounds : if components are at their bound, the (k,) estimates without bounds, eq.
        (6.3), and their (k, k) covariance matrix; else None
    levels : products of the influences of rows, from which robust intervals are made; None if
        they were not requested, or there are no rows
    response_values : the distinct scores in order; None if there are many, or they are not known
    converged : False if the estimation ended elsewhere than at its estimate
    matrices : positions of the variances and covariances of the bars; none if all variances are
        single, with one residual
    groups : of rows that have a residual variance each, the last components; None with one
    """

    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    values: FloatArray
    cov: FloatArray | None = None
    nested_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    inverse_n: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mean_squares: TwoWayMeanSquares | None = None
    held: tuple[str, ...] = ()
    without_bounds: tuple[FloatArray, FloatArray] | None = field(
        default=None, metadata=stored(keys=("values", "cov"))
    )
    levels: LevelVariances | None = None
    response_values: tuple[float, ...] | None = None
    converged: bool = True
    matrices: tuple[EffectMatrix, ...] = ()
    groups: ResidualGroups | None = None

    @property
    def n_residuals(self) -> int:
        """Number of residual variances, the last components."""
        return 1 if self.groups is None else len(self.groups.n)

    @property
    def has_slopes(self) -> bool:
        """Whether a term has other effects than an intercept."""
        return any(matrix.effects != ("(Intercept)",) for matrix in self.matrices)

    @property
    def facet_names(self) -> tuple[str, ...]:
        """All facets in the order of first occurrence in the components, ``replicate`` last."""
        everything: frozenset[str] = frozenset().union(*self.facets)
        mentioned = (part for name in self.names for part in name.split(":"))
        first = {part: None for part in mentioned if part in everything - {REPLICATE}}
        # Names of published terms, such as "pia", need not be facets joined by colons.
        others = sorted(everything - first.keys() - {REPLICATE})
        last = [REPLICATE] if REPLICATE in everything else []
        return (*first, *others, *last)

    @property
    def covariance_names(self) -> tuple[str, ...]:
        """Names of the components that are covariances of random slopes."""
        return tuple(self.names[place] for place in sorted(self.covariance_pairs))

    @property
    def covariance_pairs(self) -> dict[int, tuple[int, int]]:
        """Positions of the two variances of each component that is a covariance."""
        return {
            matrix.places[i][j]: (matrix.places[i][i], matrix.places[j][j])
            for matrix in self.matrices
            for i, j in combinations(range(len(matrix.places)), 2)
        }

    def correlations(self) -> FloatArray:
        """Return the correlation of each covariance of random slopes, (k,); nan of variances."""
        found = np.full(len(self.names), np.nan)
        for matrix in self.matrices:
            places = np.array(matrix.places)
            variances = self.values[np.diagonal(places)]
            for i, j in combinations(range(len(places)), 2):
                product = variances[i] * variances[j]
                if product > 0.0:
                    found[places[i, j]] = self.values[places[i, j]] / math.sqrt(product)
        return found

    def with_one_residual(self, level: int | None = None) -> VarianceComponents:
        """Return the components with the residual variance of one level, or the mean of several.

        In the mean each level counts alike if the levels are combinations of facets of the design:
        it is the expectation for a level drawn at random. Otherwise each row counts alike.

        Parameters
        ----------
        level : number of the residual group; None for the mean

        Examples
        --------
        >>> g = VarianceComponents(
        ...     ("p", "Residual[i=1]", "Residual[i=2]"),
        ...     (frozenset("p"), frozenset("pi"), frozenset("pi")),
        ...     np.array([2.0, 3.0, 5.0]),
        ...     groups=ResidualGroups(("i",), (("1",), ("2",)), (9, 9)),
        ... )
        >>> g.with_one_residual().values, g.with_one_residual(1).values
        (array([2., 4.]), array([2., 5.]))
        """
        A, first = self.pooling(level), len(self.names) - self.n_residuals
        one = replace(self, matrices=(), groups=None)
        return one._combined(A, (*self.names[:first], RESIDUAL), self.facets[: first + 1])

    def at_columns(self, weights: Sequence[FloatArray]) -> tuple[VarianceComponents, FloatArray]:
        """Return the components of effects z'u, z'Λz, and A of their values Aσ².

        Terms with the same groups are one, and of several residual variances it is the mean.

        Parameters
        ----------
        weights : (q,) z of each bar

        Examples
        --------
        >>> from vcomp.formula import EffectMatrix
        >>> g = VarianceComponents(
        ...     ("p", "p[x]", "p[(Intercept),x]", "Residual"),
        ...     (*[frozenset("p")] * 3, frozenset("pi")),
        ...     np.array([2.0, 0.5, -0.1, 4.0]),
        ...     matrices=(EffectMatrix("p", ("(Intercept)", "x"), ((0, 2), (2, 1))),),
        ... )
        >>> g.at_columns([np.array([1.0, 2.0])])[0].values
        array([3.6, 4. ])
        """
        r, groups = self.n_residuals, dict[frozenset[str], str]()
        for matrix in self.matrices:
            groups.setdefault(self.facets[matrix.places[0][0]], matrix.groups)
        A = np.zeros((len(groups) + r, len(self.names)))
        A[-r:, -r:] = np.eye(r)
        for matrix, z in zip(self.matrices, weights, strict=True):
            row = list(groups).index(self.facets[matrix.places[0][0]])
            np.add.at(A[row], np.array(matrix.places), np.outer(z, z))
        known = np.isin(self.names, self.held)
        held = ~(A[:, ~known] != 0.0).any(axis=1)
        names = (*groups.values(), *self.names[-r:])
        one = replace(
            self, matrices=(), held=tuple(n for n, h in zip(names, held, strict=True) if h)
        )
        found = one._combined(A, names, (*groups, *self.facets[-r:]))
        if found.groups is None:
            return found, A
        return found.with_one_residual(), found.pooling() @ A

    def _combined(
        self, A: FloatArray, names: tuple[str, ...], facets: tuple[frozenset[str], ...]
    ) -> VarianceComponents:
        """Return components Aσ² under other names."""
        return replace(
            self,
            names=names,
            facets=facets,
            values=A @ self.values,
            cov=None if self.cov is None else _combined(A, self.cov),
            levels=None if self.levels is None else self.levels.combined(A),
            inverse_n={},
        )

    def pooling(self, level: int | None = None) -> FloatArray:
        """Return A of the components Aσ² that :meth:`with_one_residual` has.

        Parameters
        ----------
        level : number of the residual group; None for the mean
        """
        assert self.groups is not None
        r, first = self.n_residuals, len(self.names) - self.n_residuals
        counts = np.ones(r) if set(self.groups.facets) <= self.facets[-1] else self.groups.n
        shares = np.asarray(counts, dtype=float) if level is None else np.eye(r)[level]
        A = np.zeros((first + 1, first + r))
        A[:first, :first] = np.eye(first)
        A[first, first:] = shares / shares.sum()
        return A

    @property
    def is_closed(self) -> bool:
        """Whether the common facets of any two terms are a term, or none.

        In balanced data the spaces of the terms are then orthogonal and their mean squares
        independent, and REML is the analysis of variance if all its estimates are positive.
        """
        terms = self.facets[:-1]
        return all(not a & b or a & b in terms for a, b in combinations(terms, 2))


def _combined(A: FloatArray, cov: FloatArray) -> FloatArray:
    """Return A cov A'; nan where all components that are used have no standard error.

    Others without one are at their bound or held, and treated as known.
    """
    known = ~np.isnan(np.diagonal(cov))
    found: FloatArray = A @ np.where(np.isnan(cov), 0.0, cov) @ A.T
    lost = ~(A[:, known] != 0.0).any(axis=1)
    found[lost], found[:, lost] = np.nan, np.nan
    return found


def are_computable(values: FloatArray) -> bool:
    """Return whether fourth powers of the largest component are neither zero nor infinite.

    Examples
    --------
    >>> are_computable(np.array([0.5, 0.0])), are_computable(np.array([1e-165, 0.0]))
    (True, False)
    """
    largest = float(np.abs(values).max(initial=0.0))
    return largest == 0.0 or 1e-75 < largest < 1e75


Form: TypeAlias = Literal["linear", "root", "ratio", "share"]
Scale: TypeAlias = Literal["variance", "share", "correlation", "real"]


@dataclass(frozen=True, slots=True, eq=False)
class Quantities:
    """Several quantities of one form in k components σ².

    Attributes
    ----------
    form : ``"linear"`` a'σ², ``"root"`` √a'σ², ``"ratio"`` a'σ²/b'σ² or ``"share"``
        a'σ²/(a'σ² + b'σ²)
    a : (m, k) weights
    b : (m, k) weights of ratios and shares, else None

    Examples
    --------
    >>> share = Quantities("share", np.array([[1.0, 0.0]]), np.array([[0.0, 0.5]]))
    >>> share.values(np.array([3.0, 2.0]))
    array([0.75])
    """

    form: Form
    a: FloatArray
    b: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.a)

    @property
    def scale(self) -> Scale:
        """``"share"`` for quantities between 0 and 1, else ``"variance"``: above 0."""
        return "share" if self.form == "share" else "variance"

    @property
    def denominator(self) -> FloatArray:
        """The weights b of a ratio or share."""
        assert self.b is not None
        return self.b

    @property
    def used(self) -> BoolArray:
        """Whether each quantity depends on each component, (m, k)."""
        used: BoolArray = self.a != 0.0
        return used if self.b is None else used | (self.b != 0.0)

    def values(self, v: FloatArray) -> FloatArray:
        """Return the quantities at components.

        Parameters
        ----------
        v : (k,) components, or (B, k) several sets of them

        Returns
        -------
        (m,) or (B, m); nan if a denominator is not positive or a radicand is negative, or if a
        component that it uses is nan
        """
        unknown = np.isnan(v)
        if unknown.any():
            found = self.values(np.where(unknown, 0.0, v))
            return np.where(unknown @ self.used.T, np.nan, found)
        top = v @ self.a.T
        if self.form == "linear":
            return np.asarray(top)
        if self.form == "root":
            return np.sqrt(np.where(top >= 0.0, top, np.nan))
        bottom = v @ self.denominator.T
        if self.form == "share":
            bottom = bottom + top
        return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0.0)

    def gradients(self, v: FloatArray) -> FloatArray:
        """Return the derivatives by the components at (k,) `v`, (m, k)."""
        if self.form == "linear":
            return self.a
        top = (self.a @ v)[:, None]
        nothing = np.full_like(self.a, np.nan)
        if self.form == "root":
            return np.divide(self.a, 2.0 * np.sqrt(np.abs(top)), out=nothing, where=top > 0.0)
        bottom = (self.denominator @ v)[:, None]
        slopes = bottom * self.a - top * self.denominator
        total = bottom + top if self.form == "share" else bottom
        return np.divide(slopes, total**2, out=nothing, where=total > 0.0)

    def take(self, places: BoolArray | slice) -> Quantities:
        """Return some of the quantities."""
        return Quantities(self.form, self.a[places], None if self.b is None else self.b[places])

    def before(self, A: FloatArray) -> Quantities:
        """Return the quantities of σ² that these are of Aσ²."""
        return Quantities(self.form, self.a @ A, None if self.b is None else self.b @ A)


@dataclass(frozen=True, slots=True, eq=False)
class Smooth:
    """One smooth function of the components and the fixed effects.

    Attributes
    ----------
    function : f(σ², β) of (k,) and (p,) arrays
    slopes : its gradients by both, (k,) and (p,)
    scale : the range of its values: ``"variance"``, ``"share"``, ``"correlation"`` or ``"real"``
    uses_fixed : whether it depends on the fixed effects
    """

    function: Callable[[FloatArray, FloatArray], float]
    slopes: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    scale: Scale = "real"
    uses_fixed: bool = False

    def before(self, A: FloatArray) -> Smooth:
        """Return the function of σ² that this is of Aσ²."""

        def slopes(v: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
            by_v, by_beta = self.slopes(A @ v, beta)
            return by_v @ A, by_beta

        return replace(self, function=lambda v, beta: self.function(A @ v, beta), slopes=slopes)


Projected: TypeAlias = Literal["zero", "keep"]
"""How negative components enter quantities: as zero, or as estimated."""


@dataclass(frozen=True, slots=True, eq=False)
class UsedComponents:
    """The components under a policy for negative estimates.

    Attributes
    ----------
    values : (k,)
    cov : (k, k) or None; zero for components that are treated as known
    zeroed : names of negative components that are set to zero
    bounded : names of other components without a standard error, except held ones

    Examples
    --------
    >>> UsedComponents(np.array([0.5, 0.0]), None, zeroed=("Residual",), bounded=()).zeroed
    ('Residual',)
    """

    values: FloatArray
    cov: FloatArray | None
    zeroed: tuple[str, ...]
    bounded: tuple[str, ...]


def used_components(components: VarianceComponents, negative: str) -> UsedComponents:
    """Return the components under a policy for negative estimates.

    A component that is held, set to zero, or without a standard error because it is at its bound,
    is treated as known: its variance is zero in the delta method.

    Parameters
    ----------
    components : of the G-study
    negative : ``"zero"`` or ``"keep"``

    Raises
    ------
    PlanError
        `negative` is neither.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: negative estimates are set to zero once all
    components have been estimated.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 2.0, "i": -0.1, "Residual": 4.0}).components
    >>> used_components(g, "zero").values
    array([2., 0., 4.])
    """
    check_policy(negative)
    below = (components.values < 0) & (negative == "zero")
    below &= ~np.isin(components.names, components.covariance_names)
    values = np.where(below, 0.0, components.values)
    cov = components.cov
    unknown = np.zeros_like(below)
    if cov is not None:
        unknown = ~np.isfinite(np.diagonal(cov))
        known = below | unknown
        cov = np.where(known[:, None] | known[None, :], 0.0, cov)
    names = np.array(components.names, dtype=object)
    held = np.isin(names, list(components.held))
    return UsedComponents(values, cov, tuple(names[below]), tuple(names[unknown & ~below & ~held]))


def check_policy(negative: str) -> None:
    """Check a policy for negative components.

    Raises
    ------
    PlanError
        If `negative` is neither ``"zero"`` nor ``"keep"``.
    """
    if negative not in get_args(Projected):
        raise PlanError(f"negative must be 'zero' or 'keep', not {negative!r}")
