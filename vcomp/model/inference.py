"""How well everything is known: intervals, tests, resampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.gtheory import HasDStudies, MeanOfScores
from vcomp.inference import Projected, Quantities, Smooth, VarianceComponents
from vcomp.inference.intervals import (
    FromComponents,
    IntervalName,
    IntervalSource,
    Limits,
    check_local_interval,
    check_source,
)
from vcomp.inference.profile import SmoothConstraint
from vcomp.inference.resampling import (
    BootstrapType,
    FromReplicates,
    Jackknife,
    Replicates,
    parametric_bootstrap,
)
from vcomp.model import tables
from vcomp.model.cross_checks import CrossCheck, crosscheck
from vcomp.model.fitted import FittedComponents
from vcomp.model.profiling import Likelihood

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import pandas as pd

    from vcomp.model.profiling import Profile

IntervalMethod: TypeAlias = IntervalName | IntervalSource | Replicates
"""The name of a way to make intervals, or a source of them, such as bootstrap replicates."""


class Inference(HasDStudies, FittedComponents):
    """Intervals and tests of components, of fixed effects and of what is made from them."""

    def conf_int(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return intervals of :attr:`params` in columns 0 and 1, as statsmodels does.

        Fixed effects have t-intervals with Satterthwaite's degrees of freedom, as in
        :meth:`fixed_effects`, whatever `interval` is.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how the intervals of components are made

            ``"auto"``, ``"mls"``
                modified large sample: exact for the residual of balanced data, with coverage close
                to nominal for all components, at their bound zero as well
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
        return tables.conf_int(self, alpha, self.interval_source(interval))

    def _components(self) -> VarianceComponents:
        return self._record.components

    def _source(
        self, interval: IntervalName | IntervalSource | Replicates, negative: Projected
    ) -> IntervalSource:
        return self.interval_source(interval, negative)

    def _mean_of_scores(self) -> MeanOfScores:
        estimate, columns = self._record.estimate, self._record.exog_names
        return MeanOfScores(estimate.beta, estimate.cov_beta, columns == ("Intercept",))

    def gstudy(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row a component: estimate, se, ci_low, ci_high and percent.

        Percent is of the total variance, negative estimates set to zero. After an engine with
        random probes there is ``mc_error`` after se.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        return tables.gstudy(self, alpha, self.interval_source(interval))

    def profile(self, what: str | Sequence[str] | None = None, *, alpha: float = 0.05) -> Profile:
        """Return profile likelihoods of components and their ratios, of fixed effects after ML.

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
        from vcomp.model.profiling import profiles

        return profiles(self._access(), self._record.exog_names, what, alpha)

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
        >>> basic = res.interval_source(res.bootstrap(2000, rng=1), bootstrap_type="basic")
        >>> res.quantity("Residual", interval=basic).interval_method
        'basic of 2,000 parametric replicates'
        """
        return source_of(self, interval, negative, bootstrap_type)

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
        n : data sets that are drawn; each takes about as long as a fit by every method. Standard
            errors need 20, and are known to about 1/√(2n) of themselves
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

        Every data set is estimated by the method, and with the options, of this fit. Where the
        design has orthogonal strata their sufficient statistics are drawn, and the number of rows
        does not matter; elsewhere rows are simulated.

        Parameters
        ----------
        n : number of replicates
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
        workers : threads; the numbers are the same for any number of them
        time_limit : seconds after which no replicate is begun; what is done is kept, with a
            warning
        path : of a file that the replicates are saved to every half minute, at the end, and when
            the work is interrupted. If it is there already, they are continued from it (after a
            generator with the file's seed); :meth:`vcomp.inference.resampling.Replicates.load` reads it
        progress : whether to show a bar; None for one where stderr is a terminal

        Raises
        ------
        EstimationError
            If an option is not of that form, or no component is estimated above zero.
        DataError
            If the result was loaded without its rows, or the file is not one of replicates of this
            fit and seed.

        Warns
        -----
        VcompWarning
            If negative components are taken as zero, the time limit ended the work, or estimations
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
        return parametric_bootstrap(
            self._access().generating(),
            n,
            rng=rng,
            workers=workers,
            time_limit=time_limit,
            path=path,
            progress=progress,
        )


PROFILE = "profile likelihood"

_OTHERS = ("profile", "bootstrap")
_OF_FACETS = {
    "jackknife": "jackknife",
    "resample": "resample",
    "facet bootstrap": "resample",
    "facet_bootstrap": "resample",
}


def source_of(
    res: Inference,
    interval: IntervalMethod,
    negative: Projected,
    bootstrap_type: BootstrapType = "percentile",
) -> IntervalSource:
    """Return the source of the intervals of a fit.

    Parameters
    ----------
    res : the fit
    interval : a name, replicates, or a source itself
    negative : how negative components are used
    bootstrap_type : of intervals from replicates

    Raises
    ------
    EstimationError
        If the interval is not known, or not available for this fit.
    DataError
        If it needs the rows, and the result was loaded without them.
    """
    record = res._record
    if interval == "profile":
        return FromProfile(Likelihood.of(res._access()))
    if interval == "bootstrap":
        interval = res.bootstrap()
    if isinstance(interval, Replicates) and not isinstance(interval, Jackknife):
        _check_own(interval, record.estimate.names)
        fitted = record.estimate.values, record.estimate.beta
        return FromReplicates(interval, *fitted, bootstrap_type, negative)
    if bootstrap_type != "percentile":
        raise EstimationError(
            f"bootstrap_type={bootstrap_type!r} is of intervals from bootstrap replicates, not of "
            f"{interval!r}"
        )
    if not isinstance(interval, str):
        return check_source(interval)
    if interval in _OF_FACETS:
        raise EstimationError(
            f"interval={interval!r} needs to know over which facet; pass "
            f"interval=res.{_OF_FACETS[interval]}({record.structure.facets[0]!r})"
        )
    check_local_interval(interval, _OTHERS)
    estimate = record.estimate
    return FromComponents(record.components, interval, negative, estimate.beta, estimate.cov_beta)


def _check_own(replicates: Replicates, names: tuple[str, ...]) -> None:
    if replicates.names != names:
        raise EstimationError(
            f"these replicates are of {', '.join(replicates.names)}, and the fit has "
            f"{', '.join(names)}; resample this fit"
        )


@dataclass(frozen=True, slots=True)
class FromProfile:
    """Intervals from the profile likelihood of each quantity.

    Parameters
    ----------
    likelihood : that the fit has maximised
    """

    likelihood: Likelihood

    @property
    def interval(self) -> str:
        """Its name."""
        return "profile"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        What depends on held components alone has none (nan).

        Raises
        ------
        EstimationError
            If a profile cannot be followed, or the quantity depends on the fixed effects.
        """
        check_alpha(alpha)
        if isinstance(quantities, Smooth):
            return self._of_function(quantities, alpha)
        ends, notes = [], []
        for j in range(len(quantities)):
            low, high, said = self._one(quantities.take(slice(j, j + 1)), alpha)
            ends.append((low, high))
            notes += [note for note in said if note not in notes]
        both = np.array(ends).reshape(-1, 2)
        return Limits(both[:, 0], both[:, 1], PROFILE, tuple(notes))

    def _one(self, q: Quantities, alpha: float) -> tuple[float, float, tuple[str, ...]]:
        a = q.a[0]
        if self._is_known(a) and (q.b is None or self._is_known(q.b[0])):
            return np.nan, np.nan, ("what depends on held components alone has no interval",)
        whole = Quantities("linear", q.a) if q.form == "root" else q
        curve = self.likelihood.profile_ratio(whole, "a quantity", alpha, points=0)
        if q.form == "root":
            return float(np.sqrt(max(curve.low, 0.0))), float(np.sqrt(curve.high)), curve.notes
        return curve.low, curve.high, curve.notes

    def _of_function(self, q: Smooth, alpha: float) -> Limits:
        if q.uses_fixed:
            raise EstimationError(
                "a quantity that depends on the fixed effects has no profile here; use "
                "interval='log' or 'bootstrap'"
            )
        nothing = np.zeros(0)
        constraint = SmoothConstraint(
            lambda v: q.function(v, nothing), lambda v: q.slopes(v, nothing)[0]
        )
        curve = self.likelihood.profile(constraint, "a quantity", alpha, points=0)
        return Limits(np.array([curve.low]), np.array([curve.high]), PROFILE, curve.notes)

    def _is_known(self, weights: FloatArray) -> bool:
        return not (weights[~self.likelihood.held] != 0.0).any()
