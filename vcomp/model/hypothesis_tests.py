"""Tests of the components and of the fixed effects of a fit, and tables of fixed effects."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators import Estimate
from vcomp.estimators.likelihood import choose_engine
from vcomp.exceptions import DataError, EstimationError, check_alpha
from vcomp.inference.hypotheses import (
    ComponentFit,
    Contrasts,
    ContrastTest,
    HypothesisTest,
    JointTest,
    KenwardRoger,
    contrasts_of,
    degrees_of_freedom,
    known_components_of,
    normal_test,
    satterthwaite_of,
    t_interval,
    t_tests,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess

if TYPE_CHECKING:
    import pandas as pd

DegreesOfFreedom: TypeAlias = Literal["satterthwaite", "kenward-roger", "normal"]
DDF: tuple[DegreesOfFreedom, ...] = get_args(DegreesOfFreedom)

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


def fixed_effects(
    record: FitRecord, rows: RowAccess | None, alpha: float, ddf: str
) -> pd.DataFrame:
    """Return coefficients with their tests and intervals."""
    p = len(record.exog_names)
    if ddf == "satterthwaite" and _slopes_missing(record.estimate):
        # Stored results may have degrees of freedom, but not the slopes that contrasts need.
        check_alpha(alpha)
        found = _single_tests(record.estimate)
        return _frame(found, record.exog_names, alpha)
    contrasts = Contrasts(np.eye(p), np.zeros(p), record.exog_names)
    return _tested(record, rows, contrasts, alpha, ddf)


def contrasts_table(
    record: FitRecord, rows: RowAccess | None, hypothesis: Any, alpha: float, ddf: str
) -> pd.DataFrame:
    """Return contrasts with their tests and intervals."""
    contrasts = contrasts_of(hypothesis, record.exog_names)
    return _tested(record, rows, contrasts, alpha, ddf)


def joint_test(
    record: FitRecord, rows: RowAccess | None, hypothesis: Any, ddf: str
) -> HypothesisTest:
    """Return the test of all contrasts at once."""
    given = contrasts_of(hypothesis, record.exog_names)
    contrasts = given.independent()
    tests, L = _tests(record, rows, contrasts.L, ddf)
    found = tests.joint(L, contrasts.L @ record.estimate.beta - contrasts.constants)
    return HypothesisTest(
        term=", ".join(
            f"{name} = {value:g}" for name, value in zip(given.names, given.constants, strict=True)
        ),
        test=_WORDS[ddf],
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


def _tested(
    record: FitRecord, rows: RowAccess | None, contrasts: Contrasts, alpha: float, ddf: str
) -> pd.DataFrame:
    check_alpha(alpha)
    tests, L = _tests(record, rows, contrasts.L, ddf)
    found = tests.test(L, contrasts.L @ record.estimate.beta - contrasts.constants)
    return _frame(found, contrasts.names, alpha)


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


def _tests(
    record: FitRecord, rows: RowAccess | None, L: FloatArray, ddf: str
) -> tuple[_Tests, FloatArray]:
    """Return the tests of contrasts, and the contrasts on the scale of these tests."""
    if ddf not in DDF:
        raise EstimationError(
            f"ddf={ddf!r} is not known; degrees of freedom are {', '.join(map(repr, DDF))}"
        )
    estimate = record.estimate
    if ddf == "normal":
        return _Normal(estimate.cov_beta), L
    if ddf == "kenward-roger":
        return _kenward_roger(estimate, rows, L)
    found = satterthwaite_of(estimate)
    if found is None:
        raise _no_slopes(rows)
    return found, L


def _kenward_roger(
    estimate: Estimate, rows: RowAccess | None, L: FloatArray
) -> tuple[_Tests, FloatArray]:
    if estimate.method != "reml":
        raise EstimationError(
            "ddf='kenward-roger' corrects for components estimated by REML, not by "
            f"{estimate.method!r}; fit by method='reml', or use ddf='satterthwaite'"
        )
    if rows is None:
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
    forms = choose_engine(rows.model.statistics, reml=True).fixed_forms(v, second=True)
    if forms.second is None:
        raise EstimationError(
            "ddf='kenward-roger' needs forms that the engine of these data does not have; use "
            "ddf='satterthwaite'"
        )
    known = known_components_of(estimate)
    tests = KenwardRoger(forms, estimate.covariances["expected"], known)
    return tests, L @ rows.model.design.transform


class _Normal:
    """Tests that treat the components as known."""

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


def _no_slopes(rows: RowAccess | None) -> DataError | EstimationError:
    if rows is None:
        return DataError(
            "this result was loaded without what degrees of freedom of contrasts need; fit the "
            "model again, or use ddf='normal'"
        )
    return EstimationError(
        "this fit has no covariance of its fixed effects to take degrees of freedom from; use "
        "ddf='normal'"
    )


def component_fit(record: FitRecord, rows: RowAccess | None) -> ComponentFit:
    """Return the values that tests of a component use."""
    return ComponentFit(
        estimate=record.estimate,
        table=record.table,
        classical=record.structure.balanced and _is_closed(record),
        stats=None if rows is None else rows.model.statistics,
    )


def _is_closed(record: FitRecord) -> bool:
    """Whether the common facets of any two terms are a term, so that their spaces are orthogonal.

    Otherwise mean squares of balanced data depend on each other.
    """
    facets = record.components.facets[:-1]
    return all(not a & b or a & b in facets for a, b in combinations(facets, 2))
