"""How well everything is known: intervals, tests, resampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from vcomp.results import tables
from vcomp.results.crosscheck import CrossCheck, crosscheck
from vcomp.results.fitted import FittedComponents
from vcomp.uncertainty import FromComponents, IntervalSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd

    from vcomp.results.profile import Profile

__all__ = ["Inference", "IntervalMethod"]

IntervalMethod: TypeAlias = str | IntervalSource
"""The name of a method, or what gives intervals itself, such as bootstrap replicates."""


class Inference(FittedComponents):
    """Intervals and tests of components, of fixed effects and of what is made from them."""

    def conf_int(self, alpha: float = 0.05, method: IntervalMethod = "auto") -> pd.DataFrame:
        """Return intervals of :attr:`params` in columns 0 and 1, as statsmodels does.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        method : of the intervals of components

            ``"mls"``, which ``"auto"`` takes
                modified large sample: exact for the residual of balanced data, near to its level
                for all components, at their bound zero as well
            ``"satterthwaite"``
                χ² with ν = 2 (σ̂²/se)²; a component at its bound or below has none (nan)
            ``"log"``, ``"wald"``
                normal on the log scale and on the natural one, which may reach below zero
            ``"profile"``
                profile likelihood; after REML and ML only
            ``"bootstrap"``
                percentiles of 1,000 parametric bootstrap replicates; for other numbers or kinds
                pass what :meth:`bootstrap`, :meth:`resample` or :meth:`jackknife` returned

        Raises
        ------
        EstimationError
            If the method is not known, or has no intervals for this fit.
        PlanError
            If alpha is not between 0 and 1.
        """
        return tables.conf_int(self, alpha, self.interval_source(method))

    def gstudy(self, alpha: float = 0.05, method: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row a component: estimate, se, ci_low, ci_high and percent.

        Percent is of the total variance, negative estimates taken as zero. After an engine with
        random probes there is ``mc_error`` after se. Intervals are those of :meth:`conf_int`.
        """
        return tables.gstudy(self, alpha, self.interval_source(method))

    def profile(self, what: str | Sequence[str] | None = None, *, alpha: float = 0.05) -> Profile:
        """Return profile likelihoods of components, and of fixed effects after ML.

        Parameters
        ----------
        what : one or several names as in :attr:`vcomp` or :attr:`params`; all components that were
            estimated if not given
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        Profile
            With ``conf_int()``, ``frame`` (parameter, value, z) and ``curves`` by name.

        Raises
        ------
        EstimationError
            If the fit is no converged one by REML or ML, its engine has random probes, a name is
            not known, a fixed effect is asked for after REML, or a profile cannot be followed.
        DataError
            If the result was loaded without its rows.
        PlanError
            If alpha is not between 0 and 1.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> res.profile(["sys", "Residual"]).conf_int().round(4)
                       0       1
        sys       0.0001  0.0700
        Residual  0.0030  0.0217
        """
        from vcomp.results.profile import profiles

        return profiles(self._access(), self._record.exog_names, what, alpha)

    def interval_source(self, method: IntervalMethod, negative: str = "keep") -> IntervalSource:
        """Return what gives intervals by a method, as :meth:`conf_int` names them.

        Parameters
        ----------
        method : its name, or a source itself
        negative : how the delta method takes negative estimates, ``"keep"`` or ``"zero"``
        """
        if not isinstance(method, str):
            return method
        return FromComponents(self._record.components, method, negative)

    def crosscheck(
        self,
        methods: Sequence[str] | str | None = None,
        *,
        n: int = 100,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        time_limit: float | None = None,
        progress: bool | None = None,
    ) -> CrossCheck:
        """Return the estimates of the other methods, and where they differ from those of this fit.

        Where the model holds all methods estimate the same. Data drawn from the fit and estimated
        by all of them show how far their estimates then lie from each other; a difference that is
        larger tells of effects that go with how often their groups were observed, or of variances
        that are not the same everywhere. Balanced data do not show such things: there all methods
        agree.

        Parameters
        ----------
        methods : as for :func:`vcomp.fit`, one or several; None for all
        n : data sets that are drawn: each is estimated by all methods
        rng : seed, or a generator that one is drawn from once; 0 if not given
        workers : threads; the numbers are the same for any number of them
        time_limit : seconds after which no data set is drawn
        progress : whether to show a bar; None for one where stderr is a terminal

        Returns
        -------
        CrossCheck
            with ``table``, ``fixed_effects``, ``excluded`` (methods that do not apply, and why),
            ``agrees`` and ``summary()``

        Raises
        ------
        EstimationError
            If a method is not known, a number is not one that can be, or no component is above 0.
        DataError
            If the result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> check = res.crosscheck(["anova", "ml"], n=50)
        >>> check.agrees
        True
        """
        access = self._access()
        return crosscheck(access, methods, n, rng, workers, time_limit, progress)
