"""Dependence of effects or scores: decomposition, scale, copulas and expected scores.

Copulas are the Gaussian one and Student's t.

A t copula is a normal one whose vectors are each multiplied by a number of their own, √(ν / χ²_ν).
Large values then occur in many systems at once, the more so the smaller ν is; the normal one is
the limit of large ν. (Demarta and McNeil, 2005. *International Statistical Review*, 73,
111-129.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.ir.simulate.margin import GRID, Margin, normal_weights

COPULAS = ("gaussian", "t")

_FEWEST, _MOST = 1.0, 200.0
"""Range of fitted degrees of freedom; larger ones resemble the Gaussian copula too closely."""

_TOO_CLOSE = 1e-6
"""Pairs of columns with a smaller 1 - r² are left out: they are equal up to rounding."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Copula:
    """The dependence of the effects or scores of one topic (eq. 16.2 of the mathematics).

    Attributes
    ----------
    name : ``"gaussian"`` or ``"t"``
    df : degrees of freedom; infinite for the normal one
    quantiles : (1025,) of t with these, at Φ of :data:`vcomp.ir.simulate.margin.GRID`; else empty

    Examples
    --------
    >>> student(4.0)
    <t copula with 4 degrees of freedom>
    """

    name: str
    df: float
    quantiles: FloatArray

    def __repr__(self) -> str:
        if self.name == "gaussian":
            return "<gaussian copula>"
        return f"<t copula with {display.number(self.df)} degrees of freedom>"

    def scales(self, n_topics: int, rng: np.random.Generator) -> FloatArray | None:
        """Return the factor of the normal vector of each topic, √(ν/χ²); None if all are one."""
        if self.name == "gaussian":
            return None
        return np.sqrt(self.df / rng.chisquare(self.df, n_topics))

    def normals(self, z: FloatArray, scales: FloatArray | None) -> FloatArray:
        """Return vectors with normal margins that have the dependence of the copula.

        Parameters
        ----------
        z : (n_topics, ...) normals, correlated
        scales : of the topics
        """
        if scales is None:
            return z
        scaled = z * scales.reshape(-1, *(1,) * (z.ndim - 1))
        return np.asarray(np.interp(scaled, self.quantiles, GRID))

    def conditional(self, correlation: float, z: FloatArray) -> FloatArray:
        """Return normals of a second variable, given the first and independent normals.

        Parameters
        ----------
        correlation : of the two
        z : (q,) normals that both are evaluated at; part of :data:`GRID`

        Returns
        -------
        (q, q), the first variable down
        """
        rest = np.sqrt(max(1.0 - correlation**2, 0.0))
        if self.name == "gaussian":
            return np.asarray(correlation * z[:, None] + rest * z)
        first = np.interp(z, GRID, self.quantiles)
        new = student_quantiles(self.df + 1.0, z)
        spread = rest * np.sqrt((self.df + first**2) / (self.df + 1.0))
        second = correlation * first[:, None] + spread[:, None] * new
        return np.asarray(np.interp(second, self.quantiles, GRID))


def gaussian() -> Copula:
    """Return the normal copula."""
    return Copula("gaussian", float("inf"), np.zeros(0))


def student(df: float) -> Copula:
    """Return the copula of Student's t with some degrees of freedom."""
    return Copula("t", df, student_quantiles(df, GRID))


def student_quantiles(df: float, z: FloatArray) -> FloatArray:
    """Return quantiles of t at Φ(z), computed in the smaller tail."""
    from scipy.special import ndtr, stdtrit

    return np.asarray(np.sign(z) * -stdtrit(df, ndtr(-np.abs(z))))


def fitted_df(columns: FloatArray, correlations: FloatArray) -> float:
    """Return the degrees of freedom that maximise the pairwise likelihood of the columns.

    Columns enter by their ranks, and correlations are fixed. The likelihood is that of
    pairs, added up (a composite one): that of whole vectors is not defined where residuals add up
    to zero, or there are no more topics than systems.

    Parameters
    ----------
    columns : (n_topics, k)
    correlations : (k, k)

    Returns
    -------
    float
        Between 1 and 200.

    References
    ----------
    Varin, C., Reid, N. and Firth, D. (2011). An overview of composite likelihood methods.
    *Statistica Sinica*, 21, 5-42.
    """
    from scipy.optimize import minimize_scalar
    from scipy.stats import rankdata

    u = rankdata(columns, axis=0) / (len(columns) + 1.0)
    minimum = minimize_scalar(
        lambda inverse: -pair_likelihood(u, correlations, 1.0 / inverse),
        bounds=(1.0 / _MOST, 1.0 / _FEWEST),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(1.0 / minimum.x)


def pair_likelihood(u: FloatArray, correlations: FloatArray, df: float) -> float:
    """Return the pairwise log-likelihood of a t copula: the sum over all pairs of columns.

    Parameters
    ----------
    u : (n, k) ranks between 0 and 1
    correlations : (k, k)
    df : degrees of freedom
    """
    from scipy.special import gammaln, stdtrit

    x = stdtrit(df, u)
    half = 0.5 * df
    of_one = (half + 0.5) * np.log1p(x * x / df)
    constant = gammaln(half + 1.0) + gammaln(half) - 2.0 * gammaln(half + 0.5)
    total = 0.0
    for i in range(x.shape[1] - 1):
        r = correlations[i, i + 1 :]
        apart = 1.0 - r * r > _TOO_CLOSE
        r, y = r[apart], x[:, i + 1 :][:, apart]
        rest = 1.0 - r * r
        distance = (x[:, [i]] ** 2 + y * y - 2.0 * r * x[:, [i]] * y) / (df * rest)
        logs = constant - 0.5 * np.log(rest) - (half + 1.0) * np.log1p(distance)
        total += float((logs + of_one[:, [i]] + of_one[:, i + 1 :][:, apart]).sum())
    return total


_LEAST_EIGENVALUE = 1e-8
"""Smallest eigenvalue of a covariance matrix relative to its largest, as in R's ``nearPD``."""


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """X_st = μ + ν_s + ν_t + e_st (eq. 16.1; Urbano, 2016, eqs. 7, 43 and 44).

    Attributes
    ----------
    mean : μ
    systems : (n_systems,) ν_s
    topics : (n_topics,) ν_t
    residuals : (n_topics, n_systems) e
    """

    mean: float
    systems: FloatArray
    topics: FloatArray
    residuals: FloatArray

    def with_variances(self, power: float) -> Effects:
        """Return the effects with other variances of the residuals, whose mean stays.

        Variances are proportional to `power` of those there are: with 0 all are the same.
        """
        sd = self.residuals.std(axis=0, ddof=1)
        relative = (sd / sd.max()) ** power
        scaled = self.residuals / sd * relative * np.sqrt(np.mean(sd**2) / np.mean(relative**2))
        return Effects(self.mean, self.systems, self.topics, scaled)

    def covariance(self) -> FloatArray:
        """Return the covariance of topic effects (first) and residuals of systems."""
        columns = np.column_stack([self.topics, self.residuals])
        return np.asarray(np.cov(columns, rowvar=False))


def decompose(X: FloatArray) -> Effects:
    """Return the effects of a topic × system matrix.

    Examples
    --------
    >>> decompose(np.array([[1.0, 2.0], [3.0, 6.0]])).topics
    array([-1.5,  1.5])
    """
    mean = float(X.mean())
    rest = X - mean
    systems = rest.mean(axis=0)
    rest = rest - systems
    topics = rest.mean(axis=1)
    return Effects(mean, systems, topics, rest - topics[:, None])


def normal_scores(X: FloatArray) -> FloatArray:
    """Return Φ⁻¹(rank / (n + 1)) of each column; ties share the mean of their ranks."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri(rankdata(X, axis=0) / (len(X) + 1.0)))


def correlation_factor(covariance: FloatArray) -> FloatArray:
    """Return the Cholesky factor L of a correlation matrix, R = LL'.

    The covariance is singular as a rule: residuals add up to zero, and there may be fewer topics
    than systems. So its eigenvalues are raised to 1e-8 of the largest, and the variances are then
    set back, as ``Matrix::nearPD`` does for Urbano (2016).

    Parameters
    ----------
    covariance : (k, k), its variances positive

    Examples
    --------
    >>> correlation_factor(np.array([[4.0, 1.0], [1.0, 1.0]])).round(4)
    array([[1.   , 0.   ],
           [0.5  , 0.866]])
    """
    values, vectors = np.linalg.eigh(covariance)
    raised = (vectors * np.maximum(values, _LEAST_EIGENVALUE * values[-1])) @ vectors.T
    sd = np.sqrt(np.diag(raised))
    return np.asarray(np.linalg.cholesky(raised / np.outer(sd, sd)))


def scaled_factor(factor: FloatArray, times: float) -> FloatArray:
    """Return the Cholesky factor of a correlation matrix after scaling the correlations.

    Parameters
    ----------
    factor : Cholesky factor of a correlation matrix
    times : what correlations are multiplied by. Where no correlation matrix has such
        correlations, as beyond 1, negative eigenvalues are raised as in
        :func:`correlation_factor`

    Examples
    --------
    >>> R = np.array([[1.0, 0.6], [0.6, 1.0]])
    >>> half = scaled_factor(np.linalg.cholesky(R), 0.5)
    >>> (half @ half.T).round(6)
    array([[1. , 0.3],
           [0.3, 1. ]])
    """
    if times == 1.0:
        return factor
    identity = np.eye(len(factor))
    if times == 0.0:
        return identity
    return correlation_factor(identity + times * (factor @ factor.T - identity))


SMOOTHING = 0.05
"""Smoothing constant of logits: added to a score and to its complement (Urbano, 2016)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale h of additive effects: scores, or smoothed logits (eq. 16.1).

    Attributes
    ----------
    logit : whether scores are transformed to smoothed logits
    """

    logit: bool

    @property
    def smoothing(self) -> float:
        """Smoothing of the logit; negative for untransformed scores."""
        return SMOOTHING if self.logit else -1.0

    @property
    def reach(self) -> float:
        """Bound of the absolute effects of scores between 0 and 1."""
        return float(np.log((1.0 + SMOOTHING) / SMOOTHING)) if self.logit else 1.0

    def forward(self, scores: FloatArray) -> FloatArray:
        """Return scores on the scale: log((x + a) / (1 - x + a)), or x.

        Examples
        --------
        >>> Scale(logit=True).forward(np.array([0.0, 0.5, 1.0])).round(4)
        array([-3.0445,  0.    ,  3.0445])
        """
        if not self.logit:
            return scores
        return np.asarray(np.log((scores + SMOOTHING) / (1.0 - scores + SMOOTHING)))

    def backward(self, values: FloatArray) -> FloatArray:
        """Convert values of the scale to scores, clipped to [0, 1] for logits.

        Examples
        --------
        >>> Scale(logit=True).backward(np.array([-3.5, 0.0, np.log(1.05 / 0.05)])).round(4)
        array([0. , 0.5, 1. ])
        """
        if not self.logit:
            return values
        from scipy.special import expit

        scores = (1.0 + 2.0 * SMOOTHING) * expit(values) - SMOOTHING
        return np.asarray(np.clip(scores, 0.0, 1.0))


_EVERY = 4
"""Steps of the table between quadrature points: .047 standard deviations."""

_STEPS = 50
_CLOSE = 1e-8
"""Tolerance of Newton steps; convergence is quadratic."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Distribution of topic effect plus residual of one system over the universe of topics.

    Attributes
    ----------
    values : (q,) on the scale of effects
    weights : (q,) that add up to one
    """

    values: FloatArray
    weights: FloatArray

    def mean(self, offset: float, scale: Scale) -> float:
        """Return the expected score, given grand mean plus system effect."""
        return float(self.weights @ scale.backward(offset + self.values))

    def offset(self, mean: float, scale: Scale, start: float) -> float:
        """Return the offset (grand mean plus system effect) that gives an expected score.

        Newton's method within a bracket; the expected score increases with the offset.

        Parameters
        ----------
        mean : on the scale of scores, between 0 and 1 where effects add up as logits
        start : a first guess
        """
        if not scale.logit:
            return mean - float(self.weights @ self.values)
        reach = float(np.abs(self.values).max()) + scale.reach
        low, high, at = -reach, reach, start
        for _ in range(_STEPS):
            expected, slope = self._with_slope(at, scale)
            low, high = (low, at) if expected > mean else (at, high)
            step = (mean - expected) / slope
            if abs(step) <= _CLOSE * reach:
                return at + step
            at = at + step if low < at + step < high else 0.5 * (low + high)
        return at

    def _with_slope(self, offset: float, scale: Scale) -> tuple[float, float]:
        """Return the expected score and its derivative by the offset."""
        from scipy.special import expit

        share = expit(offset + self.values)
        stretch = 1.0 + 2.0 * scale.smoothing
        scores = stretch * share - scale.smoothing
        inside = (scores > 0.0) & (scores < 1.0)
        slope = stretch * float(self.weights @ (inside * share * (1.0 - share)))
        return float(self.weights @ np.clip(scores, 0.0, 1.0)), max(slope, 1e-300)


def spread_of(topic: Margin, residual: Margin, copula: Copula, correlation: float) -> Spread:
    """Return the distribution of topic effect plus residual, by quadrature over two normals.

    Parameters
    ----------
    topic, residual : margins
    copula : that joins them
    correlation : of the two in it
    """
    z = GRID[::_EVERY]
    weights = normal_weights(z)
    other = copula.conditional(correlation, z)
    sums = topic.quantiles[::_EVERY, None] + np.interp(other, GRID, residual.quantiles)
    return Spread(sums.ravel(), np.outer(weights, weights).ravel())
