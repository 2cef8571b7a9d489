"""Methods of a result for uncertainty: intervals, profiles, resampling and cross-checks.

Methods delegate to :mod:`~vcomp.model.estimates`, :mod:`~vcomp.model.interval_sources`,
:mod:`~vcomp.model.profiling`, :mod:`~vcomp.model.model_checks` and
:mod:`vcomp.inference.resampling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vcomp.exceptions import guarded
from vcomp.inference import Projected, resampling
from vcomp.inference.hypotheses import fixed_intervals
from vcomp.inference.intervals import IntervalSource
from vcomp.model.estimates import Estimates, component_limits, gstudy
from vcomp.model.interval_sources import IntervalMethod, source_of

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from vcomp.design import LevelGroups
    from vcomp.inference.resampling import BootstrapType, Jackknife, Replicates
    from vcomp.model.model_checks import CrossCheck
    from vcomp.model.profiling import Profile


class Uncertainty(Estimates):
    """Intervals of components and of fixed effects, resampling, cross-checks."""

    @guarded
    def conf_int(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return intervals of :attr:`params` in columns 0 and 1, as statsmodels does.

        Fixed effects have t-intervals with Satterthwaite's degrees of freedom, as in
        :meth:`fixed_effects`, whatever `interval` is.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how the intervals of components are made

            ``"robust"``
                modified large sample with degrees of freedom from the data: for effects of any
                distribution and variances that differ, such as those of 0/1 scores. Effects of
                facets with fewer than 6 levels are treated as normal. Needs the rows, or a result
                that was stored with their influences
            ``"auto"``
                ``"robust"`` if a facet has 6 levels and the rows can be read, else ``"mls"``, with
                a note that gives the reason; ``"profile"`` for scores of known variance and where
                the residual is held
            ``"mls"``
                modified large sample: exact for the residual of balanced data, with coverage close
                to nominal for all components, including those at their bound zero, if effects are
                normal
            ``"f"``
                exact F of two mean squares of a balanced design for ratios, refused where there
                are none; else as ``"mls"``
            ``"satterthwaite"``
                χ² with ν = 2 (σ̂²/se)²; a component at or below its bound has none (nan)
            ``"log"``, ``"wald"``
                normal on the log scale and on the natural scale; the latter may extend below zero
            ``"profile"``
                profile likelihood; after REML and ML only
            ``"bootstrap"``
                percentiles of 1,000 parametric bootstrap replicates. For another number or type,
                pass the result of :meth:`bootstrap`, :meth:`resample` or :meth:`jackknife`

        Raises
        ------
        EstimationError
            If the interval is not known, or not available for this fit.
        PlanError
            If alpha is not between 0 and 1.
        """
        import pandas as pd

        estimate = self._record.estimate
        fixed = fixed_intervals(estimate, alpha)
        components = component_limits(estimate, alpha, self.interval_source(interval))
        ends = zip(fixed, (components.low, components.high), strict=True)
        low, high = (np.concatenate(both) for both in ends)
        return pd.DataFrame({0: low, 1: high}, index=self.params.index)

    @guarded
    def gstudy(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row for each component: estimate, se, low, high and percent.

        Percent is of the total variance, negative estimates set to zero. Standard errors are
        robust with robust intervals, else those of :attr:`bse_vcomp`. If the engine has random
        probes, ``mc_error`` follows se. Where a number is missing (nan), ``note`` follows with the
        reason: a component is at its bound 0 or held, all are 0, or the variance of an estimate,
        computed at the estimates, is not positive (``"se undefined"``).

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        record, source = self._record, self.interval_source(interval)
        return gstudy(record, source, component_limits(record.estimate, alpha, source))

    @guarded
    def profile(self, what: str | Sequence[str] | None = None, *, alpha: float = 0.05) -> Profile:
        """Return profile likelihoods of components, their ratios, and after ML fixed effects.

        Parameters
        ----------
        what : one or several names as in :attr:`vcomp` or :attr:`params`, or sums and ratios of
            components such as ``"sys / (sys + Residual/50)"``; all components that were estimated
            if not given
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        Profile
            With ``conf_int()``, ``frame`` (parameter, value, z) and ``curves`` by name.

        Raises
        ------
        EstimationError
            If the fit is not a converged one by REML or ML, its engine has random probes, a name
            is not known, a fixed effect is requested after REML, or a profile cannot be traced.
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
        from vcomp.model.profiling import profiles  # deferred for start-up time

        return profiles(self._row_access, self._record.exog_names, what, alpha)

    @guarded
    def interval_source(
        self,
        interval: IntervalMethod,
        negative: Projected = "keep",
        *,
        bootstrap_type: BootstrapType = "percentile",
    ) -> IntervalSource:
        """Return a source of intervals, which can be passed as ``interval=`` anywhere.

        Parameters
        ----------
        interval : a name as in :meth:`conf_int`, replicates, or a source itself
        negative : ``"keep"`` uses negative components as estimated, ``"zero"`` sets them to zero
        bootstrap_type : of intervals from replicates: ``"percentile"``, ``"basic"`` (reflected at
            the estimate on the log or logit scale) or ``"bias-corrected"``

        Raises
        ------
        EstimationError
            If the interval or the bootstrap type is not known, or not available for this fit.
        DataError
            If it needs the rows, and the result was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> basic = res.interval_source(res.bootstrap(500, rng=1), bootstrap_type="basic")
        >>> res.quantity("Residual", interval=basic).interval_method
        'basic of 500 parametric replicates'
        """
        return source_of(self._record, self._rows, interval, negative, bootstrap_type)

    @guarded
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
        """Return estimates by the other methods, with tests of their differences from this fit.

        If the model is correct, all methods estimate the same components. Data are drawn from the
        fit and estimated by all methods to find how much their estimates differ then. A larger
        difference indicates effects that depend on how often their groups were observed, or
        variances that differ between parts of the data. Balanced data do not reveal this, as all
        methods agree there. Data are drawn with normal effects, so that effects with heavy tails
        can also make differences larger than expected.

        Parameters
        ----------
        methods : as for :func:`vcomp.fit`, one or several; None for all
        n : number of drawn data sets; each takes about as long as a fit by every method. Standard
            errors need 20, and have a relative error of about 1/√(2n)
        rng : seed, or a generator from which one is drawn; 0 if not given
        workers : number of threads, which changes the numbers by rounding at most: many
            small data sets, or alike ones, are fitted together
        time_limit : seconds after which no data set is drawn. Each data set of large data is then
            fitted alone, which is slower than all of them from one factor
        progress : whether to show a bar; None shows one if stderr is a terminal

        Returns
        -------
        CrossCheck
            with ``table``, ``fixed_effects``, ``excluded`` (methods that do not apply, and why),
            ``agrees`` and ``summary()``

        Raises
        ------
        EstimationError
            If a method is not known, a number is out of range, or no component is above 0.
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
        from vcomp.model.model_checks import crosscheck  # deferred for start-up time

        return crosscheck(self._row_access, methods, n, rng, workers, time_limit, progress)

    @guarded
    def bootstrap(
        self,
        n: int = 1000,
        *,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        time_limit: float | None = None,
        path: str | PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> Replicates:
        """Return estimates of `n` data sets drawn from the fitted model: a parametric bootstrap.

        Every data set is estimated by the method and options of this fit. If the design has
        orthogonal strata, their sufficient statistics are drawn, at a cost that does not depend on
        the number of rows; otherwise rows are simulated.

        Parameters
        ----------
        n : number of replicates
        rng : seed, or a ``numpy.random.Generator`` from which one is drawn; 0 if not given
        workers : number of threads, which changes the numbers by rounding at most: many
            small data sets, or alike ones, are fitted together
        time_limit : seconds after which no replicate is started; completed ones are kept, with a
            warning. Each data set of large data is then fitted alone, which is slower than all of
            them from one factor
        path : of a file to which replicates are saved every half minute, at the end, and at an
            interruption. If it exists, only missing ones are computed (with the seed of the file
            if `rng` is a generator); :meth:`vcomp.inference.resampling.Replicates.load` reads it
        progress : whether to show a bar; None shows one if stderr is a terminal

        Raises
        ------
        EstimationError
            If an option is invalid, no component is estimated above zero, or data sets that are
            fitted one by one are expected to take ten minutes or more, without `time_limit`.
        DataError
            If the result was loaded without its rows, or the file does not contain replicates of
            this fit and seed.

        Warns
        -----
        VcompWarning
            If negative components are set to zero, the time limit ended the work, or estimations
            did not converge.

        References
        ----------
        Efron and Tibshirani (1993), An Introduction to the Bootstrap, sec. 6.5.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> replicates = res.bootstrap(200, rng=1)
        >>> bool((replicates.frame["var(sys)"] >= 0.0).all())
        True
        """
        return resampling.parametric_bootstrap(
            self._row_access.generating(),
            n,
            rng=rng,
            workers=workers,
            time_limit=time_limit,
            path=path,
            progress=progress,
        )

    @guarded
    def resample(
        self,
        facet: str | Sequence[str],
        n: int = 1000,
        *,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        time_limit: float | None = None,
        path: str | PathLike[str] | None = None,
        progress: bool | None = None,
        adjust: bool = True,
        groups: Mapping[str, LevelGroups] | None = None,
    ) -> Replicates:
        """Return estimates of `n` resamples of the levels of facets: Brennan's bootstrap.

        Levels are drawn with replacement, those of a nested facet within the facets that it is
        nested in. All rows of a level are drawn together, and a level that is drawn twice becomes
        two levels. Each resample is estimated by the method and options of this fit.

        Resampling biases the components: those that contain the facet are too small, the others
        too large. The adjusted components, which intervals use, correct that bias: their mean over
        all resamples equals the estimates, exactly so after an analysis of variance of balanced
        data with all terms. ``notes`` of the replicates state where that is approximate. Random
        slopes and residual variances by level have replicates with ``adjust=False`` only.

        Parameters
        ----------
        facet : whose levels are drawn: one (``"topic"``), or several, drawn independently
            (``["sys", "topic"]``)
        n : number of replicates
        rng : seed, or a ``numpy.random.Generator`` from which one is drawn; 0 if not given
        workers : number of threads, which changes the numbers by rounding at most: many
            small data sets, or alike ones, are fitted together
        time_limit : seconds after which no replicate is started; completed ones are kept, with a
            warning
        path : of a file to which replicates are saved; if it exists, only missing ones are
            computed
        progress : whether to show a bar; None shows one if stderr is a terminal
        adjust : whether the replicates have adjusted components besides the estimated ones
        groups : for facets whose levels are not independent of each other, the group of each
            level: ``{"sys": {"run1": "A", "run2": "A", "run3": "B"}}``, or a function of a level
            instead of the inner mapping. A group is a set of levels with a common origin, such as
            the systems of one organisation, the topics of one author or the assessors of one
            site. Whole groups are drawn with replacement, as many as there are

        Returns
        -------
        Replicates
            of kind ``"facet bootstrap"``, with estimated components in ``values`` and ``adjusted``
            ones

        Raises
        ------
        EstimationError
            If a facet is not one of the random part or has fewer than two levels, its levels have
            residual variances of their own, an option is invalid, `groups` are of a facet that is
            not drawn, no resample could be fitted, or ``adjust`` is True and components are held
            or the model has slopes or several residual variances.
        DataError
            If the result was loaded without its rows, `groups` are of a nested facet, a level has
            no group or all are in one, or the file does not contain replicates of this fit, seed,
            facets and groups.

        Warns
        -----
        VcompWarning
            If some resamples could not be fitted (they have ``converged=False``), or the time
            limit ended the work.

        Notes
        -----
        With `groups` the correction of the bias is exact in expectation for independent levels in
        groups of one size. If levels of a group are alike, replicates vary more, which is what
        drawing groups is for.

        References
        ----------
        Brennan, Harris and Hanson (1987), The Bootstrap and Other Procedures for Examining the
        Variability of Estimated Variance Components in Testing Contexts; Wiley (2000), Bootstrap
        Strategies for Variance Component Estimation; Brennan (2001), Generalizability Theory,
        sec. 6.2.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
        >>> replicates = res.resample("topic", 100, rng=1)
        >>> replicates.kind, replicates.adjusted.shape
        ('facet bootstrap', (100, 3))
        >>> authors = {"query 1": "Ann", "query 2": "Ann", "query 3": "Bob"}
        >>> res.resample("topic", 100, rng=1, groups={"topic": authors}).notes
        ('the adjustment uses the mean size of the groups of topic',)
        """
        return resampling.facet_bootstrap(
            self._row_access.generating(),
            self._row_access.data.design,
            self._record.components,
            facet,
            n,
            rng=rng,
            adjust=adjust,
            groups=groups,
            workers=workers,
            time_limit=time_limit,
            path=path,
            progress=progress,
        )

    @guarded
    def jackknife(
        self,
        facet: str,
        *,
        workers: int = 1,
        time_limit: float | None = None,
        progress: bool | None = None,
    ) -> Jackknife:
        """Return the estimates without each single level of a facet: a delete-one jackknife.

        They give standard errors and intervals of any quantity made of the components
        (:meth:`vcomp.inference.resampling.Jackknife.of`), without an assumption on the
        distribution of the effects. Levels of a nested facet are those within each combination of
        levels of the facets that it is nested in.

        Parameters
        ----------
        facet : such as ``"topic"``
        workers : number of threads
        time_limit : expected seconds up to which fits are made one by one; None stands for ten
            minutes
        progress : whether to show a bar; None shows one if stderr is a terminal

        Raises
        ------
        EstimationError
            If the facet is not one of the random part, or has fewer than three levels (a nested
            one fewer than two in every group); if more time is expected; or if no sample could be
            fitted.
        DataError
            If the result was loaded without its rows.

        Warns
        -----
        VcompWarning
            If an estimate is missing, so that there is no standard error.

        References
        ----------
        Tukey (1958), Bias and confidence in not-quite large samples; Brennan (2001),
        Generalizability Theory, sec. 6.2.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
        >>> found = res.jackknife("topic").of(lambda v: v[:, 0])
        >>> bool(abs(found.estimate - res.vcomp["sys"]) < 1e-12)
        True
        """
        return resampling.jackknife(
            self._row_access.generating(),
            self._row_access.data.design,
            facet,
            workers=workers,
            progress=progress,
            time_limit=time_limit,
        )
