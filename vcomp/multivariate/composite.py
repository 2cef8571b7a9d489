"""Composites: weighted sums of the variables, whose components are those of one variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.components import VarianceComponents
from vcomp.dstudy import PublishedComponents
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.multivariate.covariance_components import CovarianceComponents

__all__ = ["Composite", "check_shared", "composite_of", "is_alike", "read_weights"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Composite(PublishedComponents):
    """The variance components of Σ w_v X_v, with the D-studies of one variable.

    Attributes
    ----------
    components : of the composite
    weights : of the variables

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").pivot(
    ...     index=["sys", "topic"], columns="query", values="score").reset_index()
    >>> res = vcomp.fit_multivariate("keywords + sentence ~ (1|sys) + (1|topic)", data)
    >>> gain = res.composite({"keywords": -1, "sentence": 1})
    >>> print(gain)  # doctest: +ELLIPSIS
    Variance components of −keywords + sentence
    ...
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def summary(self) -> Any:
        """Return a printable table of the components, their standard errors and shares.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        g = self.components
        positive = np.maximum(g.values, 0.0)
        total = float(positive.sum())
        shares = positive / total if total > 0.0 else np.full_like(positive, np.nan)
        with np.errstate(invalid="ignore"):
            se = np.sqrt(np.diagonal(g.cov)) if g.cov is not None else np.full_like(shares, np.nan)
        rows = [
            [value, error, display.percent(share), display.bar(share)]
            for value, error, share in zip(
                display.fixed(g.values), display.fixed(se, significant=3), shares, strict=True
            )
        ]
        table = display.simple_table(
            rows,
            ["estimate", "std. err.", "share", ""],
            title=f"Variance components of {self._words()}",
            stubs=g.names,
            align="rrrl",
        )
        return display.summary([table])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._words()}>"

    def _words(self) -> str:
        words = ""
        for name, w in self.weights.items():
            if w:
                sign = ("−" if w < 0.0 else "+") if words else "−"[: w < 0.0]
                size = "" if abs(w) == 1.0 else f"{display.number(abs(w))} × "
                words += f" {sign} {size}{name}" if words else f"{sign}{size}{name}"
        return words


def read_weights(weights: Any, variables: tuple[str, ...]) -> FloatArray:
    """Return a weight for every variable.

    Parameters
    ----------
    weights : a mapping by name, in which variables may be left out, numbers in the order of the
        variables, or None for equal weights that add up to one
    variables : names

    Raises
    ------
    PlanError
        If it names no such variable, has another length, or is not made of finite numbers, one of
        them at least not zero.

    Examples
    --------
    >>> read_weights({"maths": 2}, ("verbal", "maths"))
    array([0., 2.])
    """
    if weights is None:
        return np.full(len(variables), 1.0 / len(variables))
    named = hasattr(weights, "keys")
    if named:
        given = dict(weights.items())
        for name in given:
            if name not in variables:
                raise PlanError(
                    f"weights name {name!r}, which is no variable{did_you_mean(name, variables)}; "
                    f"they are {', '.join(variables)}"
                )
        values = [given.get(name, 0.0) for name in variables]
    else:
        try:
            values = list(weights)
        except TypeError:
            values = []
        if isinstance(weights, str) or len(values) != len(variables):
            raise PlanError(
                f"weights are a mapping such as {{{variables[0]!r}: 1}}, or {len(variables)} "
                f"numbers for {', '.join(variables)}, not {weights!r}"
            )
    for name, value in zip(variables, values, strict=True):
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not np.isfinite(float(value)):
            raise PlanError(f"the weight of {name!r} is a finite number, not {value!r}")
    w = np.array(values, dtype=float)
    if not w.any():
        raise PlanError("all weights are zero; one at least is not")
    return w


def composite_of(g: CovarianceComponents, w: FloatArray) -> VarianceComponents:
    """Return the components of a composite; sizes that differ between its variables are left out.

    Parameters
    ----------
    g : of all variables
    w : (v,) weights
    """
    made = g.of_weights(w)
    used = np.flatnonzero(w)
    alike = {f: n for f, n in made.sizes.items() if len({g.sizes[f][a] for a in used}) == 1}
    return replace(made, sizes=alike, inverse_n=made.inverse_n if is_alike(g, w) else {})


def check_shared(g: CovarianceComponents, w: FloatArray) -> None:
    """Refuse a composite of variables that nothing connects.

    Raises
    ------
    PlanError
        Naming two of them.
    """
    shared = np.asarray(g.linked[:-1].any(axis=0))
    for a, b in combinations(np.flatnonzero(w).tolist(), 2):
        if not shared[a, b]:
            raise PlanError(
                f"{g.variables[a]!r} and {g.variables[b]!r} share no levels of any facet: they "
                "have no composite"
            )


def is_alike(g: CovarianceComponents, w: FloatArray) -> bool:
    """Whether the variables of a composite have one design: sizes, and divisors of covariances."""
    used = np.flatnonzero(w)
    if any(len({n[a] for a in used}) > 1 for n in g.sizes.values()):
        return False
    pairs = np.ix_(np.arange(len(g.names)), used, used)
    linked = g.linked[pairs]
    for divisors in g.inverse_n.values():
        inside = np.where(linked, divisors[pairs], np.nan)
        flat = inside.reshape(len(g.names), -1)
        for row in flat:
            known = row[~np.isnan(row)]
            if known.size and np.ptp(known) > 1e-9 * abs(known).max():
                return False
    return True
