"""How a recommended design varies with the sampling error of the components."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.alternative import Aim, AllocationRecord, Alternative, shown
from vcomp.gtheory.allocation.cost import money
from vcomp.inference import VarianceComponents
from vcomp.inference.intervals import mean_squares
from vcomp.numerics import solve as solve_equations

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.resampling import Replicates


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stability(display.Printed):
    """The best designs for redrawn components, compared with the recommended one.

    Attributes
    ----------
    aim : what the designs are chosen for
    recommended : the design, as it is printed
    frame : one row per draw: the best ``design`` for it, its sizes and ``cost``, its ``value``
        (the coefficient of the aim), the ``value_of_recommended`` design, their difference
        ``loss`` (never negative), and whether the recommended design ``reaches`` the goal. With a
        goal, ``loss`` is the cost of the recommended design less that of the best one (negative
        only if it does not reach the goal)
    wins : share of the draws in which each design, with any sizes, is the best
    same : share in which the best design is the recommended one with the same sizes
    sizes : facet → ``low``, ``median`` and ``high``, quantiles of the best sizes of the
        recommended design
    reached : share of the draws in which the recommended design reaches the goal; nan without
    unreachable : share in which no design does
    alpha : the quantiles of sizes are those of intervals with confidence 1 − alpha
    how : how the draws were made
    """

    aim: Aim
    recommended: str
    frame: pd.DataFrame
    wins: pd.Series[float]
    same: float
    sizes: pd.DataFrame
    reached: float
    unreachable: float
    alpha: float
    how: str

    @property
    def expected_loss(self) -> float:
        """The mean loss of having chosen the recommended design."""
        return float(self.frame["loss"].mean())

    def within(self, loss: float) -> float:
        """Return the share of draws in which the recommended design loses at most so much.

        Parameters
        ----------
        loss : of the coefficient with a budget, of money with a goal
        """
        return float((self.frame["loss"] <= loss + 1e-12).mean())

    def sentences(self, *, sizes: bool = True) -> list[str]:
        """Return the result in sentences.

        Parameters
        ----------
        sizes : whether to name the best sizes, which the summary has in a table
        """
        n = f"{len(self.frame):,} {self.how}"
        if self.aim.budget is not None:
            # A smaller loss of a coefficient is negligible in the summary
            limit = 0.001 if self.aim.is_coefficient else math.nan
            text = f"In {display.percent(self.same, 0)} of {n} this design is the best"
            if self.aim.is_coefficient:
                close = display.percent(self.within(limit), 0)
                text += f", and in {close} it loses less than {display.number(limit)}"
            lost = display.number(self.expected_loss, 2)
            lines = [f"{text}; the mean loss of {self.aim.symbol} is {lost}."]
        else:
            reached = display.percent(self.reached, 0)
            lines = [f"In {reached} of {n} this design reaches {self.aim.goal_words()}."]
            if self.unreachable > 0.0:
                lines.append(f"In {display.percent(self.unreachable, 0)} no design reaches it.")
            costs = self.frame["cost"].dropna().to_numpy()
            if costs.size:
                low, _, high = _quantiles(costs[:, None], self.alpha)[0]
                span = f"{money(low)} to {money(high)}"
                level = display.level(self.alpha)
                lines.append(f"The cheapest design that does so costs {span} ({level} of them).")
        if len(self.wins) > 1:
            shares = ", ".join(f"{d} {display.percent(w, 0)}" for d, w in self.wins.items())
            lines.append(f"Best design, with any sizes: {shares}.")
        ends = self.sizes[["low", "high"]].to_numpy()
        each = [
            f"{facet} {display.count(low)} to {display.count(high)}"
            for facet, (low, high) in zip(self.sizes.index, ends, strict=True)
        ]
        if each and sizes:
            level = display.level(self.alpha)
            lines.append(f"The best sizes of {self.recommended} ({level}): {', '.join(each)}.")
        return lines

    def summary(self) -> Any:
        """Return a printable summary.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = [[display.count(n) for n in row] for row in self.sizes.to_numpy()]
        table = display.simple_table(
            rows,
            ["low", "median", "high"],
            title=f"Best sizes of {self.recommended} over {len(self.frame):,} draws",
            stubs=[str(f) for f in self.sizes.index],
        )
        return display.summary([table], self.sentences(sizes=False))

    def __repr__(self) -> str:
        return f"<Stability: {len(self.frame):,} {self.how}>"


def find_stability(
    allocation: AllocationRecord[Any],
    draws: int | Replicates,
    rng: int | np.random.Generator | None,
) -> Stability:
    """Return the stability of the recommendation when the components are redrawn.

    See :meth:`Allocation.stability`.

    Parameters
    ----------
    allocation : the recommendation
    draws : replicates, or how many draws
    rng : seed or generator
    """
    values, how = _drawn(allocation, draws, rng)
    values = np.maximum(values, 0.0)
    aims = [allocation.aim] * len(values)
    each = [Alternative.of_each(a.problem, values, aims) for a in _compared(allocation)]
    frame, won, sizes = _frame(allocation, values, list(zip(*each, strict=True)))
    first = allocation.alternatives[0]
    alpha = allocation.study.alpha
    facets = list(first.problem.facets)
    quantiles = _quantiles(sizes, alpha)
    import pandas as pd

    designs = [shown(a.problem.plan.design) for a in _compared(allocation)]
    counted = np.array([(won == k).mean() for k in range(len(designs))])
    missing = float((won < 0).mean())
    same = (sizes == first.solution.sizes[0]).all(axis=1) & (won == 0)
    reached = frame["reaches"].mean() if allocation.aim.goal is not None else math.nan
    return Stability(
        aim=allocation.aim,
        recommended=designs[0],
        frame=frame,
        wins=pd.Series(counted, index=pd.Index(designs, name="design"), name="share"),
        same=float(same.mean()),
        sizes=pd.DataFrame(quantiles, index=facets, columns=["low", "median", "high"]),
        reached=float(reached),
        unreachable=missing,
        alpha=alpha,
        how=how,
    )


def draw_components(
    components: VarianceComponents, n: int, rng: np.random.Generator
) -> tuple[FloatArray, str] | None:
    """Return draws from the approximate distribution of estimates; None without their covariance.

    The independent mean squares that have the covariance matrix of the components are multiples
    of χ². Their correlation is kept by normal scores. Where there are no such mean
    squares (an estimate of 0 stands alone) the draws are normal.

    Parameters
    ----------
    components : of the G-study
    n : number of draws
    rng : random numbers

    Returns
    -------
    (n, k) draws, negative ones among them, and their name

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 2.0, "Residual": 4.0}, cov=np.diag([0.5, 0.1])).components
    >>> drawn, _ = draw_components(g, 20_000, np.random.default_rng(1))
    >>> drawn.mean(axis=0).round(1), drawn.var(axis=0).round(1)
    (array([2., 4.]), array([0.5, 0.1]))
    """
    from scipy.special import gammaincinv, ndtr

    if components.cov is None:
        return None
    squares = mean_squares(components)
    if squares is None:
        known = np.isfinite(np.diagonal(components.cov))
        cov = np.where(known[:, None] & known, components.cov, 0.0)
        z = rng.standard_normal((n, len(cov)))
        return components.values + z @ _root(cov).T, "normal draws of the components"
    half = 0.5 * squares.df
    z = rng.standard_normal((n, len(half))) @ _root(squares.correlation).T
    drawn = squares.values * gammaincinv(half, ndtr(z)) / half
    # With so many degrees of freedom χ² is normal, and almost constant.
    drawn = np.where(half > 1e8, squares.values * (1.0 + z / np.sqrt(half)), drawn)
    draws = np.repeat(squares.known[None, :], n, axis=0)
    draws[:, squares.places] = solve_equations(squares.basis, drawn.T).T
    return draws, "χ² draws of the components"


def _root(cov: FloatArray) -> FloatArray:
    """Return a root of a covariance matrix, which rounding may have made indefinite."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _drawn(
    allocation: AllocationRecord[Any],
    draws: int | Replicates,
    rng: int | np.random.Generator | None,
) -> tuple[FloatArray, str]:
    """Return (B, k) components, and how they were made."""
    study = allocation.study
    # Deferred for start-up time: these import pandas.
    from vcomp.inference.resampling import FromReplicates, Replicates
    from vcomp.numerics import check_count, seed_from

    if isinstance(draws, Replicates):
        return _of_replicates(draws, study.components)
    n = check_count(draws, "draws")
    if isinstance(study.source, FromReplicates):
        return _of_replicates(study.source.replicates, study.components)
    drawn = draw_components(study.components, n, np.random.default_rng(seed_from(rng)))
    if drawn is None:
        raise PlanError(
            "the stability of a recommendation needs the covariance matrix of the "
            "components, which is not known: give cov= to from_components, or pass replicates of "
            "a bootstrap"
        )
    return drawn


def _of_replicates(
    replicates: Replicates, components: VarianceComponents
) -> tuple[FloatArray, str]:
    if replicates.kind == "jackknife":
        raise PlanError(
            "a jackknife has no draws of the components; pass the replicates of "
            "res.bootstrap() or res.resample(facet)"
        )
    if replicates.names != components.names:
        raise PlanError(
            f"these replicates are of {', '.join(replicates.names)}, and the D-study has "
            f"{', '.join(components.names)}; bootstrap its fit"
        )
    values = replicates.values if replicates.adjusted is None else replicates.adjusted
    usable = replicates.converged & np.isfinite(values).all(axis=1)
    if usable.sum() < 2:
        raise PlanError("there are fewer than two replicates that are finite; make some hundreds")
    return values[usable], f"{replicates.kind} bootstrap draws"


def _compared(allocation: AllocationRecord[Any]) -> tuple[Alternative, ...]:
    """Return the designs that may be best for a draw, the recommended one first.

    A design that misses the goal by the estimates may reach it in a draw; a budget that is too
    small for a design is so in every draw.
    """
    if allocation.aim.budget is not None:
        return allocation.alternatives
    return (*allocation.alternatives, *allocation.left_out)


def _frame(
    allocation: AllocationRecord[Any],
    values: FloatArray,
    best: list[tuple[Alternative, ...]],
) -> tuple[pd.DataFrame, LongArray, FloatArray]:
    """Return the table of the draws, the number of the winner, and sizes of the chosen kind."""
    import pandas as pd

    aim, first = allocation.aim, allocation.alternatives[0]
    universe = values @ first.problem.universe
    chosen = first.solution.sizes[:1]
    own = np.array([first.problem.errors(chosen, v)[0] for v in values])
    with np.errstate(invalid="ignore"):
        mine = universe / (universe + own) if aim.is_coefficient else own
    chosen_cost = float(first.solution.cost[0])
    facets = list(allocation.study.plan.facets)
    won = np.full(len(values), -1)
    sizes = np.full((len(values), len(first.problem.facets)), np.nan)
    rows: list[dict[str, Any]] = []
    for b, alternatives in enumerate(best):
        if alternatives[0].solution.found:
            sizes[b] = alternatives[0].solution.sizes[0]
        ranks = [a.rank for a in alternatives]
        # Ties go to the recommended design, which comes first.
        k = min(range(len(ranks)), key=lambda j: (ranks[j], j))
        row: dict[str, Any] = {"design": None, **dict.fromkeys(facets, math.nan)}
        row |= {"cost": math.nan, "value": math.nan}
        if alternatives[k].solution.found:
            won[b], winner = k, alternatives[k]
            problem, rest = winner.problem, winner.solution
            row |= {
                "design": shown(problem.plan.design),
                "cost": rest.cost[0],
                "value": winner.values[0],
            }
            row |= dict(zip(problem.plan.facets, problem.sizes(rest.sizes[:1])[0], strict=True))
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame["value_of_recommended"] = mine
    if aim.budget is not None:
        sign = 1.0 if aim.is_coefficient else -1.0
        frame["loss"] = np.maximum(sign * (frame["value"] - mine), 0.0)
        frame["reaches"] = True
    else:
        frame["loss"] = chosen_cost - frame["cost"]
        frame["reaches"] = _reaches(mine, aim)
    return frame, won, sizes


def _reaches(values: FloatArray, aim: Aim) -> BoolArray:
    assert aim.goal is not None
    tolerance = 1e-9 * aim.goal
    if aim.is_coefficient:
        return np.asarray(values >= aim.goal - tolerance)
    return np.asarray(values <= aim.goal + tolerance)


def _quantiles(sizes: FloatArray, alpha: float) -> FloatArray:
    """Return quantiles that are observed values, (F, 3) for (B, F); infinite for missing ones."""
    known = np.where(np.isnan(sizes), math.inf, sizes)
    if not known.shape[1]:
        return np.empty((0, 3))
    tails = [alpha / 2.0, 0.5, 1.0 - alpha / 2.0]
    return np.asarray(np.quantile(known, tails, axis=0, method="inverted_cdf").T)
