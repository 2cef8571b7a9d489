"""Options of estimators: their checks, held components, starts; and those of other libraries."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import EstimationError, is_real, is_whole
from vcomp.formula import in_formula
from vcomp.numerics import check_rng

Hold: TypeAlias = Mapping[str, float]
Start: TypeAlias = Mapping[str, float] | Sequence[float] | FloatArray

_SMALLEST = 1e-60
"""Ratio to the other components below which one is refused: fourth powers of ratios are formed."""

ENGINES = ("auto", "strata", "levels", "blocked", "iterative")


@dataclass(frozen=True, slots=True)
class Known:
    """Held components.

    Attributes
    ----------
    held : (k + 1,) whether a component is held
    values : (k + 1,) the values of held components; 0 elsewhere
    """

    held: BoolArray
    values: FloatArray


def check_options(max_iter: Any, tol: Any, engine: Any) -> None:
    """Refuse an invalid stopping rule or engine.

    Raises
    ------
    EstimationError
        If an option is invalid; the message says what is allowed.
    """
    if not is_whole(max_iter) or max_iter < 0:
        raise EstimationError(f"max_iter must be a whole number of at least 0, not {max_iter!r}")
    if tol is not None and not (is_real(tol) and 0.0 < tol < 1.0):
        raise EstimationError(f"tol must be a number between 0 and 1, not {tol!r}")
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise EstimationError(f"engine={engine!r} is not known; it is one of {known}")


def check_probes(n_probes: Any, rng: Any, engine: str) -> None:
    """Refuse an invalid number of probes or seed, and both for engines without probes.

    Raises
    ------
    EstimationError
        If an option is invalid; the message says what is allowed.
    """
    if n_probes is not None and not (is_whole(n_probes) and n_probes >= 2):
        raise EstimationError(f"n_probes must be a whole number of at least 2, not {n_probes!r}")
    if engine in ("strata", "levels", "blocked") and (n_probes is not None or rng is not None):
        raise EstimationError(
            f"engine={engine!r} has no random probes; leave n_probes= and rng= out, or use "
            "engine='iterative' or 'auto'"
        )
    if rng is not None:
        check_rng(rng)


def known_components(
    hold: Hold | None, names: tuple[str, ...], covariances: Collection[str] = ()
) -> Known:
    """Return which components are held, with their values, from the option `hold`.

    Parameters
    ----------
    hold : the option
    names : of the components
    covariances : those that may be negative

    Raises
    ------
    EstimationError
        If a component is not in the model, or its value is invalid.
    """
    known = Known(np.zeros(len(names), dtype=bool), np.zeros(len(names)))
    if hold is None:
        return known
    for place, value in _by_place(hold, names, "hold", covariances).items():
        if place == len(names) - 1 and value == 0.0:
            raise EstimationError(
                f"hold={{{names[-1]!r}: 0}} makes the covariance matrix singular: hold the "
                "residual at a positive value, or estimate it"
            )
        known.held[place] = True
        known.values[place] = value
    return known


def check_ratios(
    values: FloatArray, names: tuple[str, ...], option: str, variance: float = 0.0
) -> None:
    """Refuse components whose ratios to the others cannot be computed.

    Parameters
    ----------
    values : (k + 1,) components
    names : of the components
    option : which has them, for the message
    variance : of the response, with which they are compared as well

    Raises
    ------
    EstimationError
        Naming a positive component that is less than 1e-60 of the largest.
    """
    largest = max(float(values.max()), variance)
    for name, value in zip(names, values, strict=True):
        if 0.0 < value < _SMALLEST * largest:
            instead = "a larger number" if name == names[-1] else "0 or a larger number"
            raise EstimationError(
                f"{option}={{{name!r}: {value:g}}} is less than {_SMALLEST:g} of the other "
                f"variance, {largest:.3g}: use {instead}",
                term=name,
            )


def start_of(
    start: Start | None,
    names: tuple[str, ...],
    known: Known,
    default: FloatArray,
    covariances: Collection[str] = (),
) -> FloatArray:
    """Return the starting values: those of `hold`, else those of `start`, else `default`.

    Parameters
    ----------
    start : the option
    names : of the components
    known : those that are held
    default : (k + 1,) values
    covariances : those that may be negative

    Raises
    ------
    EstimationError
        If `start` names an unknown or held component, or has an invalid value.
    """
    if start is None:
        return np.where(known.held, known.values, default)
    given = _by_place(_as_mapping(start, names), names, "start", covariances)
    both = [names[place] for place in given if known.held[place]]
    if both and hasattr(start, "keys"):
        raise EstimationError(
            f"start and hold both name component {both[0]!r}; a held component has no start",
            term=both[0],
        )
    if given.get(len(names) - 1) == 0.0 and not known.held[-1]:
        raise EstimationError(f"the start of {names[-1]!r} must be positive, not 0")
    values = np.array(default, dtype=float)
    for place, value in given.items():
        values[place] = value
    return np.where(known.held, known.values, values)


def _as_mapping(start: Start | None, names: tuple[str, ...]) -> Mapping[str, float] | None:
    if start is None or hasattr(start, "keys"):
        return start  # type: ignore[return-value]
    try:
        values = np.asarray(start, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (len(names),):
        raise EstimationError(
            f"start must be a mapping by name, or {len(names)} numbers in the order "
            f"{', '.join(names)}, not {start!r}"
        )
    return dict(zip(names, values.tolist(), strict=True))


def _by_place(
    given: Mapping[str, float] | None,
    names: tuple[str, ...],
    option: str,
    covariances: Collection[str] = (),
) -> dict[int, float]:
    """Return values by position, with names and values checked."""
    if given is None:
        return {}
    if not hasattr(given, "keys"):
        raise EstimationError(f"{option} must be a mapping such as {{{names[0]!r}: 0.01}}")
    places = {}
    for name in given.keys():  # noqa: SIM118 - a Series iterates over its values
        if name not in names:
            raise EstimationError(
                f"{option} names component {name!r}, which is not in the model; components are "
                f"{', '.join(names)}",
                term=name,
            )
        value = given[name]
        least = -np.inf if name in covariances else 0.0
        if not is_real(value) or not np.isfinite(value) or value < least:
            raise EstimationError(
                f"{option}={{{name!r}: {value!r}}}: a component must be a number of at least 0",
                term=name,
            )
        places[names.index(name)] = float(value)
    return places


_SLOPES = "random slopes are part of the formula: y ~ x + (1 + x|g)"
_COLUMNS = (
    "columns are named in the formula, and arrays are given as a dict: "
    "vcomp.fit('y ~ x + (1|g)', {'y': y, 'x': x, 'g': g})"
)
_MAXIMUM = "REML and ML have one way to their maximum, which res.certificate checks; leave it out"
_PENALTY = "likelihoods have no penalty; hold={'g': 0.5} holds a component at a known value"
_TESTS = (
    "it belongs to tests of the fixed effects: res.t_test(), res.f_test(), res.fixed_effects()"
)

_ROWS = "it belongs to the rows: vcomp.fit(formula, data, weights='n')"
_GROUPS = "residual='g' gives each level of g a residual variance of its own"

_ADVICE: Mapping[str, str] = {
    "weights": _ROWS,
    "frequency": _ROWS,
    "known_variance": _ROWS,
    "offset": _ROWS,
    "freq_weights": "it is frequency= here",
    "var_weights": "it is weights= here",
    "exposure": "it is part of the formula: y ~ x + offset(np.log(exposure)) + (1|g)",
    "family": "family= is no option of a fit: responses are normal, and scores of 0 and 1 are "
    "fitted as numbers; leave it out, or transform the response, as in",
    "link": "responses are normal; a transformed response is written np.log(y) ~ …",
    "exog_re": _SLOPES,
    "exog_vc": _COLUMNS,
    "endog": _COLUMNS,
    "exog": _COLUMNS,
    "correlation": "residuals are independent; correlations come from random terms, (1|g)",
    "varFunc": _GROUPS,
    "dispformula": _GROUPS,
    "ziformula": "responses are normal",
    "subset": "give the rows themselves: data=data.query('x > 0')",
    "where": "give the rows themselves: data=data.query('x > 0')",
    "na.action": "missing='drop' leaves rows with missing values out and warns, 'raise' refuses",
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
    "free": "hold={'g': 0.5} holds a component at a known value",
    **dict.fromkeys(("use_sqrt", "niter_sa", "do_cg", "optimizer"), _MAXIMUM),
    **dict.fromkeys(("fe_pen", "cov_pen"), _PENALTY),
    "engine_kwargs": "options of the method are keywords of fit()",
}

_RANDOM = (
    "random",
    "groups",
    "re_formula",
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
            raise EstimationError(
                f"random terms are part of the formula, not of {name}=: "
                f"{_with_terms(text, options)!r}"
            )
        if name == "family":
            response, _, right = text.partition("~")
            raise EstimationError(
                f"{_ADVICE[name]}: 'np.log({response.strip()}) ~ {right.strip() or '(1|g)'}'"
            )
        if name in _ADVICE:
            raise EstimationError(f"{name}= is no option of a fit: {_ADVICE[name]}")


def _with_terms(text: str, options: Mapping[str, Any]) -> str:
    """Return a formula with the random terms that options of other libraries describe."""
    terms = _terms(options)
    alone = re.fullmatch(r"([^|]*)\(\s*1\s*\|([^|]*)\)\s*", text)
    if alone and not _named(options.get("groups")) and "re_formula" in options:
        return f"{alone[1]}({_effects(options['re_formula'])}|{alone[2].strip()})"
    terms = terms or [f"({_effects(options.get('re_formula', '1'))}|g)"]
    return " + ".join([text, *terms])


def _terms(options: Mapping[str, Any]) -> list[str]:
    """Return the random terms that options of other libraries describe."""
    groups = [_written(group) for group, _ in _named(options.get("groups"))]
    vc = options.get("vc_formula")
    # As in statsmodels, variance components take the place of the intercepts of the groups.
    effects = _effects(options.get("re_formula", "0" if isinstance(vc, Mapping) else "1"))
    terms = [f"({effects}|{group})" for group in groups if effects != "0"]
    for name in ("random", "random_effects", "class_", "subject", "re", "grouping"):
        named = _named(options.get(name))
        terms += [f"({_effects(left)}|{_written(group)})" for group, left in named if group]
    for name, columns in vc.items() if isinstance(vc, Mapping) else ():
        levels = re.fullmatch(r"~?\s*(?:0\s*\+|-\s*1\s*\+)?\s*C\((.+)\)\s*", str(columns))
        inner = str(name) if levels is None else levels[1].strip()
        within = _written(inner) if not inner.startswith("Q(") else inner
        terms.append(f"(1|{':'.join([*groups, within])})")
    return list(dict.fromkeys(terms))


def _effects(formula: Any) -> str:
    """Return the effects of a formula such as ``~x`` as a bar has them, ``1 + x``."""
    text = formula.strip(" ~") if isinstance(formula, str) else "1"
    without = re.fullmatch(r"(?:(?:0|-\s*1)\s*\+)?\s*(.+?)\s*(?:-\s*1|\+\s*0)?", text)
    if text in ("", "0", "-1", "1") or without is None:
        return "1" if text in ("", "1") else "0"
    has_intercept = without[1] == text
    return text if re.match(r"1\s*\+", text) else f"{int(has_intercept)} + {without[1]}"


def _named(value: Any) -> list[tuple[str, str]]:
    """Return columns of groups and the formulas of their effects.

    They are of a text such as ``~x|g/h``, a list, a mapping or a column.
    """
    if isinstance(value, str):
        left, _, right = value.rpartition("|")
        return [(right.strip(" ~"), left)]
    if isinstance(value, Mapping):
        pairs = [(_named(group), left) for group, left in value.items()]
        return [
            (name, left if isinstance(left, str) else "1") for g, left in pairs for name, _ in g
        ]
    if isinstance(value, list | tuple):
        return [named for part in value for named in _named(part)]
    name = getattr(value, "name", None)  # of a column of a frame
    return [(name, "1")] if isinstance(name, str) else []


def _written(name: str) -> str:
    is_plain = re.fullmatch(r"[\w:/*]+", name) is not None
    return name if is_plain else f"Q({name!r})"


def on_constant_slopes(involved: Sequence[str]) -> str:
    """Return a clause on a slope whose column may not vary within the levels of its groups.

    Parameters
    ----------
    involved : components that cannot be distinguished
    """
    parts = [name.removesuffix("]").partition("[") for name in involved]
    groups = {group for group, _, _ in parts}
    effect = parts[-1][2].removeprefix("(Intercept),").partition("[")[0]
    if len(parts) != 2 or len(groups) > 1 or not effect:
        return ""
    (group,) = groups
    return (
        f". If {effect} is constant within the levels of {group}, it has no slope there: write "
        f"(1|{in_formula(group)})"
    )
