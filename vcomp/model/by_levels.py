"""Resampling the levels of facets: Brennan's bootstrap and the jackknife."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vcomp.inference.resampling import Jackknife, Replicates, facet_bootstrap, jackknife
from vcomp.model.fitted import FittedComponents

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np


class ByLevels(FittedComponents):
    """What the levels of a facet say when they are drawn again or left out."""

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
    ) -> Replicates:
        """Return estimates of `n` resamples of the levels of facets: Brennan's bootstrap.

        Levels are drawn with replacement, those of a nested facet within what it is nested in. All
        rows of a level go together, and a level that is drawn twice is two levels. The estimates
        are made by the method, and with the options, of this fit.

        Drawing levels of a facet makes components that hold it too small, and others too large.
        The adjusted components, on which intervals rest, are without that bias: in the mean over
        all resamples they are the estimates, exactly so after an analysis of variance of balanced
        data with all terms. ``notes`` of the replicates say where that is approximate.

        Parameters
        ----------
        facet : whose levels are drawn: one (``"topic"``), or several, each drawn by itself
            (``["sys", "topic"]``)
        n : number of replicates
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
        workers : threads; the numbers are the same for any number of them
        time_limit : seconds after which no replicate is begun; what is done is kept, with a
            warning
        path : of a file that the replicates are saved to; if it is there already, they are
            continued from it
        progress : whether to show a bar; None for one where stderr is a terminal
        adjust : whether the replicates have adjusted components, beside those as estimated

        Returns
        -------
        Replicates
            of kind ``"facet bootstrap"``, with components as estimated in ``values`` and
            ``adjusted`` ones

        Raises
        ------
        EstimationError
            If a facet is not one of the random part or has fewer than two levels to draw from, an
            option is not one that it can have, components are held and ``adjust`` is True, or no
            resample could be fitted.
        DataError
            If the result was loaded without its rows, or the file is not one of replicates of this
            fit, seed and facets.

        Warns
        -----
        VcompWarning
            If some resamples could not be fitted (they have ``converged=False``), or the time
            limit ended the work.

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
        """
        access = self._access()
        return facet_bootstrap(
            access.generating(),
            access.model.design,
            self._record.components,
            facet,
            n,
            rng=rng,
            adjust=adjust,
            workers=workers,
            time_limit=time_limit,
            path=path,
            progress=progress,
        )

    def jackknife(
        self, facet: str, *, workers: int = 1, progress: bool | None = None
    ) -> Jackknife:
        """Return the estimates without each level of a facet in turn: a delete-one jackknife.

        They give standard errors and intervals of any quantity made of the components
        (:meth:`vcomp.inference.resampling.Jackknife.of`), without an assumption on the distribution of the
        effects. Levels of a nested facet are those within each combination of levels of the facets
        that it is nested in.

        Parameters
        ----------
        facet : such as ``"topic"``
        workers : threads
        progress : whether to show a bar; None for one where stderr is a terminal

        Raises
        ------
        EstimationError
            If the facet is not one of the random part, or has fewer than three levels (a nested
            one fewer than two wherever it is); or if nothing could be fitted.
        DataError
            If the result was loaded without its rows.

        Warns
        -----
        VcompWarning
            If an estimate is missing: then there is no standard error.

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
        access = self._access()
        return jackknife(
            access.generating(), access.model.design, facet, workers=workers, progress=progress
        )
