"""Frames and tests of fixed effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators import Estimate
from vcomp.estimators.choose import choose_engine
from vcomp.exceptions import DataError, EstimationError, check_alpha
from vcomp.significance.contrasts import Contrasts, contrasts_of
from vcomp.significance.degrees_of_freedom import (
    degrees_of_freedom,
    known_components_of,
    satterthwaite_of,
)
from vcomp.significance.fixed_effects import (
    ContrastTest,
    JointTest,
    KenwardRoger,
    normal_test,
    t_interval,
    t_tests,
)
from vcomp.significance.outcome import HypothesisTest

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.results.fitted import FittedComponents

__all__ = [
    "contrasts",
    "fixed_effects",
    "fixed_intervals",
    "joint_test",
]

DDF = ("satterthwaite", "kenward-roger", "normal")

_WORDS = {
    "satterthwaite": "F-test with Satterthwaite's degrees of freedom",
    "kenward-roger": "F-test of Kenward and Roger",
    "normal": "Wald test, components as if known",
}


class _Tests(Protocol):
    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest: ...

    def joint(self, L: FloatArray, estimate: FloatArray) -> JointTest: ...


def fixed_intervals(estimate: Estimate, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return t-intervals of the coefficients, normal ones where there is no df."""
    check_alpha(alpha)
    se = np.sqrt(np.diagonal(estimate.cov_beta))
    return t_interval(estimate.beta, se, degrees_of_freedom(estimate), alpha)


def fixed_effects(res: FittedComponents, alpha: float, ddf: str) -> pd.DataFrame:
    """Return coefficients with their tests and intervals."""
    record = res._record
    p = len(record.exog_names)
    if ddf == "satterthwaite" and _slopes_missing(record.estimate):
        # A file may hold the degrees of freedom without what those of contrasts need.
        check_alpha(alpha)
        found = _single_tests(record.estimate)
        return _frame(found, record.exog_names, alpha)
    return _tested(res, Contrasts(np.eye(p), np.zeros(p), record.exog_names), alpha, ddf)


def contrasts(res: FittedComponents, hypothesis: Any, alpha: float, ddf: str) -> pd.DataFrame:
    """Return contrasts with their tests and intervals."""
    return _tested(res, contrasts_of(hypothesis, res._record.exog_names), alpha, ddf)


def joint_test(res: FittedComponents, hypothesis: Any, ddf: str) -> HypothesisTest:
    """Return the test of all contrasts at once."""
    given = contrasts_of(hypothesis, res._record.exog_names)
    rows = given.independent()
    tests, L = _tests(res, rows.L, ddf)
    found = tests.joint(L, rows.L @ res._record.estimate.beta - rows.constants)
    return HypothesisTest(
        term=", ".join(
            f"{name} = {value:g}" for name, value in zip(given.names, given.constants, strict=True)
        ),
        method=_WORDS[ddf],
        symbol="F",
        statistic=found.statistic,
        distribution=f"F({display.degrees_of_freedom(found.df)})",
        df=found.df,
        p_value=found.p_value,
        estimate=np.nan,
        notes=(_NO_DEGREES,) if np.isnan(found.df[1]) else (),
    )


_NO_DEGREES = (
    "The components have no covariance here, and the denominator no degrees of freedom: the "
    "p-value is that of χ²."
)


def _tested(res: FittedComponents, rows: Contrasts, alpha: float, ddf: str) -> pd.DataFrame:
    check_alpha(alpha)
    tests, L = _tests(res, rows.L, ddf)
    found = tests.test(L, rows.L @ res._record.estimate.beta - rows.constants)
    return _frame(found, rows.names, alpha)


def _frame(found: ContrastTest, names: tuple[str, ...], alpha: float) -> pd.DataFrame:
    import pandas as pd

    low, high = t_interval(found.estimate, found.std_error, found.df, alpha)
    columns = {
        "coef": found.estimate,
        "std_error": found.std_error,
        "df": found.df,
        "t": found.t,
        "p_value": found.p_value,
        "ci_low": low,
        "ci_high": high,
    }
    return pd.DataFrame(columns, index=pd.Index(list(names), name="term", dtype=object))


def _tests(res: FittedComponents, L: FloatArray, ddf: str) -> tuple[_Tests, FloatArray]:
    """Return what tests contrasts, and the contrasts on the scale that it works on."""
    if ddf not in DDF:
        raise EstimationError(
            f"ddf={ddf!r} is not known; degrees of freedom are {', '.join(map(repr, DDF))}"
        )
    estimate = res._record.estimate
    if ddf == "normal":
        return _Normal(estimate.cov_beta), L
    if ddf == "kenward-roger":
        return _kenward_roger(res, L)
    found = satterthwaite_of(estimate)
    if found is None:
        _refuse_slopes(res)
    assert found is not None
    return found, L


def _kenward_roger(res: FittedComponents, L: FloatArray) -> tuple[_Tests, FloatArray]:
    estimate, model = res._record.estimate, res.model
    if estimate.method != "reml":
        raise EstimationError(
            "ddf='kenward-roger' corrects for components estimated by REML, not by "
            f"{estimate.method!r}; fit by method='reml', or use ddf='satterthwaite'"
        )
    if model is None:
        raise DataError(
            "this result was loaded without its rows, which ddf='kenward-roger' needs; fit the "
            "model again, or use ddf='satterthwaite'"
        )
    if "expected" not in estimate.covariances:
        raise EstimationError(
            "ddf='kenward-roger' needs the expected information, which the engine of this fit "
            f"({estimate.engine.partition(':')[0]}) does not have; use ddf='satterthwaite', or "
            "fit with engine='blocked'"
        )
    v = np.array(estimate.values)
    if not v[-1] > 0.0:
        raise EstimationError("ddf='kenward-roger' needs a positive residual component")
    forms = choose_engine(model.statistics, reml=True).fixed_forms(v, second=True)
    if forms.second is None:
        raise EstimationError(
            "ddf='kenward-roger' needs forms that the engine of these data does not have; use "
            "ddf='satterthwaite'"
        )
    known = known_components_of(estimate)
    tests = KenwardRoger(forms, estimate.covariances["expected"], known)
    return tests, L @ model.design.transform


class _Normal:
    """Tests that take the components as known."""

    def __init__(self, cov_beta: FloatArray) -> None:
        self._cov_beta = cov_beta

    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest:
        return normal_test(L, estimate, self._cov_beta)

    def joint(self, L: FloatArray, estimate: FloatArray) -> JointTest:
        from scipy.special import chdtrc

        wald = float(estimate @ np.linalg.solve(L @ self._cov_beta @ L.T, estimate))
        q = float(L.shape[0])
        return JointTest(wald / q, (q, np.inf), float(chdtrc(q, wald)))


def _single_tests(estimate: Estimate) -> ContrastTest:
    se = np.sqrt(np.diagonal(estimate.cov_beta))
    return t_tests(estimate.beta, se, degrees_of_freedom(estimate))


def _slopes_missing(estimate: Estimate) -> bool:
    return estimate.fixed_errors is None or estimate.fixed_errors.slopes is None


def _refuse_slopes(res: FittedComponents) -> None:
    if res.model is None:
        raise DataError(
            "this result was loaded without what degrees of freedom of contrasts need; fit the "
            "model again, or use ddf='normal'"
        )
    raise EstimationError(
        "this fit has no covariance of its fixed effects to take degrees of freedom from; use "
        "ddf='normal'"
    )
