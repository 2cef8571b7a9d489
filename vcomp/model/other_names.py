"""Names that results have in lme4, nlme, statsmodels and linearmodels, with what to write here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

_EXPRESSIONS: Mapping[str, str] = {
    "ranef": "res.random_effects",
    "fixef": "res.fe_params",
    "coef": "res.fe_params",
    "coefficients": "res.fe_params",
    "beta": "res.fe_params",
    "coef_table": "res.fixed_effects()",
    "cov_re_unscaled": "res.cov_re / res.scale",
    "vcomp_params": "res.vcomp",
    "variances": "res.vcomp",
    "variance_components": "res.vcomp",
    "sigma2": "res.scale",
    "s2": "res.scale",
    "mse_resid": "res.scale",
    "sigma": "res.scale ** 0.5",
    "resid_std": "res.scale ** 0.5",
    "loglik": "res.llf",
    "loglike": "res.llf",
    "loglikelihood": "res.llf",
    "deviance": "-2 * res.llf",
    "vcov": "res.cov_params()",
    "cov": "res.cov_params()",
    "normalized_cov_params": "res.cov_params()",
    "confint": "res.conf_int()",
    "intervals": "res.conf_int()",
    "condvar": "res.random_effects_cov('g', conditional=True)",
    "postvar": "res.random_effects_cov('g', conditional=True)",
    "get_robustcov_results": "res.fixed_effects(cov_type='robust')",
    "use_t": "res.df_fe",
    "df_modelwc": "len(res.params)",
    "reml": "res.method == 'reml'",
    "endog": "res.model.endog",
    "exog": "res.model.exog",
    "residuals": "res.resid",
    "fitted": "res.fittedvalues",
    "fitted_values": "res.fittedvalues",
    "std_errors": "res.bse",
    "se": "res.bse",
    "bse_re": "res.bse_vcomp",
    "tstats": "res.tvalues",
    "df_residual": "res.df_resid",
    "ngroups": "print(res.design)",
    "n_groups": "print(res.design)",
    "ngrps": "print(res.design)",
    "nlevels": "print(res.design)",
    "issingular": "(res.vcomp == 0).any() or 'singular' in res.status",
    "hist": "res.iterations",
    "mle_retvals": "res.status",
    "save": "res.to_json()",
    "remove_data": "res.to_json()",
    "bootmer": "res.bootstrap()",
    "profile_re": "res.profile()",
    "info_criteria": "res.aic, res.bic",
    "summary2": "res.summary()",
    "params_table": "res.tidy()",
    "plot_diagnostics": "res.diagnose().plot()",
    "qqplot": "res.diagnose().plot()",
    "qqnorm": "res.diagnose().plot()",
    "get_influence": "res.influence('g')",
    "cooks_distance": "res.influence('g').cooks_distance",
    "dfbeta": "res.influence('g').dfbeta",
    "dfbetas": "res.influence('g').dfbeta / res.bse_fe",
}
"""Expressions of the same numbers, with the result called ``res``; names in lower case."""

_TASKS: Mapping[str, str] = {
    "wald_test_terms": "res.anova() tests the terms of the fixed part",
    "anova_lm": "res.anova() tests the terms of the fixed part",
    "lrtest": "vcomp.compare(smaller, res) is the likelihood-ratio test",
    "ranova": "res.test('g') tests the component of a term",
    "drop1": "res.test('g') tests the component of a term, and vcomp.compare(smaller, res) other "
    "smaller models",
    "update": "vcomp.fit(formula, data) fits another model",
    "fit": "vcomp.fit(formula, data) fits another model",
    "refit": "vcomp.fit(formula, data) fits another model",
    "emmeans": "res.marginal_means('f') has the means of a factor and their differences",
    "lsmeans": "res.marginal_means('f') has the means of a factor and their differences",
    "t_test_pairwise": "res.compare_levels('f') compares the levels of a factor in pairs",
    "pairwise": "res.compare_levels('f') compares the levels of a factor in pairs",
    "rsquared": "res.r2() has the shares of the variance that the model explains",
    "load": "vcomp.VarianceComponentsResults.from_json(path) reads what res.to_json(path) wrote",
    "k_re": "len(res.vcomp) - 1 is the number of random terms",
    "k_fe": "len(res.fe_params) is the number of fixed effects",
    "getme": "res.model.exog is the matrix of the fixed part; res.vcomp, res.fe_params and "
    "res.random_effects are the estimates",
}
"""Sentences for what has another form here; names in lower case."""


def refuse_name(owner: object, name: str) -> NoReturn:
    """Raise the error for an attribute that a result lacks, with what to write instead.

    Parameters
    ----------
    owner : the result
    name : of the attribute

    Raises
    ------
    AttributeError
    """
    if name in dir(type(owner)):  # the error of a property
        object.__getattribute__(owner, name)
    known = name.lower()
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if known in _EXPRESSIONS:
        message += f"; write {_EXPRESSIONS[known]} (res is the result)"
    elif known in _TASKS:
        message += f": {_TASKS[known]} (res is the result)"
    elif known in dir(type(owner)):
        call = "()" if callable(getattr(type(owner), known)) else ""
        message += f"; write res.{known}{call} (res is the result)"
    raise AttributeError(message, name=name, obj=owner)
