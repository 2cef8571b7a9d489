"""What a simulation is asked for: scores, names and options, read and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, PlanError, did_you_mean
from vcomp.simulate.copula import COPULAS
from vcomp.simulate.decompose import Effects
from vcomp.simulate.select import EFFECTS, FAMILIES

__all__ = ["Asked", "check_between_0_and_1", "check_effects", "check_options", "read", "wanted"]

_CONSTANT = 1e-12
"""Residuals smaller than this, relative to the largest value, are made by rounding alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of :func:`vcomp.simulate.fit_collection`, under their names there."""

    margins: str
    homoscedastic: bool
    uncorrelated: bool
    random_sampling: bool
    copula: str
    df: float | None


def read(scores: ArrayLike, systems: Sequence[str] | None) -> tuple[FloatArray, tuple[str, ...]]:
    """Return topics × systems as an array, and the names of the systems.

    Raises
    ------
    DataError
        If there are no two of each, a score is missing or no number, or the names do not fit.
    """
    if np.iscomplexobj(scores):
        raise DataError("scores must be a topic × system matrix of numbers: they are complex")
    try:
        # In rows whatever frame it came from: sums in another order differ in the last bit.
        X = np.array(scores, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a topic × system matrix of numbers: {error}") from error
    if X.ndim != 2:
        raise DataError(
            "scores must be a matrix, topics down and systems across; "
            f"it has {X.ndim} dimension(s)"
        )
    n_topics, n_systems = X.shape
    if n_topics < 2 or n_systems < 2:
        raise DataError(
            "a simulation starts from at least two topics (rows) and two systems (columns); "
            f"there are {n_topics} × {n_systems}"
        )
    names = _names(systems, n_systems)
    wrong = np.argwhere(~np.isfinite(X))
    if wrong.size:
        topic, system = wrong[0]
        what = "missing" if np.isnan(X[topic, system]) else "infinite"
        raise DataError(
            f"{len(wrong):,} of {X.size:,} scores are missing or infinite: that of system "
            f"{names[system]!r} on topic number {topic + 1} is {what}; keep the topics that all "
            "systems have"
        )
    return X, names


def _names(systems: Sequence[str] | None, n_systems: int) -> tuple[str, ...]:
    if systems is None:
        return tuple(map(str, range(n_systems)))
    if isinstance(systems, str | bytes) or not isinstance(systems, Iterable):
        raise DataError(f"systems= is a list of names, not {systems!r}")
    given = list(systems)
    if any(name is None or name != name for name in given):
        raise DataError("names of systems are text or numbers, not None or nan")
    names = tuple(map(str, given))
    if len(names) != n_systems:
        raise DataError(f"there are {len(names)} names for {n_systems} systems")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"system {twice[0]!r} is named twice")
    return names


def check_options(asked: Asked, support: object) -> None:
    """Refuse options that are unknown, or do not go together.

    Raises
    ------
    PlanError
        Naming the option, and what it can be.
    """
    _check_copula(asked)
    if asked.margins not in FAMILIES:
        raise PlanError(
            f"margins={asked.margins!r} is not known{did_you_mean(asked.margins, FAMILIES)}; "
            f"margins are {', '.join(FAMILIES)}"
        )
    for name in ("homoscedastic", "uncorrelated", "random_sampling"):
        value = getattr(asked, name)
        if not isinstance(value, bool | np.bool_):
            raise PlanError(f"{name} is True or False, not {value!r}")
    if asked.margins in EFFECTS and support is not None:
        raise PlanError(
            f"support= goes with margins of scores; margins={asked.margins!r} are those of "
            "residuals. Use 'beta_binomial', 'discrete_kernel' or 'auto'"
        )
    if asked.margins not in EFFECTS and asked.homoscedastic:
        raise PlanError(
            f"homoscedastic=True goes with margins of residuals; margins={asked.margins!r} are "
            "those of scores. Use 'kernel' or 'normal'"
        )


def _check_copula(asked: Asked) -> None:
    if asked.copula not in COPULAS:
        raise PlanError(
            f"copula={asked.copula!r} is not known{did_you_mean(asked.copula, COPULAS)}; it is "
            "'gaussian' or 't'"
        )
    if asked.copula == "t" and asked.uncorrelated:
        raise PlanError(
            "copula='t' ties extremes together even where nothing is correlated; "
            "uncorrelated=True goes with copula='gaussian'"
        )
    if asked.df is None:
        return
    if asked.copula != "t":
        raise PlanError("df= are the degrees of freedom of copula='t'; the Gaussian one has none")
    number = isinstance(asked.df, int | float | np.number) and not isinstance(asked.df, bool)
    if not number or not 1.0 <= asked.df < np.inf:
        raise PlanError(
            f"df= is a finite number from 1 on, not {asked.df!r}; for infinitely many take "
            "copula='gaussian'"
        )


def check_between_0_and_1(X: FloatArray, names: tuple[str, ...], margins: str) -> None:
    """Refuse scores that have no logit.

    Raises
    ------
    DataError
        Naming the first of them.
    """
    outside = np.argwhere((X < 0.0) | (X > 1.0))
    if outside.size:
        topic, system = outside[0]
        raise DataError(
            f"margins={margins!r} needs scores between 0 and 1; that of system "
            f"{names[system]!r} on topic number {topic + 1} is {X[topic, system]:g}. Scale the "
            "scores, or use margins='normal'"
        )


def wanted(
    means: str | ArrayLike, X: FloatArray, names: tuple[str, ...], bounded: bool
) -> FloatArray | None:
    """Return the true means that are asked for; None for those that are fitted.

    Raises
    ------
    PlanError
        If they are none, or a system cannot have one.
    """
    if isinstance(means, str):
        if means not in ("observed", "fitted"):
            known = ("observed", "fitted")
            raise PlanError(
                f"means={means!r} is not known{did_you_mean(means, known)}; it is 'observed', "
                "'fitted', or a number for each system"
            )
        return X.mean(axis=0) if means == "observed" else None
    try:
        values = np.asarray(means, dtype=float)
    except (TypeError, ValueError) as error:
        raise PlanError(f"means holds a number for each system: {error}") from error
    if values.shape != (len(names),):
        raise PlanError(f"means holds {values.size} numbers for {len(names)} systems")
    wrong = ~np.isfinite(values) | (bounded & ((values <= 0.0) | (values >= 1.0)))
    if wrong.any():
        s = int(wrong.argmax())
        what = "between 0 and 1" if bounded else "finite"
        raise PlanError(f"means of system {names[s]!r} is {values[s]:g}; it must be {what}")
    return values


def check_effects(effects: Effects, names: tuple[str, ...], largest: float) -> None:
    """Refuse effects that nothing can be drawn from.

    Parameters
    ----------
    effects : of topics and systems
    names : of the systems
    largest : absolute value that effects were taken from

    Raises
    ------
    DataError
        If topics are all alike, or a system has no residuals.
    """
    tolerance = _CONSTANT * max(largest, 1.0)
    if float(np.ptp(effects.topics)) <= tolerance:
        raise DataError(
            "the mean score is the same on every topic, so that there are no topic effects to "
            "draw from"
        )
    constant = np.ptp(effects.residuals, axis=0) <= tolerance
    if constant.any():
        name = names[int(constant.argmax())]
        raise DataError(
            f"system {name!r} differs from the mean of all systems by the same on every topic, so "
            "that it has no residuals to draw from; leave it out"
        )
