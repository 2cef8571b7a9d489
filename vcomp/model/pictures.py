"""A fit as a picture: which table is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from vcomp import plots
from vcomp.exceptions import DataError, VcompError, check_alpha, did_you_mean
from vcomp.inference.intervals import wald_interval

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.inference import IntervalMethod
    from vcomp.model.results import VarianceComponentsResults

PictureName: TypeAlias = Literal["components", "effects"]
KINDS: tuple[PictureName, ...] = get_args(PictureName)


def draw(
    res: VarianceComponentsResults,
    kind: str,
    term: str | None,
    alpha: float,
    interval: IntervalMethod,
    ax: Any | None,
) -> Any:
    """Return the axes on which a fit is drawn; see :meth:`VarianceComponentsResults.plot`.

    Parameters
    ----------
    res : the fit
    kind : one of :data:`KINDS`
    term : whose effects are drawn; None for components
    alpha : intervals have confidence 1 − alpha
    interval : how intervals of components are made
    ax : matplotlib axes, or None
    """
    if kind not in KINDS:
        raise VcompError(f"kind is {' or '.join(map(repr, KINDS))}, not {kind!r}")
    if kind == "effects":
        if interval != "auto":
            raise VcompError(
                "predicted effects have the intervals of their prediction errors, by no other "
                "way; leave out interval="
            )
        name = _term(res, term)
        return plots.effects(_with_intervals(res, name, alpha), name, alpha=alpha, ax=ax)
    if term is not None:
        raise VcompError(
            f"all components are drawn together; for the effects of {term!r} use kind='effects'"
        )
    return plots.components(res.gstudy(alpha, interval), alpha=alpha, ax=ax)


def _term(res: VarianceComponentsResults, term: str | None) -> str:
    terms = list(res.vcomp.index[:-1])
    if term is None and len(terms) == 1:
        return str(terms[0])
    if term is None:
        raise DataError(f"which effects are to be drawn? pass term=, one of {terms}")
    if term not in terms:
        hint = did_you_mean(term, terms)
        raise DataError(f"{term!r} has no predicted effects{hint}; term= is one of {terms}")
    return term


def _with_intervals(res: VarianceComponentsResults, term: str, alpha: float) -> pd.DataFrame:
    check_alpha(alpha)
    effects = res.random_effects[term]
    estimate, se = effects["estimate"].to_numpy(), effects["se"].to_numpy()
    low, high = wald_interval(estimate, se, alpha)
    return effects.assign(low=low, high=high)
