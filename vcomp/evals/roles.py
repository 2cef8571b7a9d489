"""Roles of the columns of an evaluation: compared, sampled, or all there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from keyword import iskeyword
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray
from vcomp.evals.partitions import Partitions
from vcomp.exceptions import DataError, PlanError, did_you_mean, is_real
from vcomp.formula import REPLICATE

if TYPE_CHECKING:
    import pandas as pd

SAMPLED, FIXED, NUMBERED = ("item", "prompt", "judge"), ("task",), ("epoch", "run", "seed")
"""Columns that are sampled, that are all there is, and that number repetitions, unless named."""

MODEL = "model"
"""The column of systems, unless another one is named."""

JUDGE = "judge"
"""The column of those who score an answer; an answer is paid for once, whoever judges it."""

METRICS_ARE_JUDGES = "if the metrics are judges of the same thing, columns={'judge': 'metric'}"
"""What to write if each judge is a scorer of a log."""

_MOST_COLUMNS = 1_000
"""Means of models in tasks that are estimated one by one."""

MOST_NAMED = 5
"""Models that a sentence names."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of the columns of a table of scores.

    Attributes
    ----------
    model : column of what is compared
    score : column of the scores
    fixed : facets whose levels are all there is; means have equal weights over them
    sampled : facets whose levels stand for others, and over which scores generalize
    single : facets with one level, about whose variation these data say nothing
    repetition : column that numbers repeated runs of the same thing; empty if there is none
    levels : numbers of levels of all of them
    terms : random terms that the data can tell apart, each as its facets
    residual : what the residual is made of, in words
    shares_items : whether items occur in several tasks
    identical : column of repetitions that all have equal scores, of which one is used
    own : sampled facets of which each model has levels of its own
    """

    model: str
    score: str
    fixed: tuple[str, ...]
    sampled: tuple[str, ...]
    single: tuple[str, ...]
    repetition: str
    levels: Mapping[str, int]
    terms: tuple[tuple[str, ...], ...]
    residual: str
    shares_items: bool = False
    identical: str = ""
    own: tuple[str, ...] = ()

    @property
    def cell(self) -> list[str]:
        """The columns whose values name a sample that is repeated, if it is."""
        return [self.model, *self.sampled, *self.fixed]

    @property
    def has_answers(self) -> bool:
        """Whether the answers that several judges score are a term."""
        return any(self.repetition in term for term in self.terms)

    @property
    def repeated(self) -> str:
        """The column that numbers repetitions, or the name of the facet that they are."""
        return self.repetition or REPLICATE

    @property
    def formula(self) -> str:
        """The model with fixed effects of models."""
        compared = self.levels[self.model] > 1
        main = [f"C({self._written(f)})" for f in ((self.model,) if compared else ()) + self.fixed]
        return self._of(" * ".join(main) or "1", self.terms)

    @property
    def planning(self) -> str:
        """The model in which models are sampled, from which measurements are planned."""
        main = [f"C({self._written(f)})" for f in self.fixed]
        within = [(self.model, f) for f in self.fixed]
        return self._of(" * ".join(main) or "1", ((self.model,), *within, *self.terms))

    def within_tasks(self, table: pd.DataFrame) -> str:
        """Return the model of one task, in which models are sampled.

        Parameters
        ----------
        table : scores of all tasks
        """
        others = [f for f in self.fixed if f not in FIXED]
        main = [f"C({self._written(f)})" for f in others]
        terms, _ = _terms(Partitions(table), len(table), self.model, self.sampled, others, FIXED)
        return self._of(" * ".join(main) or "1", ((self.model,), *terms))

    def _of(self, fixed: str, terms: Iterable[tuple[str, ...]]) -> str:
        random = [f"(1|{':'.join(map(self._written, term))})" for term in terms]
        return f"{self._written(self.score)} ~ {' + '.join([fixed, *random])}"

    @staticmethod
    def _written(name: str) -> str:
        return name if name.isidentifier() and not iskeyword(name) else f"Q({name!r})"

    def sentences(self, shares: Mapping[Any, float]) -> list[str]:
        """Return what was taken as what, for the page.

        Parameters
        ----------
        shares : weights of tasks; empty if they are equal
        """

        def counted(facets: Sequence[str]) -> str:
            return display.listed([display.counted(self.levels[f], f) for f in facets])

        several = display.levels_of(self.model)
        said = [f"Compared: {counted([self.model])}."] if self.levels[self.model] > 1 else []
        if self.sampled:
            said.append(
                f"Sampled, standing for others like them: {counted(self.sampled)}; errors contain "
                "how much these vary."
            )
        said += [
            f"Each {f} has one {self.model}: a difference between {several} contains that of "
            f"their {display.levels_of(f)}. If {several} have the same {display.levels_of(f)}, "
            "name these alike."
            for f in self.own
        ]
        if FIXED[0] in self.sampled:
            tasks = display.levels_of(FIXED[0])
            said.append(
                f"A score is an estimate for {tasks} like these: {tasks} with more items count "
                f"more, the less a {self.model} varies between {tasks}."
            )
        if self.fixed:
            parts = [f"{task} {display.number(share)}" for task, share in shares.items()]
            weights = f"the weights {display.listed(parts)}" if parts else "equal weights"
            forms = self.fixed == FIXED and self.shares_items and "prompt" not in self.levels
            instead = "; if they are forms of the same items, columns={'prompt': 'task'}"
            said.append(
                f"All there is: {counted(self.fixed)}, with {weights}. If they stand for "
                f"others, write sampled=[{', '.join(map(repr, self.fixed))}]"
                f"{instead if forms else ''}."
            )
        if self.shares_items:
            several = display.levels_of(FIXED[0])
            said.append(
                f"{several.capitalize()} share items: an item with the same name in several "
                f"{several} is one. If each {FIXED[0]} has others, write "
                f"sampled=['{FIXED[0]}:{SAMPLED[0]}']."
            )
        if self.repetition:
            said.append(f"{self.repetition} numbers repetitions of the same sample.")
        if self.identical:
            said.append(
                f"{self.identical} numbers repetitions, and all repetitions of a sample have the "
                "same score: runs add no noise, and one of each sample is used."
            )
        return said


def roles_of(
    table: pd.DataFrame,
    model: str,
    score: str,
    sampled: Collection[str],
    fixed: Collection[str],
    groups: Partitions | None = None,
) -> Roles:
    """Return the roles of the columns of a table.

    Parameters
    ----------
    table : a row for each score; items that are nested in tasks have names of their own
    model, score : columns
    sampled, fixed : columns that have other roles than by default
    groups : of the table, if it has been numbered

    Raises
    ------
    PlanError
        If a column is named that does not exist or has two roles.
    DataError
        If nothing is sampled, or a column that has no role separates scores.
    """
    _check_named(table, model, score, sampled, fixed)
    if NUMBERED[0] in sampled:
        raise PlanError(
            f"{NUMBERED[0]!r} numbers repetitions, whose numbers have nothing in common: leave it "
            "out of sampled, and repetitions are in the errors; if it is something else, give its "
            "column another name",
            column=NUMBERED[0],
        )
    groups = groups or Partitions(table)
    present = [c for c in (*SAMPLED, *FIXED, *NUMBERED) if c in table and c not in (model, score)]
    by_default = [c for c in present if c not in sampled and c not in fixed]
    of_samples = [*(c for c in by_default if c in SAMPLED), *sampled]
    of_all = [*(c for c in by_default if c in FIXED), *fixed]
    numbers = [c for c in by_default if c in NUMBERED]
    groups.n_groups([model, *of_samples, *of_all, *numbers])  # from which the rest follows
    levels = {c: groups.n_levels(c) for c in (model, *of_samples, *of_all, *present)}
    several = [c for c in of_samples if levels[c] > 1]
    single = [c for c in of_samples if levels[c] == 1]
    constant = tuple(c for c in of_all if levels[c] > 1)
    if table.empty:
        raise DataError(f"there is no row with a {score}", column=score)
    if of_samples and not several:
        raise DataError(
            f"there is one {of_samples[0]}: errors come from how much several "
            f"{display.levels_of(of_samples[0])} differ",
            column=of_samples[0],
        )
    if not several:
        raise DataError(
            f"nothing is sampled: a study needs a column of items, such as 'item', and has "
            f"{', '.join(map(repr, table.columns))}; name others by sampled=[…]",
            column="item",
        )
    cell = [model, *several, *constant]
    numbering = [c for c in numbers if levels[c] > 1]
    check_cells(table, [*cell, *numbering], score, groups=groups)
    if numbering and groups.n_groups([*cell, *numbering]) < len(table):
        repeated = groups.repeated([*cell, *numbering])
        raise DataError(copies(repeated, [*cell, *numbering]), column=numbering[0])
    numbered = numbering[0] if numbering and groups.n_groups(cell) < len(table) else ""
    answer = _answer(groups, cell, numbering) if numbered and JUDGE in cell else []
    terms, left = _terms(groups, len(table), model, several, constant, answer=answer)
    names = " and ".join(":".join(term) for term in _apart(groups, model, left))
    own = [f for f in several if levels[model] > 1 and groups.n_groups([model, f]) == levels[f]]
    nested = (SAMPLED[0], FIXED[0])
    shares = set(nested) <= {*several, *constant} and (
        groups.n_groups(nested) > levels[SAMPLED[0]]
    )
    return Roles(
        model, score, constant, tuple(several), tuple(single), numbered, levels, terms, names,
        shares, own=tuple(own),
    )  # fmt: skip


def _apart(
    groups: Partitions, model: str, terms: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return terms without those that name others again: model:item:task of items of one task."""

    def n(term: tuple[str, ...]) -> int:
        return groups.n_groups([c for c in term if c != model])

    def is_again(term: tuple[str, ...]) -> bool:
        coarser = [s for s in terms if set(s) < set(term) and (model in s) == (model in term)]
        return any(n(s) == n(term) for s in coarser)

    return [term for term in terms if not is_again(term)]


def check_number_of_means(roles: Roles) -> None:
    """Refuse models whose means are too many to be estimated one by one.

    Raises
    ------
    DataError
        If they are.
    """
    levels, model, fixed = roles.levels, roles.model, roles.fixed
    if prod(levels[c] for c in (model, *fixed)) <= _MOST_COLUMNS:
        return
    models = display.counted(levels[model], model)
    if not fixed:
        raise DataError(
            f"{models} are too many to be compared in pairs, of at most {_MOST_COLUMNS:,}: "
            "leave some out by where=…",
            column=model,
        )
    raise DataError(
        f"{models} have too many means over the levels of {display.listed(list(fixed))} to be "
        "estimated one by one; "
        f"take these as sampled: sampled=[{', '.join(map(repr, fixed))}]",
        column=fixed[0],
    )


def task_shares(given: Any, roles: Roles, table: pd.DataFrame) -> dict[Any, float]:
    """Return weights of tasks with a sum of 1; none if they are equal.

    Parameters
    ----------
    given : by task; ``"items"``, ``"equal"`` or None
    roles : of the columns
    table : of the scores

    Raises
    ------
    PlanError
        If they are not weights of all tasks.
    """
    if given is None or (isinstance(given, str) and given == "equal"):
        return {}
    task = FIXED[0]
    if task not in roles.fixed:
        raise PlanError(
            f"task_weights are of several tasks, in a column {task!r} that is not sampled",
            column=task,
        )
    if isinstance(given, str) and given == "items":
        given = table.groupby(task, observed=True)["item"].nunique().to_dict()
    known = list(table[task].unique())
    if not isinstance(given, Mapping) or set(given) != set(known):
        listed = ", ".join(map(repr, known))
        raise PlanError(
            f"task_weights are 'equal', 'items' or a weight of each {task}, of {listed}, not "
            f"{given!r}"
        )
    weights = list(given.values())
    if not all(is_real(w) and 0.0 < w < np.inf for w in weights):
        raise PlanError(f"task_weights are numbers above 0, not {given!r}")
    return {name: float(w) / sum(weights) for name, w in given.items()}


def _terms(
    groups: Partitions,
    n_rows: int,
    model: str,
    sampled: Sequence[str],
    fixed: Sequence[str],
    within: Sequence[str] = (),
    answer: Sequence[str] = (),
) -> tuple[tuple[tuple[str, ...], ...], list[tuple[str, ...]]]:
    """Return the random terms that differ as partitions of the rows, and those of single rows.

    With columns `within`, they are partitions of the rows of each combination of their levels. An
    `answer` of a model is a term, since all its judges see the same one.
    """
    has_models = groups.n_groups([model]) > 1
    facets = [*sampled, *fixed]
    crossed = [
        c
        for n in range(1, len(facets) + 1)
        for c in combinations(facets, n)
        if not set(c).isdisjoint(sampled)
    ]
    wanted: list[tuple[str, ...]] = []
    for term in crossed:
        wanted.append(term)
        if has_models:
            wanted.append((model, *term))
    if answer:
        wanted.append(tuple(answer))
    wanted.sort(key=len)
    kept: dict[tuple[str, ...], int] = {}
    single: list[tuple[str, ...]] = []
    for term in wanted:
        n = groups.n_groups((*within, *term))
        if n == n_rows:
            single.append(term)
        # A finer term with as many groups has the same ones.
        elif not any(n == m and set(coarser) < set(term) for coarser, m in kept.items()):
            kept[term] = n
    return tuple(kept), single


def _answer(groups: Partitions, cell: Sequence[str], numbering: Sequence[str]) -> list[str]:
    """Return the columns that name an answer, whoever judges it."""
    every = [*(c for c in cell if c != JUDGE), *numbering]
    fewer = every[: len(every) - len(numbering) + 1]
    return fewer if groups.n_groups(fewer) == groups.n_groups(every) else every


def _check_named(
    table: pd.DataFrame, model: str, score: str, sampled: Collection[str], fixed: Collection[str]
) -> None:
    for name in (model, score, *sampled, *fixed):
        check_column(table, name)
    check_one_role([model, score, *sampled, *fixed])


def check_one_role(given: Sequence[str]) -> None:
    """Refuse a column that several options name.

    Parameters
    ----------
    given : columns of the options
    """
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"column {twice!r} has two roles", column=twice)


def check_column(table: pd.DataFrame, name: str) -> None:
    """Refuse a column that does not exist; metrics may be the judges.

    Parameters
    ----------
    table : of scores
    name : of the column
    """
    if name not in table:
        known = list(map(str, table.columns))
        instead = f"; {METRICS_ARE_JUDGES}" if name == JUDGE and "metric" in table else ""
        if name == MODEL:
            instead = "; system=… names the column of what is compared"
        raise PlanError(
            f"there is no column {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(map(repr, known)) or 'none'}{instead}",
            column=str(name),
        )


def copies(repeated: BoolArray, cell: Sequence[str]) -> str:
    """Return the sentence on scores that seem to be copies of others.

    Parameters
    ----------
    repeated : which rows
    cell : columns that name a score
    """
    names = ", ".join(map(repr, cell))
    return (
        f"{display.count(int(repeated.sum()))} of {display.count(len(repeated))} scores have the "
        f"same {display.listed(list(map(str, cell)))} as another: was a run read twice? Keep one "
        f"of each, as table.drop_duplicates([{names}])"
    )


def of_lacking(roles: Roles, models: Sequence[Any], table: pd.DataFrame | None = None) -> str:
    """Return the sentence on models that have no score of some levels that are all there is.

    Parameters
    ----------
    roles : of the columns
    models : that lack scores
    table : of the scores, from which it follows what all models have
    """
    several, verb = display.levels_of(roles.model), "lacks" if len(models) == 1 else "lack"
    over = display.listed([f"all {display.levels_of(f)}" for f in roles.fixed])
    named = display.listed(list(map(str, models)))
    named = named if len(models) <= MOST_NAMED else f"{len(models)} {several}"
    return (
        f"{named} {verb} scores: a mean over {over} is not known. "
        "To use all scores, take these as a sample of others, "
        f"sampled=[{', '.join(map(repr, roles.fixed))}]{_on_shared(roles, table)}"
    )


def _on_shared(roles: Roles, table: pd.DataFrame | None) -> str:
    """Return how to compare all models on the tasks that all of them have, if there are some."""
    task = FIXED[0]
    if table is None or roles.fixed != FIXED:
        return ""
    n_models = table.groupby(task, observed=True)[roles.model].nunique()
    shared = [str(name) for name in n_models.index[n_models == roles.levels[roles.model]]]
    if not shared:
        return ""
    levels = repr(shared if shared[1:] else shared[0])
    models = display.levels_of(roles.model)
    return f"; to compare all {models} on what they share, where={{{task!r}: {levels}}}"


def one_of_each_task(table: pd.DataFrame, name: str) -> list[str]:
    """Return levels of a column, one for each task; a single one if all tasks have it.

    Parameters
    ----------
    table : scores
    name : of the column
    """
    task, known = FIXED[0], table[table[name].notna()]
    if task not in table:
        return [str(known[name].iloc[0])]
    by = known[[task, name]].drop_duplicates().groupby(task, observed=True)[name]
    by_task: list[list[Any]] = sorted((list(levels) for _, levels in by), key=len)
    common = next((level for level in by_task[0] if all(level in own for own in by_task)), None)
    if common is not None:
        return [str(common)]
    chosen: list[Any] = []
    for own in by_task:
        chosen += [] if set(own) & set(chosen) else own[:1]
    return [str(level) for level in table[name].unique() if level in chosen]


def check_cells(
    table: pd.DataFrame,
    cell: list[str],
    score: str,
    or_else: str = "",
    groups: Partitions | None = None,
) -> None:
    """Refuse cells with several scores that a column without a role separates.

    Parameters
    ----------
    table : scores
    cell : columns that name a sample
    score : column of the scores
    or_else : more that can be done, for the message
    groups : of the table, if it has been numbered
    """
    if (groups or Partitions(table)).n_groups(cell) == len(table):
        return
    others = [c for c in table if c not in cell and c != score]
    of_cells = Partitions(table[[*cell, *others]])
    for name in others:
        if of_cells.n_groups([*cell, name]) > of_cells.n_groups(cell):
            found = table[name].unique()
            values = ", ".join(map(repr, found[:3].tolist()))
            chosen = one_of_each_task(table, str(name))
            one, level = ("one of each task", chosen) if chosen[1:] else ("one", chosen[0])
            raise DataError(
                f"column {name!r} separates scores of the same sample ({values}): choose {one}, "
                f"where={{{name!r}: {level!r}}}, or give the column a role, "
                f"sampled=[{name!r}] or fixed=[{name!r}]{or_else.format(name)}",
                column=name,
            )
