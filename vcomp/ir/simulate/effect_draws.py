"""Draws of effects from any distribution, correlated or not; bounded and graded scores.

Of such effects is a track with assessors and documents, for examples of scores by document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from vcomp._typing import BoolArray, FloatArray, IntArray
from vcomp.exceptions import DataError, PlanError, check_known, is_real, is_whole
from vcomp.ir.simulate.copula import correlation_factor
from vcomp.ir.simulate.margin import GRID, Margin
from vcomp.ir.simulate.margin_families import kernel_margin
from vcomp.numerics import seed_from, stream

if TYPE_CHECKING:
    import pandas as pd


_FEWEST = 5
"""Smallest number of observed effects for a kernel estimate."""

_SYMMETRIC = 1e-8
_UNIVERSE = 200_000
"""Number of simulated sums of effects that determine the cuts of grades."""


@dataclass(frozen=True, slots=True, eq=False)
class EffectMargin:
    """Quantiles of a distribution with mean 0 and variance 1, at Φ of :data:`GRID`.

    Attributes
    ----------
    quantiles : (1025,), or None of the normal distribution
    """

    quantiles: FloatArray | None

    def at(self, z: FloatArray) -> FloatArray:
        """Return the effects at normal quantiles `z`."""
        return z if self.quantiles is None else np.asarray(np.interp(z, GRID, self.quantiles))


NORMAL = EffectMargin(None)


def effect_margins(
    margins: Mapping[str, Margin | ArrayLike] | None, names: tuple[str, ...]
) -> dict[str, EffectMargin]:
    """Return the distribution of the effects of every component.

    Parameters
    ----------
    margins : component → a margin, or observed effects, of which a kernel estimate is made
    names : of all components

    Raises
    ------
    PlanError
        If a component is unknown, or its margin is not a distribution with a variance.
    """
    distributions = dict.fromkeys(names, NORMAL)
    for name, given in (margins or {}).items():
        check_known(name, names, "margins= names no component {}; there are", term=name)
        distributions[name] = _standardised(name, given)
    return distributions


def _standardised(name: str, given: Margin | ArrayLike) -> EffectMargin:
    if isinstance(given, Margin):
        margin = given
    else:
        try:
            effects = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            effects = np.zeros(0)
        enough = effects.ndim == 1 and effects.size >= _FEWEST and np.isfinite(effects).all()
        if not enough or np.ptp(effects) == 0.0:
            raise PlanError(
                f"the margin of {name!r} is a vcomp.simulate.Margin or {_FEWEST} or more observed "
                "effects that differ"
            )
        # Effects are clipped to the observed range, as they may be bounded.
        margin = kernel_margin(effects, float(effects.min()), float(effects.max()))
    sd = float(np.sqrt(margin.variance))
    if sd <= 0.0:
        raise PlanError(f"the margin of {name!r} has no variance")
    values = margin.quantile(_PHI) if margin.is_discrete else margin.quantiles
    return EffectMargin((values - margin.mean) / sd)


_PHI: FloatArray = ndtr(GRID)


def level_factors(
    correlations: Mapping[str, ArrayLike] | None, sizes: Mapping[str, int]
) -> dict[str, FloatArray]:
    """Return the Cholesky factor of the correlations of each facet's levels.

    Parameters
    ----------
    correlations : facet → (k, k) matrix, or one number for all pairs
    sizes : number of levels of each facet that is not nested

    Raises
    ------
    PlanError
        If a facet is unknown or nested, or its matrix is not a correlation matrix of its levels.
    """
    factors = {}
    for facet, given in (correlations or {}).items():
        said = "correlations= names {}; the facets whose levels may be correlated are"
        check_known(facet, sizes, said)
        k = sizes[facet]
        R = np.asarray(given, dtype=float)
        if R.ndim == 0:
            R = np.full((k, k), float(R)) + (1.0 - float(R)) * np.eye(k)
        valid = R.shape == (k, k) and bool(np.isfinite(R).all())
        valid = valid and bool(np.abs(R - R.T).max() <= _SYMMETRIC)
        valid = valid and bool(np.abs(np.diag(R) - 1.0).max() <= _SYMMETRIC)
        if not valid or float(np.linalg.eigvalsh(R)[0]) < -_SYMMETRIC:
            raise PlanError(
                f"correlations of {facet!r} are one number, or a positive semidefinite {k} × {k} "
                "matrix with ones in its diagonal",
                column=facet,
            )
        factors[facet] = correlation_factor(R)
    return factors


def correlated(
    groups: IntArray,
    count: int,
    levels: IntArray,
    rest: IntArray,
    factor: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Return a normal for each group, correlated between the levels of a facet.

    Parameters
    ----------
    groups : (n,) group of each row
    count : number of groups
    levels : (n,) level of the facet in each row
    rest : (n,) combination of the levels of the other facets of the component, from 0
    factor : of the correlations of the levels
    rng : random numbers
    """
    z = rng.standard_normal((int(rest.max()) + 1, len(factor))) @ factor.T
    effects = np.empty(count)
    effects[groups] = z[rest, levels]
    return effects


def bounded(latent: FloatArray, mean: float, bounds: tuple[float, float]) -> FloatArray:
    """Return scores between bounds: a logistic function of the sum of effects.

    Its slope at the mean is 1, so that small effects keep their size.

    Parameters
    ----------
    latent : (n,) sums of effects
    mean : score at a sum of 0, between the bounds
    bounds : lowest and highest score
    """
    from scipy.special import expit, logit

    low, high = bounds
    share = (mean - low) / (high - low)
    slope = 1.0 / ((high - low) * share * (1.0 - share))
    share_of_range = slope * latent
    share_of_range += logit(share)
    expit(share_of_range, out=share_of_range)
    share_of_range *= high - low
    share_of_range += low
    return np.asarray(share_of_range)


def graded(
    latent: FloatArray,
    grades: FloatArray,
    margins: Mapping[str, EffectMargin],
    sds: Mapping[str, float],
    seed: int,
) -> FloatArray:
    """Return grades 0, 1, …: the number of cuts below the sum of effects.

    The cuts are quantiles of the sum over the whole universe, so that the shares of a data set
    vary as its effects do.

    Parameters
    ----------
    latent : (n,) sums of effects
    grades : (m,) shares of the grades 0, 1, … in the universe
    margins, sds : distribution and standard deviation of every component
    seed : of the sums from which cuts are found
    """
    rng = stream(seed, 10_000)
    total = np.zeros(_UNIVERSE)
    for name, margin in margins.items():
        total += sds[name] * margin.at(rng.standard_normal(_UNIVERSE))
    cuts = np.quantile(total, np.cumsum(grades)[:-1])
    return np.searchsorted(cuts, latent, side="left").astype(float)


def check_scale(mean: float, bounds: Any, grades: Any) -> tuple[Any, Any]:
    """Check bounds and shares of grades; return each, or None if not given.

    Raises
    ------
    PlanError
        If both are given, or they are not allowed.
    """
    if bounds is not None and grades is not None:
        raise PlanError("bounds= and grades= are two scales of scores; give one of them")
    if grades is not None:
        shares = np.asarray(grades, dtype=float)
        ok = shares.ndim == 1 and shares.size >= 2 and bool((shares > 0.0).all())
        if not ok or abs(float(shares.sum()) - 1.0) > _SYMMETRIC:
            raise PlanError(
                f"grades= are the shares of the grades 0, 1, …: two or more positive numbers "
                f"that add up to 1, not {grades!r}"
            )
        return None, shares
    if bounds is not None:
        pair = np.asarray(bounds, dtype=float)
        if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < mean < pair[1]:
            raise PlanError(
                f"bounds= are the lowest and the highest score, with the mean {mean!r} between "
                f"them, not {bounds!r}"
            )
        return (float(pair[0]), float(pair[1])), None
    return None, None


TRACK_EFFECTS: Mapping[str, float] = {
    "relevance": -0.9,
    "i": 0.3,
    "d": 1.0,
    "a": 0.2,
    "a:i": 0.4,
    "a:d": 0.6,
    "retrieval": -0.3,
    "skill": 0.4,
    "skill:i": 0.4,
    "p": 0.3,
    "p:i": 0.4,
    "look": 0.5,
    "p:d": 1.0,
}
"""Standard deviations of the effects, and the means ``relevance`` and ``retrieval``.

A document is relevant for an assessor if the sum of the mean ``relevance`` and its effects ``i``,
``d``, ``a``, ``a:i`` and ``a:d`` is above 0. A system retrieves it if the sum of ``retrieval``,
``p``, ``p:i``, ``look`` (what makes a document seem relevant to all systems), ``p:d`` and of skill
times the document's effect ``d`` is above 0; skill has the mean 1 and the standard deviations
``skill`` between systems and ``skill:i`` between topics.
"""


_MEANS = ("relevance", "retrieval")

_FACETS = {
    **dict.fromkeys(("a", "a:i", "a:d"), "assessor"),
    **dict.fromkeys(("p", "p:i", "p:d", "skill", "skill:i"), "system"),
}
"""The facet whose levels may be correlated, the first axis of the effects."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Track:
    """Retrieved documents and judgements of a track, made by :func:`novelty_like_track`.

    Attributes
    ----------
    retrieved : a row for each retrieved document: ``system``, ``topic``, ``document``
    judgements : a row for each document and assessor: ``assessor``, ``topic``, ``document``,
        ``relevant``, True or False or a grade from 0 on
    """

    retrieved: pd.DataFrame
    judgements: pd.DataFrame

    def __repr__(self) -> str:
        rows = f"{len(self.retrieved):,} retrieved documents, {len(self.judgements):,} judgements"
        return f"<Track: {rows}>"


def novelty_like_track(
    *,
    n_systems: int = 60,
    n_topics: int = 50,
    n_assessors: int = 2,
    n_documents: int = 1000,
    effects: Mapping[str, float] | None = None,
    margins: Mapping[str, Margin | ArrayLike] | None = None,
    correlations: Mapping[str, ArrayLike] | None = None,
    cuts: Sequence[float] = (0.0,),
    rng: int | np.random.Generator | None = None,
) -> Track:
    """Return a simulated track such as TREC Novelty 2004, with effects of all facets.

    **Simulated, not real data.** The runs and judgements that Bodoff (2008, sec. 5) analysed are
    not public. This simulation has their form (60 systems, 50 topics, two assessors, about 1,000
    sentences for each topic, whose number varies) and invented effect sizes, so results of its
    G-studies do not apply to that track.

    Parameters
    ----------
    n_systems, n_topics, n_assessors : numbers of each; every assessor judges every topic
    n_documents : mean number per topic; numbers are uniform from half to one and a half times it
    effects : values that replace some of :data:`TRACK_EFFECTS`; :func:`vcomp.ir.fit_relevance`
        finds those of relevance, and `cuts`, in judgements
    margins : effect → its distribution: observed effects, of which a kernel estimate is made, or
        a :class:`vcomp.simulate.Margin`; its mean is set to 0 and its standard deviation to that
        of the effect. Others are normal
    correlations : ``"system"``, ``"assessor"`` → correlations of systems or assessors, a matrix or
        one number for all pairs, such as systems of one group or assessors who agree. They join
        all effects of this facet by a Gaussian copula
    cuts : a document has the grade of relevance that counts how many of these the sum of its
        effects exceeds, in ascending order; with one cut it is relevant or not
    rng : seed or generator; seed 0 if None. The same seed gives the same track

    Returns
    -------
    Track

    Raises
    ------
    DataError
        If a number is not a whole number of at least 1 (of documents, 2), an effect is
        unknown, not finite, or negative (except the two means), or cuts do not ascend.
    PlanError
        If a margin is not of an effect, or not a distribution, or correlations are not of systems
        or assessors, or no correlation matrix.
    EstimationError
        If `rng` is neither a seed nor a generator.

    Examples
    --------
    >>> track = novelty_like_track(n_systems=3, n_topics=2, n_documents=10, rng=1)
    >>> track.judgements[["assessor", "topic", "document", "relevant"]].head(2)
      assessor topic document  relevant
    0       A1    T1    T1-01     False
    1       A1    T1    T1-02     False
    """
    sizes = {"n_systems": n_systems, "n_topics": n_topics, "n_assessors": n_assessors}
    for name, n in {**sizes, "n_documents": n_documents}.items():
        least = 2 if name == "n_documents" else 1
        if not is_whole(n) or n < least:
            raise DataError(f"{name} must be a whole number of at least {least}, not {n!r}")
    of_levels = {"system": n_systems, "assessor": n_assessors}
    distributions = _Distributions(
        _effects(effects),
        effect_margins(margins, tuple(f for f in TRACK_EFFECTS if f not in _MEANS)),
        level_factors(correlations, of_levels),
    )
    limits = np.asarray(cuts, dtype=float)
    if limits.ndim != 1 or limits.size < 1 or not np.isfinite(limits).all():
        raise DataError(f"cuts= are one or more finite numbers, not {cuts!r}")
    if (np.diff(limits) <= 0.0).any():
        raise DataError(f"cuts= ascend, and these do not: {cuts!r}")
    generator = (
        rng if isinstance(rng, np.random.Generator) else np.random.default_rng(seed_from(rng))
    )
    counts = generator.integers(-(-n_documents // 2), 3 * n_documents // 2 + 1, n_topics)
    assessor = distributions.draw(generator, "a", n_assessors, 1)
    bias = distributions.draw(generator, "p", n_systems, 1)
    skill = 1.0 + distributions.draw(generator, "skill", n_systems, 1)
    topics = [
        _topic(child, int(n), (assessor, bias, skill), distributions, limits)
        for child, n in zip(generator.spawn(n_topics), counts, strict=True)
    ]
    return _tables(topics, counts, n_systems, n_assessors)


@dataclass(frozen=True, slots=True, eq=False)
class _Distributions:
    """Standard deviations and distributions of effects, and Cholesky factors by facet."""

    sd: Mapping[str, float]
    margins: Mapping[str, EffectMargin]
    factors: Mapping[str, FloatArray]

    def draw(self, rng: np.random.Generator, effect: str, *shape: int) -> FloatArray:
        """Return effects, whose first axis has the systems or assessors."""
        z = rng.standard_normal(shape)
        factor = self.factors.get(_FACETS.get(effect, ""))
        drawn = z if factor is None else factor @ z
        return self.sd[effect] * self.margins[effect].at(drawn)


def _effects(given: Mapping[str, float] | None) -> dict[str, float]:
    for name, value in (given or {}).items():
        check_known(name, TRACK_EFFECTS, "{} is not an effect; the effects are", DataError)
        number = is_real(value)
        mean = name in _MEANS
        if not number or not np.isfinite(value) or (value < 0 and not mean):
            raise DataError(f"effect {name!r} must be finite and at least 0, not {value!r}")
    return {**TRACK_EFFECTS, **(given or {})}


def _topic(
    rng: np.random.Generator,
    n: int,
    of_track: tuple[FloatArray, FloatArray, FloatArray],
    effects: _Distributions,
    cuts: FloatArray,
) -> tuple[BoolArray, Any]:
    """Return retrieval (systems × documents) and relevance (assessors × documents) of a topic."""
    draw, sd = partial(effects.draw, rng), effects.sd
    assessor, bias, skill = of_track
    n_assessors, n_systems = assessor.size, bias.size
    document = draw("d", n)
    relevance = sd["relevance"] + draw("i", 1) + document + assessor + draw("a:i", n_assessors, 1)
    relevance = relevance + draw("a:d", n_assessors, n)
    here = skill + draw("skill:i", n_systems, 1)
    retrieval = sd["retrieval"] + bias + draw("p:i", n_systems, 1) + here * document
    retrieval = retrieval + draw("look", n) + draw("p:d", n_systems, n)
    grades = np.searchsorted(cuts, relevance, side="left")
    return retrieval > 0.0, grades > 0 if cuts.size == 1 else grades


def _tables(
    topics: list[tuple[BoolArray, Any]], counts: Any, n_systems: int, n_assessors: int
) -> Track:
    import pandas as pd

    systems, names = _numbered("S", n_systems), _numbered("T", len(topics))
    assessors = _numbered("A", n_assessors)
    width = len(str(max(counts)))
    documents = [f"{t}-{d + 1:0{width}d}" for t, n in zip(names, counts, strict=True)
                 for d in range(n)]  # fmt: skip
    first = np.cumsum(counts) - counts
    retrieved = [np.nonzero(found) for found, _ in topics]
    topic = np.repeat(np.arange(len(topics)), [system.size for system, _ in retrieved])
    of = np.concatenate([d + start for (_, d), start in zip(retrieved, first, strict=True)])
    judged = [relevant.ravel() for _, relevant in topics]
    places = [np.tile(np.arange(n) + start, n_assessors)
              for n, start in zip(counts, first, strict=True)]  # fmt: skip

    def column(codes: Any, labels: list[str]) -> Any:
        return pd.Categorical.from_codes(codes, categories=pd.Index(labels))

    runs = {
        "system": column(np.concatenate([system for system, _ in retrieved]), systems),
        "topic": column(topic, names),
        "document": column(of, documents),
    }
    qrels = {
        "assessor": column(
            np.concatenate([np.repeat(np.arange(n_assessors), n) for n in counts]), assessors
        ),
        "topic": column(np.repeat(np.arange(len(topics)), counts * n_assessors), names),
        "document": column(np.concatenate(places), documents),
        "relevant": np.concatenate(judged),
    }
    return Track(pd.DataFrame(runs), pd.DataFrame(qrels))


def _numbered(letter: str, n: int) -> list[str]:
    width = len(str(n))
    return [f"{letter}{k + 1:0{width}d}" for k in range(n)]
