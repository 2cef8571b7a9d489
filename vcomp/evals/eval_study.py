"""The study of an evaluation: scores, differences, ranks, sources of noise, and what to add."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from vcomp import display
from vcomp.codec import to_document
from vcomp.evals.contradictions import are_unequal, contradictions, vary_unequally
from vcomp.evals.model_fits import (
    DDF,
    SCORE,
    PairsTest,
    compared,
    fit_of_models,
    fitted,
    noise_of_score,
    sources_of,
    without_rounding,
)
from vcomp.evals.more_data import means_of_drawn_tasks, more_data
from vcomp.evals.next_data import allocation, on_score, plan_of, sentences
from vcomp.evals.page import EvalPage, aggregates, page_of, printed, write_aggregates
from vcomp.evals.partitions import Partitions
from vcomp.evals.prices import Prices, read_budget, read_model_prices, read_prices
from vcomp.evals.roles import (
    FIXED,
    MOST_NAMED,
    Roles,
    check_number_of_means,
    of_lacking,
    roles_of,
    task_shares,
)
from vcomp.evals.score_rows import (
    ScoresOfEval,
    check_margin_of,
    check_varying,
    column_names,
    distinct,
    lacking_scores,
    left_out,
    notes_of,
    of_known_levels,
    opened,
    sampled_levels,
    scored_rows,
    with_unnamed_prompt,
)
from vcomp.evals.unknown_effects import Unknown, unknown
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    check_alpha,
    check_one_of,
    did_you_mean,
    guarded,
    warn,
)
from vcomp.gtheory import DStudy
from vcomp.inference.hypotheses import CovarianceOfFixed
from vcomp.inference.pairwise import PairwiseComparisons
from vcomp.model import VarianceComponentsResults

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.gtheory.allocation import Allocation
    from vcomp.multivariate import MultivariateResults


@dataclass(frozen=True, slots=False, eq=False, repr=False)
class EvalStudy(display.Printed):
    """Scores of models with all errors, ranks, sources of noise, and plans; ``print`` it.

    Made by :func:`vcomp.evals.study`.

    Attributes
    ----------
    roles : columns that are compared, sampled, or have all the levels there are
    table : scores of models, the best first: ``mean``, ``std_error``, ``df``, ``low`` and ``high``
        with all sampled facets in the error (limits of 0/1 scores are cut at 0 and 1); with
        several models ``rank``, ``rank_low`` and ``rank_high``, the simultaneous set of ranks, and
        ``p_best``, the probability that the model has the best true score
    comparisons : all pairs of models at once; None of one model
    fit : of the scores, with models fixed
    alpha : intervals and sets have confidence 1 − alpha
    data : the scores that were fitted
    prices : of data, or None
    budget : for the whole of the data, or None
    task_shares : weights of tasks in the scores, with a sum of 1; empty if they are equal
    not_compared : models that lack scores of some tasks, or other fixed facets
    left_out : sentences on samples that have no score, or that models lack
    margin : the smallest difference that matters, or None
    model_prices : of each model, by its name as text, or None
    notes : sentences on the logs, as :func:`vcomp.evals.read` has them
    cov_type : of the errors of scores and differences, ``"model"`` or ``"robust"``
    own_errors : the pairs with an error of each, where differences vary unequally over items and
        these errors differ much; else None
    """

    roles: Roles
    table: pd.DataFrame
    comparisons: PairwiseComparisons | None
    fit: VarianceComponentsResults
    alpha: float
    data: pd.DataFrame
    prices: Prices | None = None
    budget: float | None = None
    task_shares: Mapping[Any, float] = field(default_factory=dict)
    not_compared: tuple[Any, ...] = ()
    left_out: tuple[str, ...] = ()
    margin: float | None = None
    model_prices: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    cov_type: CovarianceOfFixed = "model"
    own_errors: PairwiseComparisons | None = None

    @cached_property
    def by_task(self) -> pd.DataFrame:
        """Scores of models in each task, with their errors.

        Sampled tasks have means, and their standard errors given the tasks that were drawn: nan
        if a task has one score of a model.

        Raises
        ------
        PlanError
            If there are no several tasks; or they are sampled, and there is one model.
        """
        task = FIXED[0]
        if task in self.roles.sampled and self.comparisons is not None:
            return means_of_drawn_tasks(self)
        self._check_tasks()
        of, by = (task, ()) if self.comparisons is None else (self.roles.model, task)
        means = self.fit.marginal_means(
            of, by=by, alpha=self.alpha, ddf=DDF, cov_type=self.cov_type
        ).table[SCORE]
        return means.assign(mean=without_rounding(means["mean"], self.data[self.roles.score]))

    @cached_property
    def multivariate(self) -> MultivariateResults:
        """The tasks as dependent variables: how far models differ alike in all of them.

        Its ``correlations`` of models are without error, ``dstudy(weights)`` has the reliability
        of each task and of the composite, ``profiles`` each model's.

        Raises
        ------
        PlanError
            If there are no several tasks, or they are sampled.
        DataError
            If there is one model.
        """
        from vcomp.multivariate import fit_multivariate

        self._check_tasks()
        if self.comparisons is None:
            raise DataError(f"there is one {self.roles.model}: tasks do not distinguish any",
                            column=self.roles.model)  # fmt: skip
        return fit_multivariate(self.roles.within_tasks(self.data), self.data, variable=FIXED[0])

    def _check_tasks(self) -> None:
        """Refuse tasks that are not compared as all there is."""
        if FIXED[0] not in self.roles.fixed:
            raise PlanError(
                f"there is no column {FIXED[0]!r} of several tasks that are all there is",
                column=FIXED[0],
            )

    @cached_property
    def more_data(self) -> pd.DataFrame:
        """The standard error of a difference of two models with twice the levels of a facet.

        Returns
        -------
        pandas.DataFrame
            Index: these data, then each sampled facet and repeated runs; columns ``std_error`` of
            the difference, by the D-study of the data, and its ``ratio`` to that of these data.

        Raises
        ------
        DataError
            If there is one model.
        """
        return more_data(self)

    @cached_property
    def components(self) -> VarianceComponentsResults:
        """The fit in which models are sampled too: components of models and of their noise."""
        if self.comparisons is None:
            return self.fit
        return fitted(self.roles.planning, self.data, self.roles, self.fit)

    @cached_property
    def plan(self) -> DStudy:
        """The D-study of these data, with ``power``, ``required``, ``detectable``, ``optimize``.

        Tasks and other fixed facets have the weights that they have in the scores; of unequal ones
        the number of tasks is an effective one.

        Raises
        ------
        DataError
            If there is one model.
        """
        if self.comparisons is None:
            raise DataError(
                f"there is one {self.roles.model}: a plan to tell them apart needs several",
                column=self.roles.model,
            )
        return plan_of(self.components, self.roles, self.data, self.task_shares)

    @property
    def ahead(self) -> tuple[Any, ...]:
        """The models that may be the best: those whose set of ranks has the first."""
        if self.comparisons is None:
            return tuple(self.table.index)
        return tuple(self.table.index[self.table["rank_low"] == 1])

    @cached_property
    def noninferior(self) -> tuple[Any, ...]:
        """The models shown to be worse than the best by less than the margin, if at all.

        None of them without a margin. See :meth:`vcomp.PairwiseComparisons.noninferior`.
        """
        if self.comparisons is None or self.margin is None:
            return ()
        found = self.comparisons.noninferior(self.margin)
        return tuple(found.index[found["noninferior"]])

    @property
    def cheapest(self) -> tuple[Any, ...]:
        """The cheapest of :attr:`noninferior`, several if they cost the same."""
        if self.model_prices is None:
            return ()
        prices = {model: self.model_prices[str(model)] for model in self.noninferior}
        return tuple(model for model, price in prices.items() if price == min(prices.values()))

    @property
    def same_quality(self) -> str:
        """One sentence on :attr:`noninferior` and :attr:`cheapest`; empty without a margin."""
        if self.margin is None:
            return ""
        compared = " of those compared" if self.not_compared else ""
        shown = (
            f"shown to be less than {display.number(self.margin)} worse than the best{compared}"
        )
        n, model = len(self.noninferior), self.roles.model
        counted = display.counted(n, model)
        if n == 0:
            return f"No {model} is {shown}."
        named = self.noninferior if self.model_prices is None else self.cheapest
        who = display.listed(list(map(str, named)))
        verb, each = ("is", "") if len(named) == 1 else ("are", " each")
        if self.model_prices is None:
            return f"{who if n <= MOST_NAMED else counted} {verb} {shown}."
        price = display.number(self.model_prices[str(named[0])])
        among = f"the only {model}" if n == 1 else f"the cheapest of the {counted}"
        return f"{who}, at {price}{each}, {verb} {among} {shown}."

    def worse_than(self, baseline: object) -> tuple[Any, ...]:
        """Return the models that are significantly worse than a baseline.

        Parameters
        ----------
        baseline : a model

        Raises
        ------
        PlanError
            If there is no such model, or one alone.
        DataError
            If some models cannot be compared with it.
        """
        names = list(map(str, self.table.index))
        lacking = list(map(str, self.not_compared))
        if str(baseline) in names and self.comparisons is None:
            raise PlanError(
                f"{baseline!r} is the only {self.roles.model}: nothing is compared",
                column=self.roles.model,
            )
        if str(baseline) not in (*names, *lacking):
            raise PlanError(
                f"there is no {self.roles.model} {baseline!r} to compare with"
                f"{did_you_mean(baseline, [*names, *lacking])}; there are "
                f"{', '.join(map(repr, names))}",
                level=baseline,
                column=self.roles.model,
            )
        if lacking:
            some = f"no {self.roles.model}" if str(baseline) in lacking else "not all"
            raise DataError(
                f"{some} can be compared with {baseline!r}: "
                f"{of_lacking(self.roles, self.not_compared, self.data)}; or leave out their rows",
                column=self.roles.model,
            )
        assert self.comparisons is not None
        rows = self.comparisons.table.query("significant")
        first, second = rows["first"].astype(str), rows["second"].astype(str)
        lower = rows[(second == str(baseline)) & (rows["difference"] < 0)]["first"].tolist()
        lower += rows[(first == str(baseline)) & (rows["difference"] > 0)]["second"].tolist()
        return tuple(lower)

    @property
    def sources(self) -> pd.DataFrame:
        """Components of variance, and their shares in the error variance of a difference.

        Returns
        -------
        pandas.DataFrame
            Index: the components; columns ``variance`` and ``share``; of one model the share in
            the error variance of its score.
        """
        if self.comparisons is None:
            return self._noise_of_score[["variance", "share"]]
        return sources_of(self.components, self.plan)

    @cached_property
    def _noise_of_score(self) -> pd.DataFrame:
        """The components of the only model with their shares in its error, and their facets."""
        return noise_of_score(self.fit, self.roles, self.data, self.task_shares)

    @property
    def facets_of_sources(self) -> tuple[frozenset[str], ...]:
        """The columns of each of the sources."""
        return self.plan.components.facets

    @property
    def verdict(self) -> str:
        """One sentence on who is ahead."""
        if self.comparisons is None:
            return f"There is one {self.roles.model}; nothing is compared."
        best, *others = map(str, self.ahead)
        significant, n = self.comparisons.table["significant"], len(self.comparisons.table)
        pairs = (
            f"{display.count(significant.sum())} of {display.count(n)} pairs differ significantly"
        )
        if n == 1:
            pairs = f"the difference is {'' if significant.item() else 'not '}significant"
        if not others:
            which = " that are compared" if self.not_compared else ""
            return f"{best} is ahead of all others{which}; {pairs}."
        top = str(self.table.index[0])
        others = [name for name in (best, *others) if name != top]
        named = display.listed(others) if len(others) <= MOST_NAMED else f"{len(others)} others"
        return f"{top} has the best score, and {named} may be as good; {pairs}."

    @cached_property
    def open_pair(self) -> tuple[Any, ...]:
        """The two best models, next to each other in rank, that do not differ significantly.

        Empty if there are none.
        """
        if self.comparisons is None:
            return ()
        pairs = self.comparisons.table
        pairs = pairs[~pairs["significant"]]
        alike = set(map(frozenset, zip(pairs["first"], pairs["second"], strict=True)))
        neighbours = pairwise(self.table.index.tolist())
        return next((pair for pair in neighbours if frozenset(pair) in alike), ())

    @property
    def gap(self) -> float:
        """The difference between the scores of :attr:`open_pair`; nan without."""
        if not self.open_pair:
            return math.nan
        first = self.table.index.tolist().index(self.open_pair[0])
        top = self.table["mean"].iloc[first : first + 2].diff().abs()
        return float(without_rounding(top, self.data[self.roles.score]).iloc[1])

    @cached_property
    def allocation(self) -> Allocation[DStudy] | None:
        """The best data for the budget; else the cheapest that tell :attr:`open_pair` apart.

        None without prices, or if nothing is to be found. See :meth:`vcomp.DStudy.optimize`.

        Raises
        ------
        PlanError
            As :meth:`vcomp.DStudy.optimize`.
        """
        return allocation(self, self.gap)

    @property
    def next_data(self) -> list[str]:
        """What would make it surer, in sentences; with prices what they buy."""
        is_alone = self.comparisons is None
        return on_score(self, self._noise_of_score) if is_alone else sentences(self)

    @property
    def unknown(self) -> list[Unknown]:
        """What these data cannot show, each with the cheapest data that would."""
        return unknown(self)

    @cached_property
    def contradictions(self) -> list[str]:
        """What the scores contradict in the model, in sentences.

        Components that are significantly below zero, and differences of unequal variances.
        """
        return [] if self.comparisons is None else contradictions(self)

    def summary(self) -> Any:
        """Return a printable page: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        return printed(self)

    @property
    def page(self) -> EvalPage:
        """What the page says, as values."""
        return page_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what the page says as plain values, with the keys of :attr:`page`.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> two = data[data["sys"].isin(["bm25-k1.2-b0.75", "overlap"])]
        >>> stored = vcomp.evals.study(two, system="sys", sampled=["topic"]).to_dict()
        >>> stored["ahead"], stored["scores"][1]["model"]
        (['bm25-k1.2-b0.75'], 'overlap')
        """
        return to_document(self.page)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return what the page says as JSON text; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        return self.page.to_json(path)

    def to_every_eval_ever(
        self, folder: str | os.PathLike[str] | None = None, *, organization: str = "unknown"
    ) -> list[dict[str, Any]]:
        """Return scores and uncertainty as Every Eval Ever stores them; also write them to files.

        Each model has a document with its score in each task, and over all tasks where there are
        several: standard errors and intervals have all sampled facets. :func:`read` reads them.

        Parameters
        ----------
        folder : of the files, one a model; None writes none
        organization : that evaluated

        Raises
        ------
        DataError
            If a file cannot be written.

        References
        ----------
        EvalEval Coalition (2026). *Every Eval Ever*, schema 0.3.0.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> two = data[data["sys"].isin(["bm25-k1.2-b0.75", "overlap"])]
        >>> found = vcomp.evals.study(two, system="sys", sampled=["topic"])
        >>> first, _ = found.to_every_eval_ever()
        >>> details = first["evaluation_results"][0]["score_details"]
        >>> first["model_info"]["id"], sorted(details["uncertainty"])
        ('bm25-k1.2-b0.75', ['confidence_interval', 'num_samples', 'standard_error'])
        """
        documents = aggregates(self, organization)
        if folder is not None:
            write_aggregates(documents, folder)
        return documents

    def plot(self, ax: Any | None = None) -> list[Any]:
        """Draw the score of each model with its interval, and its rank with its set.

        Lines next to the scores join models that do not differ significantly.

        Parameters
        ----------
        ax : two matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If there is one model.
        VcompError
            If matplotlib is not installed.
        """
        if self.comparisons is None:
            raise PlanError(
                f"there is one {self.roles.model}, which has no rank", column=self.roles.model
            )
        from vcomp import plots

        model = self.roles.model
        return plots.leaderboard(
            self.table.join(self.comparisons.groups["group"]),
            alpha=self.alpha,
            facet=model,
            plural=display.levels_of(model),
            ax=ax,
        )

    @property
    def title(self) -> str:
        """What was evaluated: numbers of models and of levels."""
        levels = self.roles.levels
        over = (*self.roles.fixed, *self.roles.sampled)
        models = display.counted(levels[self.roles.model], self.roles.model)
        return f"{models}: {', '.join(display.counted(levels[f], f) for f in over)}"

    def __repr__(self) -> str:
        return f"<EvalStudy: {self.title}>"


@guarded
def study(
    scores: ScoresOfEval,
    *,
    system: str = "model",
    score: str = "score",
    metric: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    sampled: Iterable[str] = (),
    fixed: Iterable[str] = (),
    alpha: float = 0.05,
    test: PairsTest | None = None,
    cov_type: CovarianceOfFixed | None = None,
    task_weights: Mapping[Any, float] | Literal["equal", "items"] | None = None,
    prices: Mapping[str, float] | None = None,
    budget: float | None = None,
    margin: float | None = None,
    model_prices: Mapping[Any, float] | None = None,
) -> EvalStudy:
    """Return who is ahead, which differences are real, where noise comes from and what to add.

    Models are compared with the effects of all sampled facets in the error: items, prompts,
    judges, and what is particular to a model in each of them. So a difference that another choice
    of prompts would turn round is not called real.

    Parameters
    ----------
    scores : logs as :func:`read` returns them, their paths, or a long table with a row for each
        score
    system : column of the models, or other systems, that are compared
    score : column of the scores
    metric : which of several metrics
    columns : other names or roles of columns, as of :func:`read`: ``{"prompt": "task"}`` of tasks
        that are forms of the same items
    where : levels of columns whose rows are compared, the others being left out:
        ``{"filter": "strict-match"}``, or a list of levels
    sampled : facets that stand for others like them, besides ``"item"``, ``"prompt"`` and
        ``"judge"``; ``"task:item"`` of a table whose tasks use the same names for other items
    fixed : facets whose levels are all there is, besides ``"task"``. Means have equal weights over
        them
    alpha : intervals and sets of ranks have confidence 1 − alpha
    test : of all pairs: ``"tukey"``; ``"max-t"``, with the correlations of differences of unequal
        errors; ``"t"``, with Holm's correction; by `cov_type` if None: ``"tukey"`` of ``"model"``,
        ``"t"`` of ``"robust"``
    cov_type : ``"model"``, one error of all pairs with the same data; ``"robust"``, an error of
        each pair from the scores of its two models, as of paired t-tests; ``"robust"`` if None
        where differences vary unequally over items, but for ``test="tukey"``; else ``"model"``
    task_weights : of the tasks in the scores of models, ``{"law": 2, "maths": 1}``; ``"items"``,
        their numbers of items; equal ones if None
    prices : per level of a column or combination, ``{"item": 0.05, "prompt": 2}``; ``"call"`` is
        an answer of a model, ``"score"`` or ``"judgement"`` the score that a judge gives it
    budget : for all scores of better data, those that exist included
    margin : the smallest difference of scores that matters: the page says which models are worse
        than the best by less, if at all
    model_prices : of each model, in any unit, ``{"small": 0.1, "large": 2.0}``: the page says
        which of these models is the cheapest

    Returns
    -------
    EvalStudy

    Raises
    ------
    DataError
        If there are no items, several metrics of which none is named, or a column without a role
        separates scores of the same sample.
    PlanError
        If a column or metric that is named does not exist.
    DesignError, EstimationError
        As :func:`vcomp.fit`.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> some = ["bm25-k1.2-b0.75", "ql-jm0.1", "overlap"]
    >>> table = data[data["sys"].isin(some)]
    >>> found = vcomp.evals.study(table, system="sys", sampled=["topic"])
    >>> found.ahead
    ('bm25-k1.2-b0.75', 'ql-jm0.1')
    """
    check_alpha(alpha)
    if test is not None:
        check_one_of("test", test, ("t", "tukey", "max-t"))
    if cov_type is not None:
        check_one_of("cov_type", cov_type, ("model", "robust"))
    sampled, fixed = column_names("sampled", sampled), column_names("fixed", fixed)
    scores, columns, where = opened(scores, columns, where, (system, score, *sampled, *fixed))
    without = left_out(scores, system, metric, where)
    table, sampled = sampled_levels(scored_rows(scores, score, metric, columns, where), sampled)
    table, groups = of_known_levels(table, Partitions(table), (system, *sampled, *fixed))
    roles = roles_of(table, system, score, sampled, fixed, groups)
    check_number_of_means(roles)
    priced = with_unnamed_prompt(roles, scores, table)
    of_data = read_prices(prices, priced), read_budget(budget, prices)
    if budget is not None and roles.levels[system] == 1:
        raise PlanError(
            f"a budget is planned for differences, and {str(table[system].iloc[0])!r} is alone",
            column=system,
        )
    of_models = read_model_prices(model_prices, margin, list(table[system].unique()))
    check_varying(table, roles, groups, alpha)
    table, roles = distinct(table, roles, groups)
    check_margin_of(margin, table[score])
    roles = with_unnamed_prompt(roles, scores, table)
    without = (*without, *lacking_scores(table, roles, groups, scores))
    weights = task_shares(task_weights, roles, table)
    del groups  # numbers of all rows
    fit = fit_of_models(roles, table)
    means_by = partial(compared, fit, roles, table[system].iloc[0], weights, test, alpha)
    own = None
    if vary_unequally(roles, table):
        try:
            own = means_by("robust")
        except EstimationError as error:  # as without memory
            if cov_type is None:
                warn(f"pairs have one standard error, though differences vary unequally: {error}")
    unequal = own[1] if own is not None and are_unequal(own[1]) else None
    # With an error of each pair, Tukey's test (of Games and Howell) rejects too often.
    by = cov_type or ("model" if unequal is None or test == "tukey" else "robust")
    means, comparisons, lacking = own if own is not None and by == "robust" else means_by(by)
    means["mean"] = without_rounding(means["mean"], table[score])
    if set(fit.components.response_values or [math.nan]) <= {0.0, 1.0}:
        means[["mean", "low", "high"]] = means[["mean", "low", "high"]].clip(0.0, 1.0)
    if comparisons is not None:
        ranks = comparisons.ranks()[["rank", "low", "high"]]
        ranks = ranks.rename(columns={"low": "rank_low", "high": "rank_high"})
        best = comparisons.probability_of_best()["probability"].rename("p_best")
        means = means.reindex(ranks.index).join(ranks).join(best)
    return EvalStudy(
        roles, means, comparisons, fit, alpha, table, *of_data, weights, lacking, without,
        None if margin is None else float(margin), of_models, notes_of(scores, table),
        cov_type=by, own_errors=unequal,
    )  # fmt: skip
