"""Answers with the ratings of judges, and human labels of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.evals.rater_agreement import Ratings
from vcomp.evals.roles import (
    FIXED,
    NUMBERED,
    SAMPLED,
    check_cells,
    check_column,
    check_one_role,
)
from vcomp.exceptions import DataError, PlanError, did_you_mean, warn

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Named:
    """Names of columns.

    Attributes
    ----------
    model, judge, score : columns
    human : column of labels, or a judge; None if there are no labels
    repeated : column that numbers repeated judgements; None if none does
    sampled, fixed : facets besides the usual ones
    """

    model: str
    judge: str
    score: str
    human: str | None
    repeated: str | None
    sampled: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JudgedAnswers:
    """Ratings of answers by judges.

    Attributes
    ----------
    judges, models : names
    rows : the scores of judges, without labels and what numbers judgements only
    first : the first rating of each answer by each judge, the last column that of the human if
        there are labels
    means : (answers, judges) means of repeated ratings, nan where there are none; None of text
    labels : (answers,) human labels, nan where there are none; None without any, or of text
    model_of, item_of, task_of, key_of : (answers,) codes: of the model, the item, the task, and of
        everything but the model
    rated : (judges,) numbers of ratings
    repeats : for each judgement that was repeated its judge, and its ``runs``, ``squares`` about
        their mean, and share of pairs that ``differ``
    """

    judges: tuple[Any, ...]
    models: tuple[Any, ...]
    rows: pd.DataFrame
    first: Ratings
    means: FloatArray | None
    labels: FloatArray | None
    model_of: LongArray
    item_of: LongArray
    task_of: LongArray
    key_of: LongArray
    rated: LongArray
    repeats: pd.DataFrame


def judged_answers(table: pd.DataFrame, names: Named) -> JudgedAnswers:
    """Return the answers of a table with their ratings.

    Parameters
    ----------
    table : a row for each rating
    names : of its columns
    """
    import pandas as pd

    _check_named(table, names)
    table = _with_a_judge(table, names)
    rows, labels_by = _without_labels(table, names)
    unit = _unit(rows, names)
    cell = [*unit, names.judge, *([names.repeated] if names.repeated else [])]
    check_cells(rows, cell, names.score, ", or write repeated={!r} if it numbers judgements")
    answer = rows.groupby(unit, observed=True, dropna=False).ngroup().to_numpy().astype(np.int64)
    n = int(answer.max()) + 1
    judge, judges = pd.factorize(rows[names.judge], sort=True)
    text = rows[names.score].dtype.kind not in "fiub"
    labels = _labels_of(labels_by, rows, answer, n, unit, names)
    labels = None if labels is None else _alike(labels, text, names)
    codes, levels = _coded(rows[names.score], labels, text)
    J = len(judges)
    place = answer * J + judge
    order = np.arange(len(rows))
    if names.repeated:
        order = np.argsort(
            pd.factorize(rows[names.repeated], sort=True, use_na_sentinel=False)[0], kind="stable"
        )
    flat = np.full(n * J, -1)
    flat[place[order][::-1]] = codes[: len(rows)][order][::-1]
    first = flat.reshape(n, J)
    if labels is not None:
        first = np.column_stack([first, codes[len(rows) :]])
    _, at = np.unique(answer, return_index=True)
    answers = rows.iloc[at]
    means = None
    if not text:
        count = np.bincount(place, minlength=n * J)
        total = np.bincount(place, rows[names.score].to_numpy(dtype=float), minlength=n * J)
        means = np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(n, J)
    model_of, models = np.zeros(n, np.int64), pd.Index([])
    if names.model in rows:
        model_of, models = pd.factorize(answers[names.model], sort=True, use_na_sentinel=False)
    others = [c for c in unit if c != names.model]
    kept = [c for c in rows if c not in (names.repeated,) or c in NUMBERED]
    items = pd.factorize(answers[_item(unit, names)], use_na_sentinel=False)[0].astype(np.int64)
    task = np.zeros(n, np.int64)
    if FIXED[0] in unit:
        task = pd.factorize(answers[FIXED[0]], use_na_sentinel=False)[0]
    return JudgedAnswers(
        tuple(judges),
        tuple(models),
        rows[kept],
        Ratings(first, levels, items, text),
        means,
        None if labels is None or text else labels.to_numpy(dtype=float),
        model_of.astype(np.int64),
        items,
        task.astype(np.int64),
        answers.groupby(others, observed=True, dropna=False).ngroup().to_numpy().astype(np.int64),
        np.bincount(judge, minlength=J),
        _repeats(rows[names.score], codes[: len(rows)], place, judge, text),
    )


def with_labels_as_judge(
    table: pd.DataFrame, names: Named, metric: str | None
) -> tuple[pd.DataFrame, str | None]:
    """Return the table and the metric of ratings, with a metric of labels as a judge of its name.

    Parameters
    ----------
    table : of all metrics
    names : of its columns; the human one may be a metric
    metric : of the ratings; None if it is the only one besides the labels
    """
    if names.human is None or names.human in table or not {"metric", names.judge} <= set(table):
        return table, metric
    own = table["metric"] == names.human
    if not own.any() or (table[names.judge] == names.human).any():
        return table, metric
    others = table["metric"][~own].unique()
    if metric is None and len(others) == 1:
        metric = others[0]
    changed = {names.judge: names.human, "metric": metric or names.human}
    return table.assign(**{c: table[c].astype(object).mask(own, v) for c, v in changed.items()}), (
        metric
    )


def _check_named(table: pd.DataFrame, names: Named) -> None:
    """Refuse names that are no columns, and columns with two roles."""
    wanted = [names.judge, names.score, *names.sampled, *names.fixed]
    wanted += [names.repeated] if names.repeated is not None else []
    wanted += [names.model] if names.model != "model" else []
    for name in wanted:
        check_column(table, name)
    named = [names.model, names.judge, names.score, *names.sampled, *names.fixed]
    named += [names.repeated] if names.repeated is not None else []
    # Labels are none of the columns that name an answer, unless these are named so.
    usual = [c for c in (*SAMPLED, *FIXED, *NUMBERED) if c not in named]
    check_one_role([*named, *usual, *([str(names.human)] if names.human in table else [])])


def _with_a_judge(table: pd.DataFrame, names: Named) -> pd.DataFrame:
    """Return the rows that name a judge."""
    kept = table[table[names.judge].notna()]
    if kept.empty:
        raise DataError(f"column {names.judge!r} names no judge", column=names.judge)
    if len(kept) < len(table):
        warn(f"{display.count(len(table) - len(kept))} of {display.count(len(table))} rows have "
             f"no {names.judge} and were left out")  # fmt: skip
    return kept


def _without_labels(table: pd.DataFrame, names: Named) -> tuple[pd.DataFrame, Any]:
    """Return the ratings of judges, and human labels: those rows, a column, or None."""
    if names.human is None:
        return table, None
    if names.human in table:
        return table.drop(columns=names.human), table[names.human]
    own = (table[names.judge].astype(str) == str(names.human)).to_numpy()
    if not own.any():
        known = [*map(str, table.columns), *map(str, table[names.judge].unique())]
        raise PlanError(
            f"there is neither a column nor a {names.judge} nor a metric "
            f"{names.human!r}{did_you_mean(names.human, known)}",
            column=str(names.human),
        )
    if own.all():
        raise DataError("there are human labels only, and no judge", column=names.judge)
    return table[~own], table[own]


def _unit(rows: pd.DataFrame, names: Named) -> list[str]:
    """Return the columns that name an answer."""
    known = (names.model, *SAMPLED, *names.sampled, *FIXED, *names.fixed, *NUMBERED)
    not_it = (names.judge, names.repeated, names.score)
    return [c for c in dict.fromkeys(known) if c in rows and c not in not_it]


def _item(unit: Sequence[str], names: Named) -> str:
    found = [c for c in (*SAMPLED[:1], *names.sampled) if c in unit]
    if not found:
        raise DataError(
            "a card of judges needs a column of items, such as 'item', which are sampled; name "
            "another by sampled=[…]",
            column="item",
        )
    return found[0]


def _labels_of(
    labels: Any, rows: pd.DataFrame, answer: LongArray, n: int, unit: list[str], names: Named
) -> Any:
    """Return the label of each answer; those without one have nan."""
    import pandas as pd

    if labels is None:
        return None
    if isinstance(labels, pd.Series):
        given = pd.Series(labels.to_numpy(), index=answer).dropna()
        said = f"column {names.human!r}"
    else:
        keys = pd.MultiIndex.from_frame(rows[unit].astype(object))
        first = ~keys.duplicated()
        wanted = pd.MultiIndex.from_frame(labels[unit].astype(object))
        at = keys[first].get_indexer(wanted)
        found = answer[np.flatnonzero(first)][at]
        given = pd.Series(labels[names.score].to_numpy()[at >= 0], index=found[at >= 0]).dropna()
        said = f"{names.judge} {names.human!r}"
    several = given.groupby(level=0).nunique()
    if (several > 1).any():
        row = int(np.flatnonzero(answer == several.index[several > 1][0])[0])
        named = ", ".join(str(rows[c].iloc[row]) for c in unit)
        raise DataError(
            f"{said} has several labels for {display.counted(int((several > 1).sum()), 'answer')} "
            f"({named} is the first): choose one each",
            column=str(names.human) if isinstance(labels, pd.Series) else names.judge,
        )
    if given.empty:
        raise DataError(f"{said} has no label for an answer that a judge rated",
                        column=str(names.human))  # fmt: skip
    return given.groupby(level=0).first().reindex(range(n))


def _alike(labels: pd.Series, text: bool, names: Named) -> pd.Series:
    """Return labels that are numbers, or text, as the ratings are; logs have numbers as text."""
    import pandas as pd

    of_text = labels.dtype.kind not in "fiub"
    if text and of_text:
        return labels.astype(object)
    if not text:
        with suppress(TypeError, ValueError):
            return pd.to_numeric(labels.astype(object)).astype(float)
    raise DataError(
        f"ratings are {'text' if text else 'numbers'}, and human labels are not: give both alike",
        column=str(names.human),
    )


def _coded(ratings: pd.Series, labels: Any, text: bool) -> tuple[LongArray, Any]:
    """Return the codes of ratings, then of labels, and the levels."""
    import pandas as pd

    values = ratings.astype(object) if text else ratings.astype(float)
    if labels is not None:
        values = pd.concat([values, labels], ignore_index=True)
    codes, levels = pd.factorize(values, sort=True)
    return codes.astype(np.int64), np.asarray(levels)


def _repeats(
    ratings: pd.Series, codes: LongArray, place: LongArray, judge: LongArray, text: bool
) -> pd.DataFrame:
    """Return the judgements that were repeated."""
    import pandas as pd

    frame = pd.DataFrame({"place": place, "judge": judge, "code": codes})
    runs = frame.groupby("place")["code"].transform("size")
    frame = frame.assign(value=0.0 if text else ratings.to_numpy(dtype=float))[runs > 1]
    by = frame.groupby("place")
    n = by.size()
    alike = frame.groupby(["place", "code"]).size()
    pairs = (alike * (alike - 1)).groupby(level="place").sum()
    found = pd.DataFrame({"judge": by["judge"].first(), "runs": n})
    found["squares"] = by["value"].var() * (n - 1)
    found["differ"] = 1.0 - pairs / (n * (n - 1))
    return found


def families_of(
    families: Mapping[Any, Any] | str | None, table: pd.DataFrame, answers: JudgedAnswers,
    model: str,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Return the families of models and judges; None is unknown.

    Parameters
    ----------
    families : family of each model and judge, or the column of the models' families; None if each
        model is a family of its own
    table : all columns
    answers : with the names of models and judges
    model : column of the models
    """
    if isinstance(families, str):
        if families not in table:
            known = list(map(str, table.columns))
            raise PlanError(
                f"there is no column {families!r}{did_you_mean(families, known)}; a mapping such "
                "as {'gpt-4': 'openai'} does as well",
                column=families,
            )
        pairs = table[[model, families]].dropna().drop_duplicates()
        found = dict(zip(pairs[model], pairs[families], strict=True))
        # A judge that is not a model may have the name of a family.
        names = set(found.values())
        found = {**{name: name for name in answers.judges if name in names}, **found}
    elif families is None:
        found = {name: name for name in answers.models}
    elif isinstance(families, Mapping):
        found = dict(families)
        known = [str(name) for name in (*answers.models, *answers.judges)]
        for name in found:
            if str(name) not in known:
                raise PlanError(
                    f"a family is given of {name!r}, which is neither a model nor a judge"
                    f"{did_you_mean(name, known)}; there are {', '.join(map(repr, known))}",
                    level=name,
                )
    else:
        raise PlanError(f"families is a mapping or a column, not {families!r}")
    by_name = {str(name): family for name, family in found.items()}
    return (
        [by_name.get(str(name)) for name in answers.models],
        [by_name.get(str(name)) for name in answers.judges],
    )
