"""Access to the rows of a fit through its model: predicted effects, simulation, refits.

A result has a record and a :class:`RowAccess`, which is lost in storage. A pickle keeps the
predicted effects, :class:`StoredEffects`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Design
from vcomp.estimators import Estimate, Estimator, Negative
from vcomp.estimators.likelihood import (
    MatricesLikelihood,
    Solution,
    predicted,
    predicting,
    prediction_engine,
)
from vcomp.exceptions import DataError, EstimationError, VcompError, guarded
from vcomp.formula import parse
from vcomp.inference import hypotheses, resampling
from vcomp.model.record import FitRecord
from vcomp.numerics import solve_positive
from vcomp.statistics import sum_again
from vcomp.statistics.batches import SummedData

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class EffectSolution:
    """The solution of Henderson's equations without the variances.

    Attributes
    ----------
    beta : (p,) fixed effects of the centred columns of X
    of_terms : for each term the (q_t,) predicted effects
    """

    beta: FloatArray
    of_terms: tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True)
class RowAccess:
    """The model of a fit with its estimate, from which predictions and refits are made.

    Attributes
    ----------
    model : the fitted model, for users
    data : design and statistics of the rows, and the rows where they are kept
    estimate : of its components, with the fixed effects of the centred columns of X
    estimator, negative : the estimator and the treatment of negative estimates
    """

    model: Any
    data: SummedData
    estimate: Estimate
    estimator: Estimator
    negative: Negative = "keep"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the rows; none if the rows cannot be read again."""
        if self.data.rows is not None:
            return self.data.rows.files
        try:
            return self.data.read_again().files
        except DataError:
            return ()

    def recipe(self) -> resampling.Recipe:
        """Return the estimator and options with which the fit can be repeated."""
        return resampling.Recipe(self.estimator, self.estimate.names, self.negative)

    def generating(self) -> resampling.GeneratingFit:
        """Return the fit for resampling: data are drawn from it, and it is repeated on them."""
        estimate, design = self.estimate, self.data.design

        return resampling.GeneratingFit(
            stats=self.data.statistics,
            recipe=self.recipe(),
            values=estimate.values,
            beta=estimate.beta,
            fixed_names=design.fixed.names,
            uncentre=design.uncentred,
            formula=design.formula.text,
        )

    def simulate(self, n: int, rng: int | np.random.Generator | None) -> pd.DataFrame:
        """Return new responses, one in each column."""
        import pandas as pd

        rows = self.data.rows
        if rows is None:
            raise DataError(
                "simulate() draws a response for each row, and the rows were not kept; fit them "
                "with stream=False, or use res.bootstrap(), which draws at the level of the sums"
            )
        responses = self.generating().simulate(self.data.statistics.single_rows, n, rng)
        if rows.offset is not None:
            responses = responses + rows.offset[:, None]
        return pd.DataFrame(responses, index=rows.labels, copy=False)

    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Return a frame of predicted effects for every term."""
        import pandas as pd

        solution, design = self.solution, self.data.design
        prediction, conditional = solution.prediction_var, solution.conditional_var
        return {
            term.name: pd.DataFrame(
                {
                    "estimate": solution.effects[t],
                    "se": np.sqrt(prediction[t]),
                    "conditional_se": np.sqrt(conditional[t]),
                },
                index=design.group_index(t),
            )
            for t, term in enumerate(design.terms)
        }

    def effect_covariances(self, term: str, *, conditional: bool) -> pd.DataFrame:
        """Return the covariance matrices of the prediction errors of the effects of each level.

        Parameters
        ----------
        term : one whose levels they are
        conditional : whether fixed effects are treated as known

        Raises
        ------
        EstimationError
            If the model has no such term.
        """
        design, stats = self.data.design, self.data.statistics
        names = [t.name for t in design.terms]
        own_name = term_of(names, design.structure.slopes, term)
        if own_name is None:
            raise EstimationError(
                f"the model has no random term {term!r}; terms are {', '.join(names)}", term=term
            )
        first = names.index(own_name)
        groups = frozenset(design.formula.random[first].facets)
        own = [t for t, r in enumerate(design.formula.random) if frozenset(r.facets) == groups]
        levels = design.group_index(first)
        if stats.blocks is None:
            column = "conditional_se" if conditional else "se"
            square = np.square(self.random_effects()[term][column].to_numpy())
            return _stacked(levels, [term], square[:, None, None])
        bars = [bar for bar, of_bar in enumerate(stats.blocks.terms) if of_bar[0] in own]
        own = [t for bar in bars for t in stats.blocks.terms[bar]]
        places = [_places(levels, design.group_index(stats.blocks.terms[bar][0])) for bar in bars]
        with predicting():
            found = MatricesLikelihood(stats, reml=True).effect_covariances(
                self.components, bars, places, beta_known=conditional
            )
        return _stacked(levels, [names[t] for t in own], found)

    @property
    def components(self) -> FloatArray:
        """The estimates, negative ones as zero.

        Raises
        ------
        EstimationError
            If the residual is not positive, and the others are not all zero.
        """
        if self.data.statistics.blocks is not None:
            return self.estimate.values
        v: FloatArray = np.maximum(self.estimate.values, 0.0)
        if v[-1] == 0.0 and v.any():
            raise EstimationError(
                "effects cannot be predicted if the residual variance is estimated at 0"
            )
        return v

    @property
    def solution(self) -> Solution:
        """The solution of Henderson's equations at the estimates, negative ones as zero."""
        v = self.components
        if not v.any():
            return self._nothing()
        stats = self.data.statistics
        if stats.blocks is not None:
            return predicted(MatricesLikelihood(stats, reml=True), v)
        engine = getattr(self.estimator, "engine", "auto")  # estimators in closed form have none
        return predicted(prediction_engine(stats, engine), v)

    @property
    def effects(self) -> EffectSolution:
        """The fixed and predicted effects, without the engine that the solution holds."""
        solution = self.solution
        return EffectSolution(solution.beta, solution.effects)

    def _nothing(self) -> Solution:
        stats = self.data.statistics
        zeros = tuple(np.zeros(q) for q in stats.sizes)
        beta = solve_positive(stats.XX, stats.Xy)
        cov_beta = np.zeros((beta.size, beta.size))
        return Solution(beta, cov_beta, zeros, lambda: (zeros, zeros))


def term_of(names: Sequence[str], slopes: Mapping[str, Sequence[str]], term: str) -> str | None:
    """Return the name of a term, which may be given by the groups of its slopes: g of ``g[x]``.

    Parameters
    ----------
    names : of the terms
    slopes : names of the terms with slopes by their groups
    term : as it is given
    """
    return term if term in names else next(iter(slopes.get(term, ())), None)


def _places(levels: pd.Index, other: pd.Index) -> LongArray:
    """Return the places of levels in an index that may have its facets in another order."""
    same: Any = other  # pandas' types have no levels of a MultiIndex
    if other.nlevels > 1:
        same = same.reorder_levels(list(levels.names))
    return np.asarray(same.get_indexer(levels), dtype=np.int64)


def _stacked(levels: pd.Index, effects: list[str], matrices: FloatArray) -> pd.DataFrame:
    """Return the (q, q) matrices of levels one below the other."""
    import pandas as pd

    repeated = levels.repeat(len(effects))
    arrays = [repeated.get_level_values(i) for i in range(levels.nlevels)]
    rows = pd.MultiIndex.from_arrays(
        [*arrays, effects * len(levels)], names=[*levels.names, "effect"]
    )
    return pd.DataFrame(matrices.reshape(len(rows), -1), index=rows, columns=effects)


def require_rows(rows: RowAccess | None) -> RowAccess:
    """Return the rows of a result.

    Raises
    ------
    DataError
        If the result was loaded without them.
    """
    if rows is None:
        raise DataError(
            "this result was loaded without its rows, which predicted effects, fitted values, "
            "residuals, profiles and resampling need; fit the model again"
        )
    return rows


_COLUMNS = 3
"""Stored numbers of a predicted effect: estimate, se and conditional_se."""


@dataclass(frozen=True, slots=True)
class StoredEffects:
    """The predicted effects in a pickled result, which has no rows.

    Attributes
    ----------
    frames : of every term, as :meth:`RowAccess.random_effects` returns them; None without
    reason : why effects are missing; empty if there are effects
    """

    frames: dict[str, pd.DataFrame] | None
    reason: str = ""

    @classmethod
    def of(cls, access: RowAccess) -> StoredEffects:
        """Return the effects, unless they are larger than the data or cannot be predicted."""
        design = access.data.design
        effects = sum(access.data.statistics.sizes)
        numbers = design.structure.n_rows * (len(design.facets) + 1)
        if effects * _COLUMNS > numbers:
            return cls(
                None,
                f"its {effects:,} predicted effects, each with two standard errors, would have "
                "been larger than the data",
            )
        try:
            return cls(access.random_effects())
        except VcompError as error:
            return cls(None, str(error))

    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Return a frame of predicted effects for every term.

        Raises
        ------
        DataError
            If there are none.
        """
        if self.frames is None:
            raise DataError(
                "this result was pickled without its rows and without its predicted effects: "
                f"{self.reason}; fit the model again"
            )
        return {term: frame.copy() for term, frame in self.frames.items()}


class Fitted:
    """The record of a fit, and access to its rows, None after loading; predicted effects.

    A result that was pickled has no rows, but the predicted effects.
    """

    _record: FitRecord
    _rows: RowAccess | None
    _effects: StoredEffects | None = None

    @property
    def _row_access(self) -> RowAccess:
        return require_rows(self._rows)

    def _state(self) -> dict[str, Any]:
        """Return what a pickle holds: the record and the predicted effects, without the rows."""
        effects = self._effects if self._rows is None else StoredEffects.of(self._rows)
        return {"_record": self._record, "_rows": None, "_effects": effects}

    @property
    @guarded
    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Predicted effects (BLUPs) of every term.

        Frames with the levels as index and the columns ``estimate``, ``se`` (of the prediction
        error, fixed effects estimated) and ``conditional_se`` (fixed effects treated as known, as
        in lme4). Where effects are solved for iteratively, both come from the random probes of the
        fit, and are nan if their Monte Carlo error is above a hundredth.

        A pickled result keeps the effects, unless they are larger than the data: three numbers
        an effect against the response and the facets of every row. JSON has none.

        Rows need not be kept. If cells were collapsed while rows were read, and a term has an
        effect for every cell, the cells are summed in another pass, which is refused if they do
        not fit into memory.
        """
        if self._rows is None and self._effects is not None:
            return self._effects.random_effects()
        return self._row_access.random_effects()

    @guarded
    def random_effects_cov(self, term: str, *, conditional: bool = False) -> pd.DataFrame:
        """Return the covariance matrix of the predicted effects of each level.

        It is that of the prediction errors û − u, of intercept and slopes such as ``g`` and
        ``g[x]``: the diagonals are the squares of ``se`` in :attr:`random_effects`.

        Parameters
        ----------
        term : a random term, or the groups of its slopes: ``g`` of ``g[x]``
        conditional : whether fixed effects are treated as known, as in lme4's ``condVar`` and
            statsmodels' ``random_effects_cov``; the diagonals are those of ``conditional_se``

        Returns
        -------
        pandas.DataFrame
            A row for each level and effect, a column for each effect: ``.loc[level]`` is the
            matrix of a level

        Raises
        ------
        EstimationError
            If the model has no such term.
        DataError
            If the result was loaded without its rows.

        References
        ----------
        Henderson (1975), Best linear unbiased estimation and prediction under a selection model,
        Biometrics 31, 423-447.

        Examples
        --------
        >>> import vcomp
        >>> data = {"y": [1, 2, 4, 4, 5, 5, 3, 6, 9], "x": [0, 1, 2] * 3, "g": list("aaabbbccc")}
        >>> res = vcomp.fit("y ~ x + (x||g)", data)
        >>> res.random_effects_cov("g").loc["a"].rename_axis(None).round(3)
                  g   g[x]
        g     0.971 -0.035
        g[x] -0.035  0.539
        """
        return self._row_access.effect_covariances(term, conditional=conditional)

    @guarded
    def simulate(self, n: int = 1, rng: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Return new responses drawn from the fitted model.

        Fixed effects are at their estimates; random effects and residuals are drawn from normal
        distributions with the estimated components (negative ones as zero, with a warning).

        Parameters
        ----------
        n : number of responses
        rng : seed, or a ``numpy.random.Generator`` from which one is drawn; 0 if not given.
            Response j does not depend on the number of responses

        Returns
        -------
        pandas.DataFrame
            (nobs, n), on the scale of the data, with the index of the rows that were used

        Raises
        ------
        EstimationError
            If an option is invalid, no component is positive, or the responses would not fit into
            memory.
        DataError
            If the result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.simulate(2, rng=1).shape == (len(data), 2)
        True
        """
        return self._row_access.simulate(n, rng)


def record_of(res: Fitted) -> FitRecord:
    """Return the record of a fit.

    Parameters
    ----------
    res : the fit
    """
    return res._record


def compared_fit(res: Fitted) -> hypotheses.ComparedFit:
    """Return the values that a comparison with other models uses.

    Parameters
    ----------
    res : the fit
    """
    record, rows = res._record, res._rows
    return hypotheses.ComparedFit(
        formula=record.written,
        response=record.response,
        estimate=record.estimate,
        exog_names=record.exog_names,
        nobs=record.structure.n_rows,
        response_sums=record.response_sums,
        stats=None if rows is None else rows.data.statistics,
        covariances=record.components.covariance_names,
        groups=record.components.groups,
        weights=record.weights,
        offset=record.offset,
    )


def kept_response(res: Fitted) -> tuple[FloatArray, LongArray] | None:
    """Return the responses of the rows of a fit, and their cells; None if not in memory.

    A cell has one level of each facet.

    Parameters
    ----------
    res : the fit
    """
    if res._rows is None or res._rows.data.rows is None:
        return None
    rows = res._rows.data.statistics.single_rows
    return rows.response, rows.cells()[0]


def model_of_same_rows(res: Fitted, formula: str) -> Any:
    """Return the model of another formula of the rows of a fit, from its sums.

    Parameters
    ----------
    res : the fit
    formula : with the same response, facets and columns of its fixed part

    Returns
    -------
    VarianceComponentsModel
        None if the sums do not suffice.
    """
    access = require_rows(res._rows)
    data = sum_again(access.data, parse(formula))
    return None if data is None else type(access.model)(formula, data)


def fitted_again(res: Fitted) -> tuple[resampling.GeneratingFit, Design]:
    """Return a fit that can be repeated, with its statistics, and the design of its data.

    Parameters
    ----------
    res : the fit

    Raises
    ------
    DataError
        If the result was loaded without its rows.
    """
    access = require_rows(res._rows)
    return access.generating(), access.data.design
