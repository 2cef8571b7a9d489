"""Tests of contrasts of the fixed effects, with the choice of their degrees of freedom, as tables.

Section 11 of docs/explanation/mathematics.md; the tests are in
:mod:`~vcomp.inference.hypotheses.fixed_effects`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.design import Design
from vcomp.estimators import Estimate
from vcomp.estimators.likelihood import MatricesLikelihood, choose_engine
from vcomp.exceptions import DataError, EstimationError, check_alpha
from vcomp.formula import FixedPart
from vcomp.inference.hypotheses.clustered_tests import Clustered
from vcomp.inference.hypotheses.fixed_effects import (
    ContrastTest,
    JointTest,
    KenwardRoger,
    Satterthwaite,
    degrees_of_freedom,
    satterthwaite_of,
    t_interval,
    t_tests,
    uncertain_components,
)
from vcomp.inference.quantities import NOT_CONVERGED, LevelVariances, VarianceComponents
from vcomp.numerics import slices
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.hypotheses.matrix_tests import HypothesisTest

DegreesOfFreedom: TypeAlias = Literal["satterthwaite", "unbounded", "kenward-roger", "normal"]
_DDF: tuple[DegreesOfFreedom, ...] = get_args(DegreesOfFreedom)

CovarianceOfFixed: TypeAlias = Literal["model", "robust"]
_COVARIANCES: tuple[CovarianceOfFixed, ...] = get_args(CovarianceOfFixed)

_WORDS = {
    "satterthwaite": "F-test with Satterthwaite's degrees of freedom",
    "unbounded": "F-test with Satterthwaite's degrees of freedom, at upper limits",
    "kenward-roger": "F-test of Kenward and Roger",
    "normal": "Wald test, components as if known",
}

_ROBUST = "F-test with variances from the rows"

_ELEMENTS = 2**20
"""Elements of the contrasts that are tested at once."""

_FEW = "Facets with few levels, in which rows are correlated as in the model: {}."

_VANISHING = 1e-6
"""Share of the largest component below which the residual of a saturated fit goes to zero."""

_NO_DEGREES = (
    "The components have no covariance matrix, so that the denominator has no degrees of "
    "freedom: the p-value is that of χ²."
)

_NO_CORRECTION = (
    "The correction of Kenward and Roger needs a covariance matrix of the components with which "
    "that of the fixed effects is positive definite, and this fit has none: use "
    "ddf='satterthwaite' or 'normal'."
)


@dataclass(frozen=True, slots=True)
class FixedFit:
    """The parts of a fit that tests of its fixed effects need.

    Attributes
    ----------
    estimate : with the fixed effects on the scale of the data
    names : of the fixed effects
    stats : sums of the rows, None after loading
    design : of the rows; None after loading
    components : of the fit
    levels : computes the products of the contributions of rows to the fixed effects
    left_out : names of columns that are linear combinations of others, and have no effect
    """

    estimate: Estimate
    names: tuple[str, ...]
    stats: Statistics | None
    design: Design | None
    components: VarianceComponents
    levels: Callable[[], LevelVariances]
    left_out: tuple[str, ...] = ()

    def table(self, alpha: float, ddf: str, cov_type: str = "model") -> pd.DataFrame:
        """Return the fixed effects with their tests and intervals.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        ddf : one of :data:`DegreesOfFreedom`
        cov_type : one of :data:`CovarianceOfFixed`

        Raises
        ------
        EstimationError
            If the degrees of freedom or the covariance matrix are not known, or not available for
            this fit.
        DataError
            If they need the rows, and the result was loaded without them.
        PlanError
            If alpha is not between 0 and 1.
        """
        estimate, p = self.estimate, len(self.names)
        errors = estimate.fixed_errors
        no_slopes = errors is None or errors.slopes is None
        if cov_type == "model" and (ddf == "normal" or (ddf == "satterthwaite" and no_slopes)):
            # Stored results may have degrees of freedom, but not the slopes that contrasts need.
            check_alpha(alpha)
            se = np.sqrt(np.maximum(estimate.cov_beta.diagonal(), 0.0))
            df = np.full(p, np.inf) if ddf == "normal" else degrees_of_freedom(estimate)
            return _frame(t_tests(estimate.beta, se, df), self.names, alpha)
        whole = Contrasts(np.eye(p), np.zeros(p), self.names)
        return self._tested(whole, alpha, ddf, cov_type)

    def t_test(
        self, hypothesis: Any, alpha: float, ddf: str, cov_type: str = "model"
    ) -> pd.DataFrame:
        """Return contrasts with their tests and intervals.

        Parameters
        ----------
        hypothesis : as for :func:`contrasts_of`
        alpha, ddf, cov_type : as for :meth:`table`, with the same errors
        """
        return self._tested(
            contrasts_of(hypothesis, self.names, self.left_out, self.estimate.names),
            alpha,
            ddf,
            cov_type,
        )

    def f_test(self, hypothesis: Any, ddf: str, cov_type: str = "model") -> HypothesisTest:
        """Return the test of several contrasts at once.

        Parameters
        ----------
        hypothesis : as for :func:`contrasts_of`
        ddf, cov_type : as for :meth:`table`, with the same errors
        """
        given = contrasts_of(hypothesis, self.names, self.left_out, self.estimate.names)
        units = np.sqrt(np.maximum(self.estimate.cov_beta.diagonal(), 0.0))
        contrasts = given.independent(units)
        tests, L = self._tests(contrasts.L, ddf, cov_type)
        found = tests.joint(L, contrasts.L @ self.estimate.beta - contrasts.constants)
        pairs = zip(given.names, given.constants, strict=True)
        term = ", ".join(f"{name} = {value:g}" for name, value in pairs)
        return self.as_result(found, term, ddf, cov_type)

    def of_rows(self, X: FloatArray, alpha: float, ddf: str, cov_type: str) -> pd.DataFrame:
        """Return combinations of the fixed effects with their tests and intervals.

        Parameters
        ----------
        X : (k, p) combinations
        alpha, ddf, cov_type : as for :meth:`table`, with the same errors
        """
        names = tuple(map(str, range(len(X))))
        return self._tested(Contrasts(X, np.zeros(len(X)), names), alpha, ddf, cov_type)

    def joint(self, L: FloatArray, ddf: str, cov_type: str) -> JointTest:
        """Return the test of all contrasts of a term at once.

        Parameters
        ----------
        L : (m, p) linearly independent contrasts; nan is the test of none
        ddf, cov_type : as for :meth:`table`, with the same errors
        """
        tests, own = self._tests(L, ddf, cov_type)
        if not len(L):
            return JointTest(np.nan, (0.0, np.nan), np.nan)
        return tests.joint(own, L @ self.estimate.beta, is_term=True)

    def as_result(
        self, found: JointTest, term: str, ddf: str, cov_type: str, notes: Sequence[str] = ()
    ) -> HypothesisTest:
        """Return a test of fixed effects as users have it.

        Parameters
        ----------
        found : the test
        term : what it tests, in words
        ddf, cov_type : as for :meth:`table`
        notes : further sentences
        """
        # Deferred for start-up time: it imports the refits of simulated tests.
        from vcomp.inference.hypotheses.matrix_tests import HypothesisTest

        return HypothesisTest(
            term=term,
            test=_ROBUST if cov_type == "robust" else _WORDS[ddf],
            symbol="F",
            statistic=found.statistic,
            distribution=f"F({display.degrees_of_freedom(found.df)})",
            df=found.df,
            p_value=found.p_value,
            estimate=np.nan,
            notes=(*notes, *self._notes(found, ddf, cov_type)),
        )

    def differences(
        self,
        X: FloatArray,
        pairs: tuple[LongArray, LongArray],
        ddf: str,
        cov_type: str = "model",
    ) -> tuple[ContrastTest, Callable[[], FloatArray]]:
        """Return t-tests of differences between combinations of the fixed effects.

        Parameters
        ----------
        X : (k, p) combinations, such as those of the levels of a factor
        pairs : (m,) first and (m,) second combination of each difference
        ddf, cov_type : as for :meth:`table`, with the same errors

        Returns
        -------
        tests : of the m differences
        covariance : returns their covariance matrix, (m, m)
        """
        tests, L = self._tests(X, ddf, cov_type)
        i, j = pairs
        if isinstance(tests, Satterthwaite) and i.size > len(L):
            # A solve for each combination, and none for the pairs.
            own = tests.of_combinations(L)
            tests, L = (tests, L) if own is None else (own, np.eye(len(L)))
        estimate = np.empty(i.size)
        tested = []
        for part in slices(i.size, max(1, _ELEMENTS // max(X.shape[1], 1))):
            first, second = i[part], j[part]
            estimate[part] = (X[first] - X[second]) @ self.estimate.beta
            tested.append(tests.test(L[first] - L[second], estimate[part]))

        def covariance() -> FloatArray:
            rows = L[i] - L[j]
            return rows @ tests.cov_beta @ rows.T

        joined = {
            field.name: np.concatenate([getattr(test, field.name) for test in tested])
            for field in fields(ContrastTest)
        }
        return ContrastTest(**joined), covariance

    def error_slopes(self, X: FloatArray, pairs: tuple[LongArray, LongArray]) -> FloatArray | None:
        """Return the derivatives of error variances of differences by the components, (k + 1,).

        They are summed over the pairs. Cov(β̂) is homogeneous of degree 1 in the components, so
        that a component times its derivative is its part of the variance.

        Parameters
        ----------
        X, pairs : as of :meth:`differences`

        Returns
        -------
        None if they are not known
        """
        tests = satterthwaite_of(self.estimate)
        if tests is None or tests.slopes is None:
            return None
        between = np.zeros((len(X), len(X)))
        np.add.at(between, pairs, 1.0)
        between += between.T
        squares = X.T @ (between.sum(axis=1)[:, None] * X - between @ X)
        return np.einsum("tij,ji->t", tests.slopes, squares)

    def _notes(self, found: JointTest, ddf: str, cov_type: str) -> tuple[str, ...]:
        notes = []
        if np.isnan(found.df[1]):
            notes = [_NO_CORRECTION if ddf == "kenward-roger" else _NO_DEGREES]
        if not self.estimate.converged:
            notes.append(display.sentence(NOT_CONVERGED))
        few = self.levels().few if cov_type == "robust" else {}
        if few:
            listed = ", ".join(f"{facet} ({n})" for facet, n in sorted(few.items()))
            notes.append(_FEW.format(listed))
        return tuple(notes)

    def _tested(self, contrasts: Contrasts, alpha: float, ddf: str, cov_type: str) -> pd.DataFrame:
        check_alpha(alpha)
        tests, L = self._tests(contrasts.L, ddf, cov_type)
        found = tests.test(L, contrasts.L @ self.estimate.beta - contrasts.constants)
        return _frame(found, contrasts.names, alpha)

    def _tests(
        self, L: FloatArray, ddf: str, cov_type: str
    ) -> tuple[Satterthwaite | KenwardRoger | Clustered, FloatArray]:
        """Return the tests of contrasts, and the contrasts on the scale of these tests."""
        if ddf not in _DDF:
            raise EstimationError(
                f"ddf={ddf!r} is not known; degrees of freedom are {', '.join(map(repr, _DDF))}"
            )
        if cov_type not in _COVARIANCES:
            raise EstimationError(
                f"cov_type={cov_type!r} is not known; covariance matrices of fixed effects are "
                f"{', '.join(map(repr, _COVARIANCES))}"
            )
        if cov_type == "robust":
            return self._robust(ddf), L
        if ddf == "normal":
            return Satterthwaite.normal(self.estimate.cov_beta), L
        if ddf == "kenward-roger":
            return self._kenward_roger(L)
        found = satterthwaite_of(self.estimate, self.components if ddf == "unbounded" else None)
        if found is not None:
            return found, L
        if self.stats is None:
            raise DataError(
                "this result was loaded without the slopes that degrees of freedom of contrasts "
                "need; fit the model again, or use ddf='normal'"
            )
        raise EstimationError(
            "this fit has no covariance matrix of its fixed effects, from which degrees of "
            "freedom follow; use ddf='normal'"
        )

    def _robust(self, ddf: str) -> Clustered:
        """Return tests with variances from the rows, eq. (11.10)."""
        if ddf == "kenward-roger":
            raise EstimationError(
                "ddf='kenward-roger' corrects the covariance matrix of the model; with "
                "cov_type='robust' use ddf='satterthwaite' or 'normal'"
            )
        estimate = self.estimate
        errors = estimate.fixed_errors
        facets = self.components.facets[: -self.components.n_residuals]
        values = estimate.values[: len(facets)]
        if errors is None or not errors.keeps_negative:
            values = np.maximum(values, 0.0)
        model = satterthwaite_of(estimate, self.components if ddf == "unbounded" else None)
        _, has_covariates = FixedPart(self.names).factor_columns
        found = Clustered.of(self.levels(), facets, values, model, has_covariates)
        return found.as_known() if ddf == "normal" else found

    def _kenward_roger(self, L: FloatArray) -> tuple[KenwardRoger, FloatArray]:
        estimate = self.estimate
        if estimate.method != "reml":
            raise EstimationError(
                "ddf='kenward-roger' corrects for components estimated by REML, not by "
                f"{estimate.method!r}; fit by method='reml', or use ddf='satterthwaite'"
            )
        if self.stats is None or self.design is None:
            raise DataError(
                "this result was loaded without its rows, which ddf='kenward-roger' needs; fit "
                "the model again, or use ddf='satterthwaite'"
            )
        if "expected" not in estimate.covariances:
            raise EstimationError(
                "ddf='kenward-roger' needs the expected information, which the engine of this fit "
                f"({estimate.engine.partition(':')[0]}) does not have; use ddf='satterthwaite', "
                "or fit with engine='blocked'"
            )
        v = np.array(estimate.values)
        if not v[-1] > 0.0:
            raise EstimationError("ddf='kenward-roger' needs a positive residual component")
        if self.stats.blocks is not None:
            likelihood = MatricesLikelihood(self.stats, reml=True)
            forms = likelihood.fixed_forms(likelihood.matrices_of(v), second=True)
        else:
            try:
                forms = choose_engine(self.stats).fixed_forms(v, second=True)
            except EstimationError as error:
                raise EstimationError(
                    f"ddf='kenward-roger': {error}; use ddf='satterthwaite'"
                ) from None
        if forms.second is None:
            raise EstimationError(
                "ddf='kenward-roger' needs forms that the engine of these data does not have; use "
                "ddf='satterthwaite'"
            )
        covariance, known = uncertain_components(estimate, "expected", bounds=False)
        own = next(iter(estimate.covariances.values()))
        free = ~known & (estimate.values > 0.0)
        certificate = estimate.certificate
        is_saturated = certificate is not None and certificate.saturated
        vanishes = is_saturated and v[-1] < _VANISHING * v.max()
        if vanishes or np.isnan(own[np.ix_(free, free)]).any():
            # Where the observed information has no inverse, or the residual goes to zero, the
            # inverse of the expected one says nothing.
            covariance = np.full_like(covariance, np.nan)
        return KenwardRoger(forms, covariance, known), L @ self.design.transform


def fixed_intervals(estimate: Estimate, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return t-intervals of the fixed effects, normal ones if there are no degrees of freedom.

    Parameters
    ----------
    estimate : with p fixed effects
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    (p,) lower and (p,) upper ends

    Raises
    ------
    PlanError
        If alpha is not between 0 and 1.
    """
    check_alpha(alpha)
    se = np.sqrt(estimate.cov_beta.diagonal())
    return t_interval(estimate.beta, se, degrees_of_freedom(estimate), alpha)


def _frame(found: ContrastTest, names: tuple[str, ...], alpha: float) -> pd.DataFrame:
    import pandas as pd

    low, high = t_interval(found.estimate, found.std_error, found.df, alpha)
    columns = {
        "coef": found.estimate,
        "std_error": found.std_error,
        "df": found.df,
        "t": found.t,
        "p_value": found.p_value,
        "low": low,
        "high": high,
    }
    return pd.DataFrame(columns, index=pd.Index(list(names), name="term", dtype=object))


_DEPENDENT = 1e-10
"""Of rows in standard errors, which have length 1: what a dependent row keeps of its own."""


@dataclass(frozen=True, slots=True)
class Contrasts:
    """The hypothesis L β = c.

    Attributes
    ----------
    L : (m, p)
    constants : (m,) c
    names : of the rows, such as ``"x - z"``
    """

    L: FloatArray
    constants: FloatArray
    names: tuple[str, ...]

    def independent(self, units: FloatArray | float = 1.0) -> Contrasts:
        """Return the same hypothesis without rows that depend on rows before them.

        Parameters
        ----------
        units : (p,) of the coefficients, such as their standard errors

        Raises
        ------
        EstimationError
            If the rows contradict each other.
        """
        L = self.L * np.where(np.asarray(units) > 0.0, units, 1.0)
        scale = np.linalg.norm(L, axis=1)
        rows, values = L / scale[:, None], self.constants / scale
        kept: list[int] = []
        for place, row in enumerate(rows):
            weights = np.linalg.lstsq(rows[kept].T, row, rcond=None)[0]
            implied = weights * values[kept]
            if np.linalg.norm(row - weights @ rows[kept]) > _DEPENDENT:
                kept.append(place)
            elif abs(values[place] - implied.sum()) > 1e-8 * np.abs(implied).max(initial=0.0):
                raise EstimationError(
                    f"the contrasts {', '.join(self.names)} contradict each other: "
                    f"{self.names[place]} = {self.constants[place]:g} is inconsistent with those "
                    "before it"
                )
        names = tuple(self.names[place] for place in kept)
        return Contrasts(self.L[kept], self.constants[kept], names)


def contrasts_of(
    hypothesis: Any,
    names: tuple[str, ...],
    left_out: tuple[str, ...] = (),
    components: tuple[str, ...] = (),
) -> Contrasts:
    """Return the contrasts that a matrix or a text describes.

    Parameters
    ----------
    hypothesis : (p,) or (m, p) numbers; or text as in statsmodels, ``"x = z"`` or
        ``"x, z = 1"``
    names : of the fixed effects
    left_out : names of columns that are linear combinations of others, which a text cannot test
    components : names of the components, which have tests of their own

    Raises
    ------
    EstimationError
        If it has another shape or unknown names, or a row is zero; or if it is about a column that
        was left out.

    Examples
    --------
    >>> contrasts_of("x = z", ("Intercept", "x", "z")).L.tolist()
    [[0.0, 1.0, -1.0]]
    """
    from patsy import DesignInfo, PatsyError

    if not names:
        raise EstimationError("this model has no fixed effects, so there are no contrasts")
    known = (*names, *left_out) if isinstance(hypothesis, str) else names
    try:
        found = DesignInfo(list(known)).linear_constraint(hypothesis)
    except (PatsyError, ValueError, TypeError) as error:
        _refuse_whole_term(hypothesis, names, components)
        reason = str(error).splitlines()[0]
        raise EstimationError(
            f"{hypothesis!r} is not a contrast of the {len(names)} fixed effects "
            f"{', '.join(names)}: {reason}; give a row of numbers for each contrast, or text such "
            f"as '{names[-1]} = 0'"
        ) from None
    L, values = np.asarray(found.coefs, dtype=float), np.asarray(found.constants, dtype=float)
    L, others = L[:, : len(names)], L[:, len(names) :]
    if others.any():
        absent = left_out[int(np.argmax(others.any(axis=0)))]
        raise EstimationError(
            f"{absent!r} was left out of the fixed part, as a linear combination of other columns "
            f"in these rows: it has no coefficient to test; those with one are {', '.join(names)}"
        )
    if not (np.isfinite(L).all() and np.isfinite(values).all()):
        raise EstimationError("contrasts must be finite numbers")
    zero = ~L.any(axis=1)
    if zero.any():
        raise EstimationError(f"row {int(np.argmax(zero)) + 1} of the contrasts is zero")
    labels = tuple(_label(row, names) for row in L)
    return Contrasts(L, values.ravel() + 0.0, labels)  # patsy's zero is negative


def _refuse_whole_term(
    hypothesis: Any, names: tuple[str, ...], components: tuple[str, ...]
) -> None:
    """Refuse the name of a factor or of a random term, with the calls that test it.

    Raises
    ------
    EstimationError
    """
    if not isinstance(hypothesis, str):
        return
    term = hypothesis.strip()
    columns = columns_of_term(term, names)
    if columns:
        contrasts = ", ".join(f"{name} = 0" for name in columns)
        raise EstimationError(
            f"{term!r} is a term and not a column of the fixed part. Its columns are tested by "
            f"{contrasts!r}, and the whole by res.f_test({term!r})",
            term=term,
        )
    if term in components:
        raise EstimationError(
            f"{term!r} is a random term, not one of the fixed effects {', '.join(names)}; "
            f"res.test({term!r}) tests whether its component is 0",
            term=term,
        )


def columns_of_term(term: str, names: tuple[str, ...]) -> list[str]:
    """Return the columns that a term seems to have, by their names."""
    return [name for name in names if _term_of(name) == _term_of(term)]


def _term_of(name: str) -> str:
    """Return the term of a column: without levels, and C() around factors."""
    return re.sub(r"\bC\(\s*(\w+)[^()]*\)", r"\1", re.sub(r"\[[^\]]*\]", "", name))


def _label(row: FloatArray, names: tuple[str, ...]) -> str:
    parts: list[str] = []
    for weight, name in zip(row, names, strict=True):
        if weight == 0.0:
            continue
        size = "" if abs(weight) == 1.0 else f"{abs(weight):g} "
        sign = "-" if weight < 0.0 else "+"
        first = f"-{size}{name}" if weight < 0.0 else f"{size}{name}"
        parts.append(f" {sign} {size}{name}" if parts else first)
    return "".join(parts)
