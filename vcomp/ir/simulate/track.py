"""A simulated track with assessors and documents, for examples of scores by document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, did_you_mean, is_real, is_whole
from vcomp.ir.simulate.effect_draws import EffectMargin, effect_margins, level_factors
from vcomp.ir.simulate.margin import Margin
from vcomp.numerics import seed_from

if TYPE_CHECKING:
    import pandas as pd

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
        if name not in TRACK_EFFECTS:
            raise DataError(
                f"{name!r} is not an effect{did_you_mean(name, TRACK_EFFECTS)}; the effects are "
                f"{', '.join(TRACK_EFFECTS)}"
            )
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
