"""The result of a fit: a façade over its record and rows, and its printed summary.

Its public interface is in files by subject: :mod:`~vcomp.model.estimates`,
:mod:`~vcomp.model.uncertainty` (intervals, resampling), :mod:`~vcomp.model.hypothesis_tests`,
:mod:`~vcomp.model.model_tables` (tests of terms, marginal means),
:mod:`~vcomp.model.universe_scores` (with D-studies), :mod:`~vcomp.model.ranked_fit`,
:mod:`~vcomp.model.prediction` (with the influence of levels), :mod:`~vcomp.model.row_access`
(predicted effects, simulation) and this one (tables, pictures, the diagnosis of assumptions,
storage). The methods use the record of the fit (:class:`~vcomp.model.record.FitRecord`), its rows
(:class:`~vcomp.model.row_access.RowAccess`) or both.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display, plots
from vcomp.data import read_json, write_json
from vcomp.estimators import Estimate
from vcomp.exceptions import DataError, VcompError, check_alpha, did_you_mean, guarded
from vcomp.formula import RESIDUAL, in_python, left_out_note
from vcomp.inference import NOT_CONVERGED
from vcomp.inference.hypotheses import degrees_of_freedom
from vcomp.inference.intervals import (
    IntervalSource,
    Limits,
    below_zero,
    note_on_scores,
    wald_interval,
)
from vcomp.model.estimates import (
    component_limits,
    covariance_beside,
    fixed_fit,
    gstudy,
    standard_errors,
)
from vcomp.model.hypothesis_tests import HypothesisTests
from vcomp.model.interval_sources import IntervalMethod
from vcomp.model.model_tables import ModelTables
from vcomp.model.other_names import refuse_name
from vcomp.model.prediction import Predictions
from vcomp.model.ranked_fit import RankAccuracy
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, StoredEffects, term_of
from vcomp.model.uncertainty import Uncertainty

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.assumptions import Diagnosis


class VarianceComponentsResults(
    Uncertainty, HypothesisTests, ModelTables, RankAccuracy, Predictions, display.Printed
):
    """Variance components with their uncertainty, D-studies, predictions and tables.

    Made by :meth:`VarianceComponentsModel.fit` and :func:`vcomp.fit`. All that needs no rows
    (tables, D-studies, rank accuracy, the summary) also works after pickling or :meth:`from_json`.
    Universe scores and comparisons of levels do where they were stored (:meth:`to_json`). A
    pickle also keeps the predicted effects with their errors (:attr:`random_effects`).

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> res.vcomp.round(5)
    sys         0.00973
    topic       0.00176
    Residual    0.00687
    Name: variance, dtype: float64
    >>> res.converged, res.status
    (True, 'Converged.')
    """

    def __init__(
        self,
        record: FitRecord,
        rows: RowAccess | None = None,
        effects: StoredEffects | None = None,
    ) -> None:
        self._record = record
        self._rows = rows
        self._effects = effects

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that there is not, with what to write for names elsewhere."""
            refuse_name(self, name)

    # Tables ---------------------------------------------------------------------------------

    @guarded
    def tidy(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row for each parameter: term, kind, estimate, std_error, conf_low, conf_high.

        Where a component has no standard error or interval (nan), :meth:`gstudy` notes the reason.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        import pandas as pd

        record, source = self._record, self.interval_source(interval)
        intervals = self.conf_int(alpha, source)
        errors = standard_errors(covariance_beside(record, source))
        return pd.DataFrame(
            {
                "term": [*record.exog_names, *record.estimate.names],
                "kind": ["fixed"] * len(record.exog_names)
                + [
                    "covariance" if name in record.components.covariance_names else "variance"
                    for name in record.estimate.names
                ],
                "estimate": self.params.to_numpy(),
                "std_error": np.concatenate([self.bse_fe.to_numpy(), errors]),
                "conf_low": intervals[0].to_numpy(),
                "conf_high": intervals[1].to_numpy(),
            }
        )

    @guarded
    def summary(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> Any:
        """Return a summary as a table of statsmodels: ``print`` it, or ``.as_html()``.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        record, source = self._record, self.interval_source(interval)
        limits = component_limits(record.estimate, alpha, source)
        components = gstudy(record, source, limits)
        tables = [_head(record), _components(record, alpha, components)]
        if record.exog_names:
            fixed = fixed_fit(record, self._rows).table(alpha, "satterthwaite")
            tables.append(_fixed_effects(fixed, alpha))
        return display.summary(tables, _notes(record, limits, source))

    @guarded
    def plot(
        self,
        kind: PictureName = "components",
        *,
        term: str | None = None,
        alpha: float = 0.05,
        interval: IntervalMethod = "auto",
        ax: Any | None = None,
    ) -> Any:
        """Draw the components, or the predicted effects of a term, with their intervals.

        Parameters
        ----------
        kind : ``"components"`` draws :meth:`gstudy`; ``"effects"`` the predicted effects of a
            term, sorted, with estimate ± z se of the prediction error
        term : of the effects; may be left out if the model has one term. ``"g"`` of a term with
            slopes draws its intercepts and slopes side by side, ``"g[x]"`` the slopes alone
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, see :meth:`conf_int`
        ax : matplotlib axes to draw on, several for a term with slopes; those of a new figure if
            None

        Returns
        -------
        matplotlib.axes.Axes, or a list of them for a term with slopes

        Raises
        ------
        DataError
            If the term is not one of the model's, or the result was loaded without its rows and
            without predicted effects.
        PlanError
            If alpha is not between 0 and 1.
        VcompError
            If the kind is not known, a term or an interval is given that it does not use, or
            matplotlib is not installed.

        Examples
        --------
        >>> import vcomp
        >>> from matplotlib.figure import Figure
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> ax = res.plot("effects", term="sys", ax=Figure().subplots())
        >>> print(ax.get_xlabel())
        predicted effect of sys, 95 % interval
        """
        if kind not in KINDS:
            raise VcompError(f"kind must be {' or '.join(map(repr, KINDS))}, not {kind!r}")
        if kind == "effects":
            if interval != "auto":
                raise VcompError(
                    "intervals of predicted effects are from their prediction errors; leave out "
                    "interval="
                )
            components = self._record.components
            effects_of = components.names[: -components.n_residuals]
            names = [n for n in effects_of if n not in components.covariance_names]
            bars = _bars(self._record)
            name = _term(self._record, names, term)
            check_alpha(alpha)
            bar = next((own for own in bars if own[0] == name), [name])
            frames = self.random_effects
            drawn = {effect: _with_intervals(frames[effect], alpha) for effect in bar}
            if len(bar) > 1:
                return plots.effects_of_bar(drawn, alpha=alpha, ax=ax)
            return plots.effects(drawn[name], name, alpha=alpha, ax=ax)
        if term is not None:
            raise VcompError(
                f"all components are drawn together; for the effects of {term!r} use "
                "kind='effects'",
                term=term,
            )
        return plots.components(self.gstudy(alpha, interval), alpha=alpha, ax=ax)

    @guarded
    def diagnose(
        self,
        *,
        object: str | None = None,  # noqa: A002 - the word of the field
        n: int | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> Diagnosis:
        """Return tests of the assumptions, and which numbers the deviations matter for.

        Normality and outliers of predicted effects and of residuals; equal residual variances of
        the levels of every facet; and of every two crossed facets additivity, and correlations
        of the residuals of a facet's levels with the effects of the other and with each other,
        and outlying cells. With random slopes the effects of every bar are tested. Without, the
        slopes of numerical covariates that vary within the levels of a term are, where a fit with
        them takes little time. A component at its bound 0 is tested against negative ones, which
        the model does not allow: scores that share its levels then differ more than others.

        Parameters
        ----------
        object : the facet whose levels are correlated, such as systems; the first facet of the
            formula if None
        n : number of draws of each null distribution; None for 99 to 999, the fewer the more rows
        rng : seed or ``numpy.random.Generator``; 0 if not given

        Returns
        -------
        Diagnosis
            with ``table``, ``verdicts``, ``outliers``, ``outlying_scores``, ``variances(facet)``,
            ``correlations()``, ``summary()`` and ``plot()``

        Raises
        ------
        DataError
            If the rows are not kept, or have weights, or the result was loaded without them.
        EstimationError
            If there is no random term, or there are several residual variances, or the residual
            is estimated at zero; if `rng` is neither a seed nor a generator, or the diagnosis
            would not fit into memory.
        PlanError
            If `object` is not a facet, or `n` is less than 19.

        Notes
        -----
        At 5 % each test rejects in 4 to 6 % of data sets that meet all assumptions. Predicted
        effects are compared with draws in units of their own standard deviation, residuals with
        draws of normal errors from which all effects are removed as from the data. Variances are
        compared with permuted residuals, correlations with residuals of random signs, and
        additivity has Tukey's F. That topics are a random sample cannot be seen in their scores.

        References
        ----------
        Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 1, Fig. 1 and
        section 4.2.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> diagnosis = res.diagnose(n=99)
        >>> diagnosis.verdicts["matters"].iloc[:3].tolist()
        ['no', 'slightly', 'yes']
        """
        from vcomp.model.model_checks import diagnose  # deferred for start-up time

        return diagnose(self._row_access, object, n, rng, below_zero(self._record.components))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    # Storage ----------------------------------------------------------------------------------

    @guarded
    def to_json(self, path: str | Path | None = None, *, scores: bool | None = None) -> str:
        """Return the result as JSON text, without the rows; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none. An existing file is replaced when the new one is
            complete; a pipe or a device is written to
        scores : whether :meth:`universe_scores` and :meth:`compare_levels` are possible after
            loading. If None, where they are cheap: of data with up to 250,000 rows and 5,000
            effects, for terms of up to 2,000 levels; True stores those of any size, False none.
            Differences of random terms are stored for up to 300 levels. Robust errors of fixed
            effects need no option, but are not stored for many columns and levels

        Raises
        ------
        DataError
            If the file cannot be written, or is one of those that the rows are read from; or
            ``scores=True``, and the result was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
        >>> loaded.universe_scores("sys").equals(res.universe_scores("sys"))
        True
        """
        files = () if self._rows is None else self._rows.files
        return write_json(self._stored_record(scores), path, files)

    @classmethod
    @guarded
    def from_json(cls, source: str | Path) -> VarianceComponentsResults:
        """Return a result from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file, or of another version of the format.
        """
        return cls(read_json(FitRecord, source))

    def __copy__(self) -> VarianceComponentsResults:
        return type(self)(self._record, self._rows, self._effects)

    def __deepcopy__(self, memo: dict[int, Any]) -> VarianceComponentsResults:
        # A result is immutable, and the rows are shared.
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        return self._state() | {"_record": self._stored_record()}

    def _stored_record(self, scores: bool | None = None) -> FitRecord:
        """Return the record with the values of the levels, see :meth:`to_json`."""
        from vcomp.model.levels_of_rows import with_levels  # deferred for start-up time

        return with_levels(self._record, self._rows, scores)


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


def _head(record: FitRecord) -> Any:
    design, estimate = record.structure, record.estimate
    left = [
        f"Variance components by {_METHOD_NAMES[estimate.method]}",
        design.title(),
        *textwrap.wrap(record.written, _FORMULA_WIDTH, subsequent_indent="  "),
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
    is_variance = (frame["estimate"] >= 0.0) & ~frame.index.isin(
        record.components.covariance_names
    )
    intervals = display.short_intervals(frame["low"], frame["high"])
    se = display.fixed(frame["se"], significant=3)
    cells = {
        "estimate": display.fixed(frame["estimate"]),
        "std. dev.": display.fixed(np.sqrt(frame["estimate"].where(is_variance))),
        "std. err.": ["held" if n in held else x for n, x in zip(frame.index, se, strict=True)],
        f"{display.level(alpha)} interval": intervals,
    }
    if record.components.has_slopes:
        cells["corr."] = display.fixed(record.components.correlations(), significant=3)
    if record.components.matrices:
        return display.column_table(cells, stubs=list(frame.index), align="r" * len(cells))
    cells["share"] = [display.percent(p / 100.0) for p in frame["percent"]]
    cells[""] = [display.bar(p / 100.0, _BAR) for p in frame["percent"]]
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
    response = in_python(record.formula.partition("~")[0]).strip()
    if not (response.isidentifier() or response.startswith("Q(")):
        notes.append(f"Units are those of {response}, squared for components.")
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
            f"The design falls into {design.n_parts:,} parts that share no level (print the "
            "design for their levels)."
        )
    if record.weights is not None:
        notes += [display.sentence(record.weights.residual), *record.on_interaction]
    if record.offset is not None:
        notes.append("Fitted values include the offset; the intercept does not.")
    values = np.array(estimate.values)
    estimated = ~np.isin(np.array(estimate.names, dtype=object), estimate.held)
    if (values[estimated] == 0.0).any() and values.any():
        notes.append("A component at its bound 0 has no standard error.")
    if (values < 0.0).any() and not record.components.matrices:
        notes.append("A negative estimate has no share of the variance.")
    notes += _on_standard_errors(estimate)
    if estimate.method == "ml" and record.exog_names:
        notes.append(
            "ML takes no degrees of freedom off for the fixed effects: components of facets with "
            "few levels are too small, and their intervals too short; method='reml' takes them "
            "off."
        )
    if record.left_out:
        notes.append(display.sentence(left_out_note(record.left_out)))
    notes += _on_fixed_effects(estimate)
    clauses = [note for note in found.notes if note != NOT_CONVERGED]
    how = [found.interval_method or "none can be given", *clauses]
    what = "Standard errors and intervals" if source.interval == "robust" else "Intervals"
    share = "of the total variance" if record.weights is None else record.weights.share
    last = f"Share: {share}."
    if record.components.matrices:
        normal = record.components.has_slopes and source.interval in ("log", "satterthwaite")
        last = "Those of covariances are normal." if normal else ""
    notes.append(f"{what} of components: {'; '.join(how)}. {last}".rstrip())
    methods = [found.interval_method] if found.interval_method else []
    notes += note_on_scores(record.components.response_values, methods)
    return notes


def _on_fixed_effects(estimate: Estimate) -> list[str]:
    """Return a note on the distribution of tests and intervals of the fixed effects."""
    if not estimate.beta.size:
        return []
    df = degrees_of_freedom(estimate)
    if np.isnan(df).any():
        if isinstance(estimate.cov_beta, np.ndarray) and np.isnan(estimate.cov_beta).all():
            return [
                "Fixed effects: no standard errors, as the residual variance is not above zero."
            ]
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


def _term(record: FitRecord, terms: list[str], term: str | None) -> str:
    """Return the term whose effects are drawn; that of the only bar without one."""
    only = [bar[0] for bar in _bars(record)] or terms
    if term is None and len(only) == 1:
        return only[0]
    if term is None:
        raise DataError(f"kind='effects' needs a term; pass term=, one of {terms}")
    known = term_of(terms, record.structure.slopes, term)
    if known is None:
        raise DataError(
            f"{term!r} has no predicted effects{did_you_mean(term, terms)}; term= must be one of "
            f"{terms}",
            term=term,
        )
    return known


def _bars(record: FitRecord) -> list[list[str]]:
    """Return the names of the effects of each bar of a model with slopes."""
    names = record.estimate.names
    return [
        [names[row[i]] for i, row in enumerate(matrix.places)]
        for matrix in record.components.matrices
    ]


def _with_intervals(effects: pd.DataFrame, alpha: float) -> pd.DataFrame:
    estimate, se = effects["estimate"].to_numpy(), effects["se"].to_numpy()
    low, high = wald_interval(estimate, se, alpha)
    return effects.assign(low=low, high=high)
