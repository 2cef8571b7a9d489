"""The likelihood of data as a function of the components, under statsmodels' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import RESIDUAL
from vcomp.design import Design
from vcomp.estimators.choose import choose_engine
from vcomp.estimators.engine import InformationKind, LikelihoodEngine
from vcomp.exceptions import EstimationError
from vcomp.statistics import Statistics

__all__ = ["LikelihoodOfData"]

Components: TypeAlias = FloatArray | Mapping[str, float]


class LikelihoodOfData:
    """What a model says of its likelihood at components that are given."""

    design: Design
    statistics: Statistics
    _engines: dict[bool, LikelihoodEngine]

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of the variance components, the residual last."""
        return (*(term.name for term in self.design.terms), RESIDUAL)

    def loglike(self, params: Components, *, reml: bool = True) -> float:
        """Return the log-likelihood at given components, fixed effects profiled out.

        Parameters
        ----------
        params : (k + 1,) components in the order of :attr:`component_names`, or a mapping or
            Series by name; not negative, the residual positive
        reml : the restricted likelihood, or the full one

        Raises
        ------
        EstimationError
            If the components are not of that form.
        """
        return self._engine(reml=reml).loglike(self._components(params))

    def score(self, params: Components, *, reml: bool = True) -> FloatArray:
        """Return the gradient of :meth:`loglike`, (k + 1,)."""
        return self._engine(reml=reml).derivatives(self._components(params)).score

    def information(
        self,
        params: Components,
        *,
        kind: InformationKind = "observed",
        reml: bool = True,
    ) -> FloatArray:
        """Return an information matrix of the components, (k + 1, k + 1).

        Parameters
        ----------
        kind : ``"observed"`` (less the Hessian), ``"expected"`` (Fisher) or ``"average"``
        """
        if kind not in ("observed", "expected", "average"):
            raise EstimationError(
                f"kind={kind!r} is not known; it is 'observed', 'expected' or 'average'"
            )
        return self._engine(reml=reml).information(self._components(params), kind)

    def hessian(self, params: Components, *, reml: bool = True) -> FloatArray:
        """Return the matrix of second derivatives of :meth:`loglike`."""
        return -self.information(params, kind="observed", reml=reml)

    def _engine(self, *, reml: bool) -> LikelihoodEngine:
        """Return the engine of these data; what it has factored stays for the next question."""
        if reml not in self._engines:
            names = self.component_names[:-1]
            self._engines[reml] = choose_engine(self.statistics, reml=reml, names=names)
        return self._engines[reml]

    def _components(self, params: Components) -> FloatArray:
        names = self.component_names
        in_order = _by_name(params, names)
        try:
            v = np.asarray(in_order, dtype=np.float64)
        except (TypeError, ValueError):
            raise EstimationError(
                f"components are {len(names)} numbers ({', '.join(names)}), not {params!r}"
            ) from None
        if v.shape != (len(names),):
            raise EstimationError(
                f"components have shape {v.shape}; there are {len(names)}: {', '.join(names)}"
            )
        if not np.isfinite(v).all() or (v < 0.0).any() or v[-1] == 0.0:
            raise EstimationError("components are not negative, and the residual is positive")
        return v


def _by_name(params: Components, names: tuple[str, ...]) -> Any:
    """Return the components of a mapping or Series in order; anything else as it is."""
    if not hasattr(params, "keys"):
        return params
    known = set(params.keys())
    absent = [name for name in names if name not in known]
    if absent:
        raise EstimationError(f"component {absent[0]!r} is missing; they are {', '.join(names)}")
    by_name: Any = params
    return [by_name[name] for name in names]
