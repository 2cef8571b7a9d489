"""What scores are drawn from: distributions of effects, and how scores are made of them.

Three kinds, by name:

* effects and errors of one distribution, added: :data:`EFFECTS`;
* normal effects, and errors whose variance differs from level to level of a facet: "variance by
  s";
* scores that are a function of a normal sum: 0/1, graded, or cut at 0 and 1: :data:`SCORES`.
  Their components are those of observed scores, by quadrature (:func:`observed_components`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vcomp import VarianceComponentsModel
from vcomp._typing import FloatArray

Draw = Callable[[np.random.Generator, int], FloatArray]

_LOG_SPREAD = 0.7
"""Standard deviation of the logarithm of error variances that differ by level."""

EFFECTS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "t5": lambda rng, n: np.sqrt(3.0 / 5.0) * rng.standard_t(5.0, n),
    "laplace": lambda rng, n: rng.laplace(size=n) / np.sqrt(2.0),
    "chi2": lambda rng, n: (rng.chisquare(4.0, n) - 4.0) / np.sqrt(8.0),
    "chi2-": lambda rng, n: (4.0 - rng.chisquare(4.0, n)) / np.sqrt(8.0),
    "exponential": lambda rng, n: rng.standard_exponential(n) - 1.0,
    "exponential-": lambda rng, n: 1.0 - rng.standard_exponential(n),
    "uniform": lambda rng, n: np.sqrt(3.0) * rng.uniform(-1.0, 1.0, n),
    "two-point": lambda rng, n: rng.choice(np.array([-1.0, 1.0]), n),
}
"""Effects and errors with mean 0 and variance 1. t with 5 df has excess kurtosis 6, χ² with 4 df
skewness 1.4 and excess kurtosis 3, Laplace 3, exponential skewness 2 and excess kurtosis 6,
uniform −1.2, two points −2; "-" are mirrored ones."""

VARYING = "variance by "


@dataclass(frozen=True, slots=True)
class Steps:
    """Scores in steps: how many of the cuts a standard normal Z exceeds, times `height`.

    Attributes
    ----------
    cuts : of Z, ascending
    height : of a step
    """

    cuts: tuple[float, ...]
    height: float = 1.0

    def __call__(self, z: FloatArray) -> FloatArray:
        """Return the scores of Z."""
        return self.height * np.searchsorted(self.cuts, z).astype(float)

    def expected(self, mean: FloatArray, spread: float) -> FloatArray:
        """Return the expected score of Z ~ N(mean, spread²)."""
        from scipy.special import ndtr

        above: FloatArray = np.sum([ndtr((mean - c) / spread) for c in self.cuts], axis=0)
        return self.height * above

    @classmethod
    def at(cls, *shares: float, height: float = 1.0) -> Steps:
        """Return the steps that these shares of scores lie below."""
        from scipy.special import ndtri

        return cls(tuple(float(c) for c in ndtri(shares)), height)


@dataclass(frozen=True, slots=True)
class Cut:
    """Scores m + sZ, cut at 0 and at 1."""

    m: float
    s: float

    def __call__(self, z: FloatArray) -> FloatArray:
        """Return the scores of Z."""
        return np.clip(self.m + self.s * z, 0.0, 1.0)

    def expected(self, mean: FloatArray, spread: float) -> FloatArray:
        """Return the expected score of Z ~ N(mean, spread²)."""
        at, scale = self.m + self.s * mean, self.s * spread
        return _above(at, scale) - _above(at - 1.0, scale)


def _above(mean: FloatArray, spread: float) -> FloatArray:
    """Return E max(X, 0) of X ~ N(mean, spread²)."""
    from scipy.special import ndtr

    at = mean / spread
    found: FloatArray = mean * ndtr(at) + spread * np.exp(-0.5 * at**2) / np.sqrt(2.0 * np.pi)
    return found


SCORES: dict[str, Steps | Cut] = {
    "0/1 .05": Steps.at(0.95),
    "0/1 .5": Steps.at(0.5),
    "0/1 .86": Steps.at(0.14),
    "0/1 .95": Steps.at(0.05),
    "graded": Steps.at(0.40, 0.65, 0.85, 0.95, height=0.25),
    "cut": Cut(0.2, 0.4),
}
"""As functions of a standard normal sum: 0/1 with means .05 to .95, five grades of which 40, 25,
20, 10 and 5 % occur, and scores of which 31 % are 0 and 2 % are 1."""

_NODES = np.linspace(-9.0, 9.0, 6_001)


def shared_covariance(score: Steps | Cut, share: float) -> float:
    """Return the covariance of the scores of two standard normal Z with correlation `share`."""
    density = np.exp(-0.5 * _NODES**2)
    density /= density.sum()
    if share < 1.0:
        values = score.expected(np.sqrt(share) * _NODES, float(np.sqrt(1.0 - share)))
    elif isinstance(score, Steps):
        return _variance_of_steps(score)
    else:
        values = score(_NODES)
    return float(density @ np.square(values - density @ values))


def _variance_of_steps(score: Steps) -> float:
    from scipy.special import ndtr

    above = np.append(1.0, 1.0 - ndtr(score.cuts))
    shares = above - np.append(above[1:], 0.0)
    values = score.height * np.arange(shares.size)
    return float(shares @ np.square(values - shares @ values))


def latent_components(components: FloatArray) -> FloatArray:
    """Return the variances of the effects of a normal sum: half of it is error, the sum is 1."""
    own = components[:-1] / components[:-1].sum()
    return np.append(0.5 * own, 0.5)


def observed_components(
    score: Steps | Cut, facets: tuple[frozenset[str], ...], latent: FloatArray
) -> FloatArray:
    """Return the components of scores that are a function of a normal sum.

    Scores that share the levels of a set of facets have a covariance that follows from the
    variance of the effects that they share; the components on these facets add up to it.

    Parameters
    ----------
    score : function of the sum
    facets : of each component, with those that they are nested in; of the last all
    latent : variances of the effects, that of errors last; they add up to 1
    """
    found = np.zeros(len(facets))
    for at in sorted(range(len(facets)), key=lambda t: len(facets[t])):
        within = [t for t, other in enumerate(facets) if other <= facets[at]]
        covariance = shared_covariance(score, min(float(latent[within].sum()), 1.0))
        found[at] = covariance - sum(found[t] for t in within if t != at)
    return found


def true_components(
    population: str,
    facets: tuple[frozenset[str], ...],
    components: Mapping[str, float],
    names: tuple[str, ...],
) -> FloatArray:
    """Return the true components of a population in a design."""
    v = np.array([components[name] for name in names])
    if population not in SCORES:
        return v
    return observed_components(SCORES[population], facets, latent_components(v))


def draw_scores(
    model: VarianceComponentsModel, v: FloatArray, population: str, rng: np.random.Generator
) -> FloatArray:
    """Return a response of every row.

    Parameters
    ----------
    model : whose rows are drawn
    v : (k + 1,) variances of the design, the residual last
    population : one of :data:`EFFECTS` or :data:`SCORES`, or "variance by …"
    rng : source of the numbers

    Raises
    ------
    ValueError
        If there is no such population.
    """
    if population in SCORES:
        score = SCORES[population]
        return score(_sum(model, latent_components(v), EFFECTS["normal"], rng))
    if population.startswith(VARYING):
        return _sum(model, v, EFFECTS["normal"], rng, population.removeprefix(VARYING))
    if population not in EFFECTS:
        raise ValueError(f"there is no distribution {population!r}")
    return _sum(model, v, EFFECTS[population], rng)


def _sum(
    model: VarianceComponentsModel,
    v: FloatArray,
    draw: Draw,
    rng: np.random.Generator,
    varying: str | None = None,
) -> FloatArray:
    chunk = model.statistics.rows
    y: FloatArray = np.sqrt(v[-1]) * draw(rng, chunk.n)
    if varying is not None:
        at = [f.name for f in model.design.facets].index(varying)
        logs = _LOG_SPREAD * rng.standard_normal(chunk.facet_sizes[at]) - _LOG_SPREAD**2 / 2.0
        y *= np.exp(0.5 * logs)[chunk.level_codes(at)]
    for t, size in enumerate(chunk.sizes):
        y += (np.sqrt(v[t]) * draw(rng, size))[chunk.codes[t]]
    return y
