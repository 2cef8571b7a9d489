"""Systematic and idiosyncratic assessor error: roles, individuals, or the single assessment.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 6, pp. 1137-1141.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import open_source
from vcomp.exceptions import (
    DataError,
    DesignError,
    EstimationError,
    VcompError,
    check_alpha,
    guarded,
)
from vcomp.formula import RESIDUAL
from vcomp.inference.hypotheses import Comparison, compare_fits
from vcomp.model import (
    IntervalMethod,
    VarianceComponentsModel,
    VarianceComponentsResults,
    compared_fit,
)

if TYPE_CHECKING:
    import pandas as pd

AssessorModel: TypeAlias = Literal["idiosyncratic", "roles", "individuals", "both"]

_EMPTY = 0.95
"""Length of the interval of a share beyond which it carries no information."""

_BASE = "(1|system) + (1|topic) + (1|system:topic)"
_ASSESSMENT = "(1|topic:assessment)"
_EFFECTS = {
    "roles": "role + (1|system:role)",
    "individuals": "(1|assessor) + (1|system:assessor)",
}
_PARTS: dict[AssessorModel, tuple[str, ...]] = {
    "idiosyncratic": (),
    "roles": ("roles",),
    "individuals": ("individuals",),
    "both": ("roles", "individuals"),
}
_SINGLES: tuple[tuple[AssessorModel, AssessorModel], ...] = (
    ("roles", "individuals"),
    ("individuals", "roles"),
)
"""Pairs of one systematic effect and the other."""

_SOURCES = {
    "role": ("roles", "scores"),
    "system:role": ("roles", "ranking"),
    "assessor": ("individuals", "scores"),
    "system:assessor": ("individuals", "ranking"),
    "topic:assessment": ("idiosyncratic", "scores"),
    RESIDUAL: ("idiosyncratic", "ranking"),
}
"""Sources of assessor error: kind, and whether they affect scores or the ranking."""

_WORDS = {
    "roles": "roles (who serves as what)",
    "individuals": "individuals (who judges)",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AssessorStudy(display.Printed):
    """Whether assessor error is systematic or idiosyncratic; ``print`` it for the answer in words.

    Attributes
    ----------
    fits : by model, fitted by ML so that their likelihoods can be compared
    estimates : the largest possible model, fitted by REML
    tests : a row for each question: ``smaller`` and ``larger`` model, ``statistic``, ``df``,
        ``p_value``, ``distribution``
    sources : a row for each source of assessor error: ``kind``, ``moves`` (all systems' scores
        alike, or the ranking), ``estimate``, ``low``, ``high``; ``share`` of the error that moves
        the same, in per cent
    idiosyncratic_share : the share of the residual in the error of differences of systems, with
        the ends of its interval; nan where only one kind of effect can be estimated
    kept : the systematic effects that the comparison keeps: ``"roles"``, ``"individuals"``
    impossible : models that these data cannot distinguish, with the reason
    n_roles : number of roles, 0 without roles
    alpha : of the tests and intervals
    """

    fits: Mapping[AssessorModel, VarianceComponentsResults]
    estimates: VarianceComponentsResults
    tests: pd.DataFrame
    sources: pd.DataFrame
    idiosyncratic_share: tuple[float, float, float]
    kept: tuple[str, ...]
    impossible: Mapping[str, str]
    n_roles: int
    alpha: float

    @property
    def verdict(self) -> AssessorModel:
        """The model that the comparison chooses."""
        return next(model for model, parts in _PARTS.items() if parts == self.kept)

    @property
    def layout(self) -> str:
        """The layout of :func:`vcomp.ir.assessor_layouts` whose G-study has this error."""
        return {"idiosyncratic": "individuals", "individuals": "crossed"}.get(
            self.verdict, "roles"
        )

    @property
    def design(self) -> str:
        """The design of that layout, in Brennan's notation."""
        return {
            "individuals": "system x (assessor:topic)",
            "crossed": "system x assessor x topic",
            "roles": "system x role x topic",
        }[self.layout]

    @property
    def fixed(self) -> tuple[str, ...]:
        """Facets to be fixed in its D-studies: the roles, which are all that there are."""
        return ("role",) if "roles" in self.kept else ()

    @property
    def models(self) -> pd.DataFrame:
        """A row for each model: ``npar``, ``llf``, ``aic``, ``bic``, and ``formula``."""
        import pandas as pd

        fits = {name: compared_fit(res) for name, res in self.fits.items()}
        columns = {
            "npar": [fit.n_parameters for fit in fits.values()],
            "llf": [res.llf for res in self.fits.values()],
            "aic": [res.aic for res in self.fits.values()],
            "bic": [res.bic for res in self.fits.values()],
            "formula": [fit.formula for fit in fits.values()],
        }
        return pd.DataFrame(columns, index=pd.Index(list(fits), name="model"))

    def summary(self) -> Any:
        """Return a printable summary: models, tests, sources of error, and the answer in words.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        models, sources = self.models, self.sources
        likelihoods = {
            "npar": [str(n) for n in models["npar"]],
            "llf": display.fixed(models["llf"], decimals=2),
            "AIC": display.fixed(models["aic"], decimals=1),
            "BIC": display.fixed(models["bic"], decimals=1),
        }
        ratios = {
            "LR": display.fixed(self.tests["statistic"], decimals=2),
            "p": display.p_values(self.tests["p_value"]),
            "distribution": list(self.tests["distribution"]),
        }
        errors = {
            "kind": list(sources["kind"]),
            "moves": list(sources["moves"]),
            "estimate": display.fixed(sources["estimate"]),
            f"{display.level(self.alpha)} interval": display.short_intervals(
                sources["low"], sources["high"]
            ),
            "share": [display.percent(share / 100.0) for share in sources["share"]],
        }
        tables = [
            display.column_table(
                likelihoods, title="Models of assessor error (ML)", stubs=list(models.index)
            ),
            display.column_table(
                ratios, title="Likelihood ratio tests", stubs=list(self.tests.index), align="rrl"
            ),
            display.column_table(
                errors,
                title="Assessor error of one assessment (REML)",
                stubs=list(sources.index),
                align="llrrr",
            ),
        ]
        return display.summary(tables, self.answer())

    def answer(self) -> list[str]:
        """Return the findings, and the recommended design, in sentences."""
        sentences = [*self._decisions(), *self._sizes()]
        sentences += [f"The model {name!r} is not possible: {why}." for name, why in
                 self.impossible.items()]  # fmt: skip
        sentences.append(self._plan())
        return sentences

    def _decisions(self) -> list[str]:
        sentences = []
        for effect in ("roles", "individuals"):
            if effect not in self.tests.index:
                continue
            p = self._p_value(effect)
            how = "is" if p < self.alpha else "is not"
            given = ", given the other effect" if "both" in self.fits else ""
            text = f"{display.p_value(p)}{given}"
            sentences.append(f"Systematic error of {_WORDS[effect]} {how} found ({text}).")
            if effect in self.kept and not p < self.alpha:
                sentences.append(
                    f"But one of both effects is needed; {effect} alone fit better, by AIC."
                )
        if not sentences:
            sentences.append("These data cannot show systematic error.")
        return sentences

    def _p_value(self, effect: str) -> float:
        return float(self.tests["p_value"].to_numpy()[self.tests.index.get_loc(effect)])

    def _sizes(self) -> list[str]:
        share, low, high = self.idiosyncratic_share
        sentences = []
        if not np.isnan(share):
            interval = ""
            if not np.isnan(low):
                ends = f"{display.percent(low)} to {display.percent(high)}"
                empty = ", which carries no information" if high - low > _EMPTY else ""
                interval = f" ({display.level(self.alpha)}: {ends}{empty})"
            sentences.append(
                f"Of the assessor error in differences of systems {display.percent(share)} is "
                f"idiosyncratic{interval}: it belongs to the single assessment."
            )
        if "idiosyncratic" in self.tests.index:
            p = self._p_value("idiosyncratic")
            outcome = "remains" if p < self.alpha else "is not found"
            sentences.append(
                "Error that an assessment shares over all systems, beyond systematic effects, "
                f"{outcome} ({display.p_value(p)})."
            )
        return sentences

    def _plan(self) -> str:
        design = self.design.replace(" x ", " × ")
        of_roles = (
            "the error of a role stays however many topics there are. Let every role judge, and "
            f"pass fixed='role': the {display.count(self.n_roles)} roles are all that there are, "
            "and a variance between so few is next to unknown"
        )
        return {
            "idiosyncratic": f"Plan with {design}: every assessment has its own error, which "
            "averages out over topics as well as over assessors (as in Voorhees 2000).",
            "roles": f"Plan with {design}: {of_roles}.",
            "individuals": f"Plan with {design}: the error of an individual stays however many "
            "topics the same individuals judge. Let them change from topic to topic, so that it "
            "averages out.",
            "both": f"Plan with {design}: {of_roles}. Let individuals change from topic to topic, "
            "so that their error averages out.",
        }[self.verdict]


@guarded
def assessor_study(
    scores: Any,
    response: str = "score",
    *,
    system: str = "system",
    topic: str = "topic",
    role: str | None = "role",
    assessor: str | None = "assessor",
    alpha: float = 0.05,
    interval: IntervalMethod = "auto",
) -> AssessorStudy:
    """Decide whether assessor error is systematic (roles, individuals) or idiosyncratic.

    Assessors of a topic differ in role (the author of the topic, a second assessor), as
    individuals, and from case to case. Four models are compared by their likelihoods. All have
    effects of systems, topics, both together, and of the single assessment, which all systems of a
    topic share. To them are added roles, fixed, with their interaction with systems; individuals,
    random, likewise; or both.

    Parameters
    ----------
    scores : a row for each system, topic and assessment, in any container that :func:`vcomp.fit`
        reads, such as :func:`vcomp.ir.set_measures` gives with roles added
    response : the column of the scores
    system, topic, role, assessor : columns; `role` or `assessor` is None if it is not known
    alpha : level of the tests; intervals have confidence 1 − alpha
    interval : how intervals are made, as in :meth:`vcomp.VarianceComponentsResults.conf_int`

    Returns
    -------
    AssessorStudy
        with ``verdict``, ``answer()``, ``models``, ``tests``, ``sources``, ``design`` and
        ``fixed`` for a D-study; ``print`` shows all

    Raises
    ------
    DataError
        If a column is missing or its name is no text, neither `role` nor `assessor` is given, a
        system has two scores of an assessment, a score is missing, or no topic has two
        assessments.
    EstimationError, DesignError
        If the model without systematic effects cannot be fitted.
    PlanError
        If alpha is not between 0 and 1.

    Notes
    -----
    An effect is kept if the model without it, and with the other one, is rejected at `alpha`. If
    both together are needed but neither beyond the other, the one with the lower AIC is kept.
    Likelihood ratios have a mixture of χ² (Self & Liang 1987), for many assessments.

    Every topic has another set of individuals, so that what an individual does on one topic only
    counts as idiosyncratic. A single score of each assessment cannot separate its own error of a
    system from noise; scores of a ranking are no noise, given the judgements.

    References
    ----------
    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing & Management*, 44(3), 1117-1145. Section 6 asks whether there is idiosyncratic error
    after accounting for systematic effects, and the reverse, and leaves the answer open.

    Examples
    --------
    >>> import numpy as np, pandas as pd, vcomp
    >>> rng = np.random.default_rng(1)
    >>> s, t, r = (a.ravel() for a in np.indices((8, 20, 2)))
    >>> judge = rng.integers(0, 5, (20, 2))[t, r]
    >>> score = rng.normal(size=8)[s] + rng.normal(size=20)[t] + rng.normal(size=(8, 20))[s, t]
    >>> score = score + 0.8 * r + 0.3 * rng.normal(size=s.size)
    >>> table = pd.DataFrame({"system": s, "topic": t, "role": r, "assessor": judge, "F": score})
    >>> study = vcomp.ir.assessor_study(table, "F")
    >>> study.verdict, study.fixed
    ('roles', ('role',))
    """
    check_alpha(alpha)
    names = {"system": system, "topic": topic, "role": role, "assessor": assessor}
    frame = _read(scores, response, names)
    fits, impossible = _fitted(frame)
    n_roles = frame["role"].nunique() if "role" in frame else 0
    tests = _tests(fits, frame)
    estimates = _fit(_formula(_PARTS[_largest(fits)]), frame, "reml")
    sources = _sources(estimates, alpha, interval)
    return AssessorStudy(
        fits=fits,
        estimates=estimates,
        tests=tests,
        sources=sources,
        idiosyncratic_share=_idiosyncratic_share(estimates, alpha, interval),
        kept=_kept(fits, tests, alpha),
        impossible=impossible,
        n_roles=n_roles,
        alpha=alpha,
    )


def _read(scores: Any, response: str, names: Mapping[str, str | None]) -> pd.DataFrame:
    """Return the scores with the columns of the models, and codes of the assessments."""
    import pandas as pd

    given = {name: column for name, column in names.items() if column is not None}
    for name, column in {"response": response, **given}.items():
        if not isinstance(column, str):
            raise DataError(
                f"{name}= is the name of a column, not a {type(column).__name__}", column=name
            )
    if not given.keys() & {"role", "assessor"}:
        raise DataError("role= and assessor= are both None: nothing distinguishes assessments")
    source = open_source(scores)
    optional = {name for name in ("role", "assessor") if given.get(name) == name}
    # Columns with default names are optional.
    given = {k: c for k, c in given.items() if k not in optional or c in source.columns}
    for column in (*given.values(), response):
        if column not in source.columns:
            raise source.no_column(column)
    if not given.keys() & {"role", "assessor"}:
        raise DataError(
            "assessments differ in the role or the person of the assessor, and there is neither a "
            "column 'role' nor a column 'assessor': name one of them or both by role= and "
            f"assessor=; the columns are {', '.join(map(repr, source.columns))}"
        )
    read = source.read([*dict.fromkeys([*given.values(), response])])
    frame = pd.DataFrame({name: read[column] for name, column in given.items()})
    if frame.isna().to_numpy().any():
        bad = given[str(frame.columns[frame.isna().any()][0])]
        raise DataError(f"column {bad!r} has missing values; drop these rows", column=bad)
    frame = frame.astype(str).assign(score=read[response].to_numpy())
    judge = [name for name in ("role", "assessor") if name in frame]
    whole = frame.groupby(judge).ngroup()
    frame["assessment"] = whole.groupby(frame["topic"]).rank(method="dense").astype(int)
    if frame.duplicated(["system", "topic", "assessment"]).any():
        row = frame[frame.duplicated(["system", "topic", "assessment"])].iloc[0]
        raise DataError(
            f"system {row['system']!r} has two scores of one assessment of topic {row['topic']!r}"
            f" ({', '.join(f'{name} {row[name]!r}' for name in judge)})",
            level=row["system"],
        )
    if frame["assessment"].max() < 2:
        raise DataError(
            "no topic has two assessments, so that assessor error does not show: let a second "
            "assessor judge some of the topics, score the systems by these judgements too, and "
            "add the scores as rows of another role or assessor"
        )
    return frame


def _formula(parts: tuple[str, ...], assessment: bool = True) -> str:
    terms = [_BASE, *(_EFFECTS[part] for part in parts), *([_ASSESSMENT] if assessment else [])]
    return "score ~ " + " + ".join(terms)


def _fit(formula: str, frame: pd.DataFrame, method: Literal["ml", "reml"]) -> Any:
    return VarianceComponentsModel(formula, frame).fit(method)


def _fitted(
    frame: pd.DataFrame,
) -> tuple[dict[AssessorModel, VarianceComponentsResults], dict[str, str]]:
    """Return fits of the models that the data distinguish, and reasons against the others."""
    effects = [e for e, c in (("roles", "role"), ("individuals", "assessor")) if c in frame]
    fits: dict[AssessorModel, VarianceComponentsResults] = {}
    impossible: dict[str, str] = {}
    for name, parts in _PARTS.items():
        if not set(parts) <= set(effects):
            continue
        why = _confounded(frame, parts)
        if why is None:
            try:
                fits[name] = _fit(_formula(parts), frame, "ml")
            except (DesignError, EstimationError) as error:
                if name == "idiosyncratic":
                    raise
                why = str(error).rstrip(".")
        if why is not None:
            impossible[name] = why
    return fits, impossible


def _confounded(frame: pd.DataFrame, parts: tuple[str, ...]) -> str | None:
    """Return reasons for effects confounded with each other or with that of the assessment."""
    for part, column in (("roles", "role"), ("individuals", "assessor")):
        if part not in parts:
            continue
        if frame[column].nunique() < 2:
            return f"there is one {column} only"
        if int(frame.groupby(column)["topic"].nunique().max()) < 2:
            return f"every {column} is in one topic only"
    if len(parts) == 2:
        of_role = frame.groupby("role")["assessor"].nunique()
        roles_of = frame.groupby("assessor")["role"].nunique()
        if int(of_role.max()) == 1 and int(roles_of.max()) == 1:
            return "every role is that of one individual, who has no other"
    return None


def _largest(fits: Mapping[AssessorModel, VarianceComponentsResults]) -> AssessorModel:
    return max(fits, key=lambda name: len(_PARTS[name]))


def _tests(
    fits: Mapping[AssessorModel, VarianceComponentsResults], frame: pd.DataFrame
) -> pd.DataFrame:
    """Return the likelihood ratio tests of the effects that can be estimated."""
    import pandas as pd

    largest = _largest(fits)
    pairs: dict[str, tuple[AssessorModel, AssessorModel]] = {}
    for effect, other in _SINGLES:
        if "both" in fits and other in fits:
            pairs[effect] = (other, "both")
        elif effect in fits:
            pairs[effect] = ("idiosyncratic", effect)
    if "both" in fits:
        pairs["either"] = ("idiosyncratic", "both")
    rows: dict[str, tuple[str, str, Comparison]] = {}
    for tested, (small, large) in pairs.items():
        rows[tested] = (small, large, _ratio(fits[small], fits[large]))
    if largest != "idiosyncratic":
        try:
            without = _fit(_formula(_PARTS[largest], assessment=False), frame, "ml")
            rows["idiosyncratic"] = ("systematic only", largest, _ratio(without, fits[largest]))
        except VcompError:
            pass  # the systematic effects alone do not fit these data: there is nothing to test
    columns = {
        "smaller": [small for small, _, _ in rows.values()],
        "larger": [large for _, large, _ in rows.values()],
        "statistic": [test.statistic for *_, test in rows.values()],
        "df": [test.df for *_, test in rows.values()],
        "p_value": [test.p_value for *_, test in rows.values()],
        "distribution": [test.distribution for *_, test in rows.values()],
    }
    return pd.DataFrame(columns, index=pd.Index(list(rows), name="effect"))


def _ratio(small: VarianceComponentsResults, large: VarianceComponentsResults) -> Comparison:
    return compare_fits((compared_fit(small), compared_fit(large))).comparisons[0]


def _kept(
    fits: Mapping[AssessorModel, VarianceComponentsResults], tests: pd.DataFrame, alpha: float
) -> tuple[str, ...]:
    """Return the systematic effects to keep in the model."""
    singles = [effect for effect, _ in _SINGLES if effect in tests.index]
    kept = [effect for effect in singles if tests["p_value"][effect] < alpha]
    together = "both" in fits and not kept and tests["p_value"]["either"] < alpha
    confounded = "both" not in fits and len(kept) == 2
    if together or confounded:  # keep the better fit of the two
        kept = [min(singles, key=lambda effect: fits[effect].aic)]
    return tuple(kept)


def _sources(
    res: VarianceComponentsResults, alpha: float, interval: IntervalMethod
) -> pd.DataFrame:
    """Return variances of assessor error, with shares among sources that affect the same."""
    import pandas as pd

    components = res.gstudy(alpha, interval)
    rows = []
    for term, (kind, moves) in _SOURCES.items():
        if term == "role" and "system:role" in components.index:
            rows.append((term, kind, moves, _variance_of_roles(res), np.nan, np.nan))
        elif term in components.index:
            estimate, low, high = components.loc[term, ["estimate", "low", "high"]].to_numpy()
            rows.append((term, kind, moves, float(estimate), float(low), float(high)))
    table = pd.DataFrame(
        rows, columns=["source", "kind", "moves", "estimate", "low", "high"]
    ).set_index("source")
    positive = table["estimate"].clip(lower=0.0)
    total = positive.groupby(table["moves"]).transform("sum")
    return table.assign(share=100.0 * positive / total)


def _variance_of_roles(res: VarianceComponentsResults) -> float:
    """Return the variance of fixed effects of roles, less their estimation variance."""
    names = [name for name in res.fe_params.index if name.startswith("role")]
    effects = np.array([0.0, *res.fe_params[names]])
    cov: FloatArray = np.zeros((effects.size, effects.size))
    cov[1:, 1:] = res.cov_params().loc[names, names].to_numpy()
    centred = np.eye(effects.size) - 1.0 / effects.size
    squares = float(effects @ centred @ effects) - float(np.trace(centred @ cov))
    return max(squares / (effects.size - 1), 0.0)


def _idiosyncratic_share(
    res: VarianceComponentsResults, alpha: float, interval: IntervalMethod
) -> tuple[float, float, float]:
    """Return the residual share of the assessor error of differences, with its interval."""
    others = [t for t in ("system:role", "system:assessor") if t in res.vcomp.index]
    if not others:
        return np.nan, np.nan, np.nan
    text = f"{RESIDUAL} / ({' + '.join([RESIDUAL, *others])})"
    share = res.quantity(text, alpha=alpha, interval=interval, negative="zero")
    return share.estimate, share.low, share.high
