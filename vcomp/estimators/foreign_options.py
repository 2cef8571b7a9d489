"""Options of other libraries, with their equivalents here or the lack of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vcomp.exceptions import EstimationError
from vcomp.formula import in_python, offset_advice, quoted

_SLOPES = "random slopes are not supported, only random intercepts: (1|g)"
_TESTS = (
    "it belongs to tests of the fixed effects: res.t_test(), res.f_test(), res.fixed_effects()"
)

_ADVICE: Mapping[str, str] = {
    "weights": "weights are not supported: every row counts alike",
    "freq_weights": "weights are not supported: every row counts alike; repeat the rows",
    "family": "responses are normal; a transformed response is written np.log(y) ~ …",
    "link": "responses are normal; a transformed response is written np.log(y) ~ …",
    "re_formula": _SLOPES,
    "exog_re": _SLOPES,
    "correlation": "residuals are independent; correlations come from random terms, (1|g)",
    "varFunc": "the residual has one variance",
    "dispformula": "the residual has one variance",
    "ziformula": "responses are normal",
    "subset": "give the rows themselves: data=data.query('x > 0')",
    "where": "give the rows themselves: data=data.query('x > 0')",
    "na_action": "missing='drop' leaves rows with missing values out and warns, 'raise' refuses",
    "contrasts": "contrasts are written in the formula: C(g, Sum), C(g, Treatment('a'))",
    "control": "use max_iter= and tol=",
    "maxiter": "it is max_iter= here",
    "maxit": "it is max_iter= here",
    "start_params": "it is start= here, by component: start={'g': 0.5}",
    "verbose": "print(res.summary()) shows how the fit ended",
    "disp": "print(res.summary()) shows how the fit ended",
    "full_output": "the result has everything",
    "ddf": _TESTS,
    "ddfm": _TESTS,
    "cov_type": _TESTS,
    "alpha": "it belongs to intervals: res.summary(alpha=0.1), res.conf_int(alpha=0.1)",
    "nobound": "method='anova' and the other closed forms keep negative estimates",
    "free": "method='anova' and the other closed forms keep negative estimates",
    "engine_kwargs": "options of the method are keywords of fit()",
}

_RANDOM = (
    "random",
    "groups",
    "vc_formula",
    "random_effects",
    "class_",
    "subject",
    "re",
    "grouping",
)


def refuse_foreign(options: Mapping[str, Any], formula: object = None) -> None:
    """Refuse options of other libraries, with advice.

    Parameters
    ----------
    options : given to a fit
    formula : its formula

    Raises
    ------
    EstimationError
    """
    text = formula.strip() if isinstance(formula, str) else "y ~ 1"
    for name, value in options.items():
        if name in ("REML", "reml"):
            method = "reml" if value else "ml"
            raise EstimationError(f"{name}={value!r} is written method={method!r} here")
        if name in _RANDOM:
            terms = _terms(options)
            written = f"{text} + {' + '.join(terms)}" if terms else f"{text} + (1|g)"
            slopes = any(map(_has_slope, options.values()))
            raise EstimationError(
                f"random terms are part of the formula, not of {name}=: {written!r}"
                f"{'; random slopes are not supported' * slopes}"
            )
        if name in ("offset", "exposure"):
            raise EstimationError(f"{name}= is no option of a fit: {_offset(name, value, text)}")
        if name in _ADVICE:
            raise EstimationError(f"{name}= is no option of a fit: {_ADVICE[name]}")


def _offset(option: str, value: Any, formula: str) -> str:
    """Return how the columns of an option are subtracted from the response."""
    columns = [value] if isinstance(value, str) else _named(value)
    offsets = [quoted(name) for name in columns] or ["o"]
    if option == "exposure":
        offsets = [f"np.log({name})" for name in offsets]
    advice = offset_advice(in_python(formula.partition("~")[0]), offsets)
    return advice if columns else f"make it a column o, and {advice}"


def _terms(options: Mapping[str, Any]) -> list[str]:
    """Return the random terms that options of other libraries describe, without slopes."""
    groups = [name for value in _named(options.get("groups")) for name in [_written(value)]]
    terms = list(groups)
    for name in ("random", "random_effects", "class_", "subject", "re", "grouping"):
        terms += [_written(value) for value in _named(options.get(name))]
    vc = options.get("vc_formula")
    for name in vc if isinstance(vc, Mapping) else ():
        terms.append(":".join([*groups, _written(str(name))]))
    return list(dict.fromkeys(f"(1|{term})" for term in terms if term))


def _named(value: Any) -> list[str]:
    """Return the grouping columns of a text such as ``~1|g/h``, a list, a mapping or a column."""
    if isinstance(value, str):
        return [value.rpartition("|")[2].strip(" ~")]
    if isinstance(value, Mapping | list | tuple):
        return [name for part in value for name in _named(part)]
    name = getattr(value, "name", None)  # of a column of a frame
    return [name] if isinstance(name, str) else []


def _has_slope(value: Any) -> bool:
    text = value.partition("|")[0] if isinstance(value, str) else ""
    return text.strip().startswith("~") and text.strip(" ~") not in ("1", "")


def _written(name: str) -> str:
    is_plain = re.fullmatch(r"[\w:/*]+", name) is not None
    return name if is_plain else f"Q({name!r})"
