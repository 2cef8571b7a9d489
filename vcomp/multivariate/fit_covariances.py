"""The fit of several dependent variables, from the scores to the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import Missing
from vcomp.estimators.likelihood import (
    ConeMaximum,
    MatrixLikelihood,
    covariance_in_cone,
    elements,
    maximise_in_cone,
    positive_part,
)
from vcomp.exceptions import EstimationError, did_you_mean, guarded, is_real, is_whole, warn
from vcomp.formula import caller_environment
from vcomp.multivariate.analogous import (
    analogous_components,
    analogous_covariance,
    find_axis,
)
from vcomp.multivariate.estimate_record import Ending, Found, record_of
from vcomp.multivariate.mixed_equations import EquationsLikelihood
from vcomp.multivariate.multivariate_results import MultivariateResults
from vcomp.multivariate.strata_covariances import (
    MeanProductsLikelihood,
    Strata,
    check_residual,
    columns_of,
    find_strata,
    polarised_components,
    polarised_covariance,
)
from vcomp.multivariate.variables import VariableLayout, lay_out, read_scores
from vcomp.numerics import is_positive

_LEAST = 1e-10
"""Floor of the eigenvalues of the residual correlations that decorrelate the scores."""

_ROUNDS = 5
"""Rounds of subtracting group means: residuals that only set a scale need not be exact."""


def uncorrelated(layout: VariableLayout) -> tuple[FloatArray, FloatArray | None]:
    """Return L and scores x with y = L x whose residuals are nearly uncorrelated, (v, v) and (n,).

    Variables that measure nearly the same have a nearly singular residual matrix, and digits are
    lost in its inverse. If all variables were observed together, linear combinations of them have
    the same likelihood up to a constant, and L is lower triangular; otherwise L is a diagonal
    matrix of standard deviations, and x is None.
    """
    scale = np.diag(layout.scale)
    if not layout.same_rows:
        return scale, None
    scores, Y = layout.scores, columns_of(layout)
    rest = _without_terms(layout, Y)
    S = rest.T @ rest / len(rest)
    if not (np.diagonal(S) > 0.0).all():
        return scale, None
    C = _lower(S)
    X = np.linalg.solve(C, Y.T).T
    rows = scores.unit[scores.of(0)]
    place = np.empty(scores.n_units, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    L: FloatArray = scale @ C
    return L, np.asarray(X[place[scores.unit], scores.variable])


def uncorrelated_strata(strata: Strata) -> tuple[FloatArray, Strata]:
    """Return L and mean products of x with y = L x whose residuals are uncorrelated, (v, v).

    Parameters
    ----------
    strata : with residuals that have a positive definite matrix
    """
    L = _lower(strata.products[-1])
    inverse = np.linalg.inv(L)
    return L, replace(strata, products=inverse @ strata.products @ inverse.T)


def _lower(S: FloatArray) -> FloatArray:
    """Return L with LL' = S, or approximately if S is singular."""
    spread = np.sqrt(np.diagonal(S))
    C = np.linalg.cholesky(positive_part(S / np.outer(spread, spread), _LEAST))
    return np.asarray(C * spread[:, None])


def _without_terms(layout: VariableLayout, Y: FloatArray) -> FloatArray:
    """Return columns after several rounds of subtracting the means of every term's groups."""
    rows, rest = layout.scores.of(0), Y - Y.mean(axis=0)
    for _ in range(_ROUNDS):
        for groups, size in zip(layout.groups[:-1], layout.sizes[:-1], strict=True):
            codes = groups[rows]
            n = np.bincount(codes, minlength=size)[:, None]
            sums = np.stack([np.bincount(codes, x, size) for x in rest.T], axis=1)
            rest = rest - (sums / np.maximum(n, 1))[codes]
    return np.asarray(rest)


def element_map(layout: VariableLayout, L: FloatArray) -> FloatArray:
    """Return the derivatives of the elements of L Σ L' with respect to those of Σ, (m, m).

    Parameters
    ----------
    layout : with the elements
    L : (v, v), diagonal if not all variables are linked
    """
    places = elements(layout.linked)
    t, a, b = np.array(places).T
    same = t[:, None] == t[None, :]
    derivatives = L[a[:, None], a[None, :]] * L[b[:, None], b[None, :]]
    across = L[a[:, None], b[None, :]] * L[b[:, None], a[None, :]]
    return np.asarray(np.where(same, derivatives + np.where((a != b)[None, :], across, 0.0), 0.0))


Method: TypeAlias = Literal["reml", "ml", "anova", "type1", "henderson3"]
METHODS: tuple[Method, ...] = get_args(Method)
"""The methods for several variables."""

_START = 1e-2
"""Largest floor of the eigenvalues of the starting matrices, in units of the variances. With many
scores, which make the closed form more accurate, it is lower."""


@guarded
def fit_multivariate(
    formula: str,
    data: Any = None,
    *,
    variable: str | None = None,
    responses: Sequence[str] | None = None,
    independent: str | Sequence[str] = (),
    method: Method = "reml",
    missing: Missing = "drop",
    eval_env: Any = 0,
    max_iter: int = 200,
    tol: float = 1e-9,
) -> MultivariateResults:
    """Estimate variance and covariance components of several dependent variables.

    Every term of the design has a matrix Σ of the variables' variances and covariances. A facet
    whose levels the variables share is linked (Brennan's •); a facet of which every variable has
    its own levels is independent (°) and has no covariances. Persons are linked over subtests,
    and items are independent. The levels in the data decide which facets are linked.

    Parameters
    ----------
    formula : with several responses, ``"verbal + maths ~ (1|p) + (1|i)"``, for data with a column
        for each; scores in one row belong together. Or with one response, and `variable`
    data : as for :func:`vcomp.fit`
    variable : the column with the variable of each score, for scores in one column
    responses : the columns of the variables, which replace the left side of the formula
    independent : facets of which every variable has its own levels, even if labels are the same
    method : ``"reml"`` (default) or ``"ml"`` over positive semidefinite matrices; ``"anova"``,
        sums of products and their expectations, for any data; ``"type1"`` or ``"henderson3"`` for
        variables that were observed together
    missing : ``"drop"`` missing scores and warn, or ``"raise"``
    eval_env : as in :func:`vcomp.fit`
    max_iter, tol : of REML and ML: the largest number of steps, and the Newton decrement at which
        they end

    Returns
    -------
    MultivariateResults

    Raises
    ------
    FormulaError, DataError, DesignError
        If something cannot be read, found or estimated; the message begins with the variable if it
        concerns one.
    EstimationError
        If the method is not known or does not apply to these data.

    Warns
    -----
    VcompWarning
        If scores were missing, or the estimation did not converge.

    References
    ----------
    Brennan (2001), Generalizability Theory, chaps. 9 to 12; Cronbach, Gleser, Nanda and
    Rajaratnam (1972), The Dependability of Behavioral Measurements, chaps. 9 and 10.

    Examples
    --------
    A table of specifications: persons answer four verbal and six maths items.

    >>> import numpy as np, pandas as pd, vcomp
    >>> rng = np.random.default_rng(1)
    >>> ability = rng.multivariate_normal([0, 0], [[1.0, 0.6], [0.6, 0.8]], 100)
    >>> rows = [
    ...     (test, p, f"{test} {i}", ability[p, k] + rng.normal())
    ...     for k, (test, n) in enumerate({"verbal": 4, "maths": 6}.items())
    ...     for p in range(100) for i in range(n)
    ... ]
    >>> data = pd.DataFrame(rows, columns=["test", "p", "i", "score"])
    >>> res = vcomp.fit_multivariate("score ~ (1|p) + (1|i)", data, variable="test")
    >>> res.matrix("p").round(2)
            maths  verbal
    maths    0.79    0.61
    verbal   0.61    0.76
    >>> plans = res.dstudy(weights={"verbal": 0.4, "maths": 0.6}, i={"verbal": 8, "maths": 12})
    >>> plans.table[["score", "i", "Erho2", "Phi"]].round(3)
           score   i  Erho2    Phi
    0      maths  12  0.897  0.897
    1     verbal   8  0.865  0.865
    2  composite  20  0.931  0.931
    """
    environment = caller_environment(eval_env, 1)
    name = _check_options(method, max_iter, tol)
    scores = read_scores(
        formula,
        data,
        environment,
        responses=responses,
        variable=variable,
        independent=independent,
        missing=missing,
    )
    layout = lay_out(scores)
    strata = find_strata(layout)
    estimates = _estimate(layout, strata, name, max_iter, tol)
    if not estimates.converged:
        warn(estimates.status)
    return MultivariateResults(record_of(layout, strata, name, estimates), layout)


def _check_options(method: Any, max_iter: Any, tol: Any) -> str:
    name = str(method).lower()
    if name not in METHODS:
        raise EstimationError(
            f"method={method!r} is not known{did_you_mean(method, METHODS)}; the methods for "
            f"several variables are {', '.join(map(repr, METHODS))}"
        )
    if not is_whole(max_iter) or max_iter < 1:
        raise EstimationError(f"max_iter must be a whole number of at least 1, not {max_iter!r}")
    if not is_real(tol) or not 0.0 < float(tol) < 1.0:
        raise EstimationError(f"tol must be a number between 0 and 1, not {tol!r}")
    return name


def _estimate(
    layout: VariableLayout, strata: Strata | None, method: str, max_iter: int, tol: float
) -> Found:
    if method in ("reml", "ml"):
        return _by_likelihood(layout, strata, reml=method == "reml", max_iter=max_iter, tol=tol)
    if method != "anova" and not layout.same_rows:
        raise EstimationError(
            f"method={method!r} needs all variables to be observed together, and some are missing "
            "or have their own levels; use method='anova' or 'reml'"
        )
    if layout.same_rows:
        values = polarised_components(layout, method)
        cov, why = polarised_covariance(layout, method, values)
        engine = "closed form: sums of squares of sums and differences of the variables"
    else:
        values = analogous_components(layout)
        cov, why = analogous_covariance(layout, values, find_axis(layout))
        engine = "closed form: analogous sums of products and their expectations"
    return Found(values, cov, f"Closed form{_indefinite(layout, values)}.{why}", engine)


def _indefinite(layout: VariableLayout, values: FloatArray) -> str:
    """Return a clause on matrices that are not positive semidefinite; empty without any."""
    below = []
    for name, S in zip(layout.names, np.where(layout.linked, values, 0.0), strict=True):
        least = float(np.linalg.eigvalsh(S / np.outer(layout.scale, layout.scale))[0])
        if least < -1e-12:
            below.append(name)
    if not below:
        return ""
    which = "matrix" if len(below) == 1 else "matrices"
    verb = "is" if len(below) == 1 else "are"
    return (
        f"; the {which} of {', '.join(below)} {verb} not positive semidefinite (a negative "
        "variance, or covariances too large for the variances) and kept as estimated"
    )


# Likelihoods ------------------------------------------------------------------------------------


def _by_likelihood(
    layout: VariableLayout, strata: Strata | None, *, reml: bool, max_iter: int, tol: float
) -> Found:
    likelihood: MatrixLikelihood
    scale = np.diag(layout.scale)
    if strata is not None:
        check_residual(strata, layout.scores.variables)
        lower, strata = uncorrelated_strata(strata)
        scale = scale @ lower
        likelihood = MeanProductsLikelihood(strata, layout.linked, reml=reml)
    else:
        _check_variation(layout)
        axis = find_axis(layout)
        if axis is not None:
            likelihood = MeanProductsLikelihood(axis, layout.linked, reml=reml)
        else:
            scale, y = uncorrelated(layout)
            likelihood = EquationsLikelihood(layout, reml=reml, y=y)
    try:
        start = _start(layout, strata, scale)
        end = maximise_in_cone(likelihood, start, max_iter=max_iter, tol=tol)
    except np.linalg.LinAlgError:
        raise _no_maximum(layout) from None
    if not is_positive(end.S[-1], _INDEPENDENT):
        raise _no_maximum(layout)
    kind = likelihood.kinds[0]
    back = element_map(layout, scale)
    degrees = np.array([m.nobs - float(reml) for m in layout.scores.models])
    return Found(
        values=np.where(layout.linked, scale @ end.S @ scale.T, np.nan),
        cov=covariance_in_cone(likelihood, end, kind, back),
        status=_status(layout, end),
        engine=likelihood.reason,
        llf=end.loglike - float(degrees @ np.log(np.diagonal(scale))),
        converged=end.converged,
        ending=Ending(
            end.ranks, end.decrement, end.kkt_residual, end.iterations, end.evaluations, kind
        ),
    )


def _check_variation(layout: VariableLayout) -> None:
    for a, name in enumerate(layout.scores.variables):
        if not layout.y[layout.scores.of(a)].any():
            raise EstimationError(
                f"the scores of variable {name!r} are all the same: the likelihood has no "
                "maximum; leave it out, or use method='anova'",
                column=name,
            )


def _no_maximum(layout: VariableLayout) -> EstimationError:
    names = ", ".join(layout.scores.variables)
    return EstimationError(
        f"the residual matrix of {names} becomes singular, so that the likelihood has no maximum: "
        "variables are the same, add up to another, or have too few scores in common; leave one "
        "of them out, or use method='anova'"
    )


def _start(layout: VariableLayout, strata: Strata | None, scale: FloatArray) -> FloatArray:
    """Return positive definite matrices near the closed form, on the scale of the likelihood."""
    v = layout.n_variables
    try:
        # Both are equal if variables were observed together; one needs sums of strata only.
        balanced = strata is not None
        values = (
            polarised_components(layout, "anova") if balanced else analogous_components(layout)
        )
        inverse = np.linalg.inv(scale)
        values = inverse @ np.where(layout.linked, values, 0.0) @ inverse.T
    except EstimationError:
        values = np.array([np.eye(v) / len(layout.names)] * len(layout.names))
    values = np.where(layout.linked, values, 0.0)
    least = min(_START, layout.scores.n**-0.5)
    starts = [positive_part(S, least) for S in values]
    starts[-1] = positive_part(values[-1], 10.0 * least)
    return np.array(starts)


_INDEPENDENT = 1e-9
"""Eigenvalue up to which a residual matrix with unit diagonal is singular."""

_CLOSE = 2.0
"""Largest difference of log-likelihoods to another maximum that is reported."""


def _status(layout: VariableLayout, end: ConeMaximum) -> str:
    if not end.converged:
        return (
            f"Not converged after {display.counted(end.iterations, 'step')}: the maximum may be "
            f"{display.number(end.decrement, 2)} standard errors away; raise max_iter, or use "
            "method='anova'."
        )
    full = layout.n_variables
    zero, lower = [], []
    for name, S, rank in zip(layout.names, end.S, end.ranks, strict=True):
        none = [
            x for x, s in zip(layout.scores.variables, np.diagonal(S), strict=True) if s == 0.0
        ]
        if len(none) == full:
            zero.append(f"σ²({name})")
        elif none:
            zero.append(f"σ²({name}) of {', '.join(none)}")
        if rank < full - len(none):
            lower.append(f"Σ({name}) has rank {rank} of {full}")
    other = ""
    if end.drops and end.drops[0] <= _CLOSE:
        other = (
            f" Another maximum of the log-likelihood is only {display.number(end.drops[0], 2)} "
            "lower: the data hardly decide between the two."
        )
    if not zero and not lower:
        return f"Converged.{other}"
    at_bound = [f"{'; '.join(zero)} at the bound 0"] if zero else []
    text = f"Converged: {'; '.join([*at_bound, *lower])}."
    if lower:
        text += (
            " A matrix without full rank gives some combination of the variables no variance; "
            "standard errors treat the rank as known."
        )
    return text + other
