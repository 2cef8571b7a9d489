"""The judge card: agreement, bias, own family, repeated judgements, committees, human labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp._typing import FloatArray
from vcomp.evals.eval_study import study
from vcomp.evals.item_sampling import (
    ANCHORED,
    JackknifedStatistics,
    anchored_mean,
    effective_number,
    errors_of_judges,
)
from vcomp.evals.judge_page import page
from vcomp.evals.judged_answers import (
    JudgedAnswers,
    Named,
    families_of,
    judged_answers,
    with_labels_as_judge,
)
from vcomp.evals.rater_agreement import joined, of_all, of_two, shifts
from vcomp.evals.score_rows import (
    ScoresOfEval,
    column_names,
    opened,
    sampled_levels,
    scored_rows,
    table_of,
)
from vcomp.exceptions import DataError, PlanError, check_alpha, guarded
from vcomp.inference.pairwise import adjusted

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = "ratings are text, and a bias needs numbers"


@dataclass(frozen=True, slots=False, eq=False, repr=False)
class JudgeCard(display.Printed):
    """What the ratings of judges are worth; ``print`` it.

    Made by :func:`vcomp.evals.judges`. Items are sampled in all errors, which are the jackknife's
    over items where nothing else is said.

    Attributes
    ----------
    judges : their names
    names : of the columns
    families : the family of each model, and of each judge; None is unknown
    alpha : intervals have confidence 1 − alpha
    """

    judges: tuple[Any, ...]
    names: Named
    families: tuple[tuple[Any, ...], tuple[Any, ...]]
    alpha: float
    _answers: JudgedAnswers

    # Agreement ---------------------------------------------------------------------------------

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """Agreement of all judges, by coefficients that need no complete ratings.

        Returns
        -------
        pandas.DataFrame
            Columns ``coefficient``, ``level`` of measurement (``"nominal"``, ``"ordinal"``,
            ``"interval"``), ``estimate``, ``std_error``, ``low``, ``high``, ``answers`` that two
            judges rated, and ``reason`` why there is no number. Gwet's AC2 has ordinal or
            quadratic weights.
        """
        return of_all(self._answers.first.of_judges(range(len(self.judges))), self.alpha)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Cohen's κ of each pair of judges, and of each judge with the human labels.

        Returns
        -------
        pandas.DataFrame
            Columns ``first`` and ``second``, then as in :attr:`agreement`. Weights of the level
            ``"ordinal"`` are linear in ranks, of ``"interval"`` quadratic in ratings.
        """
        import pandas as pd

        names = list(self.judges)
        if self._answers.first.codes.shape[1] > len(names):
            names.append(self.names.human)
        found = []
        for a, b in combinations(range(len(names)), 2):
            table = of_two(self._answers.first.of([a, b]), self.alpha)
            table.insert(0, "first", names[a])
            table.insert(1, "second", names[b])
            found.append(table)
        empty = ["first", "second", *self.agreement.columns]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=empty)

    # Bias --------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> pd.DataFrame:
        """The judges: what they rated, their bias against each other, and their own variation.

        Returns
        -------
        pandas.DataFrame
            Index: the judges; columns ``ratings`` and their ``mean``; ``bias``, the shift from the
            mean of judges on the same answers, with ``std_error`` and the simultaneous interval
            ``low`` to ``high``; ``repeated``, the judgements that were made again, with
            ``self_variance`` between them, and ``flicker``, the share of pairs that differ.
        """
        import pandas as pd

        a = self._answers
        index = pd.Index(self.judges, name=self.names.judge)
        frame = pd.DataFrame({"ratings": a.rated}, index=index)
        frame["mean"] = np.nan
        if a.means is not None:
            means = a.rows.groupby(self.names.judge, observed=True)[self.names.score].mean()
            frame["mean"] = means.reindex(index)
        found = self._shifts
        low, high = found.joint_limits(self.alpha)
        frame["bias"], frame["std_error"] = found.values, found.std_error
        frame["low"], frame["high"] = low, high
        by = a.repeats.groupby("judge")
        places = pd.RangeIndex(len(self.judges))
        frame["repeated"] = by.size().reindex(places, fill_value=0).to_numpy(dtype=int)
        within = (by["squares"].sum() / (by["runs"].sum() - by.size())).reindex(places)
        frame["self_variance"] = within.to_numpy() if a.means is not None else np.nan
        frame["flicker"] = by["differ"].mean().reindex(places).to_numpy()
        return frame

    @cached_property
    def _shifts(self) -> JackknifedStatistics:
        a, J = self._answers, len(self.judges)
        if a.means is None or J < 2:
            return JackknifedStatistics(np.full(J, np.nan), np.full((2, J), np.nan))
        return shifts(a.means, a.item_of, self._n_items)

    @property
    def _n_items(self) -> int:
        return int(self._answers.item_of.max()) + 1

    @cached_property
    def by_model(self) -> pd.DataFrame:
        """What each judge adds to each model beyond the bias of the judge.

        Returns
        -------
        pandas.DataFrame
            Columns the judge, the model, ``own`` (whether they are of a family), ``estimate``,
            ``std_error``, and the simultaneous interval ``low`` to ``high``. Models that not all
            judges rated on common answers have nan. Estimates add up to 0 over judges and models.
        """
        import pandas as pd

        a, J, M = self._answers, len(self.judges), len(self._answers.models)
        placed = np.full((4, M, J), np.nan)
        if a.means is not None and J > 1 and M > 1:
            parts = [
                shifts(a.means[a.model_of == m], a.item_of[a.model_of == m], self._n_items)
                for m in range(M)
            ]
            known = [m for m, p in enumerate(parts) if np.isfinite(p.deviations).all()]
            if len(known) > 1:
                found = joined([parts[m] for m in known])
                centred = JackknifedStatistics(
                    _less_mean(found.values, J), _less_mean(found.deviations, J)
                )
                ends = centred.joint_limits(self.alpha)
                numbers = np.array([centred.values, centred.std_error, *ends])
                placed[:, known] = numbers.reshape(4, len(known), J)
        values, errors, low, high = placed.reshape(4, M * J)
        of_models, of_judges = self.families
        model, judge = np.indices((M, J)).reshape(2, -1)
        own = [
            of_models[m] is not None and of_models[m] == of_judges[j]
            for m, j in zip(model, judge, strict=True)
        ]
        return pd.DataFrame(
            {
                self.names.judge: [self.judges[j] for j in judge],
                self.names.model: [a.models[m] for m in model],
                "own": np.array(own, dtype=bool),
                "estimate": values,
                "std_error": errors,
                "low": low,
                "high": high,
            }
        )

    @cached_property
    def own_family(self) -> pd.DataFrame:
        """What judges add to models of their own family.

        Returns
        -------
        pandas.DataFrame
            Index: judges whose family has a model, then ``"all judges"``, a common one; columns
            ``family``, ``estimate``, ``std_error``, ``low``, ``high`` (of judges simultaneous),
            and ``reason`` why there is no number. Without such judges there is no row.

        Notes
        -----
        γ of x_uj = μ_u + β_j + γ [u and j are of a family], by least squares with an effect of
        each answer: how much higher judges rate their own family than judges of other families
        do, above what they add to other models. If each judge has a γ of its own, they can be
        told apart if there is a judge or a model of another family.
        """
        import pandas as pd

        a = self._answers
        of_models, of_judges = self.families
        columns = ["family", "estimate", "std_error", "low", "high", "reason"]
        alike = np.array(
            [[f is not None and f == g for g in of_judges] for f in of_models], dtype=bool
        ).reshape(len(of_models), len(self.judges))
        partial = [j for j in range(len(self.judges)) if alike[:, j].any()]
        name = self.names.judge
        if not partial or a.means is None or len(self.judges) < 2 or len(a.models) < 2:
            return pd.DataFrame(columns=columns, index=pd.Index([], name=name))
        own = alike[a.model_of].astype(float)
        one = self._added(a.means, own[:, :, None])
        each = self._added(a.means, own[:, :, None] * np.eye(len(self.judges))[:, partial])
        rows = [
            (of_judges[j], each.values[k], each.std_error[k], *ends)
            for k, (j, ends) in enumerate(
                zip(partial, zip(*each.joint_limits(self.alpha), strict=True), strict=True)
            )
        ]
        ends = [float(end[0]) for end in one.limits(self.alpha)]
        rows.append(("", one.values[0], one.std_error[0], *ends))
        index = pd.Index([*(self.judges[j] for j in partial), "all judges"], name=name)
        frame = pd.DataFrame(rows, columns=columns[:-1], index=index)
        frame["reason"] = np.where(
            frame["estimate"].isna(), "ratings do not separate it from other biases", ""
        )
        return frame

    def _added(self, means: FloatArray, columns: FloatArray) -> JackknifedStatistics:
        J = len(self.judges)
        found = shifts(means, self._answers.item_of, self._n_items, columns)
        return JackknifedStatistics(found.values[J:], found.deviations[:, J:])

    # Committees --------------------------------------------------------------------------------

    @cached_property
    def against_human(self) -> pd.DataFrame:
        """Mean errors of judges against the human labels.

        Returns
        -------
        pandas.DataFrame
            Index: the judges; columns ``labelled`` (answers they rated that have a label),
            ``estimate`` of the mean error, ``std_error``, and the simultaneous interval ``low`` to
            ``high``.

        Raises
        ------
        DataError
            If there are no human labels, or ratings are text.
        """
        import pandas as pd

        found, _ = self._errors
        J = len(self.judges)
        bias = JackknifedStatistics(found.values[:J], found.deviations[:, :J])
        low, high = bias.joint_limits(self.alpha)
        means, labels = self._anchor
        seen = np.isfinite(means) & np.isfinite(labels)[:, None]
        return pd.DataFrame(
            {"labelled": seen.sum(axis=0), "estimate": bias.values, "std_error": bias.std_error,
             "low": low, "high": high},
            index=pd.Index(self.judges, name=self.names.judge),
        )  # fmt: skip

    @cached_property
    def committee(self) -> pd.DataFrame:
        """The correlation of the judges' errors, and how many independent judges they are worth.

        Returns
        -------
        pandas.DataFrame
            One row: ``judges``, ``correlation`` (the mean over pairs of judges) with ``low`` and
            ``high``, ``effective_number`` with ``effective_low`` and ``effective_high``, and
            ``answers`` that all judges rated and have a label.

        Raises
        ------
        DataError
            If there are no human labels, ratings are text, or there is one judge.

        Notes
        -----
        Errors are ratings less human labels. The variance of the mean error of k judges with mean
        correlation ρ is that of k/(1 + (k − 1)ρ) judges with independent errors.
        """
        import pandas as pd

        if len(self.judges) < 2:
            raise DataError("there is one judge, which is no committee", column=self.names.judge)
        found, answers = self._errors
        k = len(self.judges)
        rho = JackknifedStatistics(found.values[k:], found.deviations[:, k:])
        low, high = (np.clip(end, -1.0 / (k - 1.0), 1.0) for end in rho.limits(self.alpha))
        n, n_low, n_high = (effective_number(k, r)[0] for r in (rho.values, high, low))
        return pd.DataFrame(
            {"judges": [k], "correlation": rho.values, "low": low, "high": high,
             "effective_number": [n], "effective_low": [n_low], "effective_high": [n_high],
             "answers": [answers]}
        )  # fmt: skip

    @cached_property
    def _errors(self) -> tuple[JackknifedStatistics, int]:
        means, labels = self._anchor
        kept = np.isfinite(labels)
        return errors_of_judges(means[kept], labels[kept], self._answers.item_of[kept])

    @property
    def has_labels(self) -> bool:
        """Whether there are human labels, in numbers."""
        return self._answers.labels is not None

    @property
    def _anchor(self) -> tuple[FloatArray, FloatArray]:
        """The ratings, and the human labels."""
        if self._answers.means is None:
            raise DataError(_NUMBERS, column=self.names.score)
        if self._answers.labels is None:
            raise DataError(
                "errors of judges need human labels of some answers: without them an error that "
                "all judges share looks like the quality of the answer; name a column or a judge, "
                "human=…"
            )
        return self._answers.means, self._answers.labels

    @cached_property
    def more_judges(self) -> pd.DataFrame:
        """The standard error of a difference between two models with other numbers of judges.

        Returns
        -------
        pandas.DataFrame
            Columns ``judges``, ``std_error``, and ``ratio`` to that of one judge. Judges are drawn
            from others like these, and all else is as in the data: a D-study.

        Raises
        ------
        DataError
            If there is one judge or one model, or ratings are text or all equal.
        """
        import pandas as pd

        a, names = self._answers, self.names
        if a.means is None:
            raise DataError(_NUMBERS, column=names.score)
        for levels, name in ((self.judges, names.judge), (a.models, names.model)):
            if len(levels) < 2:
                raise DataError(f"there is one {name}, and how much several differ is not known",
                                column=name)  # fmt: skip
        sampled = [*names.sampled, *([] if names.judge == "judge" else [names.judge])]
        found = study(a.rows, system=names.model, score=names.score, sampled=sampled,
                      fixed=names.fixed, alpha=self.alpha)  # fmt: skip
        numbers = sorted({1, 2, 3, 5, 10, len(self.judges)})
        planned = found.components.dstudy(
            object=names.model, fixed=found.roles.fixed, sizes={names.judge: numbers}
        )
        errors = np.sqrt(2.0 * planned.table["rel_err_var"].to_numpy())
        return pd.DataFrame({"judges": numbers, "std_error": errors, "ratio": errors / errors[0]})

    # Human labels ------------------------------------------------------------------------------

    @cached_property
    def anchored(self) -> pd.DataFrame:
        """Prediction-powered means of human labels of models, from all ratings.

        Returns
        -------
        pandas.DataFrame
            Index: the models; columns ``answers``, ``labelled``, ``judged`` (the mean of judges),
            ``labels`` (the mean of labels) and its standard error ``labels_std_error``,
            ``estimate`` with ``std_error``, ``df``, ``low`` and ``high``, and ``lam``, the weight
            of the judges. Tasks have equal weights. Limits of 0/1 labels are cut at 0 and 1.

        Raises
        ------
        DataError
            If there are no human labels, or ratings are text.

        Notes
        -----
        The judges' rating f of an answer is the mean over judges. With n labelled answers and N
        others, each with an equal weight in its task, the estimate is λ f̄_N + mean_n(y − λf), with
        λ = Σ_n (y − ȳ)(f − f̄)/n / ((1 + n/N) var_{n+N}(f)), between 0 and 1. The variance of f is
        over all n + N answers, by n + N − 1. That is the λ of PPI++ as ppi-python computes it; by
        n − 1, or with the variance of f over the N answers alone, λ and the estimate differ a
        little. Each task has its λ, and `lam` is their mean. The standard error is that of sums
        over items, with the number of labelled ones less 2 where λ is estimated, as in a
        regression. Labelled answers are assumed to be a random sample.

        If all labels and ratings are 0 or 1, the standard error has half an answer more of each
        pair of a label and a rating, since few labels may show none of the errors that judges
        make. Without it, intervals from 10 labels of which judges err in one direction cover 75
        to 82 %; with it, 95 % or more.

        References
        ----------
        Agresti, A. and Min, Y. (2005). Simple improved confidence intervals for comparing matched
        proportions. *Statistics in Medicine*, 24, 729-740.

        Angelopoulos, A. N., Duchi, J. C. and Zrnic, T. (2023). PPI++: efficient prediction-powered
        inference. arXiv:2311.01453.
        """
        import pandas as pd

        a, (means, labels) = self._answers, self._anchor
        judged, rows = np.nanmean(means, axis=1), []
        for m in range(max(1, len(a.models))):
            own = a.model_of == m
            of = (judged[own], labels[own], a.item_of[own], a.task_of[own])
            rows.append(anchored_mean(*of, self.alpha, binary=self._is_binary))
        index = pd.Index(a.models or ["all answers"], name=self.names.model)
        frame = pd.DataFrame(rows, columns=ANCHORED, index=index)
        if np.isin(labels[np.isfinite(labels)], (0.0, 1.0)).all():
            frame[["low", "high"]] = frame[["low", "high"]].clip(0.0, 1.0)
        return frame

    @property
    def _is_binary(self) -> bool:
        """Whether all labels and ratings are 0 or 1."""
        means, labels = self._anchor
        given = np.concatenate([labels[np.isfinite(labels)], means[np.isfinite(means)]])
        return bool(np.isin(given, (0.0, 1.0)).all())

    @cached_property
    def anchored_pairs(self) -> pd.DataFrame:
        """Prediction-powered differences between models, on the items of both.

        Returns
        -------
        pandas.DataFrame
            Columns ``first``, ``second``, then as in :attr:`anchored`, ``p_value``, and
            ``p_adjusted`` by Holm's method.

        Raises
        ------
        DataError
            As :attr:`anchored`.

        Notes
        -----
        If all labels and ratings are 0 or 1, the standard error has one answer more, a sixteenth
        of each pair of labels and pair of ratings: as much as that of a mean has. Without it,
        intervals from 10 labels cover 90 to 99 %, and up to half of the differences show no error
        and have none; with it, all have one, and they cover 94 % or more.
        """
        import pandas as pd
        from scipy.special import stdtr

        a, (means, labels) = self._answers, self._anchor
        M, judged = len(a.models), np.nanmean(means, axis=1)
        shape = (int(a.key_of.max()) + 1, max(1, M))
        f, y = np.full(shape, np.nan), np.full(shape, np.nan)
        f[a.key_of, a.model_of], y[a.key_of, a.model_of] = judged, labels
        item, task = (np.zeros(shape[0], np.int64) for _ in range(2))
        item[a.key_of], task[a.key_of] = a.item_of, a.task_of
        rows = []
        for i, j in combinations(range(M), 2):
            d = f[:, i] - f[:, j]
            own = np.isfinite(d)
            known = (y[:, i] - y[:, j])[own]
            of = d[own], known, item[own], task[own]
            mean = anchored_mean(*of, self.alpha, binary=2 * self._is_binary)
            rows.append((a.models[i], a.models[j], *mean))
        frame = pd.DataFrame(rows, columns=["first", "second", *ANCHORED])
        t = frame["estimate"].abs() / frame["std_error"]
        frame["p_value"] = 2.0 * stdtr(frame["df"], -t)
        frame["p_adjusted"] = np.nan
        known = frame["p_value"].notna()
        if known.any():
            p = frame.loc[known, "p_value"].to_numpy()
            frame.loc[known, "p_adjusted"] = adjusted(p, "holm")
        return frame

    # Output ------------------------------------------------------------------------------------

    def summary(self) -> Any:
        """Return a printable page: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        return page(self)

    def plot(self, ax: Any | None = None) -> Any:
        """Draw the bias of each judge with its simultaneous interval.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If there is one judge, or ratings are text.
        VcompError
            If matplotlib is not installed.
        """
        if not self.table["bias"].notna().any():
            raise PlanError("judges have no bias to draw: it needs ratings of the same answers by "
                            "two judges, in numbers")  # fmt: skip
        frame = self.table.rename(columns={"bias": "estimate"})
        return plots.effects(frame, self.names.judge, quantity="bias", alpha=self.alpha, ax=ax)

    @property
    def title(self) -> str:
        """The numbers of judges, models, items and answers."""
        a, names = self._answers, self.names
        counts = [display.counted(len(self.judges), names.judge)]
        counts += [display.counted(len(a.models), names.model)] if a.models else []
        counts += [display.counted(self._n_items, "item")]
        return f"{', '.join(counts)}: {display.counted(len(a.item_of), 'answer')}"

    def __repr__(self) -> str:
        return f"<JudgeCard: {self.title}>"


def _less_mean(values: FloatArray, J: int) -> FloatArray:
    """Return values of models × judges less the means over models."""
    shaped = values.reshape(*values.shape[:-1], -1, J)
    return (shaped - shaped.mean(axis=-2, keepdims=True)).reshape(values.shape)


@guarded
def judges(
    scores: ScoresOfEval,
    *,
    system: str = "model",
    score: str = "score",
    judge: str = "judge",
    metric: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    families: Mapping[Any, Any] | str | None = None,
    human: str | None = None,
    repeated: str | None = None,
    sampled: Iterable[str] = (),
    fixed: Iterable[str] = (),
    alpha: float = 0.05,
) -> JudgeCard:
    """Return whether judges agree, whether they are biased, and how many they are worth.

    Parameters
    ----------
    scores : logs as :func:`read` returns them, their paths, or a long table with a row for each
        rating of an answer by a judge
    system : column of the models whose answers are rated; there need be none
    score : column of the ratings, numbers or text
    judge : column of the judges
    metric : which of several metrics
    columns : other names or roles of columns, as of :func:`study`
    where : the level, or levels, of columns whose rows are used, as of :func:`study`
    families : the family of models and judges, as ``{"gpt-4": "openai"}``, or the column of the
        models' families; if None, each model is a family, so that a judge may favour itself
    human : the column of human labels, the judge that is human, or the metric that is the truth;
        some answers need have one
    repeated : the column that numbers repeated judgements of the same answer. Without it, all
        columns of :func:`read` but the judge distinguish answers, and epochs are other answers
    sampled, fixed : facets that distinguish answers, as of :func:`study`
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    JudgeCard

    Raises
    ------
    DataError
        If there are no items, several metrics of which none is named, several labels for an
        answer, or a column without a role separates ratings of an answer by a judge.
    PlanError
        If a column, judge or metric that is named does not exist.

    Notes
    -----
    Agreement is of first judgements, bias of means of repeated ones.

    Examples
    --------
    >>> import pandas as pd, vcomp
    >>> table = pd.DataFrame({
    ...     "item": [1, 1, 2, 2, 3, 3, 4, 4], "judge": ["a", "b"] * 4,
    ...     "score": [1, 2, 2, 2, 4, 5, 3, 4]})
    >>> card = vcomp.evals.judges(table)
    >>> card.table["bias"].tolist()
    [-0.375, 0.375]
    """
    check_alpha(alpha)
    sampled, fixed = column_names("sampled", sampled), tuple(column_names("fixed", fixed))
    named = (system, score, judge, families, human, repeated, *sampled, *fixed)
    scores, columns, where = opened(scores, columns, where, named)
    table, sampled = sampled_levels(table_of(scores, columns, where), sampled)
    names = Named(system, judge, score, human, repeated, tuple(sampled), fixed)
    table, metric = with_labels_as_judge(table, names, metric)
    table = scored_rows(table, score, metric)
    rows = table
    if isinstance(families, str) and families in table:
        rows = table.drop(columns=families)
    answers = judged_answers(rows, names)
    of_models, of_judges = families_of(families, table, answers, system)
    return JudgeCard(answers.judges, names, (tuple(of_models), tuple(of_judges)), alpha, answers)
