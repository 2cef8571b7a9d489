"""Measured properties of a collection and its simulator, as opposed to requested ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.inference.assumptions import TwoWayTable, excess_kurtosis, skewness
from vcomp.numerics import stream

if TYPE_CHECKING:
    import pandas as pd

_TOPICS, _SIZE, _COLLECTIONS = 1_000, 50, 100

_MEASURED = {
    "skewness": "skewness of residuals",
    "kurtosis": "excess kurtosis of residuals",
    "log_sd": "s.d. of log variance over systems",
    "with_topics": "r of residuals with topic effects, r.m.s.",
    "between": "r of residuals of two systems, r.m.s.",
    "sampling": "s.d. of collections' means, in standard errors",
}
"""Measured properties in words."""


def measures_of(X: FloatArray) -> dict[str, float]:
    """Return measured properties of the residuals of a collection: shape, variances, correlations.

    Parameters
    ----------
    X : (n_topics, n_systems) scores

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> found = measures_of(rng.normal(size=(500, 1)) + rng.normal(size=(500, 6)))
    >>> round(found["between"], 1)  # 1 / (n_systems - 1): residuals of a topic add up to zero
    0.2
    """
    table = TwoWayTable.of(X)
    e = table.residuals
    sd = np.sqrt(np.mean(e * e, axis=0))
    known = sd > 1e-12 * max(float(np.abs(X).max()), 1e-300)
    z = (e[:, known] / sd[known]).ravel()
    upper = np.triu_indices(X.shape[1], 1)
    return {
        "skewness": skewness(z),
        "kurtosis": excess_kurtosis(z),
        "log_sd": float(np.log(sd[known] ** 2).std(ddof=1)) if known.any() else float("nan"),
        "with_topics": float(np.sqrt(np.mean(table.row_correlations**2))),
        "between": float(np.sqrt(np.mean(table.correlations[upper] ** 2))),
        "sampling": float("nan"),
    }


def found_table(simulator: Any) -> pd.DataFrame:
    """Return the table of measured properties; see :attr:`CollectionSimulator.found`.

    Parameters
    ----------
    simulator : of a collection
    """
    import pandas as pd

    drawn = simulator.draw(_TOPICS, stream(0, 0))
    simulated = measures_of(drawn)
    means = np.array([simulator.draw(_SIZE, stream(0, 1 + k)).mean() for k in range(_COLLECTIONS)])
    # Without random sampling, topics of one collection are too similar to estimate the error.
    topics = (drawn if simulator.random_sampling else simulator.scores).mean(axis=1)
    error = topics.std(ddof=1) / np.sqrt(_SIZE)
    simulated["sampling"] = float(means.std(ddof=1) / error)
    columns = {"collection": measures_of(simulator.scores), "simulated": simulated}
    return pd.DataFrame(columns).loc[list(_MEASURED)]


def simulator_summary(simulator: Any) -> Any:
    """Return a summary of a simulator; see :meth:`CollectionSimulator.summary`.

    Parameters
    ----------
    simulator : of a collection
    """
    n_topics, n_systems = simulator.scores.shape
    head = display.plain_table(
        [
            ("Stochastic simulation", f"from {n_topics:,} topics × {n_systems:,} systems"),
            (f"margins: {simulator.family}", f"scale: {_scale(simulator)}"),
            (f"copula: {_copula(simulator)}", ""),
        ]
    )
    found = found_table(simulator)
    forced = _forced(simulator)
    cells = {
        "collection": display.fixed(found["collection"], decimals=2),
        "simulated": display.fixed(found["simulated"], decimals=2),
        "requested": [forced.get(name, "") for name in found.index],
    }
    stubs = [_MEASURED[name] for name in found.index]
    table = display.column_table(cells, title="Found", stubs=stubs, align="rrl")
    return display.summary([head, table], _notes(simulator))


def _forced(simulator: Any) -> dict[str, str]:
    """Return the requested values of measured properties, in words."""
    forced = {"kurtosis": "normal residuals"} if simulator.family == "normal" else {}
    for names, dial, none in (
        (("kurtosis",), simulator.nonnormality, "normal residuals"),
        (("log_sd",), simulator.heteroscedasticity, "equal variances"),
        (("with_topics", "between"), simulator.correlation, "uncorrelated"),
    ):
        if dial != 1.0:
            words = none if dial == 0.0 else f"× {display.number(dial, 3)}"
            forced.update(dict.fromkeys(names, words))
    if not simulator.random_sampling:
        forced["sampling"] = "uneven sampling"
    return forced


def _scale(simulator: Any) -> str:
    if simulator.topic_margin is None:
        return "scores, no effects"
    return "smoothed logits" if simulator.scale.logit else "scores"


def _copula(simulator: Any) -> str:
    copula = simulator.copula
    if simulator.correlation == 0.0:
        return "none"
    if copula.name == "gaussian":
        return "Gaussian"
    return f"t with {display.number(copula.df, 3)} degrees of freedom"


def _notes(simulator: Any) -> list[str]:
    apart = display.number(1.0 / (simulator.n_systems - 1.0), 2)
    chance = display.number(1.0 / np.sqrt(len(simulator.scores) - 1.0), 2)
    said = (
        f"Simulated: {display.count(_TOPICS)} topics, and means of {_COLLECTIONS} collections of "
        f"{_SIZE} topics. With independent residuals the r of two systems is {apart}, as "
        f"residuals add up to zero, and chance adds {chance} in the collection."
    )
    notes = [said]
    if simulator.topic_margin is None:
        counts = Counter(margin.name for margin in simulator.margins)
        notes.append(
            "Margins: " + ", ".join(f"{name} {n:,}" for name, n in counts.most_common()) + "."
        )
    shift = simulator.means - simulator.scores.mean(axis=0)
    worst = int(np.abs(shift).argmax())
    if abs(shift[worst]) > 1e-9:
        notes.append(
            "True means are not those of the collection: they differ by "
            f"{display.number(float(shift.mean()), 2)} on average, by "
            f"{display.number(float(shift[worst]), 2)} for {simulator.systems[worst]}."
        )
    else:
        notes.append("True means of the systems are those of the collection.")
    if simulator.scores.shape[0] <= simulator.n_systems and simulator.correlation:
        notes.append("There are no more topics than systems: correlations are poorly known.")
    return notes
