"""A fit as text and as a picture: for ``summary()`` and ``plot()``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display, plots
from vcomp.estimators import Estimate
from vcomp.exceptions import DataError, VcompError, check_alpha, did_you_mean
from vcomp.formula import RESIDUAL, left_out_note
from vcomp.inference import NOT_CONVERGED
from vcomp.inference.hypotheses import degrees_of_freedom
from vcomp.inference.intervals import (
    IntervalSource,
    Limits,
    note_on_scores,
    wald_interval,
)
from vcomp.model.estimates import component_limits, fixed_fit, gstudy
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess
from vcomp.model.uncertainty import IntervalMethod, source_of

if TYPE_CHECKING:
    import pandas as pd

PictureName: TypeAlias = Literal["components", "effects"]
KINDS: tuple[PictureName, ...] = get_args(PictureName)

_FORMULA_WIDTH = 64

_BAR = 18
"""Blocks of a bar of 100 %: with numbers of ordinary length, lines have 92 columns."""

_METHOD_NAMES = {
    "reml": "REML",
    "ml": "ML",
    "anova": "ANOVA (Henderson's Method I)",
    "type1": "ANOVA (Type I)",
    "henderson3": "Henderson's Method III",
    "minque": "MINQUE",
}


def summary(
    record: FitRecord, rows: RowAccess | None, alpha: float, source: IntervalSource
) -> Any:
    """Return a summary of a fit: design, components, fixed effects and notes.

    Parameters
    ----------
    record : of the fit
    rows : of the fit; None after loading
    alpha : intervals have confidence 1 − alpha
    source : of the intervals of components

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    limits = component_limits(record.estimate, alpha, source)
    tables = [_head(record), _components(record, alpha, gstudy(record, source, limits))]
    if record.exog_names:
        tables.append(_fixed_effects(fixed_fit(record, rows).table(alpha, "satterthwaite"), alpha))
    return display.summary(tables, _notes(record, limits, source))


def _head(record: FitRecord) -> Any:
    design, estimate = record.structure, record.estimate
    left = [
        f"Variance components by {_METHOD_NAMES[estimate.method]}",
        design.title(),
        *textwrap.wrap(record.formula, _FORMULA_WIDTH, subsequent_indent="  "),
    ]
    right = [f"{display.count(design.n_rows)} scores, {design.cells()}"]
    if not np.isnan(estimate.llf):
        right.append(f"log-likelihood {display.number(estimate.llf, 8)}")
        right.append("converged" if estimate.converged else "NOT CONVERGED")
    else:
        right.append("closed form" if estimate.converged else "NOT CONVERGED")
    right += [""] * (len(left) - len(right))
    return display.plain_table(list(zip(left, right, strict=True)))


def _components(record: FitRecord, alpha: float, frame: pd.DataFrame) -> Any:
    held = record.estimate.held
    intervals = display.short_intervals(frame["low"], frame["high"])
    se = display.fixed(frame["se"], significant=3)
    cells = {
        "estimate": display.fixed(frame["estimate"]),
        "std. dev.": display.fixed(np.sqrt(frame["estimate"].where(frame["estimate"] >= 0.0))),
        "std. err.": ["held" if n in held else x for n, x in zip(frame.index, se, strict=True)],
        f"{display.level(alpha)} interval": intervals,
        "share": [display.percent(p / 100.0) for p in frame["percent"]],
        "": [display.bar(p / 100.0, _BAR) for p in frame["percent"]],
    }
    if "mc_error" in frame:
        errors = frame["mc_error"].where(frame["mc_error"] > 0.0)
        cells = _inserted(cells, 3, "Monte Carlo", display.fixed(errors, significant=2))
    align = "r" * (len(cells) - 1) + "l"
    return display.column_table(cells, stubs=list(frame.index), align=align)


def _inserted(
    cells: dict[str, list[str]], place: int, header: str, column: list[str]
) -> dict[str, list[str]]:
    items = list(cells.items())
    return dict([*items[:place], (header, column), *items[place:]])


def _fixed_effects(frame: pd.DataFrame, alpha: float) -> Any:
    t = "t" if np.isfinite(frame["df"]).any() else "z"
    cells = {
        "coef": display.fixed(frame["coef"]),
        "std. err.": display.fixed(frame["std_error"], significant=3),
        "df": display.fixed(frame["df"], decimals=1),
        t: display.fixed(frame["t"], decimals=2),
        f"P>|{t}|": display.p_values(frame["p_value"], decimals=3),
        f"{display.level(alpha)} interval": display.short_intervals(frame["low"], frame["high"]),
    }
    if t == "z":
        del cells["df"]
    return display.column_table(cells, stubs=list(frame.index))


def _notes(record: FitRecord, found: Limits, source: IntervalSource) -> list[str]:
    estimate, design, notes = record.estimate, record.structure, []
    if estimate.status not in ("Converged.", "Closed form."):
        notes += [estimate.status, *record.caveats]
    held = design.terms[RESIDUAL]
    if len(held) > 1:
        notes.append(f"{RESIDUAL} holds {', '.join(held[:-1])} and {held[-1]}.")
    confounded = [t for t, effects in design.terms.items() if len(effects) > 1 and t != RESIDUAL]
    if confounded:
        notes.append(
            f"{', '.join(confounded)}: effects of nested facets, with the effects that are "
            "confounded with them (print the design for more)."
        )
    if not design.connected:
        notes.append(
            f"The design falls into {design.n_parts} parts that share no level (print the "
            "design for their levels)."
        )
    values = np.array(estimate.values)
    estimated = ~np.isin(np.array(estimate.names, dtype=object), estimate.held)
    if (values[estimated] == 0.0).any() and values.any():
        notes.append("A component at its bound 0 has no standard error.")
    if (values < 0.0).any():
        notes.append("A negative estimate has no share of the variance.")
    notes += _on_standard_errors(estimate)
    if record.left_out:
        notes.append(display.sentence(left_out_note(record.left_out)))
    notes += _on_fixed_effects(estimate)
    clauses = [note for note in found.notes if note != NOT_CONVERGED]
    how = [found.interval_method or "none can be given", *clauses]
    what = "Standard errors and intervals" if source.interval == "robust" else "Intervals"
    notes.append(f"{what} of components: {'; '.join(how)}. Share: of the total variance.")
    methods = [found.interval_method] if found.interval_method else []
    notes += note_on_scores(record.components.response_values, methods)
    return notes


def _on_fixed_effects(estimate: Estimate) -> list[str]:
    """Return a note on the distribution of tests and intervals of the fixed effects."""
    if not estimate.beta.size:
        return []
    df = degrees_of_freedom(estimate)
    if np.isnan(df).any():
        if not estimate.values.any():
            why = "there is no variance"
        elif estimate.fixed_errors is not None:
            why = "the components have no covariance matrix for degrees of freedom"
        else:
            why = "it was not stored with this result"
        return [f"Fixed effects: normal distribution where df is missing, as {why}."]
    if np.isinf(df).all():
        return ["Fixed effects: normal distribution, as no component is estimated."]
    pairs = zip(estimate.names[:-1], estimate.values[:-1], strict=True)
    at_bound = any(value == 0.0 and name not in estimate.held for name, value in pairs)
    known = ", which take a component at its bound 0 as known" if at_bound else ""
    return [f"Fixed effects: t with Satterthwaite's degrees of freedom{known}."]


def _on_standard_errors(estimate: Estimate) -> list[str]:
    notes = []
    if estimate.certificate is not None and estimate.certificate.information == "average":
        notes.append("Standard errors: from the average information, the only one of this engine.")
    if any(estimate.monte_carlo.values()):
        notes.append(
            "Monte Carlo: standard error from the engine's random probes, which falls with their "
            f"number; that of the log-likelihood is {display.number(estimate.llf_error, 2)}."
        )
    return notes


def draw(
    record: FitRecord,
    rows: RowAccess | None,
    effects: Callable[[], dict[str, pd.DataFrame]],
    kind: str,
    term: str | None,
    alpha: float,
    interval: IntervalMethod,
    ax: Any | None,
) -> Any:
    """Return the axes on which a fit is drawn; see :meth:`VarianceComponentsResults.plot`.

    Parameters
    ----------
    record : of the fit
    rows : of the fit, for profiles and replicates; None after loading
    effects : returns the predicted effects of every term
    kind : one of :data:`KINDS`
    term : the term whose effects are drawn; None for components
    alpha : intervals have confidence 1 − alpha
    interval : how intervals of components are made
    ax : matplotlib axes, or None
    """
    if kind not in KINDS:
        raise VcompError(f"kind must be {' or '.join(map(repr, KINDS))}, not {kind!r}")
    if kind == "effects":
        if interval != "auto":
            raise VcompError(
                "intervals of predicted effects are from their prediction errors; leave out "
                "interval="
            )
        name = _term(record.estimate.names, term)
        check_alpha(alpha)
        return plots.effects(_with_intervals(effects()[name], alpha), name, alpha=alpha, ax=ax)
    if term is not None:
        raise VcompError(
            f"all components are drawn together; for the effects of {term!r} use kind='effects'"
        )
    source = source_of(record, rows, interval)
    table = gstudy(record, source, component_limits(record.estimate, alpha, source))
    return plots.components(table, alpha=alpha, ax=ax)


def _term(names: Sequence[str], term: str | None) -> str:
    terms = list(names[:-1])
    if term is None and len(terms) == 1:
        return terms[0]
    if term is None:
        raise DataError(f"kind='effects' needs a term; pass term=, one of {terms}")
    if term not in terms:
        hint = did_you_mean(term, terms)
        raise DataError(f"{term!r} has no predicted effects{hint}; term= must be one of {terms}")
    return term


def _with_intervals(effects: pd.DataFrame, alpha: float) -> pd.DataFrame:
    estimate, se = effects["estimate"].to_numpy(), effects["se"].to_numpy()
    low, high = wald_interval(estimate, se, alpha)
    return effects.assign(low=low, high=high)
