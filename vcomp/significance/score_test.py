"""The score test of one component: only the fit without it is needed.

At the fit with σ²_t = 0 the restricted score is U = Q − e with Q = ½ y'P V_t P y and
e = ½ tr(P V_t). Given that the other components are estimated, the variance of Q is that of the
efficient score, I_tt − I_to I_oo⁻¹ I_ot with the expected information I_tu = ½ tr(P V_t P V_u),
and

    Q ≈ κ χ²_ν,   κ = Var/(2e),   ν = 2e²/Var

(Zhang & Lin 2003, sec. 4; Verbeke & Molenberghs 2003). Large Q speak for σ²_t > 0: one-sided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp.estimators.choose import choose_engine
from vcomp.estimators.estimate import Estimate
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve_positive
from vcomp.statistics import Statistics

__all__ = ["Score", "score_test"]


@dataclass(frozen=True, slots=True)
class Score:
    """The score at the fit without a component.

    Attributes
    ----------
    statistic : Q/κ
    df : ν of the χ²
    z : U divided by its standard deviation
    p_value : upper tail
    """

    statistic: float
    df: float
    z: float
    p_value: float


def score_test(stats: Statistics, null: Estimate, term: str) -> Score:
    """Return the score test of a component at the fit by REML that holds it at 0.

    Parameters
    ----------
    stats : sums of the rows
    null : the fit without the component, by REML
    term : its name

    Raises
    ------
    EstimationError
        If the engine of these data has no expected information.
    """
    from scipy.special import chdtrc

    engine = choose_engine(stats, reml=True, names=null.names[:-1])
    if "expected" not in engine.kinds:
        raise EstimationError(
            f"the score test needs the expected information, and the {engine.name} engine, which "
            "serves these data, has the average one only; use method='lrt'"
        )
    t = null.names.index(term)
    information = engine.information(null.values, "expected")
    free = np.array([name not in null.held for name in null.names]) & (null.values > 0.0)
    across = information[t, free]
    variance = float(
        information[t, t] - across @ solve_positive(information[np.ix_(free, free)], across)
    )
    # Σ_u σ²_u V_u = V and P V P = P: the row of the information gives ½ tr(P V_t).
    expectation = float(information[t] @ null.values)
    score = float(engine.derivatives(null.values).score[t])
    if not variance > 1e-12 * information[t, t]:
        raise EstimationError(
            f"at the fit without {term!r} the other components explain all that it could: its "
            "score has no variance of its own"
        )
    df = 2.0 * expectation**2 / variance
    statistic = (expectation + score) * 2.0 * expectation / variance
    return Score(statistic, df, score / np.sqrt(variance), float(chdtrc(df, max(statistic, 0.0))))
