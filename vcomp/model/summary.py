"""The result as a person reads it: design, components, fixed effects, and what to know of them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.formula import RESIDUAL
from vcomp.model.tables import component_limits, gstudy

if TYPE_CHECKING:
    from vcomp.inference.intervals import IntervalSource, Limits
    from vcomp.model.inference import IntervalMethod
    from vcomp.model.results import VarianceComponentsResults

_FORMULA_WIDTH = 64

_METHOD_NAMES = {
    "reml": "REML",
    "ml": "ML",
    "anova": "ANOVA (Henderson's Method I)",
    "type1": "ANOVA (Type I)",
    "henderson3": "Henderson's Method III",
    "minque": "MINQUE",
}


def summary(res: VarianceComponentsResults, alpha: float, interval: IntervalMethod) -> Any:
    """Return a summary of a fit.

    Parameters
    ----------
    res : the fit
    alpha : intervals have confidence 1 − alpha
    interval : how intervals of components are made

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    source = res.interval_source(interval)
    found = component_limits(res, alpha, source)
    tables = [_head(res), _components(res, alpha, source)]
    if len(res.fe_params):
        tables.append(_fixed_effects(res, alpha))
    return display.summary(tables, _notes(res, found))


def _head(res: VarianceComponentsResults) -> Any:
    design = res.design
    left = [
        f"Variance components by {_METHOD_NAMES[res.method]}",
        design.title(),
        *textwrap.wrap(res.formula, _FORMULA_WIDTH, subsequent_indent="  "),
    ]
    right = [f"{display.count(res.nobs)} scores, {design.cells()}"]
    if not np.isnan(res.llf):
        right.append(f"log-likelihood {display.number(res.llf, 8)}")
        right.append("converged" if res.converged else "NOT CONVERGED")
    else:
        right.append("closed form" if res.converged else "NOT CONVERGED")
    right += [""] * (len(left) - len(right))
    return display.plain_table(list(zip(left, right, strict=True)))


def _components(res: VarianceComponentsResults, alpha: float, source: IntervalSource) -> Any:
    frame = gstudy(res, alpha, source)
    intervals = _intervals(frame["ci_low"].to_numpy(), frame["ci_high"].to_numpy())
    se = display.fixed(frame["se"], significant=3)
    cells = {
        "estimate": display.fixed(frame["estimate"]),
        "std. err.": [
            "held" if n in res.held else x for n, x in zip(frame.index, se, strict=True)
        ],
        f"{display.level(alpha)} interval": intervals,
        "share": [display.percent(p / 100.0) for p in frame["percent"]],
        "": [display.bar(p / 100.0) for p in frame["percent"]],
    }
    if "mc_error" in frame:
        errors = frame["mc_error"].where(frame["mc_error"] > 0.0)
        cells = _inserted(cells, 2, "Monte Carlo", display.fixed(errors, significant=2))
    rows = list(zip(*cells.values(), strict=True))
    align = "r" * (len(cells) - 1) + "l"
    return display.simple_table(rows, list(cells), stubs=list(frame.index), align=align)


def _inserted(
    cells: dict[str, list[str]], place: int, header: str, column: list[str]
) -> dict[str, list[str]]:
    items = list(cells.items())
    return dict([*items[:place], (header, column), *items[place:]])


def _intervals(low: Any, high: Any) -> list[str]:
    return [display.short_interval(a, b) for a, b in zip(low, high, strict=True)]


def _fixed_effects(res: VarianceComponentsResults, alpha: float) -> Any:
    frame = res.fixed_effects(alpha)
    t = "t" if np.isfinite(frame["df"]).any() else "z"
    cells = {
        "coef": display.fixed(frame["coef"]),
        "std. err.": display.fixed(frame["std_error"], significant=3),
        "df": display.fixed(frame["df"], decimals=1),
        t: display.fixed(frame["t"], decimals=2),
        f"P>|{t}|": display.fixed(frame["p_value"], decimals=3),
        f"{display.level(alpha)} interval": _intervals(
            frame["ci_low"].to_numpy(), frame["ci_high"].to_numpy()
        ),
    }
    if t == "z":
        del cells["df"]
    rows = list(zip(*cells.values(), strict=True))
    return display.simple_table(rows, list(cells), stubs=list(frame.index))


def _notes(res: VarianceComponentsResults, found: Limits) -> list[str]:
    notes = []
    if res.status not in ("Converged.", "Closed form."):
        notes.append(res.status)
    held = res.design.terms[RESIDUAL]
    if len(held) > 1:
        notes.append(f"{RESIDUAL} holds {', '.join(held[:-1])} and {held[-1]}.")
    confounded = [
        t for t, effects in res.design.terms.items() if len(effects) > 1 and t != RESIDUAL
    ]
    if confounded:
        notes.append(
            f"{', '.join(confounded)}: effects of nested facets, with what cannot be told from "
            "them (print the design for more)."
        )
    if not res.design.connected:
        notes.append(
            f"The design falls into {res.design.n_parts} parts that share no level (print the "
            "design for what is in them)."
        )
    if any(res.vcomp[name] == 0.0 for name in _estimated(res)) and res.vcomp.any():
        notes.append("A component at its bound 0 has no standard error.")
    if (res.vcomp < 0.0).any():
        notes.append("A negative estimate has no share of the variance.")
    notes += _on_standard_errors(res)
    notes += _on_fixed_effects(res)
    how = [found.interval_method or "none can be given", *found.notes]
    notes.append(f"Intervals of components: {'; '.join(how)}. Share: of the total variance.")
    return notes


def _on_fixed_effects(res: VarianceComponentsResults) -> list[str]:
    """Say which distribution their tests and intervals have, and why where it is the normal."""
    if not len(res.fe_params):
        return []
    df = res.df_fe
    if np.isnan(df).any():
        kept = res._record.estimate.fixed_errors is not None
        why = (
            "the components have no covariance to take degrees of freedom from"
            if kept
            else "none were kept with this result"
        )
        return [f"Fixed effects: normal distribution where there is no df, as {why}."]
    if np.isinf(df).all():
        return ["Fixed effects: normal distribution, as no component is estimated."]
    return ["Fixed effects: t with Satterthwaite's degrees of freedom."]


def _estimated(res: VarianceComponentsResults) -> list[str]:
    return [name for name in res.vcomp.index if name not in res.held]


def _on_standard_errors(res: VarianceComponentsResults) -> list[str]:
    notes = []
    if res.certificate is not None and res.certificate.information == "average":
        notes.append("Standard errors: from the average information, all that this engine has.")
    if res.mc_error.any():
        notes.append(
            "Monte Carlo: standard error from the engine's random probes, which more of them "
            f"make smaller; of the log-likelihood {display.number(res.mc_error_llf, 2)}."
        )
    return notes
