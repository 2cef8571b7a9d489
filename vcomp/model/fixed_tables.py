"""Frames and tests of fixed effects."""

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
    ComparedFit,
    ComponentFit,
    Contrasts,
    ContrastTest,
    HypothesisTest,
    JointTest,
    KenwardRoger,
    Simulation,
    TestName,
    component_test,
    contrasts_of,
    degrees_of_freedom,
    known_components_of,
    normal_test,
    satterthwaite_of,
    t_interval,
    t_tests,
)
from vcomp.model.fitted import FittedComponents

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.record import FitRecord

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


def contrasts_table(
    res: FittedComponents, hypothesis: Any, alpha: float, ddf: str
) -> pd.DataFrame:
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


def component_fit(res: FittedComponents) -> ComponentFit:
    """Return what tests of a component need of a result."""
    record, model = res._record, res.model
    return ComponentFit(
        estimate=record.estimate,
        table=record.table,
        classical=record.structure.balanced and _is_closed(record),
        stats=None if model is None else model.statistics,
    )


def compared_fit(res: FittedComponents) -> ComparedFit:
    """Return what a comparison with other models needs of a result."""
    record, model = res._record, res.model
    return ComparedFit(
        formula=record.formula,
        response=record.response,
        estimate=record.estimate,
        exog_names=record.exog_names,
        nobs=record.structure.n_rows,
        response_sums=record.response_sums,
        stats=None if model is None else model.statistics,
    )


def _is_closed(record: FitRecord) -> bool:
    """Whether with two terms what both are finer than is a term too: their spaces are orthogonal.

    Balanced data whose terms are not have mean squares that depend on each other.
    """
    facets = record.components.facets[:-1]
    return all(not a & b or a & b in facets for a, b in combinations(facets, 2))


class Hypotheses(FittedComponents):
    """Tests of components, and tables and tests of fixed effects."""

    def test(
        self,
        term: str,
        test: TestName = "auto",
        *,
        n: int = 1000,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
    ) -> HypothesisTest:
        """Return a test of whether the component of a term is 0; ``print`` it.

        Parameters
        ----------
        term : name of a component
        test :

            ``"f"``
                ratio of mean squares with equal expectations if the component is 0: exact in
                balanced data, and for terms without a finer one in any (Wald 1947). Where only
                sums of several mean squares have the expectation, and the data are balanced, an
                approximate one that says so
            ``"lrt"``
                likelihood ratio, restricted after REML, against ½χ²₀ + ½χ²₁ (Self & Liang 1987):
                for many levels
            ``"simulated"``
                the same ratio against data drawn at the fit without the component
            ``"score"``
                restricted score at the fit without the component (Zhang & Lin 2003)
            ``"auto"``
                the exact F if there is one; else ``"simulated"`` where that is cheap (orthogonal
                strata, or up to 500 effects and 20,000 rows), else ``"lrt"``. After closed forms
                the F. The outcome says which and why
        n : number of data sets that a simulated test (which ``"auto"`` may choose) draws; the
            p-value has its Monte Carlo standard error
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
        workers : threads; the numbers are the same for any number of them

        Raises
        ------
        EstimationError
            If there is no such component, it is held, or the test does not apply here.
        DataError
            If the test needs the rows of a result that was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> print(res.test("sys"))
        sys: F = 5.247, p = 0.0226; exact F-test, F(4, 8).
        F is MS(sys) / MS(Residual), whose expectations are equal if the component is 0.
        Chosen as it is exact.
        """
        simulation = Simulation(n, rng, workers)
        return component_test(component_fit(self), term, test, simulation)

    def fixed_effects(
        self, alpha: float = 0.05, ddf: DegreesOfFreedom = "satterthwaite"
    ) -> pd.DataFrame:
        """Return a row a fixed effect: coef, std_error, df, t, p_value, ci_low, ci_high.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        ddf : degrees of freedom of t: ``"satterthwaite"`` (Giesbrecht & Burns 1985; as lmerTest),
            ``"kenward-roger"`` (1997, with its standard errors; after REML, by engines that
            factor) or ``"normal"``, the components as if known. df is ∞ where the normal
            distribution serves, and nan where it has to as the components have no covariance

        Raises
        ------
        EstimationError
            If ``ddf`` is not known, or the fit does not have it.
        PlanError
            If alpha is not between 0 and 1.
        """
        return fixed_effects(self, alpha, ddf)

    def t_test(
        self, contrasts: Any, alpha: float = 0.05, ddf: DegreesOfFreedom = "satterthwaite"
    ) -> pd.DataFrame:
        """Return a row a contrast Lβ = c of the fixed effects, as :meth:`fixed_effects` does.

        Parameters
        ----------
        contrasts : rows of numbers, one a fixed effect; or text such as ``"x = z"``
        alpha, ddf : as for :meth:`fixed_effects`; ``coef`` is Lβ̂ − c

        Raises
        ------
        EstimationError
            If they are no contrasts of these fixed effects, or the fit does not have ``ddf``.
        """
        return contrasts_table(self, contrasts, alpha, ddf)

    def f_test(self, contrasts: Any, ddf: DegreesOfFreedom = "satterthwaite") -> HypothesisTest:
        """Return the F-test of several contrasts Lβ = c of the fixed effects at once.

        Degrees of freedom of the denominator are those of Fai and Cornelius (1996), as in
        lmerTest; with ``ddf="kenward-roger"`` F is scaled.

        Parameters
        ----------
        contrasts : rows of numbers, one a fixed effect; or text such as ``"x = z, x = 1"``
        ddf : as for :meth:`fixed_effects`

        Raises
        ------
        EstimationError
            As for :meth:`t_test`, or if the contrasts contradict each other.
        """
        return joint_test(self, contrasts, ddf)
